//! The preprocessor: includes files, expands macros and chooses between conditional parts, as C's does.
//!
//! Invariants:
//! - Work is bounded: by the depth and number of includes, the size of the text and the size of expansions. A program
//!   that exceeds a bound gets an error, and its tokens end or stay unexpanded.
//! - A program given as text reads no file outside the folders for includes, unless a name in it leads out of them
//!   with `..`.
//! - The last token is the only [`TokenKind::End`].

mod condition;
mod files;
mod macros;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::lex::{Lexer, Token, TokenKind};
use crate::similar::similar;
use crate::source::{FileId, Sources, Span};
use files::Files;
use macros::Macros;

/// Deepest nesting of includes.
const DEEPEST_INCLUDE: usize = 64;
/// Most tokens of a program.
const MOST_TOKENS: usize = 1 << 21;
/// Deepest nesting of conditional parts.
const DEEPEST_CONDITION: usize = 200;

/// What a program is read with.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Folders for includes, searched in order, before the files that the front end brings along.
    pub include: Vec<PathBuf>,
    /// Macros: `NAME`, which is 1 then, or `NAME=VALUE`.
    pub defines: Vec<String>,
}

/// Reads a program's file and what it includes.
pub fn load(
    path: &Path,
    options: &Options,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> io::Result<Vec<Token>> {
    let text = files::read(path)?;
    let file = sources.add(path.display().to_string(), text);
    let folder = path.parent().map(Path::to_path_buf);
    Ok(Preprocessor::new(options, sources, diagnostics).program(file, folder))
}

/// Reads a program given as text, and what it includes. Nothing is included from the folder of a file, nor by an
/// absolute path.
pub fn load_text(
    name: &str,
    text: &str,
    options: &Options,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> Vec<Token> {
    let file = sources.add(name, text);
    Preprocessor::new(options, sources, diagnostics).program(file, None)
}

/// A conditional part that is open.
struct Condition {
    /// Place of the directive that opened it.
    span: Span,
    /// Whether the text belongs to the program.
    active: bool,
    /// Whether a part was chosen, or none may be.
    decided: bool,
    /// Whether `#else` has passed.
    last: bool,
}

struct Preprocessor<'a> {
    sources: &'a mut Sources,
    diagnostics: &'a mut Diagnostics,
    macros: Macros,
    files: Files<'a>,
    output: Vec<Token>,
    /// Whether the program exceeded a bound: the rest is not read.
    stopped: bool,
}

const DIRECTIVES: &[&str] = &[
    "define", "elif", "else", "endif", "error", "if", "ifdef", "ifndef", "include", "line", "pragma",
    "undef", "warning",
];

impl<'a> Preprocessor<'a> {
    fn new(options: &'a Options, sources: &'a mut Sources, diagnostics: &'a mut Diagnostics) -> Self {
        let files = Files::new(&options.include);
        // The program's file is already there, as the first one.
        let definitions = std::iter::once("__mswitch__").chain(options.defines.iter().map(String::as_str));
        let text: String = definitions
            .map(|definition| {
                let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
                format!("#define {}\n", format!("{name} {value}").replace(['\n', '\r'], " "))
            })
            .collect();
        let file = sources.add("<command line>", text);
        let mut this = Self {
            sources,
            diagnostics,
            macros: Macros::default(),
            files,
            output: Vec::new(),
            stopped: false,
        };
        this.file(file, None, 0);
        this
    }

    fn program(mut self, file: FileId, folder: Option<PathBuf>) -> Vec<Token> {
        self.file(file, folder.as_deref(), 0);
        let end = self.sources.get(file).map_or(0, |f| f.text.len());
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        self.output.push(Token {
            kind: TokenKind::End,
            text: "".into(),
            span: Span { file, start: end, end },
            starts_line: true,
            joined: false,
        });
        self.output
    }

    fn error(&mut self, span: Span, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(span, message));
    }

    fn file(&mut self, file: FileId, folder: Option<&Path>, depth: usize) {
        let text: Arc<str> = self.sources.get(file).map_or_else(|| "".into(), |f| f.text.clone());
        let mut lexer = Lexer::new(file, text);
        let mut conditions: Vec<Condition> = Vec::new();
        while !self.stopped {
            if conditions.last().is_some_and(|c| !c.active) && !lexer.skip_to_directive() {
                break;
            }
            let Some(token) = lexer.token() else { break };
            if token.is("#") && token.starts_line {
                self.directive(&mut lexer, &token, &mut conditions, folder, depth);
                continue;
            }
            self.macros.expand(token, &mut lexer, self.sources, self.diagnostics, &mut self.output);
            if self.output.len() > MOST_TOKENS {
                self.error(lexer.place(), format!("program has more than {MOST_TOKENS} tokens"));
                self.stopped = true;
            }
        }
        if self.stopped {
            return;
        }
        for condition in conditions {
            self.diagnostics.push(
                Diagnostic::error(condition.span, "conditional part without `#endif`")
                    .expected("opened here")
                    .help("add `#endif`"),
            );
        }
    }

    fn directive(
        &mut self,
        lexer: &mut Lexer,
        hash: &Token,
        conditions: &mut Vec<Condition>,
        folder: Option<&Path>,
        depth: usize,
    ) {
        let Some(name) = lexer.token_of_line() else { return };
        let span = hash.span.to(name.span);
        let active = conditions.last().is_none_or(|c| c.active);
        match &*name.text {
            "if" | "ifdef" | "ifndef" => {
                if conditions.len() >= DEEPEST_CONDITION {
                    self.error(span, format!("more than {DEEPEST_CONDITION} nested conditional parts"));
                    self.stopped = true;
                    return;
                }
                let chosen = active && self.chosen(&name, lexer);
                conditions.push(Condition { span, active: chosen, decided: chosen || !active, last: false });
            }
            "elif" | "else" => {
                let Some(condition) = conditions.last_mut() else {
                    self.error(span, format!("`#{}` without `#if`", name.text));
                    return;
                };
                if condition.last {
                    let opened = condition.span;
                    self.diagnostics.push(
                        Diagnostic::error(span, format!("`#{}` behind `#else`", name.text))
                            .expected("expected `#endif`")
                            .also(opened, "of this part"),
                    );
                    return;
                }
                condition.active = false;
                condition.last = &*name.text == "else";
                if !condition.decided && (condition.last || self.chosen(&name, lexer)) {
                    condition.active = true;
                    condition.decided = true;
                }
            }
            "endif" => {
                if conditions.pop().is_none() {
                    self.error(span, "`#endif` without `#if`");
                }
            }
            _ if !active => {}
            "include" => self.include(lexer, span, folder, depth),
            "define" => self.macros.define(lexer, self.diagnostics),
            "undef" => match lexer.token_of_line() {
                Some(name) if name.is_word() => self.macros.remove(&name.text),
                other => self.error(other.map_or(span, |t| t.span), "expected the name of a macro"),
            },
            "error" | "warning" => {
                let line = rest_of_line(lexer);
                let end = line.last().map_or(span, |t| span.to(t.span));
                let message = format!("#{} {}", name.text, macros::spell(&line));
                let message = message.trim_end();
                self.diagnostics.push(if &*name.text == "error" {
                    Diagnostic::error(end, message)
                } else {
                    Diagnostic::warning(end, message)
                });
            }
            // Other tools' directives, and lines that another preprocessor left.
            "line" | "pragma" | "ident" => {}
            _ if name.kind == TokenKind::Integer => {}
            _ => {
                let mut error = Diagnostic::error(span, format!("unknown directive `#{}`", name.text));
                if let Some(meant) = similar(&name.text, DIRECTIVES.iter().copied()) {
                    error = error.help(format!("a directive with a similar name exists: `#{meant}`"));
                }
                self.diagnostics.push(error);
            }
        }
        while lexer.token_of_line().is_some() {}
    }

    /// Whether `#if`, `#ifdef`, `#ifndef` or `#elif` chooses its part.
    fn chosen(&mut self, name: &Token, lexer: &mut Lexer) -> bool {
        if matches!(&*name.text, "ifdef" | "ifndef") {
            return match lexer.token_of_line() {
                Some(token) if token.is_word() => {
                    self.macros.is_defined(&token.text) == (&*name.text == "ifdef")
                }
                other => {
                    self.error(other.map_or(name.span, |t| t.span), "expected the name of a macro");
                    false
                }
            };
        }
        let line = rest_of_line(lexer);
        let line = self.macros.resolve_defined(line);
        let line = self.macros.expand_line(line, self.sources, self.diagnostics);
        match condition::evaluate(&line, name.span) {
            Ok(value) => value != 0,
            Err(error) => {
                self.diagnostics.push(error);
                false
            }
        }
    }

    fn include(&mut self, lexer: &mut Lexer, directive: Span, folder: Option<&Path>, depth: usize) {
        let Some((name, span, quoted)) = self.included_name(lexer, directive) else { return };
        if depth >= DEEPEST_INCLUDE {
            self.diagnostics
                .push(Diagnostic::error(span, format!("more than {DEEPEST_INCLUDE} nested includes")).help(
                "does a file include itself? Enclose its text in `#ifndef NAME`, `#define NAME`, `#endif`",
            ));
            return;
        }
        match self.files.find(&name, folder.filter(|_| quoted), self.sources) {
            Ok((file, folder)) => self.file(file, folder.as_deref(), depth + 1),
            Err(error) => {
                self.stopped |= error.is_bound;
                let mut diagnostic = Diagnostic::error(span, error.message);
                diagnostic.help = error.help;
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// Name of the file in an `#include`, and whether it is in quotes.
    fn included_name(&mut self, lexer: &mut Lexer, directive: Span) -> Option<(String, Span, bool)> {
        if let Some((name, span)) = lexer.header_name() {
            return Some((name, span, false));
        }
        let mut line = rest_of_line(lexer);
        if line.first().is_some_and(Token::is_word) {
            line = self.macros.expand_line(line, self.sources, self.diagnostics);
        }
        let first = line.first();
        let span = first.map_or(directive, |t| t.span);
        match first {
            Some(token) if token.kind == TokenKind::String => {
                Some((token.text.trim_matches('"').to_owned(), span, true))
            }
            Some(token) if token.is("<") => {
                let name: Vec<Token> = line.into_iter().skip(1).take_while(|t| !t.is(">")).collect();
                Some((name.iter().map(|t| &*t.text).collect(), span, false))
            }
            _ => {
                self.error(span, "expected the name of a file: `\"NAME\"` or `<NAME>`");
                None
            }
        }
    }
}

fn rest_of_line(lexer: &mut Lexer) -> Vec<Token> {
    std::iter::from_fn(|| lexer.token_of_line()).collect()
}

#[cfg(test)]
mod tests;
