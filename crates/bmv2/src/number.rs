//! Arithmetic without bounds in numbers of fixed widths.
//!
//! BMv2 computes with whole numbers of any size and cuts a result off when it is stored. Here each number knows the
//! smallest type that has all of its values. Sums, differences, products, shifts to the left and bitwise operations
//! need only as many bits of their operands as are wanted of the result, so that `(a + b) & 0xff` is an addition of
//! 8 bits; comparisons, divisions and shifts to the right need all.

use pipeline::bits::{Bits, MAX_WIDTH};
use pipeline::ir::{BinOp, Constant, Expr, Type, UnOp};

use crate::operand;
use crate::refusal::{Refusal, Result};

/// A number.
#[derive(Debug, Clone)]
pub(crate) struct Number {
    kind: Kind,
    range: Range,
}

/// The smallest type with all values of a number. Its width may exceed what the pipeline has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    width: u32,
    signed: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    /// In two's complement, of the range's width.
    Constant(Bits),
    /// A value of the range's type.
    Value(Expr),
    Binary(BinOp, Box<(Number, Number)>),
    Complement(Box<Number>),
    Choice(Expr, Box<(Number, Number)>),
    /// The number in the range's type, modulo its size.
    Wrapped(Box<Number>),
}

impl Range {
    const fn unsigned(width: u32) -> Self {
        Self { width, signed: false }
    }

    const fn signed(width: u32) -> Self {
        Self { width, signed: true }
    }

    /// Width as a signed number.
    const fn signed_width(self) -> u32 {
        if self.signed { self.width } else { self.width.saturating_add(1) }
    }

    /// The smallest range with all values of both, and so many bits more.
    fn with(self, other: Self, more: u32) -> Self {
        match self.signed || other.signed {
            true => Self::signed(self.signed_width().max(other.signed_width()).saturating_add(more)),
            false => Self::unsigned(self.width.max(other.width).saturating_add(more)),
        }
    }

    fn ty(self) -> Result<Type> {
        match u16::try_from(self.width) {
            Ok(width) if width <= MAX_WIDTH => {
                Ok(if self.signed { Type::Int(width) } else { Type::Bit(width) })
            }
            _ => Err(Refusal::of(format!(
                "a value of {} bits; at most {MAX_WIDTH} are supported: mask the result of the operation",
                self.width
            ))),
        }
    }
}

impl Number {
    /// A constant, written in hexadecimal.
    pub(crate) fn constant(text: &str) -> Result<Self> {
        let (negative, magnitude) = operand::hex(text)?;
        let width = magnitude.width();
        if !negative || magnitude.is_zero() {
            return Ok(Self { kind: Kind::Constant(magnitude), range: Range::unsigned(width.into()) });
        }
        let width = width.saturating_add(1).min(MAX_WIDTH);
        Ok(Self { kind: Kind::Constant(magnitude.resize(width).neg()), range: Range::signed(width.into()) })
    }

    /// A value of a type; a truth value is 0 or 1.
    pub(crate) fn value(expr: Expr, ty: Type) -> Self {
        match ty {
            Type::Bool => Self { kind: Kind::Value(expr.cast(Type::Bit(1))), range: Range::unsigned(1) },
            Type::Bit(width) => Self { kind: Kind::Value(expr), range: Range::unsigned(width.into()) },
            Type::Int(width) => Self { kind: Kind::Value(expr), range: Range::signed(width.into()) },
        }
    }

    /// One of two numbers.
    pub(crate) fn choice(condition: Expr, yes: Self, no: Self) -> Self {
        let range = yes.range.with(no.range, 0);
        Self { kind: Kind::Choice(condition, Box::new((yes, no))), range }
    }

    /// The number in two's complement of so many bits.
    pub(crate) fn wrapped(self, width: u16) -> Self {
        Self { kind: Kind::Wrapped(Box::new(self)), range: Range::signed(width.into()) }
    }

    pub(crate) fn complement(self) -> Self {
        let range = Range::signed(self.range.signed_width());
        Self { kind: Kind::Complement(Box::new(self)), range }
    }

