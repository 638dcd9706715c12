//! Where a thread leaves what it owns while it does something that a client can hold up.
//!
//! Whoever takes it from there has it: the thread itself when it is done, or, if that lasts too long, the
//! [watchdog](crate::worker::watchdog). Both take with one exchange, so that exactly one of them gets it (`loom_models`).

use std::ptr::null_mut;

use crate::sync::{AtomicPtr, Ordering};

/// A place for one thing. See the module.
pub(crate) struct Desk<T>(AtomicPtr<T>);

impl<T> Desk<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Leaves it here. Only the desk's own thread does, when it has taken back, or lost, what it left before.
    #[inline]
    pub(crate) fn leave(&self, thing: Box<T>) {
        #[cfg(not(loom))]
        self.0.store(Box::into_raw(thing), Ordering::Release);
        // The model checker lets an exchange of another thread read what was there before this store, and overwrite the store.
        #[cfg(loom)]
        self.0.swap(Box::into_raw(thing), Ordering::Release);
    }

    /// Takes what lies here.
    #[inline]
    pub(crate) fn take(&self) -> Option<Box<T>> {
        let thing = self.0.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: what is not null came from `Box::into_raw` in `leave`, and the exchange gives it to one caller only.
        (!thing.is_null()).then(|| unsafe { Box::from_raw(thing) })
    }

    /// Whether something lies here.
    pub(crate) fn is_occupied(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }
}

impl<T> Drop for Desk<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: a desk owns what lies on it and gives it to whichever thread takes it.
unsafe impl<T: Send> Send for Desk<T> {}
// SAFETY: as above; there is no access to what lies here but taking it.
unsafe impl<T: Send> Sync for Desk<T> {}
