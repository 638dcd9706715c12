//! Expressions whose values are known.

use pipeline::interp::binary;
use pipeline::ir::{BinOp, Constant, Expr, HeaderRef, Type, UnOp};

/// Values of variables that are the same whenever a program reads them.
pub(super) struct Known {
    /// For each variable, its value if it is known.
    pub(super) vars: Vec<Option<Constant>>,
}

impl Known {
    /// The value of an expression, if it is known.
    pub(super) fn value(&self, expr: &Expr) -> Option<Constant> {
        match self.fold(expr) {
            Expr::Const(constant) => Some(constant),
            _ => None,
        }
    }

    /// Whether a condition is known to hold or not to.
    pub(super) fn holds(&self, expr: &Expr) -> Option<bool> {
        self.value(expr).map(|constant| !constant.value.is_zero())
    }

    /// The expression with the values of known parts in their places.
    pub(super) fn fold(&self, expr: &Expr) -> Expr {
        match expr {
            Expr::Var(id) => match self.vars.get(id.index()) {
                Some(Some(constant)) => Expr::Const(constant.clone()),
                _ => expr.clone(),
            },
            Expr::Field(header, field) => Expr::Field(self.header(header), *field),
            Expr::Valid(header) => Expr::Valid(self.header(header)),
            Expr::FieldLength(header, field) => Expr::FieldLength(self.header(header), *field),
            Expr::Const(_) | Expr::Param(_) | Expr::LastIndex(_) | Expr::Lookahead(..) | Expr::Remaining => {
                expr.clone()
            }
            Expr::Unary(op, operand) => {
                let operand = self.fold(operand);
                match (op, &operand) {
                    (UnOp::Not, Expr::Const(constant)) => truth(constant.value.is_zero()),
                    (UnOp::Complement, Expr::Const(constant)) => {
                        Expr::Const(Constant { ty: constant.ty, value: constant.value.not() })
                    }
                    _ => Expr::Unary(*op, Box::new(operand)),
                }
            }
            Expr::Binary(op, operands) => self.binary(*op, &operands.0, &operands.1),
            Expr::Slice(operand, hi, lo) => match self.fold(operand) {
                Expr::Const(constant) => {
                    let value = constant.value.slice(*hi, *lo);
                    Expr::Const(Constant { ty: Type::Bit(value.width()), value })
                }
                operand => Expr::Slice(Box::new(operand), *hi, *lo),
            },
            Expr::Mux(parts) => match self.holds(&parts.0) {
                Some(true) => self.fold(&parts.1),
                Some(false) => self.fold(&parts.2),
                None => {
                    let [condition, yes, no] = [&parts.0, &parts.1, &parts.2].map(|part| self.fold(part));
                    Expr::Mux(Box::new((condition, yes, no)))
                }
            },
            Expr::Cast(to, operand) => match self.fold(operand) {
                Expr::Const(Constant { ty, value }) => {
                    let value = match (ty, to) {
                        (Type::Int(_), Type::Int(width)) => value.sign_extend(*width),
                        _ => value.resize(to.width()),
                    };
                    Expr::Const(Constant { ty: *to, value })
                }
                operand => Expr::Cast(*to, Box::new(operand)),
            },
        }
    }

    fn binary(&self, op: BinOp, left: &Expr, right: &Expr) -> Expr {
        let (left, right) = (self.fold(left), self.fold(right));
        match (op, constant(&left), constant(&right)) {
            (_, Some(left), Some(right)) => Expr::Const(binary(op, left.clone(), right.clone())),
            // One side decides; expressions that may be parser errors stay where they are.
            (BinOp::LogicAnd, Some(one), None) | (BinOp::LogicAnd, None, Some(one))
                if is_pure(&left, &right) =>
            {
                if one.value.is_zero() {
                    truth(false)
                } else {
                    other(left, right)
                }
            }
            (BinOp::LogicOr, Some(one), None) | (BinOp::LogicOr, None, Some(one))
                if is_pure(&left, &right) =>
            {
                if one.value.is_zero() {
                    other(left, right)
                } else {
                    truth(true)
                }
            }
            _ => Expr::Binary(op, Box::new((left, right))),
        }
    }

    pub(super) fn header(&self, header: &HeaderRef) -> HeaderRef {
        match header {
            HeaderRef::Element(stack, index) => HeaderRef::Element(*stack, Box::new(self.fold(index))),
            _ => header.clone(),
        }
    }
}

fn constant(expr: &Expr) -> Option<&Constant> {
    match expr {
        Expr::Const(constant) => Some(constant),
        _ => None,
    }
}

fn is_pure(left: &Expr, right: &Expr) -> bool {
    !crate::emit::may_fault(left) && !crate::emit::may_fault(right)
}

/// Of two operands, the one that is no constant.
fn other(left: Expr, right: Expr) -> Expr {
    if matches!(left, Expr::Const(_)) { right } else { left }
}

fn truth(value: bool) -> Expr {
    Expr::Const(Constant::bool(value))
}
