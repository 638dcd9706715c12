//! The filtering database: which port each station was last heard at (IEEE 802.1Q §8.8), shared by all workers.
//!
//! An array of buckets, each one cache line: five words, and the second at which the station of each was last heard. A
//! station has two candidate buckets and lies in the second only if the first was full. Key and port share one word
//! (see `word.rs`), so a lookup reads one cache line, hardly ever two, and executes no locked instruction. Everything
//! is allocated when the table is made: one bucket for each station of its capacity (4,096 at least), so that a
//! station's buckets hardly ever fill up.
//!
//! # Why no lock is needed
//! - A word is read and replaced as a whole. A thread that reads a word with a key also reads that key's port: at no
//!   instant could key and port belong to different stations. Nothing else is published through a word, so lookups load
//!   relaxed.
//! - Words change by compare-exchange only. The loser of a race does nothing; the station's next frame tries again.
//! - The last-heard second is written before its word, and a racing neighbour may overwrite it: an age may be wrong, a
//!   port never. So a station may be forgotten early, which costs a flooded frame.
//! - Two workers that hear a new station at once may insert it twice. After inserting, each looks at all of the
//!   station's slots again: insertion and that look are sequentially consistent, so the later of the two sees both
//!   words, and removes all but the first static one, or else the first. Until then a lookup may return either port;
//!   the station was just heard at both.
//!
//! # Invariants
//! The table holds at most [`MacTable::capacity`] stations (a worker in the middle of an insertion may count one more
//! for an instant). Only [`MacTable::add_static`], [`MacTable::remove`] and [`MacTable::flush`] change a static entry.
//! Each word in the table is counted at its port, from before it is inserted until after it is removed. `eviction.rs`
//! chooses the stations that make room for others; `occupancy.rs` knows the buckets to search for them.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fabric::PortIndex;
use fabric::port::MAX_PORTS;
use fabric::protection::Claim;
use packet::MacAddr;

use crate::MacTable;
use crate::handover::Station;

mod control;
mod events;
mod eviction;
mod foresee;
mod occupancy;
mod word;

pub use events::{FdbChange, FdbEvent};
use eviction::{AtLimit, Newcomer, SWEEP};
pub use foresee::Foresight;
use occupancy::Occupancy;
pub use word::Key;
use word::{MIN_BUCKET_BITS, Place, Placer, STATIC, STICKY};

/// Largest capacity of a table.
pub const MAX_STATIONS: u32 = 1 << 20;

/// Slots in a bucket: as many as fit in a cache line.
const WAYS: usize = 5;

#[derive(Default)]
#[repr(C, align(64))]
struct Bucket {
    words: [AtomicU64; WAYS],
    /// Second at which each word's station was last heard.
    seen: [AtomicU32; WAYS],
    /// Number, among the table's changes, of the last one at which a station was learned here or moved.
    change: AtomicU32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.words.iter().zip(&self.seen).map(|(word, seen)| Slot { word, seen })
    }

    /// Finds the slot of the key that has this place in this bucket, and its word. The first slot is filled first, so
    /// at the usual loads the first look finds it and branches are predicted.
    #[inline(always)]
    fn find(&self, place: Place) -> Option<(Slot<'_>, u64)> {
        self.slots().find_map(|slot| {
            let word = slot.word.load(Ordering::Relaxed);
            place.is_of(word).then_some((slot, word))
        })
    }
}

/// A word and its last-heard second.
#[derive(Clone, Copy)]
struct Slot<'a> {
    word: &'a AtomicU64,
    seen: &'a AtomicU32,
}

impl Slot<'_> {
    fn replace(self, old: u64, new: u64) -> bool {
        self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// One station in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// Its address.
    pub mac: MacAddr,
    /// Its VLAN, 0 for none.
    pub vid: u16,
    /// Its port.
    pub port: PortIndex,
    /// Seconds since it was last heard; 0 for static entries.
    pub age_seconds: u32,
    /// Whether it was added by hand (IEEE 802.1Q §8.8.1).
    pub is_static: bool,
    /// Whether it was learned at a port whose stations are sticky.
    pub is_sticky: bool,
    /// Rank by the time of use: a station that was heard, learned or moved later has a higher one. Within a second,
    /// only learning and moving count.
    pub rank: u64,
}

