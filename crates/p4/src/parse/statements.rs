//! Statements.

use super::declarations::{DECLARATIONS, Place};
use super::names::Meaning;
use super::{Parse, Parser};
use crate::ast::{BinOp, Block, Expr, ExprKind, Statement, StatementKind, SwitchCase};
use crate::diagnostic::Diagnostic;
use crate::lex::TokenKind;

/// Operators of assignments.
const ASSIGNMENTS: &[(&str, Option<BinOp>)] = &[
    ("=", None),
    ("+=", Some(BinOp::Add)),
    ("-=", Some(BinOp::Sub)),
    ("*=", Some(BinOp::Mul)),
    ("/=", Some(BinOp::Div)),
    ("%=", Some(BinOp::Rem)),
    ("|+|=", Some(BinOp::SatAdd)),
    ("|-|=", Some(BinOp::SatSub)),
    ("<<=", Some(BinOp::Shl)),
    (">>=", Some(BinOp::Shr)),
    ("&=", Some(BinOp::And)),
    ("|=", Some(BinOp::Or)),
    ("^=", Some(BinOp::Xor)),
];

/// Keywords that start statements.
pub(super) const STATEMENTS: &[&str] =
    &["break", "const", "continue", "exit", "for", "if", "return", "switch", "transition"];

