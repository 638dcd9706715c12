//! Packets from the driver: one ring as a receive queue of the fabric.
//!
//! Invariant: a chain is given back when its batch is complete, and not before; the fabric reads packets in place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use fabric::rx::MAX_BATCH;
use fabric::{Fault, RxBatch, RxQueue, Tools, prefetch_read};
use packet::offload::Offload;
use packet::virtio_net::HEADER_LEN;
use vhost_user::session::GuestQueue;
use vhost_user::{Chain, Segment};

use super::device::{Call, FaultReason, Form};
use crate::offload_header;

/// The shortest Ethernet frame, without its checksum.
const ANNOUNCEMENT: usize = 60;
/// Largest number of packets discarded in one look at a ring that is not enabled.
const MOST_DISCARDED: u32 = 1024;

pub(super) struct Rx {
    ring: usize,
    queue: GuestQueue,
    kick: Arc<OwnedFd>,
    call: Arc<Call>,
    form: Form,
    /// Whether packets pass. If not they are discarded.
    enabled: bool,
    /// A station to be announced first.
    announce: Option<[u8; 6]>,
    chain: Box<Chain>,
    /// Chains of the batch, by id and slots: the first `held` are to be given back.
    taken: Box<[(u16, u16); MAX_BATCH]>,
    held: usize,
    /// Headers not read yet, of packets in one piece: the first packet's number and the number of packets; each header
    /// is right in front of its packet.
    plain: Vec<(usize, usize)>,
    /// Headers not read yet, of other packets: the packet's number and the header's place.
    heads: Vec<(usize, Segment)>,
    /// Set to the ring's position in the end.
    position: Arc<AtomicU32>,
    fault_reason: Arc<FaultReason>,
}

impl Rx {
    #[expect(clippy::too_many_arguments, reason = "all of a ring, in one place")]
    pub(super) fn new(
        ring: usize,
        queue: GuestQueue,
        kick: Arc<OwnedFd>,
        call: Arc<Call>,
        form: Form,
        enabled: bool,
        announce: Option<[u8; 6]>,
        position: Arc<AtomicU32>,
        fault_reason: Arc<FaultReason>,
    ) -> Self {
        let (chain, taken) = (Box::default(), Box::new([(0, 0); MAX_BATCH]));
        let (plain, heads) = (Vec::with_capacity(MAX_BATCH), Vec::with_capacity(MAX_BATCH));
        Self {
            ring,
            queue,
            kick,
            call,
            form,
            enabled,
            announce,
            chain,
            taken,
            held: 0,
            plain,
            heads,
            position,
            fault_reason,
        }
    }

    /// Memory that was taken away reads as zeros, which looks like any other fault.
    #[cold]
    fn fault(&self, what: impl std::fmt::Display) -> Fault {
        if self.queue.faulted() { Fault::Memory } else { self.fault_reason.set(self.ring, what) }
    }

