//! What a control plane fills: installed entries, profiles, groups, replication lists.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::EntryId;
use super::arrays::Stats;
use super::meter::MeterCell;
use crate::ir::{ActionCall, Entry, Match};

/// Counts and times of an entry. They survive a modification of the entry.
#[derive(Debug, Default)]
pub struct EntryStats {
    /// Hits that any thread counts.
    shared: Stats,
    /// Hits that one thread counts alone, without atomic additions, which cost it as much as a lookup.
    own: Stats,
    /// Time of the last hit, or of the insertion: nanoseconds.
    pub last_hit: AtomicU64,
    /// Meter, in tables whose entries have one.
    pub meter: Option<Box<MeterCell>>,
}

impl EntryStats {
    /// Statistics of a new entry with this meter.
    pub(super) fn new(meter: Option<Box<MeterCell>>) -> Self {
        Self { meter, ..Self::default() }
    }

    /// Returns packets and bytes.
    pub fn hits(&self) -> (u64, u64) {
        let ((packets, bytes), own) = (self.shared.get(), self.own.get());
        (packets.wrapping_add(own.0), bytes.wrapping_add(own.1))
    }

    /// Sets packets and bytes.
    pub fn set_hits(&self, packets: u64, bytes: u64) {
        let own = self.own.get();
        self.shared.set(packets.wrapping_sub(own.0), bytes.wrapping_sub(own.1));
    }

    /// Adds packets and bytes: from any thread.
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64) {
        self.shared.packets.fetch_add(packets, Relaxed);
        self.shared.bytes.fetch_add(bytes, Relaxed);
    }

    /// Adds packets and bytes. Only one thread may do so: additions of several may be lost.
    #[inline]
    pub fn add_alone(&self, packets: u64, bytes: u64) {
        for (sum, more) in [(&self.own.packets, packets), (&self.own.bytes, bytes)] {
            sum.store(sum.load(Relaxed).wrapping_add(more), Relaxed);
        }
    }

    /// Where [`EntryStats::add_alone`] counts, to be prefetched.
    pub fn own(&self) -> &Stats {
        &self.own
    }
}

/// An entry in a table.
#[derive(Debug, Clone)]
pub struct Installed {
    /// Number, unique in the state and never reused.
    pub id: EntryId,
    /// The entry.
    pub entry: Entry,
    /// Time of insertion, nanoseconds.
    pub since: u64,
    /// Counts and times.
    pub stats: Arc<EntryStats>,
}

impl Installed {
    /// Whether the entry has expired at time `now`, nanoseconds.
    pub fn expired(&self, now: u64) -> Option<Expiry> {
        let passed = |since: u64, seconds: u32| {
            seconds != 0 && now.saturating_sub(since) >= u64::from(seconds) * 1_000_000_000
        };
        if passed(self.since, self.entry.hard) {
            return Some(Expiry::Hard);
        }
        passed(self.stats.last_hit.load(Relaxed), self.entry.idle).then_some(Expiry::Idle)
    }
}

/// Reasons for expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// No hit for the idle timeout.
    Idle,
    /// The hard timeout has passed.
    Hard,
}

/// A table's entries.
#[derive(Debug, Default)]
pub struct TableState {
    /// Entries by number, which is the order of insertion.
    pub(crate) entries: BTreeMap<EntryId, Arc<Installed>>,
    /// The same by conditions and priority.
    index: Index,
    /// Action after a miss.
    pub(crate) default: Option<ActionCall>,
    /// Counts of lookups.
    pub(crate) counts: Arc<LookupCounts>,
}

/// Entries, found by conditions and priority, which only they have. With each is its hash.
#[derive(Debug, Default)]
struct Index {
    entries: HashTable<(u64, Arc<Installed>)>,
    hasher: DefaultHashBuilder,
}

impl Index {
    fn hash(&self, matches: &[Match], priority: u32) -> u64 {
        self.hasher.hash_one((matches, priority))
    }
}

/// Counts of a table's lookups, which generated code shares.
#[derive(Debug, Default)]
pub struct LookupCounts {
    /// Lookups, and how many of them hit, that any thread counts.
    shared: [AtomicU64; 2],
    /// Those that one thread counts alone, as in [`EntryStats`].
    own: [AtomicU64; 2],
}

impl LookupCounts {
    /// Adds lookups, and how many of them hit: from any thread.
    #[inline]
    pub fn add(&self, lookups: u64, hits: u64) {
        let [all, successful] = &self.shared;
        all.fetch_add(lookups, Relaxed);
        successful.fetch_add(hits, Relaxed);
    }

    /// Adds lookups, and how many of them hit. Only one thread may do so: additions of several may be lost.
    #[inline]
    pub fn add_alone(&self, lookups: u64, hits: u64) {
        for (sum, more) in self.own.iter().zip([lookups, hits]) {
            sum.store(sum.load(Relaxed).wrapping_add(more), Relaxed);
        }
    }

