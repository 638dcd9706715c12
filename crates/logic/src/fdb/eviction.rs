//! Eviction: the limit of a port, and the choice of the station that leaves a full table.
//!
//! A port that floods source addresses pays for them itself. At its limit each new station replaces one of its own;
//! below it, one of the port with most stations, never one of a port with fewer stations than the newcomer's.
//!
//! The limit bounds the room that a port takes, so a station that moves to a port at its limit still moves: it needs no
//! further slot, and a guest that migrated must be found. Counts are read relaxed, so workers that learn at once may
//! misjudge a port by as many stations as there are workers.
//!
//! Invariant: [`Fdb::foresee`] and [`Fdb::learn`] both ask [`Fdb::victim`].

use std::sync::atomic::{AtomicU64, Ordering};

use fabric::PortIndex;
use fabric::port::MAX_PORTS;

use super::word::{self, Place, STATIC};
use super::{Fdb, FdbChange, Slot, age, count};
use crate::MacTable;

/// Occupied buckets searched for a station to evict if a new station's own buckets have none.
pub(super) const SWEEP: usize = 32;

/// A station that is about to be learned.
#[derive(Clone, Copy)]
pub(super) struct Newcomer {
    /// Its port.
    pub(super) port: PortIndex,
    /// Stations at its port, this one included.
    pub(super) stations: u32,
    /// Largest number of stations of its port.
    pub(super) limit: u32,
}

impl Newcomer {
    /// Makes a station set by hand, for which a learned one of any port makes room.
    pub(super) fn by_hand() -> Self {
        Self { port: PortIndex::NONE, stations: 0, limit: u32::MAX }
    }

    /// Returns whether only a station of its own port may make room for it.
    pub(super) fn exceeds_limit(self) -> bool {
        self.stations > self.limit
    }
}

/// A station that makes room for a new one.
pub(super) struct Victim<'a> {
    pub(super) bucket: usize,
    pub(super) slot: Slot<'a>,
    pub(super) word: u64,
    /// The new station's place, if the victim's slot is one of its candidates.
    pub(super) place: Option<Place>,
    /// Stations at the victim's port, and seconds since the victim was heard: the largest is evicted.
    rank: (u32, u32),
}

impl Fdb {
    /// Sets the number of stations that can be learned at one port, at least 1.
    pub fn with_port_limit(self, limit: u32) -> Self {
        self.port_limit.store(limit.max(1), Ordering::Relaxed);
        self
    }

    /// Changes the largest number of stations, of the table and of each port. The oldest of those that are too many go.
    /// Returns the largest number in effect: the table's memory stays as it was made, and has room for so many.
    pub fn resize(&self, stations: u32, at_port: u32) -> u32 {
        // Twice the number of buckets: two fifths of the slots.
        let room = u32::try_from(self.buckets.len() * 2).unwrap_or(u32::MAX);
        let stations = stations.clamp(1, room);
        self.capacity.store(stations as usize, Ordering::Relaxed);
        self.port_limit.store(at_port.max(1), Ordering::Relaxed);
        let surplus = self.len().saturating_sub(stations as usize);
        if surplus > 0 {
            let slots = (0..).zip(&self.buckets).flat_map(|(i, it)| it.slots().map(move |slot| (i, slot)));
            let learned = slots.filter_map(|(i, slot)| {
                let word = slot.word.load(Ordering::Acquire);
                (word != 0 && word & STATIC == 0).then_some((i, slot, word))
            });
            let mut learned: Vec<_> = learned.collect();
            learned.sort_by_key(|(i, slot, _)| self.rank(*i, *slot));
            for (bucket, slot, word) in learned.into_iter().take(surplus) {
                if self.take(slot, word) {
                    self.count_eviction(Newcomer::by_hand(), bucket, word);
                }
            }
        }
        stations
    }

    /// Returns the largest number of stations learned at one port.
    pub fn port_limit(&self) -> u32 {
        self.port_limit.load(Ordering::Relaxed)
    }

    /// Returns the table's limit for a port with its own limit of `most`, which refuses stations instead of replacing
    /// them.
    pub(super) fn limit_beside(&self, most: u32) -> u32 {
        if most == u32::MAX { self.port_limit() } else { u32::MAX }
    }

    /// Lets ports that are well below their limit be noted again. A port that stays close to its limit is so noted
    /// once. Conflicts are noted again at every port.
    pub fn rearm(&self) {
        self.in_conflict.ports().for_each(|port| self.in_conflict.forget(port));
        let limit = self.port_limit();
        let enough = limit - limit / 8;
        for port in self.at_limit.ports() {
            if self.stations_at(port) < enough {
                self.at_limit.forget(port);
            }
        }
    }

