//! Calls with a dot: `apply`, methods of extern objects, and the methods that the language defines.

use std::rc::Rc;

use super::expr::Base;
use super::scope::TypeSymbol;
use super::signature::Signature;
use super::ty::{Extent, ParamId, Ty};
use super::value::{Access, Typed};
use super::{Checker, Here};
use crate::ast::{self, Argument, Name};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, Callee, ExprKind, ExternId};
use crate::source::Span;

/// Most elements that a stack is shifted by.
const MAX_SHIFT: u32 = 1 << 16;

impl<'a> Checker<'a, '_> {
    /// `BASE.NAME<TYPES>(ARGS)`
    pub(super) fn call_method(
        &mut self,
        base: &'a ast::Expr,
        name: &'a Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let base_span = base.span;
        match self.base(base) {
            None => Typed::error(span),
            Some(Base::Table(table)) => self.apply_table(table, name, args, span),
            Some(Base::Type(ty) | Base::Symbol(TypeSymbol::Plain(ty), _)) => {
                if let Some(size) = self.size(&ty, name, types, args, span) {
                    return size;
                }
                let message = format!("type `{}` has no method `{}`", self.show(&ty), name.text);
                self.refuse(span, message)
            }
            Some(Base::Symbol(symbol @ (TypeSymbol::Parser(_) | TypeSymbol::Control(_)), of)) => {
                self.apply_type(&symbol, of, name, args, base_span, span)
            }
            Some(Base::Symbol(_, of)) => {
                self.refuse(span, format!("type `{}` has no method `{}`", of.text, name.text))
            }
            Some(Base::Value(value)) => self.call_on(value, name, types, args, span),
        }
    }

    fn call_on(
        &mut self,
        value: Typed<'a>,
        name: &'a Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let ty = value.ty.clone();
        match &ty {
            Ty::Error => return Typed::error(span),
            Ty::Extern(id, bound) => {
                let bound: Vec<Ty> = bound.to_vec();
                return self.call_extern(value, *id, &bound, name, types, args, span);
            }
            Ty::Parser(_) | Ty::Control(_) | Ty::Abstract(..) => {
                return self.apply_object(value, name, args, span);
            }
            _ => {}
        }
        if let Some(size) = self.size(&ty, name, types, args, span) {
            return size;
        }
        let header = ty.is_header();
        let none = |c: &mut Self| c.no_args(name, args);
        match name.text.as_str() {
            "isValid" if header || ty.is_union() => {
                none(self);
                let value = Box::new(self.finish(value));
                Typed::new(ExprKind::Valid(value), Ty::Bool, span)
            }
            "setValid" | "setInvalid" if header => {
                none(self);
                if !self.writable(&value) {
                    return Typed::error(span);
                }
                let value = Box::new(self.finish(value));
                let callee =
                    if name.text == "setValid" { Callee::SetValid(value) } else { Callee::SetInvalid(value) };
                Self::built_in(callee, span)
            }
            "push_front" | "pop_front" if matches!(ty, Ty::Stack(..)) => {
                let [arg] = args else {
                    return self
                        .refuse(span, format!("`{}` takes 1 argument, found {}", name.text, args.len()));
                };
                let count = self.constant_index(&arg.value, "count", MAX_SHIFT);
                if !self.writable(&value) {
                    return Typed::error(span);
                }
                let Some(count) = count else { return Typed::error(span) };
                let value = Box::new(self.finish(value));
                let push = name.text == "push_front";
                let callee =
                    if push { Callee::PushFront(value, count) } else { Callee::PopFront(value, count) };
                Self::built_in(callee, span)
            }
            _ => {
                let message = format!("a value of type `{}` has no method `{}`", self.show(&ty), name.text);
                self.refuse(name.span, message);
                Typed::error(span)
            }
        }
    }

    fn built_in(callee: Callee, span: Span) -> Typed<'a> {
        let (type_args, args, directions) = (Vec::new(), Vec::new(), Vec::new());
        let call = hir::Call { callee, type_args, args, directions, span };
        Typed::new(ExprKind::Call(Box::new(call)), Ty::Void, span)
    }

    fn no_args(&mut self, name: &Name, args: &'a [Argument]) {
        if let Some(arg) = args.first() {
            self.error(arg.value.span, format!("`{}` takes no arguments, found {}", name.text, args.len()));
        }
    }

    /// Reports a place that cannot be written.
    pub(super) fn writable(&mut self, place: &Typed<'a>) -> bool {
        match place.access {
            Access::Place => true,
            Access::Value => {
                self.error(place.span, "this is a value, expected a place to write to");
                false
            }
            Access::ReadOnly(why) => {
                self.error(place.span, format!("this cannot be written: {why}"));
                false
            }
        }
    }

    /// The size of a type, if a method's name asks for it.
    fn size(
        &mut self,
        ty: &Ty,
        name: &Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Option<Typed<'a>> {
        let pick = |(least, most): (u64, u64)| match name.text.as_str() {
            "minSizeInBits" => Some(least),
            "minSizeInBytes" => Some(least.div_ceil(8)),
            "maxSizeInBits" => Some(most),
            "maxSizeInBytes" => Some(most.div_ceil(8)),
            _ => None,
        };
        pick((0, 0))?;
        self.no_args(name, args);
        if let Some(first) = types.first() {
            return Some(self.refuse(first.span, format!("`{}` takes no type arguments", name.text)));
        }
        let extent: Extent = ty.extent();
        let sized = !matches!(ty, Ty::Error | Ty::Listing(..) | Ty::Record(..) | Ty::Dots | Ty::Invalid);
        Some(match extent.bits.filter(|_| sized).and_then(pick) {
            Some(size) => Typed::integer(size, span),
            None if ty.has_params() => Typed::integer(0, span),
            None => self.refuse(span, format!("a value of type `{}` has no size in bits", self.show(ty))),
        })
    }

    fn apply_table(
        &mut self,
        table: hir::TableId,
        name: &'a Name,
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        if name.text != "apply" {
            return self.refuse(name.span, format!("a table has no method `{}`; it has `apply`", name.text));
        }
        self.no_args(name, args);
        match self.place.here {
            Here::Control | Here::Table => {}
            Here::Action => return self.refuse(span, "a table cannot be applied in an action"),
            _ => return self.refuse(span, "a table can only be applied in the body of its control"),
        }
        let (type_args, args, directions) = (Vec::new(), Vec::new(), Vec::new());
        let call = hir::Call { callee: Callee::Table(table), type_args, args, directions, span };
        Typed::new(ExprKind::Call(Box::new(call)), Ty::Applied(table), span)
    }

    /// `TYPE.apply(…)`: of an object that exists for this call only.
    fn apply_type(
        &mut self,
        symbol: &TypeSymbol,
        of: &'a Name,
        name: &'a Name,
        args: &'a [Argument],
        base: Span,
        span: Span,
    ) -> Typed<'a> {
        if name.text != "apply" {
            return self
                .refuse(name.span, format!("`{}` has no method `{}`; it has `apply`", of.text, name.text));
        }
        let Some((object, ty)) = self.object(symbol, Vec::new(), of, &[], base) else {
            return Typed::error(span);
        };
        let id = self.add_instance(object, ty.clone());
        self.declared.push(id);
        let object = Typed::new(ExprKind::Instance(id), ty, base).known(true);
        self.apply_object(object, name, args, span)
    }

    fn apply_object(
        &mut self,
        object: Typed<'a>,
        name: &'a Name,
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        if name.text != "apply" {
            let message =
                format!("`{}` has no method `{}`; it has `apply`", self.show(&object.ty), name.text);
            return self.refuse(name.span, message);
        }
        let is_parser = match &object.ty {
            Ty::Parser(_) => true,
            Ty::Abstract(id, _) => self.abstracts.get(id.0 as usize).is_some_and(|s| s.is_parser),
            _ => false,
        };
        let noun = if is_parser { "parser" } else { "control" };
        match self.place.here {
            Here::State if is_parser => {}
            Here::Control if !is_parser => {}
            Here::Action => return self.refuse(span, format!("a {noun} cannot be applied in an action")),
            _ => return self.refuse(span, format!("a {noun} can only be applied in the body of a {noun}")),
        }
        let Some(params) = self.apply_params(&object.ty) else { return Typed::error(span) };
        let signature = Signature {
            name: self.object_name(&object.ty),
            type_params: Vec::new(),
            params,
            result: Ty::Void,
            span: object.span,
            is_parser,
            is_package: false,
        };
        let Some(passed) = self.pass(&signature, &[], &[], args, span) else { return Typed::error(span) };
        let callee = Callee::Apply(Box::new(self.finish(object)));
        self.finish_call(callee, Vec::new(), passed.args, &signature, Ty::Void, span)
    }

    fn object_name(&self, ty: &Ty) -> &'a str {
        match ty {
            Ty::Parser(id) => self.parsers.get(id.index()).map(|o| o.apply.name),
            Ty::Control(id) => self.controls.get(id.index()).map(|o| o.apply.name),
            Ty::Abstract(id, _) => self.abstracts.get(id.0 as usize).map(|s| s.name),
            _ => None,
        }
        .unwrap_or("apply")
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are parts of one call")]
    fn call_extern(
        &mut self,
        object: Typed<'a>,
        id: ExternId,
        bound: &[Ty],
        name: &'a Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let Some(decl) = self.externs.get(id.index()).cloned() else { return Typed::error(span) };
        let signatures: Vec<Rc<Signature<'a>>> = decl
            .methods
            .iter()
            .filter(|m| m.signature.name == name.text)
            .map(|m| Rc::clone(&m.signature))
            .collect();
        if signatures.is_empty() {
            let message = format!("`{}` has no method `{}`", self.show(&object.ty), name.text);
            let mut found = Diagnostic::error(name.span, message);
            let names = decl.methods.iter().map(|m| m.signature.name);
            if let Some(like) = self.similar(&name.text, names) {
                found = found.help(format!("did you mean `{like}`?"));
            }
            self.report(found);
            return Typed::error(span);
        }
        if matches!(self.place.here, Here::Declarations) {
            return self.refuse(span, "a method can only be called in a body");
        }
        let outer: Vec<(ParamId, Ty)> = decl.type_params.iter().copied().zip(bound.iter().cloned()).collect();
        let at = self.overload(&signatures, name, args, span);
        let Some(signature) = at.and_then(|at| signatures.get(at)) else { return Typed::error(span) };
        let Some(passed) = self.pass(signature, &outer, types, args, span) else { return Typed::error(span) };
        let result = self.subst(&signature.result, &outer);
        let result = self.resolve(&result, &passed.infer);
        let type_args: Vec<Ty> = passed.infer.bindings().into_iter().map(|(_, ty)| ty).collect();
        if self.out.externs.get(id.index()).is_some_and(|e| e.name == "packet_in") {
            if name.text == "extract"
                && let Some(report) = type_args.first().and_then(|ty| self.second_varbit(ty, span))
            {
                self.report(report);
                return Typed::error(span);
            }
            if let Some(wrong) = self.packet_in_rule(&name.text, &passed.args, &type_args) {
                return self.refuse(args.first().map_or(span, |a| a.value.span), wrong);
            }
        }
        let callee = Callee::Method(Box::new(self.finish(object)), name.text.clone());
        self.finish_call(callee, type_args, passed.args, signature, result, span)
    }

    /// The error of a header with several varbit fields, which cannot be extracted.
    fn second_varbit(&self, ty: &Ty, span: Span) -> Option<Diagnostic> {
        let composite = ty.composite()?;
        let decl = self.composites.get(composite.decl.0 as usize)?;
        let mut varbits = decl
            .fields
            .iter()
            .zip(&composite.fields)
            .filter(|(_, (_, ty))| matches!(ty, Ty::Varbit(_)))
            .map(|((f, _), _)| f);
        let (_, second) = (varbits.next()?, varbits.next()?);
        let message = format!("a second varbit field in header `{}`, which is extracted", composite.name);
        Some(
            Diagnostic::error(second.name.span, message)
                .expected("expected at most one")
                .also(span, "extracted here"),
        )
    }

    /// What a method of `packet_in` demands beyond its signature.
    fn packet_in_rule(&self, method: &str, args: &[Typed<'a>], types: &[Ty]) -> Option<String> {
        let ty = types.first()?;
        if matches!(ty, Ty::Param(_) | Ty::Error) {
            return None;
        }
        let text = self.show(ty);
        match (method, args.len()) {
            ("extract", _) if !ty.is_header() => Some(format!("`extract` needs a header, found `{text}`")),
            ("extract", 1) if ty.extent().varbit => {
                Some(format!("`{text}` has a varbit field; `extract` needs its size as a second argument"))
            }
            ("extract", 2) if !ty.extent().varbit => {
                Some(format!("`{text}` has no varbit field that takes a size"))
            }
            ("lookahead", _) if ty.extent().varbit || ty.extent().bits.is_none() => {
                Some(format!("`lookahead` needs a type of fixed size, found `{text}`"))
            }
            _ => None,
        }
    }
}
