//! Where workers find the current picture of a bridge: one pointer, swapped by the control plane.

use crate::bridge::picture::BridgeState;
use crate::sync::{AtomicPtr, Ordering};

/// Where workers find the current picture of a bridge.
pub(crate) struct BridgeCell(AtomicPtr<BridgeState>);

impl BridgeCell {
    pub(crate) fn new(state: BridgeState) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(state))))
    }

    /// Publishes a picture. The returned old one may be dropped once all workers were quiescent.
    pub(crate) fn swap(&self, state: BridgeState) -> Box<BridgeState> {
        let old = self.0.swap(Box::into_raw(Box::new(state)), Ordering::AcqRel);
        // SAFETY: every pointer in the cell came from `Box::into_raw` and leaves it only here and in `drop`.
        unsafe { Box::from_raw(old) }
    }

    /// The current picture.
    ///
    /// # Safety
    /// The caller is a worker that is awake, and lets go of the reference before its next quiescent point; or it holds, for
    /// as long as the reference, the lock that whoever calls `swap` holds.
    pub(crate) unsafe fn get<'a>(&self) -> &'a BridgeState {
        // SAFETY: the pointer is valid until it was swapped out and all workers were quiescent after that.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}

impl Drop for BridgeCell {
    fn drop(&mut self) {
        let state = self.0.load(Ordering::Acquire);
        // SAFETY: as in `swap`; nobody has the cell any more.
        drop(unsafe { Box::from_raw(state) });
    }
}
