//! Emission of machine code, through Cranelift.
//!
//! The function has four arguments: the first packet, the end of the packets, the first word for verdicts, the program
//! to begin with; it returns a mask of the packets that have a verdict ([`crate::code`]). It is one
//! loop over the packets, and within it no jump goes back: code for a step is only reached from code for earlier steps.
//! So it ends, after a time that the code's length bounds. It calls nothing. What it may touch:
//! - the records of the packets from the first to the end, and as many words: the caller's promise;
//! - bytes of a packet's header, each compared with the header's length on the way to the access ([`Emitter::require`]
//!   and [`Emitter::require_behind`] are the only places that let a state claim that bytes are there; code without
//!   branches has an argument of its own, in `flat`);
//! - its own stack.
//!
//! A register whose content can be had again from the packet has no variable: it is read where it is needed, and
//! Cranelift merges equal reads.
//!
//! `values.rs`: loads, contents of registers, arithmetic, comparisons.

mod values;

use std::collections::HashMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, BlockArg, InstBuilder, MemFlagsData, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Switch, Variable};
use packet::bpf::{Operand, Program, SCRATCH, Step, Test};

use crate::code::{Word, offset};
use crate::flat::Flat;
use crate::outlook::{A, Outlook, Place, X, scratch};
use crate::state::{State, Value};

/// Fields of records.
const FIELD: MemFlagsData = MemFlagsData::trusted();

/// Bytes that the first comparison asks for: no more than the shortest frame on a wire has (IEEE 802.3 §3.2.7).
const SHORTEST: u32 = 60;

/// Most steps in a row without a place where paths can meet.
const LONGEST: usize = 64;

/// A packet in the loop.
pub(crate) struct Current {
    start: ir::Value,
    pub(crate) header_len: ir::Value,
    len: ir::Value,
    /// Ends the packet's turn; its parameter is the verdict.
    finish: Block,
    /// Ends the packet's turn without a verdict.
    none: Block,
    /// Ends the packet's turn; its parameters are a bit that tells whether there is a verdict, and the verdict.
    pub(crate) flat: Block,
}

/// The end of a load that may be beyond the header.
#[derive(Clone, Copy)]
enum End {
    At(u32),
    Value(ir::Value),
}

/// Emits one function.
pub(crate) struct Emitter<'a, 'b> {
    pub(crate) b: FunctionBuilder<'b>,
    programs: &'a [Program],
    pub(crate) outlook: Outlook,
    pub(crate) current: Current,
    /// The list while it is emitted without branches.
    pub(crate) flat: Option<Flat>,
    /// Variables of A, X and scratch memory.
    a: Variable,
    x: Variable,
    scratch: [Variable; SCRATCH],
    blocks: HashMap<(Place, State), Block>,
    pending: Vec<(Place, State, Block)>,
    /// Steps emitted, and those after which paths forget.
    steps: usize,
    budget: usize,
}

