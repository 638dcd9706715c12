//! Exact matches of small numbers: an array of handles, indexed by the number.
//!
//! For ports, VLANs, next hops, table metadata: one run of bits of a one-word key, with values below 65,536. The array is
//! as long as the largest value needs. A lookup reads one word, and nothing has to be compared.
//!
//! Readers see no mix: a change is one store. An array that becomes too short is replaced by a longer one, which only
//! later readers have ([`Direct::has_grown`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Held, Lookup, MISS, TableError};

/// Values at most.
const MOST: usize = 1 << 16;
/// Length of the first array.
const SHORTEST: usize = 64;

/// Where the number is in a key.
#[derive(Debug, Clone, Copy)]
struct Run {
    mask: u64,
    shift: u32,
}

impl Run {
    #[inline(always)]
    fn number(self, key: u64) -> usize {
        ((key & self.mask) >> self.shift) as usize
    }
}

/// Handles by number, [`MISS`] where there is no entry.
type Cells = Arc<[AtomicU32]>;

fn cells(len: usize, before: &[AtomicU32]) -> Cells {
    let old = before.iter().map(|cell| cell.load(Ordering::Relaxed));
    old.chain(std::iter::repeat(MISS)).take(len).map(AtomicU32::new).collect()
}

/// A table of small numbers; the writer's side.
#[derive(Debug)]
pub struct Direct {
    run: Run,
    cells: Cells,
    len: usize,
    has_grown: bool,
}

impl Direct {
    /// Makes an empty table whose keys are compared under a mask. `None` if that is not one run of bits.
    pub fn new(mask: u64) -> Option<Self> {
        let shift = mask.trailing_zeros();
        // A mask without a bit has no such shift.
        let ones = mask.checked_shr(shift)?;
        let is_run = ones & ones.wrapping_add(1) == 0;
        let run = Run { mask, shift };
        is_run.then(|| Self { run, cells: cells(SHORTEST, &[]), len: 0, has_grown: false })
    }

    /// Returns whether a key's number is small enough.
    pub fn fits(&self, key: u64) -> bool {
        self.run.number(key) < MOST
    }

    /// Returns a reader, which does not see what is inserted behind the end of the present array.
    pub fn reader(&self) -> DirectReader {
        DirectReader { run: self.run, cells: self.cells.clone() }
    }

    /// Returns the handle of a key.
    pub fn get(&self, key: u64) -> Option<u32> {
        let handle = self.cells.get(self.run.number(key))?.load(Ordering::Relaxed);
        (handle != MISS).then_some(handle)
    }

    /// Adds a key, or changes its handle. Returns the handle that it had.
    ///
    /// # Errors
    /// The handle is [`MISS`], or the key does not [fit](Direct::fits).
    pub fn insert(&mut self, key: u64, handle: u32) -> Result<Option<u32>, TableError> {
        if handle == MISS {
            return Err(TableError::ReservedHandle);
        }
        let number = self.run.number(key);
        if number >= MOST {
            return Err(TableError::Full);
        }
        if number >= self.cells.len() {
            self.cells = cells((number + 1).next_power_of_two(), &self.cells);
            self.has_grown = true;
        }
        Ok(self.store(number, handle))
    }

    /// Removes a key. Returns its handle.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        self.store(self.run.number(key), MISS)
    }

    /// Returns whether the array has been replaced since this was last asked, so that earlier readers do not see all.
    pub fn has_grown(&mut self) -> bool {
        std::mem::take(&mut self.has_grown)
    }

    /// Returns a second writer with the same entries, whose changes stay invisible to readers of this one.
    pub fn fork(&self) -> Self {
        Self { cells: cells(self.cells.len(), &self.cells), ..*self }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that readers use.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.cells)
    }

    fn store(&mut self, number: usize, handle: u32) -> Option<u32> {
        // Behind the stores that made what the handle leads to.
        let old = self.cells.get(number).map_or(MISS, |cell| cell.swap(handle, Ordering::Release));
        self.len += usize::from(handle != MISS);
        self.len -= usize::from(old != MISS);
        (old != MISS).then_some(old)
    }
}

