//! Reasons for refusing a front-end, worded for the operator.

use crate::dirty_log::LogError;
use crate::memory::MemoryError;
use crate::message::{DecodeError, Name};
use crate::virtqueue::ConfigError;

/// An error of the front-end that ends its session.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The message cannot be decoded.
    #[error(transparent)]
    Message(#[from] DecodeError),
    /// The number of descriptors is wrong for the request.
    #[error("{name} with {found} file descriptor{plural}, expected {expected}", plural = if *found == 1 { "" } else { "s" })]
    Descriptors {
        /// The request.
        name: Name,
        /// The number found.
        found: usize,
        /// The number expected.
        expected: usize,
    },
    /// A descriptor is not an eventfd.
    #[error("{name} of ring {ring} with a file descriptor that is not an eventfd")]
    NotAnEventfd {
        /// The request.
        name: Name,
        /// The ring.
        ring: u8,
    },
    /// Features outside the offer.
    #[error("SET_FEATURES with bits that were not offered: {0}")]
    Features(String),
    /// Protocol features outside the offer.
    #[error("SET_PROTOCOL_FEATURES with bits that were not offered: {0}")]
    ProtocolFeatures(String),
    /// Features cannot change while rings are started.
    #[error("SET_FEATURES with different features while rings are started")]
    FeaturesChanged,
    /// A log without the protocol feature for it.
    #[error("SET_LOG_BASE without negotiated protocol feature 1 (LOG_SHMFD)")]
    LogNotShared,
    /// The log is unusable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A log with fewer bits than the memory has pages.
    #[error(
        "dirty log of {size} bytes covers guest addresses below {end:#x}, but memory extends to {memory:#x}"
    )]
    LogTooSmall {
        /// Its size in bytes.
        size: u64,
        /// The first address without a bit.
        end: u64,
        /// The first address after the memory.
        memory: u64,
    },
    /// A ring's log address is beyond the log.
    #[error("log address {address:#x} of ring {ring} is beyond the end of the dirty log at {end:#x}")]
    LogAddress {
        /// The ring.
        ring: usize,
        /// The ring's log address.
        address: u64,
        /// The first address without a bit.
        end: u64,
    },
    /// The ring does not exist.
    #[error("ring {ring} does not exist: the device has {rings} rings, two for each queue pair")]
    Ring {
        /// The ring.
        ring: u32,
        /// The number of rings.
        rings: usize,
    },
    /// The ring size is out of range.
    #[error("ring {ring} of {size} entries, expected 1 to 32768")]
    RingSize {
        /// The ring.
        ring: u32,
        /// The requested size.
        size: u32,
    },
    /// A change that a started ring does not allow.
    #[error("{name} of ring {ring} while it is started")]
    Started {
        /// The request.
        name: Name,
        /// The ring.
        ring: u32,
    },
    /// A ring's state is neither on nor off.
    #[error("SET_VRING_ENABLE of ring {ring} with {number}, expected 0 or 1")]
    Enable {
        /// The ring.
        ring: u32,
        /// The requested state.
        number: u32,
    },
    /// An incomplete ring is started.
    #[error("SET_VRING_KICK of ring {ring} before {missing}")]
    Incomplete {
        /// The ring.
        ring: u8,
        /// The missing request.
        missing: &'static str,
    },
    /// The driver does not signal, so the ring would have to be polled forever.
    #[error("SET_VRING_KICK of ring {ring} without an eventfd: drivers that do not signal are not supported")]
    NoKick {
        /// The ring.
        ring: u8,
    },
    /// Too many regions.
    #[error("more memory regions than the limit of {max}")]
    Regions {
        /// The limit.
        max: usize,
    },
    /// Too much memory.
    #[error("more than {max} bytes of memory")]
    Memory {
        /// The limit.
        max: u64,
    },
    /// The memory table is invalid.
    #[error(transparent)]
    MemoryTable(#[from] MemoryError),
    /// The ring is invalid.
    #[error("ring {ring}: {error}")]
    Queue {
        /// The ring.
        ring: usize,
        /// The cause.
        error: ConfigError,
    },
    /// Starting the rings failed.
    #[error("{0}")]
    Start(String),
}
