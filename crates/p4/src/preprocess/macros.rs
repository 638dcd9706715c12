//! Macros: definitions, and their expansion.
//!
//! Invariants:
//! - A macro is not expanded within its own expansion: each token carries the macros that it came from.
//! - Tokens of an expansion have the span of the outermost use.
//! - Expansions of a program produce at most [`BUDGET`] bytes, each token counted with [`TOKEN_BYTES`]; uses nest at
//!   most [`DEEPEST`] levels. Beyond that, macros stay unexpanded after an error.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::lex::{Lexer, Token, TokenKind};
use crate::source::{Sources, Span};

/// Most bytes that expansions produce.
const BUDGET: usize = 32 << 20;
/// Bytes that a token counts for besides its text.
const TOKEN_BYTES: usize = 64;
/// Deepest nesting of uses, in arguments or in definitions.
const DEEPEST: usize = 100;

/// Most parameters of a macro.
const MOST_PARAMS: usize = 127;

struct Macro {
    /// Parameters, if it takes arguments.
    params: Option<Params>,
    body: Vec<Token>,
    /// Place of its name in the definition.
    span: Span,
}

/// Parameters of a macro.
#[derive(Default, PartialEq)]
struct Params {
    names: Vec<Arc<str>>,
    /// Whether the last one takes all further arguments.
    variadic: bool,
}

/// Macros that a token came from: a list from the innermost to the outermost.
type Origin = Option<Rc<Use>>;

struct Use {
    name: Arc<str>,
    outer: Origin,
    depth: usize,
}

/// A token with its origin.
#[derive(Clone)]
struct Piece {
    token: Token,
    origin: Origin,
}

/// Tokens to expand: those of expansions, which are scanned again, and then those of a file.
struct Input<'a> {
    /// In reverse order.
    pending: Vec<Piece>,
    lexer: Option<&'a mut Lexer>,
}

impl Input<'_> {
    fn next(&mut self) -> Option<Piece> {
        if let Some(piece) = self.pending.pop() {
            return Some(piece);
        }
        let lexer = self.lexer.as_deref_mut()?;
        let before = lexer.clone();
        let token = lexer.token()?;
        if token.is("#") && token.starts_line {
            // Directives end what macros may take as arguments.
            *lexer = before;
            return None;
        }
        Some(Piece { token, origin: None })
    }

    /// Takes the next token if it opens a list of arguments.
    fn open(&mut self) -> bool {
        match self.next() {
            Some(piece) if piece.token.is("(") => true,
            Some(piece) => {
                self.pending.push(piece);
                false
            }
            None => false,
        }
    }
}

/// Macros that are defined, and what expansions may still produce.
#[derive(Default)]
pub(super) struct Macros {
    defined: HashMap<Arc<str>, Rc<Macro>>,
    produced: usize,
    exhausted: bool,
}

/// Files and messages that an expansion needs.
struct Context<'a> {
    sources: &'a Sources,
    diagnostics: &'a mut Diagnostics,
}

impl Macros {
    /// Defines a macro by the rest of the line.
    pub(super) fn define(&mut self, lexer: &mut Lexer, diagnostics: &mut Diagnostics) {
        let line: Vec<Token> = std::iter::from_fn(|| lexer.token_of_line()).collect();
        let Some((name, rest)) = line.split_first() else {
            diagnostics.push(Diagnostic::error(lexer.place(), "expected the name of a macro"));
            return;
        };
        if !name.is_word() || name.is("defined") {
            let message = format!("`{}` cannot be the name of a macro", name.text);
            diagnostics.push(Diagnostic::error(name.span, message).expected("expected a name"));
            return;
        }
        let mut definition = Macro { params: None, body: rest.to_vec(), span: name.span };
        if rest.first().is_some_and(|t| t.is("(") && t.joined) {
            match parameters(rest.get(1..).unwrap_or(&[])) {
                Ok((params, taken)) => {
                    definition.body = rest.get(1 + taken..).unwrap_or(&[]).to_vec();
                    definition.params = Some(params);
                }
                Err(wrong) => {
                    let span = wrong.map_or_else(|| lexer.place(), |t| t.span);
                    let message = format!("list of parameters of macro `{}` is malformed", name.text);
                    let error = Diagnostic::error(span, message)
                        .expected(format!("expected at most {MOST_PARAMS} names between `,`, then `)`"));
                    diagnostics.push(error);
                    return;
                }
            }
        }
        if let Some(earlier) = self.defined.get(&name.text).filter(|earlier| !earlier.equals(&definition)) {
            let message = format!("macro `{}` is defined again, differently", name.text);
            let warning = Diagnostic::warning(name.span, message).also(earlier.span, "defined here before");
            diagnostics.push(warning.help(format!("write `#undef {}` before", name.text)));
        }
        self.defined.insert(name.text.clone(), Rc::new(definition));
    }