    /// Lists the ports that reached their limit and have not been well below it since.
    pub fn ports_at_limit(&self) -> Vec<PortIndex> {
        self.at_limit.ports().collect()
    }

    /// Finds a station to make room for a new one. Searches slots other than the new one's candidates, in `sweep`
    /// occupied buckets from `hand()` on, if emptying one of them would help and the candidates do not settle it. So
    /// the table's oldest station of those that may go is found if there are no more than `sweep`. With `tidies`, later
    /// searches skip the buckets that are found empty; without, nothing changes.
    pub(super) fn victim(
        &self,
        first: Place,
        new: Newcomer,
        now: u32,
        sweep: usize,
        hand: impl FnOnce() -> usize,
        tidies: bool,
    ) -> Option<Victim<'_>> {
        let mut free = false;
        let mut best: Option<Victim<'_>> = None;
        for (place, slot) in self.candidates(first) {
            let word = slot.word.load(Ordering::Acquire);
            free |= word == 0;
            best = larger(best, self.judge(new, place.bucket, slot, word, now, Some(place)));
        }
        // Without a free slot among the candidates, an empty one elsewhere is no use. A port with half of all stations
        // has most.
        let settled = |victim: &Victim<'_>| {
            self.len() > sweep && (new.exceeds_limit() || victim.rank.0 as usize >= self.len() / 2)
        };
        if !free || !(new.exceeds_limit() || self.is_full()) || best.as_ref().is_some_and(settled) {
            return best;
        }
        for i in self.occupied.buckets_from(hand() % self.buckets.len()).take(sweep) {
            let Some(bucket) = self.buckets.get(i) else { continue };
            let mut any = false;
            for slot in bucket.slots() {
                let word = slot.word.load(Ordering::Acquire);
                any |= word != 0;
                best = larger(best, self.judge(new, i, slot, word, now, None));
            }
            if !any && tidies {
                self.occupied.clear(i);
                if bucket.slots().any(|slot| slot.word.load(Ordering::SeqCst) != 0) {
                    self.occupied.set(i);
                }
            }
        }
        best
    }

    /// Ranks the station of a slot; `None` for one that cannot be evicted.
    #[inline]
    fn judge<'a>(
        &self,
        new: Newcomer,
        bucket: usize,
        slot: Slot<'a>,
        word: u64,
        now: u32,
        place: Option<Place>,
    ) -> Option<Victim<'a>> {
        if word == 0 || word & STATIC != 0 {
            return None;
        }
        let port = word::port(word);
        let stations = if port == new.port { new.stations } else { self.stations_at(port) };
        if port != new.port && (new.exceeds_limit() || stations < new.stations) {
            return None;
        }
        Some(Victim { bucket, slot, word, place, rank: (stations, age(slot, now)) })
    }

    /// Counts a station that made room for a new one.
    pub(super) fn count_eviction(&self, new: Newcomer, bucket: usize, word: u64) {
        count(&self.counters.evicted);
        if new.exceeds_limit() {
            count(&self.counters.limit_evicted);
        }
        self.note(FdbChange::Evicted, bucket, word);
    }
}

/// Returns the station to evict; the first of equals.
fn larger<'a>(best: Option<Victim<'a>>, other: Option<Victim<'a>>) -> Option<Victim<'a>> {
    match (best, other) {
        (Some(best), Some(other)) if other.rank > best.rank => Some(other),
        (None, other) => other,
        (best, _) => best,
    }
}

/// Ports that reached their limit, each noted once until it is well below it again.
pub(super) struct AtLimit([AtomicU64; MAX_PORTS / 64]);

impl Default for AtLimit {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_PORTS / 64])
    }
}

impl AtLimit {
    /// Notes a port. Returns whether it was not noted before.
    pub(super) fn note(&self, port: PortIndex) -> bool {
        let (at, bit) = (usize::from(port.0) / 64, 1 << (port.0 % 64));
        // The load spares workers that learn under a flood the locked instruction.
        self.0.get(at).is_some_and(|bits| {
            bits.load(Ordering::Relaxed) & bit == 0 && bits.fetch_or(bit, Ordering::Relaxed) & bit == 0
        })
    }

    /// Lists the ports noted.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortIndex> {
        (0u16..).zip(&self.0).flat_map(|(at, bits)| {
            let bits = bits.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| PortIndex(at * 64 + bit))
        })
    }

    /// Forgets a port, so that it is noted again.
    pub(super) fn forget(&self, port: PortIndex) {
        if let Some(bits) = self.0.get(usize::from(port.0) / 64) {
            bits.fetch_and(!(1 << (port.0 % 64)), Ordering::Relaxed);
        }
    }
}
