//! From an interface into the switch: the receive ring of an AF_XDP socket as a receive queue.
//!
//! Invariant: entries `held..next` of the ring are those of the batch; their frames go back to the kernel when it is
//! delivered.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::unannounced::unannounced;
use rustix::io::Errno;
use xsk::{Fill, Memory, Rx, Socket};

use super::tx::XdpTx;

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
    /// Whether packets come only when the kernel is called.
    busy_poll: bool,
}

impl XdpRx {
    pub(super) fn new(socket: Arc<Socket>, rx: Rx, fill: Fill, sender: Arc<XdpTx>, busy_poll: bool) -> Self {
        let memory = socket.memory().clone();
        // All frames to receive are in the fill ring.
        let filled = memory.frames() / 2;
        Self { socket, memory, rx, fill, next: 0, held: 0, filled, sender, busy_poll }
    }

    /// Takes one packet, in entries from `next` to before `end`. Returns false if some of them are not published yet.
    #[inline(always)]
    fn take(&mut self, end: u32, batch: &mut RxBatch) -> Result<bool, Fault> {
        let (mut at, mut front) = (self.next, None);
        loop {
            let piece = self.rx.packet(at);
            let start = self.memory.at(piece.offset, piece.length).ok_or(Fault::Device(Errno::FAULT))?;
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
            unannounced(unsafe { std::slice::from_raw_parts(start.as_ptr(), length as usize) })
        });
        batch.end_packet(offload.unwrap_or(packet::offload::Offload::NONE));
        Ok(true)
    }
}

impl RxQueue for XdpRx {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        self.sender.send_rest();
        let mut end = self.rx.end();
        if self.busy_poll && self.next == end {
            self.socket.wake_receiver();
            end = self.rx.end();
        }
        while self.next != end && batch.has_room() && self.take(end, batch)? {}
        Ok(())
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
