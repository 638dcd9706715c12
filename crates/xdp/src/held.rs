//! What a table's maps hold, entry by entry.
//!
//! Invariant: for each key, the map has the value of the best entry with it. A mask is in the array of masks before its
//! entries are in the map, and behind the last. An entry with ranges has several keys, which come and go one by one.

use std::collections::{BTreeSet, HashMap};

use bpf::Map;
use pipeline::state::EntryId;
use rustix::io::Errno;

use crate::entries::{Masked, rank_of};
use crate::lower::mask;

/// The maps of a table.
pub(crate) struct TableMaps<'m> {
    pub(crate) entries: &'m Map,
    pub(crate) masks: Option<&'m Map>,
}

/// Reasons why maps do not hold an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// There are so many masks already, and not more places.
    Masks(u32),
    /// The kernel's: the map is full.
    Map(Errno),
}

impl From<Errno> for NotHeld {
    fn from(errno: Errno) -> Self {
        NotHeld::Map(errno)
    }
}

/// Entries of a key, with their values.
type Candidates = Vec<(EntryId, Vec<u8>)>;

#[derive(Debug, Default)]
struct UnderMask {
    number: Option<u32>,
    keys: HashMap<Vec<u8>, Candidates>,
}

/// What a table's maps hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    masks: HashMap<Vec<u8>, UnderMask>,
    numbers: BTreeSet<u32>,
    /// Places of entries' counts.
    slots: HashMap<EntryId, u32>,
    free: Vec<u32>,
}

impl Held {
    /// The place of an entry's counts.
    pub(crate) fn slot(&mut self, entry: EntryId) -> u32 {
        let next = self.slots.len() as u32 + self.free.len() as u32;
        let free = &mut self.free;
        *self.slots.entry(entry).or_insert_with(|| free.pop().unwrap_or(next))
    }

    /// The place of an entry's counts, if it has one.
    pub(crate) fn slot_of(&self, entry: EntryId) -> Option<u32> {
        self.slots.get(&entry).copied()
    }

    /// Frees the place of an entry's counts, which are 0 again.
    pub(crate) fn free_slot(&mut self, entry: EntryId) {
        self.free.extend(self.slots.remove(&entry));
    }

    /// Enters an entry under its keys, or changes its value.
    pub(crate) fn set(
        &mut self,
        maps: &TableMaps<'_>,
        entry: EntryId,
        keys: Vec<Masked>,
        value: &[u8],
    ) -> Result<(), NotHeld> {
        for (mask, key) in keys {
            let is_new = !self.masks.contains_key(&mask);
            let number = match (maps.masks, is_new) {
                (Some(masks), true) => Some(self.free_number(masks.shape().entries)?),
                _ => None,
            };
            let under = self.masks.entry(mask.clone()).or_default();
            under.number = under.number.or(number);
            let candidates = under.keys.entry(key.clone()).or_default();
            match candidates.iter_mut().find(|(id, _)| *id == entry) {
                Some((_, known)) => *known = value.to_vec(),
                None => candidates.push((entry, value.to_vec())),
            }
            let best = best(candidates);
            // The mask first: one that had its place before would find the entry by other bits.
            if let (Some(masks), Some(number)) = (maps.masks, number) {
                let value = [&mask::USED.to_ne_bytes()[..], &mask].concat();
                masks.update(&number.to_ne_bytes(), &value)?;
            }
            maps.entries.update(&map_key(under.number, &key), best)?;
        }
        Ok(())
    }

    /// Removes an entry from under its keys.
    pub(crate) fn remove(
        &mut self,
        maps: &TableMaps<'_>,
        entry: EntryId,
        keys: Vec<Masked>,
    ) -> Result<(), NotHeld> {
        for (mask, key) in keys {
            let Some(under) = self.masks.get_mut(&mask) else { continue };
            let number = under.number;
            let Some(candidates) = under.keys.get_mut(&key) else { continue };
            candidates.retain(|(id, _)| *id != entry);
            if !candidates.is_empty() {
                maps.entries.update(&map_key(number, &key), best(candidates))?;
                continue;
            }
            under.keys.remove(&key);
            if under.keys.is_empty() {
                // Its place stays as it is, and has no entries, until another mask takes it.
                self.masks.remove(&mask);
                self.numbers.retain(|other| Some(*other) != number);
            }
            maps.entries.remove(&map_key(number, &key))?;
        }
        Ok(())
    }

    fn free_number(&mut self, most: u32) -> Result<u32, NotHeld> {
        let number = (0..most).find(|number| !self.numbers.contains(number)).ok_or(NotHeld::Masks(most))?;
        self.numbers.insert(number);
        Ok(number)
    }
}

/// The value that packets hit.
fn best(candidates: &Candidates) -> &[u8] {
    match &candidates[..] {
        [(_, value)] => value,
        // Only tables by masks have several.
        several => {
            several.iter().map(|(_, value)| value).max_by_key(|value| rank_of(value)).map_or(&[], |v| v)
        }
    }
}

/// A key of the map: with its mask's number in front, if it has one.
fn map_key(mask: Option<u32>, key: &[u8]) -> Vec<u8> {
    let number = mask.map(|mask| u64::from(mask).to_ne_bytes());
    [number.as_ref().map_or(&[][..], |number| number), key].concat()
}
