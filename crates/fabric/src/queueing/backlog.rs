//! The number of packets that wait for a transmit queue, by which workers know whether a list may pass at once.
//!
//! Invariant: a packet counts from before the drain can find it until it has been delivered. Who finds the count at zero
//! sees those deliveries, so that a list that passes at once comes behind all packets that its worker had put before.

use crate::sync::{AtomicU32, Ordering};

/// The count. See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog(AtomicU32);

impl Backlog {
    /// Whether no packet waits.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Packets that wait, or are being delivered by the drain.
    pub(crate) fn packets(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Packets are about to be put into a queue.
    pub(crate) fn begin(&self, packets: u32) {
        self.0.fetch_add(packets, Ordering::Relaxed);
    }

    /// Packets no longer wait: they were delivered or dropped, or had found no room.
    pub(crate) fn end(&self, packets: u32) {
        self.0.fetch_sub(packets, Ordering::Release);
    }
}
