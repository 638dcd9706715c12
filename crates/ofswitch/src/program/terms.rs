//! Short forms for expressions and statements.

use pipeline::ir::{BinOp, Constant, Expr, HeaderId, HeaderRef, Item, LValue, Stmt, Type, UnOp, VarId};

pub(crate) fn bit(width: u16, value: u64) -> Expr {
    Expr::bit(width, value)
}

pub(crate) fn truth(value: bool) -> Expr {
    Expr::Const(Constant::bool(value))
}

pub(crate) fn var(id: VarId) -> Expr {
    Expr::Var(id)
}

pub(crate) fn field(header: HeaderId, number: u16) -> Expr {
    Expr::field(header, number)
}

pub(crate) fn valid(header: HeaderId) -> Expr {
    Expr::Valid(HeaderRef::Header(header))
}

pub(crate) fn not(value: Expr) -> Expr {
    Expr::Unary(UnOp::Not, Box::new(value))
}

pub(crate) fn complement(value: Expr) -> Expr {
    Expr::Unary(UnOp::Complement, Box::new(value))
}

pub(crate) fn both(a: Expr, b: Expr) -> Expr {
    a.op(BinOp::LogicAnd, b)
}

pub(crate) fn either(a: Expr, b: Expr) -> Expr {
    a.op(BinOp::LogicOr, b)
}

/// `low` behind `high`.
pub(crate) fn concat(high: Expr, low: Expr) -> Expr {
    high.op(BinOp::Concat, low)
}

pub(crate) fn mux(condition: Expr, yes: Expr, no: Expr) -> Expr {
    Expr::Mux(Box::new((condition, yes, no)))
}

/// `value`, unsigned, in another width.
pub(crate) fn resize(value: Expr, width: u16) -> Expr {
    value.cast(Type::Bit(width))
}

pub(crate) fn set(id: VarId, value: Expr) -> Stmt {
    Stmt::Set(LValue::Var(id), value)
}

pub(crate) fn set_field(header: HeaderId, number: u16, value: Expr) -> Stmt {
    Stmt::Set(place(header, number), value)
}

pub(crate) fn place(header: HeaderId, number: u16) -> LValue {
    LValue::Field(HeaderRef::Header(header), number)
}

pub(crate) fn when(condition: Expr, body: Vec<Stmt>) -> Stmt {
    Stmt::If(condition, body, vec![])
}

pub(crate) fn items(values: Vec<Expr>) -> Vec<Item> {
    values.into_iter().map(Item::Value).collect()
}
