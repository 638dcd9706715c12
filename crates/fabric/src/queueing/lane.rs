//! The queues of one transmit queue of a port: as a destination, filled by any worker, and as their drain finds them.
//!
//! Invariant: queues of a former configuration are emptied before the present ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::{NIL, OutputList, RunPool, verdicts};
use crate::protection::{MAX_WAITING_QUEUES, Waiting};
use crate::queueing::backlog::Backlog;
use crate::queueing::classes::{Classes, Shares, places};
use crate::queueing::retained::{ClassQueue, Retained};
use crate::queueing::scheduler::Set;
use crate::wake::doorbell::{Doorbell, EventBell};

/// The queues of a transmit queue, for as long as a client is attached and packets wait at its port.
pub(crate) struct LaneQueues {
    /// Where packets go.
    pub(crate) behind: Arc<dyn Egress>,
    pub(crate) backlog: Backlog,
    /// Rung for the drain.
    pub(crate) doorbell: Arc<Doorbell<EventBell>>,
    plan: Mutex<Arc<Plan>>,
    /// Number of the plan.
    version: AtomicU64,
}

/// The queues by class, for one configuration of the port.
pub(crate) struct Plan {
    pub(crate) classes: Arc<Classes>,
    /// By the class's place.
    pub(crate) queues: Box<[Arc<ClassQueue>]>,
    /// Queues of former configurations: they get packets of lists that are on their way only.
    pub(crate) former: Vec<Arc<ClassQueue>>,
}

/// A configuration that is not in effect yet.
pub(crate) struct Planned(Arc<Plan>);

impl Planned {
    /// Bytes of memory that its queues may take.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl Plan {
    /// Queues for these classes; those of `before` are kept where class and room are the same.
    fn new(classes: &Arc<Classes>, before: Option<&Plan>) -> Self {
        let Waiting { buffers } = classes.limits.waiting.unwrap_or_default();
        let numbers =
            |classes: &Classes| classes.all().iter().map(|class| class.number()).collect::<Vec<_>>();
        let kept = |number: u16| {
            let before = before?;
            let place = numbers(&before.classes).binary_search(&number).ok()?;
            before.queues.get(place).filter(|it| it.retained.size() == Retained::slots(buffers)).cloned()
        };
        let queues: Box<[_]> = numbers(classes)
            .into_iter()
            .map(|number| kept(number).unwrap_or_else(|| Arc::new(ClassQueue::new(buffers))))
            .collect();
        let is_former = |queue: &&Arc<ClassQueue>| !queues.iter().any(|present| Arc::ptr_eq(present, queue));
        let (older, last) = before.map_or((&[][..], &[][..]), |before| (&before.former, &before.queues));
        let older = older.iter().filter(|it| it.retained.used() > 0);
        let former = older.chain(last).filter(is_former).cloned().collect();
        Self { classes: classes.clone(), queues, former }
    }

    /// Bytes of memory that the queues may take: those of former configurations while packets wait in them.
    fn bytes(&self) -> u64 {
        let former = self.former.iter().filter(|queue| queue.retained.used() > 0);
        self.queues.iter().chain(former).map(|queue| Retained::bytes(queue.retained.size())).sum()
    }

    /// The queue at a place: those of former configurations are behind the present ones.
    #[inline]
    pub(crate) fn queue(&self, place: usize) -> Option<&Arc<ClassQueue>> {
        let former = || self.former.get(place - self.queues.len());
        self.queues.get(place).or_else(former)
    }

    /// The place of a former queue with packets.
    #[inline]
    pub(crate) fn former_waiting(&self) -> Option<usize> {
        let has_packet = |queue: &Arc<ClassQueue>| queue.retained.has_packet(queue.retained.front());
        Some(self.queues.len() + self.former.iter().position(has_packet)?)
    }
}

/// Bytes of memory that new queues of one transmit queue take.
pub(crate) fn bytes(classes: &Classes) -> u64 {
    let Waiting { buffers } = classes.limits.waiting.unwrap_or_default();
    Retained::bytes(buffers) * classes.all().len() as u64
}

