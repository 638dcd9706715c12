//! Hits of expressions: packets and bytes, counted by each thread for itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabric::worker::{PerThread, Threads};

/// Packets and bytes.
#[derive(Debug, Default)]
pub(crate) struct Hit {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Hit {
    /// Adds a packet. Only one thread writes.
    #[inline]
    pub(crate) fn add(&self, bytes: u32) {
        self.packets.store(self.packets.load(Relaxed).wrapping_add(1), Relaxed);
        self.bytes.store(self.bytes.load(Relaxed).wrapping_add(bytes.into()), Relaxed);
    }
}

/// Hits of a list's expressions, and of packets that none keeps.
pub(crate) struct Hits {
    own: PerThread<Box<[Hit]>>,
    expressions: usize,
}

impl Hits {
    pub(crate) fn new(expressions: usize) -> Self {
        Self { own: PerThread::default(), expressions }
    }

    pub(crate) fn prepare(&self, threads: Threads) -> Result<(), String> {
        self.own.prepare(threads, |_| Ok((0..=self.expressions).map(|_| Hit::default()).collect()))
    }

    /// A thread's own, by the number of the expression from 0; behind them that of packets that none keeps.
    #[inline]
    pub(crate) fn of(&self, thread: usize) -> &[Hit] {
        self.own.get(thread).map_or(&[], |hits| hits)
    }

    /// Packets and bytes of all threads.
    pub(crate) fn sum(&self, number: usize) -> (u64, u64) {
        let hits = self.own.iter().filter_map(|(_, hits)| hits.get(number));
        hits.fold((0, 0), |(packets, bytes), hit| {
            (packets + hit.packets.load(Relaxed), bytes + hit.bytes.load(Relaxed))
        })
    }

    /// Packets and bytes that no expression keeps.
    pub(crate) fn unmatched(&self) -> (u64, u64) {
        self.sum(self.expressions)
    }
}
