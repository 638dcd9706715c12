//! Records of entries by handle.
//!
//! The writer's [`Slab`] and all readers' [`Chunks`] share chunks of addresses. Invariants:
//! - a record's address is stored before its handle is linked into a structure;
//! - a handle is released, and its record freed, only after no view is held that was published before the entry was
//!   unlinked ([`crate::engine`] sees to it); so an address that a reader loads is that of a live record;
//! - what is left when the last reader and the writer are gone is freed with its chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::view::Record;

/// Records of the first chunk. Each further chunk is twice as large as the one before: a table that grows begins few,
/// each of which takes a view of its own and a fork of the table's structure ([`super::writer`]).
const FIRST: usize = 512;

/// The address of a record, or null.
#[derive(Default)]
struct Slot(AtomicPtr<Record>);

impl Drop for Slot {
    fn drop(&mut self) {
        let record = *self.0.get_mut();
        if !record.is_null() {
            // SAFETY: `insert` made it of a box, and whoever frees a record clears its slot.
            drop(unsafe { Box::from_raw(record) });
        }
    }
}

/// The chunk of a handle, and the slot's place there.
#[inline]
fn place(handle: u32) -> (usize, usize) {
    let at = handle as usize + FIRST;
    // `| 1` changes nothing, but shows the compiler a number above 0: `ilog2` has no panic then.
    let chunk = ((at / FIRST) | 1).ilog2();
    (chunk as usize, at - (FIRST << chunk))
}

/// Chunks that exist at one time.
#[derive(Default, Clone)]
pub(crate) struct Chunks(Vec<Arc<[Slot]>>);

impl Chunks {
    #[inline]
    fn slot(&self, handle: u32) -> Option<&AtomicPtr<Record>> {
        let (chunk, slot) = place(handle);
        self.0.get(chunk)?.get(slot).map(|Slot(address)| address)
    }

    /// Adds the next chunk.
    fn grow(&mut self) {
        let slots = FIRST << self.0.len();
        self.0.push((0..slots).map(|_| Slot::default()).collect());
    }

    /// Prefetches the address of a record.
    pub(crate) fn prefetch_slot(&self, handle: u32) {
        self.slot(handle).into_iter().for_each(tables::prefetch);
    }

    /// The record of a handle that a structure has led to. `None` for one that is newer than these chunks: the entry is
    /// not visible yet.
    pub(crate) fn get(&self, handle: u32) -> Option<&Record> {
        let record = self.slot(handle)?.load(Ordering::Acquire);
        // SAFETY: null, or a live record as long as the reader's view is held, see the module.
        unsafe { record.as_ref() }
    }
}

/// The writer's side.
#[derive(Default)]
pub(crate) struct Slab {
    chunks: Arc<Chunks>,
    free: Vec<u32>,
    /// Handles ever given.
    next: u32,
}

impl Slab {
    /// What readers need.
    pub(crate) fn chunks(&self) -> Arc<Chunks> {
        self.chunks.clone()
    }

    /// Stores a record; returns its handle, and whether that is in a new chunk, which only later readers have.
    pub(crate) fn insert(&mut self, record: Record) -> (u32, bool) {
        let handle = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let grown = self.chunks.slot(handle).is_none();
        if grown {
            let mut chunks = (*self.chunks).clone();
            chunks.grow();
            self.chunks = Arc::new(chunks);
        }
        if let Some(slot) = self.chunks.slot(handle) {
            slot.store(Box::into_raw(Box::new(record)), Ordering::Release);
        }
        (handle, grown)
    }

    /// Frees a record that no reader can reach any more; its handle may be given again.
    pub(crate) fn release(&mut self, handle: u32) {
        let Some(slot) = self.chunks.slot(handle) else { return };
        let record = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !record.is_null() {
            // SAFETY: made of a box by `insert`; the caller says that nothing refers to it, and the slot is clear now.
            drop(unsafe { Box::from_raw(record) });
            self.free.push(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_fill_one_chunk_after_the_other() {
        let mut chunks = Chunks::default();
        let mut expected = (0, 0);
        for handle in 0..100_000 {
            if chunks.slot(handle).is_none() {
                chunks.grow();
            }
            assert!(chunks.slot(handle).is_some());
            assert_eq!(place(handle), expected);
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunks.0.len(), 8, "of 512 records, then of twice as many each");
        assert!(chunks.slot(u32::MAX).is_none());
        assert_eq!(place(u32::MAX), (23, 511));
    }
}
