//! Reasons for the client's end.

use std::io;
use std::path::PathBuf;

use p4runtime_proto::{rpc, v1};
use prost::Message;
use tonic::Status;

/// Reasons for the client's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The socket cannot be reached.
    #[error("cannot connect to {path}: {error}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        error: tonic::transport::Error,
    },
    /// Another controller is the primary.
    #[error("the switch made another controller its primary: {0}")]
    Backup(String),
    /// The switch has no program, or one that this client cannot read.
    #[error("{0}")]
    Program(String),
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A line is no entity.
    #[error("{path}, line {line}: {error}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        error: String,
    },
    /// The switch refuses a call.
    #[error("{}", text(.0))]
    Refused(Box<Status>),
    /// The client's own means fail.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// A status, with the first of its updates that failed.
fn text(status: &Status) -> String {
    let details = rpc::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let errors = details.iter().filter_map(|detail| v1::Error::decode(&*detail.value).ok());
    match errors.enumerate().find(|(_, error)| error.canonical_code != 0) {
        Some((at, error)) => format!("update {at}: {}", error.message),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}
