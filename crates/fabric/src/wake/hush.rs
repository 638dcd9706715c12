//! Clients whose signal holds a thread up. No other thread signals them until that one is past it, or it would be held up too: the
//! kernel looks busily for the eventfd's lock, with the CPU's interrupts disabled. Signals that were left out are made up for.
//!
//! Beside that, what all threads know of slow signals.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::worker::site::Signal;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hush {
    /// Whether there are such clients.
    any: AtomicBool,
    /// Until then, on the cycle counter, all threads measure their signals.
    measured_until: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The threads that are held up, and by which client.
    held_up: Vec<(usize, u64)>,
    left_out: Vec<Signal>,
}

impl Hush {
    #[inline]
    pub(crate) fn measured_until(&self) -> u64 {
        self.measured_until.load(Relaxed)
    }

    pub(crate) fn measure_until(&self, time: u64) {
        self.measured_until.store(time, Relaxed);
    }

    /// `client` holds up this thread. Clients without a number are nobody.
    pub(crate) fn begin(&self, thread: usize, client: u64) {
        let mut state = self.state();
        if client != 0 && !state.held_up.contains(&(thread, client)) {
            state.held_up.push((thread, client));
            self.any.store(true, Relaxed);
        }
    }

    /// Whether a receiver is not to be signalled now, which is noted.
    #[inline]
    pub(crate) fn leaves_out(&self, receiver: Signal) -> bool {
        self.any.load(Relaxed) && self.note(receiver)
    }

    #[cold]
    fn note(&self, receiver: Signal) -> bool {
        let mut state = self.state();
        let hushed = state.held_up.iter().any(|(_, client)| *client == receiver.1);
        if hushed && !state.left_out.contains(&receiver) {
            state.left_out.push(receiver);
        }
        hushed
    }

    /// This thread is not held up any more. Returns the receivers that may be signalled again, and have to be.
    pub(crate) fn end(&self, thread: usize) -> Vec<Signal> {
        if !self.any.load(Relaxed) {
            return Vec::new();
        }
        let mut state = self.state();
        let State { held_up, left_out } = &mut *state;
        held_up.retain(|(other, _)| *other != thread);
        self.any.store(!held_up.is_empty(), Relaxed);
        left_out
            .extract_if(.., |(_, left_out)| held_up.iter().all(|(_, client)| client != left_out))
            .collect()
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
        let hush = Hush::default();
        assert!(!hush.leaves_out((3, 7)));
        hush.begin(0, 7);
        hush.begin(1, 7);
        hush.begin(2, 8);
        hush.begin(2, 8);
        hush.begin(4, 0);
        assert!(!hush.leaves_out((6, 0)) && !hush.leaves_out((5, 9)));
        for receiver in [(3, 7), (4, 7), (3, 7), (9, 8)] {
            assert!(hush.leaves_out(receiver));
        }
        assert_eq!(hush.end(0), []);
        assert_eq!(hush.end(3), []);
        assert!(hush.leaves_out((3, 7)));
        assert_eq!(hush.end(1), [(3, 7), (4, 7)]);
        assert!(!hush.leaves_out((3, 7)));
        assert_eq!(hush.end(2), [(9, 8)]);
        assert_eq!(hush.end(2), []);
        assert!(!hush.any.load(Relaxed));
    }
}
