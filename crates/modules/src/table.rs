//! Tables that the workers of a module share, and the switch beside them: an open hash table in memory of its own.
//!
//! Layout (`sdk/c/mswitch_table.h` has the same): a header of 64 bytes, then slots. A slot is a sequence number, a
//! key and a value; bit 0 of the number says that the slot is being written, bit 1 that it has an entry, the rest
//! counts changes. A key lies in one of [`PROBE`] slots from where its hash points to. Values of 8 bytes are read and
//! written in one piece; longer ones may be torn between workers that write at once. After adding a key, a worker
//! looks again: of two entries added at the same moment, the one in the first slot stays, and a worker that sees both
//! removes the other.
//!
//! Invariants: the switch relies on nothing that it finds there but its own numbers, since a module can write
//! anything; every loop is bounded by them; all accesses are by atomics.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::description::{TableInfo, Type};

/// Slots that a key may be in.
const PROBE: usize = 32;
/// Bytes before the first slot.
const HEADER: usize = 64;
/// The first of the header's words with a bit for each length of a prefix that is or was in the table,
const PREFIXES: usize = 3;
/// and how many of these words there are: lengths from 0 to 128.
const PREFIX_WORDS: usize = 3;
/// A page of WebAssembly, and at least one of the machine's.
pub(crate) const PAGE: usize = 64 << 10;

const WRITING: u64 = 1;
const PRESENT: u64 = 2;
/// Increment of the sequence number for a change.
const CHANGE: u64 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedTable {
    memory: OwnedFd,
    at: NonNull<u8>,
    len: usize,
    seed: u64,
    mask: usize,
    key_words: usize,
    value_words: usize,
    /// The byte of a key that has the length of a prefix.
    prefix_at: Option<usize>,
}

// SAFETY: the mapping belongs to the table and is used by atomics only.
unsafe impl Send for SharedTable {}
// SAFETY: as above.
unsafe impl Sync for SharedTable {}

