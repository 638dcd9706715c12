//! Tables, shared by all workers. The layout is that of `sdk/c/mswitch_table.h`.

use core::marker::PhantomData;
use core::sync::atomic::{fence, AtomicU64, Ordering};

const PROBE: u64 = 32;
const HEADER_WORDS: usize = 8;

/// A table of keys and values, both of a fixed number of words of 8 bytes. Values of one word are read and written in one
/// piece, whatever other workers do. An entry that somebody else removes meanwhile may be found once more.
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
    /// The switch made it, and it is there for `'a`.
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
        // SAFETY: the mask keeps it among the table's slots.
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

    /// The sequence number of a slot that has this key.
    fn has(&self, slot: &[AtomicU64], key: &[u64]) -> Option<u64> {
        let sequence = slot[0].load(Ordering::Acquire);
        let same = || slot[1..].iter().zip(key).all(|(there, word)| there.load(Ordering::Relaxed) == *word);
        if sequence & 3 == 2 && same() {
            Some(sequence)
        } else {
            None
        }
    }

    /// The value of a key; `None` if there is no entry.
    pub fn find(&self, key: &[u64]) -> Option<&'a [AtomicU64]> {
        assert!(key.len() == self.key_words, "keys of this table have another length");
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

    /// The value of a key, of zeroes if the key is new; `None` if there is no room.
    pub fn insert(&self, key: &[u64]) -> Option<&'a [AtomicU64]> {
        self.insert_with(key, &[])
    }

    /// The value of a key; if the key is new, with these words first. `None` if there is no room. Count in it with `fetch_add`.
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

    /// Once a key was added: should others have added it too, the first one stays, which is returned, and the later ones go.
    fn settle(&self, first: u64, key: &[u64]) -> Option<&'a [AtomicU64]> {
        // Of two that write and then look, one at least sees the other's.
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

    /// Removes an entry; returns whether there was one.
    pub fn remove(&self, key: &[u64]) -> bool {
        let first = self.first(key);
        let mut slots = (0..PROBE).map(|i| self.slot(first.wrapping_add(i)));
        match slots.find_map(|slot| Some((slot, self.has(slot, key)?))) {
            Some((slot, sequence)) => Self::remove_at(slot, sequence),
            None => false,
        }
    }

    /// Keys and values, in no order; what other workers add or remove meanwhile may be among them or not.
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

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
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
