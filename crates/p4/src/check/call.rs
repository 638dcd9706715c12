//! Calls of functions and actions, and what all calls share: which overload is meant, which argument belongs to which
//! parameter, and whether it fits.

use std::collections::HashMap;
use std::rc::Rc;

use super::infer::Infer;
use super::scope::{FunctionRef, Symbol, TypeSymbol};
use super::signature::{Param, Signature, is_dont_care};
use super::ty::{ParamId, Ty};
use super::types::plural;
use super::value::{Access, Typed};
use super::{Checker, Here};
use crate::ast::{self, Argument, Direction, Name};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ActionId, Callee, ExprKind, Value};
use crate::source::Span;

/// Arguments of a call in the order of the parameters, with the type arguments that were written or found.
pub(super) struct Passed<'a> {
    pub(super) args: Vec<Typed<'a>>,
    pub(super) infer: Infer,
}

impl<'a> Checker<'a, '_> {
    /// Checks a call.
    pub(super) fn call(
        &mut self,
        callee: &'a ast::Expr,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        match &callee.kind {
            ast::ExprKind::Name { global, name } => self.call_name(*global, name, types, args, span),
            ast::ExprKind::Type(ty) => self.construct_type(ty, args, span),
            ast::ExprKind::Member(base, name) => self.call_method(base, name, types, args, span),
            _ => {
                let typed = self.expr(callee);
                if typed.ty.is_error() {
                    return typed;
                }
                self.refuse(span, format!("a value of type `{}` cannot be called", self.show(&typed.ty)))
            }
        }
    }

    fn call_name(
        &mut self,
        global: bool,
        name: &'a Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let Some((symbol, declared)) = self.scopes.find(&name.text, global) else {
            self.not_found(name, "function", |s| {
                matches!(s, Symbol::Functions(_) | Symbol::Action(_) | Symbol::Type(_))
            });
            return Typed::error(span);
        };
        match symbol.clone() {
            Symbol::Functions(list) => self.call_function(&list, name, types, args, span),
            Symbol::Action(id) => {
                if let Some(ty) = types.first() {
                    return self.refuse(ty.span, "an action takes no type arguments");
                }
                self.call_action(id, name, args, span)
            }
            Symbol::Type(symbol) => {
                let written = types.iter().map(|t| self.type_argument(t)).collect();
                self.construct(&symbol, written, name, args, span)
            }
            Symbol::Open(what) => {
                let message = format!("{what} `{}` calls itself; recursion is not supported", name.text);
                self.refuse(span, message)
            }
            _ => {
                let message = format!("`{}` cannot be called", name.text);
                self.report(Diagnostic::error(name.span, message).also(declared, "declared here"));
                Typed::error(span)
            }
        }
    }

    fn construct_type(&mut self, ty: &'a ast::Type, args: &'a [Argument], span: Span) -> Typed<'a> {
        match self.named_type(ty) {
            Some((symbol, written, name)) => self.construct(&symbol, written, name, args, span),
            None => Typed::error(span),
        }
    }

    /// The symbol and the type arguments of a written type that has a name.
    pub(super) fn named_type(&mut self, ty: &'a ast::Type) -> Option<(TypeSymbol, Vec<Ty>, &'a Name)> {
        let (base, args): (&'a ast::Type, &'a [ast::Type]) = match &ty.kind {
            ast::TypeKind::Specialized(base, args) => (base.as_ref(), args.as_slice()),
            _ => (ty, &[]),
        };
        let ast::TypeKind::Named { global, name } = &base.kind else {
            let found = self.ty(ty);
            let message = format!("`{}` has no objects", self.show(&found));
            self.report(
                Diagnostic::error(ty.span, message)
                    .expected("expected an extern, parser, control or package"),
            );
            return None;
        };
        let args = args.iter().map(|a| self.type_argument(a)).collect();
        let symbol = self.type_symbol(*global, name)?;
        Some((symbol, args, name))
    }

    fn call_function(
        &mut self,
        list: &[FunctionRef],
        name: &'a Name,
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Typed<'a> {
        let visible: Vec<FunctionRef> = list
            .iter()
            .copied()
            .filter(|f| self.functions.get(f.0 as usize).is_some_and(|d| self.scopes.sees(d.ordinal)))
            .collect();
        let signatures: Vec<Rc<Signature<'a>>> = visible
            .iter()
            .filter_map(|f| self.functions.get(f.0 as usize))
            .map(|decl| Rc::clone(&decl.signature))
            .collect();
        let Some(at) = self.overload(&signatures, name, args, span) else { return Typed::error(span) };
        let (Some(signature), Some(function)) = (signatures.get(at).cloned(), visible.get(at).copied())
        else {
            return Typed::error(span);
        };
        let is_extern = self.functions.get(function.0 as usize).is_some_and(|d| d.ast.body.is_none());
        if is_extern && name.text == "verify" && !self.in_parser() {
            return self.refuse(span, "`verify` can only be called in parsers");
        }
        let Some(passed) = self.pass(&signature, &[], types, args, span) else { return Typed::error(span) };
        if is_extern && name.text == "static_assert" {
            return self.static_assert(passed, span);
        }
        let type_args = passed.infer.bindings().into_iter().map(|(_, ty)| ty).collect::<Vec<_>>();
        let result = self.resolve(&signature.result, &passed.infer);
        if matches!(result, Ty::Integer) {
            let found = Diagnostic::error(span, "the width of the result is not known");
            self.report(found.help("write the width of an argument: `8w1`"));
            return Typed::error(span);
        }
        let callee = if is_extern {
            Callee::Extern(name.text.clone())
        } else {
            Callee::Function(self.function_for(function, type_args.clone(), span))
        };
        let type_args = if is_extern { type_args } else { Vec::new() };
        self.finish_call(callee, type_args, passed.args, &signature, result, span)
    }

    fn static_assert(&mut self, passed: Passed<'a>, span: Span) -> Typed<'a> {
        let mut args = passed.args.iter().map(Typed::value);
        match (args.next().flatten(), args.next().flatten()) {
            (Some(Value::Bool(true)), _) => Typed::bool(true, span),
            (Some(Value::Bool(false)), Some(Value::String(message))) => {
                self.refuse(span, format!("static assertion failed: {message}"))
            }
            (Some(Value::Bool(false)), _) => self.refuse(span, "static assertion failed"),
            _ => {
                self.not_constant(span, "the condition of a static assertion");
                Typed::error(span)
            }
        }
    }

    /// The checked form of a call.
    pub(super) fn finish_call(
        &mut self,
        callee: Callee,
        type_args: Vec<Ty>,
        args: Vec<Typed<'a>>,
        signature: &Signature<'a>,
        result: Ty,
        span: Span,
    ) -> Typed<'a> {
        let type_args = type_args.iter().map(|t| self.hir(t)).collect();
        let args = args.into_iter().map(|a| self.argument(a)).collect();
        let directions = signature.params.iter().map(|p| p.direction).collect();
        let call = hir::Call { callee, type_args, args, directions, span };
        Typed::new(ExprKind::Call(Box::new(call)), result, span)
    }

    /// The checked form of an argument.
    pub(super) fn argument(&mut self, arg: Typed<'a>) -> hir::Expr {
        if is_dont_care(&arg) {
            return hir::Expr { kind: ExprKind::Absent, ty: hir::Type::Void, span: arg.span };
        }
        self.finish(arg)
    }

    /// Checks a call of an action: the parameters that the control plane sets elsewhere have arguments, too.
    fn call_action(&mut self, id: ActionId, name: &'a Name, args: &'a [Argument], span: Span) -> Typed<'a> {
        match self.place.here {
            Here::Function => return self.refuse(span, "a function cannot call an action"),
            Here::State => return self.refuse(span, "an action cannot be called in a parser"),
            Here::Declarations | Here::Table => {
                return self.refuse(span, format!("action `{}` cannot be called here", name.text));
            }
            Here::Action | Here::Control | Here::Method => {}
        }
        let Some(signature) = self.actions.get(id.index()).cloned() else { return Typed::error(span) };
        let Some(passed) = self.pass(&signature, &[], &[], args, span) else { return Typed::error(span) };
        self.finish_call(Callee::Action(id), Vec::new(), passed.args, &signature, Ty::Void, span)
    }

    /// Picks the signature that takes the arguments, by their number and names.
    pub(super) fn overload(
        &mut self,
        signatures: &[Rc<Signature<'a>>],
        name: &Name,
        args: &'a [Argument],
        span: Span,
    ) -> Option<usize> {
        let mut fitting =
            signatures.iter().enumerate().filter(|(_, s)| takes(&s.params, args)).map(|(at, _)| at);
        let first = fitting.next();
        let Some(first) = first else {
            if signatures.len() == 1 {
                // The arguments are looked at one by one, for a better message.
                return Some(0);
            }
            let message = format!("no `{}` takes these arguments", name.text);
            let mut found = Diagnostic::error(span, message);
            for signature in signatures {
                found = found.also(signature.span, format!("takes {}", self.params_text(&signature.params)));
            }
            self.report(found);
            return None;
        };
        if let Some(second) = fitting.next() {
            let mut found = Diagnostic::error(span, format!("several `{}` take these arguments", name.text));
            for signature in [first, second].into_iter().filter_map(|at| signatures.get(at)) {
                found = found.also(signature.span, format!("takes {}", self.params_text(&signature.params)));
            }
            self.report(found.help("give the arguments by name: `NAME = VALUE`"));
            return None;
        }
        Some(first)
    }

    fn params_text(&self, params: &[Param<'a>]) -> String {
        if params.is_empty() {
            return "no arguments".into();
        }
        let texts = params.iter().map(|p| format!("`{} {}`", self.show(&p.ty), p.name));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Finds the argument of each parameter.
    pub(super) fn sort_args(
        &mut self,
        signature: &Signature<'a>,
        args: &'a [Argument],
        span: Span,
    ) -> Option<Vec<Option<&'a ast::Expr>>> {
        let params = &signature.params;
        let mut sorted: Vec<Option<&'a ast::Expr>> = vec![None; params.len()];
        let named = args.iter().filter(|a| a.name.is_some()).count();
        if named != 0 && named != args.len() {
            self.error(span, "some arguments are given by name and some are not; name all of them or none");
            return None;
        }
        if args.len() > params.len() {
            let (found, most) = (args.len(), params.len());
            let message =
                format!("`{}` takes {most} {}, found {found}", signature.name, plural(most, "argument"));
            let span = args.get(most).map_or(span, |a| a.value.span);
            self.report(Diagnostic::error(span, message).also(signature.span, "declared here"));
            return None;
        }
        let positions: HashMap<&str, usize> = params.iter().enumerate().map(|(at, p)| (p.name, at)).collect();
        let mut ok = true;
        for (at, arg) in args.iter().enumerate() {
            let at = match &arg.name {
                None => Some(at),
                Some(name) => positions.get(name.text.as_str()).copied(),
            };
            match (at.and_then(|at| sorted.get_mut(at)), &arg.name) {
                (Some(slot @ None), _) => *slot = Some(&arg.value),
                (Some(Some(_)), Some(name)) => {
                    self.error(name.span, format!("argument `{}` is given twice", name.text));
                    ok = false;
                }
                (None, Some(name)) => {
                    let message = format!("`{}` has no parameter `{}`", signature.name, name.text);
                    let mut found =
                        Diagnostic::error(name.span, message).also(signature.span, "declared here");
                    if let Some(like) = self.similar(&name.text, params.iter().map(|p| p.name)) {
                        found = found.help(format!("did you mean `{like}`?"));
                    }
                    self.report(found);
                    ok = false;
                }
                _ => {}
            }
        }
        let missing: Vec<String> = params
            .iter()
            .zip(&sorted)
            .filter(|(p, a)| a.is_none() && !p.may_lack())
            .map(|(p, _)| format!("`{}`", p.name))
            .collect();
        if ok && !missing.is_empty() {
            let message = format!(
                "no {} for {} {} of `{}`",
                plural(missing.len(), "argument"),
                plural(missing.len(), "parameter"),
                missing.join(", "),
                signature.name
            );
            self.report(Diagnostic::error(span, message).also(signature.span, "declared here"));
            ok = false;
        }
        ok.then_some(sorted)
    }

    /// Passes arguments: `outer` binds the type parameters of the object whose method is called.
    pub(super) fn pass(
        &mut self,
        signature: &Signature<'a>,
        outer: &[(ParamId, Ty)],
        types: &'a [ast::Type],
        args: &'a [Argument],
        span: Span,
    ) -> Option<Passed<'a>> {
        let mut infer = Infer::new(&signature.type_params);
        if !types.is_empty() {
            let written: Vec<Ty> = types.iter().map(|t| self.type_argument(t)).collect();
            self.bind(&mut infer, signature, &written, span)?;
        }
        self.pass_with(signature, outer, infer, args, span)
    }

    /// Binds type parameters to written arguments.
    pub(super) fn bind(
        &mut self,
        infer: &mut Infer,
        signature: &Signature<'a>,
        written: &[Ty],
        span: Span,
    ) -> Option<()> {
        let (found, wanted) = (written.len(), signature.type_params.len());
        if found != wanted {
            let message = format!(
                "`{}` takes {wanted} type {}, found {found}",
                signature.name,
                plural(wanted, "argument")
            );
            self.report(Diagnostic::error(span, message).also(signature.span, "declared here"));
            return None;
        }
        infer.bind(written);
        Some(())
    }

    /// Passes arguments with what is known of the type parameters.
    pub(super) fn pass_with(
        &mut self,
        signature: &Signature<'a>,
        outer: &[(ParamId, Ty)],
        mut infer: Infer,
        args: &'a [Argument],
        span: Span,
    ) -> Option<Passed<'a>> {
        let Some(sorted) = self.sort_args(signature, args, span) else {
            // Arguments have errors of their own.
            for arg in args {
                self.expr(&arg.value);
            }
            return None;
        };
        let mut values: Vec<Option<Typed<'a>>> = Vec::new();
        for (param, arg) in signature.params.iter().zip(sorted) {
            let value = match (arg, &param.default) {
                (Some(arg), _) => Some(self.expr(arg)),
                (None, Some(default)) => Some(Typed { span, ..default.as_ref().clone() }),
                (None, None) => None,
            };
            values.push(value);
        }
        if values.iter().flatten().any(|v| v.ty.is_error()) {
            return None;
        }
        let params: Vec<Ty> = signature.params.iter().map(|p| self.subst(&p.ty, outer)).collect();
        for (ty, value) in params.iter().zip(&values) {
            if let Some(value) = value {
                self.learn(ty, &value.ty, &mut infer);
            }
        }
        infer.settle();
        if let Some(open) = infer.open() {
            // `_` for what no argument tells.
            let unused = infer.is_written() && matches!(signature.result, Ty::Void) && signature.is_package;
            if !unused && !self.may_stay_open(signature, args, open) {
                let name = self.param_name(open);
                let message = format!("type argument `{name}` of `{}` is not known", signature.name);
                let list = signature.type_params.iter().map(|_| "…").collect::<Vec<_>>().join(", ");
                let help = format!("write the type arguments: `{}<{list}>(…)`", signature.name);
                self.report(
                    Diagnostic::error(span, message).also(signature.span, "declared here").help(help),
                );
                return None;
            }
        }
        let mut passed = Vec::new();
        for ((param, ty), value) in signature.params.iter().zip(&params).zip(values) {
            let ty = self.resolve(ty, &infer);
            let value = match value {
                Some(value) => self.pass_one(param, &ty, value, signature)?,
                None => Typed::new(ExprKind::Absent, ty, span).known(true),
            };
            passed.push(value);
        }
        Some(Passed { args: passed, infer })
    }

    /// Whether a type parameter that nothing binds does no harm: only parameters without an argument name it.
    fn may_stay_open(&self, signature: &Signature<'a>, args: &'a [Argument], open: ParamId) -> bool {
        let uses = |ty: &Ty| uses(ty, open);
        let unused = signature.params.iter().skip(args.len()).any(|p| p.may_lack() && uses(&p.ty));
        unused && !uses(&signature.result)
    }

    fn pass_one(
        &mut self,
        param: &Param<'a>,
        ty: &Ty,
        value: Typed<'a>,
        signature: &Signature<'a>,
    ) -> Option<Typed<'a>> {
        let span = value.span;
        let writes = matches!(param.direction, Direction::Out | Direction::InOut);
        if is_dont_care(&value) {
            if param.direction == Direction::Out {
                return Some(Typed { ty: ty.clone(), ..value });
            }
            self.error(
                span,
                format!("`_` as the argument of parameter `{}`; only `out` parameters take it", param.name),
            );
            return None;
        }
        if writes {
            match value.access {
                Access::Place => {}
                Access::Value => {
                    let message = format!(
                        "parameter `{}` of `{}` needs a place to write to",
                        param.name, signature.name
                    );
                    let found = Diagnostic::error(span, message).expected("this is a value");
                    self.report(found.also(param.span, "declared here"));
                    return None;
                }
                Access::ReadOnly(why) => {
                    let message =
                        format!("parameter `{}` of `{}` writes to this: {why}", param.name, signature.name);
                    self.report(Diagnostic::error(span, message).also(param.span, "declared here"));
                    return None;
                }
            }
            if value.ty != *ty {
                let (found, wanted) = (self.show(&value.ty), self.show(ty));
                let message = format!("found a place of type `{found}`, expected `{wanted}`");
                let report = Diagnostic::error(span, message).expected(format!("expected `{wanted}`"));
                self.report(report.also(param.span, "what is written has the type of the parameter"));
                return None;
            }
            return Some(value);
        }
        if matches!(param.ty, Ty::Param(_)) && value.ty.is_object() && !matches!(value.ty, Ty::Extern(..)) {
            let message = format!("`{}` cannot be an argument of `{}`", self.show(&value.ty), signature.name);
            self.report(Diagnostic::error(span, message).also(param.span, "declared here"));
            return None;
        }
        if param.direction == Direction::In && matches!(ty, Ty::String) {
            let message = format!("a value of type `{}` for an `in` parameter", self.show(ty));
            self.report(Diagnostic::error(span, message).also(param.span, "declared here"));
            return None;
        }
        if param.direction == Direction::In && lacks_width(ty) {
            let found = Diagnostic::error(span, "the width of a number in this argument is not known");
            self.report(found.help("write the width: `8w1`"));
            return None;
        }
        let value = self.coerce(value, ty);
        (!value.ty.is_error()).then_some(value)
    }
}

