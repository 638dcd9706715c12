//! Why a front-end is turned away, in words for whoever runs it.

use crate::dirty_log::LogError;
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
    /// A log without the feature that brings its memory.
    #[error("SET_LOG_BASE without protocol feature 1 (LOG_SHMFD), which was not negotiated")]
    LogNotShared,
    /// A log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A log with fewer bits than the memory has pages.
    #[error("dirty log of {size} bytes covers guest addresses below {end:#x}, memory goes up to {memory:#x}")]
    LogTooSmall {
        /// Its size in bytes.
        size: u64,
        /// The first address without a bit.
        end: u64,
        /// The first address behind the memory.
        memory: u64,
    },
    /// A ring is to be logged where the log does not reach.
    #[error("ring {ring} is to be logged at guest address {address:#x}, the dirty log ends at {end:#x}")]
    LogAddress {
        /// The ring.
        ring: usize,
        /// Where the front-end wants it logged.
        address: u64,
        /// The first address without a bit.
        end: u64,
    },
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
