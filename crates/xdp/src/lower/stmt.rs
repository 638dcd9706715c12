//! Statements.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{ActionId, BlockId, CounterId, Dest, Expr, Packet, Send, Stmt, Via};

use super::register::ATOMIC;
use super::{A, B, Counted, Flow, Lowering, RESULT};
use crate::layout::{word, words};
use crate::tables::TOO_MANY_CELLS;

impl Lowering<'_> {
    /// Inlines a block; `exit` is where `exit` leads.
    pub(super) fn block(&mut self, id: BlockId, exit: Label) {
        let Some((name, body)) = self.program.blocks.get(id.index()) else { return };
        if self.blocks.contains(&id) {
            return self.refuse("blocks that call each other in a circle");
        }
        self.blocks.push(id);
        let before = (self.part.clone(), self.flow);
        self.begin_part(format!("block {name}"));
        let end = self.asm.label();
        self.flow = Some(Flow { back: end, block_end: end, exit });
        self.body(body, true);
        self.asm.bind(end);
        self.flow = before.1;
        self.begin_part(before.0);
        self.blocks.pop();
    }

    /// Inlines an action, whose arguments are in its place in the layout.
    pub(super) fn action(&mut self, id: ActionId, last: bool) {
        let Some(action) = self.program.actions.get(id.index()) else { return };
        if self.actions.contains(&id) {
            return self.refuse("actions that call each other in a circle");
        }
        self.actions.push(id);
        let before = (self.part.clone(), self.flow, self.action);
        self.begin_part(format!("action {}", action.name));
        let end = self.asm.label();
        self.flow = before.1.map(|flow| Flow { back: end, ..flow });
        self.action = Some(id);
        self.body(&action.body, last);
        self.asm.bind(end);
        (self.flow, self.action) = (before.1, before.2);
        self.begin_part(before.0);
        self.actions.pop();
    }

    /// Statements; `last` if nothing of the stage follows behind them.
    pub(super) fn body(&mut self, body: &[Stmt], last: bool) {
        for (i, stmt) in body.iter().enumerate() {
            let is_last =
                last && body.iter().skip(i + 1).all(|stmt| matches!(stmt, Stmt::Return | Stmt::Exit));
            self.stmt(stmt, is_last);
        }
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt, last: bool) {
        self.with_temps(|this| this.one(stmt, last));
    }

    fn one(&mut self, stmt: &Stmt, last: bool) {
        match stmt {
            Stmt::Set(place, value) => self.set(place, value),
            Stmt::CopyHeader(to, from) => self.copy_header(to, from),
            Stmt::SetValid(header) => self.set_valid(header, true),
            Stmt::SetInvalid(header) => self.set_valid(header, false),
            Stmt::Push(stack, n) => self.shift_stack(*stack, *n, true),
            Stmt::Pop(stack, n) => self.shift_stack(*stack, *n, false),
            Stmt::Hash(place, kind, items) => self.hash(place, *kind, items),
            Stmt::UpdateChecksum(place, before, after) => self.update_checksum(place, before, after),
            Stmt::Count(counter, index) => self.count_cell(*counter, index),
            Stmt::RegisterRead(place, register, index) => self.read_register(place, *register, index),
            Stmt::RegisterWrite(register, index, value) => self.write_register(*register, index, value),
            Stmt::Send(send) => self.send(send, last),
            Stmt::Drop(reason) => self.drop_for(*reason),
            Stmt::Apply(table, applied) => self.apply(*table, applied, last),
            Stmt::Do(action, args) => {
                self.arguments(*action, args);
                self.action(*action, last);
            }
            Stmt::If(condition, yes, no) => {
                let (other, end) = (self.asm.label(), self.asm.label());
                self.branch(condition, false, other);
                self.alternatives([(yes, end), (no, other)], |this, (body, label)| {
                    if label == other {
                        this.asm.jump(end);
                        this.asm.bind(other);
                    }
                    this.body(body, last);
                });
                self.asm.bind(end);
            }
            Stmt::Switch(value, cases, default) => self.switch(value, cases, default, last),
            Stmt::Call(block) => {
                let exit = self.flow.map(|flow| flow.exit);
                let tail = self.tail;
                if !last {
                    self.tail = None;
                }
                if let Some(exit) = exit {
                    self.block(*block, exit);
                }
                self.tail = tail;
            }
            Stmt::Goto(block) => {
                if let Some(flow) = self.flow {
                    // Behind the block in its place, as behind the block itself.
                    let tail = self.tail;
                    if !last {
                        self.tail = None;
                    }
                    self.block(*block, flow.exit);
                    self.tail = tail;
                    self.asm.jump(flow.block_end);
                }
            }
            Stmt::Return => {
                if let Some(flow) = self.flow {
                    self.asm.jump(flow.back);
                }
            }
            Stmt::Exit => {
                if let Some(flow) = self.flow {
                    self.asm.jump(flow.exit);
                }
            }
            Stmt::Emit(emit) => self.emit(emit),
            Stmt::Random(..) => self.refuse("random numbers"),
            Stmt::Atomic(body) => self.locked(ATOMIC, |this| this.body(body, false)),
            Stmt::Digest(digest, values) => self.digest(*digest, values),
            Stmt::Meter(place, meter, index, before) => self.meter(place, *meter, index, before.as_ref()),
            Stmt::MeterEntry(..) => self.refuse("a meter of an entry"),
            Stmt::Group(..) => self.refuse("a group"),
            Stmt::Controller(..) => self.refuse("a packet for the controller"),
            Stmt::Truncate(_) => self.refuse("truncation"),
            Stmt::Insert(_) | Stmt::Remove(_) => self.refuse("bytes behind the headers that come or go"),
            Stmt::Reparse => self.refuse("parsing again"),
            Stmt::Extern(..) => self.refuse("a function of a module"),
        }
    }

    fn switch(
        &mut self,
        value: &Expr,
        cases: &[(Vec<pipeline::ir::Constant>, Vec<Stmt>)],
        default: &[Stmt],
        last: bool,
    ) {
        let ty = self.ty(value);
        let temps: Vec<i16> = (0..words(ty.width())).map(|_| self.temp()).collect();
        for (i, temp) in temps.iter().enumerate() {
            self.word(value, i);
            self.store_word(*temp, A);
        }
        let end = self.asm.label();
        let cases = cases.iter().map(|(constants, body)| (Some(constants), &body[..]));
        self.alternatives(cases.chain([(None, default)]), |this, (constants, body)| {
            let Some(constants) = constants else { return this.body(body, last) };
            let (taken, other) = (this.asm.label(), this.asm.label());
            for constant in constants {
                let next = this.asm.label();
                for (word, temp) in constant.value.limbs().iter().zip(&temps) {
                    this.load_word(A, *temp);
                    this.asm.set(B, *word);
                    this.asm.jump_if(Cond::Ne, A, B, next);
                }
                this.asm.jump(taken);
                this.asm.bind(next);
            }
            this.asm.jump(other);
            this.asm.bind(taken);
            this.body(body, last);
            this.asm.jump(end);
            this.asm.bind(other);
        });
        self.asm.bind(end);
    }

    /// Evaluates an action's arguments; all of them first, since they may depend on the action's own.
    fn arguments(&mut self, id: ActionId, args: &[Expr]) {
        let mut words_of = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            let ty = self.ty(arg);
            for w in 0..words(ty.width()) {
                let temp = self.temp();
                self.word(arg, w);
                self.store_word(temp, A);
                words_of.push((temp, self.layout.param(id.index(), i) + 8 * w as i16));
            }
        }
        for (temp, param) in words_of {
            self.load_word(A, temp);
            self.store_word(param, A);
        }
    }

    /// `A = ` an index below `size`; jumps if it is not below.
    pub(super) fn index(&mut self, index: &Expr, size: u32, beyond: Label) {
        self.number(index);
        self.asm.set(B, size.into());
        self.asm.jump_if(Cond::Ge, A, B, beyond);
    }

    /// Counts the packet in a cell of a map with counts for each CPU, whose index is in `A`.
    pub(super) fn count_in(&mut self, map: usize) {
        let (key, none) = (self.temp(), self.asm.label());
        self.store_word(key, A);
        self.counted(Counted::Cell(map), Some(key));
        self.look_up(map, key);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, none);
        self.asm.load(Size::D, A, RESULT, 0);
        self.asm.alu_imm(Alu::Add, A, 1);
        self.asm.store(Size::D, RESULT, 0, A);
        self.asm.load(Size::D, A, RESULT, 8);
        self.load_word(B, word::LENGTH);
        self.asm.alu(Alu::Add, A, B);
        self.asm.store(Size::D, RESULT, 8, A);
        self.asm.bind(none);
    }

    fn count_cell(&mut self, counter: CounterId, index: &Expr) {
        let Some(schema) = self.program.counters.get(counter.index()) else { return };
        let Some(map) = self.maps.counter(counter) else { return self.refuse(TOO_MANY_CELLS) };
        let beyond = self.asm.label();
        self.index(index, schema.size, beyond);
        self.count_in(map);
        self.asm.bind(beyond);
    }

    fn send(&mut self, send: &Send, last: bool) {
        let tail = match self.tail {
            Some(tail) if last => tail,
            _ => return self.refuse("a packet that is sent before the end of its stage, as copies are"),
        };
        let port = match &send.to {
            Dest::Port(port) => port,
            Dest::Replicas(..) => return self.refuse("copies of a packet: multicast or clones"),
            Dest::Same => return self.refuse("a packet that starts again: resubmitted or recirculated"),
            Dest::Flood | Dest::All | Dest::Fallback => {
                return self.refuse("a packet for the bridge's ports");
            }
        };
        if send.limit.is_some() {
            return self.refuse("truncation");
        }
        self.number(port);
        self.small(u32::MAX);
        self.store_word(word::EGRESS, A);
        for (value, most, at) in [(&send.class, 255, word::CLASS), (&send.queue, 65_535, word::QUEUE)] {
            if let Some(value) = value {
                self.number(value);
                self.small(most);
                self.store_word(at, A);
            }
        }
        let to = match (send.via, tail.next) {
            (Via::Direct, _) | (Via::Next, None) => None,
            (Via::Next, next) => next,
            (Via::Stage(stage), Some((next, label))) if next == stage => Some((stage, label)),
            (Via::Stage(stage), _) if stage.0 <= tail.stage.0 => {
                return self.refuse("a packet that starts again: resubmitted or recirculated");
            }
            (Via::Stage(_), _) => return self.refuse("a way to a stage that does not follow"),
        };
        match (to, send.packet) {
            (Some((_, label)), Packet::Current) => {
                self.store_number(word::INSTANCE, send.instance.into());
                self.asm.jump(label);
            }
            (Some(_), Packet::Original) => self.refuse("a packet as it came, for another stage"),
            (None, Packet::Current) => self.asm.jump(tail.leave),
            (None, Packet::Original) => self.asm.jump(tail.original),
        }
    }

    /// `A = ` at most this.
    pub(super) fn small(&mut self, most: u32) {
        let fits = self.asm.label();
        self.asm.set(B, most.into());
        self.asm.jump_if(Cond::Le, A, B, fits);
        self.asm.mov(A, B);
        self.asm.bind(fits);
    }
}
