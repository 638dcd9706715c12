//! Values of expressions that are known once constructor parameters have values.
//!
//! The checker has replaced what is known without them by [`ExprKind::Const`]; what is left are parameters of
//! constructors under operators. Values have at most [`MOST_BITS`] bits: a program cannot make them grow without bound.

use num_bigint::BigInt;
use num_traits::{One, Signed, ToPrimitive, Zero};

use crate::hir::{BinOp, Expr, ExprKind, Type, UnOp, Value, VarId};

/// Most bits of a value.
pub const MOST_BITS: u64 = 1 << 16;

/// The value of an expression, given those of constructor parameters. `None` if it is not known, or undefined (a
/// division by zero).
pub fn evaluate(expr: &Expr, bound: &dyn Fn(VarId) -> Option<Value>) -> Option<Value> {
    let value = match &expr.kind {
        ExprKind::Const(value) => value.clone(),
        ExprKind::Var(var) => bound(*var)?,
        ExprKind::Invalid => Value::Invalid,
        ExprKind::Cast(inner) => cast(evaluate(inner, bound)?, &expr.ty)?,
        ExprKind::Unary(op, inner) => unary(*op, evaluate(inner, bound)?)?,
        ExprKind::Binary(op, sides) => {
            let left = evaluate(&sides.0, bound)?;
            match (op, &left) {
                (BinOp::LogicAnd, Value::Bool(false)) | (BinOp::LogicOr, Value::Bool(true)) => left,
                _ => binary(*op, left, evaluate(&sides.1, bound)?, &expr.ty, &sides.1.ty)?,
            }
        }
        ExprKind::Mux(parts) => match evaluate(&parts.0, bound)? {
            Value::Bool(true) => evaluate(&parts.1, bound)?,
            Value::Bool(false) => evaluate(&parts.2, bound)?,
            _ => return None,
        },
        ExprKind::Slice(inner, hi, lo) => match evaluate(inner, bound)? {
            Value::Integer(value) => {
                Value::Integer(low_bits(&(value >> *lo), hi.checked_sub(*lo)?.checked_add(1)?))
            }
            _ => return None,
        },
        ExprKind::Aggregate(parts) => {
            Value::List(parts.iter().map(|part| evaluate(part, bound)).collect::<Option<_>>()?)
        }
        ExprKind::Field(inner, at) | ExprKind::Index(inner, at) => match evaluate(inner, bound)? {
            Value::List(parts) => parts.get(*at as usize)?.clone(),
            _ => return None,
        },
        ExprKind::Element(inner, at) => match (evaluate(inner, bound)?, evaluate(at, bound)?) {
            (Value::List(parts), Value::Integer(at)) => parts.get(at.to_usize()?)?.clone(),
            _ => return None,
        },
        _ => return None,
    };
    match value {
        Value::Integer(value) if value.bits() > MOST_BITS => None,
        Value::Integer(value) => Some(Value::Integer(wrap(value, &expr.ty))),
        value => Some(value),
    }
}

/// The low bits of a value, unsigned.
fn low_bits(value: &BigInt, bits: u32) -> BigInt {
    value & ((BigInt::one() << bits) - 1)
}

/// A value modulo the size of its type.
fn wrap(value: BigInt, ty: &Type) -> BigInt {
    match ty {
        Type::Bit(bits) => low_bits(&value, *bits),
        Type::Int(bits) => {
            let low = low_bits(&value, *bits);
            if *bits > 0 && low.bit(u64::from(*bits) - 1) { low - (BigInt::one() << *bits) } else { low }
        }
        Type::New(new) => wrap(value, &new.base),
        _ => value,
    }
}

/// A value converted to a type.
fn cast(value: Value, to: &Type) -> Option<Value> {
    match (value, to) {
        (Value::Bool(value), Type::Bit(_)) => Some(Value::Integer(BigInt::from(u8::from(value)))),
        (Value::Integer(value), Type::Bool) => Some(Value::Bool(!value.is_zero())),
        (value, _) => Some(value),
    }
}

fn unary(op: UnOp, value: Value) -> Option<Value> {
    match (op, value) {
        (UnOp::Not, Value::Bool(value)) => Some(Value::Bool(!value)),
        (UnOp::Complement, Value::Integer(value)) => Some(Value::Integer(!value)),
        (UnOp::Negate, Value::Integer(value)) => Some(Value::Integer(-value)),
        (UnOp::Plus, value) => Some(value),
        _ => None,
    }
}

