//! Drains: deliver packets that wait in a port's [queues](crate::queueing), in the order of its scheduler.
//!
//! A drain empties the queues of one transmit queue, a batch at a time, as fast as rates and the receiver allow. What
//! the receiver has no room for stays; what it does not take for another reason is dropped and counted there, as for any
//! delivery. Observers are not shown it.
//!
//! Invariant: a queue's slots are released after the delivery of their packets, and only then do packets count as no
//! longer waiting.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::{Context, Next, PAUSE, Ran, Token};
use crate::clock;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::deliver::client::Client;
use crate::fault::Fault;
use crate::lists::output::{OutputList, RunPool};
use crate::queueing::classes::{Choice, Pick, Waits};
use crate::queueing::lane::{LaneQueues, Plan};
use crate::queueing::retained::RetainedPacket;
use crate::queueing::scheduler::{Scheduler, Set};
use crate::rx::{MAX_BATCH, RxBatch};
use crate::sync::{Ordering, fence};

/// Time before a receiver without room is asked again: at first, and at most; doubled each time.
const RETRY: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(10));

/// Empties the queues of a transmit queue. See the module.
pub(crate) struct Drain {
    lane: Arc<LaneQueues>,
    plan: Arc<Plan>,
    /// Number of the plan.
    version: u64,
    scheduler: Scheduler,
    counters: Arc<QueueCounters>,
    client: Arc<Client>,
    token: Token,
    runs: RunPool,
    /// The packets of the batch, and the scheduler's state before them.
    leaving: Vec<Leaving>,
    before: Scheduler,
    /// Cycles before the receiver is asked again, while it has no room.
    retry: u64,
    dead: bool,
}

/// A packet of the batch.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    /// Its queue's place in the plan.
    queue: usize,
    /// Place of its class among the present ones.
    class: usize,
    /// Why it is next; `None` for a packet of a former queue.
    pick: Option<Pick>,
    /// The slot after it.
    end: u32,
    len: u32,
    /// Cycles that it has waited.
    waited: u64,
    /// It was the last of its queue.
    is_last: bool,
    /// It was marked.
    is_marked: bool,
}

impl Leaving {
    fn of(packet: &RetainedPacket, queue: usize, class: usize, now: u64) -> Self {
        let (end, len, waited) = (packet.end(), packet.len, packet.waited(now));
        Self { queue, class, pick: None, end, len, waited, is_last: false, is_marked: false }
    }
}

/// A drain looks for another configuration at least this often.
const LOOK: Duration = Duration::from_millis(100);

impl Drain {
    pub(crate) fn new(
        lane: Arc<LaneQueues>,
        counters: Arc<QueueCounters>,
        client: Arc<Client>,
        token: Token,
    ) -> Self {
        let (plan, version) = lane.plan();
        let (scheduler, runs) = (plan.classes.scheduler(), RunPool::new(MAX_BATCH));
        let (leaving, before) = (Vec::with_capacity(MAX_BATCH), scheduler.clone());
        let (retry, dead) = (0, false);
        Self { lane, plan, version, scheduler, counters, client, token, runs, leaving, before, retry, dead }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.lane.doorbell.bell().as_fd()
    }

    pub(crate) fn set_signalled(&mut self, on: bool) {
        if !on {
            // The worker polls the queues after this, whether or not it was rung before.
            let _ = self.lane.doorbell.disarm();
        } else if self.lane.doorbell.arm() {
            // Packets came since the queues were looked at, perhaps of a class that may leave.
            self.lane.doorbell.ring();
        }
    }

