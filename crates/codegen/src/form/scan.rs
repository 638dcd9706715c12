//! Entries one after the other, by precedence: the first that matches is hit.

use std::cmp::Reverse;
use std::sync::Arc;

use pipeline::state::Installed;
use tables::{Lookup, MISS};

use super::order::rank;
use crate::keys::{KeyLayout, Ternary};

/// Conditions of an entry.
#[derive(Clone)]
pub(super) enum Conditions {
    /// Any of these.
    Ternary(Vec<Ternary>),
    /// Those of the entry, tested key by key.
    Keys(Arc<Installed>),
}

/// All entries of a table, the first one having precedence.
pub(super) struct Scan {
    layout: Arc<KeyLayout>,
    entries: Box<[(Conditions, u32)]>,
}

impl Scan {
    /// Makes the list of entries with their conditions and handles.
    pub(super) fn new(
        layout: Arc<KeyLayout>,
        entries: impl Iterator<Item = (Arc<Installed>, Option<Vec<Ternary>>, u32)>,
    ) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|(installed, ..)| Reverse(rank(installed)));
        let conditions = |(installed, ternaries, handle): (_, Option<Vec<Ternary>>, u32)| {
            (ternaries.map_or(Conditions::Keys(installed), Conditions::Ternary), handle)
        };
        Self { layout, entries: entries.into_iter().map(conditions).collect() }
    }

    fn matches(&self, conditions: &Conditions, key: &[u64]) -> bool {
        match conditions {
            Conditions::Ternary(any) => any.iter().any(|ternary| ternary.matches(key)),
            Conditions::Keys(installed) => installed.entry.matches.iter().all(|condition| {
                let value = self.layout.value(condition.key as usize, key);
                value.is_some_and(|value| condition.is.contains(&value))
            }),
        }
    }
}

impl Lookup for Scan {
    fn words(&self) -> usize {
        self.layout.words
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        keys.chunks_exact(self.layout.words).zip(out).for_each(|(key, out)| *out = self.find(key));
    }

    fn find(&self, key: &[u64]) -> u32 {
        let found = self.entries.iter().find(|(conditions, _)| self.matches(conditions, key));
        found.map_or(MISS, |(_, handle)| *handle)
    }
}
