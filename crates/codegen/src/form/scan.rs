//! Entries one after the other, by precedence: the first that matches is hit.

use std::cmp::Reverse;
use std::sync::Arc;

use pipeline::ir::KeyMatch;
use pipeline::state::Installed;

use crate::keys::{KeyLayout, Ternary};
use crate::view::Record;

/// Precedence of an entry: the larger wins.
pub(crate) fn rank(installed: &Installed) -> (u32, u16, Reverse<u64>) {
    let lengths = installed.entry.matches.iter().map(|condition| match condition.is {
        KeyMatch::Prefix(_, len) => len,
        _ => 0,
    });
    (installed.entry.priority, lengths.max().unwrap_or(0), Reverse(installed.id.0))
}

/// An entry with its condition on the words of a key.
#[derive(Debug, Clone)]
pub(crate) struct ScanEntry {
    /// The condition; `None` if it has ranges, which are tested key by key.
    pub(crate) ternary: Option<Ternary>,
    pub(crate) record: Arc<Record>,
}

/// All entries of a table, the first one having precedence.
#[derive(Debug)]
pub(crate) struct Scan {
    layout: Arc<KeyLayout>,
    entries: Arc<[ScanEntry]>,
}

impl Scan {
    pub(crate) fn new(layout: Arc<KeyLayout>, mut entries: Vec<ScanEntry>) -> Self {
        entries.sort_by_key(|entry| Reverse(rank(&entry.record.installed)));
        Self { layout, entries: entries.into() }
    }

    pub(crate) fn find(&self, key: &[u64]) -> Option<&Record> {
        self.entries.iter().find(|entry| self.matches(entry, key)).map(|entry| &*entry.record)
    }

    fn matches(&self, entry: &ScanEntry, key: &[u64]) -> bool {
        if let Some(Ternary { value, mask }) = &entry.ternary {
            return key.iter().zip(value.iter().zip(mask)).all(|(key, (value, mask))| key & mask == *value);
        }
        entry.record.installed.entry.matches.iter().all(|condition| {
            let value = self.layout.value(condition.key as usize, key);
            value.is_some_and(|value| condition.is.contains(&value))
        })
    }
}
