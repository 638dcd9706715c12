//! Parsers: one piece of code for each state.
//!
//! The position and the number of states are in registers; an error is the argument of the end.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value, types};
use cranelift_frontend::Variable;
use pipeline::ir::{
    Case, ErrorId, Expr, HeaderRef, Keyset, Parser, ParserOp, ParserState, Select, Target, Transition, Type,
};

use super::expr::may_fault;
use super::{Emit, Kind, Val};
use crate::layout::{FIXED, TypeLayout, Varbit, word};
use crate::runtime::calls;

/// Blocks that all states lead to.
struct Ends {
    states: Vec<Block>,
    accept: Block,
    /// Its parameter is the error.
    fail: Block,
}

impl Emit<'_, '_> {
    /// A parser.
    pub(crate) fn parser(&mut self, parser: &Parser) {
        self.parse(parser);
        let done = self.zero();
        self.b.ins().return_(&[done]);
    }

    /// What a parser does; returns its error. The code sets the frame's error and the bytes consumed.
    pub(super) fn parse(&mut self, parser: &Parser) -> Value {
        let at = self.b.declare_var(types::I64);
        let count = self.b.declare_var(types::I64);
        let zero = self.zero();
        self.b.def_var(at, zero);
        self.b.def_var(count, zero);
        self.at = Some(at);
        self.is_short = self.cx.is_special() && is_short(parser, self.cx.limits.parser_states);
        let ends = Ends {
            states: parser.states.iter().map(|_| self.b.create_block()).collect(),
            accept: self.b.create_block(),
            fail: self.b.create_block(),
        };
        let error = self.b.append_block_param(ends.fail, types::I64);
        let first = self.target(&ends, Target::State(0));
        self.jump(first);
        for (state, block) in parser.states.iter().zip(&ends.states) {
            self.begin(*block);
            self.state(state, &ends, count);
        }
        self.begin(ends.accept);
        let none = self.zero();
        self.b.ins().jump(ends.fail, &[BlockArg::Value(none)]);
        self.begin(ends.fail);
        self.store_word(error, word::ERROR);
        let consumed = self.parser_at();
        self.store_word(consumed, word::AT);
        error
    }

    fn target(&self, ends: &Ends, target: Target) -> Block {
        match target {
            Target::State(i) => ends.states.get(i as usize).copied().unwrap_or(ends.accept),
            Target::Accept | Target::Reject => ends.accept,
        }
    }

    fn fail(&mut self, ends: &Ends, error: ErrorId) {
        let error = self.int(error.0.into());
        self.b.ins().jump(ends.fail, &[BlockArg::Value(error)]);
    }

    fn require(&mut self, holds: Value, ends: &Ends, error: ErrorId) {
        self.unless(holds, |e| e.fail(ends, error));
    }

    /// Ends the parser if an expression met an error.
    fn check_fault(&mut self, ends: &Ends) {
        let fault = self.load_word(word::FAULT);
        let none = self.is(IntCC::Equal, fault, 0);
        let next = self.b.create_block();
        self.b.ins().brif(none, next, &[], ends.fail, &[BlockArg::Value(fault)]);
        self.begin(next);
    }

    fn parser_steps(&mut self, n: u32, ends: &Ends) {
        if self.cx.is_special() {
            return;
        }
        let before = self.load_word(word::STEPS);
        let now = self.add_const(before, n.into());
        self.store_word(now, word::STEPS);
        let fits = self.is(IntCC::UnsignedLessThanOrEqual, now, self.cx.limits.steps.into());
        self.require(fits, ends, ErrorId::TIMEOUT);
    }

