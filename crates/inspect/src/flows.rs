//! The table of flows: fixed size, shared by all workers, without a lock.
//!
//! A flow belongs to one bucket of eight places. The *tag* of a place is the flow's hash, whose secret no sender knows;
//! a flow is its tag, so two flows are taken for one with a probability of 2^-64 for each pair.
//!
//! Why no lock is needed: a worker that adds a flow takes a place by exchanging its tag for [`BUSY`], fills it in, and
//! stores the new tag with `Release`; a worker that finds the tag with `Acquire` sees all of that. What changes later
//! is in single words, each replaced by compare-and-swap against the value that the new one follows from. Such a word
//! tells of its flow: runs carry sequence numbers or the flow's nonce, and the verdict carries 16 bits of the tag. A
//! worker that still holds a place which another has given to a new flow fails to replace its words.
//!
//! Two workers that meet a new flow at the same instant may both add it. Later packets find the first place; the other
//! one is idle, and a verdict in it is lost. `who` is for people: it may be torn while a place changes hands.
//!
//! Invariants: memory is fixed; a place that is [`BUSY`] is not taken; only idle flows and, in a full bucket, the
//! oldest one are replaced.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::frame::Key;
use crate::stream::Run;

const WAYS: usize = 8;

/// Tag of a place that holds no flow, and of one that is being filled in.
const FREE: u64 = 0;
const BUSY: u64 = 1;

#[repr(align(64))]
#[derive(Default)]
struct Bucket {
    tags: [AtomicU64; WAYS],
    /// Runs of each direction.
    runs: [[[AtomicU64; 2]; 2]; WAYS],
    /// Verdict and time; see [`Status`].
    status: [AtomicU64; WAYS],
    /// Rules that have matched, by number modulo 64.
    matched: [AtomicU64; WAYS],
}

/// Addresses, ports, protocol and VLAN of a flow, as words.
type Who = [AtomicU64; 5];

/// Flows.
pub(crate) struct Flows {
    buckets: Box<[Bucket]>,
    who: Box<[[Who; WAYS]]>,
    used: AtomicU64,
    secret: RandomState,
    idle: u32,
}

/// Verdict about a flow and the second of its last packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status {
    /// 16 bits of the tag.
    check: u16,
    /// Number of the rule from 1 on; 0: none.
    verdict: u16,
    seen: u32,
}

impl Status {
    fn word(self) -> u64 {
        u64::from(self.check) << 48 | u64::from(self.verdict) << 32 | u64::from(self.seen)
    }

    fn of(word: u64) -> Self {
        Self { check: (word >> 48) as u16, verdict: (word >> 32) as u16, seen: word as u32 }
    }

    fn is_idle(self, now: u32, idle: u32) -> bool {
        now.saturating_sub(self.seen) >= idle
    }
}

/// A flow's place.
#[derive(Clone, Copy)]
pub(crate) struct Flow<'a> {
    bucket: &'a Bucket,
    way: usize,
    tag: u64,
}

/// How a flow got its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// In a place that no flow used.
    Free,
    /// In that of an idle flow, or of the oldest of a full bucket.
    Evicted,
}

/// A flow in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: Key,
    /// Number of the rule, from 0.
    pub(crate) verdict: Option<usize>,
    /// The second of its last packet.
    pub(crate) seen: u32,
}

impl Flows {
    /// Makes room for at least so many flows, each idle after so many seconds.
    pub(crate) fn new(flows: usize, idle: u32) -> Self {
        let buckets = flows.div_ceil(WAYS).max(1);
        let fill = |_| std::array::from_fn(|_| Who::default());
        Self {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            who: (0..buckets).map(fill).collect(),
            used: AtomicU64::new(0),
            secret: RandomState::new(),
            idle,
        }
    }

    /// Number of flows that fit.
    pub(crate) fn capacity(&self) -> u64 {
        (self.buckets.len() * WAYS) as u64
    }

    /// Number of places in use, also by flows that have been idle for some seconds.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns the tag of a flow.
    #[inline]
    pub(crate) fn tag(&self, key: &Key) -> u64 {
        self.secret.hash_one(key).max(BUSY + 1)
    }

    #[inline]
    fn place(&self, tag: u64) -> usize {
        ((u128::from(tag) * self.buckets.len() as u128) >> 64) as usize
    }