    /// An operation on two numbers.
    pub(crate) fn binary(op: BinOp, left: Self, right: Self) -> Result<Self> {
        let (a, b) = (left.range, right.range);
        let range = match op {
            BinOp::Add => a.with(b, 1),
            BinOp::Sub => {
                let more = u32::from(a.signed || b.signed);
                Range::signed(a.signed_width().max(b.signed_width()).saturating_add(more))
            }
            BinOp::Mul if a.signed || b.signed => {
                Range::signed(a.signed_width().saturating_add(b.signed_width()))
            }
            BinOp::Mul => Range::unsigned(a.width.saturating_add(b.width)),
            BinOp::And if !a.signed && !b.signed => Range::unsigned(a.width.min(b.width)),
            BinOp::And if !a.signed => a,
            BinOp::And if !b.signed => b,
            BinOp::And | BinOp::Or | BinOp::Xor => a.with(b, 0),
            BinOp::Shl => {
                let by = match &right.kind {
                    Kind::Constant(by) if !b.signed => u32::try_from(by.saturating_u64()).unwrap_or(u32::MAX),
                    _ => 1u32.checked_shl(b.width).map_or(u32::MAX, |size| size - 1),
                };
                Range { width: a.width.saturating_add(by), signed: a.signed }
            }
            BinOp::Shr => a,
            BinOp::Div | BinOp::Rem if !a.signed && !b.signed => a.with(b, 0),
            BinOp::Div | BinOp::Rem => return Err(Refusal::unsupported("a division of signed numbers is")),
            _ => return Err(Refusal::unsupported("this operation on numbers is")),
        };
        if matches!(op, BinOp::Shl | BinOp::Shr) && b.signed {
            return Err(Refusal::unsupported("a shift by a signed number is"));
        }
        Ok(Self { kind: Kind::Binary(op, Box::new((left, right))), range })
    }

    /// A sum or difference, clamped to the values of a type.
    ///
    /// # Errors
    /// It is neither, or an operand has values beyond the type.
    pub(crate) fn saturated(self, ty: Type) -> Result<Self> {
        let clamped = match ty {
            Type::Int(width) => Range::signed(width.into()),
            other => Range::unsigned(other.width().into()),
        };
        let (op, operands) = match self.kind {
            Kind::Binary(BinOp::Add, operands) => (BinOp::SatAdd, operands),
            Kind::Binary(BinOp::Sub, operands) => (BinOp::SatSub, operands),
            _ => return Err(Refusal::unsupported("clamping anything but a sum or a difference is")),
        };
        let (left, right) = *operands;
        if left.range.with(clamped, 0) != clamped || right.range.with(clamped, 0) != clamped {
            return Err(Refusal::unsupported("clamping a sum of wider numbers is"));
        }
        let value = left.of(ty)?.op(op, right.of(ty)?);
        Ok(Self { kind: Kind::Value(value), range: clamped })
    }

    /// Whether two numbers are in a relation.
    pub(crate) fn compare(op: BinOp, left: &Self, right: &Self) -> Result<Expr> {
        let ty = left.range.with(right.range, 0).ty()?;
        Ok(left.of(ty)?.op(op, right.of(ty)?))
    }

    /// Whether the number is not 0.
    pub(crate) fn is_set(&self) -> Result<Expr> {
        match &self.kind {
            Kind::Value(Expr::Cast(Type::Bit(1), inner)) if is_bool(inner) => Ok((**inner).clone()),
            Kind::Value(value) if self.range == Range::unsigned(1) => Ok(value.clone().cast(Type::Bool)),
            Kind::Constant(value) => Ok(Expr::Const(Constant::bool(!value.is_zero()))),
            _ => {
                let ty = self.range.ty()?;
                let zero = Constant { ty, value: Bits::zero(ty.width()) };
                Ok(self.of(ty)?.op(BinOp::Ne, Expr::Const(zero)))
            }
        }
    }

    /// The value of a constant that is not negative.
    pub(crate) fn known(&self) -> Option<u64> {
        match &self.kind {
            Kind::Constant(value) if !self.range.signed => Some(value.saturating_u64()),
            _ => None,
        }
    }

    /// The number as a value of a type, modulo its size.
    pub(crate) fn of(&self, ty: Type) -> Result<Expr> {
        match ty {
            Type::Bool => self.is_set(),
            Type::Bit(width) => self.low(width),
            Type::Int(width) => match &self.kind {
                Kind::Value(value) if self.range == Range::signed(width.into()) => Ok(value.clone()),
                Kind::Constant(_) => match self.low(width)? {
                    Expr::Const(constant) => Ok(Expr::Const(Constant { ty, value: constant.value })),
                    other => Ok(other.cast(ty)),
                },
                _ => Ok(self.low(width)?.cast(ty)),
            },
        }
    }

