//! Counters of a worker, which only it writes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ofswitch::Switch;
use pipeline::interp::Dropped;

/// Drops for other reasons than the program's own.
const OTHERS: [&str; 5] = ["no destination", "too much work", "port configuration", "bond", "spanning tree"];

/// A drop that the program does not know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Other {
    NoDestination,
    Limit,
    PortConfiguration,
    Bond,
    SpanningTree,
}

/// Counters of a worker.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The program's reasons, then [`OTHERS`].
    drops: Box<[AtomicU64]>,
    /// Packets for the logic's thread, and those that found no room.
    pub(crate) upcalls: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Packets that `sample` actions chose.
    pub(crate) samples: AtomicU64,
    /// Packets that the interpreter runs.
    pub(crate) interpreted: AtomicU64,
}

/// Adds one; only the counter's worker may do so.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

impl Tally {
    pub(crate) fn new() -> Self {
        let count = Switch::drop_reasons().len() + OTHERS.len();
        let zero = AtomicU64::default;
        Self {
            drops: (0..count).map(|_| zero()).collect(),
            upcalls: zero(),
            lost: zero(),
            samples: zero(),
            interpreted: zero(),
        }
    }

    /// Reasons in the order of their counters.
    pub(crate) fn reasons() -> impl Iterator<Item = &'static str> {
        Switch::drop_reasons().iter().map(String::as_str).chain(OTHERS)
    }

    fn count(&self, at: usize) {
        self.drops.get(at).into_iter().for_each(bump);
    }

    pub(crate) fn drop_other(&self, other: Other) {
        self.count(Switch::drop_reasons().len() + other as usize);
    }

    pub(crate) fn dropped(&self, reason: Dropped) {
        match reason {
            Dropped::Reason(id) => self.count(id.index()),
            Dropped::NoDestination => self.drop_other(Other::NoDestination),
            Dropped::Limit(_) | Dropped::NoExtern(_) => self.drop_other(Other::Limit),
        }
    }

    pub(crate) fn drops(&self) -> impl Iterator<Item = u64> {
        self.drops.iter().map(|counter| counter.load(Relaxed))
    }
}