/// Emits the function of a list into `function`; its packets begin with one of the programs `entries`. Returns false if
/// it was to be `flat`, without branches, and cannot be.
pub(crate) fn emit(
    function: &mut ir::Function,
    context: &mut FunctionBuilderContext,
    config: cranelift_codegen::isa::TargetFrontendConfig,
    programs: &[Program],
    entries: &[u32],
    budget: usize,
    flat: bool,
) -> bool {
    let mut b = FunctionBuilder::new(function, context);
    let variable = |b: &mut FunctionBuilder<'_>| b.declare_var(types::I32);
    let (a, x) = (variable(&mut b), variable(&mut b));
    let scratch = std::array::from_fn(|_| variable(&mut b));

    let [entry, head, finish, none, branchless, next, again, done] =
        std::array::from_fn(|_| b.create_block());
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let [first, end, words, from] = *b.block_params(entry) else { return false };
    let mask = b.ins().iconst(types::I64, 0);
    b.ins().jump(head, &[first, words, mask].map(BlockArg::Value));

    let [record, word, mask] = std::array::from_fn(|_| b.append_block_param(head, types::I64));
    let verdict = b.append_block_param(finish, types::I64);
    b.switch_to_block(finish);
    b.ins().store(FIELD, verdict, word, 0);
    let shifted = b.ins().ushr_imm_u(mask, 1);
    let with = b.ins().bor_imm_u(shifted, i64::MIN);
    b.ins().jump(next, &[BlockArg::Value(with)]);
    b.switch_to_block(none);
    let without = b.ins().ushr_imm_u(mask, 1);
    b.ins().jump(next, &[BlockArg::Value(without)]);

    let [bit, verdict] = std::array::from_fn(|_| b.append_block_param(branchless, types::I64));
    b.switch_to_block(branchless);
    b.ins().store(FIELD, verdict, word, 0);
    let shifted = b.ins().ushr_imm_u(mask, 1);
    let bit = b.ins().ishl_imm_u(bit, 63);
    let with = b.ins().bor(shifted, bit);
    b.ins().jump(next, &[BlockArg::Value(with)]);

    let mask = b.append_block_param(next, types::I64);
    b.switch_to_block(next);
    let next_record = b.ins().iadd_imm_s(record, offset::NEXT);
    let more = b.ins().icmp(IntCC::NotEqual, next_record, end);
    b.ins().brif(more, again, &[], done, &[]);
    b.switch_to_block(again);
    let next_word = b.ins().iadd_imm_s(word, size_of::<Word>() as i64);
    b.ins().jump(head, &[next_record, next_word, mask].map(BlockArg::Value));
    b.switch_to_block(done);
    b.ins().return_(&[mask]);

    b.switch_to_block(head);
    let start = b.ins().load(types::I64, FIELD, record, offset::START);
    let header_len = b.ins().load(types::I32, FIELD, record, offset::HEADER_LEN);
    let len = b.ins().load(types::I32, FIELD, record, offset::LEN);
    let current = Current { start, header_len, len, finish, none, flat: branchless };
    let outlook = Outlook::of(programs);
    let (blocks, pending) = Default::default();
    let mut emitter = Emitter {
        b,
        programs,
        outlook,
        current,
        flat: None,
        a,
        x,
        scratch,
        blocks,
        pending,
        steps: 0,
        budget,
    };
    if !emitter.enter(from, entries, flat) {
        return false;
    }
    while let Some((place, state, block)) = emitter.pending.pop() {
        emitter.b.switch_to_block(block);
        emitter.path(place, state);
    }
    emitter.b.seal_all_blocks();
    emitter.b.finalize(config);
    true
}

impl Emitter<'_, '_> {
    /// Sends a packet to the program that it begins with.
    fn enter(&mut self, from: ir::Value, entries: &[u32], flat: bool) -> bool {
        if entries == [0] {
            return self.begin(0, flat);
        }
        let mut switch = Switch::new();
        let blocks: Vec<_> = entries.iter().map(|entry| (*entry, self.b.create_block())).collect();
        blocks.iter().for_each(|(entry, block)| switch.set_entry(u128::from(*entry), *block));
        switch.emit(&mut self.b, from, self.current.none);
        blocks.into_iter().all(|(entry, block)| {
            self.b.switch_to_block(block);
            self.begin(entry, flat && entry == 0)
        })
    }

    /// Begins a program: with one comparison for what most packets have, or byte by byte.
    fn begin(&mut self, program: u32, flat: bool) -> bool {
        let place = Place::first(program);
        let behind = if flat { self.outlook.reads_behind() } else { 0 };
        let checked = self.outlook.reads(place).max(behind).min(SHORTEST);
        let short = self.target(place, State::new(0));
        let has = self.b.ins().icmp_imm_u(
            IntCC::UnsignedGreaterThanOrEqual,
            self.current.header_len,
            i64::from(checked),
        );
        if !flat {
            let whole = self.target(place, State::new(checked));
            self.b.ins().brif(has, whole, &[], short, &[]);
            return true;
        }
        let all = self.b.create_block();
        self.b.ins().brif(has, all, &[], short, &[]);
        self.b.switch_to_block(all);
        behind <= checked && self.without_branches(checked)
    }

    fn finish(&mut self, word: u64) {
        let word = self.b.ins().iconst(types::I64, word.cast_signed());
        if self.flat.is_some() {
            return self.found(word);
        }
        self.b.ins().jump(self.current.finish, &[BlockArg::Value(word)]);
    }

    fn is_over_budget(&self) -> bool {
        self.steps >= self.budget && self.flat.is_none()
    }

    /// The block that continues at a step. Called before the jump to it is emitted; registers' variables may be written
    /// in between, so all ways out of the current block must have the same registers, or not read them.
    fn target(&mut self, place: Place, state: State) -> Block {
        let mut state = state.forget(&self.outlook, place);
        if self.is_over_budget() {
            state = self.forget_all(state);
        }
        let key = (place, state);
        if let Some(block) = self.blocks.get(&key) {
            return *block;
        }
        let block = self.b.create_block();
        self.blocks.insert(key.clone(), block);
        self.pending.push((key.0, key.1, block));
        block
    }

    /// Puts all registers into their variables, and forgets everything else.
    fn forget_all(&mut self, mut state: State) -> State {
        let registers: Vec<_> = state.registers().map(|(bit, value)| (bit, *value)).collect();
        for (bit, value) in registers {
            if !matches!(value, Value::Dead | Value::Computed) {
                let content = self.content(value, bit);
                self.b.def_var(self.variable(bit), content);
            }
        }
        state.forget_all()
    }

