//! Slab: memory that is reached through pointers only, such as that of the switch's own rings.
//!
//! A box would not do: using it as a whole, or only moving it, says that no other pointer into it is used any more.

use std::ptr::NonNull;

/// Zeroed memory, aligned to 16 bytes, that is only accessed through pointers. The kernel gives pages as they are first
/// written.
#[derive(Debug)]
pub struct Slab {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory, and who may access which part of it when is for its owner to decide.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

/// What it is allocated as: for the alignment, and because a vector of zeros is not written.
type Block = u128;

impl Slab {
    /// A slab of `len` bytes.
    pub fn new(len: usize) -> Self {
        let blocks: Box<[Block]> = vec![0; len.div_ceil(size_of::<Block>())].into();
        Self { start: NonNull::from(Box::leak(blocks)).cast(), len }
    }

    /// Where `len` bytes from `offset` on are, if the slab has them. The address is valid for as long as the slab is there.
    #[inline]
    pub fn get(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: the address is in the slab, or just behind it.
        (end <= self.len).then(|| unsafe { self.start.add(offset) })
    }

    /// Where byte `offset` is. The address is valid for as long as the slab is there.
    ///
    /// # Safety
    /// `offset` is at most the slab's length.
    #[inline(always)]
    pub unsafe fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.len);
        // SAFETY: by the caller's promise the address is in the slab, or just behind it.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let blocks = self.len.div_ceil(size_of::<Block>());
        let slice = NonNull::slice_from_raw_parts(self.start.cast::<Block>(), blocks);
        // SAFETY: it is the box that `new` leaked, and nobody has a pointer into it: all users have the slab.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
    }
}
