//! Slab: memory of a ring of the switch's own, which several threads fill at different places.

use std::ptr::NonNull;

/// Zeroed memory that is only accessed through pointers. The kernel gives pages as they are first written.
#[derive(Debug)]
pub struct Slab {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory, and who may access which part of it when is for its owner to decide.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// A slab of `len` bytes.
    pub fn new(len: usize) -> Self {
        let start = NonNull::from(Box::leak(vec![0u8; len].into_boxed_slice())).cast();
        Self { start, len }
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
        let slice = NonNull::slice_from_raw_parts(self.start, self.len);
        // SAFETY: it is the box that `new` leaked, and nobody has a pointer into it: all users have the slab.
        drop(unsafe { Box::from_raw(slice.as_ptr()) });
    }
}
