//! What logics' threads leave for the threads of bonds and spanning trees: received frames of these protocols, and a
//! call to look at links.
//!
//! Invariant: whoever leaves something waits for nothing but this queue's short lock, and a peer that sends too much
//! loses its own frames: of each port only a few wait.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use bond::lacp::pdu::FRAME_LEN;

/// Frames that wait, at most.
const ROOM: usize = 1024;
/// Frames of a port that wait, at most: a neighbour sends one a second, or a few when something changes.
const ROOM_OF_PORT: usize = 32;

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
    /// Starts the thread that is woken, unless there is one; that one is woken. `subject`: what it looks after.
    pub(crate) fn start(&self, subject: &str, run: impl FnOnce() + Send + 'static) {
        if self.thread.get().is_some() {
            return self.wake();
        }
        match std::thread::Builder::new().name(subject.into()).spawn(run) {
            // The first one stays.
            Ok(thread) => _ = self.thread.set(thread.thread().clone()),
            Err(error) => tracing::error!("{subject} are not looked after: {error}"),
        }
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
        let of_port = frames.iter().filter(|it| it.port == port && it.bridge == bridge).count();
        if frames.len() < ROOM && of_port < ROOM_OF_PORT {
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
        (0..2 * ROOM).for_each(|i| inbox.leave("br0", &format!("p{i}"), &[1; 9000]));
        let taken = inbox.take();
        assert_eq!((taken.len(), taken[0].frame.len()), (ROOM, FRAME_LEN));
        (0..2 * ROOM).for_each(|_| inbox.leave("br0", "p1", &[1; 60]));
        inbox.leave("br1", "p1", &[2; 60]);
        let taken = inbox.take();
        assert_eq!(taken.len(), ROOM_OF_PORT + 1, "another port still finds room");
        inbox.leave("br0", "p1", &[1; 60]);
        assert_eq!(inbox.take(), [Received { bridge: "br0".into(), port: "p1".into(), frame: vec![1; 60] }]);
        assert!(inbox.take().is_empty());
    }
}
