//! Nested batches of a worker, for packets that go on in another bridge.
//!
//! Invariant: a level's memory is allocated when a worker first needs it, and kept.

use std::sync::Arc;

use crate::lists::scratchpad::Scratchpad;
use crate::rx::arena::Arena;
use crate::rx::{BatchLimits, RxBatch};
use crate::worker::activity::Activity;

/// Times that a packet may cross from one bridge to another.
pub const MAX_DEPTH: usize = 8;

/// Crossings of all packets that come of one batch. Enough to flood each packet of a usual batch to 128 bridges.
pub const MAX_CROSSINGS: u32 = 8192;

/// A nested batch.
pub(crate) struct Level {
    pub(crate) batch: RxBatch,
    pub(crate) pad: Scratchpad,
}

/// Nested batches of a worker, below the one that it took from a queue.
#[derive(Default)]
pub(crate) struct NestedBatches {
    /// The worker, the limits of its batches, and its thread's activity. `None` outside of workers: nothing crosses.
    worker: Option<(usize, BatchLimits, Arc<Activity>)>,
    levels: [Option<Box<Level>>; MAX_DEPTH],
    depth: usize,
    /// Arenas that hold the headers of the batches above, if a logic supplies the memory.
    above: [Option<Arena>; MAX_DEPTH],
    /// Crossings left for the batch.
    left: u32,
}

impl NestedBatches {
    /// Nested batches of worker `index`.
    pub(crate) fn of_worker(index: usize, limits: BatchLimits, activity: Arc<Activity>) -> Self {
        Self { worker: Some((index, BatchLimits { bytes: 0, ..limits }, activity)), ..Self::default() }
    }

    /// Starts a batch taken from a queue.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.left = MAX_CROSSINGS;
    }

    /// Takes the next level for `packets` packets; `None` if it is too deep or the packets are too many.
    pub(crate) fn descend(&mut self, packets: u32, above: Option<Arena>) -> Option<(usize, Box<Level>)> {
        let (worker, limits, activity) = self.worker.as_ref()?;
        let left = self.left.checked_sub(packets)?;
        let level = self.levels.get_mut(self.depth)?.take();
        let level = level.unwrap_or_else(|| {
            let pad = Scratchpad::of_worker(*worker, activity.clone());
            Box::new(Level { batch: RxBatch::new(*limits), pad })
        });
        if let Some(slot) = self.above.get_mut(self.depth) {
            *slot = above;
        }
        self.left = left;
        self.depth += 1;
        Some((*worker, level))
    }

    /// Leaves the level.
    pub(crate) fn ascend(&mut self, level: Box<Level>) {
        self.depth -= 1;
        if let Some(slot) = self.levels.get_mut(self.depth) {
            *slot = Some(level);
        }
    }

    /// Whether the headers of a batch above lie here.
    pub(crate) fn holds(&self, arena: Arena) -> bool {
        self.above.iter().take(self.depth).any(|above| *above == Some(arena))
    }
}
