//! Entries that no packet hits: controllers are told once, and again after the next hit.
//!
//! Entries wait in the order of the times at which they would be idle. At that time the entry's last hit is looked up,
//! and it waits anew.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use pipeline::ir::TableId;
use pipeline::state::{Bundle, Change, EntryId, Installed, State};

use super::book::Book;

/// Most entries that are looked at in one go.
const MOST_LOOKED_AT: usize = 1 << 16;
/// Most entries of a notification.
const MOST_TOLD: usize = 1000;
/// Shortest time, nanoseconds, after which an entry is looked at again.
const SHORTEST: u64 = 1_000_000;

/// Entries with idle timeouts.
#[derive(Debug, Default)]
pub(super) struct Idle {
    queue: BTreeSet<(u64, EntryId)>,
    waiting: HashMap<EntryId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    table: TableId,
    timeout: u64,
    /// Time at which it is looked at.
    due: u64,
    /// Last hit of which it was told that it was long ago.
    told: Option<u64>,
}

impl Idle {
    /// Follows a bundle.
    pub(super) fn follow(&mut self, state: &State, bundle: &Bundle, book: &Book) {
        for change in &bundle.changes {
            let (table, entry, is_there) = match change {
                Change::Added(table, entry) | Change::Modified(table, _, entry) => (*table, entry, true),
                Change::Removed(table, entry) => (*table, entry, false),
                _ => continue,
            };
            if state.program().tables.get(table.index()).is_none_or(|schema| !schema.timeouts) {
                continue;
            }
            self.remove(entry.id);
            let timeout = book.entries.get(&entry.id).map_or(0, |details| details.idle_timeout);
            if is_there && timeout > 0 {
                let due = last_hit(entry).saturating_add(timeout);
                self.insert(entry.id, Waiting { table, timeout, due, told: None });
            }
        }
    }

    /// Entries that are idle at a time and were not told of.
    pub(super) fn take(&mut self, state: &State, now: u64) -> Vec<(TableId, EntryId)> {
        let mut idle = Vec::new();
        for _ in 0..MOST_LOOKED_AT {
            let Some((due, id)) = self.queue.first().copied() else { break };
            if due > now || idle.len() >= MOST_TOLD {
                break;
            }
            let Some(mut waiting) = self.remove(id) else { break };
            let Some(entry) = state.table(waiting.table).and_then(|table| table.get(id)) else { continue };
            let hit = last_hit(entry);
            let idle_from = hit.saturating_add(waiting.timeout);
            waiting.due = now.saturating_add(waiting.timeout.max(SHORTEST));
            if waiting.told != Some(hit) {
                match idle_from <= now {
                    true => {
                        waiting.told = Some(hit);
                        idle.push((waiting.table, id));
                    }
                    false => waiting.due = idle_from,
                }
            }
            self.insert(id, waiting);
        }
        idle
    }

    fn insert(&mut self, id: EntryId, waiting: Waiting) {
        self.queue.insert((waiting.due, id));
        self.waiting.insert(id, waiting);
    }

    fn remove(&mut self, id: EntryId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        self.queue.remove(&(waiting.due, id));
        Some(waiting)
    }
}

fn last_hit(entry: &Installed) -> u64 {
    entry.stats.last_hit.load(Relaxed)
}
