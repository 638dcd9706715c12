//! Lookups and hits of a batch, counted together: counters are shared by all workers, and an atomic addition costs as
//! much as a lookup.
//!
//! Invariants: a tally refers to statistics of entries of one view only, and is flushed before the worker lets go of
//! that view.

use std::sync::atomic::Ordering::Relaxed;

use pipeline::state::EntryStats;

use super::way_cache::{Tables, Way, WayLookup};
use crate::view::View;

/// What is to be counted, for each table.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    tables: Vec<Tally>,
    /// Tables that were looked up.
    used: Vec<u32>,
    /// The tables of ways that packets have gone one after the other, and how many did.
    alike: (Tables, u64),
    /// Whether this thread alone counts in [`pipeline::state::EntryStats::add_alone`].
    alone: bool,
}

#[derive(Debug)]
struct Tally {
    lookups: u64,
    hits: u64,
    /// The entry hit last, if the table counts hits, and how often.
    entry: *const EntryStats,
    packets: u64,
    bytes: u64,
}

// SAFETY: the address is used only between `prepare` and `flush`, within one call of the worker.
unsafe impl Send for Tally {}
// SAFETY: as above; a shared tally is only printed.
unsafe impl Sync for Tally {}

impl Tallies {
    /// Forgets all counts.
    pub(super) fn forget(&mut self) {
        *self = Self { alone: self.alone, ..Self::default() };
    }

    /// Counts as the one thread that may do so alone.
    pub(super) fn count_alone(&mut self) {
        self.alone = true;
    }

    /// Makes room for the tables of a view.
    pub(super) fn prepare(&mut self, view: &View) {
        let empty = || Tally { lookups: 0, hits: 0, entry: std::ptr::null(), packets: 0, bytes: 0 };
        if self.tables.len() < view.tables.len() {
            self.tables.resize_with(view.tables.len(), empty);
        }
    }

    /// Counts the lookups of some packets with so many bytes and, if the table counts hits, the entry hit.
    #[inline]
    pub(super) fn add(
        &mut self,
        table: usize,
        hit: Option<&EntryStats>,
        counted: bool,
        packets: u64,
        bytes: u64,
    ) {
        self.add_lookups(table, packets, hit.is_some());
        if let (Some(entry), true) = (hit, counted) {
            self.add_hits(table, entry, packets, bytes);
        }
    }

    /// Counts lookups, which hit an entry or not.
    #[inline]
    fn add_lookups(&mut self, table: usize, packets: u64, hit: bool) {
        self.add_some(table, packets, if hit { packets } else { 0 });
    }

    /// Counts lookups, some of which hit an entry.
    #[inline]
    pub(super) fn add_some(&mut self, table: usize, lookups: u64, hits: u64) {
        let Some(tally) = self.tables.get_mut(table) else { return };
        if tally.lookups == 0 {
            self.used.push(table as u32);
        }
        tally.lookups += lookups;
        tally.hits += hits;
    }

    /// Counts hits of an entry. Its table's lookups are counted in the same batch.
    #[inline]
    fn add_hits(&mut self, table: usize, entry: &EntryStats, packets: u64, bytes: u64) {
        let Some(tally) = self.tables.get_mut(table) else { return };
        if !std::ptr::eq(tally.entry, entry) {
            tally.count_entry(self.alone);
            tally.entry = entry;
        }
        tally.packets += packets;
        tally.bytes += bytes;
    }

    /// Counts a packet of so many bytes that goes a remembered way; `now` is the time of its hits, which is kept of all
    /// of them or of those in tables that keep it.
    ///
    /// # Safety
    ///
    /// The statistics of entries hit are those of entries of the view that the worker holds.
    #[inline]
    pub(super) unsafe fn add_way(&mut self, way: &Way<'_>, bytes: u64, now: u64) {
        let tables = way.tables();
        if self.alike.0 != tables {
            self.end_alike();
            self.alike.0 = tables;
        }
        self.alike.1 += 1;
        match way.all_counted() {
            Some(all) if self.alone => {
                for stats in all {
                    // SAFETY: of an entry that was hit, as the caller promises; none is null in a way whose lookups
                    // all hit.
                    let stats = unsafe { &*(*stats as *const EntryStats) };
                    stats.add_alone(1, bytes);
                    if way.is_timed() {
                        stats.last_hit.store(now, Relaxed);
                    }
                }
            }
            _ => {
                for WayLookup { table, stats, counted, timed } in way.lookups() {
                    // SAFETY: null, or as the caller promises.
                    let Some(stats) = (unsafe { stats.as_ref() }) else { continue };
                    if counted {
                        self.add_hits(table, stats, 1, bytes);
                    }
                    if timed {
                        stats.last_hit.store(now, Relaxed);
                    }
                }
            }
        }
    }

    /// Counts the lookups of packets whose ways went through the same tables.
    fn end_alike(&mut self) {
        let (tables, packets) = std::mem::take(&mut self.alike);
        if packets > 0 {
            tables.iter().for_each(|(table, hit)| self.add_lookups(table, packets, hit));
        }
    }

    /// Counts packets with so many bytes that do these lookups ([`super::way_cache::WayLookup`]); `now` is the time of
    /// their hits.
    ///
    /// # Safety
    ///
    /// The statistics of entries hit are those of entries of the view that the worker holds.
    #[inline]
    pub(super) unsafe fn add_all(
        &mut self,
        lookups: impl Iterator<Item = WayLookup>,
        packets: u64,
        bytes: u64,
        now: u64,
    ) {
        for WayLookup { table, stats, counted, timed } in lookups {
            // SAFETY: null, or as the caller promises.
            let stats = unsafe { stats.as_ref() };
            self.add(table, stats, counted, packets, bytes);
            if let (Some(stats), true) = (stats, timed) {
                stats.last_hit.store(now, Relaxed);
            }
        }
    }