    /// Removes a macro.
    pub(super) fn remove(&mut self, name: &str) {
        self.defined.remove(name);
    }

    /// Whether a macro has this name.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.defined.contains_key(name) || matches!(name, "__FILE__" | "__LINE__")
    }

    /// Replaces `defined NAME` and `defined(NAME)` by 1 or 0. Malformed ones stay.
    pub(super) fn resolve_defined(&self, line: Vec<Token>) -> Vec<Token> {
        let mut resolved = Vec::with_capacity(line.len());
        let mut rest = line.as_slice();
        while let Some((first, behind)) = rest.split_first() {
            let (name, taken) = match behind {
                _ if !first.is("defined") => (None, 0),
                [open, name, close, ..] if open.is("(") && close.is(")") => (Some(name), 3),
                [name, ..] => (Some(name), 1),
                [] => (None, 0),
            };
            match name.filter(|n| n.is_word()) {
                Some(name) => {
                    let text = if self.is_defined(&name.text) { "1" } else { "0" };
                    resolved.push(Token { kind: TokenKind::Integer, text: text.into(), ..first.clone() });
                    rest = behind.get(taken..).unwrap_or(&[]);
                }
                None => {
                    resolved.push(first.clone());
                    rest = behind;
                }
            }
        }
        resolved
    }

    /// Expands the tokens of a directive.
    pub(super) fn expand_line(
        &mut self,
        line: Vec<Token>,
        sources: &Sources,
        diagnostics: &mut Diagnostics,
    ) -> Vec<Token> {
        let pending = line.into_iter().rev().map(|token| Piece { token, origin: None }).collect();
        let mut input = Input { pending, lexer: None };
        let pieces = self.run(&mut input, 0, &mut Context { sources, diagnostics });
        pieces.into_iter().map(|piece| piece.token).collect()
    }

    /// Expands a token of a file, with those behind it that are arguments.
    pub(super) fn expand(
        &mut self,
        token: Token,
        lexer: &mut Lexer,
        sources: &Sources,
        diagnostics: &mut Diagnostics,
        output: &mut Vec<Token>,
    ) {
        if !(token.is_word() && self.is_defined(&token.text)) {
            output.push(token);
            return;
        }
        let context = &mut Context { sources, diagnostics };
        let mut input = Input { pending: vec![Piece { token, origin: None }], lexer: Some(lexer) };
        while let Some(piece) = input.pending.pop() {
            if let Some(piece) = self.step(piece, &mut input, 0, context) {
                output.push(piece.token);
            }
        }
    }

    /// Expands all of an input.
    fn run(&mut self, input: &mut Input<'_>, depth: usize, context: &mut Context<'_>) -> Vec<Piece> {
        let mut output = Vec::new();
        while let Some(piece) = input.next() {
            output.extend(self.step(piece, input, depth, context));
        }
        output
    }

    /// Expands a token into the input if it is a macro's use, or returns it.
    fn step(
        &mut self,
        piece: Piece,
        input: &mut Input<'_>,
        depth: usize,
        context: &mut Context<'_>,
    ) -> Option<Piece> {
        if !piece.token.is_word() || self.exhausted {
            return Some(piece);
        }
        let Some(definition) = self.defined.get(&piece.token.text).cloned() else {
            if &*piece.token.text == "__LINE__" {
                // Lines are counted from the file's start.
                self.charge(piece.token.span.start as usize / TOKEN_BYTES, piece.token.span, context);
            }
            return Some(place(piece, context.sources));
        };
        if comes_from(&piece.origin, &piece.token.text) {
            return Some(piece);
        }
        let level = piece.origin.as_ref().map_or(0, |o| o.depth) + 1;
        if level.max(depth) > DEEPEST {
            let message = format!("uses of macros nest more than {DEEPEST} levels");
            self.give_up(piece.token.span, message, context);
            return Some(piece);
        }
        let mut span = piece.token.span;
        let mut arguments = Vec::new();
        if let Some(params) = &definition.params {
            if !input.open() {
                return Some(piece);
            }
            let Some((found, close)) = take_arguments(input) else {
                let message = format!("arguments of macro `{}` have no end", piece.token.text);
                let error = Diagnostic::error(span, message).expected("expected `)`");
                context.diagnostics.push(error);
                return None;
            };
            if piece.origin.is_none() {
                span = span.to(close);
            }
            // Arguments are expanded as copies.
            self.charge(found.iter().map(|pieces| pieces.len() * TOKEN_BYTES).sum(), span, context);
            arguments = match fit(found, params) {
                Ok(arguments) => arguments,
                Err(count) => {
                    let wanted = params.names.len();
                    let message = format!(
                        "macro `{}` takes {wanted} argument{} (found {count})",
                        piece.token.text,
                        if wanted == 1 { "" } else { "s" }
                    );
                    let error = Diagnostic::error(span, message).also(definition.span, "defined here");
                    context.diagnostics.push(error);
                    return None;
                }
            };
        }
        let origin =
            Some(Rc::new(Use { name: piece.token.text.clone(), outer: piece.origin.clone(), depth: level }));
        let mut result = self.substitute(&definition, arguments, &origin, depth, span, context);
        for piece in &mut result {
            piece.token.span = span;
            piece.token.starts_line = false;
        }
        if let Some(first) = result.first_mut() {
            first.token.starts_line = piece.token.starts_line;
            first.token.joined = piece.token.joined;
        }
        let bytes: usize = result.iter().map(|p| p.token.text.len() + TOKEN_BYTES).sum();
        self.charge(bytes, span, context);
        if !self.exhausted {
            input.pending.extend(result.into_iter().rev());
        }
        None
    }

    /// Counts what an expansion produces.
    fn charge(&mut self, bytes: usize, span: Span, context: &mut Context<'_>) {
        self.produced = self.produced.saturating_add(bytes);
        if self.produced > BUDGET {
            let message = format!("macros expand to more than {} tokens", BUDGET / TOKEN_BYTES);
            self.give_up(span, message, context);
        }
    }

    fn give_up(&mut self, span: Span, message: String, context: &mut Context<'_>) {
        if !std::mem::replace(&mut self.exhausted, true) {
            context.diagnostics.push(Diagnostic::error(span, message));
        }
    }

    /// The body with the arguments in the places of parameters.
    fn substitute(
        &mut self,
        definition: &Macro,
        arguments: Vec<Vec<Piece>>,
        origin: &Origin,
        depth: usize,
        span: Span,
        context: &mut Context<'_>,
    ) -> Vec<Piece> {
        let params = definition.params.as_ref().map_or(&[][..], |p| p.names.as_slice());
        let argument = |token: &Token| {
            let at = params.iter().position(|p| token.is_word() && *p == token.text)?;
            arguments.get(at).map(|pieces| (at, pieces))
        };
        let mut expanded: HashMap<usize, Vec<Piece>> = HashMap::new();
        let mut result: Vec<Piece> = Vec::new();
        let mut body = definition.body.iter().peekable();
        // Whether the next operand is pasted to the end of the result, and whether there is an end to paste it to.
        let mut paste = false;
        let mut has_left = false;
        while let Some(token) = body.next() {
            if self.exhausted {
                break;
            }
            if token.is("##") {
                paste = true;
                continue;
            }
            let pasted_next = body.peek().is_some_and(|t| t.is("##"));
            let operand: Vec<Piece> = if token.is("#") && definition.params.is_some() {
                match body.peek().and_then(|t| argument(t)) {
                    Some((_, pieces)) => {
                        body.next();
                        let text: Vec<Token> = pieces.iter().map(|p| p.token.clone()).collect();
                        let quoted = spell(&text).replace('\\', "\\\\").replace('"', "\\\"");
                        let text = format!("\"{quoted}\"").into();
                        let token = Token { kind: TokenKind::String, text, ..token.clone() };
                        vec![Piece { token, origin: origin.clone() }]
                    }
                    None => vec![Piece { token: token.clone(), origin: origin.clone() }],
                }
            } else if let Some((at, pieces)) = argument(token) {
                let mut pieces = if paste || pasted_next {
                    pieces.clone()
                } else if let Some(known) = expanded.get(&at) {
                    known.clone()
                } else {
                    let pending = pieces.iter().rev().cloned().collect();
                    let known = self.run(&mut Input { pending, lexer: None }, depth + 1, context);
                    expanded.insert(at, known.clone());
                    known
                };
                for piece in &mut pieces {
                    piece.origin = add(&piece.origin, origin);
                }
                if let Some(first) = pieces.first_mut() {
                    first.token.joined = token.joined;
                }
                pieces
            } else {
                vec![Piece { token: token.clone(), origin: origin.clone() }]
            };
            let mut operand = operand.into_iter();
            let has_operand = operand.len() > 0;
            if std::mem::take(&mut paste) && has_left {
                if let (Some(right), Some(left)) = (operand.next(), result.pop()) {
                    result.push(self.pasted(left, right, span, context));
                }
                has_left |= has_operand;
            } else {
                has_left = has_operand;
            }
            let before = result.len();
            result.extend(operand);
            let added = result.get(before..).unwrap_or(&[]);
            let bytes = added.iter().map(|p| p.token.text.len() + TOKEN_BYTES).sum();
            self.charge(bytes, span, context);
        }
        result
    }

    /// One token from the spellings of two.
    fn pasted(&mut self, left: Piece, right: Piece, span: Span, context: &mut Context<'_>) -> Piece {
        let text: Arc<str> = format!("{}{}", left.token.text, right.token.text).into();
        self.charge(text.len(), span, context);
        let mut lexer = Lexer::new(span.file, text.clone());
        match (lexer.token(), lexer.token()) {
            (Some(token), None) => {
                Piece { token: Token { joined: left.token.joined, ..token }, origin: left.origin }
            }
            _ => {
                let message =
                    format!("`{}` and `{}` do not make one token", left.token.text, right.token.text);
                context.diagnostics.push(Diagnostic::error(span, message));
                left
            }
        }
    }
}