    /// Finds a flow that is not idle.
    #[inline]
    pub(crate) fn find(&self, tag: u64, now: u32) -> Option<Flow<'_>> {
        let bucket = self.buckets.get(self.place(tag))?;
        let way = bucket.tags.iter().position(|place| place.load(Acquire) == tag)?;
        let flow = Flow { bucket, way, tag };
        flow.status().filter(|status| !status.is_idle(now, self.idle)).map(|_| flow)
    }

    /// Adds a flow that was not found. `None` if other workers are filling all places of its bucket.
    #[cold]
    pub(crate) fn add(&self, key: &Key, tag: u64, now: u32) -> Option<(Flow<'_>, Added)> {
        let number = self.place(tag);
        let (bucket, who) = (self.buckets.get(number)?, self.who.get(number)?);
        let age = |way: usize| {
            let status = bucket.status.get(way).map_or(0, |status| status.load(Relaxed));
            now.saturating_sub(Status::of(status).seen)
        };
        // The flow's own place, if it was idle; a free one; the oldest one.
        let rank = |(way, place): (usize, &AtomicU64)| {
            let old = place.load(Relaxed);
            match old {
                BUSY => None,
                _ if old == tag => Some((u64::MAX, way, old)),
                FREE => Some((u64::MAX - 1, way, old)),
                _ => Some((age(way).into(), way, old)),
            }
        };
        for _ in 0..WAYS {
            let (_, way, old) =
                bucket.tags.iter().enumerate().filter_map(rank).max_by_key(|(rank, ..)| *rank)?;
            let place = bucket.tags.get(way)?;
            // Acquire: what the former owner wrote comes first.
            if place.compare_exchange(old, BUSY, Acquire, Relaxed).is_err() {
                continue;
            }
            let flow = Flow { bucket, way, tag };
            flow.reset(now);
            let words = words(key);
            who.get(way)
                .into_iter()
                .flatten()
                .zip(words)
                .for_each(|(place, word)| place.store(word, Relaxed));
            place.store(tag, Release);
            let added = if old == FREE { Added::Free } else { Added::Evicted };
            if added == Added::Free {
                self.used.fetch_add(1, Relaxed);
            }
            return Some((flow, added));
        }
        None
    }

    /// Frees the places of idle flows.
    pub(crate) fn sweep(&self, now: u32) {
        for bucket in &self.buckets {
            for (tag, status) in bucket.tags.iter().zip(&bucket.status) {
                let old = tag.load(Acquire);
                if old > BUSY
                    && Status::of(status.load(Relaxed)).is_idle(now, self.idle)
                    && tag.compare_exchange(old, FREE, Relaxed, Relaxed).is_ok()
                {
                    self.used.fetch_sub(1, Relaxed);
                }
            }
        }
    }

    /// Lists the flows that are not idle.
    pub(crate) fn iter(&self, now: u32) -> impl Iterator<Item = Listed> {
        let in_bucket = move |(bucket, who): (&Bucket, &[Who; WAYS])| {
            let found = (0..WAYS).filter_map(|way| {
                let tag = bucket.tags.get(way)?.load(Acquire);
                let status = Status::of(bucket.status.get(way)?.load(Relaxed));
                let key = key(who.get(way)?);
                let verdict = usize::from(status.verdict).checked_sub(1);
                let live = tag > BUSY && !status.is_idle(now, self.idle);
                live.then_some(Listed { key, verdict, seen: status.seen })
            });
            found.collect::<Vec<_>>()
        };
        self.buckets.iter().zip(&self.who).flat_map(in_bucket)
    }
}

fn words(key: &Key) -> [u64; 5] {
    let [a, b] = key.ends;
    let [p, q] = key.ports;
    let rest = u64::from(p) << 48
        | u64::from(q) << 32
        | u64::from(key.protocol) << 24
        | u64::from(key.vlan & 0xff_ffff);
    [(a >> 64) as u64, a as u64, (b >> 64) as u64, b as u64, rest]
}

fn key(who: &Who) -> Key {
    let [a, b, c, d, rest] = who.each_ref().map(|word| word.load(Relaxed));
    let join = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
    Key {
        ends: [join(a, b), join(c, d)],
        ports: [(rest >> 48) as u16, (rest >> 32) as u16],
        protocol: (rest >> 24) as u8,
        vlan: rest as u32 & 0xff_ffff,
    }
}

