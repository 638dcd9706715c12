//! Slab: memory accessed through pointers only, such as that of the switch's own rings.
//!
//! A box does not suffice: using it as a whole, or merely moving it, asserts that no other pointer into it is used any
//! more.

use std::ptr::NonNull;

/// Zeroed memory, aligned to a cache line, that is only accessed through pointers. The kernel supplies pages on first
/// write.
#[derive(Debug)]
pub struct Slab {
    start: NonNull<u8>,
    len: usize,
    /// The allocation around it.
    blocks: NonNull<[Block]>,
}

// SAFETY: it is plain memory; its owner arranges which thread accesses which part of it.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

/// Unit of allocation: a vector of zeros is not written, unlike zeroed memory of a larger alignment.
type Block = u128;

/// Alignment: a short packet at the start of a buffer should take one cache line, not two.
const LINE: usize = 64;

impl Slab {
    /// A slab of `len` bytes.
    pub fn new(len: usize) -> Self {
        let blocks: Box<[Block]> = vec![0; (len + LINE).div_ceil(size_of::<Block>())].into();
        let blocks = NonNull::from(Box::leak(blocks));
        let first: NonNull<u8> = blocks.cast();
        // SAFETY: fewer bytes than a line, which the allocation has beyond `len`.
        let start = unsafe { first.add(first.align_offset(LINE)) };
        Self { start, len, blocks }
    }

    /// Address of `len` bytes from `offset` on, if the slab has them. Valid for as long as the slab exists.
    #[inline]
    pub fn get(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: the address is in the slab, or one past its end.
        (end <= self.len).then(|| unsafe { self.start.add(offset) })
    }

    /// Address of byte `offset`. Valid for as long as the slab exists.
    ///
    /// # Safety
    /// `offset` is at most the slab's length.
    #[inline(always)]
    pub unsafe fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.len);
        // SAFETY: by the caller's promise, the address is in the slab, or one past its end.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: this is the box that `new` leaked, and no pointer into it is left: all users own the slab.
        drop(unsafe { Box::from_raw(self.blocks.as_ptr()) });
    }
}
