//! Statements.

use super::scope::Symbol;
use super::show::binary_text;
use super::ty::Ty;
use super::value::Kind;
use super::{Checker, Here};
use crate::ast::{self, BinOp, Declaration, DeclarationKind, Name, StatementKind};
use crate::diagnostic::Diagnostic;
use crate::hir::{ExprKind, Stmt, StmtKind, VarKind};
use crate::source::Span;

impl<'a> Checker<'a, '_> {
    /// Checks the body of a function whose result has a type.
    pub(super) fn body(&mut self, block: Option<&'a ast::Block>, result: &Ty, name: &Name) -> Vec<Stmt> {
        let Some(block) = block else {
            self.error(name.span, format!("`{}` has no body", name.text));
            return Vec::new();
        };
        let body = self.block(block);
        if !matches!(result, Ty::Void | Ty::Error) && !ends(&body) {
            let message = format!("`{}` does not return a value on all paths", name.text);
            self.report(Diagnostic::error(name.span, message).help("end it with `return VALUE;`"));
        }
        body
    }

    /// Checks statements in a scope of their own.
    pub(super) fn block(&mut self, block: &'a ast::Block) -> Vec<Stmt> {
        self.scoped(|c| c.statements(&block.statements))
    }

    /// Checks statements in the innermost scope.
    pub(super) fn statements(&mut self, statements: &'a [ast::Statement]) -> Vec<Stmt> {
        let mut out = Vec::new();
        for statement in statements {
            self.statement(statement, &mut out);
        }
        out
    }

    /// Checks a statement that has a scope of its own: a branch or a loop's body.
    pub(super) fn branch(&mut self, statement: &'a ast::Statement) -> Vec<Stmt> {
        let mut out = Vec::new();
        self.scoped(|c| c.statement(statement, &mut out));
        out
    }

    /// Checks a statement, and adds what it becomes.
    pub(super) fn statement(&mut self, statement: &'a ast::Statement, out: &mut Vec<Stmt>) {
        let kind = self.nested(statement.span, |c| c.statement_inner(statement)).flatten();
        if let Some(kind) = kind {
            out.push(Stmt { kind, span: statement.span });
        }
    }

    fn statement_inner(&mut self, statement: &'a ast::Statement) -> Option<StmtKind> {
        let span = statement.span;
        match &statement.kind {
            StatementKind::Empty => None,
            StatementKind::Declaration(declaration) => self.local(declaration),
            StatementKind::Assign(place, op, value) => self.assign(place, *op, value, span),
            StatementKind::Call(call) => self.call_statement(call),
            StatementKind::If(condition, then, otherwise) => {
                let condition = self.condition(condition);
                let then = self.branch(then);
                let otherwise = otherwise.as_ref().map(|s| self.branch(s)).unwrap_or_default();
                Some(StmtKind::If(self.finish(condition), then, otherwise))
            }
            StatementKind::Block(block) => {
                let annotations = self.annotations(&block.annotations);
                Some(StmtKind::Block(annotations, self.block(block)))
            }
            StatementKind::Exit => {
                if self.place.here == Here::State {
                    self.error(span, "`exit` cannot be used in a parser");
                }
                Some(StmtKind::Exit)
            }
            StatementKind::Return(value) => self.return_statement(value.as_ref(), span),
            StatementKind::Break | StatementKind::Continue => {
                let is_break = matches!(statement.kind, StatementKind::Break);
                if self.place.loops == 0 {
                    let word = if is_break { "break" } else { "continue" };
                    self.error(span, format!("`{word}` outside of a loop"));
                }
                Some(if is_break { StmtKind::Break } else { StmtKind::Continue })
            }
            StatementKind::Switch(on, cases) => self.switch(on, cases),
            StatementKind::For { init, condition, update, body } => {
                Some(self.scoped(|c| c.for_loop(init, condition, update, body)))
            }
            StatementKind::ForIn { ty, name, collection, body } => {
                self.scoped(|c| c.for_in(ty.as_ref(), name, collection, body))
            }
        }
    }

    /// A declaration among statements.
    pub(super) fn local(&mut self, declaration: &'a Declaration) -> Option<StmtKind> {
        match &declaration.kind {
            DeclarationKind::Variable(ty, value) => {
                self.variable_declaration(declaration, ty, value.as_ref())
            }
            DeclarationKind::Constant(ty, value) => {
                self.constant(&declaration.name, ty, value);
                None
            }
            DeclarationKind::Instance(instance) => {
                self.instance(declaration, instance);
                None
            }
            _ => {
                self.misplaced(declaration, "here");
                None
            }
        }
    }

    fn variable_declaration(
        &mut self,
        declaration: &'a Declaration,
        written: &'a ast::Type,
        value: Option<&'a ast::Expr>,
    ) -> Option<StmtKind> {
        let ty = self.variable_type(written, &declaration.name);
        let value = value.map(|value| {
            let typed = self.expr(value);
            let typed = self.coerce(typed, &ty);
            self.finish(typed)
        });
        let var = self.var(&declaration.name, &ty, VarKind::Local, &declaration.annotations);
        self.declare(&declaration.name, Symbol::Var(var));
        Some(StmtKind::Declare(var, value))
    }

    /// The type of a variable.
    pub(super) fn variable_type(&mut self, written: &'a ast::Type, name: &Name) -> Ty {
        let ty = self.ty(written);
        let wrong = ty.is_object()
            || matches!(ty, Ty::Void | Ty::Integer | Ty::String | Ty::MatchKind | Ty::DontCare);
        if !wrong {
            return ty;
        }
        let message = format!("variable `{}` cannot have the type `{}`", name.text, self.show(&ty));
        let mut found = Diagnostic::error(written.span, message);
        if ty.is_object() {
            found = found.help(format!("declare an object: `{}(…) {};`", self.show(&ty), name.text));
        } else if matches!(ty, Ty::Integer) {
            found =
                found.help("a variable needs a width, such as `bit<32>`; a constant may have the type `int`");
        }
        self.report(found);
        Ty::Error
    }

    fn assign(
        &mut self,
        place: &'a ast::Expr,
        op: Option<BinOp>,
        value: &'a ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let place = self.expr(place);
        let value = self.expr(value);
        if place.ty.is_error() {
            return None;
        }
        if place.ty.is_object() || matches!(place.ty, Ty::Void | Ty::Applied(_) | Ty::ActionRun(_)) {
            self.error(place.span, format!("`{}` cannot be assigned to", self.show(&place.ty)));
            return None;
        }
        if !self.writable(&place) {
            return None;
        }
        let ty = place.ty.clone();
        let Some(op) = op else {
            let value = self.coerce(value, &ty);
            return Some(StmtKind::Assign(self.finish(place), self.finish(value)));
        };
        let shifts = matches!(op, BinOp::Shl | BinOp::Shr);
        let result = self.binary(op, place.clone(), value.clone(), span);
        if result.ty.is_error() {
            return None;
        }
        if result.ty != ty {
            let message = format!("`{}=` gives a value of type `{}`", binary_text(op), self.show(&result.ty));
            self.report(Diagnostic::error(span, message).expected(format!("expected `{}`", self.show(&ty))));
            return None;
        }
        let value = if shifts { self.as_number(value) } else { self.coerce(value, &ty) };
        Some(StmtKind::AssignOp(op, self.finish(place), self.finish(value)))
    }

    fn call_statement(&mut self, call: &'a ast::Expr) -> Option<StmtKind> {
        let typed = self.expr(call);
        if typed.ty.is_error() {
            return None;
        }
        match typed.kind {
            Kind::Expr(ExprKind::Call(call)) => Some(StmtKind::Call(*call)),
            // What has no effect: a size, the validity of a header, a static assertion.
            _ => None,
        }
    }

    fn return_statement(&mut self, value: Option<&'a ast::Expr>, span: Span) -> Option<StmtKind> {
        if self.place.here == Here::State {
            self.error(span, "`return` cannot be used in a parser; use a transition");
        }
        let result = self.place.result.clone().unwrap_or(Ty::Void);
        match (value, &result) {
            (None, Ty::Void | Ty::Error) => Some(StmtKind::Return(None)),
            (None, _) => {
                let message =
                    format!("`return` without a value, expected a value of type `{}`", self.show(&result));
                self.error(span, message);
                None
            }
            (Some(value), Ty::Void) => {
                self.expr(value);
                self.error(span, "`return` with a value where there is no result");
                None
            }
            (Some(value), _) => {
                let typed = self.expr(value);
                let typed = self.coerce(typed, &result);
                Some(StmtKind::Return(Some(self.finish(typed))))
            }
        }
    }
}

/// Whether statements leave the function on all paths.
fn ends(statements: &[Stmt]) -> bool {
    statements.iter().any(|s| match &s.kind {
        StmtKind::Return(_) | StmtKind::Exit => true,
        StmtKind::If(_, then, otherwise) => ends(then) && ends(otherwise),
        StmtKind::Block(_, block) => ends(block),
        StmtKind::SwitchAction(_, cases, default) => {
            cases.iter().all(|(_, body)| ends(body)) && ends(default)
        }
        StmtKind::Switch(_, cases, default) => cases.iter().all(|(_, body)| ends(body)) && ends(default),
        _ => false,
    })
}