/// Result of hearing a station at a port that restricts its stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is at this port, and was before.
    Known,
    /// It is at this port from now on.
    Learned,
    /// It is at another port, or this one has too many. The table is unchanged.
    Refused,
}

/// Reason for which a station stays at its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fixed {
    /// It has a static entry.
    Static,
    /// It was learned at a port whose stations are sticky.
    Sticky,
    /// The port lists it.
    Listed,
}

/// Statistics of a table since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FdbStats {
    /// Stations learned.
    pub learned: u64,
    /// Stations heard at another port than before.
    pub moved: u64,
    /// Stations that made room for others.
    pub evicted: u64,
    /// Evicted stations that made room at their own port, which was at its limit.
    pub limit_evicted: u64,
    /// Stations that were silent for the ageing time.
    pub expired: u64,
    /// Times that a station was not learned because no other could make room.
    pub refused: u64,
    /// Times that a station was not learned because its port was at its limit and none of the port's stations was found
    /// to make room.
    pub limited: u64,
    /// Times that a station was heard at another port than the one that it belongs to, and not learned there.
    pub conflicts: u64,
}

/// Reasons for refusing a static entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FdbError {
    /// A group address is not a station's.
    #[error("{0} is a group address, which goes to all ports; only a station's address can have a port")]
    Group(MacAddr),
    /// Frames cannot belong to this VLAN.
    #[error("VLAN {0} does not exist: use 1 to 4094, or 0 for frames without a VLAN")]
    Vid(u16),
    /// No bridge can have this port.
    #[error("no port has index {}: a bridge has at most 4096 ports", .0.0)]
    Port(PortIndex),
    /// No station can make room.
    #[error(
        "the table is full (`max-stations` is {0}), and only static entries could make room; \
         remove one or raise `max-stations`"
    )]
    Full(usize),
}

#[derive(Default)]
#[repr(align(64))]
struct Counters {
    len: AtomicUsize,
    learned: AtomicU64,
    moved: AtomicU64,
    evicted: AtomicU64,
    limit_evicted: AtomicU64,
    expired: AtomicU64,
    refused: AtomicU64,
    limited: AtomicU64,
    conflicts: AtomicU64,
    /// Bucket at which the next search for a station to evict begins.
    hand: AtomicUsize,
    /// Stations learned and moved, for [`Bucket::change`].
    changes: AtomicU32,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The table. See the module's documentation.
pub struct Fdb {
    buckets: Box<[Bucket]>,
    occupied: Occupancy,
    placer: Placer,
    capacity: AtomicUsize,
    /// Stations by port.
    stations: Box<[AtomicU32]>,
    /// Largest number of stations learned at one port.
    port_limit: AtomicU32,
    at_limit: AtLimit,
    /// Ports whose conflict was reported.
    in_conflict: AtLimit,
    counters: Counters,
    watch: events::Watch,
}

impl Fdb {
    /// Makes a table for `max_stations`, clamped to 1 to [`MAX_STATIONS`]; each port may fill all of it.
    pub fn new(max_stations: u32) -> Self {
        let max_stations = max_stations.clamp(1, MAX_STATIONS);
        let bucket_bits = max_stations.next_power_of_two().ilog2().max(MIN_BUCKET_BITS);
        Self {
            buckets: (0..1usize << bucket_bits).map(|_| Bucket::default()).collect(),
            occupied: Occupancy::new(1 << bucket_bits),
            placer: Placer::new(bucket_bits),
            capacity: AtomicUsize::new(max_stations as usize),
            stations: (0..MAX_PORTS).map(|_| AtomicU32::new(0)).collect(),
            port_limit: AtomicU32::new(u32::MAX),
            at_limit: AtLimit::default(),
            in_conflict: AtLimit::default(),
            counters: Counters::default(),
            watch: events::Watch::default(),
        }
    }

    /// Reports a change of a word's station to the watcher.
    #[inline]
    fn note(&self, change: FdbChange, bucket: usize, word: u64) {
        self.note_beside(change, bucket, word, None);
    }

    /// The same for a change that concerns another port too.
    #[inline]
    fn note_beside(&self, change: FdbChange, bucket: usize, word: u64, other: Option<PortIndex>) {
        let event =
            || Some(FdbEvent { change, key: self.placer.key(bucket, word)?, port: word::port(word), other });
        self.watch.note(event);
    }

