//! Signatures: parameters of functions, methods, actions, parsers, controls and constructors.

use std::rc::Rc;

use super::scope::{Symbol, TypeSymbol};
use super::ty::{ParamId, Ty};
use super::value::{Kind, Typed};
use super::{Checker, Place, index};
use crate::ast::{self, Direction};
use crate::diagnostic::Diagnostic;
use crate::hir;
use crate::source::Span;

/// A parameter.
#[derive(Debug, Clone)]
pub(super) struct Param<'a> {
    pub(super) name: &'a str,
    pub(super) direction: Direction,
    pub(super) ty: Ty,
    /// Value if no argument is given.
    pub(super) default: Option<Rc<Typed<'a>>>,
    /// Whether no argument need be given.
    pub(super) optional: bool,
    pub(super) span: Span,
}

impl Param<'_> {
    /// Whether a call may leave it out.
    pub(super) fn may_lack(&self) -> bool {
        self.optional || self.default.is_some()
    }
}

/// Type parameters, parameters and result of what can be called or constructed.
#[derive(Debug, Clone)]
pub(super) struct Signature<'a> {
    pub(super) name: &'a str,
    pub(super) type_params: Vec<ParamId>,
    pub(super) params: Vec<Param<'a>>,
    pub(super) result: Ty,
    pub(super) span: Span,
    /// Whether it is that of a parser, if it is that of a parser or control.
    pub(super) is_parser: bool,
    /// Whether it is that of a package.
    pub(super) is_package: bool,
}

/// A parser or control: what its `apply` takes, and what its constructor takes.
#[derive(Debug, Clone)]
pub(super) struct Object<'a> {
    pub(super) apply: Rc<Signature<'a>>,
    pub(super) constructor: Rc<Signature<'a>>,
}

/// What has the parameters; the rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Function,
    Action,
    /// `apply` of a parser or control.
    Apply,
    Constructor,
    ExternConstructor,
    Package,
}

