//! Records of what exists: one JSON object a line, appended before the thing is made.
//!
//! A benchmark that is killed leaves the file; the next one removes what it names. A process is named by its id and the
//! time when it started, so that another process with the same id is left alone.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A thing that must be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Record {
    /// A process.
    Process {
        /// Its id.
        pid: u32,
        /// When it started, in clock ticks since the machine's start.
        started: u64,
        /// What it is.
        name: String,
    },
    /// A network namespace.
    Namespace {
        /// Its name.
        name: String,
    },
    /// A file or folder.
    Path {
        /// Absolute.
        path: String,
    },
    /// A change of the pool of huge pages of 2 MiB.
    HugePages {
        /// Its earlier size in pages.
        before: u64,
        /// The size it was given.
        set: u64,
    },
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Process { pid, name, .. } => write!(out, "process {pid} ({name})"),
            Record::Namespace { name } => write!(out, "network namespace {name}"),
            Record::Path { path } => write!(out, "{path}"),
            Record::HugePages { before, set } => {
                write!(out, "pool of huge pages (before: {before}, set to {set})")
            }
        }
    }
}

/// The file, and its content.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    all: Mutex<Vec<Record>>,
}

impl Records {
    /// Opens the file; returns the records that it holds. Lines that are not records are ignored: a process may have
    /// been killed while it wrote one.
    pub(super) fn open(path: &Path) -> Result<(Records, Vec<Record>)> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::new(format!("{}: {error}", path.display()))),
        };
        let left = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((Records { path: path.to_owned(), all: Mutex::new(Vec::new()) }, left))
    }

    /// Appends a record.
    pub(super) fn add(&self, record: Record) -> Result<()> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains(&record) {
            return Ok(());
        }
        let line = serde_json::to_string(&record).map_err(Error::while_doing("records"))?;
        let file = File::options().append(true).create(true).open(&self.path);
        file.and_then(|mut file| writeln!(file, "{line}"))
            .map_err(Error::while_doing(self.path.display()))?;
        all.push(record);
        Ok(())
    }

    /// Everything recorded by this process.
    pub(super) fn all(&self) -> Vec<Record> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) -> Result<()> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).clear();
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::new(format!("{}: {error}", self.path.display())))
            }
            _ => Ok(()),
        }
    }
}
