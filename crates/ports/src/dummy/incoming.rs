//! Frames on their way into the switch, and the worker's receive queue with them.
//!
//! Invariant: a frame is dropped after the batch with it has been delivered, which wakes the thread that waits for it.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use fabric::doorbell::{Doorbell, EventBell};
use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::offload::Offload;

use super::DummyError;
use super::capture::{self, Capture};
use super::traffic::Arrival;

/// Frames that wait at most, as in Open vSwitch.
const QUEUE: usize = 100;

/// Time for workers to take frames.
const LIMIT: Duration = Duration::from_secs(5);

/// A frame, and the channel that closes when it has been delivered.
struct Frame {
    bytes: Vec<u8>,
    _delivered: Sender<Infallible>,
    _arrival: Option<Arrival>,
}

/// Frames that wait for the worker.
pub(super) struct Incoming {
    frames: ArrayQueue<Frame>,
    bell: Doorbell<EventBell>,
    capture: Mutex<Option<Capture>>,
}

impl Incoming {
    pub(super) fn new() -> std::io::Result<Self> {
        let bell = Doorbell::new(EventBell::new()?);
        Ok(Self { frames: ArrayQueue::new(QUEUE), bell, capture: Mutex::default() })
    }

    /// Captures frames from now on.
    pub(super) fn set_capture(&self, capture: Option<Capture>) {
        *self.capture.lock().unwrap_or_else(PoisonError::into_inner) = capture;
    }

    /// Puts frames in, and waits until they have been delivered. The queue may be shorter than their number.
    pub(super) fn receive_all(&self, frames: Vec<Vec<u8>>) -> Result<(), DummyError> {
        let mut frames = frames.into_iter().peekable();
        while frames.peek().is_some() {
            let last = frames.by_ref().take(QUEUE / 2).map(|frame| self.push(frame, None)).last();
            if let Some(delivered) = last
                && delivered.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout)
            {
                return Err(DummyError::Stuck(LIMIT));
            }
        }
        Ok(())
    }

    /// Puts a frame in, with its arrival if it came from another port. The channel closes when it has been delivered,
    /// or dropped because the queue is full.
    pub(super) fn push(&self, bytes: Vec<u8>, arrival: Option<Arrival>) -> Receiver<Infallible> {
        let (delivered, wait) = channel();
        if let Some(file) = &mut *self.capture.lock().unwrap_or_else(PoisonError::into_inner)
            && let Err(error) = capture::write(file, &bytes)
        {
            tracing::warn!(%error, "a frame is missing in a capture file");
        }
        // A full queue drops frames, as a network card does.
        let _ = self.frames.push(Frame { bytes, _delivered: delivered, _arrival: arrival });
        self.bell.ring();
        wait
    }
}

/// The worker's end.
pub(super) struct FrameQueue {
    incoming: Arc<Incoming>,
    /// Frames of the batch.
    held: Vec<Frame>,
}

impl FrameQueue {
    pub(super) fn new(incoming: Arc<Incoming>) -> Self {
        Self { incoming, held: Vec::with_capacity(QUEUE) }
    }
}

impl RxQueue for FrameQueue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        while batch.has_room() {
            let Some(frame) = self.incoming.frames.pop() else { return Ok(()) };
            let (at, len) = (NonNull::from(frame.bytes.as_slice()).cast::<u8>(), frame.bytes.len() as u32);
            self.held.push(frame);
            // SAFETY: the bytes are the frame's, on the heap: they stay in place, unchanged, in `held` until
            // `complete`.
            unsafe { batch.add_segment(at, len)? };
            batch.end_packet(Offload::NONE);
        }
        Ok(())
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        self.held.clear();
        Ok(())
    }

    fn set_signalled(&mut self, on: bool) {
        // The worker checks the queue after this, so an earlier ring of the bell is not lost.
        let _ = if on { self.incoming.bell.arm() } else { self.incoming.bell.disarm() };
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.incoming.bell.bell().as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}