    /// Counts a station that was heard at the port in `low` and belongs to `owner`. A watcher sees one such event a
    /// port until [`Fdb::rearm`].
    #[cold]
    fn note_conflict(&self, first: Place, low: u64, owner: PortIndex, fixed: Fixed) {
        count(&self.counters.conflicts);
        if self.watch.is_on() && self.in_conflict.note(word::port(low)) {
            self.note_beside(FdbChange::Conflict(fixed), first.bucket, first.tag | low, Some(owner));
        }
    }

    /// Returns the port of a station (IEEE 802.1Q §8.8.9).
    #[inline]
    pub fn lookup(&self, key: Key) -> Option<PortIndex> {
        let first = self.placer.first(key);
        match self.buckets.get(first.bucket)?.find(first) {
            Some((_, word)) => Some(word::port(word)),
            None => self.lookup_second(first),
        }
    }

    fn lookup_second(&self, first: Place) -> Option<PortIndex> {
        let second = self.placer.second(first);
        let (_, word) = self.buckets.get(second.bucket)?.find(second)?;
        Some(word::port(word))
    }

    /// Learns from a frame that arrived at `port` from this station (IEEE 802.1Q §8.7), which no port lists. Returns
    /// whether the port of any station may have changed.
    #[inline]
    pub fn learn(&self, key: Key, port: PortIndex, now: u32) -> bool {
        self.learn_unclaimed(key, port, now, |_| Claim::Nobody)
    }

    /// [`Fdb::learn`], unless another port lists the station. `claim` is called only for a station that is not known
    /// at `port`, with its key: a claim that held the key would keep it in memory for every packet.
    #[inline]
    pub fn learn_unclaimed(
        &self,
        key: Key,
        port: PortIndex,
        now: u32,
        claim: impl FnOnce(Key) -> Claim,
    ) -> bool {
        let first = self.placer.first(key);
        match self.buckets.get(first.bucket).and_then(|bucket| bucket.find(first)) {
            Some((slot, word)) if word::port(word) == port => {
                refresh(slot.seen, now);
                false
            }
            _ => self.learn_slowly(first, port, now, claim),
        }
    }

    /// Learns a station that is not in its first bucket at this port.
    #[cold]
    #[inline(never)]
    fn learn_slowly(&self, first: Place, at: PortIndex, now: u32, claim: impl FnOnce(Key) -> Claim) -> bool {
        let Some(port) = word::pack_port(at) else { return false };
        let found = self.find(first);
        if !is_at(found, at)
            && let Some(key) = self.placer.key(first.bucket, first.tag)
            && let Some((owner, fixed)) = owner(found, claim(key))
        {
            self.note_conflict(first, port, owner, fixed);
            return false;
        }
        let Some((place, slot, word)) = found else {
            if let Some(stations) = self.reserve(port, u32::MAX) {
                let new = Newcomer { port: word::port(port), stations, limit: self.port_limit() };
                self.insert_reserved(first, port, new, now);
            }
            return true; // a station may have been evicted even if this one was not learned
        };
        if word & STATIC != 0 {
            return false;
        }
        refresh(slot.seen, now);
        let moved = word::with_low(word, port);
        if moved == word || !self.change(slot, word, moved) {
            return false;
        }
        self.count_move(place.bucket, word, moved);
        true
    }

    fn count_move(&self, bucket: usize, old: u64, new: u64) {
        count(&self.counters.moved);
        self.number_change(bucket);
        self.note_beside(FdbChange::Moved, bucket, new, Some(word::port(old)));
    }

    /// Learns from a frame that arrived at `port` from this station, which no port lists, where at most `most` stations
    /// may be and stations of other ports are refused. A `sticky` station neither ages nor moves from then on. If the
    /// port has more than `most`, because the limit is new, each surplus one is forgotten when it is heard. A `most`
    /// other than `u32::MAX` replaces the limit of all ports.
    pub fn learn_within(&self, key: Key, port: PortIndex, now: u32, most: u32, sticky: bool) -> Admission {
        self.learn_claimed(key, port, now, most, sticky, || Claim::Nobody)
    }

