//! A P4 program's text, without files beside it.
//!
//! Invariants:
//! - No panic, also while the messages are rendered; time, memory and stack are bounded.
//! - The only end of the program is its last token; tokens and messages have places in their files.
//! - The tree of a program without errors is written in the program: places of declarations follow one another.
#![no_main]

use libfuzzer_sys::fuzz_target;
use p4::diagnostic::{Diagnostics, render};
use p4::lex::TokenKind;
use p4::preprocess::{Options, load_text};
use p4::source::{Sources, Span};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
    let tokens = load_text("fuzz.p4", &text, &Options::default(), &mut sources, &mut diagnostics);
    assert_eq!(tokens.iter().position(|t| t.kind == TokenKind::End), tokens.len().checked_sub(1));
    let program = p4::parse::program(&tokens, &mut diagnostics);

    let is_place = |span: Span| {
        sources.get(span.file).is_some_and(|f| f.text.get(span.start as usize..span.end as usize).is_some())
    };
    assert!(tokens.iter().all(|t| is_place(t.span)));
    for diagnostic in diagnostics.list() {
        assert!(is_place(diagnostic.label.span), "{diagnostic:?}");
        assert!(diagnostic.others.iter().all(|label| is_place(label.span)), "{diagnostic:?}");
    }
    assert!(program.declarations.iter().all(|d| is_place(d.span)));
    if diagnostics.errors() == 0 {
        let own = program.declarations.iter().filter(|d| d.span.file.0 == 0);
        assert!(own.map(|d| d.span.end).is_sorted());
    }
    render(&sources, &diagnostics, true);
});
