//! Controls and actions.

use std::rc::Rc;

use super::scope::{Symbol, TypeSymbol};
use super::signature::{Role, Signature};
use super::ty::Ty;
use super::{Checker, Container, Here, Place, index};
use crate::ast::{self, DeclarationKind, Name};
use crate::hir::{self, ActionId, ControlId, Stmt};
use crate::source::Span;

/// Actions and tables of a control.
#[derive(Debug, Default)]
struct Members {
    actions: Vec<ActionId>,
    tables: Vec<hir::TableId>,
    locals: Vec<Stmt>,
}

impl<'a> Checker<'a, '_> {
    /// Declares a control.
    pub(super) fn control(
        &mut self,
        name: &'a Name,
        annotations: &'a [ast::Annotation],
        control: &'a ast::Control,
        span: Span,
    ) {
        let id = ControlId(index(self.out.controls.len()));
        let annotations = self.annotations(annotations);
        self.out.controls.push(hir::Control {
            name: name.text.clone(),
            annotations,
            params: Vec::new(),
            constructor: Vec::new(),
            instances: Vec::new(),
            actions: Vec::new(),
            tables: Vec::new(),
            locals: Vec::new(),
            body: Vec::new(),
            span,
        });
        self.declare(name, Symbol::Open("control"));
        let outer = std::mem::take(&mut self.declared);
        self.scopes.push();
        let (object, params, constructor) =
            self.object_params(name, &control.signature, &control.constructor, false);
        self.controls.push(Rc::new(object));
        let place = Place { container: Some(Container::Control(id)), ..Place::TOP };
        self.scopes.push();
        let (members, body) = self.at(place.clone(), |c| {
            let mut members = Members::default();
            for declaration in &control.locals {
                c.control_local(declaration, id, &mut members);
            }
            let body = c.at(Place { here: Here::Control, ..place }, |c| c.block(&control.body));
            (members, body)
        });
        self.scopes.pop();
        self.scopes.pop();
        let instances = std::mem::replace(&mut self.declared, outer);
        if let Some(out) = self.out.controls.get_mut(id.index()) {
            *out = hir::Control {
                params,
                constructor,
                instances,
                actions: members.actions,
                tables: members.tables,
                locals: members.locals,
                body,
                name: std::mem::take(&mut out.name),
                annotations: std::mem::take(&mut out.annotations),
                span,
            };
        }
        self.declare(name, Symbol::Type(TypeSymbol::Control(id)));
    }

    fn control_local(&mut self, declaration: &'a ast::Declaration, id: ControlId, members: &mut Members) {
        match &declaration.kind {
            DeclarationKind::Action(action) => {
                let action_id = ActionId(index(self.out.actions.len()));
                self.action(&declaration.name, &declaration.annotations, action, declaration.span);
                members.actions.push(action_id);
            }
            DeclarationKind::Table(table) => members.tables.push(self.table(declaration, table, id)),
            _ => {
                if let Some(kind) = self.local(declaration) {
                    members.locals.push(Stmt { kind, span: declaration.span });
                }
            }
        }
    }

    /// Declares an action, of the program or of a control.
    pub(super) fn action(
        &mut self,
        name: &'a Name,
        annotations: &'a [ast::Annotation],
        action: &'a ast::Action,
        span: Span,
    ) {
        let id = ActionId(index(self.out.actions.len()));
        let control = match self.place.container {
            Some(Container::Control(id)) => Some(id),
            _ => None,
        };
        let annotations = self.annotations(annotations);
        self.out.actions.push(hir::Action {
            name: name.text.clone(),
            annotations,
            control,
            params: Vec::new(),
            body: Vec::new(),
            span,
        });
        let params = self.params(&action.params, Role::Action);
        let signature = Signature {
            name: &name.text,
            type_params: Vec::new(),
            params: params.clone(),
            result: Ty::Void,
            span: name.span,
            is_parser: false,
            is_package: false,
        };
        self.actions.push(Rc::new(signature));
        if self.scopes.here(&name.text).is_none() {
            self.declare(name, Symbol::Open("action"));
        }
        let (vars, body) = self.scoped(|c| {
            let vars = c.param_vars(&action.params, &params, false);
            let place = Place { here: Here::Action, ..c.place.clone() };
            (vars, c.at(place, |c| c.block(&action.body)))
        });
        if let Some(out) = self.out.actions.get_mut(id.index()) {
            (out.params, out.body) = (vars, body);
        }
        self.declare(name, Symbol::Action(id));
    }
}
