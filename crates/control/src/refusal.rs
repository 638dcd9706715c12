//! Reasons for refusing a request. Messages name the object and the remedy.

use fabric::SwitchError;
use logic::LogicError;

use crate::file::FileError;
use crate::limits::LimitError;
use crate::mirror::MirrorError;
use crate::model::ValueError;
use crate::sflow::SflowError;

/// Reasons for refusing a request.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No such bridge.
    #[error("there is no bridge \"{0}\"; `mswitch bridge list` lists the bridges")]
    NoBridge(String),
    /// An object that is configured but does not exist yet.
    #[error("{object} is configured, but could not be created: {reason}; the daemon keeps trying")]
    Unmet {
        /// The object.
        object: String,
        /// The reason.
        reason: String,
    },
    /// The bridge has no flow tables.
    #[error(
        "bridge \"{bridge}\" has the logic `{logic}`; set `openflow`: mswitch logic set {bridge} openflow"
    )]
    NotOpenFlow {
        /// The bridge.
        bridge: String,
        /// Its logic.
        logic: String,
    },
    /// No such port.
    #[error("bridge \"{bridge}\" has no port \"{port}\"; `mswitch port list {bridge}` lists its ports")]
    NoPort {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// A bridge of this name exists.
    #[error("bridge \"{0}\" already exists; choose another name")]
    BridgeExists(String),
    /// The bridge belongs to another source of configuration.
    #[error("bridge \"{0}\" belongs to the database of Open vSwitch; change it with `ovs-vsctl`")]
    Database(String),
    /// A port of this name exists.
    #[error("bridge \"{bridge}\" already has a port \"{port}\"; choose another name")]
    PortExists {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
    },
    /// Another port uses an exclusive resource.
    #[error("bridge \"{bridge}\", port \"{port}\" already has {resource}; two ports cannot share it")]
    Shared {
        /// The bridge of the other port.
        bridge: String,
        /// The other port.
        port: String,
        /// The resource.
        resource: String,
    },
    /// An invalid port.
    #[error("bridge \"{bridge}\", port \"{port}\": {message}")]
    Port {
        /// The bridge.
        bridge: String,
        /// The port.
        port: String,
        /// The reason.
        message: String,
    },
    /// An invalid mirror.
    #[error("bridge \"{bridge}\": {error}")]
    Mirror {
        /// The bridge.
        bridge: String,
        /// The reason.
        error: MirrorError,
    },
    /// A packet that cannot be traced.
    #[error(transparent)]
    Trace(#[from] fabric::trace::TraceError),
    /// An invalid value.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Invalid settings of sFlow export.
    #[error(transparent)]
    Sflow(#[from] SflowError),
    /// An invalid logic.
    #[error(transparent)]
    Logic(#[from] LogicError),
    /// A file with mistakes.
    #[error(transparent)]
    File(#[from] FileError),
    /// The fabric refused.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The limit of open files is too low.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}