    fn variable(&self, bit: u32) -> Variable {
        match bit {
            A => self.a,
            X => self.x,
            _ => (0..SCRATCH).find(|word| scratch(*word) == bit).map_or(self.a, |word| self.scratch[word]),
        }
    }

    /// Jumps to a step.
    pub(crate) fn go(&mut self, place: Place, state: State) {
        if self.flat.is_some() {
            return self.reach(place, state);
        }
        let block = self.target(place, state);
        self.b.ins().jump(block, &[]);
    }

    /// Rejects the packet: the next program's turn.
    fn reject(&mut self, place: Place, state: State) {
        if self.flat.is_some() {
            let next = place.program + 1;
            if (next as usize) < self.programs.len() {
                self.reach(Place::first(next), state.next_program());
            }
            return;
        }
        let rejection = self.rejection(place, state);
        self.b.ins().jump(rejection, &[]);
    }

    /// The block that rejects the packet.
    fn rejection(&mut self, place: Place, state: State) -> Block {
        let next = place.program + 1;
        match (next as usize) < self.programs.len() {
            true => self.target(Place::first(next), state.next_program()),
            false => self.current.none,
        }
    }

    /// Ends without a verdict.
    fn leave(&mut self) {
        if self.flat.is_some() {
            return;
        }
        self.b.ins().jump(self.current.none, &[]);
    }

    /// Emits a path from a step on, until it branches, ends, or meets another.
    pub(crate) fn path(&mut self, mut place: Place, mut state: State) {
        let programs = self.programs;
        let Some(program) = programs.get(place.program as usize) else { return self.leave() };
        if self.is_over_budget() {
            let general = self.forget_all(state.clone().forget(&self.outlook, place));
            if general != state {
                return self.go(place, general);
            }
        }
        for number in 0.. {
            let meets = self.is_over_budget() && self.outlook.is_target(place);
            if number > 0 && (number % LONGEST == 0 || meets) {
                return self.go(place, state);
            }
            let Some(step) = program.steps().get(place.step as usize) else { return self.leave() };
            self.steps += 1;
            let after = place.after(0);
            match *step {
                Step::Load { size, offset, indexed } => {
                    match self.load(place, &mut state, size, offset, indexed) {
                        Some(value) => state.a = value,
                        None => return,
                    }
                }
                Step::IndexHeaderLength(offset) => {
                    if !self.require(place, &mut state, u64::from(offset) + 1) {
                        return;
                    }
                    state.x = Value::HeaderLength(offset);
                }
                Step::LoadConstant(k) => state.a = Value::Constant(k),
                Step::LoadLength => state.a = Value::Length,
                Step::LoadScratch(word) => state.a = self.moved(state.scratch[word], scratch(word), A),
                Step::IndexConstant(k) => state.x = Value::Constant(k),
                Step::IndexLength => state.x = Value::Length,
                Step::IndexScratch(word) => state.x = self.moved(state.scratch[word], scratch(word), X),
                Step::Store(word) => state.scratch[word] = self.moved(state.a, A, scratch(word)),
                Step::StoreIndex(word) => state.scratch[word] = self.moved(state.x, X, scratch(word)),
                Step::IndexFromAccumulator => state.x = self.moved(state.a, A, X),
                Step::AccumulatorFromIndex => state.a = self.moved(state.x, X, A),
                Step::Compute(operation, operand) => {
                    if !self.compute(place, &mut state, operation, operand) {
                        return;
                    }
                }
                Step::Negate => match state.a {
                    Value::Constant(k) => state.a = Value::Constant(k.wrapping_neg()),
                    value => {
                        let a = self.content(value, A);
                        let negated = self.b.ins().ineg(a);
                        state.a = self.computed(negated);
                    }
                },
                Step::Jump(skip) => {
                    place = place.after(skip);
                    continue;
                }
                Step::Branch { test, operand, then, otherwise } => {
                    match self.branch(&state, place, test, operand, then, otherwise) {
                        Some(next) => {
                            place = next;
                            continue;
                        }
                        None => return,
                    }
                }
                Step::ReturnConstant(0) => return self.reject(place, state),
                Step::ReturnConstant(k) => return self.finish(Word::matched(place.program) | u64::from(k)),
                Step::ReturnAccumulator => return self.result(place, state),
            }
            place = after;
        }
    }

    /// Copies a register's content from one variable to another, unless it can be had again.
    fn moved(&mut self, value: Value, from: u32, to: u32) -> Value {
        if value == Value::Computed && from != to {
            let content = self.b.use_var(self.variable(from));
            self.b.def_var(self.variable(to), content);
        }
        value
    }

