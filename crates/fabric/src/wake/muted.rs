//! Clients whose signal holds a thread up. Other threads withhold signals to such a client until that thread is past
//! it, or it would hold them up too: the kernel spins on the eventfd's lock with interrupts disabled. Withheld signals
//! are sent later.
//!
//! Also shares the observation of slow signals among all threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::worker::activity::Signal;

/// Clients whose signals are withheld. See the module.
#[derive(Debug, Default)]
pub(crate) struct MutedClients {
    /// Whether there are such clients.
    any: AtomicBool,
    /// Until this time on the cycle counter, all threads measure their signals.
    measured_until: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that are held up, and by which client.
    held_up: Vec<(usize, u64)>,
    skipped: Vec<Signal>,
}

impl MutedClients {
    #[inline]
    pub(crate) fn measured_until(&self) -> u64 {
        self.measured_until.load(Relaxed)
    }

    pub(crate) fn measure_until(&self, time: u64) {
        self.measured_until.store(time, Relaxed);
    }

    /// Marks that `client` holds up this thread. Client number 0 (unknown) is ignored.
    pub(crate) fn mute(&self, thread: usize, client: u64) {
        let mut state = self.state();
        if client != 0 && !state.held_up.contains(&(thread, client)) {
            state.held_up.push((thread, client));
            self.any.store(true, Relaxed);
        }
    }

    /// Whether a receiver must not be signalled now; if so, it is recorded.
    #[inline]
    pub(crate) fn skips(&self, receiver: Signal) -> bool {
        self.any.load(Relaxed) && self.note(receiver)
    }

    #[cold]
    fn note(&self, receiver: Signal) -> bool {
        let mut state = self.state();
        let muted = state.held_up.iter().any(|(_, client)| *client == receiver.1);
        if muted && !state.skipped.contains(&receiver) {
            state.skipped.push(receiver);
        }
        muted
    }

    /// Marks that this thread is no longer held up. Returns the receivers that must now be signalled.
    pub(crate) fn unmute(&self, thread: usize) -> Vec<Signal> {
        if !self.any.load(Relaxed) {
            return Vec::new();
        }
        let mut state = self.state();
        let State { held_up, skipped } = &mut *state;
        held_up.retain(|(other, _)| *other != thread);
        self.any.store(!held_up.is_empty(), Relaxed);
        skipped.extract_if(.., |(_, skipped)| held_up.iter().all(|(_, client)| client != skipped)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_left_out_while_a_thread_is_held_up_by_their_client() {
        let muted = MutedClients::default();
        assert!(!muted.skips((3, 7)));
        muted.mute(0, 7);
        muted.mute(1, 7);
        muted.mute(2, 8);
        muted.mute(2, 8);
        muted.mute(4, 0);
        assert!(!muted.skips((6, 0)) && !muted.skips((5, 9)));
        for receiver in [(3, 7), (4, 7), (3, 7), (9, 8)] {
            assert!(muted.skips(receiver));
        }
        assert_eq!(muted.unmute(0), []);
        assert_eq!(muted.unmute(3), []);
        assert!(muted.skips((3, 7)));
        assert_eq!(muted.unmute(1), [(3, 7), (4, 7)]);
        assert!(!muted.skips((3, 7)));
        assert_eq!(muted.unmute(2), [(9, 8)]);
        assert_eq!(muted.unmute(2), []);
        assert!(!muted.any.load(Relaxed));
    }
}
