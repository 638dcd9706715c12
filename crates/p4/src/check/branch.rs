//! `switch` and loops.

use std::collections::HashMap;

use super::Checker;
use super::scope::Symbol;
use super::ty::Ty;
use super::value::{Kind, Typed};
use crate::ast::{self, Name, SwitchCase};
use crate::diagnostic::Diagnostic;
use crate::hir::{self, ActionId, ExprKind, Stmt, StmtKind, TableId, Value, VarId, VarKind};
use crate::source::Span;

/// Labels that share a block.
struct Group<L> {
    labels: Vec<L>,
    default: bool,
    body: Vec<Stmt>,
}

impl<'a> Checker<'a, '_> {
    /// A `switch`.
    pub(super) fn switch(&mut self, on: &'a ast::Expr, cases: &'a [SwitchCase]) -> Option<StmtKind> {
        let on = self.expr(on);
        self.default_is_last(cases);
        match (on.kind, on.ty.clone()) {
            (Kind::Expr(ExprKind::Call(call)), Ty::ActionRun(table)) => {
                let mut seen: HashMap<ActionId, Span> = HashMap::new();
                let groups = self.groups(cases, |c, label| {
                    let action = c.action_label(table, label)?;
                    c.repeated(seen.insert(action, label.span), label);
                    Some(action)
                });
                let (groups, default) = split(groups);
                Some(StmtKind::SwitchAction(*call, groups, default))
            }
            (kind, ty) => {
                let on = Typed { kind, ty: ty.clone(), ..on };
                let scalar = matches!(
                    ty,
                    Ty::Bit(_)
                        | Ty::Int(_)
                        | Ty::Integer
                        | Ty::Bool
                        | Ty::Enum(_)
                        | Ty::ErrorCode
                        | Ty::New(_)
                        | Ty::Error
                );
                if !scalar {
                    let message = format!("`switch` on a value of type `{}`", self.show(&ty));
                    let found = Diagnostic::error(on.span, message);
                    self.report(
                        found.expected("expected a number, an enum, an error or `action_run` of a table"),
                    );
                }
                let ty = if scalar { ty } else { Ty::Error };
                let mut seen: HashMap<String, Span> = HashMap::new();
                let groups = self.groups(cases, |c, label| {
                    let value = c.value_label(&ty, label)?;
                    c.repeated(seen.insert(format!("{value:?}"), label.span), label);
                    Some(value)
                });
                if !scalar || ty.is_error() {
                    return None;
                }
                let (groups, default) = split(groups);
                let on = self.finish(on);
                Some(StmtKind::Switch(on, groups, default))
            }
        }
    }

    fn default_is_last(&mut self, cases: &'a [SwitchCase]) {
        let default = cases.iter().position(|c| matches!(c.label.kind, ast::ExprKind::Default));
        let behind = default.and_then(|at| Some((cases.get(at)?, cases.get(at + 1)?)));
        if let Some((default, case)) = behind {
            let found = Diagnostic::error(case.label.span, "a label behind `default`")
                .also(default.label.span, "`default`");
            self.report(found.help("move `default` to the end"));
        }
    }

    fn repeated(&mut self, earlier: Option<Span>, label: &ast::Expr) {
        if let Some(earlier) = earlier {
            let found = Diagnostic::error(label.span, "this label is there twice");
            self.report(found.also(earlier, "first here"));
        }
    }

    fn groups<L>(
        &mut self,
        cases: &'a [SwitchCase],
        mut label: impl FnMut(&mut Self, &'a ast::Expr) -> Option<L>,
    ) -> Vec<Group<L>> {
        let mut groups = Vec::new();
        let mut open = Group { labels: Vec::new(), default: false, body: Vec::new() };
        for case in cases {
            match case.label.kind {
                ast::ExprKind::Default => open.default = true,
                _ => open.labels.extend(label(self, &case.label)),
            }
            if let Some(body) = &case.body {
                open.body = self.block(body);
                groups.push(open);
                open = Group { labels: Vec::new(), default: false, body: Vec::new() };
            }
        }
        if !open.labels.is_empty() || open.default {
            groups.push(open);
        }
        groups
    }

    fn action_label(&mut self, table: TableId, label: &'a ast::Expr) -> Option<ActionId> {
        let ast::ExprKind::Name { global, name } = &label.kind else {
            self.report(
                Diagnostic::error(label.span, "a label must be the name of an action")
                    .expected("expected an action"),
            );
            return None;
        };
        let actions: Vec<ActionId> = self
            .out
            .tables
            .get(table.index())
            .map(|t| t.actions.iter().map(|a| a.call.action).collect())
            .unwrap_or_default();
        match self.scopes.find(&name.text, *global) {
            Some((Symbol::Action(id), _)) if actions.contains(id) => Some(*id),
            _ => {
                let names: Vec<String> = actions
                    .iter()
                    .filter_map(|a| self.out.actions.get(a.index()))
                    .map(|a| a.name.clone())
                    .collect();
                let message = format!("`{}` is not an action of the table", name.text);
                let mut found = Diagnostic::error(label.span, message);
                if let Some(like) = self.similar(&name.text, names.iter().map(String::as_str)) {
                    found = found.help(format!("did you mean `{like}`?"));
                } else {
                    found = found.expected(format!("its actions: {}", names.join(", ")));
                }
                self.report(found);
                None
            }
        }
    }

    fn value_label(&mut self, ty: &Ty, label: &'a ast::Expr) -> Option<Value> {
        let typed = self.expr(label);
        let typed = self.coerce(typed, ty);
        if typed.ty.is_error() {
            return None;
        }
        if typed.value().is_none() {
            self.not_constant(label.span, "a label");
        }
        typed.value().cloned()
    }

    /// `for (INIT; CONDITION; UPDATE) BODY`
    pub(super) fn for_loop(
        &mut self,
        init: &'a [ast::Statement],
        condition: &'a ast::Expr,
        update: &'a [ast::Statement],
        body: &'a ast::Statement,
    ) -> StmtKind {
        let init = self.statements(init);
        let condition = self.condition(condition);
        let condition = self.finish(condition);
        let update = self.statements(update);
        let body = self.loop_body(body);
        StmtKind::For { init, condition, update, body }
    }

    fn loop_body(&mut self, body: &'a ast::Statement) -> Vec<Stmt> {
        self.place.loops += 1;
        let body = self.branch(body);
        self.place.loops -= 1;
        body
    }

    /// `for (TYPE NAME in COLLECTION) BODY`
    pub(super) fn for_in(
        &mut self,
        ty: Option<&'a ast::Type>,
        name: &'a Name,
        collection: &'a ast::Expr,
        body: &'a ast::Statement,
    ) -> Option<StmtKind> {
        let ty = ty.map(|ty| self.variable_type(ty, name));
        match &collection.kind {
            ast::ExprKind::Range(from, to) => {
                let (from, to) = (self.expr(from), self.expr(to));
                let (var, ty) = self.loop_var(ty, name)?;
                if !ty.is_bits() && !ty.is_error() {
                    self.error(
                        name.span,
                        format!("`{}` runs over a range, expected a type `bit<>` or `int<>`", name.text),
                    );
                }
                let (from, to) = (self.coerce(from, &ty), self.coerce(to, &ty));
                let (from, to) = (self.finish(from), self.finish(to));
                Some(StmtKind::ForRange(var, from, to, self.loop_body(body)))
            }
            _ => {
                let collection = self.expr(collection);
                let element = match &collection.ty {
                    Ty::Stack(element, _) | Ty::List(element) => element.as_ref().clone(),
                    Ty::Tuple(parts) if parts.iter().zip(parts.iter().skip(1)).all(|(a, b)| a == b) => {
                        parts.first().cloned().unwrap_or(Ty::Error)
                    }
                    Ty::Error => Ty::Error,
                    other => {
                        let message = format!("a loop over a value of type `{}`", self.show(other));
                        let found = Diagnostic::error(collection.span, message);
                        self.report(found.expected("expected a stack, a list or a range"));
                        Ty::Error
                    }
                };
                let (var, ty) = self.loop_var(ty, name)?;
                if ty != element {
                    let message = format!(
                        "`{}` has the type `{}`, the elements have `{}`",
                        name.text,
                        self.show(&ty),
                        self.show(&element)
                    );
                    self.error(name.span, message);
                }
                let collection = self.finish(collection);
                Some(StmtKind::ForEach(var, collection, self.loop_body(body)))
            }
        }
    }

    /// The variable of a loop: a new one, or one that is there.
    fn loop_var(&mut self, ty: Option<Ty>, name: &'a Name) -> Option<(VarId, Ty)> {
        if let Some(ty) = ty {
            let var = self.var(name, &ty, VarKind::Loop, &[]);
            self.declare(name, Symbol::Var(var));
            return Some((var, ty));
        }
        let typed = self.name(false, name);
        match typed.kind {
            Kind::Expr(hir::ExprKind::Var(var)) => {
                let typed = Typed { kind: Kind::Expr(hir::ExprKind::Var(var)), ..typed };
                self.writable(&typed).then_some((var, typed.ty))
            }
            _ if typed.ty.is_error() => None,
            _ => {
                self.error(name.span, format!("`{}` is not a variable", name.text));
                None
            }
        }
    }
}

/// Cases of a `switch`: labels with their block.
type Cases<L> = Vec<(Vec<L>, Vec<Stmt>)>;

/// The cases, and the default's block.
fn split<L>(groups: Vec<Group<L>>) -> (Cases<L>, Vec<Stmt>) {
    let mut cases = Vec::new();
    let mut default = Vec::new();
    for group in groups {
        if group.default {
            default = group.body;
        } else {
            cases.push((group.labels, group.body));
        }
    }
    (cases, default)
}