impl LaneQueues {
    /// Queues in front of a destination. Fails if the kernel has no eventfd left.
    pub(crate) fn new(classes: &Arc<Classes>, behind: Arc<dyn Egress>) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            behind,
            backlog: Backlog::default(),
            doorbell: Arc::new(Doorbell::new(EventBell::new()?)),
            plan: Mutex::new(Arc::new(Plan::new(classes, None))),
            version: AtomicU64::new(0),
        }))
    }

    /// Bytes of memory that they may take.
    pub(crate) fn bytes(&self) -> u64 {
        self.plan().0.bytes()
    }

    /// The plan for another configuration.
    pub(crate) fn planned(&self, classes: &Arc<Classes>) -> Planned {
        let (before, _) = self.plan();
        let is_same = Arc::ptr_eq(&before.classes, classes);
        Planned(if is_same { before } else { Arc::new(Plan::new(classes, Some(&before))) })
    }

    /// Changes the configuration: for lists of workers that see the bridge's next state.
    pub(crate) fn configure(&self, Planned(planned): Planned) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&plan, &planned) {
            *plan = planned;
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The present plan, and its number.
    pub(crate) fn plan(&self) -> (Arc<Plan>, u64) {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        (plan.clone(), self.version.load(Ordering::Relaxed))
    }

    /// Number of the present plan.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

/// The queues as a destination in a bridge's state.
pub(crate) struct Queued {
    lane: Arc<LaneQueues>,
    plan: Arc<Plan>,
}

impl Queued {
    /// The queues as they are configured now.
    pub(crate) fn new(lane: Arc<LaneQueues>) -> Self {
        let (plan, _) = lane.plan();
        Self { lane, plan }
    }

    /// Copies a list into the queues of its classes.
    fn wait(
        &self,
        list: &mut OutputList<'_>,
        shares: &Shares,
        now: u64,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let mut drops = Drops::default();
        let early = self.drop_early(list, shares);
        if early > 0 {
            drops.add(DropReason::EarlyDrop, early);
        }
        let all = list.len() as u32;
        if all == 0 {
            counters.add_drops(&mut drops);
            return Ok(());
        }
        self.lane.backlog.begin(all);
        let full = match shares {
            Shares::One { place, .. } => self.put(*place, list, now, tools)?,
            Shares::Several { present, .. } => self.put_by_class(list, *present, now, tools)?,
        };
        if full > 0 {
            self.lane.backlog.end(full);
            drops.add(DropReason::QueueFull, full);
        }
        counters.add_drops(&mut drops);
        if full < all {
            tools.notifier.add_bell(&self.lane.doorbell);
        }
        Ok(())
    }

    /// Copies a list of one class into its queue; returns the packets without room.
    fn put(
        &self,
        class: usize,
        list: &mut OutputList<'_>,
        now: u64,
        tools: &mut Tools,
    ) -> Result<u32, Fault> {
        let all = list.len() as u32;
        let (Some(queue), Some(class)) = (self.plan.queues.get(class), self.plan.classes.all().get(class))
        else {
            return Ok(all);
        };
        class.counts.wait(all);
        let full = queue.put(list, now, tools)?;
        if full > 0 {
            class.counts.withdraw(full);
            class.counts.refuse(full);
        }
        Ok(full)
    }

    /// Sorts a list by class, and copies each class's part into its queue; returns the packets without room.
    #[cold]
    fn put_by_class(
        &self,
        list: &mut OutputList<'_>,
        present: Set,
        now: u64,
        tools: &mut Tools,
    ) -> Result<u32, Fault> {
        let mut pool = tools.sorted.take().unwrap_or_else(|| Box::new(RunPool::of_batch()));
        pool.clear();
        let classes = &self.plan.classes;
        let (mut heads, mut tails) = ([NIL; MAX_WAITING_QUEUES], [NIL; MAX_WAITING_QUEUES]);
        for output in list.iter() {
            let place = classes.place(output.class());
            let (Some(head), Some(tail)) = (heads.get_mut(place), tails.get_mut(place)) else { continue };
            // There is room: each output of the batch has three runs here.
            let Some(run) = pool.add(output.version(), NIL) else { continue };
            match pool.get_mut(*tail) {
                Some(last) => last.next = run,
                None => *head = run,
            }
            *tail = run;
        }
        let mut full = 0;
        for place in places(present) {
            let head = heads.get(place).copied().unwrap_or(NIL);
            let mut part = OutputList::new(list.batch(), &mut pool, head);
            if !part.is_empty() {
                full += self.put(place, &mut part, now, tools)?;
            }
        }
        if full > 0 {
            let mut refused = heads.map(|head| verdicts(&pool, head));
            list.retain(|output| {
                let of_class = refused.get_mut(classes.place(output.class()));
                of_class.and_then(Iterator::next).flatten().map_or(Ok(()), Err)
            });
        }
        tools.sorted = Some(pool);
        Ok(full)
    }

    /// Drops what early detection of congestion picks; returns its number.
    fn drop_early(&self, list: &mut OutputList<'_>, shares: &Shares) -> u32 {
        let classes = self.plan.classes.all();
        let is_detected = |class: usize| classes.get(class).is_some_and(|it| it.early.is_some());
        if !places(shares.present()).any(is_detected) {
            return 0;
        }
        list.hold(DropReason::EarlyDrop, |output| {
            let place = self.plan.classes.place(output.class());
            let Some(class) = classes.get(place) else { return true };
            let Some(early) = &class.early else { return true };
            early.come(class.counts.depth());
            if early.settings().marks && packet::ecn::is_capable(output.header()) {
                return true;
            }
            let picked = early.picks();
            if picked {
                class.counts.drop_early(1);
            }
            !picked
        })
    }
}

impl Egress for Queued {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let (now, classes) = (clock::cycles(), &self.plan.classes);
        let shares = classes.shares(list);
        if self.lane.backlog.is_none() && classes.take(&shares, now) {
            let all = list.len() as u32;
            if self.lane.behind.deliver_front(list, all, counters, tools)? == all {
                classes.count(&shares);
                return Ok(());
            }
            classes.give_back(&shares);
        }
        self.wait(list, &shares, now, counters, tools)
    }

    /// Only for lists that passed at once: the drain has its own signalled.
    fn notify(&self, tools: &mut Tools) {
        self.lane.behind.notify(tools);
    }

    /// Packets that wait, here and behind.
    fn depth(&self, counters: &QueueCounters) -> u32 {
        let waiting = self.lane.backlog.packets();
        waiting.saturating_add(self.lane.behind.depth(counters))
    }
}