    #[inline]
    fn take(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        if !self.queue.has_next().map_err(|error| self.fault(error))? {
            return Ok(());
        }
        while batch.has_room() && self.held < MAX_BATCH {
            let number = batch.len();
            let plain = self.take_plain(batch);
            if plain > 0 && self.form.reads_metadata {
                self.plain.push((number, plain));
            }
            if batch.has_room() && self.held < MAX_BATCH && !self.take_chain(batch)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes chains of one piece, up to the first other. Returns their number.
    #[inline(always)]
    fn take_plain(&mut self, batch: &mut RxBatch) -> usize {
        let (queue, header) = (&mut self.queue, self.form.header);
        let taken = self.taken.get_mut(self.held..).unwrap_or_default();
        let most = taken.len();
        let piece = |i: usize| {
            let (segment, id) = queue.plain(i as u16, false)?;
            *taken.get_mut(i)? = (id, 1);
            let len = segment.len.checked_sub(header)?;
            prefetch_read(segment.at.as_ptr());
            // SAFETY: `header` <= the segment's length.
            Some((unsafe { segment.at.add(header as usize) }, len))
        };
        // SAFETY: a segment stays mapped as long as `queue` exists, which is dropped only when no worker uses this
        // queue any more; faults on it are caught.
        let added = unsafe { batch.add_plain(most, piece) };
        self.queue.take_plain(added as u16);
        self.held += added;
        added
    }

    /// Takes the next chain, of any form. Returns false if none is available.
    fn take_chain(&mut self, batch: &mut RxBatch) -> Result<bool, Fault> {
        if !self.queue.take(&mut self.chain).map_err(|error| self.fault(error))? {
            return Ok(false);
        }
        if let Some(taken) = self.taken.get_mut(self.held) {
            *taken = (self.chain.id(), self.chain.slots());
            self.held += 1;
        }
        if self.chain.readable_bytes() < self.form.header {
            let (bytes, head) = (self.chain.readable_bytes(), self.form.header);
            return Err(
                self.fault(format_args!("packet of {bytes} bytes, shorter than its header of {head}"))
            );
        }
        let (number, mut skip) = (batch.len(), self.form.header);
        for segment in self.chain.readable() {
            let skipped = skip.min(segment.len);
            skip -= skipped;
            if segment.len > skipped {
                // SAFETY: `skipped` < the segment's length, so the address is within it; it stays mapped as in
                // `take_plain`.
                unsafe { batch.add_segment(segment.at.add(skipped as usize), segment.len - skipped)? };
            }
        }
        batch.end_packet(Offload::NONE);
        if self.form.reads_metadata && batch.len() > number {
            self.note_header(batch, number);
        }
        Ok(true)
    }

    /// Reads the driver's metadata for the packet of the current chain, or remembers its place until the batch is
    /// complete and the memory is in the cache.
    #[inline]
    fn note_header(&mut self, batch: &mut RxBatch, number: usize) {
        match self.chain.readable() {
            [first, ..] if first.len >= self.form.header => {
                prefetch_read(first.at.as_ptr());
                self.heads.push((number, *first));
            }
            several => batch.set_offload(number, read(several, self.form)),
        }
    }

    /// Reads the headers that were left for later.
    #[inline]
    fn read_headers(&mut self, batch: &mut RxBatch) {
        let len = self.form.header;
        for (first, count) in self.plain.drain(..) {
            for number in first..first + count {
                let Some(front) = batch.front(number) else { continue };
                // SAFETY: `take_plain` left out so many bytes of the packet's only segment.
                let at = unsafe { front.sub(len as usize) };
                // SAFETY: two bytes of those; `take_plain` says why they can be read.
                let asks = unsafe { at.cast::<[u8; 2]>().read_volatile() } != [0; 2];
                if asks {
                    batch.set_offload(number, read(&[Segment { at, len }], self.form));
                }
            }
        }
        for (number, segment) in self.heads.drain(..) {
            batch.set_offload(number, read(&[segment], self.form));
        }
    }

    /// Takes the available packets and gives them back.
    fn discard(&mut self) -> Result<(), Fault> {
        // Other ports wait meanwhile. The rest of a longer ring comes at the next look: after a kick, or once it is
        // enabled.
        for _ in 0..MOST_DISCARDED {
            if !self.queue.take(&mut self.chain).map_err(|error| self.fault(error))? {
                break;
            }
            self.queue.give_back(self.chain.id(), self.chain.slots(), 0);
        }
        self.queue.publish();
        Ok(())
    }

    /// Adds a reverse ARP request (RFC 903) with the station's address to the batch: bridges learn from it where the
    /// station is now.
    #[cold]
    fn announce(&mut self, batch: &mut RxBatch, station: [u8; 6]) -> Result<(), Fault> {
        let Some(room) = batch.landing().and_then(|room| room.get_mut(..ANNOUNCEMENT)) else { return Ok(()) };
        room.fill(0);
        let parts: [(usize, &[u8]); 5] = [
            (0, &[0xff; 6]),
            (6, &station),
            // EtherType; then Ethernet and IPv4 addresses of 6 and 4 bytes, operation 3.
            (12, &[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]),
            (22, &station),
            (32, &station),
        ];
        for (at, bytes) in parts {
            if let Some(to) = room.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        }
        batch.landed(0, ANNOUNCEMENT, Offload::NONE)
    }
}

/// Reads a driver's metadata from the header at the start of a chain, which is long enough. A driver may not claim that
/// checksums are right (virtio 1.2 §5.1.6.2.1).
#[inline]
fn read(segments: &[Segment], form: Form) -> Offload {
    let (mut header, mut done) = ([0; HEADER_LEN], 0);
    for segment in segments {
        let left = header.get_mut(done..form.header as usize).unwrap_or_default();
        let n = left.len().min(segment.len as usize);
        // SAFETY: the segment was translated and its memory is kept mapped; `n` bytes are within it and within `left`,
        // which is private memory.
        unsafe { std::ptr::copy_nonoverlapping(segment.at.as_ptr(), left.as_mut_ptr(), n) };
        done += n;
        if n == left.len() {
            break;
        }
    }
    Offload { csum_valid: false, ..offload_header::unverified(&header) }
}

impl RxQueue for Rx {
    fn is_enabled(&self) -> bool {
        self.enabled
    }

    fn entries(&self) -> u32 {
        self.queue.size().into()
    }

    #[inline]
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        if let Some(station) = self.announce.take() {
            self.announce(batch, station)?;
        }
        if !self.enabled {
            return self.discard();
        }
        let outcome = self.take(batch);
        if self.held > 0 {
            self.queue.expect_publish(self.held as u16);
        }
        // Also after a fault: the packets before it go out, with their metadata.
        self.read_headers(batch);
        outcome
    }

    #[inline]
    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault> {
        if self.held > 0 {
            self.queue.give_back_unwritten(self.taken.get(..self.held).unwrap_or_default());
            self.held = 0;
            self.queue.publish();
            if self.queue.wants_call() {
                self.call.tell(tools);
            }
        }
        if self.queue.faulted() { Err(Fault::Memory) } else { Ok(()) }
    }

    fn set_signalled(&mut self, on: bool) {
        self.queue.set_kicks(on);
        if on {
            // The driver publishes and then checks whether to kick; this side requests kicks and then checks for
            // published chains.
            fence(Ordering::SeqCst);
        }
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.position.store(self.queue.base(), Ordering::Release);
    }
}