impl Drop for SharedTable {
    fn drop(&mut self) {
        // SAFETY: the mapping is the table's own, and nothing refers to it any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

impl SharedTable {
    /// Half full at most, so that no key in many thousands finds no slot.
    fn slots(info: &TableInfo) -> usize {
        (info.capacity as usize * 2).next_power_of_two().max(PROBE)
    }

    fn slot_len(info: &TableInfo) -> usize {
        8 + info.key_len + info.value_len
    }

    /// Memory of a table with this description, bytes.
    pub(crate) fn bytes(info: &TableInfo) -> usize {
        (HEADER + Self::slots(info) * Self::slot_len(info)).next_multiple_of(PAGE)
    }

    fn with_memory(
        len: usize,
        seed: u64,
        mask: usize,
        key_words: usize,
        value_words: usize,
        prefix_at: Option<usize>,
    ) -> io::Result<SharedTable> {
        let memory = memfd_create("mswitch-table", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, len as u64)?;
        // SAFETY: a new mapping, wherever there is room.
        let at = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &memory, 0)?
        };
        let at = NonNull::new(at.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let table = SharedTable { memory, at, len, seed, mask, key_words, value_words, prefix_at };
        let slot_len = (table.words_of_slot() * 8) as u64;
        let numbers = [seed, mask as u64 | slot_len << 32, key_words as u64 | (value_words as u64) << 32];
        for (i, number) in numbers.into_iter().enumerate() {
            table.word(i).store(number, Ordering::Relaxed);
        }
        Ok(table)
    }

    /// Makes an empty table.
    pub(crate) fn new(info: &TableInfo) -> io::Result<SharedTable> {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let (mask, key_words, value_words) = (Self::slots(info) - 1, info.key_len / 8, info.value_len / 8);
        let prefix = info.key.iter().find(|column| column.kind == Type::Prefix);
        let prefix_at = prefix.map(|column| column.at);
        Self::with_memory(Self::bytes(info), seed, mask, key_words, value_words, prefix_at)
    }

    /// Copies the table; entries that change meanwhile may be missing.
    pub(crate) fn copied(&self) -> io::Result<SharedTable> {
        let Self { len, seed, mask, key_words, value_words, prefix_at, .. } = *self;
        let copy = Self::with_memory(len, seed, mask, key_words, value_words, prefix_at)?;
        for i in (PREFIXES..PREFIXES + PREFIX_WORDS).chain(HEADER / 8..self.len / 8) {
            copy.word(i).store(self.word(i).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        copy.repair();
        Ok(copy)
    }

    /// The memory, for mapping into a module's.
    pub(crate) fn memory(&self) -> (&OwnedFd, usize) {
        (&self.memory, self.len)
    }

    /// The switch's mapping.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }

    /// Word `i` of all of it; the last one in place of those behind.
    #[inline]
    fn word(&self, i: usize) -> &AtomicU64 {
        let i = i.min(self.len / 8 - 1);
        // SAFETY: inside of the mapping, aligned; everybody uses it by atomics, and modules as the machine does.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().cast::<u64>().wrapping_add(i)) }
    }

    fn words_of_slot(&self) -> usize {
        1 + self.key_words + self.value_words
    }

    /// The first word of a slot.
    fn slot(&self, slot: usize) -> usize {
        HEADER / 8 + (slot & self.mask) * self.words_of_slot()
    }

    fn hash(&self, key: &[u64]) -> usize {
        let mix = |hash: u64, word: &u64| {
            let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 32
        };
        // Keys may differ in few bits, the last ones or the first: these must reach the low bits, which choose the
        // slot.
        let hash = key.iter().fold(self.seed, mix).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash ^ hash >> 32) as usize
    }

    /// The sequence number of a slot that has this key.
    fn has_key(&self, slot: usize, key: &[u64]) -> Option<u64> {
        let sequence = self.word(slot).load(Ordering::Acquire);
        let same = || (slot + 1..).zip(key).all(|(i, word)| self.word(i).load(Ordering::Relaxed) == *word);
        (sequence & (WRITING | PRESENT) == PRESENT && same()).then_some(sequence)
    }

    /// Adds an entry, unless the key is there. Returns whether it was added.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        if let Some(length) = self.prefix_at.and_then(|at| key.get(at)) {
            let word = usize::from(length / 64).min(PREFIX_WORDS - 1);
            self.word(PREFIXES + word).fetch_or(1 << (length % 64), Ordering::Relaxed);
        }
        let (key, value) = (words(key, self.key_words), words(value, self.value_words));
        let first = self.hash(&key);
        let slots = || (0..PROBE).map(|i| self.slot(first.wrapping_add(i)));
        if slots().any(|slot| self.has_key(slot, &key).is_some()) {
            return false;
        }
        for slot in slots() {
            let sequence = self.word(slot).load(Ordering::Acquire);
            let free = sequence & (WRITING | PRESENT) == 0;
            if free
                && self
                    .word(slot)
                    .compare_exchange(sequence, sequence | WRITING, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                for (i, word) in (slot + 1..).zip(key.iter().chain(&value)) {
                    self.word(i).store(*word, Ordering::Relaxed);
                }
                self.word(slot).store(sequence.wrapping_add(CHANGE) | PRESENT, Ordering::Release);
                // Of two that write their entries and then look, one at least sees the other's.
                std::sync::atomic::fence(Ordering::SeqCst);
                let mut there = slots().filter_map(|slot| Some((slot, self.has_key(slot, &key)?)));
                let stays = there.next();
                for (later, sequence) in there {
                    self.remove_at(later, sequence);
                }
                return stays.is_none_or(|(stays, _)| stays == slot);
            }
        }
        false
    }

