//! memif rings as the fabric's queues, in either role.
//!
//! In both roles packets to receive lie between the index of the entries consumed here and that of those the peer
//! produced, and packets to send go into buffers between the entries filled here and those the peer returned. Roles
//! differ in the owner of each index and of the buffers: a server takes descriptors as the client wrote them; a client
//! rewrites its own every time, because the server can write to them too. A role is a type, so that neither pays for
//! the other.
//!
//! Invariant: every index and descriptor is read once from shared memory and checked before it is used.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fabric::{Buffer, Fault, RingBacking, RxBatch, RxQueue, Tools, prefetch_write};
use memif::Memory;
use memif::RingParts;
use memif::client::{Direction, Layout};
use memif::ring::{Descriptor, Ring};
use packet::offload::Offload;

/// Descriptors prefetched ahead: two cache lines.
const AHEAD: u16 = 8;

/// A role: the owners of indices and buffers. Entries `from..to` are modulo 2^16.
pub(super) trait Side: Send + Sync + 'static {
    /// Returns the entry that a ring starts at.
    fn start(&self, ring: &Ring) -> u16;

    /// Returns the end of the packets that the peer has produced in a receive ring.
    fn produced(&self, ring: &Ring) -> u16;

    /// Gives entries of a receive ring back to the peer.
    fn give_back(&self, ring: &Ring, from: u16, to: u16);

    /// Returns the number of entries of a transmit ring that may be filled, given that those before `published` were
    /// handed over.
    fn free(&self, ring: &Ring, published: u16) -> Result<u16, Fault>;

    /// Returns the buffer of an entry that may be filled.
    fn buffer(&self, ring: &Ring, index: u16) -> Descriptor;

    /// Notes that `len` bytes were written to the buffer of an entry; the packet continues in the next one if `more`.
    fn fill(&self, ring: &Ring, index: u16, len: u32, more: bool);

    /// Prefetches the switch's index of a ring, which the peer has read meanwhile: it will be moved soon.
    fn expect_publish(&self, ring: &Ring);

    /// Hands over the filled entries before `end`.
    fn publish(&self, ring: &Ring, end: u16);
}

/// The switch serves; the peer, the client, owns buffers and `head`.
#[derive(Clone, Copy)]
pub(super) struct Server;

impl Side for Server {
    #[inline(always)]
    fn start(&self, ring: &Ring) -> u16 {
        ring.tail()
    }

    #[inline(always)]
    fn produced(&self, ring: &Ring) -> u16 {
        ring.head()
    }

    #[inline(always)]
    fn give_back(&self, ring: &Ring, _from: u16, to: u16) {
        ring.set_tail(to);
    }

    #[inline(always)]
    fn free(&self, ring: &Ring, published: u16) -> Result<u16, Fault> {
        distance(published, ring.head(), ring.size())
    }

    #[inline(always)]
    fn buffer(&self, ring: &Ring, index: u16) -> Descriptor {
        // Read now, written when the buffer is filled.
        if index.is_multiple_of(4) {
            prefetch_write(ring.desc_ptr(index.wrapping_add(AHEAD)));
        }
        ring.desc(index)
    }

    #[inline(always)]
    fn fill(&self, ring: &Ring, index: u16, len: u32, more: bool) {
        ring.set_used(index, len, more);
    }

    #[inline(always)]
    fn expect_publish(&self, ring: &Ring) {
        prefetch_write(ring.tail_ptr());
    }

    #[inline(always)]
    fn publish(&self, ring: &Ring, end: u16) {
        ring.set_tail(end);
    }
}

/// The switch is the client and owns `head` and the buffers, in this layout; the number is the ring's queue.
#[derive(Clone, Copy)]
pub(super) struct Client(pub(super) Layout, pub(super) u16);

impl Client {
    /// Describes the switch's buffers again for entries `from..from + n` of a receive ring.
    fn post(&self, ring: &Ring, from: u16, n: u16) {
        let Client(layout, queue) = *self;
        for index in (0..n).map(|i| from.wrapping_add(i)) {
            let offset = layout.buffer(Direction::M2s, queue, index);
            let d = Descriptor { length: layout.buffer_size(), offset, ..Descriptor::default() };
            ring.write_desc(index, &d);
        }
    }
}