    /// [`Fdb::learn_within`] for a station that ports may list: this port takes over a station that it lists, and
    /// refuses one that only another lists. `claim` is called only for a station that is not known at `port`.
    pub fn learn_claimed(
        &self,
        key: Key,
        port: PortIndex,
        now: u32,
        most: u32,
        sticky: bool,
        claim: impl FnOnce() -> Claim,
    ) -> Admission {
        let first = self.placer.first(key);
        let Some(plain) = word::pack_port(port) else { return Admission::Refused };
        let low = if sticky { plain | STATIC | STICKY } else { plain };
        let found = self.find(first);
        let claim = if is_at(found, port) { Claim::Ingress } else { claim() };
        if !is_at(found, port)
            && let Some((owner, fixed)) = owner(found, claim)
        {
            self.note_conflict(first, plain, owner, fixed);
            return Admission::Refused;
        }
        let Some((place, slot, word)) = found else {
            let Some(stations) = self.reserve(low, most) else { return Admission::Refused };
            let new = Newcomer { port, stations, limit: self.limit_beside(most) };
            return match self.insert_reserved(first, low, new, now) {
                true => Admission::Learned,
                false => Admission::Refused,
            };
        };
        if word::port(word) != port {
            if claim != Claim::Ingress || self.stations_at(port) >= most {
                return Admission::Refused;
            }
            refresh(slot.seen, now);
            let moved = word::with_low(word, low);
            // If another worker wins the race, the next frame does it.
            if !self.change(slot, word, moved) {
                return Admission::Known;
            }
            self.count_move(place.bucket, word, moved);
            return Admission::Learned;
        }
        if word & STATIC == 0 {
            if self.stations_at(port) > most {
                self.take(slot, word);
                return Admission::Refused;
            }
            if sticky {
                // If another worker wins the race, the next frame does it.
                self.change(slot, word, word::with_low(word, low));
            }
        }
        refresh(slot.seen, now);
        Admission::Known
    }

