//! Reasons for the agent's end, worded for the operator.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use tonic::{Code, Status};

/// Reasons for the agent's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The socket cannot be reached.
    #[error(
        "cannot connect to {path}: {error}; check that the daemon runs and that the bridge has the logic `p4` \
         (`mswitch bridge show`)"
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The cause.
        error: String,
    },
    /// Another controller has the role.
    #[error(
        "another controller has role {role:?}{election}; stop it, or start this agent with a larger --election"
    )]
    Taken {
        /// The role.
        role: String,
        /// Its election id, in words.
        election: String,
    },
    /// The program lacks an object.
    #[error(
        "the bridge's program has no {0}; set it with `mswitch logic set BRIDGE p4:cache.p4 --param xdp=on`"
    )]
    Program(String),
    /// The connection has ended.
    #[error("the connection to the switch has ended: {0}; start the agent again when the daemon runs")]
    Closed(String),
    /// The role may not do what the agent needs.
    #[error(
        "{0}; the role needs `tables = [\"cache\"]` and `digests = [\"decision_t\"]` in `[[bridge.p4.role]]`"
    )]
    Denied(String),
    /// The switch refuses a call.
    #[error("the switch refuses: {0}")]
    Refused(String),
    /// The agent's own means fail.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // Errors with a source are the transport's, and not the switch's.
        match (status.code(), status.source()) {
            (Code::PermissionDenied, _) => Failure::Denied(status.message().into()),
            (_, Some(source)) => Failure::Closed(reason(source)),
            (Code::Unavailable, None) => Failure::Closed(status.message().into()),
            _ => Failure::Refused(format!("{:?}: {}", status.code(), status.message())),
        }
    }
}

/// The innermost cause of an error: outer ones say only that the transport has failed.
pub(crate) fn reason(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