    /// Delivers a batch.
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        if self.dead {
            return Ran { packets: 0, next: Next::Never };
        }
        if self.client.is_quarantined() {
            return Ran { packets: 0, next: Next::At(now.saturating_add(clock::from_duration(PAUSE))) };
        }
        if self.version != self.lane.version() {
            self.follow();
        }
        // What rings from here on is news.
        let _ = self.lane.doorbell.answer();
        context.tools.activity.leave();
        context.tools.activity.deliver(&self.client);
        let batch = &mut context.batch;
        batch.clear();
        batch.queue = 0;
        self.leaving.clear();
        let next = match self.plan.former_waiting() {
            Some(place) => self.gather_former(batch, now, place),
            None => self.gather(batch, now),
        };
        if self.leaving.is_empty() {
            return Ran { packets: 0, next };
        }
        batch.load_headers();
        self.mark(batch);
        context.tools.nested.begin();
        let done = match self.deliver(context) {
            Ok(done) => done,
            Err(fault) => {
                self.dead = true;
                self.fail(fault);
                return Ran { packets: 0, next: Next::Never };
            }
        };
        self.settle(done);
        context.count(done);
        Ran { packets: done, next: if done < self.leaving.len() { self.retry(done, now) } else { next } }
    }

    /// Goes on with the present configuration.
    #[cold]
    fn follow(&mut self) {
        (self.plan, self.version) = self.lane.plan();
        self.scheduler = self.plan.classes.scheduler();
        self.before = self.scheduler.clone();
    }

    /// Fills the batch in the scheduler's order; returns when to go on if it can take no more now.
    #[inline]
    fn gather(&mut self, batch: &mut RxBatch, now: u64) -> Next {
        let Self { plan, scheduler, leaving, lane, counters, before, .. } = self;
        before.restore(scheduler);
        let mut fronts = [0u32; Set::BITS as usize];
        let mut waiting: Set = 0;
        for (place, (queue, front)) in plan.queues.iter().zip(&mut fronts).enumerate() {
            *front = queue.retained.front();
            waiting |= Set::from(queue.retained.has_packet(*front)) << place;
        }
        while waiting != 0 && batch.has_room() {
            let pick = match plan.classes.next(scheduler, now, waiting) {
                Choice::Packet(pick) => pick,
                Choice::At(time) => return Next::At(look_before(time, now)),
                Choice::Held(time) => return Next::Before(look_before(time, now)),
            };
            let place = pick.place;
            let (Some(queue), Some(front)) = (plan.queues.get(place), fronts.get_mut(place)) else { break };
            let Some(packet) = queue.retained.packet(*front) else { break };
            if packet.is_too_long() {
                if leaving.is_empty() {
                    drop_long(lane, plan, counters, place, &packet);
                }
                break;
            }
            *front = packet.end();
            let is_last = !queue.retained.has_packet(*front);
            queue.retained.add_to(batch, &packet);
            plan.classes.sent(scheduler, now, pick, packet.len);
            if is_last {
                waiting &= !(1 << place);
                scheduler.emptied(place);
            }
            leaving.push(Leaving { is_last, pick: Some(pick), ..Leaving::of(&packet, place, place, now) });
        }
        Next::Round
    }

    /// Fills the batch from a queue of a former configuration, at whatever rate.
    #[cold]
    fn gather_former(&mut self, batch: &mut RxBatch, now: u64, place: usize) -> Next {
        let Self { plan, leaving, lane, counters, .. } = self;
        let Some(queue) = plan.queue(place) else { return Next::Round };
        let mut at = queue.retained.front();
        while batch.has_room()
            && let Some(packet) = queue.retained.packet(at)
        {
            at = packet.end();
            if packet.is_too_long() {
                if leaving.is_empty() {
                    drop_long(lane, plan, counters, place, &packet);
                }
                break;
            }
            queue.retained.add_to(batch, &packet);
            leaving.push(Leaving::of(&packet, place, plan.classes.place(packet.class), now));
        }
        Next::Round
    }

    /// Marks the packets that early detection picks.
    #[inline]
    fn mark(&mut self, batch: &mut RxBatch) {
        let classes = self.plan.classes.all();
        for (v, packet) in self.leaving.iter_mut().enumerate() {
            let early = classes.get(packet.class).and_then(|class| class.early.as_ref());
            if early.is_some_and(|early| early.settings().marks && early.picks_number(packet.end)) {
                packet.is_marked = batch.header_mut(v).is_some_and(packet::ecn::mark);
            }
        }
    }

    /// Delivers the batch as far as the receiver has room; returns the number of packets that are done with.
    fn deliver(&mut self, context: &mut Context) -> Result<usize, Fault> {
        let Context { batch, tools, .. } = context;
        let mut list = OutputList::of_all(batch, &mut self.runs, self.leaving.len());
        tools.published = false;
        let done = self.lane.behind.deliver_front(&mut list, 0, &self.counters, tools);
        if tools.published {
            // See `Egress::notify`.
            fence(Ordering::SeqCst);
            self.lane.behind.notify(tools);
        }
        Ok(done? as usize)
    }

    /// Releases the first packets of the batch, which are done with, and keeps the others.
    #[inline]
    fn settle(&mut self, done: usize) {
        let Self { plan, scheduler, leaving, before, .. } = self;
        let (left, kept) = leaving.split_at_checked(done).unwrap_or((leaving, &[]));
        for run in left.chunk_by(|a, b| a.class == b.class) {
            let (mut bytes, mut cycles, mut longest, mut marked) = (0, 0, 0, 0);
            for packet in run {
                bytes += u64::from(packet.len);
                cycles += packet.waited;
                longest = longest.max(packet.waited);
                marked += u64::from(packet.is_marked);
                if let Some(queue) = plan.queue(packet.queue) {
                    queue.retained.release(packet.end);
                }
            }
            let class = run.first().and_then(|packet| plan.classes.all().get(packet.class));
            if let Some(class) = class {
                class.counts.end_wait(Waits { packets: run.len() as u64, bytes, cycles, longest, marked });
            }
        }
        self.lane.backlog.end(left.len() as u32);
        if kept.is_empty() {
            return;
        }
        for (pick, len) in kept.iter().filter_map(|packet| Some((packet.pick?, packet.len))) {
            plan.classes.unsent(pick, len);
        }
        // The turns are those of the packets that have left.
        scheduler.restore(before);
        for (packet, pick) in left.iter().filter_map(|packet| Some((packet, packet.pick?))) {
            plan.classes.repeat(scheduler, pick, packet.len);
            if packet.is_last {
                scheduler.emptied(pick.place);
            }
        }
    }

    /// When to ask a receiver again that had room for so many packets, fewer than there were.
    #[cold]
    fn retry(&mut self, done: usize, now: u64) -> Next {
        let (first, most) = (clock::from_duration(RETRY.0), clock::from_duration(RETRY.1));
        self.retry = if done > 0 { first } else { (self.retry * 2).clamp(first, most) };
        Next::At(now.saturating_add(self.retry))
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.client.fault(fault);
    }

    /// Drops the remaining packets, once none is added any more.
    pub(crate) fn discard(self) {
        let (plan, _) = self.lane.plan();
        let mut drops = Drops::default();
        for queue in plan.former.iter().chain(&plan.queues) {
            let mut at = queue.retained.front();
            let mut dropped = 0;
            while let Some(packet) = queue.retained.packet(at) {
                dropped += 1;
                at = packet.end();
                if let Some(class) = plan.classes.all().get(plan.classes.place(packet.class)) {
                    class.counts.withdraw(1);
                }
            }
            queue.retained.release(at);
            drops.add(DropReason::PortDown, dropped);
            self.lane.backlog.end(dropped);
        }
        self.counters.add_drops(&mut drops);
    }
}

/// The time, or an earlier one at which to look for another configuration.
fn look_before(time: u64, now: u64) -> u64 {
    time.min(now.saturating_add(clock::from_duration(LOOK)))
}

/// Drops a packet that a tag made longer than a batch may hold, the next of its queue.
#[cold]
fn drop_long(
    lane: &LaneQueues,
    plan: &Plan,
    counters: &QueueCounters,
    place: usize,
    packet: &RetainedPacket,
) {
    counters.add_drop(DropReason::Oversize);
    if let Some(queue) = plan.queue(place) {
        queue.retained.release(packet.end());
    }
    if let Some(class) = plan.classes.all().get(plan.classes.place(packet.class)) {
        class.counts.withdraw(1);
    }
    lane.backlog.end(1);
}