/// The result of an operator; `ty` is its type, `right_type` that of its right side.
fn binary(op: BinOp, left: Value, right: Value, ty: &Type, right_type: &Type) -> Option<Value> {
    use BinOp::*;
    match op {
        Eq => return Some(Value::Bool(left == right)),
        Ne => return Some(Value::Bool(left != right)),
        _ => {}
    }
    let (a, b) = match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => {
            return match op {
                LogicAnd => Some(Value::Bool(a && b)),
                LogicOr => Some(Value::Bool(a || b)),
                _ => None,
            };
        }
        (Value::Integer(a), Value::Integer(b)) => (a, b),
        _ => return None,
    };
    Some(Value::Integer(match op {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        // The language leaves divisions of negative numbers undefined.
        Div if b.is_positive() && !a.is_negative() => a / b,
        Rem if b.is_positive() && !a.is_negative() => a % b,
        SatAdd => saturate(a + b, ty),
        SatSub => saturate(a - b, ty),
        And => a & b,
        Or => a | b,
        Xor => a ^ b,
        Shl => a << b.to_u64().filter(|by| *by <= MOST_BITS)?,
        Shr => match b.to_u64() {
            Some(by) => a >> by,
            None if b.is_negative() => return None,
            None => BigInt::from(if a.is_negative() { -1 } else { 0 }),
        },
        Concat => match right_type {
            Type::Bit(bits) | Type::Int(bits) => (a << *bits) | low_bits(&b, *bits),
            _ => return None,
        },
        Lt => return Some(Value::Bool(a < b)),
        Le => return Some(Value::Bool(a <= b)),
        Gt => return Some(Value::Bool(a > b)),
        Ge => return Some(Value::Bool(a >= b)),
        _ => return None,
    }))
}

/// The nearest value that a type has.
fn saturate(value: BigInt, ty: &Type) -> BigInt {
    let (least, most) = match ty {
        Type::Bit(bits) => (BigInt::zero(), (BigInt::one() << *bits) - 1),
        Type::Int(bits) => {
            let half = BigInt::one() << bits.saturating_sub(1);
            (-half.clone(), half - 1)
        }
        _ => return value,
    };
    value.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Span;

    fn expr(kind: ExprKind, ty: Type) -> Expr {
        Expr { kind, ty, span: Span::default() }
    }

    fn int(value: i64, ty: Type) -> Expr {
        expr(ExprKind::Const(Value::Integer(value.into())), ty)
    }

    fn value(op: BinOp, left: i64, right: i64, ty: &Type) -> Option<Value> {
        let sides = Box::new((int(left, ty.clone()), int(right, ty.clone())));
        evaluate(&expr(ExprKind::Binary(op, sides), ty.clone()), &|_| None)
    }

    fn number(value: i64) -> Option<Value> {
        Some(Value::Integer(value.into()))
    }

    #[test]
    fn results_wrap_at_their_type() {
        assert_eq!(value(BinOp::Add, 250, 10, &Type::Bit(8)), number(4));
        assert_eq!(value(BinOp::Sub, 1, 2, &Type::Bit(8)), number(255));
        assert_eq!(value(BinOp::Add, 127, 1, &Type::Int(8)), number(-128));
        assert_eq!(value(BinOp::SatAdd, 250, 10, &Type::Bit(8)), number(255));
        assert_eq!(value(BinOp::SatSub, -100, 100, &Type::Int(8)), number(-128));
        assert_eq!(value(BinOp::Sub, 1, 2, &Type::Integer), number(-1));
    }

    #[test]
    fn what_is_undefined_or_too_large_has_no_value() {
        assert_eq!(value(BinOp::Div, 1, 0, &Type::Bit(8)), None);
        assert_eq!(value(BinOp::Rem, -1, 2, &Type::Integer), None);
        assert_eq!(value(BinOp::Shl, 1, 1 << 40, &Type::Integer), None);
        assert_eq!(value(BinOp::Shl, 1, 1 << 16, &Type::Integer), None);
        assert_eq!(value(BinOp::Shr, 1, 1 << 40, &Type::Integer), number(0));
    }

    #[test]
    fn parameters_have_the_values_of_arguments() {
        let var = expr(ExprKind::Var(VarId(3)), Type::Bit(16));
        let sum = expr(ExprKind::Binary(BinOp::Mul, Box::new((var, int(2, Type::Bit(16))))), Type::Bit(16));
        let bound = |var: VarId| (var == VarId(3)).then(|| Value::Integer(21.into()));
        assert_eq!(evaluate(&sum, &bound), number(42));
        assert_eq!(evaluate(&sum, &|_| None), None);
    }

    #[test]
    fn concatenation_takes_the_width_of_its_right_side() {
        let sides = Box::new((int(1, Type::Bit(4)), int(-1, Type::Int(4))));
        let concat = expr(ExprKind::Binary(BinOp::Concat, sides), Type::Bit(8));
        assert_eq!(evaluate(&concat, &|_| None), number(0x1f));
    }
}
