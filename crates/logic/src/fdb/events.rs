//! What happens in a table, for whoever watches it.
//!
//! Workers leave events in a bounded queue and never wait: what finds no room is counted as lost. While nobody watches
//! an event costs one look at a flag, on the paths on which the table changes only.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use fabric::PortIndex;

use super::word::Key;

/// Events that a watcher may be behind.
const ROOM: usize = 4096;

/// What happened to a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdbChange {
    /// It was heard for the first time.
    Learned,
    /// It was heard behind another port than before.
    Moved,
    /// It made room for another.
    Evicted,
    /// It was silent for the ageing time.
    Expired,
    /// It was heard for the first time at a port that has as many stations as it may. Said once, until the port has fewer.
    AtLimit,
}

/// A station to which something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEvent {
    /// What happened.
    pub change: FdbChange,
    /// Its address and VLAN.
    pub key: Key,
    /// The port that it is behind now, or was last.
    pub port: PortIndex,
}

#[derive(Default)]
pub(super) struct Watch {
    on: AtomicBool,
    queue: OnceLock<ArrayQueue<FdbEvent>>,
    lost: AtomicU64,
}

impl Watch {
    pub(super) fn set(&self, on: bool) {
        if on {
            self.queue.get_or_init(|| ArrayQueue::new(ROOM));
        }
        self.on.store(on, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn note(&self, event: impl FnOnce() -> Option<FdbEvent>) {
        if self.on.load(Ordering::Relaxed) {
            self.push(event());
        }
    }

    #[cold]
    fn push(&self, event: Option<FdbEvent>) {
        let (Some(event), Some(queue)) = (event, self.queue.get()) else { return };
        if queue.push(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn drain(&self) -> (Vec<FdbEvent>, u64) {
        let queue = self.queue.get();
        // No more than there is room for: workers go on meanwhile.
        let events = queue.map(|queue| std::iter::from_fn(|| queue.pop()).take(ROOM).collect());
        (events.unwrap_or_default(), self.lost.swap(0, Ordering::Relaxed))
    }
}
