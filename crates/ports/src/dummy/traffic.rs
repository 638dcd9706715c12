//! Frames on their way between dummy ports of this process, through the sockets of their streams.
//!
//! Invariant: a frame that arrives is counted once. One that is lost with its connection is never counted: whoever
//! waits for the frames gives up.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Frames that have left, and that have arrived.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    left: AtomicU64,
    arrived: AtomicU64,
}

impl Traffic {
    /// Counts a frame that leaves.
    pub(super) fn leave(&self) {
        self.left.fetch_add(1, SeqCst);
    }

    /// Whether every frame has arrived and was switched.
    pub(super) fn is_idle(&self) -> bool {
        let left = self.left.load(SeqCst);
        self.arrived.load(SeqCst) >= left
    }

    /// Waits no longer for the frames that are missing.
    pub(super) fn give_up(&self) {
        self.arrived.fetch_max(self.left.load(SeqCst), SeqCst);
    }
}

/// A frame that has come through a stream; it has arrived when this is dropped.
pub(super) struct Arrival(pub(super) Arc<Traffic>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.arrived.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_awaited_until_they_arrive_or_are_given_up() {
        let traffic = Arc::new(Traffic::default());
        assert!(traffic.is_idle());
        traffic.leave();
        traffic.leave();
        drop(Arrival(traffic.clone()));
        assert!(!traffic.is_idle());
        traffic.give_up();
        assert!(traffic.is_idle());
    }
}
