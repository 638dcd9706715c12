//! Expressions.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, types};
use pipeline::ir::{BinOp, ErrorId, Expr, HeaderRef, Type, UnOp};

use super::bytes::Beyond;
use super::{Emit, Val, limbs_of, param_words};
use crate::layout::word;
use crate::runtime::calls;

impl Emit<'_, '_> {
    pub(super) fn expr(&mut self, expr: &Expr) -> Val {
        match expr {
            Expr::Const(constant) => Val { ty: constant.ty, limbs: self.constant(&constant.value) },
            Expr::Var(var) => {
                let ty = self.cx.program.vars.get(var.index()).map_or(Type::Bool, |var| var.ty);
                Val { ty, limbs: self.read_var(*var, ty.width()) }
            }
            Expr::Param(i) => self.param(usize::from(*i)),
            Expr::Field(header, field) => {
                Val { ty: self.field_type(header, *field), limbs: self.read_field(header, *field) }
            }
            Expr::Valid(header) => {
                let valid = self.valid(header);
                Val { ty: Type::Bool, limbs: vec![valid] }
            }
            Expr::LastIndex(stack) => {
                let next = self.next_element(*stack);
                let last = self.add_const(next, -1);
                Val { ty: Type::Bit(32), limbs: vec![self.and_const(last, u32::MAX.into())] }
            }
            Expr::FieldLength(header, field) => {
                let length = self.field_length(header, *field);
                Val { ty: Type::Bit(32), limbs: vec![length] }
            }
            Expr::Lookahead(ty, offset) => Val { ty: *ty, limbs: self.lookahead(*ty, *offset) },
            Expr::Remaining => {
                let at = self.parser_at();
                let remaining = self.call(calls::remaining as *const (), &[self.frame, at]);
                Val { ty: Type::Bit(32), limbs: vec![remaining] }
            }
            Expr::Unary(op, operand) => {
                let Val { ty, limbs } = self.expr(operand);
                match op {
                    UnOp::Not => {
                        let any = self.any(&limbs);
                        let not = self.is(IntCC::Equal, any, 0);
                        self.truth(not)
                    }
                    UnOp::Complement => Val { ty, limbs: self.not(&limbs, ty.width()) },
                    UnOp::Negate => Val { ty, limbs: self.negate(&limbs, ty.width()) },
                }
            }
            Expr::Binary(op, operands) => {
                let (left, right) = (self.expr(&operands.0), self.expr(&operands.1));
                self.binary(*op, &left, &right)
            }
            Expr::Slice(operand, hi, lo) => {
                let value = self.expr(operand);
                let width = hi - lo + 1;
                Val { ty: Type::Bit(width), limbs: self.shr_const(&value.limbs, (*lo).into(), width) }
            }
            Expr::Mux(parts) => self.mux(&parts.0, &parts.1, &parts.2),
            Expr::Cast(to, operand) => {
                let Val { ty, limbs } = self.expr(operand);
                let limbs = match (ty, to) {
                    (Type::Int(from), Type::Int(width)) => self.sign_extend(&limbs, from, *width),
                    _ => self.resize(&limbs, to.width()),
                };
                Val { ty: *to, limbs }
            }
        }
    }

    fn truth(&mut self, truth: Value) -> Val {
        Val { ty: Type::Bool, limbs: vec![self.number_of(truth)] }
    }

    /// The value as a truth value of Cranelift's.
    pub(super) fn holds(&mut self, expr: &Expr) -> Value {
        let value = self.expr(expr);
        let any = self.any(&value.limbs);
        self.is(IntCC::NotEqual, any, 0)
    }

    /// The value as a number; `u64::MAX` for larger ones.
    pub(super) fn number(&mut self, expr: &Expr) -> Value {
        let value = self.expr(expr);
        self.saturated(&value.limbs)
    }

    fn param(&mut self, i: usize) -> Val {
        let ty = self.params.get(i).map_or(Type::Bool, |param| param.ty);
        let first = param_words(self.params).0.get(i).copied().unwrap_or(0);
        let limbs = (0..limbs_of(ty.width())).map(|limb| self.load(self.args, 8 * (first + limb) as i32));
        Val { ty, limbs: limbs.collect() }
    }

    /// Position of the parser, bytes; 0 outside of parsers.
    pub(super) fn parser_at(&mut self) -> Value {
        match self.at {
            Some(at) => self.b.use_var(at),
            None => self.zero(),
        }
    }

