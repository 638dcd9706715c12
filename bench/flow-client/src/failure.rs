//! Reasons for the client's end.

use std::io;
use std::path::PathBuf;

use openflow::error::{DecodeError, EncodeError};

/// Reasons for the client's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The socket cannot be reached.
    #[error("cannot connect to {path}: {error}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A line is no flow.
    #[error("{path}, line {line}: {error}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        error: String,
    },
    /// The switch refuses a message.
    #[error("the switch refuses a message of batch {batch}: {reason}")]
    Refused {
        /// Number of the batch, from 1.
        batch: u32,
        /// Name of the error.
        reason: String,
    },
    /// A message cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The switch sends something else than OpenFlow 1.4.
    #[error("the switch sends a message that cannot be read: {0:?}")]
    Decode(DecodeError),
    /// The connection, or the client's own means, fail.
    #[error("{0}")]
    Io(#[from] io::Error),
}
