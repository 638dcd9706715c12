//! memif rings as the fabric's queues, in either role.
//!
//! In both roles packets for us lie between what we consumed and what the peer produced, and packets from us
//! go into buffers between what we filled and what the peer returned. Roles differ in which index is whose
//! and in who owns the buffers: a server takes descriptors as the client wrote them, a client rewrites its own
//! every time, because the server can write to them too.
//!
//! Invariant: every index and descriptor is read once from shared memory and checked before it is used.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fabric::{Buffer, Fault, RingBacking, RxBatch, RxQueue, Tools, prefetch_read, prefetch_write};
use memif::Memory;
use memif::RingParts;
use memif::client::{Direction, Layout};
use memif::ring::{Descriptor, Ring};
use packet::offload::Offload;

/// Descriptors looked ahead: two cache lines.
const AHEAD: u16 = 8;

/// Which index is whose, and whose the buffers are.
#[derive(Clone, Copy)]
pub(super) enum Side {
    /// The peer is the client; it owns buffers and `head`.
    Server,
    /// We are the client; we own buffers and `head`. Which of our rings this is.
    Client(Layout, u16),
}

/// Entries between two indices, refused when the ring cannot hold them.
#[inline]
fn distance(from: u16, to: u16, size: u16) -> Result<u16, Fault> {
    let n = to.wrapping_sub(from);
    if n > size {
        return Err(Fault::RingIndex { published: u32::from(n), size: u32::from(size) });
    }
    Ok(n)
}

#[inline]
fn outside(index: u16, d: &Descriptor) -> Fault {
    Fault::OutOfRegion { index, region: d.region, offset: d.offset, length: d.length }
}

/// Packets from the peer.
pub(super) struct Rx {
    ring: Ring,
    memory: Arc<Memory>,
    eventfd: OwnedFd,
    side: Side,
    /// The next entry to take.
    next: u16,
    /// The first entry taken and not given back.
    held: u16,
}

impl Rx {
    pub(super) fn new(parts: RingParts, side: Side) -> Self {
        let memory = parts.ring.memory().clone();
        let start = match side {
            Side::Server => parts.ring.tail(),
            Side::Client(..) => 0,
        };
        let rx = Self { ring: parts.ring, memory, eventfd: parts.eventfd, side, next: start, held: start };
        if let Side::Client(..) = side {
            rx.post(0, rx.ring.size());
            rx.ring.set_head(rx.ring.size());
        }
        rx
    }

    /// Describes our buffers afresh for entries `from..from + n` (client role).
    fn post(&self, from: u16, n: u16) {
        if let Side::Client(layout, queue) = self.side {
            for index in (0..n).map(|i| from.wrapping_add(i)) {
                let offset = layout.buffer(Direction::M2s, queue, index);
                let d = Descriptor { length: layout.buffer_size(), offset, ..Descriptor::default() };
                self.ring.write_desc(index, &d);
            }
        }
    }

    #[inline]
    fn produced(&self) -> u16 {
        match self.side {
            Side::Server => self.ring.head(),
            Side::Client(..) => self.ring.tail(),
        }
    }
}

impl Rx {
    #[inline(always)]
    fn take(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let produced = self.produced();
        let mut left = distance(self.next, produced, self.ring.size())?;
        while left > 0 && batch.has_room() {
            prefetch_read(self.ring.desc_ptr(self.next.wrapping_add(AHEAD)));
            let (mut at, mut whole, mut bytes) = (self.next, false, 0u64);
            while left > 0 {
                let d = self.ring.desc(at);
                let Some(piece) = self.memory.translate(d.region, d.offset, d.length) else {
                    return Err(outside(at, &d));
                };
                // SAFETY: the piece was checked to lie in a region, which stays mapped until every worker was
                // quiescent after this queue's removal, and its faults are caught.
                unsafe { batch.add_segment(piece, d.length)? };
                bytes += u64::from(d.length);
                at = at.wrapping_add(1);
                left -= 1;
                if !d.has_next() {
                    whole = true;
                    break;
                }
            }
            if !whole {
                batch.abandon_packet();
                let chained = at.wrapping_sub(self.next);
                if chained == self.ring.size() {
                    return Err(Fault::Chain { max: chained });
                }
                break; // the rest of the chain is not published yet
            }
            if bytes == 0 {
                batch.abandon_packet();
                return Err(Fault::ZeroLength { index: self.next });
            }
            batch.end_packet(Offload::NONE);
            self.next = at;
        }
        Ok(())
    }
}