impl Flow<'_> {
    fn reset(&self, now: u32) {
        let none = Run::none(self.tag as u32);
        self.bucket
            .runs
            .get(self.way)
            .into_iter()
            .flatten()
            .flatten()
            .for_each(|run| run.store(none, Relaxed));
        if let (Some(status), Some(matched)) =
            (self.bucket.status.get(self.way), self.bucket.matched.get(self.way))
        {
            status.store(Status { check: self.check(), verdict: 0, seen: now }.word(), Relaxed);
            matched.store(0, Relaxed);
        }
    }

    fn check(&self) -> u16 {
        self.tag as u16
    }

    /// Returns its status; `None` if the place was given to another flow.
    #[inline]
    fn status(&self) -> Option<Status> {
        let status = Status::of(self.bucket.status.get(self.way)?.load(Relaxed));
        (status.check == self.check()).then_some(status)
    }

    /// Replaces its status, as long as the place is this flow's.
    fn change(&self, change: impl Fn(Status) -> Option<Status>) {
        let Some(place) = self.bucket.status.get(self.way) else { return };
        let step = |word: u64| {
            let status = Some(Status::of(word)).filter(|status| status.check == self.check())?;
            change(status).map(Status::word)
        };
        // An error: nothing is to be changed.
        let _ = place.fetch_update(Relaxed, Relaxed, step);
    }

    /// Returns the number of the rule that has decided about it, from 0.
    #[inline]
    pub(crate) fn verdict(&self) -> Option<usize> {
        usize::from(self.status()?.verdict).checked_sub(1)
    }

    /// Records that a rule, by its number from 0, decides about it; the first one stays.
    pub(crate) fn decide(&self, rule: usize) {
        let verdict = u16::try_from(rule + 1).unwrap_or(u16::MAX);
        self.change(|status| (status.verdict == 0).then_some(Status { verdict, ..status }));
    }

    /// Records that it is in use.
    #[inline]
    pub(crate) fn touch(&self, now: u32) {
        if self.status().is_some_and(|status| status.seen < now) {
            self.change(|status| (status.seen < now).then_some(Status { seen: now, ..status }));
        }
    }

    /// Returns the words of a direction's runs.
    #[inline]
    pub(crate) fn runs(&self, direction: usize) -> Option<[u64; 2]> {
        Some(self.bucket.runs.get(self.way)?.get(direction)?.each_ref().map(|run| run.load(Relaxed)))
    }

    /// Replaces the word of a run. Fails if it is not `old` any more.
    #[inline]
    pub(crate) fn replace(&self, direction: usize, run: usize, old: u64, new: u64) -> bool {
        let runs = self.bucket.runs.get(self.way).and_then(|runs| runs.get(direction));
        let Some(place) = runs.and_then(|runs| runs.get(run)) else { return false };
        place.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    }

    /// Records that a rule has matched. Returns whether it has not before, nor one whose number is the same modulo 64.
    pub(crate) fn is_first_match(&self, rule: usize) -> bool {
        let bit = 1 << (rule % 64);
        self.bucket.matched.get(self.way).is_some_and(|matched| matched.fetch_or(bit, Relaxed) & bit == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> Key {
        Key { ends: [1, u128::MAX], ports: [port, 80], protocol: 6, vlan: 0xabc }
    }

    #[test]
    fn flows_are_found_until_idle() {
        let flows = Flows::new(64, 10);
        let tag = flows.tag(&key(1));
        assert!(flows.find(tag, 5).is_none());
        let (flow, added) = flows.add(&key(1), tag, 5).unwrap();
        assert_eq!((added, flow.verdict(), flows.used()), (Added::Free, None, 1));
        flow.decide(7);
        flow.decide(3);
        flow.touch(9);
        assert_eq!(flows.find(tag, 18).unwrap().verdict(), Some(7));
        assert_eq!(flows.iter(18).collect::<Vec<_>>(), [Listed { key: key(1), verdict: Some(7), seen: 9 }]);
        assert!(flows.find(tag, 19).is_none());
        let (flow, added) = flows.add(&key(1), tag, 19).unwrap();
        assert_eq!((added, flow.verdict(), flows.used()), (Added::Evicted, None, 1));
        flows.sweep(29);
        assert_eq!((flows.used(), flows.iter(29).count()), (0, 0));
        assert!(flow.is_first_match(1) && !flow.is_first_match(65) && flow.is_first_match(0));
    }

    #[test]
    fn a_full_bucket_gives_up_its_oldest_flow() {
        let flows = Flows::new(1, 1000);
        assert_eq!(flows.capacity(), 8);
        for port in 0..8 {
            flows.add(&key(port), flows.tag(&key(port)), 10 + u32::from(port != 3)).unwrap();
        }
        let (_, added) = flows.add(&key(99), flows.tag(&key(99)), 20).unwrap();
        assert_eq!((added, flows.used()), (Added::Evicted, 8));
        let left = |port| flows.find(flows.tag(&key(port)), 20).is_some();
        assert!(!left(3) && left(2) && left(99));
    }

    #[test]
    fn a_lost_place_cannot_be_changed() {
        let flows = Flows::new(1, 10);
        let tag = flows.tag(&key(1));
        let (old, _) = flows.add(&key(1), tag, 0).unwrap();
        let [run, _] = old.runs(0).unwrap();
        flows.sweep(10);
        for port in 2..10 {
            flows.add(&key(port), flows.tag(&key(port)), 10).unwrap();
        }
        assert!(!old.replace(0, 0, run, Run { place: 1, next: 2 }.word()));
        old.decide(5);
        assert!(flows.iter(10).all(|flow| flow.verdict.is_none()));
    }

    #[test]
    fn workers_share_the_table() {
        let flows = Flows::new(64, 1000);
        std::thread::scope(|scope| {
            for worker in 0..4u16 {
                let flows = &flows;
                scope.spawn(move || {
                    for round in 0..2000u16 {
                        let key = key(round * 7 % 200 + worker % 2);
                        let tag = flows.tag(&key);
                        let flow =
                            flows.find(tag, 5).or_else(|| flows.add(&key, tag, 5).map(|(flow, _)| flow));
                        if let Some(flow) = flow {
                            flow.decide(usize::from(key.ports[0]));
                            flow.touch(5);
                        }
                    }
                });
            }
        });
        // A verdict is that of its own flow, but for a check of 16 bits.
        let wrong =
            flows.iter(5).filter(|flow| flow.verdict.is_some_and(|v| v != usize::from(flow.key.ports[0])));
        assert_eq!(wrong.count(), 0);
        assert!(flows.used() <= flows.capacity());
    }
}