impl Side for Client {
    fn start(&self, _ring: &Ring) -> u16 {
        0
    }

    #[inline(always)]
    fn produced(&self, ring: &Ring) -> u16 {
        ring.tail()
    }

    #[inline(always)]
    fn give_back(&self, ring: &Ring, from: u16, to: u16) {
        self.post(ring, from, to.wrapping_sub(from));
        ring.set_head(to.wrapping_add(ring.size()));
    }

    #[inline(always)]
    fn free(&self, ring: &Ring, published: u16) -> Result<u16, Fault> {
        let size = ring.size();
        Ok(size - distance(ring.tail(), published, size)?)
    }

    #[inline(always)]
    fn buffer(&self, _ring: &Ring, index: u16) -> Descriptor {
        let Client(layout, queue) = *self;
        let offset = layout.buffer(Direction::S2m, queue, index);
        Descriptor { length: layout.buffer_size(), offset, ..Descriptor::default() }
    }

    #[inline(always)]
    fn fill(&self, ring: &Ring, index: u16, len: u32, more: bool) {
        let Client(layout, queue) = *self;
        let offset = layout.buffer(Direction::S2m, queue, index);
        let flags = if more { memif::ring::FLAG_NEXT } else { 0 };
        ring.write_desc(index, &Descriptor { flags, region: 0, length: len, offset, metadata: 0 });
    }

    #[inline(always)]
    fn expect_publish(&self, ring: &Ring) {
        prefetch_write(ring.head_ptr());
    }

    #[inline(always)]
    fn publish(&self, ring: &Ring, end: u16) {
        ring.set_head(end);
    }
}

/// Returns the number of entries between two indices; a fault if the ring cannot hold them.
#[inline]
fn distance(from: u16, to: u16, size: u16) -> Result<u16, Fault> {
    let n = to.wrapping_sub(from);
    if n > size {
        return Err(Fault::RingIndex { published: u32::from(n), size: u32::from(size) });
    }
    Ok(n)
}

#[cold]
fn outside(index: u16, d: &Descriptor) -> Fault {
    Fault::OutOfRegion { index, region: d.region, offset: d.offset, length: d.length }
}

/// Packets from the peer.
pub(super) struct Rx<S> {
    ring: Ring,
    memory: Arc<Memory>,
    eventfd: OwnedFd,
    side: S,
    /// The next entry to take.
    next: u16,
    /// The first entry taken and not given back.
    held: u16,
}

impl Rx<Server> {
    /// Makes the receive queue of a ring that a client announced.
    pub(super) fn served(parts: RingParts) -> Self {
        Self::new(parts, Server)
    }
}

impl Rx<Client> {
    /// Makes the receive queue of a ring of the switch's own, and posts all its buffers.
    pub(super) fn own(parts: RingParts, side: Client) -> Self {
        let rx = Self::new(parts, side);
        rx.side.post(&rx.ring, 0, rx.ring.size());
        rx.ring.set_head(rx.ring.size());
        rx
    }
}

impl<S: Side> Rx<S> {
    fn new(parts: RingParts, side: S) -> Self {
        let memory = parts.ring.memory().clone();
        let start = side.start(&parts.ring);
        Self { ring: parts.ring, memory, eventfd: parts.eventfd, side, next: start, held: start }
    }

    #[inline(always)]
    fn take(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        let mut left = distance(self.next, self.side.produced(&self.ring), self.ring.size())?;
        while left > 0 && batch.has_room() {
            let (ring, memory, next) = (&self.ring, &*self.memory, self.next);
            let piece = |i: usize| {
                let d = ring.desc(next.wrapping_add(i as u16));
                if d.has_next() {
                    None
                } else {
                    Some((memory.translate(d.region, d.offset, d.length)?, d.length))
                }
            };
            // SAFETY: pieces were checked to lie in a region, which stays mapped until every worker was quiescent after
            // this queue's removal, and its faults are caught.
            let plain = unsafe { batch.add_plain(left.into(), piece) } as u16;
            self.next = next.wrapping_add(plain);
            left -= plain;
            if left > 0 && batch.has_room() {
                match self.take_chain(batch, left)? {
                    0 => break, // the rest of the chain is not published yet
                    taken => left -= taken,
                }
            }
        }
        Ok(())
    }