/// Whether parameters take arguments, by number and names.
fn takes(params: &[Param<'_>], args: &[Argument]) -> bool {
    if args.len() > params.len() {
        return false;
    }
    let named = args.iter().any(|a| a.name.is_some());
    params.iter().enumerate().all(|(at, param)| {
        let given = if named {
            args.iter().any(|a| a.name.as_ref().is_some_and(|n| n.text == param.name))
        } else {
            at < args.len()
        };
        given || param.may_lack()
    }) && (!named
        || args.iter().all(|a| a.name.as_ref().is_some_and(|n| params.iter().any(|p| p.name == n.text))))
}

/// Whether a type names a type parameter.
fn uses(ty: &Ty, param: ParamId) -> bool {
    match ty {
        Ty::Param(id) => *id == param,
        Ty::Composite(c) => c.args.iter().any(|t| uses(t, param)),
        Ty::Stack(t, _) | Ty::List(t) => uses(t, param),
        Ty::Tuple(args) | Ty::Extern(_, args) | Ty::Abstract(_, args) | Ty::Package(_, args) => {
            args.iter().any(|t| uses(t, param))
        }
        _ => false,
    }
}

/// Whether a number without a width is in a type.
fn lacks_width(ty: &Ty) -> bool {
    match ty {
        Ty::Integer => true,
        Ty::Tuple(parts) => parts.iter().any(lacks_width),
        _ => false,
    }
}