    /// Numbers a change at a bucket: a station was learned there or moved.
    fn number_change(&self, bucket: usize) {
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.change.store(self.counters.changes.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns the number of stations at a port.
    pub fn stations_at(&self, port: PortIndex) -> u32 {
        self.stations.get(usize::from(port.0)).map_or(0, |stations| stations.load(Ordering::Relaxed))
    }

    /// Counts a station at the port in `low`, unless `most` are there. Returns the number including it.
    fn reserve(&self, low: u64, most: u32) -> Option<u32> {
        let stations = self.stations.get(usize::from(word::port(low).0))?;
        let there = stations.fetch_add(1, Ordering::Relaxed);
        if there >= most {
            stations.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(there + 1)
    }

    /// Uncounts a word that was removed or never inserted.
    fn release(&self, word: u64) {
        if let Some(stations) = self.stations.get(usize::from(word::port(word).0)) {
            stations.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Replaces a station's word by another of the same station.
    fn change(&self, slot: Slot<'_>, old: u64, new: u64) -> bool {
        self.reserve(new, u32::MAX);
        let done = slot.replace(old, new);
        self.release(if done { old } else { new });
        done
    }

    /// Learns a station that is counted already; if it finds no room, it is uncounted.
    fn insert_reserved(&self, first: Place, low: u64, new: Newcomer, now: u32) -> bool {
        if new.exceeds_limit() && self.at_limit.note(new.port) {
            self.note(FdbChange::AtLimit, first.bucket, first.tag | low);
        }
        let inserted = self.insert(first, low, new, now, SWEEP);
        if inserted {
            self.note(FdbChange::Learned, first.bucket, first.tag | low);
        } else {
            self.release(low);
        }
        count(match (inserted, new.exceeds_limit()) {
            (true, _) => &self.counters.learned,
            (false, false) => &self.counters.refused,
            (false, true) => &self.counters.limited,
        });
        inserted
    }

    /// Returns all slots that a key may use.
    fn candidates(&self, first: Place) -> impl Iterator<Item = (Place, Slot<'_>)> {
        [first, self.placer.second(first)].into_iter().flat_map(|place| {
            let bucket = self.buckets.get(place.bucket);
            bucket.into_iter().flat_map(Bucket::slots).map(move |slot| (place, slot))
        })
    }

    /// Returns a key's slots and words: at most one, unless workers are just inserting it.
    fn words(&self, first: Place) -> impl Iterator<Item = (Place, Slot<'_>, u64)> {
        self.candidates(first).filter_map(|(place, slot)| {
            let word = slot.word.load(Ordering::SeqCst);
            place.is_of(word).then_some((place, slot, word))
        })
    }

    fn find(&self, first: Place) -> Option<(Place, Slot<'_>, u64)> {
        self.words(first).next()
    }

    /// Inserts a key that was not found and is counted already; `low` is its port and flags. Searches up to `sweep`
    /// buckets beyond its own for a station to evict.
    fn insert(&self, first: Place, low: u64, new: Newcomer, now: u32, sweep: usize) -> bool {
        let done = (!new.exceeds_limit() && self.insert_in_free_slot(first, low, now))
            || self.insert_by_eviction(first, low, new, now, sweep);
        if done {
            self.remove_duplicates(first);
        }
        done
    }

    fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    /// Takes an empty slot, if the number of stations allows.
    fn insert_in_free_slot(&self, first: Place, low: u64, now: u32) -> bool {
        if self.counters.len.fetch_add(1, Ordering::Relaxed) < self.capacity() {
            for (place, slot) in self.candidates(first) {
                if slot.word.load(Ordering::Relaxed) == 0 {
                    slot.seen.store(now, Ordering::Relaxed);
                    if slot.replace(0, place.tag | low) {
                        self.occupied.set(place.bucket);
                        self.number_change(place.bucket);
                        return true;
                    }
                }
            }
        }
        self.counters.len.fetch_sub(1, Ordering::Relaxed);
        false
    }

    /// Evicts a station and takes its slot, or the room that it leaves.
    fn insert_by_eviction(&self, first: Place, low: u64, new: Newcomer, now: u32, sweep: usize) -> bool {
        let hand = || self.counters.hand.fetch_add(sweep, Ordering::Relaxed);
        let Some(victim) = self.victim(first, new, now, sweep, hand, true) else { return false };
        let Some(place) = victim.place else {
            // The next search begins where this one ended.
            let taken = self.take(victim.slot, victim.word);
            if taken {
                self.count_eviction(new, victim.bucket, victim.word);
            }
            return taken && self.insert_in_free_slot(first, low, now);
        };
        victim.slot.seen.store(now, Ordering::Relaxed);
        let done = victim.slot.replace(victim.word, place.tag | low);
        if done {
            self.number_change(place.bucket);
            self.release(victim.word);
            self.count_eviction(new, victim.bucket, victim.word);
        }
        done
    }

    /// Empties a slot, unless its word changed.
    fn take(&self, slot: Slot<'_>, word: u64) -> bool {
        let done = slot.replace(word, 0);
        if done {
            self.release(word);
            self.counters.len.fetch_sub(1, Ordering::Relaxed);
        }
        done
    }

    /// Leaves one word of a key: a static one, else the first. See the module's documentation.
    fn remove_duplicates(&self, first: Place) {
        let statics = self.words(first).find(|(_, _, word)| word & STATIC != 0);
        let Some((_, keep, kept)) = statics.or(self.find(first)) else { return };
        for (_, slot, word) in self.words(first) {
            // A static word that came meanwhile stays: the thread that inserted it removes its duplicates.
            if !std::ptr::eq(slot.word, keep.word) && (kept | !word) & STATIC != 0 {
                self.take(slot, word);
            }
        }
    }

    /// Returns all stations, with the second at which each was last heard.
    pub fn hand_over(&self) -> Vec<Station> {
        let station = |bucket, slot: Slot<'_>| {
            let word = slot.word.load(Ordering::Acquire);
            Some(Station {
                key: self.placer.key(bucket, word)?,
                port: word::port(word),
                is_static: word & (STATIC | STICKY) == STATIC,
                is_sticky: word & STICKY != 0,
                seen: slot.seen.load(Ordering::Relaxed),
            })
        };
        let buckets = self.buckets.iter().enumerate();
        buckets.flat_map(|(i, bucket)| bucket.slots().filter_map(move |slot| station(i, slot))).collect()
    }

    /// Adopts a station from another table, unless it is known already, the table is full or its port is at its limit:
    /// nothing is evicted for it. Returns whether it was adopted.
    pub fn adopt(&self, station: &Station, now: u32) -> bool {
        let Some(low) = low_of(station) else { return false };
        let first = self.placer.first(station.key);
        let most = if low & STATIC == 0 { self.port_limit() } else { u32::MAX };
        if self.find(first).is_some() || self.reserve(low, most).is_none() {
            return false;
        }
        // A last-heard second never lies in the future.
        let inserted = self.insert_in_free_slot(first, low, station.seen.min(now));
        if inserted {
            self.remove_duplicates(first);
        } else {
            self.release(low);
        }
        inserted
    }

    /// Moves a station that was adopted at port `from`, unless it has been heard at another port or set by hand since.
    pub fn adopt_move(&self, station: &Station, from: PortIndex, now: u32) {
        let first = self.placer.first(station.key);
        if let (Some(low), Some((_, slot, word))) = (low_of(station), self.find(first))
            && word::port(word) == from
            && word & (STATIC | STICKY) != STATIC
            && self.change(slot, word, word::with_low(word, low))
        {
            slot.seen.store(station.seen.min(now), Ordering::Relaxed);
        }
    }

    /// Forgets the stations that `keep` rejects, given their port and, for static and sticky ones, the reason for which
    /// they stay there.
    pub(crate) fn retain(&self, keep: impl Fn(Key, PortIndex, Option<Fixed>) -> bool) {
        self.remove_where(None, |bucket, _, word| {
            let key = self.placer.key(bucket, word);
            key.is_some_and(|key| !keep(key, word::port(word), fixed(word)))
        });
    }

    /// Forgets the stations learned at a port, except sticky ones. Returns their number.
    pub fn flush_learned(&self, port: PortIndex) -> usize {
        self.remove_where(None, |_, _, word| word & STATIC == 0 && word::port(word) == port)
    }

    /// Forgets the stations not heard for `ageing` seconds (IEEE 802.1Q §8.8.3). Returns their number.
    pub fn expire(&self, now: u32, ageing: u32) -> usize {
        let expired = self.remove_where(Some(FdbChange::Expired), |_, slot, word| {
            word & STATIC == 0 && age(slot, now) >= ageing
        });
        self.counters.expired.fetch_add(expired as u64, Ordering::Relaxed);
        expired
    }

    fn remove_where(
        &self,
        change: Option<FdbChange>,
        mut which: impl FnMut(usize, Slot<'_>, u64) -> bool,
    ) -> usize {
        let buckets = self.buckets.iter().enumerate();
        let slots = buckets.flat_map(|(i, bucket)| bucket.slots().map(move |slot| (i, slot)));
        slots
            .filter(|(bucket, slot)| {
                let word = slot.word.load(Ordering::Acquire);
                let removed = word != 0 && which(*bucket, *slot, word) && self.take(*slot, word);
                if let (true, Some(change)) = (removed, change) {
                    self.note(change, *bucket, word);
                }
                removed
            })
            .count()
    }

    /// Returns whether no station is known.
    pub fn is_empty(&self) -> bool {
        self.counters.len.load(Ordering::Relaxed) == 0
    }
}

/// A station that was found: its place, its slot and its word.
type Found<'a> = Option<(Place, Slot<'a>, u64)>;

fn is_at(found: Found<'_>, port: PortIndex) -> bool {
    found.is_some_and(|(_, _, word)| word::port(word) == port)
}

/// Returns the port that a station heard elsewhere belongs to, and the reason.
fn owner(found: Found<'_>, claim: Claim) -> Option<(PortIndex, Fixed)> {
    let kept = found.and_then(|(_, _, word)| Some((word::port(word), fixed(word)?)));
    kept.or(match claim {
        Claim::Other(owner) => Some((owner, Fixed::Listed)),
        Claim::Nobody | Claim::Ingress => None,
    })
}

/// Returns the reason in a word for which its station stays at its port.
fn fixed(word: u64) -> Option<Fixed> {
    match (word & STATIC != 0, word & STICKY != 0) {
        (_, true) => Some(Fixed::Sticky),
        (true, false) => Some(Fixed::Static),
        (false, false) => None,
    }
}

/// Returns port and flags of a station's word; `None` for a port that no bridge can have.
fn low_of(station: &Station) -> Option<u64> {
    let flags = match (station.is_static, station.is_sticky) {
        (true, _) => STATIC,
        (false, true) => STATIC | STICKY,
        (false, false) => 0,
    };
    Some(word::pack_port(station.port)? | flags)
}

/// Notes that a station was heard; writes once a second at most.
#[inline(always)]
fn refresh(seen: &AtomicU32, now: u32) {
    if seen.load(Ordering::Relaxed) != now {
        seen.store(now, Ordering::Relaxed);
    }
}

/// Returns the seconds since a slot's station was heard. A worker may have entered a second that the caller has not.
fn age(slot: Slot<'_>, now: u32) -> u32 {
    now.saturating_sub(slot.seen.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests;
