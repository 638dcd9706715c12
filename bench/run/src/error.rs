//! Errors of a benchmark, worded for the person who runs it.

use std::fmt::Display;

/// Reason why a benchmark stops, or why one measurement is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What is wrong, with the value found and the value expected, and what to do.
    #[error("{0}")]
    Failed(String),
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Creates an error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error::Failed(text.into())
    }

    /// Returns a function that puts the failed operation in front of an error.
    pub fn while_doing<E: Display>(operation: impl Display) -> impl FnOnce(E) -> Error {
        move |error| Error::Failed(format!("{operation}: {error}"))
    }
}

/// Result of a step of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;