    /// Iterates over the places, keys and values of entries; those that change meanwhile may be missing.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, Vec<u8>)> {
        (0..=self.mask).filter_map(|i| {
            let slot = self.slot(i);
            let before = self.word(slot).load(Ordering::Acquire);
            if before & (WRITING | PRESENT) != PRESENT {
                return None;
            }
            let bytes: Vec<u8> = (slot + 1..slot + self.words_of_slot())
                .flat_map(|i| self.word(i).load(Ordering::Relaxed).to_le_bytes())
                .collect();
            std::sync::atomic::fence(Ordering::Acquire);
            (self.word(slot).load(Ordering::Relaxed) == before).then_some((slot, bytes))
        })
    }

    /// Largest number of entries.
    pub(crate) fn capacity(&self) -> u64 {
        self.mask as u64 + 1
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> u64 {
        let there = |i: &usize| self.word(self.slot(*i)).load(Ordering::Relaxed) & PRESENT != 0;
        (0..=self.mask).filter(there).count() as u64
    }

    /// Removes the entries, key and value, for which `which` is true; returns how many.
    pub(crate) fn remove_where(&self, mut which: impl FnMut(&[u8]) -> bool) -> usize {
        let gone = |slot| self.remove_at(slot, self.word(slot).load(Ordering::Acquire));
        self.entries().filter(|(slot, bytes)| which(bytes) && gone(*slot)).count()
    }

    fn remove_at(&self, slot: usize, sequence: u64) -> bool {
        let gone = (sequence & !(WRITING | PRESENT)).wrapping_add(CHANGE);
        sequence & (WRITING | PRESENT) == PRESENT
            && self.word(slot).compare_exchange(sequence, gone, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees slots whose writer was interrupted. Writing takes nanoseconds, so a slot that is being written
    /// throughout a pass over the table has lost its writer. The entry of a worker that merely lost its CPU there may
    /// be lost or torn.
    pub(crate) fn repair(&self) {
        let writing = |slot: &usize| self.word(*slot).load(Ordering::Relaxed) & WRITING != 0;
        let began: Vec<_> = (0..=self.mask).map(|i| self.slot(i)).filter(writing).collect();
        let stuck = began.into_iter().map(|slot| (slot, self.word(slot).load(Ordering::Relaxed)));
        let stuck: Vec<_> = stuck.filter(|(_, sequence)| sequence & WRITING != 0).collect();
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
        for (slot, sequence) in stuck {
            let free = (sequence & !(WRITING | PRESENT)).wrapping_add(CHANGE);
            let _ = self.word(slot).compare_exchange(sequence, free, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Bytes of a key.
    pub(crate) fn key_len(&self) -> usize {
        self.key_words * 8
    }

    /// Bytes of a value.
    pub(crate) fn value_len(&self) -> usize {
        self.value_words * 8
    }
}

/// Converts bytes to words, padded with zeroes.
fn words(bytes: &[u8], count: usize) -> Vec<u64> {
    let mut chunks = bytes.chunks(8);
    let mut word = || {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunks.next().unwrap_or_default()) {
            *to = *from;
        }
        u64::from_le_bytes(word)
    };
    (0..count).map(|_| word()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::description::{Column, Type};

    fn table(capacity: u32) -> SharedTable {
        let column = |name: &str| Column { name: name.into(), kind: Type::U64, at: 0 };
        let (key, value) = (vec![column("k")], vec![column("v")]);
        let info = TableInfo {
            name: "t".into(),
            key,
            value,
            key_len: 8,
            value_len: 8,
            capacity,
            expires: None,
            hand_over: true,
        };
        SharedTable::new(&info).unwrap()
    }

    fn contents(table: &SharedTable) -> BTreeMap<u64, u64> {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        table.entries().map(|(_, entry)| (number(&entry[..8]), number(&entry[8..]))).collect()
    }

    proptest! {
        #[test]
        fn holds_what_a_map_holds(steps in prop::collection::vec((any::<bool>(), 0..64u64, any::<u64>()), 0..300)) {
            let (table, mut map) = (table(1024), BTreeMap::new());
            for (insert, key, value) in steps {
                if insert {
                    let fresh = table.insert(&key.to_le_bytes(), &value.to_le_bytes());
                    prop_assert_eq!(fresh, !map.contains_key(&key));
                    map.entry(key).or_insert(value);
                } else {
                    let removed = table.remove_where(|entry| entry[..8] == key.to_le_bytes());
                    prop_assert_eq!(removed, usize::from(map.remove(&key).is_some()));
                }
            }
            prop_assert_eq!(contents(&table), map);
        }
    }

    #[test]
    fn is_full_some_time_and_says_so() {
        let table = table(8);
        let added = (0..1000u64).filter(|key| table.insert(&key.to_le_bytes(), &[1])).count();
        assert_eq!(added, contents(&table).len());
        assert!((8..=32).contains(&added), "{added}");
    }

    #[test]
    fn keys_that_differ_in_one_place_find_room() {
        for shift in [0, 8, 16, 40, 48] {
            let table = table(4096);
            let missing = (0..4096u64).filter(|i| !table.insert(&(i << shift).to_le_bytes(), &[1])).count();
            assert!(missing <= 8, "{missing} of 4096 keys, {shift} bits from the right");
        }
    }

    #[test]
    fn workers_that_add_the_same_keys_lose_none() {
        let table = table(8192);
        let added: usize = std::thread::scope(|scope| {
            let add = || (0..4000u64).filter(|key| table.insert(&key.to_le_bytes(), &[1])).count();
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        // A worker that adds a key at the same moment as another may count it as new and lose it to the other.
        assert!(added >= 4000, "{added}");
        assert_eq!(contents(&table).len(), 4000);
        assert_eq!(table.entries().count(), 4000, "each key once");
    }

    #[test]
    fn a_slot_that_was_never_finished_is_free_again() {
        let table = table(8);
        for i in 0..=table.mask {
            table.word(table.slot(i)).store(WRITING, Ordering::Relaxed);
        }
        assert!(!table.insert(&[1], &[1]));
        table.repair();
        assert!(table.insert(&[1], &[1]));
        assert_eq!(contents(&table), BTreeMap::from([(1, 1)]));
    }

    #[test]
    fn whatever_a_module_writes_every_look_ends() {
        let table = table(64);
        let mut random = 1u64;
        for i in 0..table.len / 8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            table.word(i).store(random, Ordering::Relaxed);
        }
        assert!(table.entries().count() <= table.mask + 1);
        table.insert(&[7], &[7]);
        table.repair();
        table.remove_where(|_| true);
        assert_eq!(contents(&table), BTreeMap::new());
    }
}
