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

const CHUNK: usize = 512;

struct Chunk([AtomicPtr<Record>; CHUNK]);

impl Chunk {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())))
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        for slot in &mut self.0 {
            let record = std::mem::replace(slot.get_mut(), std::ptr::null_mut());
            if !record.is_null() {
                // SAFETY: `insert` made it of a box, and whoever frees a record clears its slot.
                drop(unsafe { Box::from_raw(record) });
            }
        }
    }
}

/// Chunks that exist at one time.
#[derive(Default, Clone)]
pub(crate) struct Chunks(Vec<Arc<Chunk>>);

impl Chunks {
    fn slot(&self, handle: u32) -> Option<&AtomicPtr<Record>> {
        let handle = handle as usize;
        self.0.get(handle / CHUNK)?.0.get(handle % CHUNK)
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
            chunks.0.push(Arc::new(Chunk::new()));
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
