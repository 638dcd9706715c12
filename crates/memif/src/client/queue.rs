//! Queues for tools: packets are copied in and out.
//!
//! Slot `i` of a ring always uses buffer `i`, so the queues store only indices.
//!
//! Invariants:
//! - A `tail..head` derived from the server's index is never taken to be longer than the ring.
//! - A received packet is read from the slot's own buffer and is no longer than it, whatever the descriptor says.
//! - Pushed packets are invisible to the server until [`TxQueue::flush`]; buffers of popped packets stay with the
//!   client until [`RxQueue::refill`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::layout::{Direction, Layout};
use crate::connection::RingParts;
use crate::ring::{Descriptor, FLAG_NEXT, Ring};

/// Queue that sends packets to the server.
#[derive(Debug)]
pub struct TxQueue {
    ring: Ring,
    eventfd: OwnedFd,
    layout: Layout,
    index: u16,
    /// The next slot to fill; ahead of the published index by the pushed packets that are not flushed.
    head: u16,
    /// The server's index as last read.
    tail: u16,
}

impl TxQueue {
    /// Makes the queue of S2M ring number `index`.
    pub(crate) fn new(parts: RingParts, layout: Layout, index: u16) -> TxQueue {
        TxQueue { ring: parts.ring, eventfd: parts.eventfd, layout, index, head: 0, tail: 0 }
    }

    /// Queues one packet made of these segments; `false` without enough room.
    ///
    /// Each segment starts in a new buffer, and one longer than a buffer takes several. An empty packet, or one that
    /// needs more than the whole ring, is always refused.
    pub fn push(&mut self, segments: &[&[u8]]) -> bool {
        let buffer_size = self.layout.buffer_size() as usize;
        let needed: usize = segments.iter().map(|s| s.len().div_ceil(buffer_size)).sum();
        if needed == 0 || needed > usize::from(self.free()) && needed > usize::from(self.free_slots()) {
            return false;
        }
        let mut left = needed;
        for chunk in segments.iter().flat_map(|s| s.chunks(buffer_size)) {
            left -= 1;
            self.fill(chunk, left > 0);
        }
        true
    }

    /// Publishes pushed packets to the server, and wakes it if it asked for that. Returns whether it was woken.
    pub fn flush(&mut self) -> bool {
        self.ring.set_head(self.head);
        // The server unmasks, then reads head; this side publishes head, then reads the mask. With a fence on each
        // side, at least one of the two sees the other's write.
        fence(Ordering::SeqCst);
        if self.ring.interrupts_masked() {
            return false;
        }
        // Fails only when the counter is full; the server then has wake-ups pending.
        rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()).is_ok()
    }

    /// Returns the number of buffers that can be filled now.
    pub fn free_slots(&mut self) -> u16 {
        self.tail = self.ring.tail();
        self.free()
    }

    /// Returns the ring, for direct access.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the eventfd that wakes the server.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    fn free(&self) -> u16 {
        self.ring.size().saturating_sub(self.head.wrapping_sub(self.tail))
    }

    fn fill(&mut self, chunk: &[u8], more: bool) {
        // A chunk is at most a buffer, whose size fits in 32 bits.
        let length = chunk.len() as u32;
        let offset = self.layout.buffer(Direction::S2m, self.index, self.head);
        let Some(to) = self.ring.memory().translate(0, offset, length) else { return };
        // SAFETY: `to` has room for `length` bytes within the region, which the ring keeps mapped. `chunk` is private
        // memory of this process and cannot overlap the region, because no reference to the region exists.
        unsafe { to.as_ptr().copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
        let flags = if more { FLAG_NEXT } else { 0 };
        self.ring.write_desc(self.head, &Descriptor { flags, region: 0, length, offset, metadata: 0 });
        self.head = self.head.wrapping_add(1);
    }
}

/// Queue that receives packets from the server. Interrupts are initially masked: the ring is polled.
#[derive(Debug)]
pub struct RxQueue {
    ring: Ring,
    eventfd: OwnedFd,
    layout: Layout,
    index: u16,
    /// The end of the posted buffers.
    head: u16,
    /// The next slot to take a packet from.
    next: u16,
    /// The server's index as last read.
    tail: u16,
    malformed: u64,
}

