//! Expressions: a word of their value in `A`, or a jump by their truth.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{BinOp, ErrorId, Expr, HeaderRef, StackId, Type, UnOp};

use super::bits::Source;
use super::place::Location;
use super::{A, B, BASE, C, CTX, DATA, DATA_END, Lowering, POINTER, low_bits};
use crate::layout::{is_narrow, word, words};
use crate::types;

/// Bits of sums and differences: each word repeats those before, so wider ones would be much code.
const WIDEST_SUM: u16 = 128;
/// Bytes of a packet that parsers see.
pub(super) const WINDOW: usize = 512;

impl Lowering<'_> {
    /// The type of an expression here.
    pub(super) fn ty(&self, expr: &Expr) -> Type {
        types::of(self.program, self.action, expr)
    }

    /// `A = ` an expression of at most 64 bits.
    pub(super) fn value(&mut self, expr: &Expr) {
        self.word(expr, 0);
    }

    /// `A = ` an expression as a number, the largest one for larger values.
    pub(super) fn number(&mut self, expr: &Expr) {
        let ty = self.ty(expr);
        self.value(expr);
        for i in 1..words(ty.width()) {
            self.with_temps(|this| {
                let (temp, small) = (this.temp(), this.asm.label());
                this.store_word(temp, A);
                this.word(expr, i);
                this.asm.mov(B, A);
                this.load_word(A, temp);
                this.asm.jump_if_imm(Cond::Eq, B, 0, small);
                this.asm.set(A, u64::MAX);
                this.asm.bind(small);
            });
        }
    }

    /// `A = ` a word of an expression; bits beyond its width are 0.
    pub(super) fn word(&mut self, expr: &Expr, i: usize) {
        let ty = self.ty(expr);
        let width = ty.width();
        match expr {
            Expr::Const(constant) => {
                let word = constant.value.limbs().get(i).copied().unwrap_or(0);
                self.asm.set(A, word);
            }
            Expr::Var(var) => {
                let at = self.layout.var(*var) + 8 * i as i16;
                self.load_word(A, at);
            }
            Expr::Param(param) => {
                let action = self.action.map_or(0, |action| action.index());
                let at = self.layout.param(action, (*param).into()) + 8 * i as i16;
                self.load_word(A, at);
            }
            Expr::Field(header, field) => self.field_word(header, *field, i),
            Expr::Valid(header) => self.header_word(header, 0),
            Expr::LastIndex(stack) => {
                let at = self.layout.next(*stack);
                self.load_word(A, at);
                self.asm.alu_imm(Alu::Sub, A, 1);
                self.mask_to(32, 64);
            }
            Expr::FieldLength(..) => self.refuse("the length of a variable field"),
            Expr::Lookahead(_, offset) => self.look_ahead(*offset as usize, width, i),
            Expr::Remaining => {
                self.load_word(A, word::TOTAL);
                self.load_word(B, word::POSITION);
                self.asm.alu(Alu::Sub, A, B);
            }
            Expr::Unary(op, operand) => self.unary(*op, operand, i, width),
            Expr::Binary(op, operands) => self.binary(*op, &operands.0, &operands.1, i, ty),
            Expr::Slice(..) => {
                let lo = 64 * i as u16;
                self.bits(Source::Expr(expr), lo, 64.min(width - lo));
            }
            Expr::Mux(parts) => {
                let (other, end) = (self.asm.label(), self.asm.label());
                self.branch(&parts.0, false, other);
                self.word(&parts.1, i);
                self.asm.jump(end);
                self.asm.bind(other);
                self.word(&parts.2, i);
                self.asm.bind(end);
            }
            Expr::Cast(to, operand) => self.cast(expr, *to, operand, i),
        }
    }

    fn cast(&mut self, expr: &Expr, to: Type, operand: &Expr, i: usize) {
        let from = self.ty(operand);
        match from {
            Type::Int(from_width) if matches!(to, Type::Int(_)) && to.width() > from_width => {
                if !is_narrow(to) {
                    return self.refuse("signed numbers of more than 64 bits");
                }
                self.value(operand);
                self.extend_sign(A, from_width);
                self.mask_to(to.width(), 64);
            }
            Type::Int(width) if i >= words(width) => self.asm.set(A, 0),
            Type::Int(_) => {
                self.word(operand, i);
                let left = to.width().saturating_sub(64 * i as u16).min(64);
                self.mask_to(left, 64);
            }
            _ => {
                let lo = 64 * i as u16;
                self.bits(Source::Expr(expr), lo, 64.min(to.width() - lo));
            }
        }
    }

    /// Makes a register's value, of this width, one of 64 bits with the same sign.
    fn extend_sign(&mut self, register: bpf::Reg, width: u16) {
        if width < 64 {
            self.asm.alu_imm(Alu::Lsh, register, (64 - width).into());
            self.asm.alu_imm(Alu::Arsh, register, (64 - width).into());
        }
    }

    fn unary(&mut self, op: UnOp, operand: &Expr, i: usize, width: u16) {
        self.word(operand, i);
        let here = width.saturating_sub(64 * i as u16).min(64);
        match op {
            UnOp::Not => self.asm.alu_imm(Alu::Xor, A, 1),
            UnOp::Complement => {
                self.asm.alu_imm(Alu::Xor, A, -1);
                self.mask_to(here, 64);
            }
            UnOp::Negate if width > WIDEST_SUM => self.refuse("a negative number of more than 128 bits"),
            UnOp::Negate if i > 0 => {
                // The complement, and 1 more if all words before are 0.
                self.asm.alu_imm(Alu::Xor, A, -1);
                self.with_temps(|this| {
                    let (temp, end) = (this.temp(), this.asm.label());
                    this.store_word(temp, A);
                    for word in 0..i {
                        this.word(operand, word);
                        this.asm.mov(B, A);
                        this.load_word(A, temp);
                        this.asm.jump_if_imm(Cond::Ne, B, 0, end);
                    }
                    this.asm.alu_imm(Alu::Add, A, 1);
                    this.asm.bind(end);
                });
                self.mask_to(here, 64);
            }
            UnOp::Negate => {
                self.asm.mov(B, A);
                self.asm.set(A, 0);
                self.asm.alu(Alu::Sub, A, B);
                self.mask_to(here, 64);
            }
        }
    }

    /// `A` and `B` = words of two expressions.
    pub(super) fn operands(&mut self, left: &Expr, right: &Expr, i: usize) {
        let is_plain = matches!(
            right,
            Expr::Const(_) | Expr::Var(_) | Expr::Param(_) | Expr::Field(HeaderRef::Header(_), _)
        );
        if is_plain {
            self.word(left, i);
            // A load or a constant, which leaves all else alone.
            self.asm.mov(C, A);
            self.word(right, i);
            self.asm.mov(B, A);
            self.asm.mov(A, C);
        } else {
            self.with_temps(|this| {
                let temp = this.temp();
                this.word(left, i);
                this.store_word(temp, A);
                this.word(right, i);
                this.asm.mov(B, A);
                this.load_word(A, temp);
            });
        }
    }

    fn binary(&mut self, op: BinOp, left: &Expr, right: &Expr, i: usize, ty: Type) {
        use BinOp::*;
        let width = ty.width();
        match op {
            And | Or | Xor => {
                self.operands(left, right, i);
                let op = match op {
                    And => Alu::And,
                    Or => Alu::Or,
                    _ => Alu::Xor,
                };
                self.asm.alu(op, A, B);
            }
            LogicAnd | LogicOr => {
                self.operands(left, right, 0);
                self.asm.alu(if op == LogicAnd { Alu::And } else { Alu::Or }, A, B);
            }
            Eq | Ne | Lt | Le | Gt | Ge => self.compare(op, left, right),
            Concat => {
                let lo = 64 * i;
                let n = usize::from(width).saturating_sub(lo).min(64) as u16;
                self.list_part(&[Source::Expr(left), Source::Expr(right)], lo, n);
            }
            Add | Sub if width > 64 && width <= WIDEST_SUM => self.wide_sum(op == Sub, left, right, i, width),
            _ if width > 64 => self.refuse("arithmetic on more than 64 bits, or sums of more than 128"),
            Shl | Shr => self.shift(op, left, right, ty),
            SatAdd | SatSub if matches!(ty, Type::Int(_)) => self.saturate_signed(op, left, right, width),
            _ => {
                self.operands(left, right, 0);
                self.arithmetic(op, width);
            }
        }
    }

    /// `A = ` a word of a sum or a difference: the carry, or the borrow, comes from the words before.
    fn wide_sum(&mut self, difference: bool, left: &Expr, right: &Expr, i: usize, width: u16) {
        let alu = if difference { Alu::Sub } else { Alu::Add };
        self.with_temps(|this| {
            let carry = this.temp();
            this.store_number(carry, 0);
            for word in 0..=i {
                this.operands(left, right, word);
                if word == i {
                    this.asm.alu(alu, A, B);
                    this.load_word(B, carry);
                    this.asm.alu(alu, A, B);
                    break;
                }
                // Out of this word, by either of two steps.
                let out = this.asm.label();
                this.load_word(C, carry);
                this.store_number(carry, 1);
                if difference {
                    this.asm.jump_if(Cond::Lt, A, B, out);
                    this.asm.alu(Alu::Sub, A, B);
                    this.asm.jump_if(Cond::Lt, A, C, out);
                } else {
                    this.asm.alu(Alu::Add, A, B);
                    this.asm.jump_if(Cond::Lt, A, B, out);
                    this.asm.alu(Alu::Add, A, C);
                    this.asm.jump_if(Cond::Lt, A, C, out);
                }
                this.store_number(carry, 0);
                this.asm.bind(out);
            }
        });
        self.mask_to(width.saturating_sub(64 * i as u16).min(64), 64);
    }

    /// `A = A OP B`, unsigned or where the sign makes no difference.
    fn arithmetic(&mut self, op: BinOp, width: u16) {
        let end = self.asm.label();
        match op {
            BinOp::Add => {
                self.asm.alu(Alu::Add, A, B);
                self.mask_to(width, 64);
            }
            BinOp::Sub => {
                self.asm.alu(Alu::Sub, A, B);
                self.mask_to(width, 64);
            }
            BinOp::Mul => {
                self.asm.alu(Alu::Mul, A, B);
                self.mask_to(width, 64);
            }
            BinOp::Div => {
                let nonzero = self.asm.label();
                self.asm.jump_if_imm(Cond::Ne, B, 0, nonzero);
                self.asm.set(A, low_bits(width));
                self.asm.jump(end);
                self.asm.bind(nonzero);
                self.asm.alu(Alu::Div, A, B);
            }
            // By 0, it is the dividend here, too.
            BinOp::Rem => self.asm.alu(Alu::Mod, A, B),
            BinOp::SatAdd => {
                self.asm.alu(Alu::Add, A, B);
                let over = self.asm.label();
                self.asm.jump_if(Cond::Lt, A, B, over);
                self.asm.set(C, low_bits(width));
                self.asm.jump_if(Cond::Le, A, C, end);
                self.asm.bind(over);
                self.asm.set(A, low_bits(width));
            }
            BinOp::SatSub => {
                let below = self.asm.label();
                self.asm.jump_if(Cond::Lt, A, B, below);
                self.asm.alu(Alu::Sub, A, B);
                self.asm.jump(end);
                self.asm.bind(below);
                self.asm.set(A, 0);
            }
            BinOp::OnesAdd if width == 64 => {
                self.asm.alu(Alu::Add, A, B);
                self.asm.jump_if(Cond::Ge, A, B, end);
                self.asm.alu_imm(Alu::Add, A, 1);
            }
            BinOp::OnesAdd => {
                self.asm.alu(Alu::Add, A, B);
                self.asm.mov(B, A);
                self.asm.alu_imm(Alu::Rsh, B, width.into());
                self.asm.alu(Alu::Add, A, B);
                self.mask_to(width, 64);
            }
            _ => {}
        }
        self.asm.bind(end);
    }

    /// Signed sums and differences, clamped.
    fn saturate_signed(&mut self, op: BinOp, left: &Expr, right: &Expr, width: u16) {
        if width > 62 {
            return self.refuse("saturating arithmetic on signed numbers of more than 62 bits");
        }
        self.operands(left, right, 0);
        self.extend_sign(A, width);
        self.extend_sign(B, width);
        self.asm.alu(if op == BinOp::SatAdd { Alu::Add } else { Alu::Sub }, A, B);
        let (most, least) = ((1_i64 << (width - 1)) - 1, -(1_i64 << (width - 1)));
        for (cond, bound) in [(Cond::Sle, most), (Cond::Sge, least)] {
            let inside = self.asm.label();
            self.asm.set(B, bound.cast_unsigned());
            self.asm.jump_if(cond, A, B, inside);
            self.asm.mov(A, B);
            self.asm.bind(inside);
        }
        self.mask_to(width, 64);
    }

    /// Shifts by any distance.
    fn shift(&mut self, op: BinOp, left: &Expr, right: &Expr, ty: Type) {
        let width = ty.width();
        self.with_temps(|this| {
            let temp = this.temp();
            this.value(left);
            this.store_word(temp, A);
            this.number(right);
            this.asm.mov(B, A);
            this.load_word(A, temp);
        });
        let (far, end) = (self.asm.label(), self.asm.label());
        let signed = op == BinOp::Shr && matches!(ty, Type::Int(_));
        if signed {
            self.extend_sign(A, width);
        }
        self.asm.jump_if_imm(Cond::Ge, B, width.into(), far);
        let alu = match (op, signed) {
            (BinOp::Shl, _) => Alu::Lsh,
            (_, true) => Alu::Arsh,
            (_, false) => Alu::Rsh,
        };
        self.asm.alu(alu, A, B);
        self.asm.jump(end);
        self.asm.bind(far);
        if signed {
            self.asm.alu_imm(Alu::Arsh, A, 63);
        } else {
            self.asm.set(A, 0);
        }
        self.asm.bind(end);
        self.mask_to(width, 64);
    }

    /// `A = ` whether a comparison holds.
    fn compare(&mut self, op: BinOp, left: &Expr, right: &Expr) {
        let (yes, end) = (self.asm.label(), self.asm.label());
        self.compare_and_jump(op, left, right, true, yes);
        self.asm.set(A, 0);
        self.asm.jump(end);
        self.asm.bind(yes);
        self.asm.set(A, 1);
        self.asm.bind(end);
    }

    /// Jumps if a condition is as wanted.
    pub(super) fn branch(&mut self, condition: &Expr, wanted: bool, to: Label) {
        match condition {
            Expr::Const(constant) => {
                if constant.value.is_zero() != wanted {
                    self.asm.jump(to);
                }
            }
            Expr::Unary(UnOp::Not, operand) => self.branch(operand, !wanted, to),
            // Parts of which one may be an error of the parser are both evaluated.
            Expr::Binary(op @ (BinOp::LogicAnd | BinOp::LogicOr), operands) if !self.may_fault(condition) => {
                // Whether one part that is like this decides.
                let decides = *op == BinOp::LogicOr;
                if decides == wanted {
                    self.branch(&operands.0, wanted, to);
                    self.branch(&operands.1, wanted, to);
                } else {
                    let end = self.asm.label();
                    self.branch(&operands.0, decides, end);
                    self.branch(&operands.1, wanted, to);
                    self.asm.bind(end);
                }
            }
            Expr::Binary(
                op @ (BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge),
                operands,
            ) => self.compare_and_jump(*op, &operands.0, &operands.1, wanted, to),
            _ => {
                self.value(condition);
                self.asm.jump_if_imm(if wanted { Cond::Ne } else { Cond::Eq }, A, 0, to);
            }
        }
    }

    fn compare_and_jump(&mut self, op: BinOp, left: &Expr, right: &Expr, wanted: bool, to: Label) {
        let ty = self.ty(left);
        let signed = matches!(ty, Type::Int(_));
        if !is_narrow(ty) {
            return self.compare_wide(op, left, right, wanted, to);
        }
        let cond = match (op, signed) {
            (BinOp::Eq, _) => Cond::Eq,
            (BinOp::Ne, _) => Cond::Ne,
            (BinOp::Lt, false) => Cond::Lt,
            (BinOp::Le, false) => Cond::Le,
            (BinOp::Gt, false) => Cond::Gt,
            (BinOp::Lt, true) => Cond::Slt,
            (BinOp::Le, true) => Cond::Sle,
            (BinOp::Gt, true) => Cond::Sgt,
            (_, true) => Cond::Sge,
            (_, false) => Cond::Ge,
        };
        let cond = if wanted { cond } else { cond.negated() };
        if let (false, Expr::Const(constant)) = (signed, right)
            && let Ok(n) = i32::try_from(constant.value.low_u64())
        {
            self.value(left);
            return self.asm.jump_if_imm(cond, A, n, to);
        }
        self.operands(left, right, 0);
        if signed && !matches!(op, BinOp::Eq | BinOp::Ne) {
            self.extend_sign(A, ty.width());
            self.extend_sign(B, ty.width());
        }
        self.asm.jump_if(cond, A, B, to);
    }

    /// Values of several words, from the highest down.
    fn compare_wide(&mut self, op: BinOp, left: &Expr, right: &Expr, wanted: bool, to: Label) {
        let ty = self.ty(left);
        if matches!(ty, Type::Int(_)) && !matches!(op, BinOp::Eq | BinOp::Ne) {
            return self.refuse("signed numbers of more than 64 bits");
        }
        let (yes, no, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        for i in (0..words(ty.width())).rev() {
            self.operands(left, right, i);
            match op {
                BinOp::Eq => self.asm.jump_if(Cond::Ne, A, B, no),
                BinOp::Ne => self.asm.jump_if(Cond::Ne, A, B, yes),
                BinOp::Lt | BinOp::Le => {
                    self.asm.jump_if(Cond::Lt, A, B, yes);
                    self.asm.jump_if(Cond::Gt, A, B, no);
                }
                _ => {
                    self.asm.jump_if(Cond::Gt, A, B, yes);
                    self.asm.jump_if(Cond::Lt, A, B, no);
                }
            }
        }
        // All words are equal.
        let equal = matches!(op, BinOp::Eq | BinOp::Le | BinOp::Ge);
        self.asm.jump(if equal { yes } else { no });
        self.asm.bind(if wanted { no } else { yes });
        self.asm.jump(end);
        self.asm.bind(if wanted { yes } else { no });
        self.asm.jump(to);
        self.asm.bind(end);
    }

    /// Whether evaluating an expression may be an error of the parser.
    pub(super) fn may_fault(&self, expr: &Expr) -> bool {
        let of_header = |header: &HeaderRef| match header {
            HeaderRef::Header(_) => false,
            HeaderRef::Element(_, index) => self.may_fault(index),
            HeaderRef::Next(_) | HeaderRef::Last(_) => true,
        };
        match expr {
            Expr::Const(_) | Expr::Var(_) | Expr::Param(_) | Expr::LastIndex(_) | Expr::Remaining => false,
            Expr::Lookahead(..) => true,
            Expr::Field(header, _) | Expr::Valid(header) | Expr::FieldLength(header, _) => of_header(header),
            Expr::Unary(_, operand) | Expr::Slice(operand, ..) | Expr::Cast(_, operand) => {
                self.may_fault(operand)
            }
            Expr::Binary(_, operands) => self.may_fault(&operands.0) || self.may_fault(&operands.1),
            Expr::Mux(parts) => [&parts.0, &parts.1, &parts.2].into_iter().any(|part| self.may_fault(part)),
        }
    }

    /// Records that an expression met an error, if it is the first one.
    pub(super) fn fault(&mut self, error: ErrorId) {
        let known = self.asm.label();
        self.load_word(A, word::FAULT);
        self.asm.jump_if_imm(Cond::Ne, A, 0, known);
        self.store_number(word::FAULT, error.0 as i32);
        self.asm.bind(known);
    }

    /// `A = ` a word of bits behind the parser's position.
    fn look_ahead(&mut self, offset: usize, width: u16, i: usize) {
        let bytes = (offset + usize::from(width)).div_ceil(8);
        let (short, end) = (self.asm.label(), self.asm.label());
        let base = self.packet_at_position(bytes, short);
        let n = usize::from(width).saturating_sub(64 * i).min(64);
        let start = offset + usize::from(width) - 64 * i - n;
        self.packet_part(A, base, start, n, bytes);
        self.asm.jump(end);
        self.asm.bind(short);
        self.fault(ErrorId::PACKET_TOO_SHORT);
        self.asm.set(A, 0);
        self.asm.bind(end);
    }

    /// Returns a register with the packet's address at the parser's position, from where so many bytes may be read;
    /// jumps if there are not as many. Destroys `A`, `B` and `C`.
    pub(super) fn packet_at_position(&mut self, bytes: usize, short: Label) -> bpf::Reg {
        let base = bpf::Reg(4);
        if bytes > WINDOW {
            self.asm.jump(short);
        }
        self.load_word(A, word::POSITION);
        // The verifier has to know a bound.
        self.asm.jump_if_imm(Cond::Gt, A, WINDOW.saturating_sub(bytes) as i32, short);
        self.asm.load(Size::W, base, CTX, DATA);
        self.asm.load(Size::W, B, CTX, DATA_END);
        self.asm.alu(Alu::Add, base, A);
        self.asm.mov(A, base);
        self.asm.alu_imm(Alu::Add, A, bytes as i32);
        self.asm.jump_if(Cond::Gt, A, B, short);
        base
    }

    fn field_word(&mut self, header: &HeaderRef, field: u16, i: usize) {
        let Some(ty) = types::header_type(self.program, header) else { return };
        let offset = self.layout.field(ty, field.into()) + 8 * i as i16;
        self.header_word(header, offset);
    }

    /// `A = ` the word at an offset of a header; 0 beyond a stack.
    fn header_word(&mut self, header: &HeaderRef, offset: i16) {
        let (beyond, end) = (self.asm.label(), self.asm.label());
        match self.locate(header, beyond) {
            Location::Fixed(at) => self.load_word(A, at + offset),
            Location::Pointer => self.asm.load(Size::D, A, POINTER, offset),
            Location::Beyond => {}
        }
        self.asm.jump(end);
        self.asm.bind(beyond);
        self.asm.set(A, 0);
        self.asm.bind(end);
    }

    /// `A = ` the number of elements that extractions have filled.
    pub(super) fn next_of(&mut self, stack: StackId) {
        let at = self.layout.next(stack);
        self.asm.load(Size::D, A, BASE, at);
    }
}
