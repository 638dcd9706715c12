//! Tests: programs that are accepted and keep what the checked form promises, and programs that are refused with a text
//! at a line.

mod bounds;
mod calls;
mod constants;
mod controls;
mod conversions;
mod generics;
mod names;
mod objects;
mod operators;
mod parsers;
mod statements;
mod tables;
mod types;
mod verify;

use crate::diagnostic::Severity;
use crate::hir::Program;
use crate::parse::{self, Parsed};
use crate::preprocess::Options;

/// A checked program, and its errors and warnings with their lines. core.p4 is included in front of line 1.
fn check(text: &str) -> (Option<Program>, Vec<(usize, Severity, String)>) {
    let text = format!("#include <core.p4>\n{text}");
    let Parsed { program, sources, mut diagnostics, .. } = parse::text("test.p4", &text, &Options::default());
    let parsed = diagnostics.errors() == 0;
    let checked = super::check(&program, &mut diagnostics).filter(|_| parsed);
    let found = diagnostics.list().iter().map(|d| {
        let help = d.help.as_ref().map(|h| format!(" ({h})")).unwrap_or_default();
        let line = sources.line(d.label.span).0;
        (line - 1, d.severity, format!("{}{help}", d.message))
    });
    (checked, found.collect())
}

/// A program that must be accepted without a warning.
#[track_caller]
fn accepted(text: &str) -> Program {
    let (program, found) = check(text);
    assert!(found.is_empty(), "{found:?}");
    let program = program.expect("a program without errors");
    assert_eq!(verify::verify(&program), Vec::<String>::new());
    program
}

/// A program that must be refused: the lines of all its errors, and what their texts contain.
#[track_caller]
fn refused(text: &str, expected: &[(usize, &str)]) {
    let (program, found) = check(text);
    let errors: Vec<_> = found.into_iter().filter(|(_, severity, _)| *severity == Severity::Error).collect();
    let same = errors.len() == expected.len()
        && errors.iter().zip(expected).all(|((line, _, text), (at, part))| line == at && text.contains(part));
    assert!(same, "found {errors:#?}\nexpected {expected:#?}");
    assert!(program.is_none());
}

/// A program that must be accepted with warnings: their lines, and what their texts contain.
#[track_caller]
fn warned(text: &str, expected: &[(usize, &str)]) {
    let (program, found) = check(text);
    let same = found.len() == expected.len()
        && found.iter().zip(expected).all(|((line, _, text), (at, part))| line == at && text.contains(part));
    assert!(same, "found {found:#?}\nexpected {expected:#?}");
    assert!(program.is_some());
}

/// A program with statements in a control; they begin at line 1, and see `h`, `b8`, `b16`, `i8` and `flag`.
fn body(statements: &str) -> String {
    let types = "header H { bit<8> a; bit<16> b; } struct S { bit<8> x; H h; }";
    format!(
        "{types} control c(inout H h, inout S s, inout bit<8> b8, inout bit<16> b16, inout int<8> i8, inout bool flag) \
         {{ apply {{ {statements} }} }}"
    )
}
