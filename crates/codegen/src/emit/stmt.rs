//! Statements.

use std::sync::Arc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use pipeline::interp::{Dropped, Limit};
use pipeline::ir::{
    ActionId, Applied, BlockId, Direction, EmitRef, Expr, ExternArg, ExternId, HeaderRef, Send, Slot,
    StackId, Stmt, TableId, Via,
};

use super::{Emit, Kind, limbs_of, param_words};
use crate::code::{BoundVar, Operand};
use crate::flow;
use crate::keys::KeyLayout;
use crate::layout::{FIXED, word};
use crate::runtime::calls;
use crate::special::decided::Origin;
use crate::special::flow_key::FlowKey;

/// Whether statements go on behind one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// They do.
    Follows,
    /// Nothing behind it is reached.
    Never,
}
use Next::{Follows, Never};

/// Whether a statement changes nothing but the pass's own headers and variables. If steps run out among such
/// statements, it is not seen where.
fn is_own(stmt: &Stmt) -> bool {
    matches!(
        stmt,
        Stmt::Set(..)
            | Stmt::CopyHeader(..)
            | Stmt::SetValid(_)
            | Stmt::SetInvalid(_)
            | Stmt::Push(..)
            | Stmt::Pop(..)
            | Stmt::Hash(..)
            | Stmt::UpdateChecksum(..)
            | Stmt::Truncate(_)
            | Stmt::Remove(_)
    )
}

impl Emit<'_, '_> {
    /// A function's statements, and its end.
    pub(crate) fn function(&mut self, body: &[Stmt]) {
        if self.body(body) == Follows {
            self.exit(flow::NEXT);
        }
    }

    /// The same for statements whose arguments have an origin.
    pub(crate) fn function_of(&mut self, args: Origin, body: &[Stmt]) {
        self.args_from = args;
        self.function(body);
    }

    /// Notes that the packet's way follows from more than the entry hit and the ingress port.
    fn undecided(&mut self) {
        let yes = self.int(1);
        self.store_word(yes, word::UNDECIDED);
    }

    /// The statements in front of the first lookup, as far as they only assign and branch; then the lookup's key.
    pub(crate) fn preparation(&mut self, body: &[Stmt]) {
        self.prepares = true;
        self.function(body);
    }

    /// Statements, one level deeper.
    pub(super) fn body(&mut self, body: &[Stmt]) -> Next {
        // Depth is a number below 2^32.
        let depth = self.deeper();
        if !self.cx.is_special() {
            let fits = self.is(IntCC::UnsignedLessThan, depth, self.cx.limits.depth.into());
            self.unless(fits, |e| e.exit(flow::drop_code(Dropped::Limit(Limit::Depth))));
        }
        self.level += 1;
        let mut next = Follows;
        let mut counted = 0;
        for (i, stmt) in body.iter().enumerate() {
            if counted == 0 {
                let own = body.iter().skip(i).take_while(|stmt| is_own(stmt)).count();
                counted = (own + 1).min(body.len() - i);
                let steps = body.iter().skip(i).take(counted).map(Stmt::steps);
                self.steps(steps.fold(0, u32::saturating_add));
            }
            counted -= 1;
            next = self.stmt(stmt);
            if next == Never {
                break;
            }
        }
        self.level -= 1;
        next
    }