    /// Takes one packet in any number of pieces, or of an invalid length, from the `left` entries available. Returns
    /// its number of entries; 0 if some are not published yet.
    #[cold]
    fn take_chain(&mut self, batch: &mut RxBatch, left: u16) -> Result<u16, Fault> {
        let (mut at, mut taken, mut bytes) = (self.next, 0, 0u64);
        loop {
            if taken == left {
                batch.abandon_packet();
                return if taken == self.ring.size() { Err(Fault::Chain { max: taken }) } else { Ok(0) };
            }
            let d = self.ring.desc(at);
            let Some(piece) = self.memory.translate(d.region, d.offset, d.length) else {
                return Err(outside(at, &d));
            };
            // SAFETY: as in `take`.
            unsafe { batch.add_segment(piece, d.length)? };
            bytes += u64::from(d.length);
            (at, taken) = (at.wrapping_add(1), taken + 1);
            if !d.has_next() {
                break;
            }
        }
        if bytes == 0 {
            batch.abandon_packet();
            return Err(Fault::ZeroLength { index: self.next });
        }
        batch.end_packet(Offload::NONE);
        self.next = at;
        Ok(taken)
    }
}

impl<S: Side> RxQueue for Rx<S> {
    #[inline]
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        // Memory that was taken away reads as zeros, which looks like any other fault.
        let taken = self.take(batch);
        if self.next != self.held {
            self.side.expect_publish(&self.ring);
        }
        taken.map_err(|fault| if self.memory.faulted() { Fault::Memory } else { fault })
    }

    #[inline]
    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        if self.next != self.held {
            self.side.give_back(&self.ring, self.held, self.next);
            self.held = self.next;
        }
        if self.memory.faulted() { Err(Fault::Memory) } else { Ok(()) }
    }

    fn set_signalled(&mut self, on: bool) {
        self.ring.mask_interrupts(!on);
        if on {
            // The peer publishes its index and then reads this flag; this side writes the flag and then reads the
            // index.
            fence(Ordering::SeqCst);
        }
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }

    fn entries(&self) -> u32 {
        self.ring.size().into()
    }
}

/// Packets to the peer: the backing of a [`fabric::TxRing`] for a memif ring.
pub(super) struct Tx<S> {
    ring: Ring,
    memory: Arc<Memory>,
    eventfd: OwnedFd,
    side: S,
}

impl<S: Side> Tx<S> {
    /// Makes the backing, and returns it with the entry that it starts at.
    pub(super) fn new(parts: RingParts, side: S) -> (Self, u32) {
        let start = side.start(&parts.ring).into();
        let memory = parts.ring.memory().clone();
        (Self { ring: parts.ring, memory, eventfd: parts.eventfd, side }, start)
    }
}

// SAFETY: `buffer` returns only addresses that `Memory::translate` found within a region, which `self.memory` keeps
// mapped; faults there are caught, and client memory is never referred to, only copied to and from.
unsafe impl<S: Side> RingBacking for Tx<S> {
    type Own = ();
    type Entry = ();

    #[inline(always)]
    fn size(&self) -> u32 {
        u32::from(self.ring.size())
    }

    #[inline(always)]
    fn posted(&self, (): &mut (), published: u32) -> Result<u32, Fault> {
        let free = self.side.free(&self.ring, published as u16)?;
        Ok(published.wrapping_add(u32::from(free)))
    }

    #[inline(always)]
    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        let index = seq as u16;
        let d = self.side.buffer(&self.ring, index);
        if d.length == 0 {
            return Err(Fault::ZeroLength { index });
        }
        let at = self.memory.translate(d.region, d.offset, d.length).ok_or_else(|| outside(index, &d))?;
        Ok(Buffer { at, capacity: d.length })
    }

    #[inline(always)]
    fn expect_publish(&self, (): &mut (), _: u32) {
        self.side.expect_publish(&self.ring);
    }

    #[inline(always)]
    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        self.side.fill(&self.ring, seq as u16, len, more);
    }

    #[inline(always)]
    fn publish(&self, (): &mut (), seq: u32) {
        self.side.publish(&self.ring, seq as u16);
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
