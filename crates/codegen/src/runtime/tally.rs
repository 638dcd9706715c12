//! Lookups and hits of a batch, counted together: counters are shared by all workers, and an atomic addition costs as
//! much as a lookup.
//!
//! Invariants: a tally refers to records of one view only, and is flushed before the worker lets go of that view.

use std::sync::atomic::Ordering::Relaxed;

use crate::view::{Record, View};

/// What is to be counted, for each table.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Vec<Tally>);

#[derive(Debug)]
struct Tally {
    lookups: u64,
    hits: u64,
    /// The entry hit last, if the table counts hits, and how often.
    record: *const Record,
    packets: u64,
    bytes: u64,
}

// SAFETY: the address is used only between `prepare` and `flush`, within one call of the worker.
unsafe impl Send for Tally {}
// SAFETY: as above; a shared tally is only printed.
unsafe impl Sync for Tally {}

impl Tallies {
    /// Makes room for the tables of a view.
    pub(super) fn prepare(&mut self, view: &View) {
        let empty = || Tally { lookups: 0, hits: 0, record: std::ptr::null(), packets: 0, bytes: 0 };
        if self.0.len() < view.tables.len() {
            self.0.resize_with(view.tables.len(), empty);
        }
    }

    /// Counts a lookup and, if the table counts hits, the entry hit.
    pub(super) fn add(&mut self, table: usize, hit: Option<&Record>, counted: bool, bytes: u64) {
        let Some(tally) = self.0.get_mut(table) else { return };
        tally.lookups += 1;
        let Some(record) = hit else { return };
        tally.hits += 1;
        if !counted {
            return;
        }
        if !std::ptr::eq(tally.record, record) {
            tally.count_entry();
            tally.record = record;
        }
        tally.packets += 1;
        tally.bytes += bytes;
    }

    /// Adds everything to the shared counters.
    pub(super) fn flush(&mut self, view: &View) {
        for (tally, table) in self.0.iter_mut().zip(&view.tables) {
            if tally.lookups > 0 {
                table.counts.lookups.fetch_add(tally.lookups, Relaxed);
                table.counts.hits.fetch_add(tally.hits, Relaxed);
                (tally.lookups, tally.hits) = (0, 0);
            }
            tally.count_entry();
        }
    }
}

impl Tally {
    fn count_entry(&mut self) {
        // SAFETY: null, or a record of the view that the worker holds until `flush`, which clears the address.
        if let Some(record) = unsafe { self.record.as_ref() } {
            let hits = &record.installed.stats.hits;
            hits.packets.fetch_add(self.packets, Relaxed);
            hits.bytes.fetch_add(self.bytes, Relaxed);
        }
        (self.record, self.packets, self.bytes) = (std::ptr::null(), 0, 0);
    }
}
