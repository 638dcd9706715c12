//! Why a front-end is turned away, in words for whoever runs it.

use crate::memory::MemoryError;
use crate::message::{DecodeError, Name};
use crate::virtqueue::ConfigError;

/// What ends a session.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message cannot be understood.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// Another number of descriptors than the request has.
    #[error("{name} with {found} file descriptors, must be {most}")]
    Descriptors {
        /// The request.
        name: Name,
        /// What came.
        found: usize,
        /// How many it has.
        most: usize,
    },
    /// A descriptor that cannot signal.
    #[error("{name} of ring {ring} with a file descriptor that is no eventfd")]
    NotAnEventfd {
        /// The request.
        name: Name,
        /// The ring.
        ring: u8,
    },
    /// Features that were not offered.
    #[error("SET_FEATURES with bits that were not offered: {0}")]
    Features(String),
    /// Protocol features that were not offered.
    #[error("SET_PROTOCOL_FEATURES with bits that were not offered: {0}")]
    ProtocolFeatures(String),
    /// Rings run with the features that they were started with.
    #[error("SET_FEATURES with other features while rings are started")]
    FeaturesChanged,
    /// A request that belongs to a feature that is not there.
    #[error("{0} without the feature it belongs to, which is not offered")]
    NotOffered(Name),
    /// There is no such ring.
    #[error("ring {ring} does not exist: there are {rings}, two for each queue pair")]
    Ring {
        /// The ring.
        ring: u32,
        /// How many there are.
        rings: usize,
    },
    /// No ring has this size.
    #[error("ring {ring} of {size} entries, must be 1 to 32768")]
    RingSize {
        /// The ring.
        ring: u32,
        /// What was asked for.
        size: u32,
    },
    /// What cannot be changed in a ring that is started.
    #[error("{name} of ring {ring}, which is started")]
    Started {
        /// The request.
        name: Name,
        /// The ring.
        ring: u32,
    },
    /// A ring is neither on nor off.
    #[error("SET_VRING_ENABLE of ring {ring} with {number}, must be 0 or 1")]
    Enable {
        /// The ring.
        ring: u32,
        /// What was sent.
        number: u32,
    },
    /// A ring is started that is not complete.
    #[error("SET_VRING_KICK of ring {ring} before its {what}")]
    Incomplete {
        /// The ring.
        ring: u8,
        /// What is missing.
        what: &'static str,
    },
    /// The driver would have to be polled for ever.
    #[error("SET_VRING_KICK of ring {ring} without an eventfd: drivers that do not signal are not served")]
    NoKick {
        /// The ring.
        ring: u8,
    },
    /// Too many regions.
    #[error("more than {most} memory regions")]
    Regions {
        /// How many there may be.
        most: usize,
    },
    /// Too much memory.
    #[error("more than {most} bytes of memory")]
    Memory {
        /// How many there may be.
        most: u64,
    },
    /// The memory table is wrong.
    #[error(transparent)]
    MemoryTable(#[from] MemoryError),
    /// A ring is wrong.
    #[error("ring {ring}: {error}")]
    Queue {
        /// The ring.
        ring: usize,
        /// What is wrong with it.
        error: ConfigError,
    },
    /// The rings could not be started.
    #[error("{0}")]
    Start(String),
}