    /// Adds everything to the shared counters.
    pub(super) fn flush(&mut self, view: &View) {
        self.end_alike();
        for i in self.used.drain(..) {
            let i = i as usize;
            let (Some(tally), Some(table)) = (self.tables.get_mut(i), view.tables.get(i)) else { continue };
            match self.alone {
                true => table.counts.add_alone(tally.lookups, tally.hits),
                false => table.counts.add(tally.lookups, tally.hits),
            }
            (tally.lookups, tally.hits) = (0, 0);
            tally.count_entry(self.alone);
        }
    }
}

impl Tally {
    #[inline]
    fn count_entry(&mut self, alone: bool) {
        // SAFETY: null, or of an entry whose record the view has that the worker holds until `flush`, which clears the
        // address.
        if let Some(entry) = unsafe { self.entry.as_ref() } {
            match alone {
                true => entry.add_alone(self.packets, self.bytes),
                false => entry.add(self.packets, self.bytes),
            }
        }
        (self.entry, self.packets, self.bytes) = (std::ptr::null(), 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use pipeline::interp::Dropped;
    use pipeline::ir::TableId;
    use proptest::prelude::*;

    use super::super::way_cache::{Outcome, Walk, WayCache};
    use super::*;

    const TABLES: usize = 5;
    const ENTRIES: usize = 3;

    /// Counts as a view's tables keep them: lookups and hits, and each entry's packets, bytes and last hit.
    type Counts = Vec<((u64, u64), Vec<((u64, u64), u64)>)>;

    /// Lookups of a way: tables, and the entries hit.
    type Lookups = Vec<(usize, Option<usize>)>;

    fn entries() -> Vec<Vec<EntryStats>> {
        (0..TABLES).map(|_| (0..ENTRIES).map(|_| EntryStats::default()).collect()).collect()
    }

    /// Counts packets one after the other, as the definitions of the counters say.
    fn model(packets: &[(Lookups, u64)], flags: &[(bool, bool)]) -> Counts {
        let mut counts: Counts = vec![((0, 0), vec![((0, 0), 0); ENTRIES]); TABLES];
        for (now, (lookups, bytes)) in packets.iter().enumerate() {
            for (table, hit) in lookups {
                let ((looked_up, hits), entries) = &mut counts[*table];
                *looked_up += 1;
                let Some(entry) = hit else { continue };
                *hits += 1;
                let (((packets, sum), last_hit), (counted, timed)) = (&mut entries[*entry], flags[*table]);
                *packets += u64::from(counted);
                *sum += if counted { *bytes } else { 0 };
                *last_hit = if timed { now as u64 } else { *last_hit };
            }
        }
        counts
    }

    /// Counts packets that go remembered ways.
    fn tallied(packets: &[(Lookups, u64)], flags: &[(bool, bool)], alone: bool) -> Counts {
        let stats = entries();
        let mut tallies = Tallies { alone, ..Tallies::default() };
        let empty = || Tally { lookups: 0, hits: 0, entry: std::ptr::null(), packets: 0, bytes: 0 };
        tallies.tables.resize_with(TABLES, empty);
        let mut cache = WayCache::default();
        cache.begin((1, 0));
        for (now, (lookups, bytes)) in packets.iter().enumerate() {
            let mut walk = Walk::default();
            for (table, hit) in lookups {
                let (counted, timed) = flags[*table];
                walk.add_lookup(TableId(*table as u32), counted, timed, hit.map(|hit| &stats[*table][hit]));
            }
            let key = [cache.tag(1, 0), now as u64, 0, 0, 0, 0, 0];
            let place = cache.place(&key);
            cache.keep(&key, place, &walk, Outcome::Drop(Dropped::NoDestination));
            let way = cache.find(&key, place).and_then(|slot| cache.way(slot)).expect("kept just now");
            // SAFETY: the statistics live until the end of this function.
            unsafe { tallies.add_way(&way, *bytes, now as u64) };
        }
        tallies.end_alike();
        let used = std::mem::take(&mut tallies.used);
        let counts =
            tallies.tables.iter_mut().zip(&stats).zip(flags).map(|((tally, entries), &(_, timed))| {
                tally.count_entry(alone);
                let hit = |entry: &EntryStats| {
                    // Of the other tables, nobody asks for it.
                    let last_hit = if timed { entry.last_hit.load(Relaxed) } else { 0 };
                    (entry.hits(), last_hit)
                };
                ((tally.lookups, tally.hits), entries.iter().map(hit).collect())
            });
        let counts: Counts = counts.collect();
        let looked_up = counts.iter().filter(|((lookups, _), _)| *lookups > 0).count();
        assert_eq!(used.len(), looked_up, "tables that a flush visits");
        counts
    }

    proptest! {
        #[test]
        fn packets_on_remembered_ways_are_counted_as_if_each_were_looked_up(
            ways in prop::collection::vec(
                prop::collection::vec((0..TABLES, prop::option::weighted(0.9, 0..ENTRIES)), 0..=6), 1..4),
            packets in prop::collection::vec((any::<prop::sample::Index>(), 60u64..2000), 0..20),
            flags in prop::collection::vec((prop::bool::weighted(0.8), any::<bool>()), TABLES),
        ) {
            let packets: Vec<_> = packets.iter().map(|(way, bytes)| (way.get(&ways).clone(), *bytes)).collect();
            let expected = model(&packets, &flags);
            prop_assert_eq!(tallied(&packets, &flags, true), expected.clone());
            prop_assert_eq!(tallied(&packets, &flags, false), expected);
        }
    }
}
