//! Refusals, with the codes that P4Runtime asks for.

use std::fmt;

pub use tonic::Code;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Code.
    pub code: Code,
    /// Reason, for people.
    pub message: String,
}

impl Failure {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// A refused write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFailure {
    /// The whole request.
    Request(Failure),
    /// Updates: the result of each, in order.
    Updates(Vec<Result<(), Failure>>),
}

impl From<Failure> for WriteFailure {
    fn from(failure: Failure) -> Self {
        WriteFailure::Request(failure)
    }
}
