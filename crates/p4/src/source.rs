//! Source files and places in them.

use std::sync::Arc;

/// A source file: an index into [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileId(pub u32);

/// Bytes `start..end` of a file. What a macro expands to has the span of the macro's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// File.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// Byte behind the last.
    pub end: u32,
}

impl Span {
    /// The span from the start of this one to the end of another; this one if they are in different files.
    pub fn to(self, end: Span) -> Span {
        if self.file == end.file { Span { end: end.end.max(self.end), ..self } } else { self }
    }
}

/// A source file.
#[derive(Debug, Clone)]
pub struct File {
    /// Name as messages show it: the path as it was found, or `<core.p4>` for a file that the front end brings along.
    pub name: String,
    /// Content.
    pub text: Arc<str>,
}

/// The files of a program.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<File>,
}

impl Sources {
    /// Adds a file.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        self.files.push(File { name: name.into(), text: text.into() });
        id
    }

    /// A file.
    pub fn get(&self, id: FileId) -> Option<&File> {
        self.files.get(id.0 as usize)
    }

    /// All files, in the order in which they were read; the first is the program's.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// The text of a span; empty if there is none.
    pub fn text(&self, span: Span) -> &str {
        self.get(span.file).and_then(|f| f.text.get(span.start as usize..span.end as usize)).unwrap_or("")
    }

    /// Line and column of a span's start, both from 1; columns count characters.
    pub fn line(&self, span: Span) -> (usize, usize) {
        let before = self.get(span.file).and_then(|f| f.text.get(..span.start as usize)).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}