    fn state(&mut self, state: &ParserState, ends: &Ends, count: Variable) {
        if !self.is_short {
            let entered = self.b.use_var(count);
            let entered = self.add_const(entered, 1);
            self.b.def_var(count, entered);
            let fits = self.is(IntCC::UnsignedLessThanOrEqual, entered, self.cx.limits.parser_states.into());
            self.require(fits, ends, ErrorId::TIMEOUT);
        }
        self.parser_steps(1, ends);
        for op in &state.ops {
            self.parser_steps(op.steps(), ends);
            match op {
                ParserOp::Extract(header, length) => self.extract(header, length.as_ref(), ends),
                ParserOp::Advance(by) => {
                    let value = self.expr(by);
                    if may_fault(by) {
                        self.check_fault(ends);
                    }
                    let by = value.limbs.first().copied().unwrap_or(self.frame);
                    self.advance(by, ends);
                }
                ParserOp::Verify(condition, error) => {
                    let holds = self.holds(condition);
                    if may_fault(condition) {
                        self.check_fault(ends);
                    }
                    self.require(holds, ends, *error);
                }
                ParserOp::Do(stmt) => {
                    let end = self.b.create_block();
                    self.set_kind(Kind::Parser { end, fail: ends.fail });
                    if self.stmt(stmt) == super::stmt::Next::Follows {
                        self.jump(end);
                    }
                    self.begin(end);
                    self.check_fault(ends);
                }
            }
        }
        match &state.next {
            Transition::To(target) => {
                let target = self.target(ends, *target);
                self.jump(target);
            }
            Transition::Select(select) => self.select(select, ends),
        }
    }

    fn advance(&mut self, by: Value, ends: &Ends) {
        let odd = self.and_const(by, 7);
        let whole = self.is(IntCC::Equal, odd, 0);
        self.require(whole, ends, ErrorId::INVALID_ARGUMENT);
        // At most 2^61 bytes: the sum does not overflow.
        let (bytes, at) = (self.shr(by, 3), self.parser_at());
        let to = self.b.ins().iadd(at, bytes);
        self.move_to(to, ends);
    }

    /// Moves the position, if the packet is long enough.
    fn move_to(&mut self, to: Value, ends: &Ends) {
        self.require_window(to, ends);
        if let Some(at) = self.at {
            self.b.def_var(at, to);
        }
    }