impl Macro {
    fn equals(&self, other: &Macro) -> bool {
        let same = |(a, b): (&Token, &Token)| a.kind == b.kind && a.text == b.text;
        self.params == other.params
            && self.body.len() == other.body.len()
            && self.body.iter().zip(&other.body).all(same)
    }
}

/// Parameters up to the closing bracket, and the number of their tokens; or the first token that does not fit.
fn parameters(tokens: &[Token]) -> Result<(Params, usize), Option<&Token>> {
    let mut params = Params::default();
    let mut at = 0;
    if tokens.first().is_some_and(|t| t.is(")")) {
        return Ok((params, 1));
    }
    loop {
        match tokens.get(at) {
            other if params.names.len() >= MOST_PARAMS => return Err(other),
            Some(token) if token.is("...") => {
                params.names.push("__VA_ARGS__".into());
                params.variadic = true;
            }
            Some(token) if token.is_word() && !params.names.contains(&token.text) => {
                params.names.push(token.text.clone());
            }
            other => return Err(other),
        }
        at += 1;
        match tokens.get(at) {
            Some(token) if token.is(")") => return Ok((params, at + 1)),
            Some(token) if token.is(",") && !params.variadic => at += 1,
            other => return Err(other),
        }
    }
}

/// Arguments up to the closing bracket, and its place; none if it is missing.
fn take_arguments(input: &mut Input<'_>) -> Option<(Vec<Vec<Piece>>, Span)> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 0_usize;
    loop {
        let piece = input.next()?;
        if piece.token.is("(") {
            depth += 1;
        } else if piece.token.is(")") {
            if depth == 0 {
                return Some((arguments, piece.token.span));
            }
            depth -= 1;
        } else if piece.token.is(",") && depth == 0 {
            arguments.push(Vec::new());
            continue;
        }
        if let Some(last) = arguments.last_mut() {
            last.push(piece);
        }
    }
}

