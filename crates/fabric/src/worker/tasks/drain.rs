//! Drains: deliver packets that were decided and retained earlier, in order.
//!
//! A drain empties one [`Retained`] ring, a batch at a time, as fast as its [`Gate`] opens. What the destination does
//! not take is dropped and counted there, as for any delivery; observers are not shown it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{Context, Next, PAUSE, Ran, Token};
use crate::clock;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::deliver::queueing::Retained;
use crate::fault::Fault;
use crate::lists::output::{OutputList, RunPool};
use crate::rx::MAX_BATCH;
use crate::wake::doorbell::EventBell;

/// When the packet at the front of a queue may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Now.
    Now,
    /// Not before this time on the [cycle counter](crate::clock::cycles).
    At(u64),
}

/// Decides when the packets of a queue may leave: the interface for shapers. Called by one worker at a time.
pub trait Gate: Send {
    /// Returns when the packet at the front, of `bytes` bytes and class `class`, may leave, given that it is `now`.
    /// After [`Opening::Now`] the packet leaves.
    fn opening(&mut self, now: u64, bytes: u32, class: u16) -> Opening;
}

/// A gate that is always open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Gate for Open {
    fn opening(&mut self, _now: u64, _bytes: u32, _class: u16) -> Opening {
        Opening::Now
    }
}

/// Drains a ring of retained packets into their destination. See the module.
pub(crate) struct Drain {
    retained: Arc<Retained<EventBell>>,
    gate: Box<dyn Gate>,
    egress: Arc<dyn Egress>,
    counters: Arc<QueueCounters>,
    client: Arc<Client>,
    token: Token,
    runs: RunPool,
    dead: bool,
}

impl Drain {
    pub(crate) fn new(
        retained: Arc<Retained<EventBell>>,
        gate: Box<dyn Gate>,
        egress: Arc<dyn Egress>,
        counters: Arc<QueueCounters>,
        client: Arc<Client>,
        token: Token,
    ) -> Self {
        let runs = RunPool::new(MAX_BATCH);
        Self { retained, gate, egress, counters, client, token, runs, dead: false }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.retained.doorbell.bell().as_fd()
    }

    pub(crate) fn set_signalled(&mut self, on: bool) {
        // The worker polls the ring after this, whether or not it was rung before.
        let _ = if on { self.retained.doorbell.arm() } else { self.retained.doorbell.disarm() };
    }

    /// Delivers a batch.
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        if self.dead {
            return Ran { packets: 0, next: Next::Never };
        }
        if self.client.is_quarantined() {
            return Ran { packets: 0, next: Next::At(now.saturating_add(clock::from_duration(PAUSE))) };
        }
        context.tools.activity.leave();
        context.tools.activity.deliver(&self.client);
        let batch = &mut context.batch;
        batch.clear();
        batch.queue = 0;
        let front = self.retained.front();
        let (mut at, mut next) = (front, Next::Round);
        while batch.has_room()
            && let Some(packet) = self.retained.packet(at)
        {
            if let Opening::At(time) = self.gate.opening(now, packet.len, packet.class) {
                next = Next::At(time);
                break;
            }
            self.retained.for_each_piece(&packet, |piece, len| {
                // SAFETY: the slots of the packet belong to this reader until they are released below. It has fewer
                // pieces than a packet may have.
                let _ = unsafe { batch.add_segment(piece, len) };
            });
            batch.end_packet(packet.offload);
            at = packet.end();
        }
        // A packet that a tag made longer than the maximum has no place in a batch.
        self.counters.add_drops(&mut batch.drops);
        let packets = batch.len();
        if packets > 0 {
            batch.load_headers();
            context.tools.nested.begin();
            self.deliver(context, packets);
            context.count(packets);
        }
        if at != front {
            self.retained.release(at);
        }
        Ran { packets, next: if self.dead { Next::Never } else { next } }
    }

    fn deliver(&mut self, context: &mut Context, packets: usize) {
        let mut list = OutputList::of_all(&context.batch, &mut self.runs, packets);
        if let Err(fault) = context.tools.deliver(&*self.egress, &mut list, &self.counters) {
            self.dead = true;
            self.fail(fault);
        }
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.client.fault(fault);
    }

    /// Drops the remaining packets, once nothing more is retained.
    pub(crate) fn discard(self) {
        let (mut at, mut drops) = (self.retained.front(), Drops::default());
        while let Some(packet) = self.retained.packet(at) {
            drops.add(DropReason::PortDown, 1);
            at = packet.end();
        }
        self.retained.release(at);
        self.counters.add_drops(&mut drops);
    }
}