/// Reads a [`Direct`] table.
#[derive(Debug, Clone)]
pub struct DirectReader {
    run: Run,
    cells: Cells,
}

impl Lookup for DirectReader {
    fn words(&self) -> usize {
        1
    }

    fn lookup_flat(&self, keys: &[u64], out: &mut [u32]) {
        for (key, out) in keys.iter().zip(out) {
            *out = self.find(std::slice::from_ref(key));
        }
    }

    #[inline]
    fn find(&self, key: &[u64]) -> u32 {
        let cell = key.first().and_then(|key| self.cells.get(self.run.number(*key)));
        cell.map_or(MISS, |cell| cell.load(Ordering::Acquire))
    }

    fn find_held(&self, _: &mut Held, key: &[u64]) -> u32 {
        self.find(key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks_are_one_run_of_bits() {
        for mask in [1, 0xfff << 52, u64::MAX, 1 << 63, 0xffff] {
            assert!(Direct::new(mask).is_some(), "{mask:x}");
        }
        for mask in [0, 0b101, 0xff00_00ff, 1 << 63 | 1] {
            assert!(Direct::new(mask).is_none(), "{mask:x}");
        }
    }

    #[test]
    fn large_numbers_and_the_reserved_handle_are_refused() {
        let mut table = Direct::new(u64::MAX).unwrap();
        assert!(table.fits(65_535) && !table.fits(65_536));
        assert_eq!(table.insert(65_536, 1), Err(TableError::Full));
        assert_eq!(table.insert(1, MISS), Err(TableError::ReservedHandle));
        assert_eq!(table.reader().find(&[u64::MAX]), MISS);
        assert_eq!(table.reader().find(&[]), MISS);
        assert!(table.is_empty());
    }

    #[test]
    fn forks_and_longer_arrays_are_invisible_to_earlier_readers() {
        let mut table = Direct::new(0xffff << 8).unwrap();
        table.insert(5 << 8, 1).unwrap();
        let before = table.reader();
        let mut fork = table.fork();
        fork.insert(6 << 8, 2).unwrap();
        assert_eq!((before.find(&[6 << 8]), fork.reader().find(&[6 << 8])), (MISS, 2));
        assert!(!table.has_grown());
        table.insert(500 << 8, 3).unwrap();
        assert!(table.has_grown() && !table.has_grown());
        assert_eq!((before.find(&[500 << 8]), table.reader().find(&[500 << 8])), (MISS, 3));
        // Within the array, changes are seen at once.
        let reader = table.reader();
        assert_eq!(table.insert(7 << 8, 4).unwrap(), None);
        assert_eq!(table.remove(5 << 8), Some(1));
        assert_eq!((reader.find(&[7 << 8 | 0xff]), reader.find(&[5 << 8])), (4, MISS));
    }

    proptest! {
        #[test]
        fn lookups_are_those_of_a_map(
            changes in prop::collection::vec((0u64..300, any::<bool>(), 0u32..9), 0..200),
            probes in prop::collection::vec(any::<u64>(), 0..20),
        ) {
            let mask = 0xfff << 20;
            let (mut table, mut map) = (Direct::new(mask).unwrap(), HashMap::new());
            for (number, inserts, handle) in changes {
                let key = number << 20;
                if inserts {
                    prop_assert_eq!(table.insert(key, handle).unwrap(), map.insert(key, handle));
                } else {
                    prop_assert_eq!(table.remove(key), map.remove(&key));
                }
                prop_assert_eq!(table.len(), map.len());
            }
            let keys: Vec<u64> = probes.into_iter().chain((0..320).map(|i| i << 20 | 7)).collect();
            let mut found = vec![0; keys.len()];
            table.reader().lookup_flat(&keys, &mut found);
            for (key, found) in keys.iter().zip(found) {
                prop_assert_eq!(found, map.get(&(key & mask)).copied().unwrap_or(MISS));
                prop_assert_eq!(table.get(*key), map.get(&(key & mask)).copied());
            }
        }
    }
}