    /// Depth of calls here.
    fn deeper(&mut self) -> Value {
        self.add_const(self.depth, self.level)
    }

    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Next {
        let is_plain = matches!(stmt, Stmt::Set(..) | Stmt::If(..) | Stmt::Goto(_) | Stmt::Apply(..));
        if self.prepares && !is_plain {
            self.exit(flow::NEXT);
            return Never;
        }
        let origins = self.cx.origins.filter(|_| !matches!(self.kind, Kind::Parser { .. }));
        if origins.is_some_and(|origins| !origins.is_decided(stmt, self.args_from)) {
            self.undecided();
        }
        if origins.is_some_and(|origins| !origins.is_keyed(stmt, self.args_from)) {
            let yes = self.int(1);
            self.store_word(yes, word::UNKEYED);
        }
        match stmt {
            Stmt::If(condition, yes, no) => {
                let is_not_back = origins.is_some_and(|origins| origins.is_not_back(stmt, self.args_from));
                let holds = self.holds(condition);
                let [first, second, end] = [(); 3].map(|()| self.b.create_block());
                self.branch(holds, first, second);
                let mut next = Never;
                for (block, body) in [(first, yes), (second, no)] {
                    self.begin(block);
                    if is_not_back && block == second {
                        self.undecided();
                    }
                    next = self.branch_body(body, end, next);
                }
                self.begin_if(end, next)
            }
            Stmt::Switch(value, cases, default) => self.switch(value, cases, default),
            Stmt::Atomic(body) => {
                self.call(calls::lock as *const (), &[self.frame]);
                self.atomic = true;
                let next = self.body(body);
                if next == Follows {
                    self.unlock();
                }
                self.atomic = false;
                next
            }
            Stmt::Apply(table, applied) => self.apply(*table, applied),
            Stmt::Do(action, args) => {
                let params =
                    self.cx.program.actions.get(action.index()).map_or(&[][..], |action| &action.params);
                let (first, words) = param_words(params);
                let at = self.slot(words);
                for (arg, first) in args.iter().zip(first) {
                    let value = self.expr(arg);
                    for (i, limb) in value.limbs.iter().enumerate() {
                        self.store(*limb, at, 8 * (first + i) as i32);
                    }
                }
                self.action(*action, at);
                Follows
            }
            Stmt::Call(block) => {
                self.run_block(*block);
                Follows
            }
            Stmt::Goto(block) => {
                self.exit(flow::GOTO | i64::from(block.0) << 16);
                Never
            }
            Stmt::Return => {
                self.exit(flow::NEXT);
                Never
            }
            Stmt::Exit => {
                self.exit(flow::EXIT);
                Never
            }
            Stmt::Drop(reason) => {
                self.exit(flow::drop_code(Dropped::Reason(*reason)));
                Never
            }
            Stmt::Group(table, id) => {
                let (id, table, depth) = (self.number(id), self.int(table.0.into()), self.deeper());
                let flow = self.call(calls::group as *const (), &[self.frame, table, id, depth]);
                self.go_on(flow);
                Follows
            }
            Stmt::Reparse => {
                let depth = self.deeper();
                let flow = self.call(calls::reparse as *const (), &[self.frame, depth]);
                self.go_on(flow);
                Follows
            }
            Stmt::Send(send) => self.send(send),
            Stmt::Controller(reason, limit, data) => {
                let reason = self.number(reason);
                let (has_limit, limit) = self.optional(limit.as_ref());
                self.list(data);
                let depth = self.deeper();
                let flow =
                    self.call(calls::controller as *const (), &[self.frame, reason, has_limit, limit, depth]);
                self.go_on(flow);
                Follows
            }
            _ => {
                self.compute(stmt);
                Follows
            }
        }
    }

    /// A branch that continues at `end`.
    fn branch_body(&mut self, body: &[Stmt], end: cranelift_codegen::ir::Block, before: Next) -> Next {
        match self.body(body) {
            Follows => {
                self.jump(end);
                Follows
            }
            Never => before,
        }
    }

    /// Continues at the end of branches, if one of them leads there.
    fn begin_if(&mut self, end: cranelift_codegen::ir::Block, next: Next) -> Next {
        if next == Follows {
            self.begin(end);
        }
        next
    }

    /// Continues if a function that was called did, else ends as it did.
    fn go_on(&mut self, code: Value) {
        let next = self.is(IntCC::Equal, code, flow::NEXT.cast_unsigned());
        self.unless(next, |e| e.exit_with(code));
    }

    fn switch(
        &mut self,
        value: &Expr,
        cases: &[(Vec<pipeline::ir::Constant>, Vec<Stmt>)],
        default: &[Stmt],
    ) -> Next {
        let value = self.expr(value);
        let end = self.b.create_block();
        let mut next = Never;
        for (constants, body) in cases {
            let [here, other] = [(); 2].map(|()| self.b.create_block());
            for constant in constants.iter().filter(|constant| constant.ty == value.ty) {
                let wanted = self.constant(&constant.value);
                let equal = self.equal(&value.limbs, &wanted);
                let try_next = self.b.create_block();
                self.branch(equal, here, try_next);
                self.begin(try_next);
            }
            self.jump(other);
            self.begin(here);
            next = self.branch_body(body, end, next);
            self.begin(other);
        }
        next = self.branch_body(default, end, next);
        self.begin_if(end, next)
    }

