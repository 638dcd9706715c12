//! Types of expressions and places in a checked program.

use pipeline::ir::{ActionId, BinOp, Expr, FieldType, HeaderRef, HeaderType, LValue, Program, Type, UnOp};

/// The layout of the header that a reference means.
pub(crate) fn header_type<'p>(program: &'p Program, header: &HeaderRef) -> Option<&'p HeaderType> {
    match header {
        HeaderRef::Header(id) => program.header_type(*id),
        HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
            program.stack_type(*stack)
        }
    }
}

fn field_type(program: &Program, header: &HeaderRef, field: u16) -> Type {
    match header_type(program, header).and_then(|ty| ty.fields.get(usize::from(field))).map(|field| field.ty)
    {
        Some(FieldType::Scalar(ty)) => ty,
        _ => Type::Bool,
    }
}

/// The type of an expression in an action, or outside of any.
pub(crate) fn of(program: &Program, action: Option<ActionId>, expr: &Expr) -> Type {
    let of = |expr| of(program, action, expr);
    match expr {
        Expr::Const(constant) => constant.ty,
        Expr::Var(var) => program.vars.get(var.index()).map_or(Type::Bool, |var| var.ty),
        Expr::Param(i) => {
            let action = action.and_then(|action| program.actions.get(action.index()));
            action.and_then(|action| action.params.get(usize::from(*i))).map_or(Type::Bool, |param| param.ty)
        }
        Expr::Field(header, field) => field_type(program, header, *field),
        Expr::Valid(_) | Expr::Unary(UnOp::Not, _) => Type::Bool,
        Expr::LastIndex(_) | Expr::FieldLength(..) | Expr::Remaining => Type::Bit(32),
        Expr::Lookahead(ty, _) | Expr::Cast(ty, _) => *ty,
        Expr::Unary(_, operand) => of(operand),
        Expr::Binary(op, operands) => match op {
            BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge => Type::Bool,
            BinOp::LogicAnd | BinOp::LogicOr => Type::Bool,
            BinOp::Concat => {
                let (left, right) = (of(&operands.0), of(&operands.1));
                let width = left.width().saturating_add(right.width());
                if let Type::Int(_) = left { Type::Int(width) } else { Type::Bit(width) }
            }
            _ => of(&operands.0),
        },
        Expr::Slice(_, hi, lo) => Type::Bit(hi.saturating_add(1).saturating_sub(*lo)),
        Expr::Mux(parts) => of(&parts.1),
    }
}

/// The width of a place, bits.
pub(crate) fn place_width(program: &Program, place: &LValue) -> u16 {
    match place {
        LValue::Var(var) => program.vars.get(var.index()).map_or(1, |var| var.ty.width()),
        LValue::Field(header, field) => field_type(program, header, *field).width(),
        LValue::Slice(_, hi, lo) => hi.saturating_add(1).saturating_sub(*lo),
    }
}