impl RxQueue {
    /// Makes the queue of M2S ring number `index` and posts all buffers.
    pub(crate) fn new(parts: RingParts, layout: Layout, index: u16) -> RxQueue {
        parts.ring.mask_interrupts(true);
        let mut queue = RxQueue {
            ring: parts.ring,
            eventfd: parts.eventfd,
            layout,
            index,
            head: 0,
            next: 0,
            tail: 0,
            malformed: 0,
        };
        queue.refill();
        queue
    }

    /// Moves one packet into `out`, which is cleared first; `false` when no packet is waiting.
    pub fn pop(&mut self, out: &mut Vec<u8>) -> bool {
        self.pop_prefix(out, usize::MAX).is_some()
    }

    /// Takes one packet and copies at most its first `limit` bytes into `out`, which is cleared first. Returns the
    /// packet's full length, or `None` when no packet is waiting.
    pub fn pop_prefix(&mut self, out: &mut Vec<u8>, limit: usize) -> Option<usize> {
        out.clear();
        if self.available() == 0 {
            return None;
        }
        let mut length = 0;
        loop {
            let descriptor = self.ring.desc(self.next);
            if descriptor.length > self.layout.buffer_size() {
                self.malformed += 1;
            }
            let used = descriptor.length.min(self.layout.buffer_size());
            let wanted = limit.saturating_sub(out.len()).min(used as usize);
            self.copy_out(out, wanted);
            length += used as usize;
            self.next = self.next.wrapping_add(1);
            if !descriptor.has_next() {
                return Some(length);
            }
            if self.available() == 0 {
                // The server published an incomplete packet.
                self.malformed += 1;
                return Some(length);
            }
        }
    }

    /// Returns the buffers of popped packets to the server.
    pub fn refill(&mut self) {
        let until = self.next.wrapping_add(self.ring.size());
        while self.head != until {
            let descriptor = Descriptor {
                flags: 0,
                region: 0,
                length: self.layout.buffer_size(),
                offset: self.layout.buffer(Direction::M2s, self.index, self.head),
                metadata: 0,
            };
            self.ring.write_desc(self.head, &descriptor);
            self.head = self.head.wrapping_add(1);
        }
        self.ring.set_head(self.head);
    }

    /// Asks the server to signal [`eventfd`](RxQueue::eventfd) for new packets, or to stop signalling.
    ///
    /// After turning interrupts on, [`pop`](RxQueue::pop) once more before sleeping: earlier packets cause no signal.
    pub fn set_interrupts(&mut self, on: bool) {
        self.ring.mask_interrupts(!on);
        // The caller reads the ring only after this fence; TxQueue::flush has the counterpart.
        fence(Ordering::SeqCst);
    }

    /// Sleeps until the server signals, for at most `timeout`, and clears the signal. Returns whether a signal came.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let mut fds = [PollFd::new(&self.eventfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => self.clear_event(),
            Err(e) => Err(e.into()),
        }
    }

    /// Clears the signal without sleeping. Returns whether a signal was pending.
    pub fn clear_event(&mut self) -> io::Result<bool> {
        match rustix::io::read(&self.eventfd, &mut [0u8; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the eventfd by which the server wakes the client.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    /// Returns the ring, for direct access.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the number of the server's protocol violations: lengths beyond the buffer, incomplete packets, indices
    /// beyond the posted buffers.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the number of filled buffers; reads the server's index when none are known.
    fn available(&mut self) -> u16 {
        if self.next == self.tail {
            let tail = self.ring.tail();
            if tail.wrapping_sub(self.next) > self.head.wrapping_sub(self.next) {
                self.malformed += 1;
                return 0;
            }
            self.tail = tail;
        }
        self.tail.wrapping_sub(self.next)
    }

    fn copy_out(&self, out: &mut Vec<u8>, length: usize) {
        let offset = self.layout.buffer(Direction::M2s, self.index, self.next);
        // `length` is at most a buffer, whose size fits in 32 bits.
        let Some(from) = self.ring.memory().translate(0, offset, length as u32) else { return };
        out.reserve(length);
        // SAFETY: `from` has `length` bytes within the region, which the ring keeps mapped; `out` has room for them
        // after its end and is private memory. The bytes copied are initialised, so the length may grow over them.
        unsafe {
            out.as_mut_ptr().add(out.len()).copy_from_nonoverlapping(from.as_ptr(), length);
            out.set_len(out.len() + length);
        }
    }
}