    /// The whole number: an index or a length, which are not negative.
    pub(crate) fn whole(&self) -> Result<Expr> {
        if self.range.signed {
            return Err(Refusal::unsupported("a signed number here is"));
        }
        match self.range.ty()? {
            Type::Bit(width) => self.low(width),
            _ => Err(Refusal::unsupported("this number is")),
        }
    }

    /// The low bits.
    fn low(&self, width: u16) -> Result<Expr> {
        if let Kind::Constant(value) = &self.kind {
            let value = self.extended(value, width);
            return Ok(Expr::Const(Constant { ty: Type::Bit(width), value }));
        }
        if u32::from(width) <= self.range.width {
            return self.modular(width);
        }
        let ty = self.range.ty()?;
        let value = self.modular(ty.width())?;
        Ok(match self.range.signed {
            false => value.cast(Type::Bit(width)),
            true => value.cast(ty).cast(Type::Int(width)).cast(Type::Bit(width)),
        })
    }

    /// The low bits, no more than the range has.
    fn modular(&self, width: u16) -> Result<Expr> {
        let ty = Type::Bit(width);
        Ok(match &self.kind {
            Kind::Constant(_) => self.low(width)?,
            Kind::Value(value) => match self.range {
                range if range == Range::unsigned(width.into()) => value.clone(),
                range if range == Range::signed(width.into()) => value.clone().cast(ty),
                _ => value.clone().slice(width - 1, 0),
            },
            Kind::Wrapped(inner) => inner.low(width)?,
            Kind::Complement(inner) => Expr::Unary(UnOp::Complement, Box::new(inner.low(width)?)),
            Kind::Choice(condition, parts) => {
                Expr::Mux(Box::new((condition.clone(), parts.0.low(width)?, parts.1.low(width)?)))
            }
            Kind::Binary(op, operands) => {
                let (left, right) = (&operands.0, &operands.1);
                match op {
                    BinOp::And if right.is_ones(width) => left.low(width)?,
                    BinOp::And if left.is_ones(width) => right.low(width)?,
                    BinOp::Shl => match right.known() {
                        Some(by) if by >= width.into() => {
                            Expr::Const(Constant { ty, value: Bits::zero(width) })
                        }
                        Some(by) => left.low(width)?.op(BinOp::Shl, Expr::bit(16, by)),
                        None => left.low(width)?.op(BinOp::Shl, right.whole()?),
                    },
                    BinOp::Shr => return left.shifted(right, width),
                    BinOp::Div | BinOp::Rem => {
                        let whole = self.range.ty()?;
                        let value = left.of(whole)?.op(*op, right.of(whole)?);
                        if whole == ty { value } else { value.slice(width - 1, 0) }
                    }
                    _ => left.low(width)?.op(*op, right.low(width)?),
                }
            }
        })
    }

    /// The low bits of the number shifted to the right.
    fn shifted(&self, by: &Self, width: u16) -> Result<Expr> {
        let whole = self.range.ty()?;
        let value = self.of(whole)?;
        let top = whole.width() - 1;
        let low = match (by.known(), self.range.signed) {
            (Some(by), false) if by > top.into() => return Ok(Expr::bit(width, 0)),
            (Some(by), false) => {
                let by = u16::try_from(by).unwrap_or(top);
                let high = top.min(by.saturating_add(width - 1));
                let low = if (high, by) == (top, 0) { value } else { value.slice(high, by) };
                return Ok(if high - by + 1 == width { low } else { low.cast(Type::Bit(width)) });
            }
            (Some(by), true) => value.op(BinOp::Shr, Expr::bit(16, by.min(top.into()))),
            (None, _) => value.op(BinOp::Shr, by.whole()?),
        };
        Ok(match whole {
            Type::Bit(all) if all == width => low,
            Type::Int(all) if all == width => low.cast(Type::Bit(width)),
            _ => low.slice(width - 1, 0),
        })
    }

    /// Whether the low bits of a constant are ones.
    fn is_ones(&self, width: u16) -> bool {
        matches!(&self.kind, Kind::Constant(value) if self.extended(value, width) == Bits::ones(width))
    }

    /// A constant of this range in another width.
    fn extended(&self, value: &Bits, width: u16) -> Bits {
        if self.range.signed { value.sign_extend(width) } else { value.resize(width) }
    }
}

