//! Counts: of the logic and of each rule, by each thread for itself.
//!
//! Invariant: only one thread writes a count, so a load and a store suffice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabric::worker::{PerThread, Threads};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident: $help:literal,)*) => {
        /// Counts of the logic.
        #[derive(Debug, Default)]
        pub(crate) struct Tally {
            $($(#[doc = $doc])* pub(crate) $name: AtomicU64,)*
        }

        /// Names, descriptions and fields of all counts.
        pub(crate) const COUNTERS: &[(&str, &str, fn(&Tally) -> &AtomicU64)] =
            &[$((stringify!($name), $help, |tally| &tally.$name),)*];
    };
}

counters! {
    scanned_packets: "packets scanned",
    scanned_bytes: "bytes scanned",
    dropped: "packets dropped by a rule, or of a flow that it has decided about",
    diverted: "packets sent to the port of a rule",
    retransmitted: "segments that were scanned before, as far as their numbers say",
    gaps: "segments in front of which bytes are missing",
    dropped_gaps: "of these, segments dropped for `gaps=drop`",
    fragments: "fragments, each scanned alone",
    odd: "packets with contradicting lengths or a hidden transport header, each scanned alone",
    uninspected: "packets without TCP or UDP, or of ports that no rule asks for",
    evicted: "flows that made room for others",
    untracked: "packets scanned alone since their bucket of flows was being changed, or two workers had one stream",
}

/// Counts of a rule.
#[derive(Debug, Default)]
pub(crate) struct Hit {
    matches: AtomicU64,
    flows: AtomicU64,
}

/// Counts of all threads.
pub(crate) struct Counts {
    own: PerThread<(Tally, Box<[Hit]>)>,
    rules: usize,
}

/// Counts of one thread; none in a rehearsal.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a>(Option<&'a (Tally, Box<[Hit]>)>);

/// Adds to a count of this thread.
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Counts {
    pub(crate) fn new(rules: usize) -> Self {
        Self { own: PerThread::default(), rules }
    }

    pub(crate) fn prepare(&self, threads: Threads) -> Result<(), String> {
        let hits = || (0..self.rules).map(|_| Hit::default()).collect();
        self.own.prepare(threads, |_| Ok((Tally::default(), hits())))
    }

    /// Returns a thread's own.
    #[inline]
    pub(crate) fn of(&self, thread: usize, is_rehearsal: bool) -> Own<'_> {
        Own(if is_rehearsal { None } else { self.own.get(thread) })
    }

    /// Sum of a count over all threads.
    pub(crate) fn sum(&self, count: fn(&Tally) -> &AtomicU64) -> u64 {
        self.own.iter().map(|(_, (tally, _))| count(tally).load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Matches of a rule, and flows in which it has matched.
    pub(crate) fn of_rule(&self, rule: usize) -> (u64, u64) {
        let hits = self.own.iter().filter_map(|(_, (_, hits))| hits.get(rule));
        hits.fold((0, 0), |(matches, flows), hit| {
            (matches + hit.matches.load(Relaxed), flows + hit.flows.load(Relaxed))
        })
    }
}

impl Own<'_> {
    /// Adds to a count.
    #[inline]
    pub(crate) fn add(self, count: fn(&Tally) -> &AtomicU64, more: u64) {
        if let Some((tally, _)) = self.0 {
            add(count(tally), more);
        }
    }

    /// Counts a match of a rule.
    #[inline]
    pub(crate) fn add_match(self, rule: usize) {
        if let Some(hit) = self.0.and_then(|(_, hits)| hits.get(rule)) {
            add(&hit.matches, 1);
        }
    }

    /// Counts a flow in which a rule matches.
    pub(crate) fn add_flow(self, rule: usize) {
        if let Some(hit) = self.0.and_then(|(_, hits)| hits.get(rule)) {
            add(&hit.flows, 1);
        }
    }
}
