//! Tables, shared by all workers, with the layout of `sdk/c/mswitch_table.h`.

use crate::address::Prefix;
use core::marker::PhantomData;
use core::sync::atomic::{fence, AtomicU64, Ordering};

const PROBE: u64 = 32;
const HEADER_WORDS: usize = 8;
/// First header word of a bitmap of the prefix lengths that are or were in the table.
const PREFIXES: usize = 3;

/// A table with keys and values of a fixed number of 8-byte words. Words are read and written atomically. A lookup may
/// find an entry that another worker is removing.
pub struct Table<'a> {
    at: *const AtomicU64,
    seed: u64,
    mask: u64,
    slot_words: usize,
    key_words: usize,
    value_words: usize,
    batch: PhantomData<&'a ()>,
}

impl<'a> Table<'a> {
    /// The table at an address.
    ///
    /// # Safety
    /// The address is that of a table from the switch, which lives for `'a`.
    pub(crate) unsafe fn new(at: *const u64) -> Table<'a> {
        let word = |i: usize| *at.add(i);
        let (shape, words) = (word(1), word(2));
        Table {
            at: at.cast(),
            seed: word(0),
            mask: shape & 0xffff_ffff,
            slot_words: (shape >> 32) as usize / 8,
            key_words: (words & 0xffff_ffff) as usize,
            value_words: (words >> 32) as usize,
            batch: PhantomData,
        }
    }

    fn slot(&self, slot: u64) -> &'a [AtomicU64] {
        let at = self.at.wrapping_add(HEADER_WORDS + (slot & self.mask) as usize * self.slot_words);
        // SAFETY: the mask keeps the index within the table's slots.
        unsafe { core::slice::from_raw_parts(at, self.slot_words) }
    }

    fn first(&self, key: &[u64]) -> u64 {
        let mix = |hash: u64, word: &u64| {
            let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 32
        };
        let hash = key.iter().fold(self.seed, mix).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash ^ hash >> 32
    }

    /// Returns a slot's sequence number if the slot has this key.
    fn has(&self, slot: &[AtomicU64], key: &[u64]) -> Option<u64> {
        let sequence = slot[0].load(Ordering::Acquire);
        let same = || slot[1..].iter().zip(key).all(|(there, word)| there.load(Ordering::Relaxed) == *word);
        if sequence & 3 == 2 && same() {
            Some(sequence)
        } else {
            None
        }
    }

    /// Finds the value of a key.
    #[track_caller]
    pub fn find(&self, key: &[u64]) -> Option<&'a [AtomicU64]> {
        let words = self.key_words;
        assert!(key.len() == words, "a key of {} words, those of the table have {}", key.len(), words);
        let first = self.first(key);
        for i in 0..PROBE {
            let slot = self.slot(first.wrapping_add(i));
            if self.has(slot, key).is_some() {
                return Some(&slot[1 + self.key_words..]);
            }
            if slot[0].load(Ordering::Relaxed) == 0 {
                return None;
            }
        }
        None
    }

    /// Finds or adds a key and returns its value, zero if the key is new; `None` if there is no room.
    #[track_caller]
    pub fn insert(&self, key: &[u64]) -> Option<&'a [AtomicU64]> {
        self.insert_with(key, &[])
    }

    /// Finds or adds a key and returns its value, which starts with `value` if the key is new; `None` if there is no
    /// room. Count with `fetch_add`.
    #[track_caller]
    pub fn insert_with(&self, key: &[u64], value: &[u64]) -> Option<&'a [AtomicU64]> {
        if let Some(value) = self.find(key) {
            return Some(value);
        }
        let first = self.first(key);
        for i in 0..PROBE {
            let slot = self.slot(first.wrapping_add(i));
            let sequence = slot[0].load(Ordering::Acquire);
            if sequence & 3 != 0 {
                if self.has(slot, key).is_some() {
                    // Another worker was faster.
                    return Some(&slot[1 + self.key_words..]);
                }
                continue;
            }
            if slot[0].compare_exchange(sequence, sequence | 1, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            let zeroes = core::iter::repeat(0).take(self.value_words);
            let words = key.iter().chain(value.iter().take(self.value_words)).copied().chain(zeroes);
            for (there, word) in slot[1..].iter().zip(words) {
                there.store(word, Ordering::Relaxed);
            }
            slot[0].store(sequence.wrapping_add(4) | 2, Ordering::Release);
            return Some(&self.settle(first, key).unwrap_or(slot)[1 + self.key_words..]);
        }
        None
    }

    /// Resolves concurrent insertions of a key: the first entry stays and is returned, the others are removed.
    fn settle(&self, first: u64, key: &[u64]) -> Option<&'a [AtomicU64]> {
        // Of two workers that insert and then look, at least one sees the other's entry.
        fence(Ordering::SeqCst);
        let slots = (0..PROBE).map(|i| self.slot(first.wrapping_add(i)));
        let slots = slots.take_while(|slot| slot[0].load(Ordering::Acquire) != 0);
        let mut there = slots.filter_map(|slot| Some((slot, self.has(slot, key)?)));
        let stays = there.next();
        there.for_each(|(later, sequence)| {
            Self::remove_at(later, sequence);
        });
        stays.map(|(slot, _)| slot)
    }

    fn remove_at(slot: &[AtomicU64], sequence: u64) -> bool {
        let gone = (sequence & !3).wrapping_add(4);
        slot[0].compare_exchange(sequence, gone, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Removes an entry; returns whether it existed.
    pub fn remove(&self, key: &[u64]) -> bool {
        let first = self.first(key);
        let mut slots = (0..PROBE).map(|i| self.slot(first.wrapping_add(i)));
        match slots.find_map(|slot| Some((slot, self.has(slot, key)?))) {
            Some((slot, sequence)) => Self::remove_at(slot, sequence),
            None => false,
        }
    }

    /// Finds or adds a prefix and returns its value, which starts with `value` if the prefix is new; `None` if there is
    /// no room. The table's key is `[["network", "ipv4"], ["length", "prefix"]]`, or `ipv6`.
    #[track_caller]
    pub fn insert_prefix(&self, prefix: &Prefix, value: &[u64]) -> Option<&'a [AtomicU64]> {
        let (key, words) = key_of(prefix);
        let length = usize::from(prefix.length());
        self.lengths(length / 64).fetch_or(1 << (length % 64), Ordering::Relaxed);
        self.insert_with(&key[..words], value)
    }

    /// Finds the value of exactly this prefix.
    #[track_caller]
    pub fn find_prefix(&self, prefix: &Prefix) -> Option<&'a [AtomicU64]> {
        let (key, words) = key_of(prefix);
        self.find(&key[..words])
    }

    /// Removes a prefix; returns whether it existed.
    pub fn remove_prefix(&self, prefix: &Prefix) -> bool {
        let (key, words) = key_of(prefix);
        self.remove(&key[..words])
    }

    /// Finds the longest prefix that contains an address, with its value. Tries every length that was ever used.
    #[track_caller]
    pub fn find_longest(&self, address: &Prefix) -> Option<(Prefix, &'a [AtomicU64])> {
        (0..=usize::from(address.length()) / 64).rev().find_map(|word| {
            let mut lengths = self.lengths(word).load(Ordering::Relaxed);
            while lengths != 0 {
                let bit = 63 - lengths.leading_zeros() as usize;
                lengths &= !(1 << bit);
                let length = word * 64 + bit;
                if length <= address.length().into() {
                    let prefix = address.shortened(length as u8);
                    if let Some(value) = self.find_prefix(&prefix) {
                        return Some((prefix, value));
                    }
                }
            }
            None
        })
    }

    /// Bitmap of the lengths from `64 * word` on.
    fn lengths(&self, word: usize) -> &'a AtomicU64 {
        // SAFETY: the bitmap has three words, for lengths up to 128.
        unsafe { &*self.at.wrapping_add(PREFIXES + word.min(2)) }
    }

    /// Iterates over keys and values in no particular order. Entries that other workers add or remove meanwhile may
    /// be missing.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [AtomicU64], &'a [AtomicU64])> + '_ {
        (0..=self.mask).filter_map(move |i| {
            let slot = self.slot(i);
            let there = slot[0].load(Ordering::Acquire) & 3 == 2;
            if there {
                Some(slot[1..].split_at(self.key_words))
            } else {
                None
            }
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        for i in 0..=self.mask {
            let slot = self.slot(i);
            let sequence = slot[0].load(Ordering::Acquire);
            if sequence & 3 == 2 {
                Self::remove_at(slot, sequence);
            }
        }
    }
}

