//! Entries one after the other, by precedence: the first that matches is hit.

use std::cmp::Reverse;
use std::sync::Arc;

use pipeline::state::Installed;
use tables::{Held, Lookup, MISS};

use super::order::rank;
use crate::keys::{KeyLayout, Ternaries};

/// Conditions of an entry.
#[derive(Clone)]
pub(super) enum Conditions {
    /// Any of these.
    Ternary(Ternaries),
    /// Those of the entry, tested key by key.
    Keys(Arc<Installed>),
}

/// All entries of a table, the first one having precedence.
pub(super) struct Scan {
    layout: Arc<KeyLayout>,
    entries: Box<[(Conditions, u32)]>,
    flat: Option<Flat>,
}

/// The conditions of entries that are all ternary, one after the other.
struct Flat {
    /// Mask and value of each word of each condition.
    words: Box<[(u64, u64)]>,
    /// Handle of each condition.
    handles: Box<[u32]>,
}

impl Scan {
    /// Makes the list of entries with their conditions and handles.
    pub(super) fn new(
        layout: Arc<KeyLayout>,
        entries: impl Iterator<Item = (Arc<Installed>, Option<Ternaries>, u32)>,
    ) -> Self {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|(installed, ..)| Reverse(rank(installed)));
        let conditions = |(installed, ternaries, handle): (_, Option<Ternaries>, u32)| {
            (ternaries.map_or(Conditions::Keys(installed), Conditions::Ternary), handle)
        };
        let entries: Box<[_]> = entries.into_iter().map(conditions).collect();
        let flat = flatten(&entries);
        Self { layout, entries, flat }
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

/// The conditions one after the other, if all are ternary.
fn flatten(entries: &[(Conditions, u32)]) -> Option<Flat> {
    let (mut words, mut handles) = (Vec::new(), Vec::new());
    for (conditions, handle) in entries {
        let Conditions::Ternary(any) = conditions else { return None };
        for ternary in any {
            words.extend(ternary.mask.iter().copied().zip(ternary.value.iter().copied()));
            handles.push(*handle);
        }
    }
    Some(Flat { words: words.into(), handles: handles.into() })
}

impl Lookup for Scan {
    fn words(&self) -> usize {
        self.layout.words
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        keys.chunks_exact(self.layout.words).zip(out).for_each(|(key, out)| *out = self.find(key));
    }

    fn find(&self, key: &[u64]) -> u32 {
        if let Some(Flat { words, handles }) = &self.flat {
            let conditions = words.chunks_exact(self.layout.words).zip(handles);
            let matches = |words: &[(u64, u64)]| {
                words
                    .iter()
                    .zip(key)
                    .fold(0, |differing, ((mask, value), key)| differing | (key & mask ^ value))
                    == 0
            };
            let found = conditions.into_iter().find(|(words, _)| matches(words));
            return found.map_or(MISS, |(_, handle)| *handle);
        }
        let found = self.entries.iter().find(|(conditions, _)| self.matches(conditions, key));
        found.map_or(MISS, |(_, handle)| *handle)
    }

    fn find_held(&self, _: &mut Held, key: &[u64]) -> u32 {
        self.find(key)
    }
}
