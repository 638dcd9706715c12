//! Lookups and hits of a batch, counted together: counters are shared by all workers, and an atomic addition costs as
//! much as a lookup.
//!
//! Invariants: a tally refers to statistics of entries of one view only, and is flushed before the worker lets go of
//! that view.

use std::sync::atomic::Ordering::Relaxed;

use pipeline::state::EntryStats;

use super::way_cache::WayLookup;
use crate::view::View;

/// What is to be counted, for each table.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    tables: Vec<Tally>,
    /// Tables that were looked up.
    used: Vec<u32>,
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
        let Some(tally) = self.tables.get_mut(table) else { return };
        if tally.lookups == 0 {
            self.used.push(table as u32);
        }
        tally.lookups += packets;
        let Some(entry) = hit else { return };
        tally.hits += packets;
        if !counted {
            return;
        }
        if !std::ptr::eq(tally.entry, entry) {
            tally.count_entry(self.alone);
            tally.entry = entry;
        }
        tally.packets += packets;
        tally.bytes += bytes;
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
