//! Expressions of `#if`: 64-bit integers, as in C. Macros are expanded and `defined` is resolved before.

use num_traits::ToPrimitive;

use crate::diagnostic::Diagnostic;
use crate::lex::{self, Token, TokenKind};
use crate::source::Span;

/// Deepest nesting of an expression.
const DEEPEST: usize = 100;

/// Value of an expression that is a whole line.
pub(super) fn evaluate(tokens: &[Token], directive: Span) -> Result<i64, Diagnostic> {
    let mut reader = Reader { tokens, at: 0, end: tokens.last().map_or(directive, |t| t.span), depth: 0 };
    let value = reader.ternary()?;
    match reader.tokens.get(reader.at) {
        None => Ok(value),
        Some(_) => Err(reader.unexpected("an operator")),
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    end: Span,
    depth: usize,
}

impl Reader<'_> {
    fn unexpected(&self, expected: &str) -> Diagnostic {
        match self.tokens.get(self.at) {
            Some(token) => {
                let message = format!("`{}` in the condition (expected {expected})", token.text);
                Diagnostic::error(token.span, message)
            }
            None => Diagnostic::error(self.end, format!("condition ends early (expected {expected})")),
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|t| t.is(text));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), Diagnostic> {
        if self.eat(text) { Ok(()) } else { Err(self.unexpected(&format!("`{text}`"))) }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Diagnostic>) -> Result<T, Diagnostic> {
        if self.depth >= DEEPEST {
            return Err(Diagnostic::error(
                self.end,
                format!("condition is nested more than {DEEPEST} levels"),
            ));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn ternary(&mut self) -> Result<i64, Diagnostic> {
        let condition = self.binary(1)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let chosen = self.nested(Self::ternary)?;
        self.expect(":")?;
        let other = self.nested(Self::ternary)?;
        Ok(if condition != 0 { chosen } else { other })
    }

    /// The operator that comes next, its precedence and its number of tokens.
    fn operator(&self) -> Option<(&'static str, u8, usize)> {
        const OPERATORS: &[(&str, u8)] = &[
            ("||", 1),
            ("&&", 2),
            ("|", 3),
            ("^", 4),
            ("&", 5),
            ("==", 6),
            ("!=", 6),
            ("<=", 7),
            (">=", 7),
            ("<<", 8),
            ("<", 7),
            (">", 7),
            ("+", 9),
            ("-", 9),
            ("*", 10),
            ("/", 10),
            ("%", 10),
        ];
        let token = self.tokens.get(self.at)?;
        if token.is(">") && self.tokens.get(self.at + 1).is_some_and(|t| t.is(">") && t.joined) {
            return Some((">>", 8, 2));
        }
        OPERATORS.iter().find(|(text, _)| token.is(text)).map(|&(text, precedence)| (text, precedence, 1))
    }

    fn binary(&mut self, least: u8) -> Result<i64, Diagnostic> {
        let mut left = self.unary()?;
        while let Some((operator, precedence, tokens)) = self.operator().filter(|o| o.1 >= least) {
            let span = self.tokens.get(self.at).map_or(self.end, |t| t.span);
            self.at += tokens;
            let right = self.binary(precedence + 1)?;
            left = match operator {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "<<" => u32::try_from(right).ok().and_then(|by| left.checked_shl(by)).unwrap_or(0),
                ">>" => left >> right.clamp(0, 63),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                _ if right == 0 => return Err(Diagnostic::error(span, "division by zero in the condition")),
                "/" => left.wrapping_div(right),
                _ => left.wrapping_rem(right),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<i64, Diagnostic> {
        if self.eat("!") {
            return Ok(i64::from(self.nested(Self::unary)? == 0));
        }
        if self.eat("-") {
            return Ok(self.nested(Self::unary)?.wrapping_neg());
        }
        if self.eat("+") {
            return self.nested(Self::unary);
        }
        if self.eat("~") {
            return Ok(!self.nested(Self::unary)?);
        }
        if self.eat("(") {
            let value = self.nested(Self::ternary)?;
            self.expect(")")?;
            return Ok(value);
        }
        match self.tokens.get(self.at) {
            Some(token) if token.kind == TokenKind::Integer => {
                let (value, _) = lex::integer(&token.text).map_err(|m| Diagnostic::error(token.span, m))?;
                self.at += 1;
                value.to_i64().ok_or_else(|| Diagnostic::error(token.span, "integer has more than 64 bits"))
            }
            // A word that is no macro counts as 0.
            Some(token) if token.is_word() => {
                self.at += 1;
                Ok(i64::from(token.is("true")))
            }
            _ => Err(self.unexpected("an integer")),
        }
    }
}
