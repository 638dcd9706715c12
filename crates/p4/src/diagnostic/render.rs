//! Diagnostics as text for people: the message, the lines it is about, and what to do, in the manner of rustc.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};

use super::{Diagnostic, Diagnostics, Label, Severity};
use crate::source::{File, FileId, Sources};

/// Writes diagnostics with the lines they are about, in colour for terminals.
pub fn render(sources: &Sources, diagnostics: &Diagnostics, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut text = String::new();
    for diagnostic in diagnostics.list() {
        text.push_str(&renderer.render(&[group(sources, diagnostic)]));
        text.push_str("\n\n");
    }
    for (kept, all, what) in [
        (Severity::Error, diagnostics.errors(), "error"),
        (Severity::Warning, diagnostics.warnings(), "warning"),
    ] {
        let shown = diagnostics.list().iter().filter(|d| d.severity == kept).count();
        if let more @ 1.. = all - shown.min(all) {
            text.push_str(&format!("{more} more {what}{}\n", if more == 1 { "" } else { "s" }));
        }
    }
    text
}

fn group<'a>(sources: &'a Sources, diagnostic: &'a Diagnostic) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(&diagnostic.message));
    // One snippet for each file: that of the diagnostic's place first.
    let mut files: Vec<FileId> = vec![diagnostic.label.span.file];
    for label in &diagnostic.others {
        if !files.contains(&label.span.file) {
            files.push(label.span.file);
        }
    }
    for id in files {
        let Some(file) = sources.get(id) else { continue };
        let mut snippet = Snippet::source(&*file.text).path(&file.name);
        if id == diagnostic.label.span.file {
            snippet = snippet.annotation(annotation(file, &diagnostic.label, AnnotationKind::Primary));
        }
        for label in diagnostic.others.iter().filter(|label| label.span.file == id) {
            snippet = snippet.annotation(annotation(file, label, AnnotationKind::Context));
        }
        group = group.element(snippet);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help));
    }
    group
}

fn annotation<'a>(file: &File, label: &'a Label, kind: AnnotationKind) -> Annotation<'a> {
    let annotation = kind.span(range(file, label));
    if label.text.is_empty() { annotation } else { annotation.label(&label.text) }
}

/// The bytes of a label, or the end of the file if it has no such place.
fn range(file: &File, label: &Label) -> Range<usize> {
    let range = label.span.start as usize..label.span.end as usize;
    let end = file.text.len();
    if file.text.get(range.clone()).is_some() { range } else { end..end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Span;

    fn span(file: u32, start: u32, end: u32) -> Span {
        Span { file: FileId(file), start, end }
    }

    #[test]
    fn places_remarks_and_help_are_shown() {
        let mut sources = Sources::default();
        sources.add("main.p4", "header h {\n    bit<8> x\n}\n");
        sources.add("<core.p4>", "error {\n    NoError\n}\n");
        let mut diagnostics = Diagnostics::default();
        let error = Diagnostic::error(span(0, 22, 23), "field `x` has no end").expected("expected `;`");
        diagnostics.push(
            error.also(span(0, 7, 8), "in this header").also(span(1, 12, 19), "here, too").help("add it"),
        );
        diagnostics.push(Diagnostic::warning(span(0, 9, 10), "a brace"));
        let expected = "\
error: field `x` has no end
 --> main.p4:2:12
  |
1 | header h {
  |        - in this header
2 |     bit<8> x
  |            ^ expected `;`
  |
 ::: <core.p4>:2:5
  |
2 |     NoError
  |     ------- here, too
  |
  = help: add it

warning: a brace
 --> main.p4:1:10
  |
1 | header h {
  |          ^

";
        assert_eq!(render(&sources, &diagnostics, false), expected);
        assert!(render(&sources, &diagnostics, true).contains("\u{1b}["));
    }

    #[test]
    fn places_outside_the_text_are_its_end() {
        let mut sources = Sources::default();
        sources.add("main.p4", "é");
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(Diagnostic::error(span(0, 1, 9), "outside"));
        diagnostics.push(Diagnostic::error(span(7, 0, 0), "no file"));
        let text = render(&sources, &diagnostics, false);
        assert!(text.contains("main.p4:1:2") && text.contains("no file"), "{text}");
    }

    #[test]
    fn those_that_were_not_kept_are_counted() {
        let mut diagnostics = Diagnostics::default();
        for at in 0..Diagnostics::MOST as u32 + 2 {
            diagnostics.push(Diagnostic::error(span(0, at, at), "wrong"));
        }
        diagnostics.push(Diagnostic::error(span(0, 9, 9), "follows from the error there"));
        diagnostics.push(Diagnostic::warning(span(0, 0, 0), "odd"));
        assert_eq!((diagnostics.errors(), diagnostics.list().len()), (102, 101));
        assert!(render(&Sources::default(), &diagnostics, false).ends_with("\n2 more errors\n"));
    }
}
