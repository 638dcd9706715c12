//! What a client can do that costs it its port.

use std::sync::Arc;

/// Told once when a client costs itself its port. Runs on a worker: it must not block or call the switch.
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
    /// A chain with more descriptors than [`crate::rx::MAX_SEGMENTS`] or one that never ends.
    #[error("descriptor chain longer than {max} entries or without end")]
    Chain {
        /// Longest chain accepted.
        max: u16,
    },
    /// A packet of no bytes at all, or a buffer for none.
    #[error("descriptor {index} has zero length")]
    ZeroLength {
        /// Position in the ring.
        index: u16,
    },
    /// The file behind a region was truncated or punched while in use.
    #[error("shared memory was truncated or punched (SIGBUS)")]
    Memory,
    /// A worker was blocked in the client's memory for milliseconds.
    #[error("a worker had to wait for the client's memory: it is being punched, swapped out or withheld")]
    Stalled,
    /// A worker took milliseconds to signal the client.
    #[error("signals to the client take milliseconds: too much watches its eventfd")]
    Signal,
    /// The file descriptor to be notified through refused.
    #[error("notification failed: {0}")]
    Notify(rustix::io::Errno),
    /// A rule of the port type's own; the port knows which.
    #[error("the client broke the port's protocol")]
    Protocol,
    /// The device went away.
    #[error("device failed: {0}")]
    Device(rustix::io::Errno),
}