    /// Runs a block, and those that take its place.
    pub(crate) fn run_block(&mut self, block: BlockId) {
        let [again, next, jump, end] = [(); 4].map(|()| self.b.create_block());
        let first = self.int(block.0.into());
        let id = self.b.append_block_param(again, types::I64);
        self.b.ins().jump(again, &[BlockArg::Value(first)]);
        self.begin(again);
        self.steps(1);
        let offset = self.shl(id, 3);
        let blocks = self.load_word(word::BLOCKS);
        let at = self.b.ins().iadd(blocks, offset);
        let code = self.load(at, 0);
        let (depth, zero) = (self.deeper(), self.zero());
        let flow = self.call_at(code, &[self.frame, zero, depth]);
        let is_next = self.is(IntCC::Equal, flow, flow::NEXT.cast_unsigned());
        self.branch(is_next, end, next);
        self.begin(next);
        let tag = self.and_const(flow, 0xff);
        let is_goto = self.is(IntCC::Equal, tag, flow::GOTO.cast_unsigned());
        self.unless(is_goto, |e| e.exit_with(flow));
        self.jump(jump);
        self.begin(jump);
        let target = self.shr(flow, 16);
        self.b.ins().jump(again, &[BlockArg::Value(target)]);
        self.begin(end);
    }

    /// Runs an action of the program.
    fn action(&mut self, action: ActionId, args: Value) {
        let blocks = self.load_word(word::BLOCKS);
        let index = self.cx.program.blocks.len() + action.index();
        let code = self.load(blocks, 8 * index as i32);
        let depth = self.deeper();
        let flow = self.call_at(code, &[self.frame, args, depth]);
        self.go_on(flow);
    }

    /// A table's key as words.
    fn key_words(&mut self, schema: &pipeline::ir::Table) -> Vec<Value> {
        let layout = KeyLayout::new(self.cx.program, schema);
        self.placed_words(schema.keys.iter().map(|key| &key.value), &layout)
    }