impl Parser<'_> {
    /// A block. Its names end with it.
    pub(super) fn block(&mut self) -> Parse<Block> {
        self.scoped(Self::block_in_scope)
    }

    /// A block whose names are in the scope that is open, as parameters are.
    pub(super) fn block_in_scope(&mut self) -> Parse<Block> {
        self.nested(|p| {
            let start = p.token().span;
            let annotations = p.annotations()?;
            p.expect("{")?;
            let statements = p.items(Self::statement)?;
            Ok(Block { annotations, statements, span: p.since(start) })
        })
    }

    /// A statement or a declaration in a block.
    pub(super) fn statement(&mut self) -> Parse<Statement> {
        self.nested(|p| {
            let start = p.token().span;
            let kind = p.statement_kind()?;
            Ok(Statement { kind, span: p.since(start) })
        })
    }

    fn statement_kind(&mut self) -> Parse<StatementKind> {
        let token = self.token();
        match &*token.text {
            _ if token.kind == TokenKind::String => {}
            ";" => {
                self.bump();
                return Ok(StatementKind::Empty);
            }
            "{" => return Ok(StatementKind::Block(self.block()?)),
            "@" => return self.annotated(),
            "if" => {
                self.bump();
                let condition = self.condition()?;
                let then = Box::new(self.statement()?);
                let other = if self.eat("else") { Some(Box::new(self.statement()?)) } else { None };
                return Ok(StatementKind::If(condition, then, other));
            }
            "return" | "exit" | "switch" if self.in_parser => {
                let message = format!("`{}` in a parser state", token.text);
                let help = "a state ends with `transition`, and chooses with `transition select`";
                return self.fail(Diagnostic::error(token.span, message).help(help));
            }
            "else" => {
                let error = self.unexpected("a statement").help("`else` follows the statement of an `if`");
                return self.fail(error);
            }
            "switch" => return self.switch(),
            "for" => return self.scoped(Self::for_loop),
            "return" => {
                self.bump();
                let value = if self.at(";") { None } else { Some(self.expression()?) };
                self.semicolon("`return`")?;
                return Ok(StatementKind::Return(value));
            }
            "exit" | "break" | "continue" => {
                self.bump();
                self.semicolon(&format!("`{}`", token.text))?;
                return Ok(match &*token.text {
                    "exit" => StatementKind::Exit,
                    "break" => StatementKind::Break,
                    _ => StatementKind::Continue,
                });
            }
            "transition" => {
                let error = Diagnostic::error(token.span, "`transition` outside of a parser state")
                    .help("`transition` ends a state of a parser; controls use `return` or `exit`");
                return self.fail(error);
            }
            "const" => return self.local(),
            _ if self.at_variable() || self.at_instance() => return self.local(),
            _ => {}
        }
        if token.kind == TokenKind::Keyword && !matches!(&*token.text, "this" | "error" | "true" | "false") {
            let mut error = self.unexpected("a statement");
            if DECLARATIONS.contains(&&*token.text) {
                error = error.help("it is declared outside of this block; is a `}` missing before it?");
            }
            return self.fail(error);
        }
        let kind = self.assignment_or_call()?;
        self.semicolon("the statement")?;
        Ok(kind)
    }

    /// A declaration in a block.
    fn local(&mut self) -> Parse<StatementKind> {
        Ok(StatementKind::Declaration(Box::new(self.declaration(Place::Block)?)))
    }

    /// A statement behind annotations: a block, a loop or a declaration has them.
    fn annotated(&mut self) -> Parse<StatementKind> {
        let mut behind = 0;
        // Finds what the annotations belong to.
        while self.peek(behind).is("@") {
            let pragma = self.peek(behind + 1).is("pragma");
            behind += 2;
            if pragma {
                while !(self.peek(behind).starts_line || self.peek(behind).kind == TokenKind::End) {
                    behind += 1;
                }
            } else if self.peek(behind).is("(") || self.peek(behind).is("[") {
                match self.scan_brackets(behind) {
                    Some(end) => behind = end,
                    None => return self.local(),
                }
            }
        }
        match &*self.peek(behind).text {
            "{" => Ok(StatementKind::Block(self.block()?)),
            "for" => {
                // Hints for unrolling; nothing depends on them.
                self.annotations()?;
                self.scoped(Self::for_loop)
            }
            "if" | "switch" | "return" | "exit" => {
                self.annotations()?;
                let error = self.unexpected("a block, a loop or a declaration behind annotations");
                self.fail(error)
            }
            _ => self.local(),
        }
    }

    /// An assignment or a call, without its `;`.
    fn assignment_or_call(&mut self) -> Parse<StatementKind> {
        let first = self.token();
        let left = self.nested(Self::postfix)?;
        let operator = ASSIGNMENTS.iter().find(|(text, _)| self.at(text));
        if let Some(&(_, op)) = operator {
            self.bump();
            let value = self.expression()?;
            return Ok(StatementKind::Assign(left, op, value));
        }
        if matches!(left.kind, ExprKind::Call(..)) {
            return Ok(StatementKind::Call(left));
        }
        if self.at("==") {
            let error = self.unexpected("`=`").help("write `=` to assign");
            return self.fail(error);
        }
        let mut error = self.unexpected("an assignment or a call");
        if first.kind == TokenKind::Identifier {
            error = self.suggest(error, &first.text, STATEMENTS);
        }
        self.fail(error)
    }

    fn switch(&mut self) -> Parse<StatementKind> {
        self.bump();
        let on = self.condition()?;
        self.expect("{")?;
        let cases = self.items(|p| {
            let token = p.token();
            let label = if p.eat("default") {
                Expr { kind: ExprKind::Default, span: token.span }
            } else {
                p.expression()?
            };
            p.expect(":")?;
            let body = if p.at("{") || p.at("@") { Some(p.block()?) } else { None };
            Ok(SwitchCase { label, body })
        })?;
        Ok(StatementKind::Switch(on, cases))
    }

    fn for_loop(&mut self) -> Parse<StatementKind> {
        self.bump();
        self.expect("(")?;
        let first_annotation = self.token();
        let annotated = !self.annotations()?.is_empty();
        let untyped = self.token().kind == TokenKind::Identifier && self.peek(1).is("in");
        let typed = self.scan_type(0).is_some_and(|at| self.peek(at + 1).is("in"));
        if untyped || typed {
            let ty = if untyped { None } else { Some(self.ty()?) };
            let name = self.name("the name of a variable")?;
            if untyped {
                let error =
                    Diagnostic::error(name.span, "loop over a collection without a type of its variable");
                self.diagnostics.push(error.help(format!("write `for (TYPE {} in …)`", name.text)));
            }
            self.expect("in")?;
            let collection = self.collection()?;
            self.expect(")")?;
            self.names.declare(&name.text, Meaning::Value);
            let body = Box::new(self.statement()?);
            return Ok(StatementKind::ForIn { ty, name, collection, body });
        }
        if annotated && !self.at_variable() {
            let error =
                Diagnostic::error(first_annotation.span, "annotation of a statement in the head of a loop");
            return self.fail(error.expected("expected a declaration or a statement"));
        }
        let init = self.loop_statements(";", true)?;
        self.expect(";")?;
        let condition = self.expression()?;
        self.expect(";")?;
        let update = self.loop_statements(")", false)?;
        self.expect(")")?;
        let body = Box::new(self.statement()?);
        Ok(StatementKind::For { init, condition, update, body })
    }

    /// Statements between commas, up to a token that ends them.
    fn loop_statements(&mut self, end: &str, declarations: bool) -> Parse<Vec<Statement>> {
        let mut statements = Vec::new();
        while !self.at(end) {
            let start = self.token().span;
            let kind = if declarations && (self.at("@") || self.at_variable()) {
                StatementKind::Declaration(Box::new(self.variable_without_semicolon()?))
            } else {
                self.assignment_or_call()?
            };
            statements.push(Statement { kind, span: self.since(start) });
            if !self.eat(",") {
                break;
            }
        }
        Ok(statements)
    }
}
