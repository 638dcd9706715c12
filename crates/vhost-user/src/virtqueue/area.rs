//! Access to a part of a virtqueue: fields by offset, each with one atomic load or store.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::layout::DESCRIPTOR;

/// The start of memory that the other side can write at any time.
///
/// The constructor is unsafe: its caller guarantees that all later accesses are in bounds and aligned, so the methods'
/// safety arguments are short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    start: NonNull<u8>,
}

// SAFETY: the address of shared memory, which belongs to no thread; all access is atomic.
unsafe impl Send for Area {}

/// A descriptor as laid out in memory, in either format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawDescriptor {
    /// The guest address.
    pub(crate) address: u64,
    /// Length in the low 32 bits, then two fields of 16 bits.
    pub(crate) rest: u64,
}

impl RawDescriptor {
    #[inline]
    pub(crate) fn len(self) -> u32 {
        self.rest as u32
    }

    /// Bits 32 to 47: the flags in a split, the buffer id in a packed virtqueue.
    #[inline]
    pub(crate) fn third(self) -> u16 {
        (self.rest >> 32) as u16
    }

    /// Bits 48 to 63: the next descriptor in a split, the flags in a packed virtqueue.
    #[inline]
    pub(crate) fn fourth(self) -> u16 {
        (self.rest >> 48) as u16
    }

    #[inline]
    pub(crate) fn new(address: u64, len: u32, third: u16, fourth: u16) -> RawDescriptor {
        let rest = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
        RawDescriptor { address, rest }
    }
}

impl Area {
    /// # Safety
    ///
    /// `start` is mapped readable and writable for as long as the result or a copy of it is used, and so are all
    /// offsets passed to its methods, aligned for the access. All access in this process is atomic.
    #[inline]
    pub(crate) unsafe fn new(start: NonNull<u8>) -> Area {
        Area { start }
    }

    /// Returns the address at an offset, for prefetching and logs.
    #[inline]
    pub(crate) fn at(self, offset: usize) -> NonNull<u8> {
        // SAFETY: in bounds, guaranteed by the caller of `new`.
        unsafe { self.start.add(offset) }
    }

    #[inline]
    pub(crate) fn u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: in bounds, aligned and accessed by atomics only, guaranteed by the caller of `new`.
        unsafe { AtomicU16::from_ptr(self.at(offset).as_ptr().cast()) }
    }

    #[inline]
    pub(crate) fn u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.at(offset).as_ptr().cast()) }
    }

    #[inline]
    pub(crate) fn u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(offset).as_ptr().cast()) }
    }

    /// Reads a descriptor: first, with `order`, the word with the flags, then the address.
    #[inline]
    pub(crate) fn descriptor(&self, slot: u16, order: Ordering) -> RawDescriptor {
        let offset = usize::from(slot) * DESCRIPTOR;
        let rest = self.u64(offset + 8).load(order);
        RawDescriptor { address: self.u64(offset).load(Ordering::Relaxed), rest }
    }

    /// Prefetches a cache line for reading.
    #[inline]
    pub(crate) fn fetch_to_read(&self, offset: usize) {
        let _at = self.at(offset);
        // SAFETY: a prefetch is a hint and does not fault, whatever the address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(_at.as_ptr().cast());
        }
    }

    /// Prefetches a cache line for writing; the other side used it last.
    #[inline]
    pub(crate) fn fetch_to_write(&self, offset: usize) {
        let _at = self.at(offset).as_ptr();
        // SAFETY: a prefetch is a hint and does not fault, whatever the address. CPUs without it execute a `nop`.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) _at, options(nostack, preserves_flags, readonly));
        }
    }
}
