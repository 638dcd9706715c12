//! From an interface into the switch: the receive ring of an AF_XDP socket as a receive queue.
//!
//! Invariant: entries `held..next` of the ring are those of the batch; their frames go back to the kernel when it is
//! delivered.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::unannounced::unannounced;
use rustix::io::Errno;
use xsk::{Fill, Memory, Rx, Socket, note};

use super::tx::XdpTx;
use super::{Notes, RING};

const _: () = assert!(note::LARGEST - note::HEAD <= fabric::MAX_NOTE);

/// Receiving end of one socket.
pub(super) struct XdpRx {
    socket: Arc<Socket>,
    memory: Arc<Memory>,
    rx: Rx,
    fill: Fill,
    /// The next entry to take.
    next: u32,
    /// The first entry taken whose frame the kernel does not have again.
    held: u32,
    /// End of the fill ring.
    filled: u32,
    /// The other direction of the socket.
    sender: Arc<XdpTx>,
    notes: Arc<Notes>,
    /// Whether packets come only when the kernel is called.
    busy_poll: bool,
}

impl XdpRx {
    pub(super) fn new(
        socket: Arc<Socket>,
        rx: Rx,
        fill: Fill,
        sender: Arc<XdpTx>,
        notes: Arc<Notes>,
        busy_poll: bool,
    ) -> Self {
        let memory = socket.memory().clone();
        // All frames to receive are in the fill ring.
        let filled = memory.frames() / 2;
        Self { socket, memory, rx, fill, next: 0, held: 0, filled, sender, notes, busy_poll }
    }

    /// Takes one packet, in entries from `next` to before `end`; with `NOTES`, there may be one in front. Returns false if
    /// some entries are not published yet.
    #[inline(always)]
    fn take<const NOTES: bool>(&mut self, end: u32, batch: &mut RxBatch) -> Result<bool, Fault> {
        let (mut at, mut front, mut noted) = (self.next, None, None);
        loop {
            let mut piece = self.rx.packet(at);
            let mut start = self.memory.at(piece.offset, piece.length).ok_or(Fault::Device(Errno::FAULT))?;
            if NOTES && front.is_none() {
                // SAFETY: as below.
                noted = note::split(self.notes.mark, unsafe { bytes(start, piece.length) });
                let length = noted.map_or(0, |(_, length)| length);
                // SAFETY: the note is part of the piece.
                start = unsafe { start.add(length) };
                piece.length -= length as u32;
            }
            front.get_or_insert((start, piece.length));
            // SAFETY: the kernel writes to the frame only after it is in the fill ring again; the socket's memory
            // outlives this queue, which is removed only when every worker was quiescent.
            unsafe { batch.add_segment(start, piece.length)? };
            at = at.wrapping_add(1);
            if !piece.continued {
                break;
            }
            if at == end {
                batch.abandon_packet();
                return Ok(false);
            }
        }
        self.next = at;
        let offload = front.map(|(start, length)| {
            // SAFETY: as above; nobody writes to the frame meanwhile.
            unannounced(unsafe { bytes(start, length) })
        });
        let offload = offload.unwrap_or(packet::offload::Offload::NONE);
        match noted {
            Some((content, _)) if NOTES => batch.end_packet_with_note(offload, content),
            _ => batch.end_packet(offload),
        }
        Ok(true)
    }

    fn receive_until<const NOTES: bool>(&mut self, end: u32, batch: &mut RxBatch) -> Result<(), Fault> {
        while self.next != end && batch.has_room() && self.take::<NOTES>(end, batch)? {}
        Ok(())
    }
}

/// The bytes of a piece.
///
/// # Safety
/// Nobody writes to them while they are borrowed, and they stay where they are.
unsafe fn bytes<'a>(start: NonNull<u8>, length: u32) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), length as usize) }
}

impl RxQueue for XdpRx {
    fn entries(&self) -> u32 {
        RING
    }

    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        self.sender.send_rest();
        let mut end = self.rx.end();
        if self.busy_poll && self.next == end {
            self.socket.wake_receiver();
            end = self.rx.end();
        }
        match self.notes.are_expected.load(Ordering::Relaxed) {
            true => self.receive_until::<true>(end, batch),
            false => self.receive_until::<false>(end, batch),
        }
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        if self.held == self.next {
            return Ok(());
        }
        while self.held != self.next {
            self.fill.write(self.filled, self.memory.frame_of(self.rx.packet(self.held).offset));
            self.held = self.held.wrapping_add(1);
            self.filled = self.filled.wrapping_add(1);
        }
        self.fill.publish(self.filled);
        self.rx.consume(self.held);
        if self.fill.needs_wakeup() {
            self.socket.wake_receiver();
        }
        Ok(())
    }

    fn set_signalled(&mut self, on: bool) {
        if on {
            // The driver may have asked for frames just after `complete` looked; it does not ask again, and without
            // frames nothing would wake the worker.
            fence(Ordering::SeqCst);
            if self.fill.needs_wakeup() {
                self.socket.wake_receiver();
            }
        }
    }

    fn signal(&self) -> BorrowedFd<'_> {
        (*self.socket).as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}
