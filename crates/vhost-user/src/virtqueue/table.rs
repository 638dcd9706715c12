//! Indirect tables: descriptors that lie anywhere in guest memory.
//!
//! A table needs no alignment, and may cross from one region into another.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::QueueError;
use super::area::{Area, RawDescriptor};
use super::layout::DESCRIPTOR;
use crate::memory::GuestMemory;

/// A table that a descriptor refers to.
pub(super) struct Table<'m> {
    memory: &'m GuestMemory,
    address: u64,
    /// The address of the table, if it lies in one region.
    start: Option<NonNull<u8>>,
    entries: u32,
}

impl<'m> Table<'m> {
    /// Checks the length and bounds of a table, without reading it.
    #[inline]
    pub(super) fn new(
        memory: &'m GuestMemory,
        hint: &mut usize,
        address: u64,
        len: u32,
    ) -> Result<Table<'m>, QueueError> {
        if len == 0 || !len.is_multiple_of(DESCRIPTOR as u32) {
            return Err(QueueError::IndirectLength { len });
        }
        if address.checked_add(len.into()).is_none() {
            return Err(QueueError::OutsideMemory { address, len: len.into() });
        }
        let start = memory.guest_near(hint, address, len.into());
        Ok(Table { memory, address, start, entries: len / DESCRIPTOR as u32 })
    }

    /// Returns the number of descriptors; at least 1.
    #[inline]
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Reads one descriptor, once. `index` is below [`entries`](Table::entries).
    #[inline]
    pub(super) fn read(&self, index: u32) -> Result<RawDescriptor, QueueError> {
        // At most 28 bits of index: a table has less than 2^32 bytes.
        let offset = u64::from(index.min(self.entries - 1)) * DESCRIPTOR as u64;
        if let Some(start) = self.start
            && start.addr().get().is_multiple_of(align_of::<u64>())
        {
            // SAFETY: `memory` keeps the table's bytes mapped for as long as it is borrowed, and faults are caught. The
            // descriptor is within them, and aligned like the start. All access is atomic.
            let descriptor = unsafe { Area::new(start.add(offset as usize)) };
            return Ok(descriptor.descriptor(0, Ordering::Relaxed));
        }
        self.read_bytes(self.address + offset)
    }

    /// Reads a descriptor that is not aligned or not in one region.
    #[cold]
    fn read_bytes(&self, address: u64) -> Result<RawDescriptor, QueueError> {
        let mut words = [0u64; 2];
        for at in 0..DESCRIPTOR as u64 {
            let byte = self.memory.guest(address + at, 1);
            let byte = byte.ok_or(QueueError::OutsideMemory { address, len: DESCRIPTOR as u64 })?;
            // SAFETY: `memory` keeps the byte mapped for as long as it is borrowed, and faults are caught. Volatile:
            // read once.
            let byte = unsafe { byte.as_ptr().read_volatile() };
            let [low, high] = &mut words;
            let (word, shift) = if at < 8 { (low, at * 8) } else { (high, at * 8 - 64) };
            *word |= u64::from(byte) << shift;
        }
        let [address, rest] = words;
        Ok(RawDescriptor { address, rest })
    }
}
