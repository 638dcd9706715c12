//! Taking in: one batch from a receive queue, through the logic of its bridge, to its destinations.

use std::sync::Arc;

use super::turn::Turn;
use super::{Context, Next, PAUSE, Ran, Token};
use crate::bridge::port::PortIndex;
use crate::bridge::published::PublishedBridge;
use crate::clock;
use crate::counters::QueueCounters;
use crate::decide::forward::forward;
use crate::deliver::client::Client;
use crate::rx::{HEADER_COPY, RxQueue};

/// A receive queue and the port it belongs to.
pub(crate) struct TakeIn {
    pub(crate) queue: Box<dyn RxQueue>,
    /// Its [`RxQueue::entries`].
    pub(crate) entries: u32,
    pub(crate) bridge: Arc<PublishedBridge>,
    pub(crate) ingress: PortIndex,
    /// Queue number within the port.
    pub(crate) number: u16,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) client: Arc<Client>,
    pub(crate) turn: Turn,
    pub(crate) token: Token,
    /// The client broke the rules: the queue is never used again, on any worker.
    pub(crate) dead: bool,
}

impl TakeIn {
    /// Takes one batch and switches it.
    #[inline]
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        if self.client.is_quarantined() {
            return Ran { packets: 0, next: Next::At(now.saturating_add(clock::from_duration(PAUSE))) };
        }
        context.tools.activity.enter(&self.client);
        context.tools.smallest_ring = self.entries;
        let batch = &mut context.batch;
        batch.clear();
        batch.queue = self.number;
        let usual = batch.limits.packets;
        batch.limits.packets = usual.min(self.turn.packets());
        let received = self.queue.receive(batch);
        batch.limits.packets = usual;
        let packets = batch.len();
        if packets > 0 {
            // SAFETY: the worker that runs this is awake, and `bridge` does not outlive this function.
            let bridge = unsafe { self.bridge.get() };
            context.load_for(bridge);
            if self.client.is_abandoned() {
                // Detached while this thread was held up: the port may already have another client.
                context.batch.clear();
                self.dead = true;
                return Ran { packets: 0, next: Next::Never };
            }
            context.tools.activity.loaded(context.batch.longest <= HEADER_COPY as u32);
            let Context { batch, pad, tools, .. } = context;
            forward(batch, pad, tools, bridge, self.ingress);
            self.counters.add_batch_alone(packets as u64, batch.bytes);
            context.count(packets);
            context.tools.activity.enter(&self.client);
        }
        // A queue that drops all that it receives has more, as one whose packets are switched.
        let processed = packets + context.batch.drops.total() as usize;
        self.counters.add_drops(&mut context.batch.drops);
        self.counters.add_drops(&mut context.pad.drops);
        if let Err(fault) = received.and_then(|()| self.queue.complete(&mut context.tools)) {
            self.dead = true;
            self.client.fault(fault);
        }
        Ran { packets: processed, next: if self.dead { Next::Never } else { Next::Round } }
    }
}
