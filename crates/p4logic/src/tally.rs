//! Counters of a worker, which only it writes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pipeline::interp::Dropped;

/// Reasons for which the logic drops packets, with their counters' names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lost {
    /// The program drops it.
    Program,
    /// The program sends it nowhere.
    NoDestination,
    /// It exceeds a limit of the pipeline.
    Limit,
    /// There is no program.
    NoProgram,
    /// The program sends it to a port that does not exist.
    NoPort,
}

/// Names and descriptions of the counters of [`Lost`], in order.
pub(crate) const LOST: [(&str, &str); 5] = [
    ("dropped_by_program", "packets that the program drops"),
    ("dropped_no_destination", "packets that the program sends nowhere"),
    ("dropped_limit", "packets that cause too much work"),
    ("dropped_no_program", "packets that came while there was no program"),
    ("dropped_no_port", "packets for a port that does not exist"),
];

impl Lost {
    pub(crate) fn of(reason: Dropped) -> Self {
        match reason {
            Dropped::Reason(_) => Lost::Program,
            Dropped::NoDestination => Lost::NoDestination,
            Dropped::Limit(_) | Dropped::NoExtern(_) => Lost::Limit,
        }
    }
}

/// Counters of a worker.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    lost: [AtomicU64; LOST.len()],
    /// Packets for controllers and digests, and those that found no room.
    pub(crate) upcalls: AtomicU64,
    pub(crate) upcalls_lost: AtomicU64,
    /// Packets that the interpreter runs.
    pub(crate) interpreted: AtomicU64,
}

/// Adds one; only the counter's worker may do so.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

impl Tally {
    pub(crate) fn lose(&self, what: Lost) {
        self.lost.get(what as usize).into_iter().for_each(bump);
    }

    /// The counters of [`LOST`], in order.
    pub(crate) fn lost(&self) -> impl Iterator<Item = u64> {
        self.lost.iter().map(|counter| counter.load(Relaxed))
    }
}
