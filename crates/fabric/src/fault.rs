//! Faults: rules that a client breaks at the cost of its port.

use std::sync::Arc;

/// Called once when a client's fault takes its port down. Runs on a worker: it must not block or call the switch.
pub type OnFault = Arc<dyn Fn(Fault) + Send + Sync>;

/// A client broke its protocol or its memory; its port goes down with this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A ring index moved by more than the ring holds.
    #[error("ring index jumped: {published} entries published in a ring of {size}")]
    RingIndex {
        /// Distance between the index seen and the last one used.
        published: u32,
        /// Entries in the ring.
        size: u32,
    },
    /// A descriptor names memory outside the client's regions.
    #[error("descriptor {index} is outside its region (region {region}, offset {offset}, length {length})")]
    OutOfRegion {
        /// Position in the ring.
        index: u16,
        /// Region it names.
        region: u16,
        /// Offset in the region, bytes.
        offset: u32,
        /// Length, bytes.
        length: u32,
    },
    /// A chain with more descriptors than [`crate::rx::MAX_SEGMENTS`], or an endless one.
    #[error("descriptor chain is endless or longer than {max} entries")]
    Chain {
        /// Longest chain accepted.
        max: u16,
    },
    /// An empty packet, or an empty buffer.
    #[error("descriptor {index} has zero length")]
    ZeroLength {
        /// Position in the ring.
        index: u16,
    },
    /// The file behind a region was truncated or punched while in use.
    #[error("shared memory was truncated or punched (SIGBUS)")]
    Memory,
    /// A worker was blocked in the client's memory for milliseconds.
    #[error(
        "access to the client's memory blocked a worker: the memory is being punched, swapped out or withheld"
    )]
    Stalled,
    /// Signalling the client took a worker milliseconds.
    #[error("signalling the client takes milliseconds: too many watches on its eventfd")]
    Signal,
    /// The descriptor for notifications failed.
    #[error("notification failed: {0}")]
    Notify(rustix::io::Errno),
    /// A rule of the port type's own was broken; the port knows which one.
    #[error("the client broke the port's protocol")]
    Protocol,
    /// The device went away.
    #[error("device failed: {0}")]
    Device(rustix::io::Errno),
}
