//! Operators.

use num_traits::{Signed, Zero};

use super::infer::join;
use super::show::{binary_text, unary_text};
use super::ty::Ty;
use super::value::{Access, Kind, Typed};
use super::{Checker, fold};
use crate::ast::{self, BinOp, UnOp};
use crate::diagnostic::Diagnostic;
use crate::hir::{ExprKind, Value};
use crate::source::Span;

impl<'a> Checker<'a, '_> {
    /// An operator on one operand.
    pub(super) fn unary(&mut self, op: UnOp, operand: Typed<'a>, span: Span) -> Typed<'a> {
        let operand = if op == UnOp::Not { operand } else { self.as_number(operand) };
        if operand.ty.is_error() {
            return Typed::error(span);
        }
        let defined = match op {
            UnOp::Not => matches!(operand.ty, Ty::Bool),
            UnOp::Complement => operand.ty.is_bits(),
            UnOp::Negate | UnOp::Plus => operand.ty.is_bits() || matches!(operand.ty, Ty::Integer),
        };
        if !defined {
            let message = format!("`{}` is not defined for `{}`", unary_text(op), self.show(&operand.ty));
            return self.refuse(span, message);
        }
        let ty = operand.ty.clone();
        if let Some(value) = operand.value().and_then(|value| fold::unary(op, value, &ty)) {
            return Typed::constant(value, ty, span);
        }
        let known = operand.known;
        if op == UnOp::Plus {
            return Typed { span, ..operand }.access(Access::Value);
        }
        let operand = Box::new(self.finish(operand));
        Typed::new(ExprKind::Unary(op, operand), ty, span).known(known)
    }

    /// An operator on two operands.
    pub(super) fn binary(&mut self, op: BinOp, a: Typed<'a>, b: Typed<'a>, span: Span) -> Typed<'a> {
        if a.ty.is_error() || b.ty.is_error() {
            return Typed::error(span);
        }
        let operands = match op {
            BinOp::LogicAnd | BinOp::LogicOr => self.logic_operands(op, a, b, span),
            BinOp::Eq | BinOp::Ne => self.equality_operands(op, a, b, span),
            BinOp::Concat => self.concat_operands(a, b, span),
            BinOp::Shl | BinOp::Shr => self.shift_operands(op, a, b, span),
            _ => self.number_operands(op, a, b, span),
        };
        let Some((a, b)) = operands else { return Typed::error(span) };
        if a.ty.is_error() || b.ty.is_error() {
            return Typed::error(span);
        }
        let ty = match (op, &a.ty, &b.ty) {
            (BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge, ..) => Ty::Bool,
            (BinOp::Concat, Ty::Bit(m), Ty::Bit(n) | Ty::Int(n)) => Ty::Bit(m + n),
            (BinOp::Concat, Ty::Int(m), Ty::Bit(n) | Ty::Int(n)) => Ty::Int(m + n),
            _ => a.ty.clone(),
        };
        match self.folded(op, &a, &b) {
            Ok(Some(value)) => return Typed::constant(value, ty, span),
            Ok(None) => {}
            Err(message) => return self.refuse(span, message),
        }
        if matches!(ty, Ty::Bool) && matches!(a.ty, Ty::Integer) && !(a.known && b.known) {
            let found = Diagnostic::error(span, "numbers of type `int` that are not known at compile time");
            self.report(found.help("convert them to a type with a width"));
            return Typed::error(span);
        }
        // The left side alone decides, if it is known.
        match (op, a.value()) {
            (BinOp::LogicAnd, Some(Value::Bool(false))) | (BinOp::LogicOr, Some(Value::Bool(true))) => {
                return Typed { span, ..a };
            }
            (BinOp::LogicAnd | BinOp::LogicOr, Some(_)) => {
                return Typed { span, ..b }.access(Access::Value);
            }
            _ => {}
        }
        let known = a.known && b.known;
        let (a, b) = (self.finish(a), self.finish(b));
        Typed::new(ExprKind::Binary(op, Box::new((a, b))), ty, span).known(known)
    }

    fn folded(&self, op: BinOp, a: &Typed<'a>, b: &Typed<'a>) -> Result<Option<Value>, String> {
        match (a.value(), b.value()) {
            (Some(x), Some(y)) => fold::binary(op, (x, &a.ty), (y, &b.ty)),
            (None, Some(Value::Integer(n))) if matches!(op, BinOp::Div | BinOp::Rem) && n.is_zero() => {
                Err("division by zero".into())
            }
            _ => Ok(None),
        }
    }

    fn undefined(&mut self, op: BinOp, a: &Ty, b: &Ty, span: Span) {
        let (a_text, b_text) = (self.show(a), self.show(b));
        let message = format!("`{}` is not defined for `{a_text}` and `{b_text}`", binary_text(op));
        let mut found = Diagnostic::error(span, message);
        if a.is_bits() && b.is_bits() {
            found = found.help(format!("convert one of them: `({a_text})…` or `({b_text})…`"));
        } else if let Some(new) = [a, b].into_iter().find(|t| matches!(t, Ty::New(_))) {
            let base = match new {
                Ty::New(new) => self.show(&new.base),
                _ => String::new(),
            };
            found = found.help(format!("`{}` is a type of its own; convert it: `({base})…`", self.show(new)));
        }
        self.report(found);
    }

    fn logic_operands(
        &mut self,
        op: BinOp,
        a: Typed<'a>,
        b: Typed<'a>,
        span: Span,
    ) -> Option<(Typed<'a>, Typed<'a>)> {
        if !matches!((&a.ty, &b.ty), (Ty::Bool, Ty::Bool)) {
            self.undefined(op, &a.ty, &b.ty, span);
            return None;
        }
        Some((a, b))
    }

    fn equality_operands(
        &mut self,
        op: BinOp,
        a: Typed<'a>,
        b: Typed<'a>,
        span: Span,
    ) -> Option<(Typed<'a>, Typed<'a>)> {
        let Some(ty) = join(&a.ty, &b.ty).and_then(|ty| super::infer::settle(&ty)) else {
            let message = format!("`{}` cannot be compared with `{}`", self.show(&a.ty), self.show(&b.ty));
            self.error(span, message);
            return None;
        };
        if !comparable(&ty) {
            let message =
                format!("values of type `{}` cannot be compared by `{}`", self.show(&ty), binary_text(op));
            self.error(span, message);
            return None;
        }
        Some((self.coerce(a, &ty), self.coerce(b, &ty)))
    }

    fn concat_operands(&mut self, a: Typed<'a>, b: Typed<'a>, span: Span) -> Option<(Typed<'a>, Typed<'a>)> {
        let (a, b) = (self.as_number(a), self.as_number(b));
        match (&a.ty, &b.ty) {
            (Ty::String, Ty::String) => {}
            (Ty::Bit(m) | Ty::Int(m), Ty::Bit(n) | Ty::Int(n)) => {
                if m + n > super::ty::MAX_WIDTH {
                    self.error(
                        span,
                        format!("a width of {}; at most {} is supported", m + n, super::ty::MAX_WIDTH),
                    );
                    return None;
                }
            }
            (Ty::Integer, Ty::Bit(_) | Ty::Int(_) | Ty::Integer) | (Ty::Bit(_) | Ty::Int(_), Ty::Integer) => {
                let number = if matches!(a.ty, Ty::Integer) { a.span } else { b.span };
                let found = Diagnostic::error(number, "a number without a width cannot be concatenated");
                self.report(found.help("write the width: `8w1`"));
                return None;
            }
            (a, b) => {
                self.undefined(BinOp::Concat, a, b, span);
                return None;
            }
        }
        Some((a, b))
    }

    fn shift_operands(
        &mut self,
        op: BinOp,
        a: Typed<'a>,
        b: Typed<'a>,
        span: Span,
    ) -> Option<(Typed<'a>, Typed<'a>)> {
        let (a, b) = (self.as_number(a), self.as_number(b));
        if !matches!(a.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_))
            || !matches!(b.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_))
        {
            self.undefined(op, &a.ty, &b.ty, span);
            return None;
        }
        if matches!(b.ty, Ty::Int(_)) && b.value().is_none() {
            let message = format!("a shift by a value of type `{}`", self.show(&b.ty));
            self.report(Diagnostic::error(b.span, message).expected("expected `bit<>` or a constant"));
            return None;
        }
        if matches!(b.value(), Some(Value::Integer(n)) if n.is_negative()) {
            self.error(b.span, "a shift by a negative number");
            return None;
        }
        if matches!(a.ty, Ty::Integer) && !b.known {
            self.error(
                span,
                "a shift of a number without a width by a value that is not known at compile time",
            );
            return None;
        }
        Some((a, b))
    }

    fn number_operands(
        &mut self,
        op: BinOp,
        a: Typed<'a>,
        b: Typed<'a>,
        span: Span,
    ) -> Option<(Typed<'a>, Typed<'a>)> {
        let (a, b) = (self.as_number(a), self.as_number(b));
        let ty = join(&a.ty, &b.ty).filter(|ty| ty.is_bits() || matches!(ty, Ty::Integer));
        let Some(ty) = ty else {
            self.undefined(op, &a.ty, &b.ty, span);
            return None;
        };
        let saturates = matches!(op, BinOp::SatAdd | BinOp::SatSub);
        if saturates && matches!(ty, Ty::Integer) {
            self.error(span, format!("`{}` is not defined for numbers without a width", binary_text(op)));
            return None;
        }
        if matches!(op, BinOp::Div | BinOp::Rem) {
            if matches!(ty, Ty::Int(_)) {
                self.error(span, format!("`{}` is not defined for signed values", binary_text(op)));
                return None;
            }
            let negative = |t: &Typed<'a>| matches!(t.value(), Some(Value::Integer(n)) if n.is_negative());
            if negative(&a) || negative(&b) {
                self.error(span, format!("`{}` is not defined for negative numbers", binary_text(op)));
                return None;
            }
        }
        Some((self.coerce(a, &ty), self.coerce(b, &ty)))
    }

    /// `c ? a : b`
    pub(super) fn ternary(
        &mut self,
        condition: &'a ast::Expr,
        a: &'a ast::Expr,
        b: &'a ast::Expr,
        span: Span,
    ) -> Typed<'a> {
        let condition = self.condition(condition);
        let (a, b) = (self.expr(a), self.expr(b));
        if condition.ty.is_error() || a.ty.is_error() || b.ty.is_error() {
            return Typed::error(span);
        }
        let Some(ty) = join(&a.ty, &b.ty) else {
            let message =
                format!("the two results have the types `{}` and `{}`", self.show(&a.ty), self.show(&b.ty));
            self.report(Diagnostic::error(span, message).expected("expected one type"));
            return Typed::error(span);
        };
        if ty.is_soft() {
            let known = condition.known && a.known && b.known;
            return Typed::soft(Kind::Choice(Box::new((condition, a, b))), ty, span, known);
        }
        if ty.is_object() || matches!(ty, Ty::Void | Ty::Applied(_) | Ty::ActionRun(_)) {
            return self.refuse(span, format!("`{}` cannot be a result of `?:`", self.show(&ty)));
        }
        let (a, b) = (self.coerce(a, &ty), self.coerce(b, &ty));
        self.choice(condition, a, b, &ty, span)
    }

    /// `c ? a : b` of operands of one type.
    pub(super) fn choice(
        &mut self,
        condition: Typed<'a>,
        a: Typed<'a>,
        b: Typed<'a>,
        ty: &Ty,
        span: Span,
    ) -> Typed<'a> {
        if a.ty.is_error() || b.ty.is_error() {
            return Typed::error(span);
        }
        if let Some(Value::Bool(first)) = condition.value() {
            let chosen = if *first { a } else { b };
            return Typed { span, ..chosen }.access(Access::Value);
        }
        if matches!(ty, Ty::Integer) && !condition.known {
            let found = Diagnostic::error(span, "the results are numbers without a width");
            self.report(found.help("write the width of one of them: `8w1`"));
            return Typed::error(span);
        }
        let known = condition.known && a.known && b.known;
        let parts = (self.finish(condition), self.finish(a), self.finish(b));
        Typed::new(ExprKind::Mux(Box::new(parts)), ty.clone(), span).known(known)
    }

    /// A condition.
    pub(super) fn condition(&mut self, condition: &'a ast::Expr) -> Typed<'a> {
        let typed = self.expr(condition);
        if matches!(typed.ty, Ty::Bool | Ty::Error) {
            return typed;
        }
        let message = format!("the condition has the type `{}`, expected `bool`", self.show(&typed.ty));
        let mut found = Diagnostic::error(condition.span, message);
        if typed.ty.is_bits() {
            found = found.help("compare it: `… != 0`");
        }
        self.report(found);
        Typed::error(condition.span)
    }
}

/// Whether values of a type can be compared by `==`.
fn comparable(ty: &Ty) -> bool {
    match ty {
        Ty::Stack(element, _) => comparable(element),
        Ty::Tuple(parts) => parts.iter().all(comparable),
        Ty::Composite(c) => c.fields.iter().all(|(_, ty)| comparable(ty)),
        Ty::New(new) => comparable(&new.base),
        Ty::Bool
        | Ty::Integer
        | Ty::Bit(_)
        | Ty::Int(_)
        | Ty::Varbit(_)
        | Ty::String
        | Ty::ErrorCode
        | Ty::MatchKind
        | Ty::Enum(_)
        | Ty::Error => true,
        _ => false,
    }
}
