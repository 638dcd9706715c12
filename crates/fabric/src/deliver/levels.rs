//! Batches below a batch: what a worker has for packets that go on in another bridge.
//!
//! Invariant: a level's memory is made when a worker first needs it, and kept.

use crate::lists::scratchpad::Scratchpad;
use crate::rx::arena::Arena;
use crate::rx::{BatchLimits, RxBatch};

/// Times that a packet may cross from one bridge to another.
pub const MAX_DEPTH: usize = 8;

/// Crossings of all packets that come of one batch. Enough for each packet of a usual batch to be flooded to 128 bridges.
pub const MAX_CROSSINGS: u32 = 8192;

/// The batch below another one.
pub(crate) struct Level {
    pub(crate) batch: RxBatch,
    pub(crate) pad: Scratchpad,
}

/// What a worker has for batches below the one that it took from a queue.
#[derive(Default)]
pub(crate) struct Nest {
    /// Which worker it is and what its batches are bounded by. `None`: it is none, and nothing crosses.
    worker: Option<(usize, BatchLimits)>,
    levels: [Option<Box<Level>>; MAX_DEPTH],
    depth: usize,
    /// Where the headers of the batches above lie, if some logic supplies the memory.
    above: [Option<Arena>; MAX_DEPTH],
    /// Crossings that are left to the batch.
    left: u32,
}

impl Nest {
    /// That of worker `index`.
    pub(crate) fn of_worker(index: usize, limits: BatchLimits) -> Self {
        Self { worker: Some((index, BatchLimits { bytes: 0, ..limits })), ..Self::default() }
    }

    /// A batch was taken from a queue.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.left = MAX_CROSSINGS;
    }

    /// The next level for `packets` packets; `None` if that is one too deep, or they are too many.
    pub(crate) fn descend(&mut self, packets: u32, above: Option<Arena>) -> Option<(usize, Box<Level>)> {
        let (worker, limits) = self.worker?;
        let left = self.left.checked_sub(packets)?;
        let level = self.levels.get_mut(self.depth)?.take();
        let level = level.unwrap_or_else(|| {
            Box::new(Level { batch: RxBatch::new(limits), pad: Scratchpad::of_worker(worker) })
        });
        if let Some(slot) = self.above.get_mut(self.depth) {
            *slot = above;
        }
        self.left = left;
        self.depth += 1;
        Some((worker, level))
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
