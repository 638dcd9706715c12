//! Mistakes in a file, gathered with their positions.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// Whose mistake it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The bridge, once its name is known.
    pub bridge: Option<String>,
    /// The port, once its name is known.
    pub port: Option<String>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Whose it is.
    pub context: Context,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Why a file is refused: every mistake in it, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The mistakes; at least one.
    pub problems: Vec<Problem>,
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(out, "{separator}{}:{}:{}: ", self.file.display(), problem.line, problem.column)?;
            if let Some(bridge) = &problem.context.bridge {
                write!(out, "bridge \"{bridge}\"")?;
                if let Some(port) = &problem.context.port {
                    write!(out, ", port \"{port}\"")?;
                }
                out.write_str(": ")?;
            }
            out.write_str(&problem.message)?;
        }
        Ok(())
    }
}

/// Gathers mistakes in a text.
pub(super) struct Report<'t> {
    text: &'t str,
    found: Vec<(usize, Context, String)>,
}

impl<'t> Report<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(super) fn add(&mut self, span: &Range<usize>, context: &Context, message: impl fmt::Display) {
        self.found.push((span.start, context.clone(), message.to_string()));
    }

    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        position(self.text, span.start).0
    }

    /// The mistakes in the order of the text.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|(at, _, _)| *at);
        let text = self.text;
        self.found
            .into_iter()
            .map(|(at, context, message)| {
                let (line, column) = position(text, at);
                Problem { line, column, context, message }
            })
            .collect()
    }
}

/// Line and column, both from 1, of a byte.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("abc", 0), (1, 1));
        assert_eq!(position("a\näb", 4), (2, 2));
        assert_eq!(position("a\n", 2), (2, 1));
    }
}