    /// Values at their places in words.
    fn placed_words<'e>(
        &mut self,
        values: impl IntoIterator<Item = &'e Expr>,
        layout: &KeyLayout,
    ) -> Vec<Value> {
        let mut words = vec![None; layout.words];
        for (value, placed) in values.into_iter().zip(layout.keys.iter().copied().flatten()) {
            let value = self.expr(value);
            let whole = placed.words() as u16 * 64;
            let moved = self.shl_const(&value.limbs, placed.shift, whole);
            for (slot, limb) in words.iter_mut().skip(placed.word).zip(moved.iter().rev()) {
                *slot = Some(match *slot {
                    Some(before) => self.b.ins().bor(before, *limb),
                    None => *limb,
                });
            }
        }
        words.into_iter().map(|word| word.unwrap_or_else(|| self.zero())).collect()
    }

    /// The function that lays out a table's key at the address that is its argument.
    pub(crate) fn key_function(&mut self, schema: &pipeline::ir::Table) {
        for (i, word) in self.key_words(schema).into_iter().enumerate() {
            self.store(word, self.args, 8 * i as i32);
        }
        self.exit(flow::NEXT);
    }

    /// The function that lays out the flow key at the address that is its argument.
    pub(crate) fn flow_key(&mut self, key: &FlowKey) {
        for (i, word) in self.placed_words(&key.parts, &key.layout).into_iter().enumerate() {
            self.store(word, self.args, 8 * i as i32);
        }
        self.exit(flow::NEXT);
    }

    /// Calls it; returns the address of the key.
    fn shared_key(&mut self, id: TableId, schema: &pipeline::ir::Table, depth: Value) -> Value {
        let at = self.slot(KeyLayout::new(self.cx.program, schema).words);
        let index = self.cx.keys.get(id.index()).copied().unwrap_or(0);
        let blocks = self.load_word(word::BLOCKS);
        let code = self.load(blocks, 8 * index as i32);
        self.call_at(code, &[self.frame, at, depth]);
        at
    }

    /// Looks a table up, runs what it finds, then the branch for it.
    fn apply(&mut self, id: TableId, applied: &Applied) -> Next {
        let program = self.cx.program;
        let Some(schema) = program.tables.get(id.index()) else { return Follows };
        let words = if self.cx.is_special() { self.key_words(schema) } else { vec![] };
        if self.prepares && words.len() > crate::form::WIDEST {
            self.exit(flow::NEXT);
            return Never;
        }
        if self.prepares {
            let of_packet = |key: &pipeline::ir::Key| {
                let origin = self.cx.origins.map(|origins| origins.expr(&key.value, Origin::Other));
                origin.is_none_or(|origin| origin > Origin::Ingress)
            };
            if schema.keys.iter().any(of_packet) {
                self.undecided();
            }
            for (i, word) in words.iter().enumerate() {
                self.store(*word, self.args, 8 * i as i32);
            }
            self.exit(flow::LOOKUP | i64::from(id.0) << 16);
            return Never;
        }
        let (table, depth) = (self.int(id.0.into()), self.deeper());
        let keys = match self.cx.is_special() {
            true => self.spill(&words),
            false => self.shared_key(id, schema, depth),
        };
        let lookup =
            if self.cx.is_special() { calls::lookup_narrow as *const () } else { calls::lookup as *const () };
        let call = self.call(lookup, &[self.frame, table, keys, depth]);
        let found = self.is(IntCC::NotEqual, call, 0);
        // Before the action, which may apply the table again.
        let hit = self.load(self.frame, self.cx.layout.hit(id));
        let is_hit = self.is(IntCC::NotEqual, hit, 0);
        let (run, after) = (self.b.create_block(), self.b.create_block());
        let none = self.int(u64::MAX);
        let ran = self.b.append_block_param(after, types::I64);
        self.b.ins().brif(found, run, &[], after, &[BlockArg::Value(none)]);
        self.begin(run);
        let [args, action] = [calls::CALL_ARGS, calls::CALL_ACTION].map(|at| self.load(call, at));
        let code = if self.cx.is_special() {
            let (actions, slot) = (self.load_word(word::ACTIONS), self.load(call, calls::CALL_SLOT));
            let offset = self.shl(slot, 3);
            let at = self.b.ins().iadd(actions, offset);
            self.load(at, 0)
        } else {
            self.load(call, calls::CALL_CODE)
        };
        let flow = self.call_at(code, &[self.frame, args, depth]);
        self.go_on(flow);
        self.b.ins().jump(after, &[BlockArg::Value(action)]);
        self.begin(after);
        if *applied == Applied::default() && self.cx.is_special() {
            return Follows;
        }
        let [first, second, end] = [(); 3].map(|()| self.b.create_block());
        self.branch(is_hit, first, second);
        let mut next = Never;
        for (block, body) in [(first, &applied.hit), (second, &applied.miss)] {
            self.begin(block);
            next = self.branch_body(body, end, next);
        }
        if self.begin_if(end, next) == Never {
            return Never;
        }
        let end = self.b.create_block();
        let mut next = Never;
        for (action, body) in &applied.actions {
            let [here, other] = [(); 2].map(|()| self.b.create_block());
            let is_this = self.is(IntCC::Equal, ran, action.0.into());
            self.branch(is_this, here, other);
            self.begin(here);
            next = self.branch_body(body, end, next);
            self.begin(other);
        }
        next = self.branch_body(&applied.other, end, next);
        self.begin_if(end, next)
    }

    /// Whether there is a value, and the value; numbers both.
    fn optional(&mut self, value: Option<&Expr>) -> (Value, Value) {
        match value {
            None => (self.zero(), self.zero()),
            Some(value) => {
                let value = self.number(value);
                (self.int(1), value)
            }
        }
    }

    /// Whether a destination is one port outside of the program, for the packet as it is.
    fn is_output(&self, send: &Send) -> bool {
        let leaves = match send.via {
            Via::Direct => true,
            Via::Next => self.cx.program.stages.iter().all(|stage| stage.next.is_none()),
            Via::Stage(_) => false,
        };
        let to_port = matches!(send.to, pipeline::ir::Dest::Port(_));
        leaves && to_port && send.packet == pipeline::ir::Packet::Current && send.limit.is_none()
    }

    /// Whether a packet that is sent goes on in the second stage, in the same pass. The send is the last statement of the
    /// first stage then ([`crate::special`], `chain.rs`).
    fn enters_next(&self, send: &Send) -> bool {
        self.cx.is_special() && send.via == Via::Next && self.cx.program.stages.len() > 1
    }

    /// Ends the first stage of a packet that goes on in the second on its way to a port.
    fn enter_next(&mut self, entered: &[BoundVar], to: Value, instance: u8) {
        // A number that is no port's is a port that does not exist.
        let most = self.int(u32::MAX.into());
        let to = self.b.ins().umin(to, most);
        for bound in entered {
            let number = match bound.slot {
                Slot::EgressPort => to,
                Slot::Instance => self.int(instance.into()),
                _ => self.zero(),
            };
            self.fill(*bound, number);
        }
        self.exit(flow::ON);
    }

    fn send(&mut self, send: &Send) -> Next {
        if let (true, None, pipeline::ir::Dest::Port(to)) = (self.is_output(send), &send.class, &send.to) {
            let (has_queue, queue) = self.optional(send.queue.as_ref());
            let (to, depth) = (self.number(to), self.deeper());
            let args = [self.frame, to, has_queue, queue, depth];
            let flow = self.call(calls::output as *const (), &args);
            self.go_on(flow);
            return Follows;
        }
        if let Some(entered) = self.cx.entered
            && self.enters_next(send)
            && let (None, None, None, pipeline::ir::Dest::Port(to)) =
                (&send.class, &send.queue, &send.limit, &send.to)
        {
            let to = self.number(to);
            self.enter_next(entered, to, send.instance);
            return Never;
        }
        let operand = Arc::new(Operand::Send(send.clone()));
        let address = Arc::as_ptr(&operand);
        self.cx.constants.borrow_mut().push(operand);
        let [class, queue, limit] =
            [&send.class, &send.queue, &send.limit].map(|value| self.optional(value.as_ref()).1);
        let to = match &send.to {
            pipeline::ir::Dest::Port(to) | pipeline::ir::Dest::Replicas(_, to) => self.number(to),
            _ => self.zero(),
        };
        let address = self.address(address);
        if self.enters_next(send) {
            let args = [self.frame, address, class, queue, limit, to];
            let flow = self.call(calls::enter_next as *const (), &args);
            self.exit_with(flow);
            return Never;
        }
        let depth = self.deeper();
        let flow =
            self.call(calls::send as *const (), &[self.frame, address, class, queue, limit, to, depth]);
        self.go_on(flow);
        Follows
    }

    fn compute(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Set(place, value) => {
                let value = self.expr(value);
                self.assign(place, &value.limbs);
            }
            Stmt::CopyHeader(to, from) => self.copy_header(to, from),
            Stmt::SetValid(header) => self.set_header(header, true),
            Stmt::SetInvalid(header) => self.set_header(header, false),
            Stmt::Push(stack, n) => self.shift_stack(*stack, *n, true),
            Stmt::Pop(stack, n) => self.shift_stack(*stack, *n, false),
            Stmt::Hash(place, kind, items) => {
                self.list(items);
                let kind = pipeline::ir::HashKind::ALL.iter().position(|k| k == kind).unwrap_or(0);
                let kind = self.int(kind as u64);
                let hash = self.call(calls::list_hash as *const (), &[self.frame, kind]);
                self.assign_resized(place, &[hash]);
            }
            Stmt::UpdateChecksum(place, old, new) => {
                let checksum = self.read_place(place);
                let checksum = checksum.first().copied().unwrap_or(self.frame);
                self.list(old);
                let old = self.call(calls::list_sum as *const (), &[self.frame]);
                self.list(new);
                let new = self.call(calls::list_sum as *const (), &[self.frame]);
                let updated = self.call(calls::update_checksum as *const (), &[checksum, old, new]);
                self.assign_resized(place, &[updated]);
            }
            Stmt::Random(place, low, high) => {
                let (low, high) = (self.expr(low), self.expr(high));
                let width = low.ty.width();
                let [result, low, high] =
                    [self.slot(limbs_of(width)), self.spill(&low.limbs), self.spill(&high.limbs)];
                let bits = self.int(width.into());
                self.call(calls::random as *const (), &[self.frame, result, low, high, bits]);
                let value = self.unspill(result, limbs_of(width));
                self.assign_resized(place, &value);
            }
            Stmt::RegisterRead(place, register, index) => {
                let index = self.number(index);
                let width = self.place_type(place).width();
                let (result, id, bits) =
                    (self.slot(limbs_of(width)), self.int(register.0.into()), self.int(width.into()));
                self.call(calls::register_read as *const (), &[self.frame, id, index, result, bits]);
                let value = self.unspill(result, limbs_of(width));
                self.assign(place, &value);
            }
            Stmt::RegisterWrite(register, index, value) => {
                let (index, value) = (self.number(index), self.expr(value));
                let (at, id, bits) = (
                    self.spill(&value.limbs),
                    self.int(register.0.into()),
                    self.int(value.ty.width().into()),
                );
                self.call(calls::register_write as *const (), &[self.frame, id, index, at, bits]);
            }
            Stmt::Count(counter, index) => {
                let (index, id) = (self.number(index), self.int(counter.0.into()));
                self.call(calls::count as *const (), &[self.frame, id, index]);
            }
            Stmt::Meter(place, meter, index, color) => {
                let index = self.number(index);
                let (_, color) = self.optional(color.as_ref());
                let id = self.int(meter.0.into());
                let color = self.call(calls::meter as *const (), &[self.frame, id, index, color]);
                self.assign_resized(place, &[color]);
            }
            Stmt::MeterEntry(place, table, color) => {
                let (_, color) = self.optional(color.as_ref());
                let id = self.int(table.0.into());
                let color = self.call(calls::meter_entry as *const (), &[self.frame, id, color]);
                self.assign_resized(place, &[color]);
            }
            Stmt::Digest(digest, values) => {
                self.values(values.iter());
                let id = self.int(digest.0.into());
                let flow = self.call(calls::digest as *const (), &[self.frame, id]);
                self.go_on(flow);
            }
            Stmt::Truncate(len) => {
                self.note_change();
                let len = self.number(len);
                self.call(calls::truncate as *const (), &[self.frame, len]);
            }
            Stmt::Insert(items) => {
                self.note_change();
                self.list(items);
                let flow = self.call(calls::insert as *const (), &[self.frame]);
                self.go_on(flow);
            }
            Stmt::Remove(len) => {
                self.note_change();
                let len = self.number(len);
                self.call(calls::remove as *const (), &[self.frame, len]);
            }
            Stmt::Extern(function, args) => self.call_extern(*function, args),
            Stmt::Emit(emit) => self.emit(emit),
            _ => {}
        }
    }

    /// Fills the runtime's list of typed values.
    fn values<'e>(&mut self, values: impl Iterator<Item = &'e Expr>) {
        self.call(calls::values_begin as *const (), &[self.frame]);
        for value in values {
            let value = self.expr(value);
            let (at, ty) = (self.spill(&value.limbs), self.int(calls::type_code(value.ty)));
            self.call(calls::values_push as *const (), &[self.frame, at, ty]);
        }
    }

    fn call_extern(&mut self, id: ExternId, args: &[ExternArg]) {
        let Some(function) = self.cx.program.externs.get(id.index()) else { return };
        let values = args.iter().filter_map(|arg| match arg {
            ExternArg::In(value) => Some(value),
            ExternArg::Out(_) => None,
        });
        self.values(values);
        let number = self.int(id.0.into());
        let exists = self.call(calls::call_extern as *const (), &[self.frame, number]);
        let exists = self.is(IntCC::NotEqual, exists, 0);
        self.unless(exists, |e| e.exit(flow::drop_code(Dropped::NoExtern(id))));
        let places = args.iter().filter_map(|arg| match arg {
            ExternArg::Out(place) => Some(place),
            ExternArg::In(_) => None,
        });
        let outs = function.params.iter().filter(|(direction, _)| *direction == Direction::Out).count();
        for (i, place) in places.take(outs).enumerate() {
            let width = self.place_type(place).width();
            let (result, i, bits) = (self.slot(limbs_of(width)), self.int(i as u64), self.int(width.into()));
            self.call(calls::result as *const (), &[self.frame, i, result, bits]);
            let value = self.unspill(result, limbs_of(width));
            self.assign(place, &value);
        }
    }

    fn set_header(&mut self, header: &HeaderRef, valid: bool) {
        let Some(blob) = self.resolve(header) else { return };
        let number = self.int(valid.into());
        self.if_inside(blob, |e| e.set_valid(blob, number, Some(valid)));
    }

    fn copy_header(&mut self, to: &HeaderRef, from: &HeaderRef) {
        let from = self.resolve(from);
        let Some(to) = self.resolve(to) else { return };
        let Some(size) = self.type_of(to).map(|ty| ty.size) else { return };
        let bytes = self.int((size - FIXED) as u64);
        self.if_inside(to, |e| {
            let target = e.add_const(to.base, i64::from(to.offset + FIXED));
            // The word in front of the fields is set last, for unions.
            let valid = match from {
                None => {
                    e.call(calls::clear as *const (), &[target, bytes]);
                    e.zero()
                }
                Some(from) => {
                    let source = e.add_const(from.base, i64::from(from.offset + FIXED));
                    let valid = e.load(from.base, from.offset);
                    match from.inside {
                        None => {
                            e.call(calls::copy as *const (), &[target, source, bytes]);
                            valid
                        }
                        Some(inside) => {
                            let zero = e.zero();
                            let valid = e.b.ins().select(inside, valid, zero);
                            let [copy, clear, end] = [(); 3].map(|()| e.b.create_block());
                            e.branch(inside, copy, clear);
                            e.begin(copy);
                            e.call(calls::copy as *const (), &[target, source, bytes]);
                            e.jump(end);
                            e.begin(clear);
                            e.call(calls::clear as *const (), &[target, bytes]);
                            e.jump(end);
                            e.begin(end);
                            valid
                        }
                    }
                }
            };
            e.set_valid(to, valid, None);
        });
    }

    /// Moves the elements of a stack up or down.
    fn shift_stack(&mut self, id: StackId, n: u32, up: bool) {
        let Some(stack) = self.cx.program.stacks.get(id.index()) else { return };
        let Some(ty) = self.cx.layout.header_type(stack.first) else { return };
        self.note_change();
        self.note_stack(stack.first);
        let first = self.add_const(self.frame, self.cx.layout.header(stack.first).into());
        let next = self.add_const(self.frame, self.cx.layout.next(id).into());
        let [stride, size, by, up] =
            [ty.size as u64, stack.size.into(), n.into(), up.into()].map(|n| self.int(n));
        self.call(calls::shift_stack as *const (), &[first, next, stride, size, by, up]);
    }

    fn emit(&mut self, emit: &EmitRef) {
        if let Some(to) = self.writes_to {
            return self.write_emitted(emit, to);
        }
        let (first, count) = match emit {
            EmitRef::Header(header) => {
                let Some(blob) = self.resolve(header) else { return };
                let Some(size) = self.type_of(blob).map(|ty| ty.size) else { return };
                // The element's number follows from its place.
                self.if_inside(blob, |e| {
                    let place = e.b.ins().isub(blob.base, e.frame);
                    let size = e.int(size as u64);
                    let index = e.b.ins().udiv(place, size);
                    let first = e.add_const(index, blob.like.0.into());
                    let one = e.int(1);
                    e.call(calls::emit as *const (), &[e.frame, first, one]);
                });
                return;
            }
            EmitRef::Stack(stack) => match self.cx.program.stacks.get(stack.index()) {
                Some(stack) => (stack.first, stack.size),
                None => return,
            },
            EmitRef::Union(union) => match self.cx.program.unions.get(union.index()) {
                Some(union) => (union.first, union.size),
                None => return,
            },
        };
        let (first, count) = (self.int(first.0.into()), self.int(count.into()));
        self.call(calls::emit as *const (), &[self.frame, first, count]);
    }

    /// The function of a selection: the hash of its input.
    pub(crate) fn selection(&mut self, select: &pipeline::ir::Selection) {
        self.list(&select.input);
        let kind = pipeline::ir::HashKind::ALL.iter().position(|k| *k == select.hash).unwrap_or(0);
        let kind = self.int(kind as u64);
        let hash = self.call(calls::list_hash as *const (), &[self.frame, kind]);
        self.exit_with(hash);
    }

    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
    }
}
