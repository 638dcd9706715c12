//! Expressions but for operators and calls: literals, names, members, elements, slices.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::scope::{Symbol, TypeSymbol};
use super::ty::{MAX_WIDTH, Ty};
use super::value::{Access, Kind, Typed};
use super::{Checker, Container, Here, fold};
use crate::ast::{self, BinOp, Direction, Name};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ExprKind, Value, VarKind};
use crate::source::Span;

/// What stands left of a dot.
pub(super) enum Base<'a> {
    /// A type.
    Type(Ty),
    /// A type whose arguments are not given, or a parser or control, by name.
    Symbol(TypeSymbol, &'a Name),
    /// A table.
    Table(hir::TableId),
    /// A value or an object.
    Value(Typed<'a>),
}

impl<'a> Checker<'a, '_> {
    /// Checks an expression.
    pub(super) fn expr(&mut self, expr: &'a ast::Expr) -> Typed<'a> {
        self.nested(expr.span, |c| c.expr_inner(expr)).unwrap_or_else(|| Typed::error(expr.span))
    }

    fn expr_inner(&mut self, expr: &'a ast::Expr) -> Typed<'a> {
        let span = expr.span;
        match &expr.kind {
            ast::ExprKind::Bool(b) => Typed::bool(*b, span),
            ast::ExprKind::Integer(n, ty) => self.integer(n, *ty, span),
            ast::ExprKind::String(s) => Typed::constant(Value::String(s.clone()), Ty::String, span),
            ast::ExprKind::Name { global, name } => self.name(*global, name),
            ast::ExprKind::This => self.this(span),
            ast::ExprKind::Dots => Typed::soft(Kind::Dots, Ty::Dots, span, true),
            ast::ExprKind::DontCare => Typed::soft(Kind::DontCare, Ty::DontCare, span, true),
            ast::ExprKind::Invalid => Typed::soft(Kind::Invalid, Ty::Invalid, span, true),
            ast::ExprKind::Default => {
                self.refuse(span, "`default` is no value; it can only be a label or a keyset")
            }
            ast::ExprKind::Mask(..) => self.refuse(span, "a mask is no value; it can only be in a keyset"),
            ast::ExprKind::Range(..) => {
                self.refuse(span, "a range is no value; it can only be in a keyset or a loop")
            }
            ast::ExprKind::Type(_) => self.refuse(span, "a type is no value"),
            ast::ExprKind::List(parts, dots) => self.listed(parts, *dots, span),
            ast::ExprKind::Record(parts, dots) => self.structure(parts, *dots, span),
            ast::ExprKind::Member(base, name) => self.member(base, name, span),
            ast::ExprKind::Index(base, at) => self.index(base, at, span),
            ast::ExprKind::Slice(base, hi, lo) => self.slice(base, hi, lo, span),
            ast::ExprKind::PlusSlice(base, lo, width) => self.plus_slice(base, lo, width, span),
            ast::ExprKind::Unary(op, operand) => {
                let operand = self.expr(operand);
                self.unary(*op, operand, span)
            }
            ast::ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a), self.expr(b));
                self.binary(*op, a, b, span)
            }
            ast::ExprKind::Ternary(condition, a, b) => self.ternary(condition, a, b, span),
            ast::ExprKind::Cast(ty, operand) => {
                let ty = self.ty(ty);
                let operand = self.expr(operand);
                self.cast(operand, &ty, span)
            }
            ast::ExprKind::Call(callee, types, args) => self.call(callee, types, args, span),
        }
    }

    /// Reports an error in the place of an expression.
    pub(super) fn refuse(&mut self, span: Span, message: impl Into<String>) -> Typed<'a> {
        self.error(span, message);
        Typed::error(span)
    }

    fn integer(&mut self, n: &BigInt, ty: Option<ast::LiteralType>, span: Span) -> Typed<'a> {
        let Some(literal) = ty else {
            if n.bits() > fold::MAX_BITS {
                return self.refuse(
                    span,
                    format!("a number of {} bits; at most {} are supported", n.bits(), fold::MAX_BITS),
                );
            }
            return Typed::integer(n.clone(), span);
        };
        let least = u32::from(literal.signed);
        if !(least..=MAX_WIDTH).contains(&literal.width) {
            let found = Diagnostic::error(span, format!("a width of {}", literal.width));
            self.report(found.expected(format!("expected {least} to {MAX_WIDTH}")));
            return Typed::error(span);
        }
        let ty = if literal.signed { Ty::Int(literal.width) } else { Ty::Bit(literal.width) };
        let typed = Typed::integer(n.clone(), span);
        self.coerce(typed, &ty)
    }

    fn listed(&mut self, parts: &'a [ast::Expr], dots: bool, span: Span) -> Typed<'a> {
        let parts: Vec<Typed<'a>> = parts.iter().map(|p| self.expr(p)).collect();
        if parts.iter().any(|p| p.ty.is_error()) {
            return Typed::error(span);
        }
        if let Some(object) =
            parts.iter().find(|p| p.ty.is_object() || matches!(p.ty, Ty::Void | Ty::Applied(_)))
        {
            let (span, text) = (object.span, self.show(&object.ty));
            return self.refuse(span, format!("`{text}` cannot be in a list"));
        }
        let known = parts.iter().all(|p| p.known);
        let ty = Ty::Listing(parts.iter().map(|p| p.ty.clone()).collect(), dots);
        Typed::soft(Kind::Listing(parts), ty, span, known)
    }

    fn structure(&mut self, parts: &'a [(Name, ast::Expr)], dots: bool, span: Span) -> Typed<'a> {
        let parts: Vec<(&'a Name, Typed<'a>)> = parts.iter().map(|(n, e)| (n, self.expr(e))).collect();
        if parts.iter().any(|(_, p)| p.ty.is_error()) {
            return Typed::error(span);
        }
        let known = parts.iter().all(|(_, p)| p.known);
        let ty = Ty::Record(parts.iter().map(|(n, p)| (n.text.clone(), p.ty.clone())).collect(), dots);
        Typed::soft(Kind::Record(parts), ty, span, known)
    }

    fn this(&mut self, span: Span) -> Typed<'a> {
        let Some(id) = self.place.this else {
            return self.refuse(
                span,
                "`this` is the object whose abstract method is implemented; there is none here",
            );
        };
        let ty = self.instances.get(id.index()).cloned().unwrap_or(Ty::Error);
        Typed::new(ExprKind::Instance(id), ty, span).known(true)
    }

    /// The value or object that a name means.
    pub(super) fn name(&mut self, global: bool, name: &'a Name) -> Typed<'a> {
        let span = name.span;
        let Some((symbol, declared)) = self.scopes.find(&name.text, global) else {
            if self.match_kinds.contains_key(name.text.as_str()) {
                return Typed::constant(Value::MatchKind(name.text.clone()), Ty::MatchKind, span);
            }
            self.not_found(name, "name", |s| !matches!(s, Symbol::Type(_)));
            return Typed::error(span);
        };
        let what = match symbol {
            Symbol::Const(value) => return Typed { span, access: Access::Value, ..value.as_ref().clone() },
            Symbol::Var(id) => {
                let id = *id;
                return self.variable(id, span);
            }
            Symbol::Instance(id) => {
                let id = *id;
                let ty = self.instances.get(id.index()).cloned().unwrap_or(Ty::Error);
                return Typed::new(ExprKind::Instance(id), ty, span).known(true);
            }
            Symbol::Type(_) => "a type",
            Symbol::Functions(_) => "a function",
            Symbol::Action(_) => "an action",
            Symbol::Table(_) => "a table",
            Symbol::ValueSet(_) => "a value set",
            Symbol::Open(what) => {
                let message = format!("{what} `{}` uses itself", name.text);
                return self.refuse(span, message);
            }
        };
        let message = format!("`{}` is {what}, expected a value", name.text);
        self.report(Diagnostic::error(span, message).also(declared, "declared here"));
        Typed::error(span)
    }

    fn variable(&mut self, id: hir::VarId, span: Span) -> Typed<'a> {
        let ty = self.vars.get(id.index()).cloned().unwrap_or(Ty::Error);
        let kind = self.out.vars.get(id.index()).map_or(VarKind::Local, |v| v.kind);
        let access = match kind {
            VarKind::Local | VarKind::Loop | VarKind::Param(Direction::Out | Direction::InOut) => {
                Access::Place
            }
            VarKind::Param(Direction::In) => Access::ReadOnly("it is an `in` parameter"),
            VarKind::Param(Direction::None) => Access::ReadOnly("it is a parameter without a direction"),
            VarKind::Constructor => Access::ReadOnly("it is a parameter of a constructor"),
        };
        Typed::new(ExprKind::Var(id), ty, span).access(access).known(kind == VarKind::Constructor)
    }

    /// What stands left of a dot.
    pub(super) fn base(&mut self, base: &'a ast::Expr) -> Option<Base<'a>> {
        match &base.kind {
            ast::ExprKind::Type(ty) => {
                if let ast::TypeKind::Named { global, name } = &ty.kind {
                    return Some(Base::Symbol(self.type_symbol(*global, name)?, name));
                }
                let ty = self.ty(ty);
                (!ty.is_error()).then_some(Base::Type(ty))
            }
            ast::ExprKind::Name { global, name } => match self.scopes.find(&name.text, *global) {
                Some((Symbol::Type(TypeSymbol::Plain(ty)), _)) => Some(Base::Type(ty.clone())),
                Some((Symbol::Type(symbol), _)) => Some(Base::Symbol(symbol.clone(), name)),
                Some((Symbol::Table(table), _)) => Some(Base::Table(*table)),
                _ => Some(Base::Value(self.expr(base))),
            },
            _ => Some(Base::Value(self.expr(base))),
        }
    }

    fn member(&mut self, base: &'a ast::Expr, name: &'a Name, span: Span) -> Typed<'a> {
        match self.base(base) {
            None => Typed::error(span),
            Some(Base::Type(ty) | Base::Symbol(TypeSymbol::Plain(ty), _)) => {
                self.type_member(&ty, name, span)
            }
            Some(Base::Symbol(_, of)) => {
                self.refuse(span, format!("type `{}` has no member `{}`", of.text, name.text))
            }
            Some(Base::Table(_)) => {
                let message = format!("a table has no field `{}`", name.text);
                self.report(
                    Diagnostic::error(name.span, message)
                        .help("apply it first: `.apply().hit`, `.apply().miss`"),
                );
                Typed::error(span)
            }
            Some(Base::Value(value)) => self.value_member(value, name, span),
        }
    }

    fn type_member(&mut self, ty: &Ty, name: &'a Name, span: Span) -> Typed<'a> {
        match ty {
            Ty::Error => Typed::error(span),
            Ty::ErrorCode if self.errors.contains_key(name.text.as_str()) => {
                Typed::constant(Value::Error(name.text.clone()), Ty::ErrorCode, span)
            }
            Ty::MatchKind if self.match_kinds.contains_key(name.text.as_str()) => {
                Typed::constant(Value::MatchKind(name.text.clone()), Ty::MatchKind, span)
            }
            Ty::Enum(e) => match e.members.iter().find(|(n, ..)| *n == name.text) {
                Some((_, value, _)) => Typed::constant(Value::Integer(value.clone()), ty.clone(), span),
                None => {
                    let names: Vec<String> = e.members.iter().map(|(n, ..)| n.clone()).collect();
                    self.no_member(name, ty, &names);
                    Typed::error(span)
                }
            },
            Ty::ErrorCode => {
                let names: Vec<String> = self.out.errors.clone();
                self.no_member(name, ty, &names);
                Typed::error(span)
            }
            other => {
                let message = format!("type `{}` has no member `{}`", self.show(other), name.text);
                self.refuse(name.span, message);
                Typed::error(span)
            }
        }
    }

    /// Reports a member that does not exist.
    fn no_member(&mut self, name: &Name, ty: &Ty, names: &[String]) {
        let mut found =
            Diagnostic::error(name.span, format!("`{}` has no member `{}`", self.show(ty), name.text));
        if let Some(like) = self.similar(&name.text, names.iter().map(String::as_str)) {
            found = found.help(format!("did you mean `{like}`?"));
        }
        self.report(found);
    }

    /// Reports a field that does not exist.
    pub(super) fn no_field(&mut self, name: &Name, ty: &Ty) {
        let mut found =
            Diagnostic::error(name.span, format!("`{}` has no field `{}`", self.show(ty), name.text));
        if let Some(c) = ty.composite() {
            if let Some(like) = self.similar(&name.text, c.fields.iter().map(|(n, _)| n.as_str())) {
                found = found.help(format!("did you mean `{like}`?"));
            } else if c.fields.is_empty() {
                found = found.expected("it has no fields");
            } else if c.fields.len() <= 12 {
                let names: Vec<&str> = c.fields.iter().map(|(n, _)| n.as_str()).collect();
                found = found.expected(format!("its fields: {}", names.join(", ")));
            }
        }
        self.report(found);
    }

    fn value_member(&mut self, value: Typed<'a>, name: &'a Name, span: Span) -> Typed<'a> {
        let ty = value.ty.clone();
        match &ty {
            Ty::Error => Typed::error(span),
            Ty::Composite(_) => match ty.field(&name.text) {
                Some((at, field)) => self.part_of(value, at, field.clone(), span, ExprKind::Field),
                None => {
                    self.no_field(name, &ty);
                    Typed::error(span)
                }
            },
            Ty::Stack(element, n) => self.stack_member(value, element, *n, name, span),
            Ty::Applied(table) => self.applied_member(value, *table, name, span),
            Ty::Record(..) | Ty::Listing(..) | Ty::Dots | Ty::Invalid => {
                self.refuse(span, format!("`{}` has no fields before it has a type", self.show(&ty)))
            }
            _ => {
                let message = format!("a value of type `{}` has no field `{}`", self.show(&ty), name.text);
                self.refuse(name.span, message);
                Typed::error(span)
            }
        }
    }

    /// A part of a value: of a constant at once.
    fn part_of(
        &mut self,
        whole: Typed<'a>,
        at: u32,
        ty: Ty,
        span: Span,
        make: fn(Box<hir::Expr>, u32) -> ExprKind,
    ) -> Typed<'a> {
        if let Some(Value::List(parts)) = whole.value()
            && let Some(part) = parts.get(at as usize)
        {
            return Typed::constant(part.clone(), ty, span);
        }
        let (access, known) = (whole.access, whole.known);
        let whole = self.finish(whole);
        Typed::new(make(Box::new(whole), at), ty, span).access(access).known(known)
    }

    fn stack_member(
        &mut self,
        stack: Typed<'a>,
        element: &Ty,
        n: u32,
        name: &'a Name,
        span: Span,
    ) -> Typed<'a> {
        if name.text == "size" {
            return Typed::constant(Value::Integer(n.into()), Ty::Bit(32), span);
        }
        if !matches!(name.text.as_str(), "next" | "last" | "lastIndex") {
            let message = format!("a stack has no field `{}`", name.text);
            let help = "a stack has `size`, and in parsers `next`, `last` and `lastIndex`";
            self.report(Diagnostic::error(name.span, message).help(help));
            return Typed::error(span);
        }
        if !(element.is_header() || element.is_union() || matches!(element, Ty::Param(_))) {
            return self.refuse(name.span, format!("`{}` is only defined for stacks of headers", name.text));
        }
        if !matches!(self.place.container, Some(Container::Parser(_))) {
            return self.refuse(name.span, format!("`{}` can only be used in parsers", name.text));
        }
        let access = stack.access;
        let stack = Box::new(self.finish(stack));
        match name.text.as_str() {
            "next" => Typed::new(ExprKind::Next(stack), element.clone(), span).access(access),
            "last" => Typed::new(ExprKind::Last(stack), element.clone(), span).access(access),
            _ => Typed::new(ExprKind::LastIndex(stack), Ty::Bit(32), span),
        }
    }

    fn applied_member(
        &mut self,
        applied: Typed<'a>,
        table: hir::TableId,
        name: &'a Name,
        span: Span,
    ) -> Typed<'a> {
        let Kind::Expr(ExprKind::Call(call)) = applied.kind else { return Typed::error(span) };
        match name.text.as_str() {
            "hit" => Typed::new(ExprKind::Hit(call), Ty::Bool, span),
            "miss" => Typed::new(ExprKind::Miss(call), Ty::Bool, span),
            "action_run" => Typed::new(ExprKind::Call(call), Ty::ActionRun(table), span),
            _ => {
                let message = format!("the result of a table has no field `{}`", name.text);
                let found = Diagnostic::error(name.span, message);
                self.report(found.expected("expected `hit`, `miss` or `action_run`"));
                Typed::error(span)
            }
        }
    }

    fn index(&mut self, base: &'a ast::Expr, at: &'a ast::Expr, span: Span) -> Typed<'a> {
        let base = self.expr(base);
        let base = if matches!(base.ty, Ty::Listing(_, false)) { self.settled(base) } else { base };
        let at = self.expr(at);
        if base.ty.is_error() || at.ty.is_error() {
            return Typed::error(span);
        }
        let at = self.as_number(at);
        if !matches!(at.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_)) {
            return self
                .refuse(at.span, format!("an index of type `{}`, expected a number", self.show(&at.ty)));
        }
        let constant = match at.value() {
            Some(Value::Integer(n)) => Some(n.clone()),
            _ => None,
        };
        let size = match &base.ty {
            Ty::Stack(_, n) => *n,
            Ty::Tuple(parts) => super::index(parts.len()),
            other => {
                let message = format!("a value of type `{}` has no elements", self.show(other));
                self.report(Diagnostic::error(span, message).expected("expected a stack or a tuple"));
                return Typed::error(span);
            }
        };
        let checked = constant.as_ref().map(|n| n.to_u32().filter(|n| *n < size));
        // An element of an empty stack has a type, and thus a size.
        let in_size = size == 0 && constant.as_ref().is_some_and(|n| !n.is_negative());
        if matches!(checked, Some(None)) && !in_size {
            let n = constant.unwrap_or_default();
            let sign = if n.is_negative() { "negative " } else { "" };
            let message = format!("{sign}index {n} of `{}`, which has {size} elements", self.show(&base.ty));
            return self.refuse(at.span, message);
        }
        match (base.ty.clone(), checked.flatten()) {
            (Ty::Tuple(parts), Some(n)) => {
                let ty = parts.get(n as usize).cloned().unwrap_or(Ty::Error);
                self.part_of(base, n, ty, span, ExprKind::Index)
            }
            (Ty::Tuple(_), None) => self.refuse(at.span, "an index of a tuple must be a constant"),
            (Ty::Stack(element, _), n) => {
                let element = element.as_ref().clone();
                if let (Some(Value::List(parts)), Some(n)) = (base.value(), n)
                    && let Some(part) = parts.get(n as usize)
                {
                    return Typed::constant(part.clone(), element, span);
                }
                let at = if matches!(at.ty, Ty::Integer) { self.coerce(at, &Ty::Bit(32)) } else { at };
                let (access, known) = (base.access, base.known && at.known);
                let (base, at) = (self.finish(base), self.finish(at));
                let kind = ExprKind::Element(Box::new(base), Box::new(at));
                Typed::new(kind, element, span).access(access).known(known)
            }
            _ => Typed::error(span),
        }
    }

    /// A value of an enum with a representation as a number.
    pub(super) fn as_number(&mut self, typed: Typed<'a>) -> Typed<'a> {
        match typed.ty.representation() {
            Some(ty) => {
                let access = typed.access;
                self.coerce(typed, &ty).access(if access == Access::Place { Access::Value } else { access })
            }
            None => typed,
        }
    }

    fn slice(&mut self, base: &'a ast::Expr, hi: &'a ast::Expr, lo: &'a ast::Expr, span: Span) -> Typed<'a> {
        let base = self.expr(base);
        let (hi, lo) = (self.constant_integer(hi), self.constant_integer(lo));
        let (Some(hi), Some(lo)) = (hi, lo) else { return Typed::error(span) };
        self.bits(base, &hi, &lo, span)
    }

    /// Bits `hi` down to `lo`.
    fn bits(&mut self, base: Typed<'a>, hi: &BigInt, lo: &BigInt, span: Span) -> Typed<'a> {
        let base = self.as_number(base);
        let width = match base.ty {
            Ty::Error => return Typed::error(span),
            Ty::Bit(width) | Ty::Int(width) => width,
            Ty::Integer => MAX_WIDTH,
            _ => {
                let message = format!("a value of type `{}` has no slices", self.show(&base.ty));
                self.report(Diagnostic::error(span, message).expected("expected `bit<>` or `int<>`"));
                return Typed::error(span);
            }
        };
        let (Some(hi), Some(lo)) = (hi.to_u32().filter(|h| *h < width), lo.to_u32()) else {
            let message = format!("a slice [{hi}:{lo}] of `{}`", self.show(&base.ty));
            let expected = format!("expected bits from 0 to {}", i64::from(width) - 1);
            self.report(Diagnostic::error(span, message).expected(expected));
            return Typed::error(span);
        };
        if lo > hi {
            return self.refuse(span, format!("a slice [{hi}:{lo}] whose upper bit is below its lower one"));
        }
        let ty = Ty::Bit(hi - lo + 1);
        if let Some(Value::Integer(n)) = base.value() {
            return Typed::constant(Value::Integer(fold::slice(n, hi, lo)), ty, span);
        }
        let (access, known) = (base.access, base.known);
        let base = Box::new(self.finish(base));
        Typed::new(ExprKind::Slice(base, hi, lo), ty, span).access(access).known(known)
    }

    fn plus_slice(
        &mut self,
        base: &'a ast::Expr,
        lo: &'a ast::Expr,
        width: &'a ast::Expr,
        span: Span,
    ) -> Typed<'a> {
        let base = self.expr(base);
        let lo = self.expr(lo);
        let width = self.constant_index(width, "width", MAX_WIDTH);
        let Some(width) = width else { return Typed::error(span) };
        if base.ty.is_error() || lo.ty.is_error() {
            return Typed::error(span);
        }
        if width == 0 {
            return self.refuse(span, "a slice without bits");
        }
        let lo = self.as_number(lo);
        if let Some(Value::Integer(n)) = lo.value() {
            let hi = n + BigInt::from(width - 1);
            let n = n.clone();
            return self.bits(base, &hi, &n, span);
        }
        let base = self.as_number(base);
        let base = match base.ty {
            Ty::Int(w) => self.cast(base, &Ty::Bit(w), span),
            Ty::Bit(_) => base,
            _ => {
                return self.refuse(span, format!("a value of type `{}` has no slices", self.show(&base.ty)));
            }
        };
        if matches!(base.ty, Ty::Bit(w) if w < width) {
            return self.refuse(span, format!("a slice of {width} bits of `{}`", self.show(&base.ty)));
        }
        let shifted = self.binary(BinOp::Shr, base, lo, span);
        let access = Access::ReadOnly("a slice at a place that is not constant cannot be written");
        self.cast(shifted, &Ty::Bit(width), span).access(access)
    }

    /// Whether the place is in code that runs in a parser.
    pub(super) fn in_parser(&self) -> bool {
        matches!(self.place.container, Some(Container::Parser(_))) || self.place.here == Here::State
    }
}
