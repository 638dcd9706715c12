//! The parser: tokens into the syntax tree, by recursive descent.
//!
//! The grammar depends on which names are types: `f<T>(x)` may be a call or two comparisons, `(T) -x` a cast or a
//! difference. `names` therefore follows the declarations.
//!
//! Invariants:
//! - Nothing is deeper than [`DEEPEST`] levels: neither the recursion nor the tree, whose chains of operators count.
//! - After an error, parsing goes on behind the statement, member or declaration that contains it.
//! - A `Failed` is returned only after an error was pushed.

mod annotations;
mod declarations;
mod expressions;
mod names;
mod scan;
mod statements;
mod tables;
mod types;

use std::io;
use std::path::Path;

use crate::ast::{Name, Program};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::lex::{Token, TokenKind};
use crate::preprocess::{self, Options};
use crate::similar::similar;
use crate::source::{Sources, Span};
use declarations::Place;
use names::Names;

/// Deepest nesting of a program.
pub const DEEPEST: usize = 200;

/// A program as it was read.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// The program behind the preprocessor.
    pub tokens: Vec<Token>,
    /// Syntax tree; without what could not be parsed.
    pub program: Program,
    /// Files.
    pub sources: Sources,
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
}

/// Reads and parses a program's file.
pub fn file(path: &Path, options: &Options) -> io::Result<Parsed> {
    let mut parsed = Parsed::default();
    parsed.tokens = preprocess::load(path, options, &mut parsed.sources, &mut parsed.diagnostics)?;
    parsed.program = program(&parsed.tokens, &mut parsed.diagnostics);
    Ok(parsed)
}

/// Parses a program given as text; see [`preprocess::load_text`].
pub fn text(name: &str, text: &str, options: &Options) -> Parsed {
    let mut parsed = Parsed::default();
    parsed.tokens = preprocess::load_text(name, text, options, &mut parsed.sources, &mut parsed.diagnostics);
    parsed.program = program(&parsed.tokens, &mut parsed.diagnostics);
    parsed
}

/// Parses a program.
pub fn program(tokens: &[Token], diagnostics: &mut Diagnostics) -> Program {
    let place = tokens.last().map_or_else(Span::default, |t| Span { start: t.span.end, ..t.span });
    let end = Token { kind: TokenKind::End, text: "".into(), span: place, starts_line: true, joined: false };
    let mut parser = Parser {
        tokens,
        end: &end,
        closers: scan::closers(tokens),
        at: 0,
        diagnostics,
        names: Names::default(),
        depth: 0,
        height: 0,
        braces: 0,
        unclosed: None,
        in_width: false,
        in_parser: false,
        ahead: Vec::new(),
    };
    parser.program()
}

/// An error was reported.
#[derive(Debug)]
struct Failed;

type Parse<T> = Result<T, Failed>;

struct Parser<'a> {
    tokens: &'a [Token],
    end: &'a Token,
    /// For each opening bracket, the position of the one that closes it, or 0.
    closers: Vec<usize>,
    at: usize,
    diagnostics: &'a mut Diagnostics,
    names: Names,
    /// Levels above what is being parsed.
    depth: usize,
    /// Levels of what was parsed on the current level.
    height: usize,
    /// Braces that are open.
    braces: usize,
    /// Where a block was found to end without its brace, and the blocks around it, too.
    unclosed: Option<usize>,
    /// Whether a `>` closes the width of a type, and is no operator.
    in_width: bool,
    /// Whether statements are those of a parser.
    in_parser: bool,
    /// Types declared within a `typedef`, which precede it.
    ahead: Vec<crate::ast::Declaration>,
}

impl<'a> Parser<'a> {
    fn program(&mut self) -> Program {
        let mut program = Program::default();
        while !self.at_end() {
            if self.eat(";") {
                continue;
            }
            let (before, level) = (self.at, self.braces);
            if self.at("}") {
                self.diagnostics.push(Diagnostic::error(self.token().span, "`}` closes nothing"));
                self.bump();
                continue;
            }
            let declaration = self.declaration(Place::TopLevel);
            program.declarations.append(&mut self.ahead);
            match declaration {
                Ok(declaration) => program.declarations.push(declaration),
                Err(Failed) => self.recover(level, before),
            }
        }
        program
    }