/// Arguments as the parameters take them, or their number if it is wrong.
fn fit(mut found: Vec<Vec<Piece>>, params: &Params) -> Result<Vec<Vec<Piece>>, usize> {
    let (wanted, variadic) = (params.names.len(), params.variadic);
    if wanted == 0 && matches!(found.as_slice(), [only] if only.is_empty()) {
        found.clear();
    }
    if variadic && found.len() > wanted {
        let further = found.split_off(wanted);
        for argument in further {
            if let Some(last) = found.last_mut() {
                if let Some(like) = argument.first().or(last.last()).cloned() {
                    let comma =
                        Token { kind: TokenKind::Punct, text: ",".into(), joined: true, ..like.token };
                    last.push(Piece { token: comma, origin: like.origin });
                }
                last.extend(argument);
            }
        }
    }
    if variadic && found.len() + 1 == wanted {
        found.push(Vec::new());
    }
    if found.len() == wanted { Ok(found) } else { Err(found.len()) }
}

/// Whether a macro is among those that a token came from.
fn comes_from(origin: &Origin, name: &str) -> bool {
    std::iter::successors(origin.as_deref(), |u| u.outer.as_deref()).any(|u| &*u.name == name)
}

/// Origin of an argument's token in an expansion: its own and the expansion's.
fn add(own: &Origin, expansion: &Origin) -> Origin {
    let (Some(own), Some(outer)) = (own, expansion) else { return expansion.clone() };
    // The levels of the expansion's macro only: those that it came from are in its own list.
    if comes_from(&Some(own.clone()), &outer.name) {
        return Some(own.clone());
    }
    let depth = own.depth + 1;
    Some(Rc::new(Use { name: outer.name.clone(), outer: Some(own.clone()), depth }))
}

/// `__FILE__` and `__LINE__` by their values.
fn place(piece: Piece, sources: &Sources) -> Piece {
    let (kind, text) = match &*piece.token.text {
        "__LINE__" => (TokenKind::Integer, sources.line(piece.token.span).0.to_string()),
        "__FILE__" => {
            let name = sources.get(piece.token.span.file).map_or("", |f| &f.name);
            (TokenKind::String, format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")))
        }
        _ => return piece,
    };
    Piece { token: Token { kind, text: text.into(), ..piece.token }, ..piece }
}

/// The text of tokens with the white space between them.
pub(super) fn spell(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        if !text.is_empty() && !token.joined {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    text
}