    /// Puts a value into A.
    fn computed(&mut self, value: ir::Value) -> Value {
        self.b.def_var(self.a, value);
        Value::Computed
    }

    /// Makes sure that bytes up to `end` are there; the packet goes elsewhere where they are not. Returns false if that
    /// is the case for all packets.
    fn require(&mut self, place: Place, state: &mut State, end: u64) -> bool {
        let Ok(end) = u32::try_from(end) else {
            self.reject(place, state.clone());
            return false;
        };
        if end > state.checked && self.flat.is_some() {
            self.fail();
            return false;
        }
        if end > state.checked {
            let condition = self.b.ins().icmp_imm_u(
                IntCC::UnsignedGreaterThanOrEqual,
                self.current.header_len,
                i64::from(end),
            );
            self.guard(place, state, condition, End::At(end));
            state.checked = end;
        }
        true
    }

    /// Makes sure that bytes up to `end` behind X are there, for X as content of type I64.
    fn require_behind(&mut self, place: Place, state: &State, x: ir::Value, end: u64) {
        if let Some(end) = self.flat.as_ref().map(|flat| flat.end) {
            return self.read_behind(x, end);
        }
        let end = self.b.ins().iadd_imm_s(x, end.cast_signed());
        let header_len = self.b.ins().uextend(types::I64, self.current.header_len);
        let condition = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, header_len, end);
        self.guard(place, state, condition, End::Value(end));
    }

    /// Continues where the condition holds. Otherwise a load up to `end` is beyond the header: if it is within the
    /// packet, the filter needs more, and else it rejects the packet.
    fn guard(&mut self, place: Place, state: &State, condition: ir::Value, end: End) {
        let [there, beyond] = [self.b.create_block(), self.b.create_block()];
        self.b.set_cold_block(beyond);
        self.b.ins().brif(condition, there, &[], beyond, &[]);
        self.b.switch_to_block(beyond);
        let within = match end {
            End::At(end) => {
                self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, self.current.len, i64::from(end))
            }
            End::Value(end) => {
                let len = self.b.ins().uextend(types::I64, self.current.len);
                self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, len, end)
            }
        };
        let more = self.b.ins().iconst(types::I64, Word::needs_more(place.program).cast_signed());
        self.decide(within, more, place, state.clone());
        self.b.switch_to_block(there);
    }

    /// Ends with this word where the condition holds; rejects the packet where not.
    fn decide(&mut self, condition: ir::Value, word: ir::Value, place: Place, state: State) {
        let rejection = self.rejection(place, state);
        self.b.ins().brif(condition, self.current.finish, &[BlockArg::Value(word)], rejection, &[]);
    }

    /// Emits a branch; returns where the path goes on instead if all packets go there.
    fn branch(
        &mut self,
        state: &State,
        place: Place,
        test: Test,
        operand: Operand,
        then: usize,
        otherwise: usize,
    ) -> Option<Place> {
        let constant = match (operand, state.x) {
            (Operand::Constant(k), _) | (Operand::X, Value::Constant(k)) => Some(k),
            _ => None,
        };
        let (then, otherwise) = (place.after(then), place.after(otherwise));
        if then == otherwise {
            return Some(then);
        }
        if let Some(holds) = constant.and_then(|with| state.decides(test, with)) {
            return Some(if holds { then } else { otherwise });
        }
        let condition = match constant {
            Some(with) => self.compare(state.a, test, with),
            None => {
                let a = self.content(state.a, A);
                let with = self.content(state.x, X);
                self.condition(test, a, with)
            }
        };
        let is_bit = test != Test::AnyBit;
        let learned = |holds| constant.map_or_else(|| state.clone(), |with| state.learned(test, with, holds));
        if self.flat.is_some() {
            self.part(condition, is_bit, (then, learned(true)), (otherwise, learned(false)));
            return None;
        }
        let yes = self.target(then, learned(true));
        let no = self.target(otherwise, learned(false));
        self.b.ins().brif(condition, yes, &[], no, &[]);
        None
    }

    /// Ends with A as result.
    fn result(&mut self, place: Place, state: State) {
        if let Value::Constant(result) = state.a {
            return match result {
                0 => self.reject(place, state),
                result => self.finish(Word::matched(place.program) | u64::from(result)),
            };
        }
        let a = self.content(state.a, A);
        let result = self.b.ins().uextend(types::I64, a);
        let word = self.b.ins().bor_imm_u(result, Word::matched(place.program).cast_signed());
        if self.flat.is_some() {
            self.found_unless_zero(a, word);
            return self.reject(place, state);
        }
        self.decide(a, word, place, state);
    }
}
