//! Crossing from bridge to bridge within a worker: packets that leave at one port enter at another at once.
//!
//! The lists of a batch are delivered one after the other. A list for an [`Inlet`] becomes a batch of another bridge,
//! on a level of its own below the first: it is switched and delivered there before the next list. Only private headers
//! are copied, as for every batch; the payload stays where its sender put it, since the first batch is given back only
//! after everything that came of it.
//!
//! Bridges connected in a ring would pass a packet on forever, and bridges in a mesh would multiply it. So there are
//! two limits: a packet crosses at most [`MAX_DEPTH`] times, and all packets that come of one batch at most
//! [`MAX_CROSSINGS`] times. Packets beyond these are dropped where they would have crossed, as `loop`.
//!
//! Packets stay in order between two queues if there is one path between them; of two paths, one may be faster.
//!
//! Invariants: a level's memory is allocated when a worker first needs it, and kept; the state of a bridge met below
//! stays valid until the worker's next quiescent point, which is after the first batch; memory that a logic supplies
//! for headers holds those of one batch at a time, so a bridge that supplies some is not entered again from below
//! itself.

use std::sync::Arc;

use crate::bridge::port::PortIndex;
use crate::bridge::published::PublishedBridge;
use crate::copy;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::decide::forward::forward;
use crate::deliver::egress::Egress;
use crate::deliver::levels::Level;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::{Output, OutputList};
use crate::rx::record::{Segment, state};
use crate::rx::{HEADROOM, MAX_SEGMENTS, PULL_MAX, RxBatch};

pub use crate::deliver::levels::{MAX_CROSSINGS, MAX_DEPTH};

/// Entrance to a bridge for packets that leave at other ports, as if the client of a port had sent them.
///
/// As a destination it takes everything that it is given, and passes it on within the call.
pub struct Inlet {
    bridge: Arc<PublishedBridge>,
    ingress: PortIndex,
    counters: Arc<QueueCounters>,
}

impl Inlet {
    pub(crate) fn new(
        bridge: Arc<PublishedBridge>,
        ingress: PortIndex,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self { bridge, ingress, counters }
    }
}

impl Egress for Inlet {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        if !self.cross(list, counters, tools) {
            let mut drops = Drops::default();
            drops.add(DropReason::Loop, list.len() as u32);
            counters.add_drops(&mut drops);
            list.refuse_rest(DropReason::Loop);
        }
        Ok(())
    }
}

impl Inlet {
    /// Switches the packets in this inlet's bridge. Returns false, with nothing done, if they may not cross.
    fn cross(&self, list: &OutputList<'_>, sent: &QueueCounters, tools: &mut Tools) -> bool {
        let Some((worker, mut level)) = tools.nested.descend(list.len() as u32, list.arena()) else {
            return false;
        };
        // SAFETY: only a worker's nested batches can be descended into; the worker is awake, and `bridge` does not
        // outlive this function, in which the worker passes no quiescent point.
        let bridge = unsafe { self.bridge.get() };
        let arena = bridge.arena(worker);
        if arena.is_some_and(|arena| tools.nested.holds(arena)) {
            tools.nested.ascend(level);
            return false;
        }
        let (mut packets, mut bytes) = (0, 0);
        let Level { batch, pad } = &mut *level;
        let mut outputs = list.iter();
        let mut next = outputs.next();
        while let Some(output) = next {
            batch.clear();
            if let Some(arena) = arena {
                // SAFETY: the arena is this worker's own and no batch above uses it; this batch returns it below, when
                // everything that comes of it is done.
                unsafe { batch.keep_headers_in(arena) };
            }
            packets += 1;
            bytes += u64::from(output.len());
            // SAFETY: `list` borrows the batch above, which stays unchanged until this one is done.
            unsafe { batch.carry(&output) };
            next = outputs.next();
            while let Some(output) = &next
                && batch.may_carry()
            {
                packets += 1;
                bytes += u64::from(output.len());
                // SAFETY: as above.
                unsafe { batch.carry(output) };
                next = outputs.next();
            }
            batch.load_carried();
            self.counters.add_batch(batch.len() as u64, batch.bytes);
            if !batch.is_empty() {
                forward(batch, pad, tools, bridge, self.ingress);
            }
            self.counters.add_drops(&mut batch.drops);
            self.counters.add_drops(&mut pad.drops);
        }
        batch.clear();
        tools.nested.ascend(level);
        sent.add_batch(packets, bytes);
        true
    }
}

impl RxBatch {
    /// Whether another packet of a batch above this one fits.
    #[inline]
    fn may_carry(&self) -> bool {
        // A private header, and as many pieces as a packet may come in.
        self.packets < self.limits.packets && self.used_segments + 1 + MAX_SEGMENTS <= self.segments.len()
    }

    /// Adds a packet of another batch in the form in which it leaves that one: its private header is the first piece.
    ///
    /// # Safety
    /// The other batch stays unchanged until this one is emptied.
    #[inline]
    unsafe fn carry(&mut self, output: &Output<'_>) {
        let mut put = |at: *const u8, len: usize| {
            if let Some(segment) = self.segments.get_mut(self.used_segments) {
                *segment = Segment { at, len: len as u32 };
                self.used_segments += 1;
                self.open_len += len as u64;
            }
        };
        if !output.header().is_empty() {
            put(output.header().as_ptr(), output.header().len());
        }
        output.for_each_payload(put);
        self.end_packet_in_class(output.offload(), output.class());
    }

    /// [`RxBatch::load_headers`] for packets of another batch: a header that was private there is private here,
    /// whatever its length.
    #[inline]
    fn load_carried(&mut self) {
        self.load_headers();
        for i in 0..self.packets {
            let record = &self.records[i];
            let first = match record.has(state::PIECES) {
                true => self.segments[record.first_piece as usize],
                false => Segment { at: record.at, len: record.to },
            };
            if first.len > u32::from(record.header_len) {
                self.load_long(i, first);
            }
        }
    }

    /// Makes all of a private piece the header of packet `i`.
    #[cold]
    fn load_long(&mut self, i: usize, piece: Segment) {
        let len = (piece.len as usize).min(HEADROOM + PULL_MAX);
        let start = (HEADROOM + PULL_MAX - len).min(HEADROOM);
        if let Some(to) = self.slots[i].0.get_mut(start..start + len) {
            // SAFETY: the piece has `len` bytes, by `carry`'s contract, and so has `to`.
            unsafe { copy::bytes(piece.at, to.as_mut_ptr(), len) };
        }
        let record = &mut self.records[i];
        (record.start, record.header_len, record.from) = (start as u16, len as u16, len as u32);
    }
}
