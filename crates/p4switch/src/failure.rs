//! Refusals, with the codes that P4Runtime asks for.

use std::fmt;

pub use tonic::Code;

/// Longest message of a refusal, bytes: a write has one for each of its updates, and it repeats names of the update.
const LONGEST: usize = 1024;

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
        let mut message = message.into();
        if message.len() > LONGEST {
            message.truncate(message.floor_char_boundary(LONGEST - '…'.len_utf8()));
            message.push('…');
        }
        Self { code, message }
    }

    /// The request is malformed.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The object does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// A number exceeds its bounds.
    pub(crate) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    /// The program fixes the object, or a role does not have it.
    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, message)
    }

    /// The container is full.
    pub(crate) fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, message)
    }

    /// The switch has no such feature.
    pub(crate) fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, message)
    }

    /// The same refusal, with the place in front of the reason.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        Self::new(self.code, format!("{place}: {}", self.message))
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
