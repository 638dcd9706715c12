//! Events of a table, for its watcher.
//!
//! Workers put events in a bounded queue and never wait: an event that finds the queue full is counted as lost. Without
//! a watcher an event costs one look at a flag, only on the paths that change the table.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use fabric::PortIndex;

use super::Fixed;
use super::word::Key;

/// Events that the queue holds for a slow watcher.
const ROOM: usize = 4096;

/// Change of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdbChange {
    /// It was heard for the first time.
    Learned,
    /// It was heard at another port than before.
    Moved,
    /// It made room for another.
    Evicted,
    /// It was silent for the ageing time.
    Expired,
    /// It was heard for the first time, at a port that is at its limit. Reported once, until the port is well below it.
    AtLimit,
    /// It was heard at another port than the one that it belongs to, and is not learned there. Reported for one station
    /// a port until [`super::Fdb::rearm`].
    Conflict(Fixed),
}

/// A change and the station that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEvent {
    /// The change.
    pub change: FdbChange,
    /// The station's address and VLAN.
    pub key: Key,
    /// The station's port, now or last.
    pub port: PortIndex,
    /// The port where it was before it moved, or the one that it belongs to.
    pub other: Option<PortIndex>,
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

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn note(&self, event: impl FnOnce() -> Option<FdbEvent>) {
        if self.is_on() {
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
        // At most one queue's worth: workers add events meanwhile.
        let events = queue.map(|queue| std::iter::from_fn(|| queue.pop()).take(ROOM).collect());
        (events.unwrap_or_default(), self.lost.swap(0, Ordering::Relaxed))
    }
}
