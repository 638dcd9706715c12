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
use crate::queueing::retained::Sum;
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
    /// The packets of the batch, the numbers of those that were marked, and the scheduler's state before them.
    leaving: Vec<Run>,
    marked: Vec<usize>,
    before: Scheduler,
    /// Cycles before the receiver is asked again, while it has no room.
    retry: u64,
    dead: bool,
}

/// Packets of the batch, one after the other from one queue.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Their queue's place in the plan.
    queue: usize,
    /// Place of their class among the present ones.
    class: usize,
    /// Why they are next; `None` for packets of a former queue.
    pick: Option<Pick>,
    sum: Sum,
    /// Their first slot, and the one after them.
    start: u32,
    end: u32,
    /// The last one was the last of its queue.
    is_last: bool,
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
        let before = scheduler.clone();
        Self {
            lane,
            plan,
            version,
            scheduler,
            counters,
            client,
            token,
            runs,
            leaving: Vec::with_capacity(MAX_BATCH),
            marked: Vec::with_capacity(MAX_BATCH),
            before,
            retry: 0,
            dead: false,
        }
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
        self.marked.clear();
        self.before.restore(&self.scheduler);
        let next = match self.plan.former_waiting() {
            Some(place) => self.gather_former(batch, now, place),
            None => self.gather(batch, now),
        };
        let packets = batch.len();
        if packets == 0 {
            return Ran { packets: 0, next };
        }
        if self.plan.classes.marks() {
            batch.load_headers();
            self.mark(batch);
        } else {
            batch.leave_unloaded();
        }
        context.tools.nested.begin();
        let done = match self.deliver(context, packets) {
            Ok(done) => done,
            Err(fault) => {
                self.dead = true;
                self.fail(fault);
                return Ran { packets: 0, next: Next::Never };
            }
        };
        self.settle(done, now);
        context.count(done);
        if done < packets {
            self.go_back();
            return Ran { packets: done, next: self.retry(done, now) };
        }
        self.retry = 0;
        Ran { packets: done, next }
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
        let Self { plan, scheduler, leaving, lane, counters, .. } = self;
        let mut fronts = [0u32; Set::BITS as usize];
        let mut waiting: Set = 0;
        for (place, (queue, front)) in plan.queues.iter().zip(&mut fronts).enumerate() {
            *front = queue.retained.front();
            waiting |= Set::from(queue.retained.has_packet(*front)) << place;
        }
        while waiting != 0 && batch.has_room() {
            let (pick, budget) = match plan.classes.next(scheduler, now, waiting) {
                Choice::Class(pick, budget) => (pick, budget),
                Choice::At(time) => return Next::At(look_before(time, now)),
                Choice::Held(time) => return Next::Before(look_before(time, now)),
            };
            let place = pick.place;
            let (Some(queue), Some(front)) = (plan.queues.get(place), fronts.get_mut(place)) else { break };
            let start = *front;
            let sum = queue.retained.add_run(batch, front, budget, now);
            if sum.packets == 0 {
                // The next packet does not fit a batch: those before it are released first. Or another worker has just
                // taken the tokens.
                if !batch.is_empty() || !drop_misfit(lane, plan, counters, place) {
                    break;
                }
                *front = queue.retained.front();
            }
            plan.classes.sent(scheduler, now, pick, sum.bytes);
            let (end, is_last) = (*front, !queue.retained.has_packet(*front));
            if is_last {
                waiting &= !(1 << place);
                scheduler.emptied(place);
            }
            if sum.packets > 0 {
                leaving.push(Run { queue: place, class: place, pick: Some(pick), sum, start, end, is_last });
            }
        }
        Next::Round
    }

    /// Fills the batch from a queue of a former configuration, at whatever rate.
    #[cold]
    fn gather_former(&mut self, batch: &mut RxBatch, now: u64, place: usize) -> Next {
        let Self { plan, leaving, lane, counters, .. } = self;
        let Some(queue) = plan.queue(place) else { return Next::Round };
        let mut at = queue.retained.front();
        // One by one: their classes may be others now.
        while let Some(packet) = queue.retained.packet(at).filter(|_| batch.has_room()) {
            let start = at;
            let sum = queue.retained.add_run(batch, &mut at, 1, now);
            if sum.packets == 0 {
                if !batch.is_empty() || !drop_misfit(lane, plan, counters, place) {
                    break;
                }
                at = queue.retained.front();
                continue;
            }
            let class = plan.classes.place(packet.class);
            leaving.push(Run { queue: place, class, pick: None, sum, start, end: at, is_last: false });
        }
        Next::Round
    }

    /// Marks the packets that early detection picks.
    #[cold]
    fn mark(&mut self, batch: &mut RxBatch) {
        let Self { plan, leaving, marked, .. } = self;
        let mut v = 0;
        for run in leaving {
            let early = plan.classes.all().get(run.class).and_then(|class| class.early.as_ref());
            let Some(early) = early.filter(|early| early.settings().marks) else {
                v += run.sum.packets;
                continue;
            };
            for number in 0..run.sum.packets as u32 {
                if early.picks_number(run.start.wrapping_add(number))
                    && batch.header_mut(v).is_some_and(packet::ecn::mark)
                {
                    marked.push(v);
                }
                v += 1;
            }
        }
    }

    /// Delivers the batch as far as the receiver has room; returns the number of packets that are done with.
    fn deliver(&mut self, context: &mut Context, packets: usize) -> Result<usize, Fault> {
        let Context { batch, tools, .. } = context;
        let mut list = OutputList::of_all(batch, &mut self.runs, packets);
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
    fn settle(&mut self, done: usize, now: u64) {
        let Self { plan, leaving, marked, .. } = self;
        let (mut v, mut left) = (0, done);
        for run in leaving.iter_mut() {
            let Some(retained) = plan.queue(run.queue).map(|queue| &queue.retained) else { continue };
            let all = run.sum;
            if left < all.packets {
                // Some of them stay.
                let mut at = retained.front();
                *run = Run { sum: retained.sum(&mut at, left, now), end: at, is_last: false, ..*run };
                if let Some(pick) = run.pick {
                    plan.classes.unsent(pick, all.bytes - run.sum.bytes);
                }
            }
            let Sum { packets, bytes, waited, longest } = run.sum;
            if packets == 0 {
                continue;
            }
            retained.release(run.end);
            let its = v..v + packets;
            let marked = marked.iter().filter(|v| its.contains(v)).count() as u64;
            if let Some(class) = plan.classes.all().get(run.class) {
                let packets = packets as u64;
                class.counts.end_wait(Waits { packets, bytes, cycles: waited, longest, marked });
            }
            (v, left) = (its.end, left - packets);
        }
        self.lane.backlog.end(done as u32);
    }

    /// Takes the scheduler to the state after the packets that have left.
    #[cold]
    fn go_back(&mut self) {
        let Self { plan, scheduler, leaving, before, .. } = self;
        scheduler.restore(before);
        for run in leaving.iter().filter(|run| run.sum.packets > 0) {
            let Some(pick) = run.pick else { continue };
            plan.classes.repeat(scheduler, pick, run.sum.bytes);
            if run.is_last {
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

/// Drops the next packet of a queue if it has no place in a batch; returns whether it is dropped.
#[cold]
fn drop_misfit(lane: &LaneQueues, plan: &Plan, counters: &QueueCounters, place: usize) -> bool {
    let Some(retained) = plan.queue(place).map(|queue| &queue.retained) else { return false };
    let Some(packet) = retained.packet(retained.front()) else { return false };
    let Some(reason) = packet.misfit() else { return false };
    counters.add_drop(reason);
    retained.release(packet.end());
    if let Some(class) = plan.classes.all().get(plan.classes.place(packet.class)) {
        class.counts.withdraw(1);
    }
    lane.backlog.end(1);
    true
}
