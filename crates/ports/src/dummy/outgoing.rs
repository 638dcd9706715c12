//! Frames that workers send to a dummy port: to its capture file and its streams, before the worker goes on.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::{Buffer, Fault, RingBacking};
use tokio::sync::mpsc::Sender;

use super::StreamState;
use super::capture::{self, Capture};
use super::traffic::Traffic;
use crate::pcap::slots::{Filling, Slots};

/// A stream's queue, with the traffic that its frames belong to if it leads to another port of the process.
type Stream = (Sender<Vec<u8>>, Option<Arc<Traffic>>);

/// Where frames go.
#[derive(Default)]
pub(super) struct Outgoing(Mutex<Ends>);

#[derive(Default)]
struct Ends {
    capture: Option<Capture>,
    /// Of connected streams.
    streams: Vec<Stream>,
    active: Option<bool>,
}

impl Outgoing {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Captures frames from now on.
    pub(super) fn set_capture(&self, capture: Option<Capture>) {
        self.ends().capture = capture;
    }

    /// Adds a connected stream, which goes when its receiver does.
    pub(super) fn add_stream(&self, stream: Sender<Vec<u8>>, traffic: Option<Arc<Traffic>>) {
        self.ends().streams.push((stream, traffic));
    }

    pub(super) fn set_stream_state(&self, state: StreamState) {
        self.ends().active = match state {
            StreamState::None => None,
            StreamState::Connected => Some(true),
            StreamState::Disconnected => Some(false),
        };
    }

    pub(super) fn stream_state(&self) -> StreamState {
        match self.ends().active {
            None => StreamState::None,
            Some(true) => StreamState::Connected,
            Some(false) => StreamState::Disconnected,
        }
    }

    /// Sends a frame to all ends. Streams that do not keep up lose it.
    fn send(&self, frame: &[u8]) {
        let mut ends = self.ends();
        if let Some(file) = &mut ends.capture
            && let Err(error) = capture::write(file, frame)
        {
            tracing::warn!(%error, "a frame is missing in a capture file");
        }
        ends.streams.retain(|(stream, _)| !stream.is_closed());
        for (stream, traffic) in &ends.streams {
            // Counted before it can arrive.
            let Ok(place) = stream.try_reserve() else { continue };
            traffic.iter().for_each(|traffic| traffic.leave());
            place.send(frame.to_vec());
        }
    }
}

/// The ring that workers fill; the worker that has filled it empties it, too.
pub(super) struct Written {
    filling: Filling,
    slots: Arc<Slots>,
    outgoing: Arc<Outgoing>,
    /// Held by the thread that empties the ring.
    frame: Mutex<Vec<u8>>,
}

impl Written {
    pub(super) fn new(outgoing: Arc<Outgoing>) -> std::io::Result<Self> {
        let slots = Slots::new()?;
        Ok(Self { filling: Filling(slots.clone()), slots, outgoing, frame: Mutex::default() })
    }
}

// SAFETY: everything about buffers is left to `Filling`, which has the same contract.
unsafe impl RingBacking for Written {
    type Own = ();
    type Entry = ();

    fn size(&self) -> u32 {
        self.filling.size()
    }

    fn posted(&self, own: &mut (), published: u32) -> Result<u32, Fault> {
        self.filling.posted(own, published)
    }

    fn buffer(&self, own: &mut (), seq: u32, entry: &mut ()) -> Result<Buffer, Fault> {
        self.filling.buffer(own, seq, entry)
    }

    fn fill(&self, seq: u32, entry: &mut (), len: u32, more: bool) {
        self.filling.fill(seq, entry, len, more);
    }

    fn publish(&self, own: &mut (), seq: u32) {
        self.filling.publish(own, seq);
    }

    /// Empties the ring: called without the ring's lock, by the worker that has published.
    fn notify(&self) -> Option<RawFd> {
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, entries)) = self.slots.peek(&mut frame) {
            self.slots.release(entries);
            self.outgoing.send(&frame);
        }
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}
