//! From bridge to bridge within a worker: what leaves at one port enters at another one, at once.
//!
//! The lists of a batch are delivered one after the other. One that is for an [`Inlet`] becomes a batch of another bridge, on a
//! level of its own below the first: it is switched and delivered there before the next list is. Nothing is copied but private
//! headers, as for every batch; the payload stays where its sender put it, since the first batch is given back only when all that
//! came of it is done.
//!
//! Bridges that are connected in a ring would pass a packet on for ever, and in a mesh ever more of them. So there are two limits: a
//! packet crosses [`MAX_DEPTH`] times at most, and what came of one batch [`MAX_CROSSINGS`] times in all. What is beyond is dropped
//! where it would have crossed, as `loop`.
//!
//! Between two queues packets stay in order, if there is one way from one to the other: on two ways at once, one may be
//! faster.
//!
//! Invariants: a level's memory is made when a worker first needs it, and kept; a picture of a bridge that is met below stays what it
//! is until the worker's next quiescent point, which is after the first batch; memory that a logic supplies for headers
//! holds those of one batch at a time, so a bridge that supplies some is not entered again from below itself.

use std::sync::Arc;

use crate::bridge::cell::BridgeCell;
use crate::bridge::port::PortIndex;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::decide::forward::forward;
use crate::deliver::egress::Egress;
use crate::deliver::levels::Level;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::OutputList;

pub use crate::deliver::levels::{MAX_CROSSINGS, MAX_DEPTH};

/// Where packets that leave at other ports enter a bridge, as if the client of a port had sent them.
///
/// As a destination it takes whatever it is given, and hands it on within the call.
pub struct Inlet {
    bridge: Arc<BridgeCell>,
    ingress: PortIndex,
    counters: Arc<QueueCounters>,
}

impl Inlet {
    pub(crate) fn new(bridge: Arc<BridgeCell>, ingress: PortIndex, counters: Arc<QueueCounters>) -> Self {
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
    /// Switches the packets in this inlet's bridge. False, with nothing done, if they may not cross.
    fn cross(&self, list: &OutputList<'_>, sent: &QueueCounters, tools: &mut Tools) -> bool {
        let Some((worker, mut level)) = tools.nest.descend(list.len() as u32, list.arena()) else {
            return false;
        };
        // SAFETY: only a worker has a nest that can be descended into; it is awake, and `bridge` does not outlive this function,
        // in which it passes no quiescent point.
        let bridge = unsafe { self.bridge.get() };
        let arena = bridge.arena(worker);
        if arena.is_some_and(|arena| tools.nest.holds(arena)) {
            tools.nest.ascend(level);
            return false;
        }
        let (mut packets, mut bytes) = (0, 0);
        let Level { batch, pad } = &mut *level;
        let mut outputs = list.iter();
        let mut next = outputs.next();
        while let Some(output) = next {
            batch.clear();
            if let Some(arena) = arena {
                // SAFETY: it is this worker's own and no batch above has it; this one gives it back below, when all that comes of
                // it is done.
                unsafe { batch.keep_headers_in(arena) };
            }
            packets += 1;
            bytes += u64::from(output.len());
            // SAFETY: `list` borrows the batch above, which stays as it is until this one is done with.
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
        tools.nest.ascend(level);
        sent.add_batch(packets, bytes);
        true
    }
}
