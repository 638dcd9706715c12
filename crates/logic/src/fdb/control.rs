//! The control plane's view of the table.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::PortIndex;
use packet::MacAddr;

use super::eviction::Newcomer;
use super::{Fdb, FdbEntry, FdbError, FdbEvent, FdbStats, Key, STATIC, STICKY, Slot, age, word};
use crate::MacTable;

impl Fdb {
    /// Describes the station of a word.
    fn describe(&self, bucket: usize, slot: Slot<'_>, word: u64, now: u32) -> Option<FdbEntry> {
        let key = self.placer.key(bucket, word)?;
        let (fixed, is_sticky) = (word & STATIC != 0, word & STICKY != 0);
        let age_seconds = if fixed { 0 } else { age(slot, now) };
        let (port, is_static, rank) = (word::port(word), fixed && !is_sticky, self.rank(bucket, slot));
        Some(FdbEntry { mac: key.mac(), vid: key.vid(), port, age_seconds, is_static, is_sticky, rank })
    }

    /// Returns the rank of a slot's station by the time of its use ([`FdbEntry::rank`]).
    pub(super) fn rank(&self, bucket: usize, slot: Slot<'_>) -> u64 {
        let change = self.buckets.get(bucket).map_or(0, |bucket| bucket.change.load(Ordering::Relaxed));
        u64::from(slot.seen.load(Ordering::Relaxed)) << 32 | u64::from(change)
    }

    /// Describes all stations, one after the other.
    fn iter(&self) -> impl Iterator<Item = FdbEntry> {
        let now = fabric::clock::seconds();
        let entry =
            move |bucket, slot: Slot<'_>| self.describe(bucket, slot, slot.word.load(Ordering::Acquire), now);
        let buckets = self.buckets.iter().enumerate();
        buckets.flat_map(move |(i, bucket)| bucket.slots().filter_map(move |slot| entry(i, slot)))
    }
}

impl MacTable for Fdb {
    fn watch(&self, on: bool) {
        self.watch.set(on);
    }

    fn drain_events(&self) -> (Vec<FdbEvent>, u64) {
        self.watch.drain()
    }

    fn add_static(&self, vid: u16, mac: MacAddr, port: PortIndex) -> Result<(), FdbError> {
        if mac.is_multicast() {
            return Err(FdbError::Group(mac));
        }
        if vid > 4094 {
            return Err(FdbError::Vid(vid));
        }
        let low = STATIC | word::pack_port(port).ok_or(FdbError::Port(port))?;
        let (first, now) = (self.placer.first(Key::new(vid, mac)), fabric::clock::seconds());
        // An attempt fails only if a worker learns, moves or evicts in these very slots: hardly ever twice.
        for _ in 0..64 {
            let done = match self.find(first) {
                Some((place, slot, word)) => {
                    let changed = self.change(slot, word, word::with_low(word, low));
                    if changed {
                        slot.seen.store(now, Ordering::Relaxed);
                        self.number_change(place.bucket);
                    }
                    changed
                }
                None => {
                    self.reserve(low, u32::MAX);
                    let inserted = self.insert(first, low, Newcomer::by_hand(), now, self.buckets.len());
                    if !inserted {
                        self.release(low);
                    }
                    inserted
                }
            };
            if done {
                self.remove_duplicates(first);
                return Ok(());
            }
        }
        Err(FdbError::Full(self.capacity()))
    }

    fn entry(&self, vid: u16, mac: MacAddr) -> Option<FdbEntry> {
        let (place, slot, word) = self.find(self.placer.first(Key::new(vid, mac)))?;
        self.describe(place.bucket, slot, word, fabric::clock::seconds())
    }

    fn remove(&self, vid: u16, mac: MacAddr) -> bool {
        let first = self.placer.first(Key::new(vid, mac));
        self.words(first).filter(|(_, slot, word)| self.take(*slot, *word)).count() > 0
    }

    fn flush(&self, port: Option<PortIndex>, keep_static: bool) -> usize {
        self.remove_where(None, |_, _, word| {
            let by_hand = word & (STATIC | STICKY) == STATIC;
            port.is_none_or(|port| word::port(word) == port) && !(keep_static && by_hand)
        })
    }

    fn flush_vlan(&self, vid: u16, port: Option<PortIndex>) -> usize {
        self.remove_where(None, |bucket, _, word| {
            word & (STATIC | STICKY) != STATIC
                && port.is_none_or(|port| word::port(word) == port)
                && self.placer.key(bucket, word).is_some_and(|key| key.vid() == vid)
        })
    }

    fn entries(&self) -> Vec<FdbEntry> {
        self.iter().collect()
    }

    fn entries_of(&self, macs: &BTreeSet<MacAddr>) -> Vec<FdbEntry> {
        self.iter().filter(|entry| macs.contains(&entry.mac)).collect()
    }

    fn stations_at(&self, port: PortIndex) -> u32 {
        self.stations_at(port)
    }

    fn port_limit(&self) -> u32 {
        self.port_limit().min(u32::try_from(self.capacity()).unwrap_or(u32::MAX))
    }

    fn ports_at_limit(&self) -> Vec<PortIndex> {
        self.ports_at_limit()
    }

    fn stats(&self) -> FdbStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FdbStats {
            learned: read(&self.counters.learned),
            moved: read(&self.counters.moved),
            evicted: read(&self.counters.evicted),
            limit_evicted: read(&self.counters.limit_evicted),
            expired: read(&self.counters.expired),
            refused: read(&self.counters.refused),
            limited: read(&self.counters.limited),
            conflicts: read(&self.counters.conflicts),
        }
    }

    fn len(&self) -> usize {
        self.counters.len.load(Ordering::Relaxed)
    }

    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }
}