impl RxQueue for Rx {
    #[inline]
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        // Memory that was taken away reads as zeros, which looks like any other fault.
        self.take(batch).map_err(|fault| if self.memory.faulted() { Fault::Memory } else { fault })
    }

    #[inline]
    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        if self.next != self.held {
            match self.side {
                Side::Server => self.ring.set_tail(self.next),
                Side::Client(..) => {
                    self.post(self.held, self.next.wrapping_sub(self.held));
                    self.ring.set_head(self.next.wrapping_add(self.ring.size()));
                }
            }
            self.held = self.next;
        }
        if self.memory.faulted() { Err(Fault::Memory) } else { Ok(()) }
    }

    fn set_signalled(&mut self, on: bool) {
        self.ring.mask_interrupts(!on);
        if on {
            // The peer publishes its index and then reads this flag; we write it and then read the index.
            fence(Ordering::SeqCst);
        }
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

/// Packets to the peer: what [`fabric::TxRing`] needs to know of a memif ring.
pub(super) struct Tx {
    ring: Ring,
    memory: Arc<Memory>,
    eventfd: OwnedFd,
    side: Side,
}

impl Tx {
    /// The backing and the entry it starts at.
    pub(super) fn new(parts: RingParts, side: Side) -> (Self, u32) {
        let start = match side {
            Side::Server => u32::from(parts.ring.tail()),
            Side::Client(..) => 0,
        };
        let memory = parts.ring.memory().clone();
        (Self { ring: parts.ring, memory, eventfd: parts.eventfd, side }, start)
    }
}

// SAFETY: `buffer` gives only what `Memory::translate` found within a region, which `self.memory` keeps mapped; faults
// there are caught, and client memory is never referred to, only copied to and from.
unsafe impl RingBacking for Tx {
    type Own = ();
    type Entry = ();

    #[inline]
    fn size(&self) -> u32 {
        u32::from(self.ring.size())
    }

    #[inline]
    fn posted(&self, (): &mut (), published: u32) -> Result<u32, Fault> {
        let size = self.ring.size();
        let free = match self.side {
            Side::Server => distance(published as u16, self.ring.head(), size)?,
            Side::Client(..) => size - distance(self.ring.tail(), published as u16, size)?,
        };
        Ok(published.wrapping_add(u32::from(free)))
    }

    #[inline]
    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        let index = seq as u16;
        let d = match self.side {
            Side::Server => {
                // Read now, written when the buffer is filled.
                prefetch_write(self.ring.desc_ptr(index.wrapping_add(AHEAD)));
                self.ring.desc(index)
            }
            Side::Client(layout, queue) => Descriptor {
                length: layout.buffer_size(),
                offset: layout.buffer(Direction::S2m, queue, index),
                ..Descriptor::default()
            },
        };
        if d.length == 0 {
            return Err(Fault::ZeroLength { index });
        }
        let at = self.memory.translate(d.region, d.offset, d.length).ok_or_else(|| outside(index, &d))?;
        Ok(Buffer { at, capacity: d.length })
    }

    #[inline]
    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        match self.side {
            Side::Server => self.ring.set_used(seq as u16, len, more),
            Side::Client(layout, queue) => {
                let offset = layout.buffer(Direction::S2m, queue, seq as u16);
                let flags = if more { memif::ring::FLAG_NEXT } else { 0 };
                let d = Descriptor { flags, region: 0, length: len, offset, metadata: 0 };
                self.ring.write_desc(seq as u16, &d);
            }
        }
    }

    #[inline]
    fn publish(&self, (): &mut (), seq: u32) {
        match self.side {
            Side::Server => self.ring.set_tail(seq as u16),
            Side::Client(..) => self.ring.set_head(seq as u16),
        }
    }

    #[inline]
    fn notify(&self) -> Option<RawFd> {
        (!self.ring.interrupts_masked()).then(|| self.eventfd.as_raw_fd())
    }

    #[inline]
    fn faulted(&self) -> bool {
        self.memory.faulted()
    }
}