    /// The token at a distance from the next one.
    fn peek(&self, distance: usize) -> &'a Token {
        self.tokens.get(self.at.saturating_add(distance)).unwrap_or(self.end)
    }

    /// The next token.
    fn token(&self) -> &'a Token {
        self.peek(0)
    }

    fn at(&self, text: &str) -> bool {
        self.token().is(text)
    }

    fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    fn bump(&mut self) -> &'a Token {
        let token = self.token();
        if token.is("{") {
            self.braces += 1;
        } else if token.is("}") {
            self.braces = self.braces.saturating_sub(1);
        }
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.at(text);
        if found {
            self.bump();
        }
        found
    }

    /// Place of the previous token.
    fn previous(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(self.end.span, |t| t.span)
    }

    /// The place right behind the previous token.
    fn behind(&self) -> Span {
        let previous = self.previous();
        Span { start: previous.end, ..previous }
    }

    /// The place from a token to the previous one.
    fn since(&self, start: Span) -> Span {
        start.to(self.previous())
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Parse<T> {
        self.diagnostics.push(diagnostic);
        Err(Failed)
    }

    /// The error that the next token is not what was expected.
    fn unexpected(&self, expected: &str) -> Diagnostic {
        let token = self.token();
        let found = match token.kind {
            TokenKind::End => "the end of the program".to_owned(),
            TokenKind::Keyword => format!("keyword `{}`", token.text),
            TokenKind::Unknown if token.text.starts_with("/*") => {
                let span = Span { end: token.span.start + 2, ..token.span };
                return Diagnostic::error(span, "comment is not closed").help("add `*/`");
            }
            TokenKind::Unknown if token.text.starts_with('"') => {
                return Diagnostic::error(token.span, "string is not closed").help("add `\"`");
            }
            TokenKind::Unknown if token.text.chars().any(char::is_control) => {
                format!("unknown character `{}`", token.text.escape_unicode())
            }
            TokenKind::Unknown => format!("unknown character `{}`", token.text),
            _ if token.text.chars().count() > 40 => {
                format!("`{}…`", token.text.chars().take(39).collect::<String>())
            }
            _ => format!("`{}`", token.text),
        };
        Diagnostic::error(token.span, format!("expected {expected}, found {found}"))
    }

    fn expect(&mut self, text: &str) -> Parse<()> {
        if self.eat(text) {
            return Ok(());
        }
        let error = self.unexpected(&format!("`{text}`"));
        self.fail(error)
    }

    /// The `;` behind a construct. A missing one is reported; parsing goes on if the next token is on another line.
    fn semicolon(&mut self, construct: &str) -> Parse<()> {
        if self.eat(";") {
            return Ok(());
        }
        let next = self.token();
        let mut error = self.unexpected(&format!("`;` behind {construct}"));
        if next.kind == TokenKind::Unknown || !(next.starts_line || next.is("}") || self.at_end()) {
            return self.fail(error);
        }
        error.label.span = self.behind();
        self.diagnostics.push(error.expected("expected `;`").help("add `;` here"));
        Ok(())
    }

    /// A name. Any identifier is one, and words that are keywords only in some places.
    fn name(&mut self, what: &str) -> Parse<Name> {
        let token = self.token();
        if token.kind == TokenKind::Identifier {
            self.bump();
            return Ok(Name { text: token.text.to_string(), span: token.span });
        }
        let mut error = self.unexpected(what);
        if token.kind == TokenKind::Keyword {
            error = error.help(format!("`{}` is reserved and cannot be a name", token.text));
        }
        self.fail(error)
    }

    /// Parses what is one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        self.depth += 1;
        let siblings = std::mem::take(&mut self.height);
        let result = if self.depth > DEEPEST { self.too_deep() } else { parse(self) };
        self.height = siblings.max(self.height + 1);
        self.depth -= 1;
        result
    }

    /// Puts what was parsed on this level one level deeper: an operator takes it as an operand.
    fn deepen(&mut self) -> Parse<()> {
        self.height += 1;
        if self.depth + self.height > DEEPEST { self.too_deep() } else { Ok(()) }
    }

    fn too_deep<T>(&mut self) -> Parse<T> {
        let message = format!("nested more than {DEEPEST} levels");
        self.fail(Diagnostic::error(self.token().span, message).help("split it into several parts"))
    }

    /// Parses with a scope of its own for names.
    fn scoped<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        let scopes = self.names.open();
        let result = parse(self);
        self.names.close(scopes);
        result
    }

    /// Parses items up to the brace that closes the one at `open`, which was the previous token.
    fn items<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let open = self.previous();
        let level = self.braces;
        let mut items = Vec::new();
        loop {
            if self.eat("}") {
                return Ok(items);
            }
            if self.at_end() || self.starts_top_level() {
                self.close_at_declaration(open, level);
                return Ok(items);
            }
            let before = self.at;
            match item(self) {
                Ok(item) => items.push(item),
                Err(Failed) => self.recover(level, before),
            }
        }
    }

    /// Ends a block whose brace is missing: what comes next is not in blocks. The innermost one stands for those around
    /// it, which end here, too.
    fn close_at_declaration(&mut self, open: Span, level: usize) {
        self.braces = level.saturating_sub(1);
        if self.unclosed.replace(self.at) == Some(self.at) {
            return;
        }
        let mut error = Diagnostic::error(open, "`{` is not closed").help("add `}`");
        if !self.at_end() {
            error = error.also(self.token().span, "this is declared at the top level only");
        }
        self.diagnostics.push(error);
    }

    /// Skips to where parsing can go on after an error: behind the next `;` or block on a level of braces, before the
    /// brace that ends the level, or before what starts a declaration. `before` is where the failed construct starts.
    fn recover(&mut self, level: usize, before: usize) {
        while !self.at_end() {
            if self.at > before && self.starts_top_level() {
                self.braces = level;
                return;
            }
            if self.braces <= level {
                if self.at(";") {
                    self.bump();
                    return;
                }
                if self.at("}") || (self.at > before && self.starts_declaration()) {
                    return;
                }
            }
            let closes = self.at("}");
            self.bump();
            if closes && self.braces <= level {
                self.eat(";");
                return;
            }
        }
    }

    /// Whether the next token starts a line and a declaration.
    fn starts_declaration(&self) -> bool {
        const STARTS: &[&str] = &[
            "action",
            "const",
            "control",
            "enum",
            "extern",
            "header",
            "header_union",
            "package",
            "parser",
            "struct",
            "table",
            "typedef",
        ];
        let token = self.token();
        token.starts_line
            && (STARTS.contains(&&*token.text)
                || (token.is("state") && self.peek(2).is("{"))
                || (token.is("apply") && self.peek(1).is("{")))
    }

    /// Whether the next token starts a line and a declaration that is in no block.
    fn starts_top_level(&self) -> bool {
        const STARTS: &[&str] = &[
            "control",
            "enum",
            "extern",
            "header",
            "header_union",
            "package",
            "parser",
            "struct",
            "typedef",
        ];
        let token = self.token();
        token.starts_line && token.kind == TokenKind::Keyword && STARTS.contains(&&*token.text)
    }

    /// Adds a word that may have been meant to an error.
    fn suggest(&self, error: Diagnostic, word: &str, known: &[&'static str]) -> Diagnostic {
        match similar(word, known.iter().copied()) {
            Some(meant) => error.help(format!("did you mean `{meant}`?")),
            None => error,
        }
    }
}

#[cfg(test)]
mod show;
#[cfg(test)]
mod tests;
