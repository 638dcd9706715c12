//! Parsers.

use std::collections::HashMap;
use std::rc::Rc;

use super::infer::settle;
use super::scope::{Symbol, TypeSymbol};
use super::signature::{Object, Role, Signature};
use super::ty::Ty;
use super::value::{Kind, Typed};
use super::{Checker, Container, Here, Place, index};
use crate::ast::{self, DeclarationKind, Name};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ParserId, Stmt, Target, Transition, ValueSetId};
use crate::source::Span;

/// States by name.
type States<'a> = HashMap<&'a str, u32>;

impl<'a> Checker<'a, '_> {
    /// Declares a parser.
    pub(super) fn parser(
        &mut self,
        name: &'a Name,
        annotations: &'a [ast::Annotation],
        parser: &'a ast::Parser,
        span: Span,
    ) {
        let id = ParserId(index(self.out.parsers.len()));
        let annotations = self.annotations(annotations);
        self.out.parsers.push(hir::Parser {
            name: name.text.clone(),
            annotations,
            params: Vec::new(),
            constructor: Vec::new(),
            instances: Vec::new(),
            value_sets: Vec::new(),
            locals: Vec::new(),
            states: Vec::new(),
            span,
        });
        self.declare(name, Symbol::Open("parser"));
        let outer = std::mem::take(&mut self.declared);
        self.scopes.push();
        let (object, params, constructor) =
            self.object_params(name, &parser.signature, &parser.constructor, true);
        self.parsers.push(Rc::new(object));
        let place = Place { container: Some(Container::Parser(id)), ..Place::TOP };
        self.scopes.push();
        let (locals, value_sets, states) = self.at(place, |c| {
            let mut locals: Vec<Stmt> = Vec::new();
            let mut value_sets = Vec::new();
            for declaration in &parser.locals {
                if let DeclarationKind::ValueSet(ty, size) = &declaration.kind {
                    value_sets.push(c.value_set(declaration, ty, size));
                } else if let Some(kind) = c.local(declaration) {
                    locals.push(Stmt { kind, span: declaration.span });
                }
            }
            (locals, value_sets, c.states(parser, name))
        });
        self.scopes.pop();
        self.scopes.pop();
        let instances = std::mem::replace(&mut self.declared, outer);
        if let Some(out) = self.out.parsers.get_mut(id.index()) {
            *out = hir::Parser {
                params,
                constructor,
                instances,
                value_sets,
                locals,
                states,
                name: std::mem::take(&mut out.name),
                annotations: std::mem::take(&mut out.annotations),
                span,
            };
        }
        self.declare(name, Symbol::Type(TypeSymbol::Parser(id)));
    }

    /// The parameters of a parser or control: their signatures, and variables in the innermost scope.
    pub(super) fn object_params(
        &mut self,
        name: &'a Name,
        signature: &'a ast::Signature,
        constructor: &'a [ast::Param],
        is_parser: bool,
    ) -> (Object<'a>, Vec<hir::VarId>, Vec<hir::VarId>) {
        if let Some(first) = signature.type_params.first() {
            let noun = if is_parser { "parser" } else { "control" };
            self.error(first.span, format!("a {noun} with a body cannot have type parameters"));
        }
        self.type_params(&signature.type_params);
        let params = self.params(&signature.params, Role::Apply);
        let constructor_params = self.params(constructor, Role::Constructor);
        self.no_optional(constructor);
        for param in &constructor_params {
            if let Ty::Abstract(id, _) = &param.ty
                && self.abstracts.get(id.0 as usize).is_some_and(|s| s.is_parser != is_parser)
            {
                let (a, b) = if is_parser { ("control", "parser") } else { ("parser", "control") };
                self.error(param.span, format!("a {a} cannot be an object of a {b}"));
            }
        }
        let vars = self.param_vars(&signature.params, &params, false);
        let constructor_vars = self.param_vars(constructor, &constructor_params, true);
        let make = |params| {
            let type_params = Vec::new();
            Rc::new(Signature {
                name: &name.text,
                type_params,
                params,
                result: Ty::Void,
                span: name.span,
                is_parser,
                is_package: false,
            })
        };
        (Object { apply: make(params), constructor: make(constructor_params) }, vars, constructor_vars)
    }

    fn value_set(
        &mut self,
        declaration: &'a ast::Declaration,
        ty: &'a ast::Type,
        size: &'a ast::Expr,
    ) -> ValueSetId {
        let name = &declaration.name;
        let mut element = self.ty(ty);
        if element.is_object() || matches!(element, Ty::Void | Ty::String | Ty::Integer) {
            self.error(ty.span, format!("`{}` cannot be the type of a value set", self.show(&element)));
            element = Ty::Error;
        }
        let size = self.expr(size);
        if !size.known {
            self.not_constant(size.span, "the size of a value set");
        } else if !matches!(size.ty, Ty::Integer | Ty::Bit(_) | Ty::Int(_) | Ty::Error) {
            self.error(size.span, format!("a size of type `{}`, expected a number", self.show(&size.ty)));
        }
        let id = ValueSetId(index(self.out.value_sets.len()));
        let annotations = self.annotations(&declaration.annotations);
        let (hir, size) = (self.hir(&element), self.finish(size));
        let name_text = name.text.clone();
        self.out.value_sets.push(hir::ValueSet {
            name: name_text,
            annotations,
            element: hir,
            size,
            span: declaration.span,
        });
        self.value_sets.push(element);
        self.declare(name, Symbol::ValueSet(id));
        id
    }

    fn states(&mut self, parser: &'a ast::Parser, name: &Name) -> Vec<hir::State> {
        let mut states: States<'a> = HashMap::new();
        let mut places: HashMap<&str, Span> = HashMap::new();
        let mut listed: Vec<&'a ast::State> = Vec::new();
        for state in &parser.states {
            let text = state.name.text.as_str();
            if matches!(text, "accept" | "reject") {
                let message = format!("state `{text}` is built in and cannot be declared");
                self.error(state.name.span, message);
                continue;
            }
            if let Some(earlier) = places.insert(text, state.name.span) {
                self.duplicate(&state.name, earlier);
                continue;
            }
            states.insert(text, index(listed.len()));
            listed.push(state);
        }
        let Some(start) = states.get("start").copied() else {
            let message = format!("parser `{}` has no state `start`", name.text);
            self.report(Diagnostic::error(name.span, message).help("declare one: `state start { … }`"));
            return Vec::new();
        };
        let checked: Vec<hir::State> = listed.iter().map(|state| self.state(state, &states)).collect();
        self.reaches_end(&checked, start, name);
        checked
    }

    fn state(&mut self, state: &'a ast::State, states: &States<'a>) -> hir::State {
        let annotations = self.annotations(&state.annotations);
        let place = Place { here: Here::State, ..self.place.clone() };
        let (body, next) = self.at(place, |c| {
            c.scoped(|c| {
                let body = c.statements(&state.statements);
                let next = c.transition(state, states);
                (body, next)
            })
        });
        hir::State { name: state.name.text.clone(), annotations, body, next, span: state.span }
    }

    fn transition(&mut self, state: &'a ast::State, states: &States<'a>) -> Transition {
        match &state.transition {
            None => {
                let message =
                    format!("state `{}` has no transition: the parser fails there", state.name.text);
                let found = Diagnostic::warning(state.name.span, message);
                self.report(found.help("write `transition reject;` if that is meant"));
                Transition::To(Target::Reject)
            }
            Some(ast::Transition::To(name)) => {
                Transition::To(self.target(name, states).unwrap_or(Target::Reject))
            }
            Some(ast::Transition::Select { on, cases, span }) => {
                let on: Vec<Typed<'a>> = on.iter().map(|e| self.expr(e)).collect();
                let types: Vec<Ty> = on.iter().map(|t| settle(&t.ty).unwrap_or(Ty::Error)).collect();
                let mut values = Vec::new();
                for value in on {
                    self.select_values(value, &mut values);
                }
                let mut checked = Vec::new();
                for case in cases {
                    let keysets = self.keysets(&case.keyset, &types);
                    let target = self.target(&case.to, states);
                    checked.extend(keysets.zip(target));
                }
                Transition::Select { on: values, cases: checked, span: *span }
            }
        }
    }

    /// The scalars of a value that `select` looks at: lists are taken apart.
    fn select_values(&mut self, typed: Typed<'a>, values: &mut Vec<hir::Expr>) {
        let span = typed.span;
        match typed.kind {
            Kind::Listing(parts) if matches!(typed.ty, Ty::Listing(_, false)) => {
                for part in parts {
                    self.select_values(part, values);
                }
            }
            kind => {
                let typed = self.settled(Typed { kind, ..typed });
                let scalar = matches!(
                    typed.ty,
                    Ty::Bit(_)
                        | Ty::Int(_)
                        | Ty::Bool
                        | Ty::Enum(_)
                        | Ty::New(_)
                        | Ty::ErrorCode
                        | Ty::Error
                        | Ty::Param(_)
                );
                if !scalar {
                    let found = Diagnostic::error(
                        span,
                        format!("`select` on a value of type `{}`", self.show(&typed.ty)),
                    );
                    self.report(found.expected("expected a number, `bool`, an enum or an error"));
                }
                values.push(self.finish(typed));
            }
        }
    }

    fn target(&mut self, name: &Name, states: &States<'a>) -> Option<Target> {
        match name.text.as_str() {
            "accept" => Some(Target::Accept),
            "reject" => Some(Target::Reject),
            text => {
                if let Some(at) = states.get(text) {
                    return Some(Target::State(*at));
                }
                let mut found = Diagnostic::error(name.span, format!("state `{text}` is not declared"));
                let names = states.keys().copied().chain(["accept", "reject"]);
                if let Some(like) = self.similar(text, names) {
                    found = found.help(format!("did you mean `{like}`?"));
                }
                self.report(found);
                None
            }
        }
    }

    /// Reports a parser that never ends.
    fn reaches_end(&mut self, states: &[hir::State], start: u32, name: &Name) {
        let mut seen = vec![false; states.len()];
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            let at = at as usize;
            let (Some(mark), Some(state)) = (seen.get_mut(at), states.get(at)) else { continue };
            if std::mem::replace(mark, true) {
                continue;
            }
            let targets: Vec<Target> = match &state.next {
                Transition::To(target) => vec![*target],
                Transition::Select { cases, .. } => {
                    let catches_all =
                        cases.iter().any(|(k, _)| k.iter().all(|k| matches!(k, hir::Keyset::Any)));
                    // Without a case for the rest, `select` fails.
                    let rest = (!catches_all).then_some(Target::Reject);
                    cases.iter().map(|(_, t)| *t).chain(rest).collect()
                }
            };
            for target in targets {
                match target {
                    Target::State(next) => open.push(next),
                    Target::Accept | Target::Reject => return,
                }
            }
        }
        self.error(name.span, format!("parser `{}` never reaches `accept` or `reject`", name.text));
    }
}
