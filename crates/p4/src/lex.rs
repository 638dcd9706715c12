//! Tokens: splits the text of a file.
//!
//! Invariants:
//! - Every text can be split. What is no token of P4 becomes [`TokenKind::Unknown`]; the parser reports it if it is
//!   used, and annotations may contain it.
//! - A token keeps its spelling. Values of integers and strings are computed by `integer` and `string`.
//! - `>>` is two tokens, so that `A<B<C>>` needs no special case: the parser joins them in expressions.

use std::sync::Arc;

use num_bigint::BigInt;

use crate::ast::LiteralType;
use crate::source::{FileId, Span};

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Identifier, or a word that is a keyword only in some places: `apply`, `key`, `state`.
    Identifier,
    /// Reserved word.
    Keyword,
    /// Integer.
    Integer,
    /// String with its quotes.
    String,
    /// Operator or punctuation.
    Punct,
    /// Anything else: a foreign character, or the start of an unterminated string or comment.
    Unknown,
    /// End of the program.
    End,
}

/// A token.
#[derive(Debug, Clone)]
pub struct Token {
    /// Kind.
    pub kind: TokenKind,
    /// Spelling.
    pub text: Arc<str>,
    /// Place; of a macro's expansion, the place of the macro's use.
    pub span: Span,
    /// Whether it is the first of its line: `#` starts a directive there, and ends the body of a `@pragma`.
    pub starts_line: bool,
    /// Whether it follows the previous token without white space.
    pub joined: bool,
}

impl Token {
    /// Whether it is this word or operator; never true for strings.
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Identifier | TokenKind::Keyword | TokenKind::Punct)
            && &*self.text == text
    }

    /// Whether it is an identifier or a keyword.
    pub fn is_word(&self) -> bool {
        matches!(self.kind, TokenKind::Identifier | TokenKind::Keyword)
    }
}

/// The text of tokens, on lines as they were.
pub fn text<'t>(tokens: impl IntoIterator<Item = &'t Token>) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut text = String::new();
    for token in tokens.into_iter().filter(|token| token.kind != TokenKind::End) {
        let words = text.ends_with(is_word) && token.text.starts_with(is_word);
        if token.starts_line {
            text.push('\n');
        } else if !token.joined || words {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    text.push('\n');
    text
}

/// Reserved words.
pub(crate) const KEYWORDS: &[&str] = &[
    "_",
    "abstract",
    "action",
    "bit",
    "bool",
    "break",
    "const",
    "continue",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "for",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "match_kind",
    "out",
    "package",
    "parser",
    "return",
    "select",
    "string",
    "struct",
    "switch",
    "table",
    "this",
    "transition",
    "true",
    "tuple",
    "typedef",
    "value_set",
    "varbit",
    "void",
];

/// Operators and punctuation; a longer one precedes its prefixes.
const PUNCTUATION: &[&str] = &[
    "|+|=", "|-|=", "|+|", "|-|", "&&&", "...", "<<=", ">>=", "{#}", "..", "<<", "&&", "||", "==", "!=",
    "<=", ">=", "++", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "+:", "##", "+", "-", "*", "/", "%",
    "&", "|", "^", "~", "!", "<", ">", "=", "?", ":", ";", ",", ".", "(", ")", "[", "]", "{", "}", "@", "#",
];

/// Splits the text of one file.
#[derive(Debug, Clone)]
pub(crate) struct Lexer {
    file: FileId,
    text: Arc<str>,
    at: usize,
    starts_line: bool,
    joined: bool,
}

impl Lexer {
    /// Starts at the beginning of a file.
    pub(crate) fn new(file: FileId, text: Arc<str>) -> Self {
        Self { file, text, at: 0, starts_line: true, joined: false }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { file: self.file, start: place(start), end: place(end) }
    }

    /// Place where it is.
    pub(crate) fn place(&self) -> Span {
        self.span(self.at, self.at)
    }

    /// Moves forward by a number of bytes that the caller has seen.
    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips white space and comments, within the line if asked to. Stops at an unterminated comment.
    fn skip_space(&mut self, within_line: bool) {
        loop {
            let rest = self.rest();
            let bytes = if rest.starts_with('\n') {
                if within_line {
                    return;
                }
                self.starts_line = true;
                1
            } else if let Some(bytes) = continuation(rest) {
                bytes
            } else if rest.starts_with("//") {
                line_length(rest)
            } else if let Some(comment) = rest.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => end + 4,
                    None => return,
                }
            } else {
                match rest.chars().next() {
                    Some(c) if c.is_whitespace() || c == '\u{feff}' => c.len_utf8(),
                    _ => return,
                }
            };
            self.advance(bytes);
            self.joined = false;
        }
    }

    /// The next token; none at the end of the file.
    pub(crate) fn token(&mut self) -> Option<Token> {
        self.skip_space(false);
        self.take()
    }

    /// The next token of the line; none at its end.
    pub(crate) fn token_of_line(&mut self) -> Option<Token> {
        self.skip_space(true);
        if self.rest().starts_with('\n') { None } else { self.take() }
    }

    fn take(&mut self) -> Option<Token> {
        let (kind, length) = measure(self.rest())?;
        let start = self.at;
        let text = self.rest().get(..length).unwrap_or("");
        let text: Arc<str> = if kind == TokenKind::String && text.contains("\\\n") {
            text.replace("\\\n", "").into()
        } else {
            text.into()
        };
        self.advance(length);
        let token = Token {
            kind,
            text,
            span: self.span(start, self.at),
            starts_line: self.starts_line,
            joined: self.joined,
        };
        self.starts_line = false;
        self.joined = true;
        Some(token)
    }

    /// The name of a header in angle brackets, if that comes next in the line.
    pub(crate) fn header_name(&mut self) -> Option<(String, Span)> {
        self.skip_space(true);
        let rest = self.rest().strip_prefix('<')?;
        let name = rest.get(..rest.find(['>', '\n'])?).unwrap_or("").to_owned();
        if !rest.get(name.len()..)?.starts_with('>') {
            return None;
        }
        let start = self.at;
        self.advance(name.len() + 2);
        Some((name, self.span(start, self.at)))
    }

    /// Skips text up to the next `#` at the start of a line; false at the end of the file. Nothing but comments has a
    /// meaning in this text.
    pub(crate) fn skip_to_directive(&mut self) -> bool {
        loop {
            self.skip_space(false);
            let starts_line = std::mem::take(&mut self.starts_line);
            let rest = self.rest();
            let Some(first) = rest.chars().next() else { return false };
            if first == '#' && starts_line {
                self.starts_line = true;
                return true;
            }
            let bytes = if first == '"' {
                let line = rest.get(..line_length(rest)).unwrap_or("");
                string_length(line).unwrap_or(1)
            } else if rest.starts_with("/*") {
                rest.len()
            } else {
                first.len_utf8()
            };
            self.advance(bytes);
        }
    }
}

