//! Tokens. A position is a line and a column, from 1.

use super::ParseError;
use super::parse::error;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword or a name.
    Word(String),
    /// A name between backquotes.
    Quoted(String),
    /// Digits without a type, decimal or hexadecimal.
    Number(String),
    /// A constant: width, whether it is signed, digits.
    Typed(u16, bool, String),
    /// A punctuation mark.
    Mark(&'static str),
    /// The end.
    End,
}

/// Punctuation marks, longer ones first.
const MARKS: &[&str] = &[
    "&&&", "|+|", "|-|", "+1c", "..", "++", "<<", ">>", "==", "!=", "<=", ">=", "&&", "||", "->", "{", "}",
    "(", ")", "[", "]", "<", ">", ";", ":", ",", ".", "=", "?", "+", "-", "*", "/", "%", "&", "|", "^", "!",
    "~", "$",
];

/// A token with its line and column.
pub(super) type Placed = (Token, u32, u32);

/// Splits a text into tokens; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut found = Vec::new();
    let (mut rest, mut line, mut column) = (text, 1, 1);
    while let Some(first) = rest.chars().next() {
        let (token, len) = match first {
            '\n' => {
                (line, column) = (line + 1, 1);
                rest = &rest[1..];
                continue;
            }
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            c if c.is_whitespace() => (None, c.len_utf8()),
            '`' => {
                let inner = &rest[1..];
                let end = inner.find(['`', '\n']).filter(|end| inner[*end..].starts_with('`'));
                let Some(end) = end else { return Err(error(line, column, "a name without its end")) };
                (Some(Token::Quoted(inner[..end].to_owned())), end + 2)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let len = run(rest);
                (Some(Token::Word(rest[..len].to_owned())), len)
            }
            c if c.is_ascii_digit() => {
                let len = run(rest);
                let Some(token) = number(&rest[..len]) else {
                    return Err(error(line, column, format!("{} is no number", &rest[..len])));
                };
                (Some(token), len)
            }
            c => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                Some(mark) => (Some(Token::Mark(mark)), mark.len()),
                None => return Err(error(line, column, format!("unexpected character {c:?}"))),
            },
        };
        found.extend(token.map(|token| (token, line, column)));
        column += rest[..len].chars().count() as u32;
        rest = &rest[len..];
    }
    found.push((Token::End, line, column));
    Ok(found)
}

/// Length of the letters, digits and underscores at the start.
fn run(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

fn number(text: &str) -> Option<Token> {
    if text.starts_with("0x") || text.bytes().all(|c| c.is_ascii_digit()) {
        return Some(Token::Number(text.to_owned()));
    }
    let at = text.find(['w', 's'])?;
    let width = text[..at].parse().ok()?;
    Some(Token::Typed(width, text[at..].starts_with('s'), text[at + 1..].to_owned()))
}
