//! Checked expressions on their way to [`hir::Expr`].
//!
//! Lists, structure expressions, `{#}` and `...` keep their parts until the place where they stand gives them a type.

use super::ty::Ty;
use crate::ast::Name;
use crate::hir::{self, Value};
use crate::source::Span;

/// A checked expression.
#[derive(Debug, Clone)]
pub(super) struct Typed<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) ty: Ty,
    pub(super) span: Span,
    pub(super) access: Access,
    /// Whether it is known once constructors have their arguments.
    pub(super) known: bool,
}

/// What an expression is.
#[derive(Debug, Clone)]
pub(super) enum Kind<'a> {
    /// An expression with a type of its own.
    Expr(hir::ExprKind),
    /// `{ a, b }`
    Listing(Vec<Typed<'a>>),
    /// `{ a = 1, b = 2 }`
    Record(Vec<(&'a Name, Typed<'a>)>),
    /// `c ? { a } : { b }`
    Choice(Box<(Typed<'a>, Typed<'a>, Typed<'a>)>),
    /// `{#}`
    Invalid,
    /// `...`
    Dots,
    /// `_`
    DontCare,
}

/// What may be done with an expression besides reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is a value.
    Value,
    /// It is a place that must not be written: the reason.
    ReadOnly(&'static str),
    /// It is a place.
    Place,
}

impl<'a> Typed<'a> {
    /// A value.
    pub(super) fn new(kind: hir::ExprKind, ty: Ty, span: Span) -> Self {
        let known = matches!(kind, hir::ExprKind::Const(_));
        Self { kind: Kind::Expr(kind), ty, span, access: Access::Value, known }
    }

    /// A constant.
    pub(super) fn constant(value: Value, ty: Ty, span: Span) -> Self {
        Self::new(hir::ExprKind::Const(value), ty, span)
    }

    /// A constant of type `bool`.
    pub(super) fn bool(value: bool, span: Span) -> Self {
        Self::constant(Value::Bool(value), Ty::Bool, span)
    }

    /// A constant of type `int`.
    pub(super) fn integer(value: impl Into<num_bigint::BigInt>, span: Span) -> Self {
        Self::constant(Value::Integer(value.into()), Ty::Integer, span)
    }

    /// What stands in for a refused expression.
    pub(super) fn error(span: Span) -> Self {
        Self { known: true, access: Access::Place, ..Self::new(hir::ExprKind::Absent, Ty::Error, span) }
    }

    /// An expression without a type of its own.
    pub(super) fn soft(kind: Kind<'a>, ty: Ty, span: Span, known: bool) -> Self {
        Self { kind, ty, span, access: Access::Value, known }
    }

    /// Sets whether it is known once constructors have their arguments.
    pub(super) fn known(mut self, known: bool) -> Self {
        self.known = known;
        self
    }

    /// Sets what may be done with it.
    pub(super) fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// The value, if it is a constant.
    pub(super) fn value(&self) -> Option<&Value> {
        match &self.kind {
            Kind::Expr(hir::ExprKind::Const(value)) => Some(value),
            _ => None,
        }
    }
}
