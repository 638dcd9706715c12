//! Arithmetic on constants, as the standard defines it for each type.
//!
//! Results are bounded: an `int` has at most [`MAX_BITS`] bits, a string at most [`MAX_STRING`] bytes.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::ty::Ty;
use crate::ast::{BinOp, UnOp};
use crate::hir::Value;

/// Most bits of a constant.
pub(super) const MAX_BITS: u64 = 1 << 14;
/// Most bytes of a string that is put together.
const MAX_STRING: usize = 1 << 16;

/// The number that a type has for another: the lowest bits.
pub(super) fn wrap(value: &BigInt, ty: &Ty) -> BigInt {
    match *ty {
        Ty::Bit(width) => low(value, width),
        Ty::Int(width) => {
            let value = low(value, width);
            if width > 0 && value.bit(u64::from(width) - 1) {
                value - (BigInt::one() << width)
            } else {
                value
            }
        }
        _ => value.clone(),
    }
}

/// Whether a type has a number.
pub(super) fn fits(value: &BigInt, ty: &Ty) -> bool {
    wrap(value, ty) == *value
}

fn low(value: &BigInt, width: u32) -> BigInt {
    if value.sign() != Sign::Minus && value.bits() <= width.into() {
        return value.clone();
    }
    value & ((BigInt::one() << width) - 1)
}

/// The nearest number that a type has.
fn saturate(value: BigInt, ty: &Ty) -> BigInt {
    let (least, most) = match *ty {
        Ty::Bit(width) => (BigInt::zero(), (BigInt::one() << width) - 1),
        Ty::Int(width) => {
            let half = BigInt::one() << width.saturating_sub(1);
            (-half.clone(), half - 1)
        }
        _ => return value,
    };
    value.clamp(least, most)
}

/// Bits `hi` down to `lo` of a number, which may be negative.
pub(super) fn slice(value: &BigInt, hi: u32, lo: u32) -> BigInt {
    low(&(value >> lo), hi.saturating_sub(lo).saturating_add(1))
}

/// Applies an operator to a constant of a type.
pub(super) fn unary(op: UnOp, value: &Value, ty: &Ty) -> Option<Value> {
    Some(match (op, value) {
        (UnOp::Not, Value::Bool(b)) => Value::Bool(!b),
        (UnOp::Complement, Value::Integer(n)) => Value::Integer(wrap(&!n, ty)),
        (UnOp::Negate, Value::Integer(n)) => Value::Integer(wrap(&-n, ty)),
        (UnOp::Plus, Value::Integer(n)) => Value::Integer(n.clone()),
        _ => return None,
    })
}

/// Applies an operator to two constants with their types. `Ok(None)` if they have no such operator; an error names the
/// reason why there is no result.
pub(super) fn binary(op: BinOp, a: (&Value, &Ty), b: (&Value, &Ty)) -> Result<Option<Value>, String> {
    use BinOp::*;
    let ty = a.1;
    Ok(Some(match (op, a.0, b.0) {
        (Eq, a, b) => Value::Bool(a == b),
        (Ne, a, b) => Value::Bool(a != b),
        (LogicAnd, Value::Bool(a), Value::Bool(b)) => Value::Bool(*a && *b),
        (LogicOr, Value::Bool(a), Value::Bool(b)) => Value::Bool(*a || *b),
        (Concat, Value::String(a), Value::String(b)) => {
            if a.len() + b.len() > MAX_STRING {
                return Err(format!(
                    "a string of {} bytes; at most {MAX_STRING} are supported",
                    a.len() + b.len()
                ));
            }
            Value::String(format!("{a}{b}"))
        }
        (Concat, Value::Integer(n), Value::Integer(m)) => {
            let (Ty::Bit(left) | Ty::Int(left), Ty::Bit(right) | Ty::Int(right)) = (ty, b.1) else {
                return Ok(None);
            };
            let joined = (low(n, *left) << *right) | low(m, *right);
            let width = left.saturating_add(*right);
            Value::Integer(if matches!(ty, Ty::Int(_)) { wrap(&joined, &Ty::Int(width)) } else { joined })
        }
        (Lt | Le | Gt | Ge, Value::Integer(a), Value::Integer(b)) => {
            let order = a.cmp(b);
            Value::Bool(match op {
                Lt => order == Ordering::Less,
                Le => order != Ordering::Greater,
                Gt => order == Ordering::Greater,
                _ => order != Ordering::Less,
            })
        }
        (_, Value::Integer(a), Value::Integer(b)) => Value::Integer(number(op, a, b, ty)?),
        _ => return Ok(None),
    }))
}

