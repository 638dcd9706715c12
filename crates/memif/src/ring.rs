//! A ring in shared memory: a header with two free-running indices, and descriptors.
//!
//! | offset | field | written by |
//! | --- | --- | --- |
//! | 0 | cookie, u32 | client, once |
//! | 4 | flags, u16: bit 0 masks interrupts | consumer |
//! | 6 | head, u16 | client |
//! | 64 | tail, u16 | server |
//! | 128 | descriptors, 16 bytes each | client; length and flags of M2S also by the server |
//!
//! In direction S2M, `tail..head` holds packets for the server. In direction M2S, `tail..head` holds empty buffers for
//! the server to fill, and the slots before `tail` hold packets for the client.
//!
//! Invariants:
//! - A [`Ring`] lies wholly within its region and is aligned for 8-byte access, and indices are masked: its methods are
//!   in bounds for every argument.
//! - Each method reads shared memory once and returns a copy that the peer cannot change; the caller checks whether it
//!   makes sense.
//! - A descriptor is read and written as two 8-byte words. The peer may change it in between, so the words of a hostile
//!   peer need not match each other; each field is whole.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::memory::Memory;
use crate::message::{AddRing, MAX_LOG2_RING_SIZE};

/// Value of the first four bytes of a ring.
pub const COOKIE: u32 = 0x03E3_1F20;
/// Flag of a ring: the consumer masks interrupts.
pub const FLAG_MASK_INT: u16 = 1;
/// Flag of a descriptor: the packet continues in the next descriptor.
pub const FLAG_NEXT: u16 = 1;

/// The size of a descriptor.
pub const DESCRIPTOR_SIZE: usize = 16;
/// Offset of the descriptors.
pub const HEADER_SIZE: usize = 128;

const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;
/// Alignment of the widest access to a ring.
const ALIGNMENT: u32 = 8;

/// One buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// [`FLAG_NEXT`] or nothing.
    pub flags: u16,
    /// The region that the buffer lies in.
    pub region: u16,
    /// The number of bytes used; in an empty buffer for M2S, the size.
    pub length: u32,
    /// The buffer's offset in the region.
    pub offset: u32,
    /// Private to the peers; 0 unless they agree otherwise.
    pub metadata: u32,
}

impl Descriptor {
    /// Whether the packet continues in the next descriptor.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.flags & FLAG_NEXT != 0
    }

    #[inline]
    fn from_words(low: u64, high: u64) -> Descriptor {
        Descriptor {
            flags: low as u16,
            region: (low >> 16) as u16,
            length: (low >> 32) as u32,
            offset: high as u32,
            metadata: (high >> 32) as u32,
        }
    }

    #[inline]
    fn to_words(self) -> (u64, u64) {
        (
            u64::from(self.flags) | u64::from(self.region) << 16 | u64::from(self.length) << 32,
            u64::from(self.offset) | u64::from(self.metadata) << 32,
        )
    }
}

/// Reasons for refusing a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The size is out of range.
    #[error("size 2^{log2} is not within 2^1 and 2^{MAX_LOG2_RING_SIZE}")]
    Size {
        /// The announced power of two.
        log2: u8,
    },
    /// The ring's offset is not aligned.
    #[error("offset {offset} is not a multiple of {ALIGNMENT}")]
    Misaligned {
        /// The announced offset.
        offset: u32,
    },
    /// The region does not exist.
    #[error("region {region} does not exist")]
    NoRegion {
        /// The announced region.
        region: u16,
    },
    /// The ring does not fit in its region.
    #[error("{needed} bytes at offset {offset} do not fit in the region's {size}")]
    OutOfBounds {
        /// The announced offset.
        offset: u32,
        /// The size of the ring in bytes.
        needed: u32,
        /// The size of the region.
        size: u64,
    },
    /// The ring does not start with the cookie.
    #[error("cookie is {found:#x}, expected {COOKIE:#x}")]
    Cookie {
        /// The value found.
        found: u32,
    },
}