impl<'a> Checker<'a, '_> {
    /// Declares type parameters in the innermost scope.
    pub(super) fn type_params(&mut self, names: &'a [ast::Name]) -> Vec<ParamId> {
        let mut ids = Vec::new();
        for name in names {
            let id = ParamId(index(self.type_params.len()));
            self.type_params.push(&name.text);
            self.declare(name, Symbol::Type(TypeSymbol::Plain(Ty::Param(id))));
            ids.push(id);
        }
        ids
    }

    /// Resolves parameters. They are not declared: only bodies do that.
    pub(super) fn params(&mut self, params: &'a [ast::Param], role: Role) -> Vec<Param<'a>> {
        let mut resolved: Vec<Param<'a>> = Vec::new();
        let mut names = std::collections::HashMap::new();
        for param in params {
            if let Some(earlier) = names.insert(param.name.text.as_str(), param.name.span) {
                self.duplicate(&param.name, earlier);
            }
            let ty = self.ty(&param.ty);
            let ty = if self.param_allowed(param, &ty, role) { ty } else { Ty::Error };
            let optional = param.annotations.iter().any(|a| a.name.text == "optional");
            let default =
                param.default.as_ref().and_then(|value| self.default_value(param, &ty, value, optional));
            let last_is_free = resolved.last().is_some_and(|p| p.direction == Direction::None);
            if role == Role::Action && param.direction != Direction::None && last_is_free {
                let message = format!("parameter `{}` with a direction follows one without", param.name.text);
                self.report(
                    Diagnostic::error(param.span, message)
                        .help("parameters that the control plane sets have no direction and come last"),
                );
            }
            resolved.push(Param {
                name: &param.name.text,
                direction: param.direction,
                ty,
                default,
                optional,
                span: param.span,
            });
        }
        resolved
    }

    fn param_allowed(&mut self, param: &'a ast::Param, ty: &Ty, role: Role) -> bool {
        let directed = param.direction != Direction::None;
        let name = &param.name.text;
        let shown = self.show(ty);
        let wrong = match ty {
            Ty::Void | Ty::Applied(_) | Ty::ActionRun(_) => {
                format!("parameter `{name}` cannot have the type `{shown}`")
            }
            Ty::DontCare => format!("parameter `{name}` needs a type"),
            Ty::Parser(_) | Ty::Control(_) => {
                format!("parameter `{name}` cannot have the type of one {shown}; use a type without a body")
            }
            Ty::Abstract(..) if !matches!(role, Role::Constructor | Role::Package) => {
                format!(
                    "parameter `{name}` cannot be a parser or control; only parameters of constructors can"
                )
            }
            Ty::Package(..) if role != Role::Package => format!("parameter `{name}` cannot be a package"),
            Ty::Extern(..) if role == Role::Action => {
                format!("parameter `{name}` of an action cannot be an extern object")
            }
            Ty::Integer | Ty::String if role == Role::Action && matches!(ty, Ty::Integer) => {
                format!("parameter `{name}` of an action cannot have the type `int`, which has no width")
            }
            _ if directed && (ty.is_object() || matches!(ty, Ty::Integer | Ty::String | Ty::MatchKind)) => {
                format!("parameter `{name}` of type `{shown}` cannot have a direction")
            }
            _ if directed && matches!(role, Role::Constructor | Role::ExternConstructor | Role::Package) => {
                format!("parameter `{name}` of a constructor cannot have a direction")
            }
            _ => return true,
        };
        self.error(param.span, wrong);
        false
    }

    fn default_value(
        &mut self,
        param: &'a ast::Param,
        ty: &Ty,
        value: &'a ast::Expr,
        optional: bool,
    ) -> Option<Rc<Typed<'a>>> {
        let name = &param.name.text;
        if matches!(param.direction, Direction::Out | Direction::InOut) {
            let message = format!("parameter `{name}` cannot have a default: it needs a place to write to");
            self.error(param.span, message);
            return None;
        }
        if optional {
            self.error(param.span, format!("parameter `{name}` cannot have a default: it is optional"));
            return None;
        }
        let typed = self.at(Place::TOP, |c| c.expr(value));
        let typed = if ty.has_params() { typed } else { self.coerce(typed, ty) };
        if !typed.known {
            self.not_constant(value.span, "a default");
        }
        Some(Rc::new(typed))
    }

    /// Reports an expression that must be known at compile time.
    pub(super) fn not_constant(&mut self, span: Span, what: &str) {
        let found = Diagnostic::error(span, format!("{what} must be known at compile time"));
        self.report(found.expected("this depends on what a program does"));
    }

    /// Declares the parameters of a body as variables.
    pub(super) fn param_vars(
        &mut self,
        params: &'a [ast::Param],
        resolved: &[Param<'a>],
        constructor: bool,
    ) -> Vec<hir::VarId> {
        let mut vars = Vec::new();
        for (param, resolved) in params.iter().zip(resolved) {
            let kind =
                if constructor { hir::VarKind::Constructor } else { hir::VarKind::Param(resolved.direction) };
            let var = self.var(&param.name, &resolved.ty, kind, &param.annotations);
            self.declare(&param.name, Symbol::Var(var));
            vars.push(var);
        }
        vars
    }

    /// The checked form of a parser or control type.
    pub(super) fn abstract_hir(&mut self, id: super::ty::AbstractId, args: &[Ty]) -> hir::Type {
        let Some(signature) = self.abstracts.get(id.0 as usize).cloned() else { return hir::Type::Void };
        let bindings: Vec<(ParamId, Ty)> =
            signature.type_params.iter().copied().zip(args.iter().cloned()).collect();
        let params = signature
            .params
            .iter()
            .map(|p| {
                let ty = self.subst(&p.ty, &bindings);
                (p.direction, self.hir(&ty))
            })
            .collect();
        let name = self.applied_name(signature.name, args);
        hir::Type::Abstract(std::sync::Arc::new(hir::Abstract {
            name,
            is_parser: signature.is_parser,
            params,
        }))
    }
}

/// Whether an argument is `_`.
pub(super) fn is_dont_care(typed: &Typed<'_>) -> bool {
    matches!(typed.kind, Kind::DontCare)
}
