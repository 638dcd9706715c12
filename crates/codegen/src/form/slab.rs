//! Records of entries by handle.
//!
//! The writer's [`Slab`] and all readers' [`Chunks`] share chunks, in which records lie one after the other: a handle
//! leads to a record without another place in memory, and a record needs no allocation of its own. Invariants:
//! - a slot says that its record is there once the record is complete, and before the handle is linked into a
//!   structure;
//! - a handle is released, and its record dropped, only after no view is held that was published before the entry was
//!   unlinked ([`crate::engine`] sees to it); so a record that a reader finds stays while the reader's view is held;
//! - the records that are left when the last reader and the writer are gone are dropped with their chunk.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::view::Record;

/// Records of the first chunk, of 8 KiB: most tables have few entries. Each further chunk is twice as large as the one
/// before: a table that grows begins few, each of which takes a view of its own and a fork of the table's structure
/// ([`super::writer`]).
const FIRST: usize = 64;

/// A place for a record, of two cache lines. All zeros: no record.
#[repr(C, align(64))]
struct Slot {
    record: UnsafeCell<MaybeUninit<Record>>,
    is_there: AtomicBool,
}

const _: () = assert!(size_of::<Slot>() == 128);

impl Slot {
    #[inline]
    fn get(&self) -> Option<&Record> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the record was complete before the slot said that it is there, and stays while the reader's view is
        // held, see the module. So long, only its atomics are written.
        Some(unsafe { (*self.record.get()).assume_init_ref() })
    }

    /// Puts a record into a slot that has none.
    ///
    /// # Safety
    /// The slot has no record, and no other thread writes to it meanwhile.
    unsafe fn put(&self, record: Record) {
        // SAFETY: nobody else writes, as the caller says, and nobody reads before the slot says that a record is there.
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

/// Memory of a slot, aligned to 8 bytes only: for a stricter alignment the allocator writes the zeros itself, through
/// all of a chunk, instead of taking fresh pages.
type Room = [u64; size_of::<Slot>() / size_of::<u64>()];

/// Slots one after the other.
struct Chunk {
    /// The memory, with room for one slot more than there are.
    room: *mut [MaybeUninit<Room>],
    slots: *const Slot,
    len: usize,
    /// Slots that have ever had a record: the first ones. The others' pages may never have been touched.
    used: AtomicUsize,
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
        let padding = start.addr().wrapping_neg() % align_of::<Slot>();
        Self { room, slots: start.wrapping_add(padding).cast(), len, used: AtomicUsize::new(0) }
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: the memory lasts as long as the chunk. It begins less than their alignment in front of the slots, and
        // has room for one more: all of them lie in it. Its zeros are slots.
        unsafe { std::slice::from_raw_parts(self.slots, self.len) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        for slot in self.slots().iter().take(self.used.load(Ordering::Relaxed)) {
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

    /// Says that a handle, and those before it, may have a record from now on.
    fn note_used(&self, handle: u32) {
        let (chunk, slot) = place(handle);
        self.0.get(chunk).into_iter().for_each(|chunk| chunk.used.store(slot + 1, Ordering::Relaxed));
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
        let (handle, is_new) = match self.free.pop() {
            Some(handle) => (handle, false),
            None => (self.next, true),
        };
        let grown = self.chunks.slot(handle).is_none();
        if grown {
            let mut chunks = (*self.chunks).clone();
            chunks.grow();
            self.chunks = Arc::new(chunks);
        }
        if is_new {
            self.next += 1;
            self.chunks.note_used(handle);
        }
        if let Some(slot) = self.chunks.slot(handle) {
            // SAFETY: only the writer writes, and the slot has no record: the handle is new, or has been released.
            unsafe { slot.put(record) };
        }
        (handle, grown)
    }

    /// Drops a record that no reader can reach any more; its handle may be given again. Only for a handle that no
    /// structure leads to, in no view that is held: the module's invariant.
    pub(crate) fn release(&mut self, handle: u32) {
        let Some(slot) = self.chunks.slot(handle) else { return };
        // SAFETY: only the writer writes, and by the module's invariant no reader can reach the record.
        if unsafe { slot.clear() } {
            self.free.push(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_dropped_when_released_and_with_their_chunks() {
        let stats = Arc::new(pipeline::state::EntryStats::default());
        let record = || Record {
            outcome: crate::view::Outcome::Member(7),
            shortcut: crate::shortcut::Shortcut::default(),
            stats: stats.clone(),
            id: pipeline::state::EntryId(7),
        };
        let mut slab = Slab::default();
        let handles: Vec<u32> = (0..1000).map(|_| slab.insert(record()).0).collect();
        let chunks = slab.chunks();
        assert_eq!(Arc::strong_count(&stats), 1 + 1000);
        assert!(handles.iter().all(|handle| chunks.get(*handle).is_some_and(|record| record.id.0 == 7)));
        let address = std::ptr::from_ref(chunks.get(999).unwrap()).addr();
        assert_eq!(address % 64, 0);
        handles.iter().take(900).for_each(|handle| slab.release(*handle));
        slab.release(0);
        assert_eq!(Arc::strong_count(&stats), 1 + 100);
        assert!(chunks.get(899).is_none() && chunks.get(900).is_some());
        // Handles are given again, the last one first.
        assert_eq!(slab.insert(record()), (899, false));
        drop(slab);
        assert_eq!(Arc::strong_count(&stats), 1 + 101);
        drop(chunks);
        assert_eq!(Arc::strong_count(&stats), 1);
    }

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
        assert_eq!(chunks.0.len(), 11, "of 64 records, then of twice as many each");
        assert!(chunks.slot(u32::MAX).is_none());
        assert_eq!(place(u32::MAX), (26, 63));
    }
}
