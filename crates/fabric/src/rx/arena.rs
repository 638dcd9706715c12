//! Memory for the private headers of a batch: the batch's own, or that of a logic that wants to read them in place.
//!
//! A logic from outside (a WebAssembly module) can only access its own memory. It [supplies](crate::SwitchLogic::arena)
//! one [`Arena`] for each worker, and headers are copied there from the start, so that the logic needs no further copy.
//!
//! Invariant: the memory always holds [`SLOTS`] slots of [`SLOT_LEN`] bytes. From when a batch's headers are loaded
//! until the batch is emptied, only that batch uses it, and its logic while that is called.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::rx::{HEADROOM, PULL_MAX, VERSIONS};

/// Slots of an arena: one for each header version of a batch.
pub const SLOTS: usize = VERSIONS;
/// Bytes of a slot.
pub const SLOT_LEN: usize = HEADROOM + PULL_MAX;
/// Bytes of an arena.
pub const ARENA_LEN: usize = SLOTS * SLOT_LEN;

/// Room for one private header, with headroom in front of it.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct HeaderSlot(pub(crate) [u8; SLOT_LEN]);

/// Memory for the private headers of one batch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arena(NonNull<u8>);

// SAFETY: it is an address; the contract of `new` limits its use.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of the [`ARENA_LEN`] bytes at `at`, which is a multiple of 64.
    ///
    /// # Safety
    /// They stay readable and writable for as long as a bridge has the logic that supplies them, or until the logic is
    /// prepared for another worker with the number of this one, which was [removed]. Only this worker reads or writes
    /// them, and that logic while it is called with a batch of this worker.
    ///
    /// [removed]: crate::SwitchLogic::worker_removed
    pub unsafe fn new(at: NonNull<u8>) -> Self {
        debug_assert!(at.as_ptr().addr().is_multiple_of(align_of::<HeaderSlot>()));
        Self(at)
    }

    /// Its address.
    pub fn at(self) -> NonNull<u8> {
        self.0
    }
}

/// The slots of a batch.
pub(crate) struct Slots {
    own: NonNull<HeaderSlot>,
    at: NonNull<HeaderSlot>,
}

// SAFETY: `own` is an unshared box; `at` is the same or an arena, which belongs to the batch meanwhile.
unsafe impl Send for Slots {}

impl Default for Slots {
    fn default() -> Self {
        let own: Box<[HeaderSlot]> = vec![HeaderSlot([0; SLOT_LEN]); SLOTS].into();
        let own = NonNull::from(Box::leak(own)).cast();
        Self { own, at: own }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let slots = std::ptr::slice_from_raw_parts_mut(self.own.as_ptr(), SLOTS);
        // SAFETY: this is the box that `default` leaked, and no reference to it is left.
        drop(unsafe { Box::from_raw(slots) });
    }
}

impl Slots {
    #[inline(always)]
    pub(crate) fn lend(&mut self, arena: Arena) {
        self.at = arena.0.cast();
    }

    #[inline(always)]
    pub(crate) fn take_back(&mut self) {
        self.at = self.own;
    }

    /// The arena that holds the headers, if there is one.
    pub(crate) fn lent(&self) -> Option<Arena> {
        (self.at != self.own).then_some(Arena(self.at.cast()))
    }

    /// Bytes `start..start + len` of slot `v`.
    ///
    /// # Safety
    /// `v` is below [`SLOTS`], and `start + len` at most [`SLOT_LEN`].
    #[inline(always)]
    pub(crate) unsafe fn bytes(&self, v: usize, start: usize, len: usize) -> &[u8] {
        debug_assert!(v < SLOTS && start + len <= SLOT_LEN);
        // SAFETY: the bytes lie within the slot, by the caller's promise; `at` points to `SLOTS` slots of initialised
        // bytes, used through `self` only (see the module).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(v).cast::<u8>().add(start), len) }
    }

    /// Whether headers lie in this arena.
    #[inline]
    pub(crate) fn are_in(&self, arena: Arena) -> bool {
        self.at == arena.0.cast()
    }
}

impl Deref for Slots {
    type Target = [HeaderSlot];

    #[inline(always)]
    fn deref(&self) -> &[HeaderSlot] {
        // SAFETY: `at` points to `SLOTS` slots of initialised bytes, only used through `self` (see the module).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), SLOTS) }
    }
}

impl DerefMut for Slots {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [HeaderSlot] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), SLOTS) }
    }
}
