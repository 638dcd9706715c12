//! What logics' threads leave for the threads of bonds and spanning trees: received frames of these protocols, and a
//! call to look at links.
//!
//! Invariant: whoever leaves something waits for nothing but this queue's short lock, and a peer that sends too much
//! loses its own frames.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use bond::lacp::pdu::FRAME_LEN;

/// Frames that wait, at most: a member sends one a second, or a few when something changes.
const ROOM: usize = 1024;

/// A frame, as much of it as an LACPDU has; BPDUs are shorter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bridge: String,
    pub(crate) port: String,
    pub(crate) frame: Vec<u8>,
}

/// The queue. See the module.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: Mutex<VecDeque<Received>>,
    thread: OnceLock<Thread>,
}

impl Inbox {
    /// Sets the thread that is woken.
    pub(crate) fn set_thread(&self, thread: Thread) {
        // The first one stays.
        let _ = self.thread.set(thread);
    }

    /// Whether there is a thread.
    pub(crate) fn has_thread(&self) -> bool {
        self.thread.get().is_some()
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Leaves a frame. Without room it is lost, as on a link.
    pub(crate) fn leave(&self, bridge: &str, port: &str, frame: &[u8]) {
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() < ROOM {
            let frame = frame.get(..FRAME_LEN).unwrap_or(frame).to_vec();
            frames.push_back(Received { bridge: bridge.into(), port: port.into(), frame });
        }
        drop(frames);
        self.wake();
    }

    /// Takes all frames.
    pub(crate) fn take(&self) -> VecDeque<Received> {
        std::mem::take(&mut *self.frames.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_in_number_and_length() {
        let inbox = Inbox::default();
        (0..2 * ROOM).for_each(|_| inbox.leave("br0", "p1", &[1; 9000]));
        let taken = inbox.take();
        assert_eq!((taken.len(), taken[0].frame.len()), (ROOM, FRAME_LEN));
        inbox.leave("br0", "p1", &[1; 60]);
        assert_eq!(inbox.take(), [Received { bridge: "br0".into(), port: "p1".into(), frame: vec![1; 60] }]);
        assert!(inbox.take().is_empty() && !inbox.has_thread());
    }
}