    fn require_window(&mut self, end: Value, ends: &Ends) {
        let len = self.load_word(word::WINDOW_LEN);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, len);
        self.require(inside, ends, ErrorId::PACKET_TOO_SHORT);
    }

    fn extract(&mut self, header: &HeaderRef, length: Option<&Expr>, ends: &Ends) {
        let bits = length.map(|length| self.expr(length));
        if length.is_some_and(may_fault) {
            self.check_fault(ends);
        }
        let blob = self.resolve(header);
        if !matches!(header, HeaderRef::Header(_)) {
            self.check_fault(ends);
        }
        let Some((blob, ty)) = blob.and_then(|blob| Some((blob, self.type_of(blob)?))) else {
            // An element that is never in its stack; what follows is not reached.
            self.fail(ends, ErrorId::STACK_OUT_OF_BOUNDS);
            let unreached = self.b.create_block();
            return self.begin(unreached);
        };
        if let Some(inside) = blob.inside {
            self.require(inside, ends, ErrorId::STACK_OUT_OF_BOUNDS);
        }
        let at = self.parser_at();
        match ty.varbit {
            None => {
                let end = self.add_const(at, ty.fixed as i64);
                self.move_to(end, ends);
                let window = self.load_word(word::WINDOW);
                let source = self.b.ins().iadd(window, at);
                self.copy_bytes(blob.base, blob.offset + FIXED, source, 0, ty.fixed);
            }
            Some(varbit) => {
                let bits = bits.and_then(|bits| bits.limbs.first().copied());
                let bits = bits.unwrap_or_else(|| self.zero());
                self.extract_varbit(blob, ty, varbit, bits, ends);
            }
        }
        let valid = self.int(1);
        self.set_valid(blob, valid, Some(true));
        if let HeaderRef::Next(stack) = header {
            let next = self.next_element(*stack);
            let next = self.add_const(next, 1);
            self.store(next, self.frame, self.cx.layout.next(*stack));
        }
    }

    fn extract_varbit(
        &mut self,
        blob: super::place::Blob,
        ty: &TypeLayout,
        varbit: Varbit,
        bits: Value,
        ends: &Ends,
    ) {
        let at = self.parser_at();
        let front = self.add_const(at, varbit.at.div_ceil(8).into());
        self.require_window(front, ends);
        let odd = self.and_const(bits, 7);
        let whole = self.is(IntCC::Equal, odd, 0);
        self.require(whole, ends, ErrorId::INVALID_ARGUMENT);
        let fits = self.is(IntCC::UnsignedLessThanOrEqual, bits, varbit.max.into());
        self.require(fits, ends, ErrorId::HEADER_TOO_SHORT);
        let bytes = self.shr(bits, 3);
        let end = self.add_const(at, ty.fixed as i64);
        let end = self.b.ins().iadd(end, bytes);
        self.move_to(end, ends);
        let window = self.load_word(word::WINDOW);
        let source = self.b.ins().iadd(window, at);
        self.store(bits, blob.base, blob.offset + varbit.len);
        if varbit.at.is_multiple_of(8) {
            let front = (varbit.at / 8) as usize;
            self.copy_bytes(blob.base, blob.offset + FIXED, source, 0, front);
            let behind = self.b.ins().iadd(source, bytes);
            self.copy_bytes(
                blob.base,
                blob.offset + FIXED + front as i32,
                behind,
                front as i32,
                ty.fixed - front,
            );
            let some = self.is(IntCC::NotEqual, bytes, 0);
            self.when(some, |e| {
                let target = e.add_const(blob.base, i64::from(blob.offset + varbit.len + 8));
                let source = e.add_const(source, front as i64);
                e.call(calls::copy as *const (), &[target, source, bytes]);
            });
            return;
        }
        let fields = self.add_const(blob.base, i64::from(blob.offset + FIXED));
        let variable = self.add_const(blob.base, i64::from(blob.offset + varbit.len + 8));
        let (front, fixed) = (self.int(varbit.at.into()), self.int(8 * ty.fixed as u64));
        self.call(calls::extract_varbit as *const (), &[source, fields, variable, front, fixed, bits]);
    }

    fn select(&mut self, select: &Select, ends: &Ends) {
        let values: Vec<Val> = select.on.iter().map(|value| self.expr(value)).collect();
        if select.on.iter().any(may_fault) {
            self.check_fault(ends);
        }
        for case in &select.cases {
            let to = self.target(ends, case.to);
            match self.case(case, &values) {
                None => return self.jump(to),
                Some(matches) => {
                    let next = self.b.create_block();
                    self.branch(matches, to, next);
                    self.begin(next);
                }
            }
        }
        self.fail(ends, ErrorId::NO_MATCH);
    }

    /// Whether a case matches; `None` if it always does.
    fn case(&mut self, case: &Case, values: &[Val]) -> Option<Value> {
        let mut all = None;
        for (i, set) in case.sets.iter().enumerate() {
            let is_in = self.is_in(set, i, values);
            all = match (all, is_in) {
                (Some(all), Some(is_in)) => Some(self.b.ins().band(all, is_in)),
                (all, is_in) => all.or(is_in),
            };
        }
        all
    }

    fn is_in(&mut self, set: &Keyset, i: usize, values: &[Val]) -> Option<Value> {
        if let Keyset::Set(id) = set {
            let limbs: Vec<Value> = values.iter().flat_map(|value| value.limbs.iter().copied()).collect();
            let (at, id) = (self.spill(&limbs), self.int(id.0.into()));
            let found = self.call(calls::in_set as *const (), &[self.frame, id, at]);
            return Some(self.is(IntCC::NotEqual, found, 0));
        }
        let value = values.get(i)?;
        let width = value.ty.width();
        Some(match set {
            Keyset::Any | Keyset::Set(_) => return None,
            Keyset::Value(wanted) => {
                let wanted = self.constant(&wanted.value);
                self.equal(&value.limbs, &wanted)
            }
            Keyset::Mask(wanted, mask) => {
                let wanted = self.constant(&wanted.value.and(&mask.value));
                let mask = self.constant(&mask.value);
                let masked = self.each(&value.limbs, &mask, |e, a, b| e.b.ins().band(a, b));
                self.equal(&masked, &wanted)
            }
            Keyset::Range(low, high) => {
                let signed = matches!(low.ty, Type::Int(_));
                let (low, high) = (self.constant(&low.value), self.constant(&high.value));
                let below = self.less(&value.limbs, &low, width, signed);
                let above = self.less(&high, &value.limbs, width, signed);
                let outside = self.b.ins().bor(below, above);
                let outside = self.number_of(outside);
                self.is(IntCC::Equal, outside, 0)
            }
        })
    }
}

/// Whether a parser ends before it enters so many states: it has fewer, and none leads back to itself.
fn is_short(parser: &Parser, limit: u32) -> bool {
    let forward =
        |(i, state): (usize, &ParserState)| crate::special::targets(&state.next).into_iter().all(|to| to > i);
    parser.states.len() <= limit as usize && parser.states.iter().enumerate().all(forward)
}
