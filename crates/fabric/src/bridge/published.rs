//! The pointer to a bridge's current state: read by workers, swapped by the control plane.

use crate::bridge::state::BridgeState;
use crate::sync::{AtomicPtr, Ordering};

/// Pointer to the current state of a bridge.
pub(crate) struct PublishedBridge(AtomicPtr<BridgeState>);

impl PublishedBridge {
    pub(crate) fn new(state: BridgeState) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(state))))
    }

    /// Publishes a state. The returned old one may be dropped once all workers have been quiescent.
    pub(crate) fn swap(&self, state: BridgeState) -> Box<BridgeState> {
        let old = self.0.swap(Box::into_raw(Box::new(state)), Ordering::AcqRel);
        // SAFETY: every pointer in here came from `Box::into_raw` and leaves only here and in `drop`.
        unsafe { Box::from_raw(old) }
    }

    /// The current state.
    ///
    /// # Safety
    /// The caller is a worker that is awake and drops the reference before its next quiescent point; or it holds, for
    /// as long as the reference, the lock under which `swap` is called.
    pub(crate) unsafe fn get<'a>(&self) -> &'a BridgeState {
        // SAFETY: the pointer is valid until it was swapped out and all workers were quiescent after that.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }
}

impl Drop for PublishedBridge {
    fn drop(&mut self) {
        let state = self.0.load(Ordering::Acquire);
        // SAFETY: as in `swap`; no user is left.
        drop(unsafe { Box::from_raw(state) });
    }
}
