//! Records of entries by handle.
//!
//! The writer's [`Slab`] and all readers' [`Chunks`] share chunks, in which records lie one after the other: a handle
//! leads to a record without another place in memory, and an entry needs no allocation for its own. Invariants:
//! - a slot says that its record is there once the record is complete, and before its handle is linked into a structure;
//! - a handle is released, and its record dropped, only after no view is held that was published before the entry was
//!   unlinked ([`crate::engine`] sees to it); so a record that a reader finds stays as long as the reader's view is held;
//! - the records that are left when the last reader and the writer are gone are dropped with their chunk.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::view::Record;

/// Records of the first chunk. Each further chunk is twice as large as the one before: a table that grows begins few,
/// each of which takes a view of its own and a fork of the table's structure ([`super::writer`]).
const FIRST: usize = 512;

/// A place for a record, of two cache lines. One of zeros has none.
#[repr(C, align(64))]
struct Slot {
    record: UnsafeCell<MaybeUninit<Record>>,
    is_there: AtomicBool,
}

impl Slot {
    #[inline]
    fn get(&self) -> Option<&Record> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the record was complete before the slot said that it is there, and stays as long as the reader's view
        // is held, see the module. Until then, nobody writes to it but to its atomics.
        Some(unsafe { (*self.record.get()).assume_init_ref() })
    }

    /// Puts a record into a slot that has none.
    ///
    /// # Safety
    /// No other thread writes to the slot meanwhile.
    unsafe fn put(&self, record: Record) {
        // SAFETY: no other thread writes, as the caller says, and none reads before the slot says that a record is there.
        unsafe { (*self.record.get()).write(record) };
        self.is_there.store(true, Ordering::Release);
    }

    /// Drops the record; whether there was one.
    ///
    /// # Safety
    /// Nobody reads or writes the slot meanwhile, or has a reference to its record.
    unsafe fn clear(&self) -> bool {
        let was_there = self.is_there.swap(false, Ordering::AcqRel);
        if was_there {
            // SAFETY: the slot had a record, which nobody else uses, as the caller says, or will find again.
            unsafe { (*self.record.get()).assume_init_drop() };
        }
        was_there
    }
}

/// Memory of a slot, aligned as little as memory can be that the allocator takes from fresh pages of zeros: of a stricter
/// alignment, it would write the zeros itself, through all of a large chunk.
type Room = [u64; size_of::<Slot>() / size_of::<u64>()];

/// Slots one after the other.
struct Chunk {
    /// The memory, with room for one slot more than there are.
    room: *mut [MaybeUninit<Room>],
    slots: *const Slot,
    len: usize,
}

// SAFETY: a chunk owns its memory, slots say how threads share records, and records are made for that (`is_shared`).
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Record>();
};

impl Chunk {
    /// So many slots without records.
    fn new(len: usize) -> Self {
        let room = Box::into_raw(Box::<[Room]>::new_zeroed_slice(len + 1));
        let start = room.cast::<u8>();
        let slots = start.wrapping_add(start.align_offset(align_of::<Slot>())).cast();
        Self { room, slots, len }
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: the memory lasts as long as the chunk. It begins less than the size of a slot in front of the slots, as
        // that is a multiple of their alignment, and has room for one more: all of them lie in it. Its zeros are slots.
        unsafe { std::slice::from_raw_parts(self.slots, self.len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        for slot in self.slots() {
            // SAFETY: whoever drops the chunk is the last one who has it.
            unsafe { slot.clear() };
        }
        // SAFETY: `new` made it of a box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.room) });
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
pub(crate) struct Chunks(Vec<Arc<Chunk>>);

impl Chunks {
    #[inline]
    fn slot(&self, handle: u32) -> Option<&Slot> {
        let (chunk, slot) = place(handle);
        self.0.get(chunk)?.slots().get(slot)
    }

    /// Adds the next chunk.
    fn grow(&mut self) {
        self.0.push(Arc::new(Chunk::new(FIRST << self.0.len())));
    }

    /// Prefetches a record.
    pub(crate) fn prefetch(&self, handle: u32) {
        if let Some(slot) = self.slot(handle) {
            tables::prefetch(&slot.record);
            tables::prefetch(&slot.is_there);
        }
    }

    /// The record of a handle that a structure has led to. `None` for one that is newer than these chunks: the entry is
    /// not visible yet.
    #[inline]
    pub(crate) fn get(&self, handle: u32) -> Option<&Record> {
        self.slot(handle)?.get()
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
            // SAFETY: only the writer writes, and the handle has no record: it was never given, or has been released.
            unsafe { slot.put(record) };
        }
        (handle, grown)
    }

    /// Drops a record that no reader can reach any more; its handle may be given again.
    pub(crate) fn release(&mut self, handle: u32) {
        let Some(slot) = self.chunks.slot(handle) else { return };
        // SAFETY: only the writer writes, and no reader can reach the record, as the caller says.
        if unsafe { slot.clear() } {
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
