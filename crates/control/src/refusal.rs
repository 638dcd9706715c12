//! Why a request is refused, in words that name the thing and say what to do.

use fabric::SwitchError;
use logic::LogicError;

use crate::file::FileError;
use crate::limits::LimitError;
use crate::mirror::MirrorError;
use crate::model::ValueError;
use crate::sflow::SflowError;

/// Why a request is refused. Messages name the thing and say what to do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No such bridge.
    #[error("there is no bridge \"{0}\"; `mswitch bridge list` shows those there are")]
    NoBridge(String),
    /// Configured, but not created yet.
    #[error("{object} is configured, but could not be created: {reason}; the daemon keeps trying")]
    Unmet {
        /// The object.
        object: String,
        /// The reason.
        reason: String,
    },
    /// No such port.
    #[error("bridge \"{bridge}\" has no port \"{port}\"; `mswitch port list {bridge}` shows those it has")]
    NoPort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// The name is taken.
    #[error("there is a bridge \"{0}\" already; choose another name")]
    BridgeExists(String),
    /// The name is taken.
    #[error("bridge \"{bridge}\" has a port \"{port}\" already; choose another name")]
    PortExists {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// Only one port can have it.
    #[error("bridge \"{bridge}\", port \"{port}\" has {what} already; two ports cannot share it")]
    Shared {
        /// The bridge of the port that has it.
        bridge: String,
        /// The port that has it.
        port: String,
        /// What it has.
        what: String,
    },
    /// A port that cannot be.
    #[error("bridge \"{bridge}\", port \"{port}\": {message}")]
    Port {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
        /// Why.
        message: String,
    },
    /// A mirror that cannot be.
    #[error("bridge \"{bridge}\": {error}")]
    Mirror {
        /// The bridge.
        bridge: String,
        /// Why.
        error: MirrorError,
    },
    /// A packet that cannot be followed.
    #[error(transparent)]
    Trace(#[from] fabric::trace::TraceError),
    /// A value that cannot be.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// sFlow export that cannot be.
    #[error(transparent)]
    Sflow(#[from] SflowError),
    /// A logic that cannot be.
    #[error(transparent)]
    Logic(#[from] LogicError),
    /// A file with mistakes.
    #[error(transparent)]
    File(#[from] FileError),
    /// The fabric refused.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// Too many files.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}
