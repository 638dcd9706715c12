//! Slot in which a thread leaves what it owns while it does work that a client can hold up.
//!
//! The first to take it owns it: the thread itself when the work is done or, if that takes too long, the
//! [watchdog](crate::worker::watchdog). Both take with one exchange, so exactly one of them succeeds (`loom_models`).

use std::ptr::null_mut;

use crate::sync::{AtomicPtr, Ordering};

/// Slot for one value. See the module.
pub(crate) struct Handoff<T>(AtomicPtr<T>);

impl<T> Handoff<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Puts a value here. Called only by the slot's own thread, after it has taken back, or lost, the previous value.
    #[inline]
    pub(crate) fn put(&self, thing: Box<T>) {
        #[cfg(not(loom))]
        self.0.store(Box::into_raw(thing), Ordering::Release);
        // Without this, loom lets another thread's exchange read the value before this store and overwrite the store.
        #[cfg(loom)]
        self.0.swap(Box::into_raw(thing), Ordering::Release);
    }

    /// Takes the value.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        let thing = self.0.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: a pointer that is not null came from `Box::into_raw` in `put`, and the exchange gives it to one
        // caller only.
        (!thing.is_null()).then(|| unsafe { Box::from_raw(thing) })
    }

    /// Whether the slot holds a value.
    pub(crate) fn is_occupied(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for Handoff<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: the slot owns its value and gives it to the thread that takes it.
unsafe impl<T: Send> Send for Handoff<T> {}
// SAFETY: as above; taking is the only access to the value.
unsafe impl<T: Send> Sync for Handoff<T> {}