/// Returns the size in bytes of a ring of 2^`log2` descriptors.
pub const fn size_in_bytes(log2: u8) -> usize {
    HEADER_SIZE + (DESCRIPTOR_SIZE << log2)
}

/// A view of one ring, which keeps the ring's memory mapped.
#[derive(Debug, Clone)]
pub struct Ring {
    header: NonNull<u8>,
    mask: u16,
    memory: Arc<Memory>,
}

// SAFETY: the pointer refers to memory that the Arc keeps mapped, and every access through it is atomic.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Opens a ring that a client announced. Checks everything except the cookie; see [`Ring::check_cookie`].
    pub fn new(memory: Arc<Memory>, parameters: &AddRing) -> Result<Ring, RingError> {
        let header = locate(memory.regions(), parameters)?;
        let mask = ((1u32 << parameters.log2_ring_size) - 1) as u16;
        Ok(Ring { header, mask, memory })
    }

    /// Initialises a fresh ring: cookie set, indices and flags zero. The client calls this before it announces the
    /// ring.
    pub fn initialise(&self) {
        self.u16_at(FLAGS_AT).store(0, Ordering::Relaxed);
        self.u16_at(HEAD_AT).store(0, Ordering::Relaxed);
        self.u16_at(TAIL_AT).store(0, Ordering::Relaxed);
        self.cookie().store(COOKIE, Ordering::Release);
    }

    /// Checks that the client set the cookie.
    pub fn check_cookie(&self) -> Result<(), RingError> {
        match self.cookie().load(Ordering::Acquire) {
            COOKIE => Ok(()),
            found => Err(RingError::Cookie { found }),
        }
    }

    /// Returns the number of descriptors.
    #[inline]
    pub fn size(&self) -> u16 {
        self.mask + 1
    }

    /// Returns the index mask: the number of descriptors less one.
    #[inline]
    pub fn mask(&self) -> u16 {
        self.mask
    }

    /// Returns the memory of the ring and, usually, of its buffers.
    #[inline]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Reads the client's index, and thereby acquires the client's writes before it.
    #[inline]
    pub fn head(&self) -> u16 {
        self.u16_at(HEAD_AT).load(Ordering::Acquire)
    }

    /// Reads the server's index, and thereby acquires the server's writes before it.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.u16_at(TAIL_AT).load(Ordering::Acquire)
    }

    /// Publishes the client's index, and thereby all writes before it.
    #[inline]
    pub fn set_head(&self, head: u16) {
        self.u16_at(HEAD_AT).store(head, Ordering::Release);
    }

    /// Publishes the server's index, and thereby all writes before it.
    #[inline]
    pub fn set_tail(&self, tail: u16) {
        self.u16_at(TAIL_AT).store(tail, Ordering::Release);
    }

    /// Returns all flags.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.u16_at(FLAGS_AT).load(Ordering::Relaxed)
    }

    /// Whether the consumer masks interrupts.
    ///
    /// The producer publishes its index, executes a sequentially consistent fence, and then calls this. Without the
    /// fence it can miss that the consumer has just unmasked interrupts.
    #[inline]
    pub fn interrupts_masked(&self) -> bool {
        self.flags() & FLAG_MASK_INT != 0
    }

    /// Masks or unmasks interrupts. Only the consumer, which owns the flags, calls this.
    ///
    /// To sleep: unmask, execute a sequentially consistent fence, read the index again.
    #[inline]
    pub fn mask_interrupts(&self, mask: bool) {
        self.u16_at(FLAGS_AT).store(if mask { FLAG_MASK_INT } else { 0 }, Ordering::Relaxed);
    }

    /// Reads the descriptor at an index, which is masked, once.
    #[inline]
    pub fn desc(&self, index: u16) -> Descriptor {
        let (low, high) = self.words(index);
        Descriptor::from_words(low.load(Ordering::Relaxed), high.load(Ordering::Relaxed))
    }

    /// Writes the descriptor at an index, which is masked. The peer sees it once an index is published.
    #[inline]
    pub fn write_desc(&self, index: u16, descriptor: &Descriptor) {
        let (low, high) = self.words(index);
        let (low_value, high_value) = descriptor.to_words();
        low.store(low_value, Ordering::Relaxed);
        high.store(high_value, Ordering::Relaxed);
    }

    /// Sets the used length of the buffer at an index, which is masked, and whether the packet continues; region and
    /// offset remain as the peer wrote them. The peer sees the change once an index is published.
    #[inline]
    pub fn set_used(&self, index: u16, length: u32, next: bool) {
        let at = self.desc_ptr(index).cast_mut();
        // SAFETY: flags at 0 and length at 4 are within the descriptor, which is in bounds and aligned (see `words`).
        // All access in this process is atomic.
        let (flags, used) =
            unsafe { (AtomicU16::from_ptr(at.cast()), AtomicU32::from_ptr(at.add(4).cast())) };
        flags.store(if next { FLAG_NEXT } else { 0 }, Ordering::Relaxed);
        used.store(length, Ordering::Relaxed);
    }

    /// Returns the address of the descriptor at an index, which is masked, for prefetching.
    #[inline]
    pub fn desc_ptr(&self, index: u16) -> *const u8 {
        let offset = HEADER_SIZE + usize::from(index & self.mask) * DESCRIPTOR_SIZE;
        // SAFETY: `locate` checked that the header and mask + 1 descriptors lie within the mapping.
        unsafe { self.header.as_ptr().add(offset) }
    }

    /// Returns the address of the client's index, for prefetching.
    #[inline]
    pub fn head_ptr(&self) -> *const u8 {
        self.header.as_ptr().wrapping_add(HEAD_AT)
    }

    /// Returns the address of the server's index, for prefetching.
    #[inline]
    pub fn tail_ptr(&self) -> *const u8 {
        self.header.as_ptr().wrapping_add(TAIL_AT)
    }

    #[inline]
    fn words(&self, index: u16) -> (&AtomicU64, &AtomicU64) {
        let low = self.desc_ptr(index).cast::<u64>().cast_mut();
        // SAFETY: the descriptor's 16 bytes are in bounds (see `desc_ptr`), mapped for as long as `self` is borrowed,
        // and aligned to 8: regions are page-aligned, `locate` checked the ring's offset, and header and descriptors
        // are multiples of 8. All access in this process is atomic.
        unsafe { (AtomicU64::from_ptr(low), AtomicU64::from_ptr(low.add(1))) }
    }

    #[inline]
    fn u16_at(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: the offsets used are even and within the header, which `locate` found in bounds and aligned to 8.
        // All access in this process is atomic.
        unsafe { AtomicU16::from_ptr(self.header.as_ptr().add(offset).cast()) }
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: the cookie is the header's first field; see `u16_at`.
        unsafe { AtomicU32::from_ptr(self.header.as_ptr().cast()) }
    }
}

/// Returns the address of the ring that a client announced, after checking size, alignment and bounds.
pub(crate) fn locate(regions: &[clientmem::Region], parameters: &AddRing) -> Result<NonNull<u8>, RingError> {
    let AddRing { region, offset, log2_ring_size: log2, .. } = *parameters;
    if !(1..=MAX_LOG2_RING_SIZE).contains(&log2) {
        return Err(RingError::Size { log2 });
    }
    if !offset.is_multiple_of(ALIGNMENT) {
        return Err(RingError::Misaligned { offset });
    }
    let memory = regions.get(usize::from(region)).ok_or(RingError::NoRegion { region })?;
    let needed = size_in_bytes(log2) as u32;
    memory.at(u64::from(offset), u64::from(needed)).ok_or(RingError::OutOfBounds {
        offset,
        needed,
        size: memory.len(),
    })
}
