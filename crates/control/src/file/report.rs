//! Collects mistakes in a file with their positions.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The bridge and port that a problem concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context {
    /// The bridge, once its name is known.
    pub bridge: Option<String>,
    /// The port, once its name is known.
    pub port: Option<String>,
}

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// A mistake in a file, or a note on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its place; `None` when the file cannot be read.
    pub position: Option<Position>,
    /// The bridge and port that it concerns.
    pub context: Context,
    /// The value found and the value expected.
    pub message: String,
}

impl Problem {
    /// Formats the problem as a line that begins with the file and the position, like the messages of compilers.
    pub fn line(&self, file: &Path) -> String {
        let mut line = file.display().to_string();
        // Writing to a String cannot fail.
        if let Some(Position { line: number, column }) = self.position {
            let _ = write!(line, ":{number}:{column}");
        }
        line.push_str(": ");
        if let Some(bridge) = &self.context.bridge {
            let _ = write!(line, "bridge \"{bridge}\"");
            if let Some(port) = &self.context.port {
                let _ = write!(line, ", port \"{port}\"");
            }
            line.push_str(": ");
        }
        line.push_str(&self.message);
        line
    }
}

/// Reasons for refusing a file: every mistake in it, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// The mistakes; at least one.
    pub problems: Vec<Problem>,
}

impl FileError {
    /// Formats the first mistake, with its line and the number of others, without the file's name.
    pub fn first(&self) -> String {
        let Some(first) = self.problems.first() else { return String::new() };
        let line = first.position.map(|position| format!("line {}: ", position.line)).unwrap_or_default();
        let others = match self.problems.len() - 1 {
            0 => String::new(),
            1 => ", and 1 more mistake".into(),
            others => format!(", and {others} more mistakes"),
        };
        let context = Problem { position: None, ..first.clone() };
        let text = context.line(Path::new(""));
        format!("{line}{}{others}", text.trim_start_matches(": "))
    }
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(out, "{separator}{}", problem.line(&self.file))?;
        }
        Ok(())
    }
}

/// An offset in bytes, the context and the message.
type Found = (usize, Context, String);

/// Collects mistakes in a text, and notes on it.
pub(super) struct Report<'t> {
    text: &'t str,
    mistakes: Vec<Found>,
    /// Notes, each with its first place and the number of places.
    notes: BTreeMap<(Context, String), (usize, usize)>,
    /// Former names in use, each with its first place and the number of places.
    former: BTreeMap<(&'static str, &'static str), (usize, Context, usize)>,
}

impl<'t> Report<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, mistakes: Vec::new(), notes: BTreeMap::new(), former: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, span: &Range<usize>, context: &Context, message: impl fmt::Display) {
        self.mistakes.push((span.start, context.clone(), message.to_string()));
    }

    /// Adds a note. A file with notes is accepted. Places with the same note share it.
    pub(super) fn note(&mut self, span: &Range<usize>, context: &Context, message: impl fmt::Display) {
        self.notes.entry((context.clone(), message.to_string())).or_insert((span.start, 0)).1 += 1;
    }

    /// Adds a note that a key has its former name. All places share one note.
    pub(super) fn former(
        &mut self,
        span: &Range<usize>,
        context: &Context,
        old: &'static str,
        new: &'static str,
    ) {
        self.former.entry((old, new)).or_insert((span.start, context.clone(), 0)).2 += 1;
    }

    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        position(self.text, span.start).0
    }

    /// Returns the mistakes and the notes, both in the order of the text.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let notes = self.notes.into_iter();
        let mut notes: Vec<Found> = notes
            .map(|((context, message), (at, times))| (at, context, format!("{message}{}", others(times))))
            .collect();
        for ((old, new), (at, context, times)) in self.former {
            let others = others(times);
            notes.push((at, context, format!("`{old}` is now called `{new}`; rename it{others}")));
        }
        (in_order(self.text, self.mistakes), in_order(self.text, notes))
    }
}

/// Returns the end of a note for its places beside the first.
fn others(places: usize) -> String {
    match places {
        1 => String::new(),
        2 => " (and in 1 more place)".into(),
        _ => format!(" (and in {} more places)", places - 1),
    }
}

fn in_order(text: &str, mut found: Vec<Found>) -> Vec<Problem> {
    found.sort_by_key(|(at, _, _)| *at);
    let problem = |(at, context, message): Found| {
        let (line, column) = position(text, at);
        Problem { position: Some(Position { line, column }), context, message }
    };
    found.into_iter().map(problem).collect()
}

/// Returns line and column, both from 1, of a byte.
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