    /// Returns lookups, and how many of them hit.
    pub fn get(&self) -> (u64, u64) {
        let [lookups, hits] =
            [0, 1].map(|i: usize| self.shared[i].load(Relaxed).wrapping_add(self.own[i].load(Relaxed)));
        (lookups, hits)
    }
}

impl TableState {
    /// Entries in the order of insertion.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Installed>> {
        self.entries.values()
    }

    /// Entries in the order of insertion, behind one that need not exist any more.
    pub fn entries_behind(&self, last: Option<EntryId>) -> impl Iterator<Item = &Arc<Installed>> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range((from, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of this number.
    pub fn get(&self, id: EntryId) -> Option<&Arc<Installed>> {
        self.entries.get(&id)
    }

    /// The entry with exactly these conditions and this priority.
    pub fn find(&self, matches: &[Match], priority: u32) -> Option<&Arc<Installed>> {
        let hash = self.index.hash(matches, priority);
        let is_it = |(other, found): &(u64, Arc<Installed>)| {
            let own = &*found.entry.matches;
            // As a rule they are the same ones: reading them is spared.
            *other == hash
                && found.entry.priority == priority
                && (std::ptr::eq(own, matches) || own == matches)
        };
        self.index.entries.find(hash, is_it).map(|(_, found)| found)
    }

    /// Adds an entry, or replaces the one of its number, which has the same conditions and priority.
    pub(super) fn put(&mut self, installed: Arc<Installed>) {
        let (number, entry) = (installed.id, &installed.entry);
        let hash = self.index.hash(&entry.matches, entry.priority);
        match self.index.entries.find_mut(hash, |(_, other)| other.id == number) {
            Some((_, found)) => *found = installed.clone(),
            None => _ = self.index.entries.insert_unique(hash, (hash, installed.clone()), |(hash, _)| *hash),
        }
        self.entries.insert(number, installed);
    }

    /// Removes the entry of this number.
    pub(super) fn take(&mut self, number: EntryId) -> Option<Arc<Installed>> {
        let installed = self.entries.remove(&number)?;
        let hash = self.index.hash(&installed.entry.matches, installed.entry.priority);
        if let Ok(found) = self.index.entries.find_entry(hash, |(_, other)| other.id == number) {
            found.remove();
        }
        Some(installed)
    }

    /// The action after a miss.
    pub fn default_action(&self) -> Option<&ActionCall> {
        self.default.as_ref()
    }

    /// Lookups, and how many of them hit.
    pub fn lookups(&self) -> (u64, u64) {
        self.counts.get()
    }

    /// The counters behind [`TableState::lookups`].
    pub fn counts(&self) -> &Arc<LookupCounts> {
        &self.counts
    }
}

/// An alternative of a selection in a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Member of the profile.
    pub member: u32,
    /// Weight; 0 excludes it.
    pub weight: u32,
    /// Port that must be live.
    pub watch: Option<u32>,
}

/// The members and groups of a profile.
#[derive(Debug, Default)]
pub struct ProfileState {
    /// Members.
    pub members: BTreeMap<u32, ActionCall>,
    /// Groups.
    pub groups: BTreeMap<u32, Vec<Choice>>,
}

/// How a group's buckets are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupKind {
    /// All of them.
    All,
    /// One live bucket, chosen by the table's selection.
    Select,
    /// The first one.
    Indirect,
    /// The first live one.
    Failover,
}

/// A bucket of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Weight in a selection; 0 excludes it.
    pub weight: u32,
    /// Port that must be live.
    pub watch_port: Option<u32>,
    /// Group of the same table that must have a live bucket.
    pub watch_group: Option<u32>,
    /// What it does.
    pub call: ActionCall,
}

/// A group, as the control plane gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Kind.
    pub kind: GroupKind,
    /// Buckets.
    pub buckets: Vec<Bucket>,
}

/// A group in its table.
#[derive(Debug)]
pub struct InstalledGroup {
    /// The group.
    pub group: Group,
    /// Counts of the group.
    pub stats: Stats,
    /// Counts of its buckets.
    pub bucket_stats: Vec<Stats>,
    /// Time of insertion, nanoseconds.
    pub since: u64,
}

/// A copy that a replication list makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// Port.
    pub port: u32,
    /// Value of [`crate::ir::Slot::Replica`].
    pub instance: u16,
}

/// A replication list: a multicast group, or a mirror session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replication {
    /// Copies.
    pub replicas: Vec<Replica>,
    /// Traffic class of the copies.
    pub class: Option<u8>,
    /// Most bytes of a copy.
    pub limit: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_the_sum_of_both_counts_however_they_were_set() {
        let stats = EntryStats::default();
        stats.add(2, 200);
        stats.add_alone(3, 300);
        stats.add_alone(1, 100);
        assert_eq!(stats.hits(), (6, 600));
        // Less than one thread has counted alone.
        stats.set_hits(1, 50);
        assert_eq!(stats.hits(), (1, 50));
        stats.add_alone(1, 60);
        assert_eq!(stats.hits(), (2, 110));
    }
}