    fn lookahead(&mut self, ty: Type, offset: u32) -> Vec<Value> {
        let (byte, skip) = (offset / 8, offset % 8);
        let at = self.parser_at();
        let start = self.add_const(at, byte.into());
        let bytes = (skip + u32::from(ty.width())).div_ceil(8);
        let end = self.add_const(start, bytes.into());
        let len = self.load_word(word::WINDOW_LEN);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, len);
        self.fault_unless(inside, ErrorId::PACKET_TOO_SHORT);
        let window = self.load_word(word::WINDOW);
        let source = self.b.ins().iadd(window, start);
        // The frame is longer than the widest value.
        let source = self.b.ins().select(inside, source, self.frame);
        let limbs = self.read_bits(source, skip, ty.width(), Beyond::Forbidden);
        let zero = self.zero();
        limbs.into_iter().map(|limb| self.b.ins().select(inside, limb, zero)).collect()
    }

    fn mux(&mut self, condition: &Expr, yes: &Expr, no: &Expr) -> Val {
        let holds = self.holds(condition);
        if !may_fault(yes) && !may_fault(no) {
            let (yes, no) = (self.expr(yes), self.expr(no));
            let limbs = self.choose(holds, &yes.limbs, &no.limbs);
            return Val { ty: yes.ty, limbs };
        }
        // Only the chosen one may be a parser error.
        let [first, second, end] = [(); 3].map(|()| self.b.create_block());
        self.branch(holds, first, second);
        let mut ty = Type::Bool;
        for (block, expr) in [(first, yes), (second, no)] {
            self.begin(block);
            let value = self.expr(expr);
            ty = value.ty;
            let args: Vec<_> = value.limbs.iter().map(|limb| BlockArg::Value(*limb)).collect();
            self.b.ins().jump(end, &args);
        }
        let limbs = (0..limbs_of(ty.width())).map(|_| self.b.append_block_param(end, types::I64)).collect();
        self.begin(end);
        Val { ty, limbs }
    }

    fn binary(&mut self, op: BinOp, left: &Val, right: &Val) -> Val {
        use BinOp::*;
        let (ty, width) = (left.ty, left.ty.width());
        let signed = matches!(ty, Type::Int(_));
        let (a, b) = (&left.limbs[..], &right.limbs[..]);
        let limbs = match op {
            Add => self.add(a, b, width),
            Sub => self.sub(a, b, width),
            Mul => self.mul(a, b, width),
            Div => self.divide(a, b, width, false),
            Rem => self.divide(a, b, width, true),
            SatAdd => self.saturating_add(a, b, width, signed),
            SatSub => self.saturating_sub(a, b, width, signed),
            OnesAdd => {
                let zero = self.zero();
                let (sum, carry) = self.carrying_add(a, b, zero, width);
                let carry = self.resize(&[carry], width);
                self.add(&sum, &carry, width)
            }
            And => self.each(a, b, |e, a, b| e.b.ins().band(a, b)),
            Or => self.each(a, b, |e, a, b| e.b.ins().bor(a, b)),
            Xor => self.each(a, b, |e, a, b| e.b.ins().bxor(a, b)),
            Shl | Shr => {
                let by = self.saturated(b);
                self.shift(a, by, width, op == Shl, signed)
            }
            Concat => {
                let low = right.ty.width();
                let width = width + low;
                let ty = if signed { Type::Int(width) } else { Type::Bit(width) };
                let (high, low) = (self.shl_const(a, low.into(), width), self.resize(b, width));
                return Val { ty, limbs: self.each(&high, &low, |e, a, b| e.b.ins().bor(a, b)) };
            }
            Eq | Ne => {
                let equal = self.equal(a, b);
                let Val { limbs, .. } = self.truth(equal);
                let Some(limb) = limbs.first().copied().filter(|_| op == Ne) else {
                    return Val { ty: Type::Bool, limbs };
                };
                let unequal = self.is(IntCC::Equal, limb, 0);
                return self.truth(unequal);
            }
            Lt | Ge => {
                let less = self.less(a, b, width, signed);
                return self.truth_or_not(less, op == Lt);
            }
            Gt | Le => {
                let less = self.less(b, a, width, signed);
                return self.truth_or_not(less, op == Gt);
            }
            LogicAnd | LogicOr => {
                let [a, b] = [a, b].map(|limbs| self.any(limbs));
                let [a, b] = [a, b].map(|any| self.is(IntCC::NotEqual, any, 0));
                let both = if op == LogicAnd { self.b.ins().band(a, b) } else { self.b.ins().bor(a, b) };
                return self.truth(both);
            }
        };
        Val { ty, limbs }
    }

    fn truth_or_not(&mut self, truth: Value, as_it_is: bool) -> Val {
        let value = self.truth(truth);
        match (as_it_is, value.limbs.first()) {
            (false, Some(limb)) => {
                let not = self.is(IntCC::Equal, *limb, 0);
                self.truth(not)
            }
            _ => value,
        }
    }
}

/// Whether evaluating an expression may be a parser error.
pub(crate) fn may_fault(expr: &Expr) -> bool {
    let of_header = |header: &HeaderRef| match header {
        HeaderRef::Header(_) => false,
        HeaderRef::Element(_, index) => may_fault(index),
        HeaderRef::Next(_) | HeaderRef::Last(_) => true,
    };
    match expr {
        Expr::Const(_) | Expr::Var(_) | Expr::Param(_) | Expr::LastIndex(_) | Expr::Remaining => false,
        Expr::Lookahead(..) => true,
        Expr::Field(header, _) | Expr::Valid(header) | Expr::FieldLength(header, _) => of_header(header),
        Expr::Unary(_, operand) | Expr::Slice(operand, ..) | Expr::Cast(_, operand) => may_fault(operand),
        Expr::Binary(_, operands) => may_fault(&operands.0) || may_fault(&operands.1),
        Expr::Mux(parts) => may_fault(&parts.0) || may_fault(&parts.1) || may_fault(&parts.2),
    }
}
