//! Conversions: those that the language inserts, those that the program writes, and default values.

use num_bigint::BigInt;
use num_traits::{One, Zero};

use super::infer::settle;
use super::signature::Param;
use super::ty::{CompositeKind, Ty};
use super::types::plural;
use super::value::{Access, Kind, Typed};
use super::{Checker, fold};
use crate::ast::Name;
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ExprKind, Value};
use crate::source::Span;

impl<'a> Checker<'a, '_> {
    /// Converts an expression to the type that its place demands.
    pub(super) fn coerce(&mut self, typed: Typed<'a>, to: &Ty) -> Typed<'a> {
        if to.is_error() || typed.ty.is_error() {
            let span = typed.span;
            return Typed::error(span);
        }
        if matches!(to, Ty::DontCare) || matches!(typed.kind, Kind::DontCare) {
            return self.settled(typed);
        }
        if typed.ty == *to && !typed.ty.is_soft() {
            return typed;
        }
        let span = typed.span;
        match (typed.kind, to) {
            (Kind::Listing(parts), _) => self.listing(parts, &typed.ty, to, span),
            (Kind::Record(parts), Ty::Composite(_)) => {
                let dots = matches!(typed.ty, Ty::Record(_, true));
                self.record(parts, dots, to, span)
            }
            (Kind::Choice(parts), _) => {
                let (condition, a, b) = *parts;
                let (a, b) = (self.coerce(a, to), self.coerce(b, to));
                self.choice(condition, a, b, to, span)
            }
            (Kind::Invalid, _) if to.is_header() || to.is_union() => {
                Typed::constant(Value::Invalid, to.clone(), span)
            }
            (Kind::Invalid, _) => {
                self.error(
                    span,
                    format!("`{{#}}` is a header or a header union, expected `{}`", self.show(to)),
                );
                Typed::error(span)
            }
            (Kind::Dots, _) => match self.default_of(to) {
                Some(value) => Typed::constant(value, to.clone(), span),
                None => {
                    self.error(span, format!("`{}` has no default value", self.show(to)));
                    Typed::error(span)
                }
            },
            (Kind::Expr(kind), _) => {
                let typed = Typed { kind: Kind::Expr(kind), ..typed };
                self.implicit(typed, to)
            }
            (kind, _) => {
                let typed = Typed { kind, ..typed };
                self.mismatch(&typed, to);
                Typed::error(span)
            }
        }
    }

    /// Inserts the conversion of a value, if the language has one.
    fn implicit(&mut self, typed: Typed<'a>, to: &Ty) -> Typed<'a> {
        let span = typed.span;
        let legal = match (&typed.ty, to) {
            (Ty::Integer, Ty::Bit(_) | Ty::Int(_)) | (Ty::Bit(_) | Ty::Int(_), Ty::Integer) => true,
            // An integer without a width is a value of any type with numbers.
            (Ty::Integer, Ty::New(new)) => typed.known && new.base.is_bits(),
            (Ty::Enum(_), Ty::Bit(_) | Ty::Int(_)) => typed.ty.representation().as_ref() == Some(to),
            (Ty::Tuple(from), Ty::Tuple(parts)) => {
                // A constant tuple with integers without a width.
                from.len() == parts.len() && typed.value().is_some() && self.constant_parts(&typed, parts)
            }
            (Ty::Parser(_) | Ty::Control(_) | Ty::Abstract(..), Ty::Abstract(..)) => {
                return self.object_as(typed, to);
            }
            _ => false,
        };
        if !legal {
            self.mismatch(&typed, to);
            return Typed::error(span);
        }
        self.convert(typed, to)
    }

    fn constant_parts(&self, typed: &Typed<'a>, parts: &[Ty]) -> bool {
        let Ty::Tuple(from) = &typed.ty else { return false };
        from.iter().zip(parts).all(|(f, t)| f == t || (matches!(f, Ty::Integer) && t.is_bits()))
    }

    /// Converts a value; the conversion is known to be legal.
    fn convert(&mut self, typed: Typed<'a>, to: &Ty) -> Typed<'a> {
        let span = typed.span;
        if let Some(value) = typed.value() {
            let value = self.converted(value.clone(), &typed.ty, to, span);
            return Typed::constant(value, to.clone(), span);
        }
        let known = typed.known;
        let is_int = matches!(typed.ty, Ty::Integer);
        let inner = self.finish(typed);
        if is_int && !known {
            return match self.narrowed(&inner, to) {
                Some(expr) => Typed::new(expr.kind, to.clone(), span),
                None => {
                    let found =
                        Diagnostic::error(span, "a number of type `int` that is not known at compile time");
                    self.report(
                        found.help("convert the operands to a type with a width before they are used"),
                    );
                    Typed::error(span)
                }
            };
        }
        Typed::new(ExprKind::Cast(Box::new(inner)), to.clone(), span).known(known)
    }

    /// The lowest bits of an `int` that is computed from values with a width. Only operators whose lowest bits depend
    /// on nothing but the lowest bits of their operands have them.
    fn narrowed(&mut self, expr: &hir::Expr, to: &Ty) -> Option<hir::Expr> {
        let (Ty::Bit(width) | Ty::Int(width)) = *to else { return None };
        let ty = self.hir(to);
        let span = expr.span;
        let make = |kind| hir::Expr { kind, ty: ty.clone(), span };
        Some(match &expr.kind {
            ExprKind::Const(Value::Integer(n)) => make(ExprKind::Const(Value::Integer(fold::wrap(n, to)))),
            ExprKind::Var(_) => make(ExprKind::Cast(Box::new(expr.clone()))),
            ExprKind::Cast(inner) => {
                // The width changes before the sign.
                let sized = match inner.ty {
                    hir::Type::Bit(_) => hir::Type::Bit(width),
                    hir::Type::Int(_) => hir::Type::Int(width),
                    _ => return None,
                };
                let sized = hir::Expr { kind: ExprKind::Cast(inner.clone()), ty: sized, span };
                if sized.ty == ty { sized } else { make(ExprKind::Cast(Box::new(sized))) }
            }
            ExprKind::Unary(op, operand) => make(ExprKind::Unary(*op, Box::new(self.narrowed(operand, to)?))),
            ExprKind::Binary(op, operands) => {
                use hir::BinOp::*;
                if !matches!(op, Add | Sub | Mul | And | Or | Xor) {
                    return None;
                }
                let both = (self.narrowed(&operands.0, to)?, self.narrowed(&operands.1, to)?);
                make(ExprKind::Binary(*op, Box::new(both)))
            }
            _ => return None,
        })
    }

    fn converted(&mut self, value: Value, from: &Ty, to: &Ty, span: Span) -> Value {
        match (value, from, to) {
            (Value::Integer(n), Ty::Integer, Ty::Bit(_) | Ty::Int(_)) => {
                Value::Integer(self.fitted(&n, to, span))
            }
            (Value::Integer(n), _, Ty::Bool) => Value::Bool(!n.is_zero()),
            (Value::Bool(b), _, Ty::Bit(_) | Ty::Int(_)) => {
                Value::Integer(if b { BigInt::one() } else { BigInt::zero() })
            }
            (value, _, Ty::New(new)) => self.converted(value, from, &new.base.clone(), span),
            (value, Ty::New(new), _) => self.converted(value, &new.base.clone(), to, span),
            (value @ Value::Integer(_), _, Ty::Enum(_)) => match to.representation() {
                Some(base) => self.converted(value, from, &base, span),
                None => value,
            },
            (Value::Integer(n), _, _) => Value::Integer(fold::wrap(&n, to)),
            (Value::List(values), Ty::Tuple(from), Ty::Tuple(to)) => {
                let parts = values.into_iter().zip(from.iter().zip(to.iter()));
                Value::List(parts.map(|(v, (f, t))| self.converted(v, f, t, span)).collect())
            }
            (value, _, _) => value,
        }
    }

    /// The number that a type has for an integer without a width; a warning says if it is another.
    fn fitted(&mut self, n: &BigInt, ty: &Ty, span: Span) -> BigInt {
        let fitted = fold::wrap(n, ty);
        // A negative number for an unsigned type is how programs write masks.
        let negative = matches!(ty, Ty::Bit(_)) && n.sign() == num_bigint::Sign::Minus;
        let width = match ty {
            Ty::Bit(w) | Ty::Int(w) => *w,
            _ => 0,
        };
        let unsigned = n.sign() != num_bigint::Sign::Minus && n.bits() <= width.into();
        if fitted != *n && !negative && !(matches!(ty, Ty::Int(_)) && unsigned) {
            let message = format!("{n} does not fit into `{}`: the value is {fitted}", self.show(ty));
            self.report(Diagnostic::warning(span, message));
        }
        fitted
    }

    fn mismatch(&mut self, typed: &Typed<'a>, to: &Ty) {
        let (found, wanted) = (self.show(&typed.ty), self.show(to));
        let message = format!("found a value of type `{found}`, expected `{wanted}`");
        let mut report = Diagnostic::error(typed.span, message).expected(format!("expected `{wanted}`"));
        if !typed.ty.is_soft() && self.may_cast(&typed.ty, to) {
            report = report.help(format!("convert it: `({wanted})…`"));
        }
        self.report(report);
    }

    /// A list in the place of a value of a type with parts.
    fn listing(&mut self, parts: Vec<Typed<'a>>, from: &Ty, to: &Ty, span: Span) -> Typed<'a> {
        let dots = matches!(from, Ty::Listing(_, true));
        let (types, exact): (Vec<Ty>, bool) = match to {
            Ty::Tuple(types) => (types.to_vec(), true),
            Ty::Composite(c) if c.kind != CompositeKind::Union => {
                (c.fields.iter().map(|(_, ty)| ty.clone()).collect(), true)
            }
            Ty::Composite(_) if dots && parts.is_empty() => {
                return Typed::constant(Value::Invalid, to.clone(), span);
            }
            Ty::Stack(element, n) => (vec![element.as_ref().clone(); *n as usize], true),
            Ty::List(element) => (vec![element.as_ref().clone(); parts.len()], !dots),
            _ => {
                let typed = Typed::soft(Kind::Listing(parts), from.clone(), span, true);
                self.mismatch(&typed, to);
                return Typed::error(span);
            }
        };
        let wrong = if dots { parts.len() > types.len() } else { parts.len() != types.len() };
        if wrong || !exact {
            let (found, wanted) = (parts.len(), types.len());
            let message = format!(
                "found {found} {}, expected {wanted} for `{}`",
                plural(found, "value"),
                self.show(to)
            );
            self.error(span, message);
            return Typed::error(span);
        }
        let given = parts.len();
        let mut values: Vec<Typed<'a>> =
            parts.into_iter().zip(&types).map(|(p, ty)| self.coerce(p, ty)).collect();
        for ty in types.iter().skip(given) {
            values.push(self.coerce(Typed::soft(Kind::Dots, Ty::Dots, span, true), ty));
        }
        self.aggregate(values, to, span)
    }

    /// A structure expression in the place of a value of a composite type.
    fn record(&mut self, parts: Vec<(&'a Name, Typed<'a>)>, dots: bool, to: &Ty, span: Span) -> Typed<'a> {
        let Ty::Composite(composite) = to else { return Typed::error(span) };
        let mut values: Vec<Option<Typed<'a>>> = composite.fields.iter().map(|_| None).collect();
        let union = composite.kind == CompositeKind::Union;
        let mut failed = false;
        for (name, part) in parts {
            let Some((at, ty)) = to.field(&name.text) else {
                self.no_field(name, to);
                failed = true;
                continue;
            };
            let ty = ty.clone();
            let value = self.coerce(part, &ty);
            failed |= value.ty.is_error();
            match values.get_mut(at as usize) {
                Some(slot @ None) => *slot = Some(value),
                _ => {
                    self.error(name.span, format!("field `{}` has two values", name.text));
                    failed = true;
                }
            }
        }
        if union && values.iter().flatten().count() > 1 {
            self.error(span, "a header union has at most one valid header");
            failed = true;
        }
        let missing: Vec<&str> = composite
            .fields
            .iter()
            .zip(&values)
            .filter(|(_, v)| v.is_none() && !dots && !union)
            .map(|((name, _), _)| name.as_str())
            .collect();
        if !missing.is_empty() && !failed {
            let list = missing.iter().map(|m| format!("`{m}`")).collect::<Vec<_>>().join(", ");
            let message =
                format!("no value for {} {list} of `{}`", plural(missing.len(), "field"), self.show(to));
            let help = "end the list with `...` to give the other fields their defaults";
            self.report(Diagnostic::error(span, message).help(help));
            failed = true;
        }
        if failed {
            return Typed::error(span);
        }
        let dots = Typed::soft(Kind::Dots, Ty::Dots, span, true);
        let values: Vec<Typed<'a>> = values
            .into_iter()
            .zip(&composite.fields)
            .map(|(value, (_, ty))| value.unwrap_or_else(|| self.coerce(dots.clone(), ty)))
            .collect();
        self.aggregate(values, to, span)
    }

    /// A value by its parts.
    pub(super) fn aggregate(&mut self, parts: Vec<Typed<'a>>, ty: &Ty, span: Span) -> Typed<'a> {
        if parts.iter().any(|p| p.ty.is_error()) {
            return Typed::error(span);
        }
        let values: Option<Vec<Value>> = parts.iter().map(|p| p.value().cloned()).collect();
        if let Some(values) = values {
            return Typed::constant(Value::List(values), ty.clone(), span);
        }
        let known = parts.iter().all(|p| p.known);
        let parts = parts.into_iter().map(|p| self.finish(p)).collect();
        Typed::new(ExprKind::Aggregate(parts), ty.clone(), span).known(known)
    }

    /// Gives an expression the type that it has by itself.
    pub(super) fn settled(&mut self, typed: Typed<'a>) -> Typed<'a> {
        let span = typed.span;
        match (typed.kind, settle(&typed.ty)) {
            (Kind::Listing(parts), Some(ty)) => {
                let parts = parts.into_iter().map(|p| self.settled(p)).collect();
                self.aggregate(parts, &ty, span)
            }
            (Kind::Expr(kind), _) => Typed { kind: Kind::Expr(kind), ..typed },
            (Kind::Choice(parts), Some(ty)) => {
                self.coerce(Typed { kind: Kind::Choice(parts), ty: typed.ty, ..typed }, &ty)
            }
            (_, _) if typed.ty.is_error() => Typed::error(span),
            (kind, _) => {
                let what = match kind {
                    Kind::DontCare => "`_`".to_owned(),
                    _ => format!("`{}`", self.show(&typed.ty)),
                };
                let found = Diagnostic::error(span, format!("the type of {what} is not known here"));
                self.report(found.help("write the type in front: `(TYPE){ … }`"));
                Typed::error(span)
            }
        }
    }

    /// The checked form of an expression.
    pub(super) fn finish(&mut self, typed: Typed<'a>) -> hir::Expr {
        let typed = self.settled(typed);
        let ty = self.hir(&typed.ty);
        match typed.kind {
            Kind::Expr(kind) => hir::Expr { kind, ty, span: typed.span },
            _ => hir::Expr { kind: ExprKind::Absent, ty, span: typed.span },
        }
    }

    /// The value of `...` for a type.
    fn default_of(&self, ty: &Ty) -> Option<Value> {
        Some(match ty {
            Ty::Bit(_) | Ty::Int(_) | Ty::Integer | Ty::Enum(_) => Value::Integer(BigInt::zero()),
            Ty::Bool => Value::Bool(false),
            Ty::String => Value::String(String::new()),
            Ty::ErrorCode => Value::Error("NoError".into()),
            Ty::New(new) => self.default_of(&new.base)?,
            Ty::Composite(c) if c.kind == CompositeKind::Struct => {
                Value::List(c.fields.iter().map(|(_, ty)| self.default_of(ty)).collect::<Option<_>>()?)
            }
            Ty::Composite(_) => Value::Invalid,
            Ty::Tuple(parts) => {
                Value::List(parts.iter().map(|ty| self.default_of(ty)).collect::<Option<_>>()?)
            }
            Ty::Stack(element, n) => Value::List(vec![self.default_of(element)?; *n as usize]),
            Ty::Param(_) => Value::Invalid,
            _ => return None,
        })
    }

    /// A conversion that the program writes.
    pub(super) fn cast(&mut self, typed: Typed<'a>, to: &Ty, span: Span) -> Typed<'a> {
        let place = Typed { span, ..typed };
        if place.ty.is_soft() || place.ty.is_error() || to.is_error() {
            return self.coerce(place, to);
        }
        if place.ty == *to {
            return Typed { access: Access::Value, ..place };
        }
        if !self.may_cast(&place.ty, to) {
            let message = format!("`{}` cannot be converted to `{}`", self.show(&place.ty), self.show(to));
            let mut report = Diagnostic::error(span, message);
            if let (Ty::Bit(a), Ty::Int(b)) | (Ty::Int(a), Ty::Bit(b)) = (&place.ty, to) {
                let signed = matches!(place.ty, Ty::Int(_));
                let first = if signed { format!("bit<{a}>") } else { format!("int<{a}>") };
                let last = self.show(to);
                report = report.help(format!(
                    "change the sign and then the width from {a} to {b}: `({last})({first})…`"
                ));
            }
            self.report(report);
            return Typed::error(span);
        }
        match (place.value(), &place.ty, to) {
            (Some(Value::Integer(n)), Ty::Integer, Ty::Bool) if !n.is_zero() && !n.is_one() => {
                self.error(span, format!("{n} cannot be converted to `bool`; only 0 and 1 can"));
                return Typed::error(span);
            }
            _ => {}
        }
        self.convert(place, to)
    }

    /// Whether a conversion may be written.
    fn may_cast(&self, from: &Ty, to: &Ty) -> bool {
        match (from, to) {
            _ if from == to => true,
            (Ty::Bit(_), Ty::Bit(_)) | (Ty::Int(_), Ty::Int(_)) => true,
            (Ty::Bit(a), Ty::Int(b)) | (Ty::Int(a), Ty::Bit(b)) => a == b,
            (Ty::Bit(1), Ty::Bool) | (Ty::Bool, Ty::Bit(1)) => true,
            (Ty::Integer, Ty::Bit(_) | Ty::Int(_) | Ty::Bool) | (Ty::Bit(_) | Ty::Int(_), Ty::Integer) => {
                true
            }
            (Ty::New(new), _) if new.base == *to => true,
            (_, Ty::New(new)) => {
                *from == new.base || matches!(from, Ty::Integer) && self.may_cast(from, &new.base)
            }
            (Ty::Enum(_), _) => from.representation().is_some_and(|base| self.may_cast(&base, to)),
            (_, Ty::Enum(_)) => to.representation().is_some_and(|base| self.may_cast(from, &base)),
            (Ty::Tuple(a), Ty::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a == b || matches!(a, Ty::Integer))
            }
            _ => false,
        }
    }

    /// What `apply` of an object takes.
    pub(super) fn apply_params(&mut self, ty: &Ty) -> Option<Vec<Param<'a>>> {
        Some(match ty {
            Ty::Parser(id) => self.parsers.get(id.index())?.apply.params.clone(),
            Ty::Control(id) => self.controls.get(id.index())?.apply.params.clone(),
            Ty::Abstract(id, args) => {
                let signature = self.abstracts.get(id.0 as usize)?.clone();
                let bindings: Vec<_> =
                    signature.type_params.iter().copied().zip(args.iter().cloned()).collect();
                let mut params = signature.params.clone();
                for param in &mut params {
                    param.ty = self.subst(&param.ty, &bindings);
                }
                params
            }
            _ => return None,
        })
    }

    /// A parser or control where one of a certain type is demanded.
    fn object_as(&mut self, typed: Typed<'a>, to: &Ty) -> Typed<'a> {
        let Ty::Abstract(id, _) = to else { return typed };
        let wants_parser = self.abstracts.get(id.0 as usize).is_some_and(|s| s.is_parser);
        let is_parser = match &typed.ty {
            Ty::Parser(_) => true,
            Ty::Abstract(id, _) => self.abstracts.get(id.0 as usize).is_some_and(|s| s.is_parser),
            _ => false,
        };
        let (Some(wanted), Some(found)) = (self.apply_params(to), self.apply_params(&typed.ty)) else {
            return typed;
        };
        let mismatch = if is_parser != wants_parser {
            let noun = |parser| if parser { "parser" } else { "control" };
            Some(format!("it is a {}, expected a {}", noun(is_parser), noun(wants_parser)))
        } else {
            self.params_differ(&found, &wanted)
        };
        if let Some(why) = mismatch {
            let message = format!("`{}` cannot be used as `{}`: {why}", self.show(&typed.ty), self.show(to));
            self.error(typed.span, message);
            return Typed::error(typed.span);
        }
        typed
    }

    /// The first difference between parameters that are there and those that are demanded.
    pub(super) fn params_differ(&self, found: &[Param<'a>], wanted: &[Param<'a>]) -> Option<String> {
        let needed = wanted.iter().filter(|p| !p.may_lack()).count();
        if found.len() > wanted.len() || found.len() < needed {
            let (f, w) = (found.len(), wanted.len());
            return Some(format!("it has {f} {}, expected {w}", plural(f, "parameter")));
        }
        for (f, w) in found.iter().zip(wanted) {
            if f.direction != w.direction {
                let (f_text, w_text) = (direction_text(f.direction), direction_text(w.direction));
                return Some(format!("parameter `{}` has {f_text}, expected {w_text}", f.name));
            }
            if f.ty != w.ty {
                let (f_text, w_text) = (self.show(&f.ty), self.show(&w.ty));
                return Some(format!("parameter `{}` has the type `{f_text}`, expected `{w_text}`", f.name));
            }
        }
        None
    }
}

/// A direction as messages name it.
pub(super) fn direction_text(direction: hir::Direction) -> &'static str {
    match direction {
        hir::Direction::None => "no direction",
        hir::Direction::In => "the direction `in`",
        hir::Direction::Out => "the direction `out`",
        hir::Direction::InOut => "the direction `inout`",
    }
}
