//! Looking ahead: where types and brackets end, without parsing them. Positions count from the next token.
//!
//! Pairs of brackets are known beforehand, and other scans are bounded, so that a look ahead costs little.

use super::Parser;
use super::names::Meaning;
use crate::lex::{Token, TokenKind};

/// Types that are words.
const BASE_TYPES: &[&str] =
    &["bit", "bool", "error", "int", "match_kind", "string", "tuple", "varbit", "void"];

/// Most tokens in a list of type arguments, brackets within it counted as one.
const MOST_TYPE_TOKENS: usize = 1000;

/// For each opening bracket, the position of the one that closes it; 0 for other tokens, and if none does.
pub(super) fn closers(tokens: &[Token]) -> Vec<usize> {
    const PAIRS: [(&str, &str); 3] = [("(", ")"), ("[", "]"), ("{", "}")];
    let mut closers = vec![0; tokens.len()];
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut count = [0_usize; PAIRS.len()];
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.kind == TokenKind::Punct) {
        for (kind, (opens, closes)) in PAIRS.iter().enumerate() {
            if token.is(opens) {
                open.push((at, kind));
                count[kind] += 1;
            } else if token.is(closes) && count[kind] > 0 {
                // Brackets that are open within those that close are not closed.
                while let Some((opener, other)) = open.pop() {
                    count[other] -= 1;
                    if other == kind {
                        closers[opener] = at;
                        break;
                    }
                }
            }
        }
    }
    closers
}

pub(super) fn is_base_type(token: &Token) -> bool {
    token.kind == TokenKind::Keyword && BASE_TYPES.contains(&&*token.text)
}

impl Parser<'_> {
    /// Position behind a type at a position.
    pub(super) fn scan_type(&self, from: usize) -> Option<usize> {
        let mut at = from;
        let base = self.peek(at);
        if is_base_type(base) {
            at += 1;
            if self.peek(at).is("<") && !base.is("tuple") {
                at = self.scan_width(at)?;
            }
        } else {
            at += usize::from(self.peek(at).is("."));
            if self.peek(at).kind != TokenKind::Identifier {
                return None;
            }
            at += 1;
        }
        if self.peek(at).is("<") {
            at = self.scan_type_arguments(at)?;
        }
        while self.peek(at).is("[") {
            at = self.scan_brackets(at)?;
        }
        Some(at)
    }

    /// Position behind the bracket that closes the one at a position.
    pub(super) fn scan_brackets(&self, from: usize) -> Option<usize> {
        let closer = self.closers.get(self.at + from)?;
        (closer + 1).checked_sub(self.at).filter(|_| *closer > 0)
    }

    /// Position behind the `>` that closes the `<` at a position, if only type arguments are between them.
    pub(super) fn scan_type_arguments(&self, from: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = from;
        for _ in 0..MOST_TYPE_TOKENS {
            let token = self.peek(at);
            if token.is("<") {
                depth += 1;
            } else if token.is(">") {
                depth = depth.checked_sub(1)?;
            } else if token.is("[") {
                at = self.scan_brackets(at)?;
                continue;
            } else if ["bit", "int", "varbit"].iter().any(|t| token.is(t)) && self.peek(at + 1).is("<") {
                at = self.scan_width(at + 1)?;
                continue;
            } else {
                let fits = token.kind == TokenKind::Identifier
                    || is_base_type(token)
                    || [",", ".", "_"].iter().any(|t| token.is(t));
                if !fits {
                    return None;
                }
            }
            at += 1;
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// Position behind the `>` that closes the width that the `<` at a position opens.
    fn scan_width(&self, from: usize) -> Option<usize> {
        let mut at = from + 1;
        for _ in 0..MOST_TYPE_TOKENS {
            let token = self.peek(at);
            if token.is(">") {
                return Some(at + 1);
            }
            if token.kind == TokenKind::End || [";", "{", "}", ")", "]"].iter().any(|t| token.is(t)) {
                return None;
            }
            at = if token.is("(") || token.is("[") { self.scan_brackets(at)? } else { at + 1 };
        }
        None
    }

    /// Whether the `<` at a position can open type arguments: the first of them is not known to be a value.
    pub(super) fn opens_type_arguments(&self, at: usize) -> bool {
        let first = self.peek(at + 1);
        let global = first.is(".");
        let first = if global { self.peek(at + 2) } else { first };
        match first.kind {
            TokenKind::Identifier => self.names.look_up(&first.text, global) != Some(Meaning::Value),
            TokenKind::Keyword => is_base_type(first) || first.is("_"),
            _ => first.is(">"),
        }
    }

    /// Whether a name at a position, with a leading dot or not, is that of a type, a value, or unknown.
    pub(super) fn meaning(&self, at: usize) -> Option<Meaning> {
        let global = self.peek(at).is(".");
        self.names.look_up(&self.peek(at + usize::from(global)).text, global)
    }

    /// Whether a declaration of a variable comes next: a type, then a name.
    pub(super) fn at_variable(&self) -> bool {
        if self.token().kind == TokenKind::Keyword {
            return is_base_type(self.token());
        }
        let Some(behind) = self.scan_type(0) else { return false };
        // A known value before a name: a `;` or an operator is missing.
        let plain = behind == 1 && self.meaning(0) == Some(Meaning::Value);
        !plain && self.peek(behind).kind == TokenKind::Identifier
    }

    /// Whether an instantiation comes next: a type, arguments, then a name.
    pub(super) fn at_instance(&self) -> bool {
        let behind =
            self.scan_type(0).filter(|&at| self.peek(at).is("(")).and_then(|at| self.scan_brackets(at));
        behind.is_some_and(|at| {
            let name = self.peek(at);
            name.kind == TokenKind::Identifier && (self.peek(at + 1).is(";") || self.peek(at + 1).is("="))
        })
    }

    /// Whether a `(` opens a cast: a type in brackets comes next, before an operand.
    pub(super) fn at_cast(&self) -> bool {
        let Some(behind) = self.scan_type(1).filter(|&at| self.peek(at).is(")")) else { return false };
        let plain = behind == 2 + usize::from(self.peek(1).is("."));
        if is_base_type(self.peek(1)) || (!plain && self.meaning(1) != Some(Meaning::Value)) {
            return true;
        }
        match self.meaning(1) {
            Some(meaning) => plain && meaning == Meaning::Type,
            // Only an operand can follow a cast, only an operator an operand.
            None => {
                let next = self.peek(behind + 1);
                matches!(next.kind, TokenKind::Identifier | TokenKind::Integer | TokenKind::String)
                    || ["{", "!", "~", "true", "false", "this"].iter().any(|t| next.is(t))
            }
        }
    }
}