/// Whether an expression is plainly a truth value.
fn is_bool(expr: &Expr) -> bool {
    match expr {
        Expr::Valid(_) | Expr::Unary(UnOp::Not, _) => true,
        Expr::Const(constant) => constant.ty == Type::Bool,
        Expr::Cast(ty, _) => *ty == Type::Bool,
        Expr::Binary(op, _) => matches!(
            op,
            BinOp::Eq
                | BinOp::Ne
                | BinOp::Lt
                | BinOp::Le
                | BinOp::Gt
                | BinOp::Ge
                | BinOp::LogicAnd
                | BinOp::LogicOr
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use pipeline::ir::VarId;

    use super::*;

    fn var(number: u32, ty: Type) -> Number {
        Number::value(Expr::Var(VarId(number)), ty)
    }

    fn constant(text: &str) -> Number {
        Number::constant(text).unwrap()
    }

    #[test]
    fn a_masked_sum_is_an_addition_of_as_many_bits() {
        let (a, b) = (var(0, Type::Bit(8)), var(1, Type::Bit(8)));
        let sum = Number::binary(BinOp::Add, a, b).unwrap();
        let masked = Number::binary(BinOp::And, sum, constant("0xff")).unwrap();
        let expected = Expr::Var(VarId(0)).op(BinOp::Add, Expr::Var(VarId(1)));
        assert_eq!(masked.of(Type::Bit(8)), Ok(expected.clone()));
        assert_eq!(masked.of(Type::Bit(16)), Ok(expected.cast(Type::Bit(16))));
    }

    #[test]
    fn without_a_mask_nothing_is_lost() {
        let (a, b) = (var(0, Type::Bit(8)), var(1, Type::Bit(8)));
        let sum = Number::binary(BinOp::Add, a.clone(), b.clone()).unwrap();
        assert_eq!(sum.range, Range::unsigned(9));
        let difference = Number::binary(BinOp::Sub, a.clone(), b).unwrap();
        assert_eq!(difference.range, Range::signed(9));
        assert_eq!(Number::binary(BinOp::Mul, a.clone(), sum).unwrap().range, Range::unsigned(17));
        assert_eq!(
            Number::binary(BinOp::Shl, a.clone(), constant("0x4")).unwrap().range,
            Range::unsigned(12)
        );
        let shifted = Number::binary(BinOp::Shl, a.clone(), var(2, Type::Bit(16))).unwrap();
        assert!(shifted.of(Type::Bit(8)).is_ok());
        assert!(Number::compare(BinOp::Eq, &shifted, &a).unwrap_err().to_string().contains("at most 2048"));
    }

    #[test]
    fn comparisons_are_in_the_smallest_common_type() {
        let field = var(0, Type::Bit(16));
        let equal = Number::compare(BinOp::Eq, &field, &constant("0x0800")).unwrap();
        assert_eq!(equal, Expr::Var(VarId(0)).equals(Expr::bit(16, 0x800)));
        let less = Number::compare(BinOp::Lt, &field, &constant("-0x1")).unwrap();
        let minus = Constant { ty: Type::Int(17), value: Bits::ones(17) };
        let wide = Expr::Var(VarId(0)).cast(Type::Bit(17)).cast(Type::Int(17));
        assert_eq!(less, wide.op(BinOp::Lt, Expr::Const(minus)));
    }

    #[test]
    fn shifts_to_the_right_by_constants_are_slices() {
        let field = var(0, Type::Bit(128));
        let shifted = Number::binary(BinOp::Shr, field.clone(), constant("0x78")).unwrap();
        let masked = Number::binary(BinOp::And, shifted, constant("0xff")).unwrap();
        assert_eq!(masked.of(Type::Bit(8)), Ok(Expr::Var(VarId(0)).slice(127, 120)));
        let gone = Number::binary(BinOp::Shr, field, constant("0x80")).unwrap();
        assert_eq!(gone.of(Type::Bit(8)), Ok(Expr::bit(8, 0)));
    }

    #[test]
    fn clamped_sums_have_the_operands_width() {
        let (a, b) = (var(0, Type::Bit(8)), var(1, Type::Bit(8)));
        let sum = Number::binary(BinOp::Add, a, b.clone()).unwrap();
        let clamped = sum.saturated(Type::Bit(8)).unwrap();
        assert_eq!(clamped.of(Type::Bit(8)), Ok(Expr::Var(VarId(0)).op(BinOp::SatAdd, Expr::Var(VarId(1)))));
        let wide = Number::binary(BinOp::Add, var(2, Type::Bit(9)), b.clone()).unwrap();
        assert!(wide.saturated(Type::Bit(8)).is_err() && b.saturated(Type::Bit(8)).is_err());
    }
}
