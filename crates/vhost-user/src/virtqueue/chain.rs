//! One buffer of a virtqueue: a chain of descriptors, checked and translated.
//!
//! Invariants:
//! - Every segment lies wholly within one region of the memory that translated it, and has at least one byte.
//! - Readable segments precede writable ones; together they are at most [`MAX_CHAIN`].

use std::ptr::NonNull;

use super::QueueError;
use crate::memory::GuestMemory;

/// Maximum number of segments and of descriptors of a chain: 64 pieces of a packet, its header, and one split at a
/// region's end.
pub const MAX_CHAIN: usize = 66;

/// Contiguous bytes of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Address of the first byte.
    pub at: NonNull<u8>,
    /// Number of bytes; never 0.
    pub len: u32,
}

// SAFETY: an address and a length, which belong to no thread; each access needs its own safety argument.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// One buffer that the driver made available. It is reused for many buffers without allocation.
#[derive(Debug, Clone)]
pub struct Chain {
    id: u16,
    slots: u16,
    readable: u16,
    count: u16,
    readable_bytes: u32,
    writable_bytes: u32,
    segments: [Segment; MAX_CHAIN],
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new()
    }
}

impl Chain {
    /// Makes an empty chain, to be filled by [`take`](super::Virtqueue::take).
    pub const fn new() -> Chain {
        Chain {
            id: 0,
            slots: 0,
            readable: 0,
            count: 0,
            readable_bytes: 0,
            writable_bytes: 0,
            segments: [Segment { at: NonNull::dangling(), len: 0 }; MAX_CHAIN],
        }
    }

    /// Returns the driver's id of the chain, for [`give_back`](super::Virtqueue::give_back).
    #[inline]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Returns the number of ring slots that the chain takes, for [`give_back`](super::Virtqueue::give_back).
    #[inline]
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Returns the segments that the device may read, in order.
    #[inline]
    pub fn readable(&self) -> &[Segment] {
        self.segments.get(..usize::from(self.readable)).unwrap_or_default()
    }

    /// Returns the segments that the device may write, in order.
    #[inline]
    pub fn writable(&self) -> &[Segment] {
        self.segments.get(usize::from(self.readable)..usize::from(self.count)).unwrap_or_default()
    }

    /// Returns the number of bytes that the device may read.
    #[inline]
    pub fn readable_bytes(&self) -> u32 {
        self.readable_bytes
    }

    /// Returns the number of bytes that the device may write.
    #[inline]
    pub fn writable_bytes(&self) -> u32 {
        self.writable_bytes
    }

    /// Clears the chain for reuse.
    #[inline]
    pub(super) fn begin(&mut self, id: u16, slots: u16) {
        self.id = id;
        self.slots = slots;
        self.readable = 0;
        self.count = 0;
        self.readable_bytes = 0;
        self.writable_bytes = 0;
    }

    /// Sets the id and the number of slots, known at the chain's last descriptor.
    #[inline]
    pub(super) fn finish(&mut self, id: u16, slots: u16) {
        self.id = id;
        self.slots = slots;
    }

    /// Appends the segments of one descriptor; one of length 0 has none.
    #[inline]
    pub(super) fn push(
        &mut self,
        memory: &GuestMemory,
        hint: &mut usize,
        address: u64,
        len: u32,
        writable: bool,
    ) -> Result<(), QueueError> {
        if len != 0
            && let Some(at) = memory.guest_near(hint, address, len.into())
        {
            return self.append(Segment { at, len }, writable);
        }
        self.push_pieces(memory, address, len, writable)
    }

    /// Appends, as [`push`](Chain::push) does, bytes that do not lie in one region.
    #[cold]
    fn push_pieces(
        &mut self,
        memory: &GuestMemory,
        address: u64,
        len: u32,
        writable: bool,
    ) -> Result<(), QueueError> {
        let outside = QueueError::OutsideMemory { address, len: len.into() };
        let (mut from, mut left) = (address, len);
        while left > 0 {
            let (at, found) = memory.guest_prefix(from, left.into()).ok_or(outside)?;
            // At most `left`, and at least 1: an empty prefix is refused below.
            let found = found as u32;
            self.append(Segment { at, len: found }, writable)?;
            left -= found;
            from = from.checked_add(found.into()).filter(|_| found > 0).ok_or(outside)?;
        }
        Ok(())
    }

    #[inline]
    fn append(&mut self, segment: Segment, writable: bool) -> Result<(), QueueError> {
        let count = usize::from(self.count);
        let slot = self.segments.get_mut(count).ok_or(QueueError::ChainTooLong)?;
        let bytes = if writable {
            &mut self.writable_bytes
        } else if self.readable == self.count {
            self.readable += 1;
            &mut self.readable_bytes
        } else {
            return Err(QueueError::ReadableAfterWritable);
        };
        *bytes = bytes.checked_add(segment.len).ok_or(QueueError::ChainTooLarge)?;
        *slot = segment;
        self.count += 1;
        Ok(())
    }
}
