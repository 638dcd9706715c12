//! Expressions of rules: regular expressions over bytes.
//!
//! The syntax is that of the crate `regex`, without Unicode: `.` is a byte other than a line feed, `\w` a letter, digit
//! or underscore of ASCII.
//!
//! Invariants of an accepted expression: it matches no empty text; its only assertion is `^`, the beginning of a stream
//! or datagram. So a match is known at its last byte: no later byte, and no end of the stream, can undo it.

use logic::excerpt::Mistake;
use regex_syntax::ast::{self, AssertionKind, Ast};
use regex_syntax::hir::{Hir, Look, translate};

/// Reads an expression. Places of mistakes count from its start.
pub(crate) fn read(text: &str, ignore_case: bool) -> Result<Hir, Mistake> {
    let ast = ast::parse::Parser::new().parse(text);
    let ast = ast.map_err(|error| Mistake::new(error.span().start.offset, error.kind().to_string()))?;
    let mut translator = translate::TranslatorBuilder::new();
    let mut translator = translator.utf8(false).unicode(false).case_insensitive(ignore_case).build();
    let hir = translator.translate(text, &ast);
    let hir = hir.map_err(|error| Mistake::new(error.span().start.offset, error.kind().to_string()))?;
    let properties = hir.properties();
    if !properties.look_set().iter().all(|look| look == Look::Start) {
        let message =
            "the only assertion is `^`, the beginning of a stream: where a stream ends is not known";
        return Err(Mistake::new(assertion(&ast), message));
    }
    match properties.minimum_len() {
        Some(0) => Err(Mistake::new(0, "it matches the empty text, and so every packet: require a byte")),
        Some(_) => Ok(hir),
        None => Err(Mistake::new(0, "it matches nothing")),
    }
}

/// Returns the place of the first assertion that is not `^`; the expression's start if there is none.
fn assertion(ast: &Ast) -> usize {
    struct Search(Option<usize>);
    impl ast::Visitor for Search {
        type Output = usize;
        type Err = std::convert::Infallible;

        fn finish(self) -> Result<usize, Self::Err> {
            Ok(self.0.unwrap_or(0))
        }

        fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
            if let (None, Ast::Assertion(assertion)) = (self.0, ast)
                && !matches!(assertion.kind, AssertionKind::StartLine | AssertionKind::StartText)
            {
                self.0 = Some(assertion.span.start.offset);
            }
            Ok(())
        }
    }
    match ast::visit(ast, Search(None)) {
        Ok(place) => place,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_without_end_are_accepted() {
        for text in ["abc", "^GET /", "a|b+", r"\x00\xff[^a-z]", "(?s:.{3})", "ü", r"\A\d", r"\/"] {
            assert!(read(text, false).is_ok(), "{text}");
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, at, message) in [
            ("a(b", 1, "unclosed group"),
            ("a[b", 1, "unclosed character class"),
            ("ab$", 2, "the only assertion is `^`"),
            (r"a\bc", 1, "the only assertion is `^`"),
            ("(?m)^a", 0, "the only assertion is `^`"),
            ("a*", 0, "it matches the empty text"),
            (r"[a&&b]", 0, "it matches nothing"),
            (r"a\p{Greek}", 1, "Unicode"),
            ("a{2,1}", 1, "invalid repetition count range"),
        ] {
            let mistake = read(text, false).unwrap_err();
            assert!(mistake.message.contains(message), "{text}: {}", mistake.message);
            assert_eq!(mistake.at, Some(at), "{text}");
        }
    }
}