/// Applies an arithmetic operator to two numbers of a type; the right one of a shift may be of any.
fn number(op: BinOp, a: &BigInt, b: &BigInt, ty: &Ty) -> Result<BigInt, String> {
    use BinOp::*;
    let result = match op {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Div | Rem => {
            if b.is_zero() {
                return Err("division by zero".into());
            }
            if a.is_negative() || b.is_negative() {
                return Err(format!("division is not defined for negative numbers ({a} and {b})"));
            }
            if op == Div { a / b } else { a % b }
        }
        SatAdd => saturate(a + b, ty),
        SatSub => saturate(a - b, ty),
        And => a & b,
        Or => a | b,
        Xor => a ^ b,
        Shl | Shr => {
            if b.is_negative() {
                return Err(format!("a shift by a negative number ({b})"));
            }
            shift(op, a, b.to_u64().unwrap_or(u64::MAX), ty)?
        }
        _ => return Err("an operator that has no number for a result".into()),
    };
    if result.bits() > MAX_BITS {
        return Err(format!("a constant of {} bits; at most {MAX_BITS} are supported", result.bits()));
    }
    Ok(wrap(&result, ty))
}

fn shift(op: BinOp, a: &BigInt, by: u64, ty: &Ty) -> Result<BigInt, String> {
    let beyond = match *ty {
        Ty::Bit(width) | Ty::Int(width) => by >= width.into(),
        _ if op == BinOp::Shl && !a.is_zero() && by > MAX_BITS => {
            return Err(format!("a shift by {by}; at most {MAX_BITS} is supported"));
        }
        _ => by >= MAX_BITS,
    };
    Ok(match (op, beyond) {
        (BinOp::Shl, true) => BigInt::zero(),
        (_, true) if a.is_negative() => -BigInt::one(),
        (_, true) => BigInt::zero(),
        (BinOp::Shl, false) => a << by,
        (_, false) => a >> by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calc(op: BinOp, a: i64, b: i64, ty: Ty) -> Result<i64, String> {
        let (a, b) = (Value::Integer(a.into()), Value::Integer(b.into()));
        match binary(op, (&a, &ty), (&b, &ty))? {
            Some(Value::Integer(n)) => n.to_i64().ok_or_else(|| n.to_string()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn numbers_wrap_to_their_width() {
        assert_eq!(calc(BinOp::Add, 255, 1, Ty::Bit(8)), Ok(0));
        assert_eq!(calc(BinOp::Add, 127, 1, Ty::Int(8)), Ok(-128));
        assert_eq!(calc(BinOp::Sub, 0, 1, Ty::Bit(8)), Ok(255));
        assert_eq!(calc(BinOp::Mul, 1 << 20, 1 << 20, Ty::Integer), Ok(1 << 40));
        assert_eq!(
            unary(UnOp::Negate, &Value::Integer(1.into()), &Ty::Bit(4)),
            Some(Value::Integer(15.into()))
        );
    }

    #[test]
    fn saturating_operators_stop_at_the_bounds() {
        assert_eq!(calc(BinOp::SatAdd, 250, 10, Ty::Bit(8)), Ok(255));
        assert_eq!(calc(BinOp::SatSub, 1, 10, Ty::Bit(8)), Ok(0));
        assert_eq!(calc(BinOp::SatSub, -100, 100, Ty::Int(8)), Ok(-128));
    }

    #[test]
    fn shifts_beyond_the_width_leave_the_sign() {
        assert_eq!(calc(BinOp::Shl, 1, 8, Ty::Bit(8)), Ok(0));
        assert_eq!(calc(BinOp::Shr, -5, 100, Ty::Int(8)), Ok(-1));
        assert_eq!(calc(BinOp::Shr, -5, 1, Ty::Int(8)), Ok(-3));
        assert!(calc(BinOp::Shl, 1, 1 << 40, Ty::Integer).unwrap_err().contains("shift by 1099511627776"));
    }

    #[test]
    fn division_refuses_zero_and_negative_numbers() {
        assert_eq!(calc(BinOp::Div, 7, 2, Ty::Integer), Ok(3));
        assert_eq!(calc(BinOp::Div, 7, 0, Ty::Integer), Err("division by zero".into()));
        assert!(calc(BinOp::Rem, -7, 2, Ty::Integer).is_err());
    }

    #[test]
    fn concatenation_keeps_the_sign_of_the_left() {
        let (a, b) = (Value::Integer((-1).into()), Value::Integer(1.into()));
        let result = binary(BinOp::Concat, (&a, &Ty::Int(4)), (&b, &Ty::Bit(4)));
        assert_eq!(result, Ok(Some(Value::Integer((-15).into()))));
    }
}
