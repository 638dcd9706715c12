//! Errors and warnings in programs.
//!
//! A message says what is wrong with the value found and the value expected; its label marks the place; helps say what
//! to do. [`render`] writes them for people; their fields and [`crate::source::Sources::line`] serve programs.

mod render;

pub use render::render;

use crate::source::Span;

/// Weight of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The program is refused.
    Error,
    /// The program runs, probably not as meant.
    Warning,
}

/// A place with a remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Place.
    pub span: Span,
    /// Remark; may be empty.
    pub text: String,
}

/// An error or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Weight.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where; the remark says what was expected.
    pub label: Label,
    /// Places that matter, such as an earlier declaration.
    pub others: Vec<Label>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(span: Span, message: impl Into<String>) -> Self {
        let label = Label { span, text: String::new() };
        Self { severity: Severity::Error, message: message.into(), label, others: Vec::new(), help: None }
    }

    /// A warning.
    pub fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Sets the remark at the place.
    pub fn expected(mut self, text: impl Into<String>) -> Self {
        self.label.text = text.into();
        self
    }

    /// Adds a place that matters.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.others.push(Label { span, text: text.into() });
        self
    }

    /// Sets the help.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

/// Diagnostics in the order in which they were found. At most [`Diagnostics::MOST`] errors are kept, and as many
/// warnings.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// Most errors, and most warnings, that are kept.
    pub const MOST: usize = 100;

    /// Adds one. A second error at the same place is ignored: it follows from the first.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let same =
            |d: &Diagnostic| d.severity == diagnostic.severity && d.label.span == diagnostic.label.span;
        if self.list.iter().any(same) {
            return;
        }
        let count = match diagnostic.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count > Self::MOST {
            return;
        }
        self.list.push(diagnostic);
    }

    /// Number of errors, those that were not kept among them.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Number of warnings, those that were not kept among them.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// Those that were kept.
    pub fn list(&self) -> &[Diagnostic] {
        &self.list
    }
}