/// Length of a backslash and the end of its line, which join two lines.
fn continuation(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix('\\')?;
    let space = behind.bytes().take_while(|b| matches!(b, b' ' | b'\t' | b'\r')).count();
    behind.get(space..)?.starts_with('\n').then_some(space + 2)
}

/// Length of a line without its end, with those that a backslash joins to it.
fn line_length(rest: &str) -> usize {
    let mut from = 0;
    while let Some(end) = rest.get(from..).and_then(|r| r.find('\n')) {
        let end = from + end;
        if !rest.get(..end).unwrap_or("").trim_end_matches('\r').ends_with('\\') {
            return end;
        }
        from = end + 1;
    }
    rest.len()
}

/// Length of the string at the start, with its quotes.
fn string_length(rest: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Kind and length of the first token.
fn measure(rest: &str) -> Option<(TokenKind, usize)> {
    let first = rest.chars().next()?;
    if first.is_ascii_alphabetic() || first == '_' || first == '$' {
        let word = word(rest);
        let kind = if KEYWORDS.contains(&word) { TokenKind::Keyword } else { TokenKind::Identifier };
        return Some((kind, word.len()));
    }
    if first.is_ascii_digit() {
        return Some((TokenKind::Integer, word(rest).len()));
    }
    if first == '"' {
        return Some(match string_length(rest) {
            Some(length) => (TokenKind::String, length),
            None => (TokenKind::Unknown, line_length(rest)),
        });
    }
    if rest.starts_with("/*") {
        return Some((TokenKind::Unknown, rest.len()));
    }
    let punct = PUNCTUATION.iter().find(|p| rest.starts_with(**p));
    Some(punct.map_or((TokenKind::Unknown, first.len_utf8()), |p| (TokenKind::Punct, p.len())))
}

/// Letters, digits and underscores at the start.
fn word(rest: &str) -> &str {
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'));
    rest.get(..end.unwrap_or(rest.len())).unwrap_or("")
}

/// Most characters of an integer.
const LONGEST_INTEGER: usize = 4096;

/// Value of an integer with the type that its prefix gives, or what is wrong with it.
pub(crate) fn integer(text: &str) -> Result<(BigInt, Option<LiteralType>), String> {
    if text.len() > LONGEST_INTEGER {
        return Err(format!("integer has {} characters (expected at most {LONGEST_INTEGER})", text.len()));
    }
    let prefix = text.bytes().take_while(u8::is_ascii_digit).count();
    let (width, rest) = text.split_at_checked(prefix).unwrap_or(("", text));
    let signed = match rest.chars().next() {
        Some('w') => Some(false),
        Some('s') => Some(true),
        _ => None,
    };
    let Some(signed) = signed else { return digits(text).map(|value| (value, None)) };
    let width =
        width.parse().map_err(|_| format!("width {width} of an integer (expected at most {})", u32::MAX))?;
    Ok((digits(rest.get(1..).unwrap_or(""))?, Some(LiteralType { signed, width })))
}

/// Value of digits with their base.
fn digits(text: &str) -> Result<BigInt, String> {
    let (base, kind, digits) = match text.get(..2) {
        Some("0x" | "0X") => (16, "hexadecimal", text.get(2..)),
        Some("0d" | "0D") => (10, "decimal", text.get(2..)),
        Some("0o" | "0O") => (8, "octal", text.get(2..)),
        Some("0b" | "0B") => (2, "binary", text.get(2..)),
        _ => (10, "decimal", Some(text)),
    };
    let digits: String = digits.unwrap_or("").chars().filter(|&c| c != '_').collect();
    if let Some(wrong) = digits.chars().find(|c| !c.is_digit(base)) {
        return Err(format!("`{wrong}` in a {kind} integer"));
    }
    BigInt::parse_bytes(digits.as_bytes(), base).ok_or_else(|| format!("{kind} integer without digits"))
}

/// Value of a string: without quotes, escapes resolved.
pub(crate) fn string(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    let mut value = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('r') => value.push('\r'),
            Some(c @ ('\\' | '"' | '\'')) => value.push(c),
            // An unknown escape means itself.
            other => value.extend(['\\'].into_iter().chain(other)),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Vec<Token> {
        let mut lexer = Lexer::new(FileId(0), text.into());
        std::iter::from_fn(|| lexer.token()).collect()
    }

    fn texts(text: &str) -> Vec<String> {
        lex(text).iter().map(|t| t.text.to_string()).collect()
    }

    #[test]
    fn longest_operator_wins_but_angles_stay_single() {
        assert_eq!(texts("a|+|=b|-|c|+d"), ["a", "|+|=", "b", "|-|", "c", "|", "+", "d"]);
        assert_eq!(texts("A<B<C>>x >>= 1"), ["A", "<", "B", "<", "C", ">", ">", "x", ">>=", "1"]);
        assert_eq!(
            texts("1..2 ... &&&&{#}[7+:4]"),
            ["1", "..", "2", "...", "&&&", "&", "{#}", "[", "7", "+:", "4", "]"]
        );
    }

    #[test]
    fn kinds_and_flags() {
        let tokens = lex("apply header\n  x/**/y \"s\" 'é");
        let kinds: Vec<TokenKind> = tokens.iter().map(|t| t.kind).collect();
        use TokenKind::{Identifier, Keyword, String, Unknown};
        assert_eq!(kinds, [Identifier, Keyword, Identifier, Identifier, String, Unknown, Unknown]);
        let first: Vec<bool> = tokens.iter().map(|t| t.starts_line).collect();
        assert_eq!(first, [true, false, true, false, false, false, false]);
        assert!(!tokens[3].joined, "a comment separates");
        assert!(tokens[6].joined);
        assert_eq!((tokens[2].span.start, tokens[2].span.end), (15, 16));
    }

    #[test]
    fn comments_and_continued_lines() {
        assert_eq!(texts("a // b \\\n c\nd /* e\n */ f \\\n g"), ["a", "d", "f", "g"]);
        let open = lex("a /* b");
        assert_eq!((open[1].kind, &*open[1].text), (TokenKind::Unknown, "/* b"));
        let open = lex("\"a\nb");
        assert_eq!((open[0].kind, &*open[0].text), (TokenKind::Unknown, "\"a"));
    }

    #[test]
    fn lines_end_outside_comments() {
        let mut lexer = Lexer::new(FileId(0), "a /*\n*/ b \\\n c\nd".into());
        let line: Vec<String> =
            std::iter::from_fn(|| lexer.token_of_line()).map(|t| t.text.to_string()).collect();
        assert_eq!(line, ["a", "b", "c"]);
        assert!(lexer.token().is_some_and(|t| t.is("d") && t.starts_line));
    }

    #[test]
    fn skips_what_is_no_text_of_p4() {
        let mut lexer =
            Lexer::new(FileId(0), "it's \" open\n/* #endif\n */ x # y\n \"a # b\"\n # endif".into());
        assert!(lexer.skip_to_directive());
        assert!(lexer.token_of_line().is_some_and(|t| t.is("#")));
        assert!(lexer.token_of_line().is_some_and(|t| t.is("endif")));
        assert!(!lexer.skip_to_directive());
    }

    #[test]
    fn integers_have_bases_and_widths() {
        let typed = |signed, width| Some(LiteralType { signed, width });
        assert_eq!(integer("1_000"), Ok((1000.into(), None)));
        assert_eq!(integer("0xFf"), Ok((255.into(), None)));
        assert_eq!(integer("8w0b1_0"), Ok((2.into(), typed(false, 8))));
        assert_eq!(integer("16s0o17"), Ok((15.into(), typed(true, 16))));
        assert_eq!(integer("9w0d12"), Ok((12.into(), typed(false, 9))));
        assert_eq!(integer("12ab"), Err("`a` in a decimal integer".into()));
        assert_eq!(integer("0x"), Err("hexadecimal integer without digits".into()));
        assert_eq!(
            integer("99999999999w1"),
            Err("width 99999999999 of an integer (expected at most 4294967295)".into())
        );
        assert!(integer(&"1".repeat(5000)).is_err());
    }

    #[test]
    fn strings_resolve_escapes() {
        assert_eq!(string(r#""a\"\\\n\q""#), "a\"\\\n\\q");
        assert_eq!(texts("\"a\\\nb\""), ["\"ab\""]);
    }
}