/// Returns a prefix as a key, with the number of words.
fn key_of(prefix: &Prefix) -> ([u64; 3], usize) {
    let mut bytes = [0; 24];
    let address = prefix.address();
    bytes[..address.len()].copy_from_slice(address);
    bytes[address.len()] = prefix.length();
    let mut key = [0; 3];
    for (word, bytes) in key.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut wide = [0; 8];
        wide.copy_from_slice(bytes);
        *word = u64::from_le_bytes(wide);
    }
    (key, if address.len() == 4 { 1 } else { 3 })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// Memory of a table with 256 slots, in the switch's layout.
    fn memory(key_words: u64) -> Vec<u64> {
        let slot = 8 * (2 + key_words);
        let mut memory = vec![0; HEADER_WORDS + 256 * slot as usize / 8];
        memory[..3].copy_from_slice(&[7, 255 | slot << 32, key_words | 1 << 32]);
        memory
    }

    #[test]
    fn the_longest_prefix_wins() {
        for (prefixes, key_words, finds) in [
            (
                ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3"],
                1,
                [
                    ("10.1.2.3", Some(3)),
                    ("10.1.2.4", Some(2)),
                    ("10.2.0.0", Some(1)),
                    ("11.0.0.1", Some(0)),
                    ("10.0.0.0/7", Some(0)),
                ],
            ),
            (
                ["2001:db8::/32", "2001:db8::/64", "2001:db8::1", "fe80::/10"],
                3,
                [
                    ("2001:db8::1", Some(2)),
                    ("2001:db8::2", Some(1)),
                    ("2001:db8:0:1::", Some(0)),
                    ("febf::1", Some(3)),
                    ("2002::", None),
                ],
            ),
        ] {
            let memory = memory(key_words);
            // SAFETY: the memory has the layout of a table and outlives it.
            let table = unsafe { Table::new(memory.as_ptr()) };
            let prefix = |text: &str| text.parse::<Prefix>().unwrap();
            for (number, text) in (0..).zip(prefixes) {
                assert!(table.insert_prefix(&prefix(text), &[number]).is_some());
            }
            for (address, found) in finds {
                let value = |value: &[AtomicU64]| value[0].load(Ordering::Relaxed);
                let longest = table.find_longest(&prefix(address));
                assert_eq!(longest.map(|(_, found)| value(found)), found, "{}", address);
                if let Some((prefix, _)) = longest {
                    assert!(prefix == prefixes[found.unwrap() as usize].parse().unwrap());
                }
            }
            assert!(table.remove_prefix(&prefix(prefixes[1])) && !table.remove_prefix(&prefix(prefixes[1])));
            assert!(table.find_prefix(&prefix(prefixes[1])).is_none());
        }
    }
}
