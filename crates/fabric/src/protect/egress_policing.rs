//! Egress policing: limits of what leaves through a port, by queue, where packets do not wait ([`crate::queueing`]): the
//! port's queues are token buckets only; packets that exceed them are dropped ([`EgressLimits`]).
//!
//! [`Policed`] stands in front of each transmit queue of a port with limits, so that everything that leaves there
//! passes it, whatever sent it; other ports have their own queues in the bridge's state and pay nothing.
//!
//! With [`Scheme::Shares`] a packet of a queue passes:
//! - if its queue has not reached its maximum, and
//! - if its queue is within its guarantee: the port's bucket is charged even if that leaves it in debt; or
//! - if the port's bucket has tokens: what guarantees and queues before it have left over. The bucket's lower part is a
//!   reserve for queues of better priority: the share of the bucket that a queue may use shrinks with the number of
//!   priorities before its own. So while queues of one priority use up what is spare, the level stays below the reserve
//!   of the next priority, which gets nothing; while they leave some, the next priority gets that. Queues of equal
//!   priority share in the proportion in which they send.
//!
//! Invariants: guarantees are at most the port's rate together, so that over any time the port passes at most its rate
//! plus the bursts of its bucket and the guarantees; a packet takes tokens of all buckets or of none; a list within
//! the limits costs a few compare-exchanges, not each packet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock;
use crate::counters::{DropReason, Drops, QueueCounters};
use crate::deliver::egress::Egress;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::OutputList;
use crate::protect::bucket::Bucket;
use crate::protect::protection::{EgressLimits, Limit, MAX_WAITING_QUEUES, QueueLimits, Rates, Scheme};

/// Bytes of a link header, which do not count with [`Scheme::Marked`].
const LINK_HEADER: u32 = 14;

/// Counters of a queue of [`EgressLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressQueueSnapshot {
    /// Its number.
    pub queue: u16,
    /// Packets that left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that exceeded a limit and were dropped.
    pub policed: u64,
    /// Where packets wait.
    pub waiting: Option<WaitingSnapshot>,
    /// Time since it was made.
    pub age: Duration,
}

impl EgressQueueSnapshot {
    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.policed + self.waiting.map_or(0, |it| it.full + it.early)
    }
}

/// Counters of a queue where packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingSnapshot {
    /// Packets that wait now.
    pub packets: u64,
    /// Packets dropped because the queue had no room.
    pub full: u64,
    /// Packets dropped by early detection of congestion.
    pub early: u64,
    /// Packets marked instead (ECN).
    pub marked: u64,
    /// Packets that have waited; the others passed at once.
    pub waited: u64,
    /// Time that they have waited, together.
    pub waited_for: Duration,
    /// The longest time that one has.
    pub longest: Duration,
}

/// The limits of a port in effect, shared by all of its transmit queues.
#[derive(Debug)]
pub(crate) struct EgressPolicer {
    limits: Arc<EgressLimits>,
    /// Queue 0.
    default: Queue,
    /// The others, by number.
    queues: Box<[Queue]>,
    /// Bytes of each packet that do not count.
    uncounted: u32,
}

#[derive(Debug)]
struct Queue {
    number: u16,
    limits: Buckets,
    counts: Arc<Counts>,
}

/// All buckets that limit a queue, those of its port among them.
#[derive(Debug)]
enum Buckets {
    Shares {
        total: Option<Arc<Bucket>>,
        guarantee: Option<Arc<Bucket>>,
        maximum: Option<Arc<Bucket>>,
        /// Tokens of `total` that are for queues of better priority.
        reserve: u64,
    },
    Marked {
        queue: Marker,
        port: Marker,
    },
}

/// A marker of two rates (RFC 4115).
#[derive(Debug, Clone)]
struct Marker {
    committed: Option<Arc<Bucket>>,
    excess: Option<Arc<Bucket>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Green,
    Yellow,
}

#[derive(Debug)]
#[repr(align(64))]
struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    policed: AtomicU64,
    /// Monotonic time, nanoseconds.
    created: u64,
}

/// What is asked of buckets.
#[derive(Debug, Clone, Copy)]
enum Demand {
    /// A packet of this length, which passes a full bucket whatever its length.
    Packet(u32),
    /// Several packets of this length together.
    Several(u64),
}

impl Demand {
    fn tokens(self) -> u64 {
        match self {
            Demand::Packet(len) => len.into(),
            Demand::Several(len) => len,
        }
    }

    fn takes(self, bucket: &Bucket, now: u64, reserve: u64) -> bool {
        match self {
            Demand::Packet(len) => bucket.take_packet_above(now, len, reserve),
            Demand::Several(len) => bucket.take_above(now, len, reserve),
        }
    }
}

impl Buckets {
    /// Takes the tokens of a demand from all buckets, or from none.
    fn admit(&self, now: u64, demand: Demand) -> bool {
        match self {
            Buckets::Shares { total, guarantee, maximum, reserve } => {
                if maximum.as_ref().is_some_and(|maximum| !demand.takes(maximum, now, 0)) {
                    return false;
                }
                let Some(total) = total else { return true };
                if guarantee.as_ref().is_some_and(|guarantee| demand.takes(guarantee, now, 0)) {
                    total.charge(now, demand.tokens());
                    return true;
                }
                let borrows = demand.takes(total, now, *reserve);
                if let (Some(maximum), false) = (maximum, borrows) {
                    maximum.refund(demand.tokens());
                }
                borrows
            }
            Buckets::Marked { queue, port } => {
                let Some(colour) = queue.mark(now, demand, Colour::Green) else { return false };
                let passes = port.mark(now, demand, colour).is_some();
                if !passes {
                    queue.refund(colour, demand.tokens());
                }
                passes
            }
        }
    }
}

impl Marker {
    fn new(rates: &Rates, before: Option<&Marker>) -> Self {
        let (committed, excess) =
            before.map_or((None, None), |it| (it.committed.as_ref(), it.excess.as_ref()));
        Self {
            committed: rates.committed.map(|limit| reuse(limit, committed)),
            excess: rates.excess.map(|limit| reuse(limit, excess)),
        }
    }

    /// The colour of packets that have come with one; `None`: red.
    fn mark(&self, now: u64, demand: Demand, colour: Colour) -> Option<Colour> {
        let takes =
            |bucket: &Option<Arc<Bucket>>| bucket.as_ref().is_some_and(|bucket| demand.takes(bucket, now, 0));
        if colour == Colour::Green && takes(&self.committed) {
            return Some(Colour::Green);
        }
        takes(&self.excess).then_some(Colour::Yellow)
    }

    /// Gives back what [`Marker::mark`] has taken.
    fn refund(&self, colour: Colour, tokens: u64) {
        let bucket = match colour {
            Colour::Green => &self.committed,
            Colour::Yellow => &self.excess,
        };
        bucket.iter().for_each(|bucket| bucket.refund(tokens));
    }
}

impl EgressPolicer {
    /// The limits that settings ask for. Unchanged limits keep their buckets, queues their counters.
    pub(crate) fn of(limits: Option<&Arc<EgressLimits>>, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let limits = limits.filter(|limits| !limits.waits())?;
        if let Some(before) = before.filter(|before| before.limits == *limits) {
            return Some(before.clone());
        }
        let (total, port, uncounted) = match &limits.scheme {
            Scheme::Shares { total } => {
                let before = before.and_then(|before| before.total());
                (total.map(|total| reuse(total, before)), None, 0)
            }
            Scheme::Marked(rates) => {
                let before = before.and_then(|before| match &before.default.limits {
                    Buckets::Marked { port, .. } => Some(port),
                    Buckets::Shares { .. } => None,
                });
                (None, Some((Marker::new(rates, before), *rates)), LINK_HEADER)
            }
        };
        let default = QueueLimits::default();
        let priorities: BTreeSet<u32> = limits.with_default(&default).map(|(_, it)| it.priority).collect();
        let scale = Scale::of(limits);
        let make = |number: u16, wanted: &QueueLimits| {
            let before = before.and_then(|before| before.known(number));
            let buckets = match &port {
                Some((port, rates)) => {
                    let before = before.and_then(|before| match &before.limits {
                        Buckets::Marked { queue, .. } => Some(queue),
                        Buckets::Shares { .. } => None,
                    });
                    let queue = Marker::new(wanted.rates.as_ref().unwrap_or(rates), before);
                    Buckets::Marked { queue, port: port.clone() }
                }
                None => {
                    let (guarantee, maximum) = match before.map(|before| &before.limits) {
                        Some(Buckets::Shares { guarantee, maximum, .. }) => {
                            (guarantee.as_ref(), maximum.as_ref())
                        }
                        _ => (None, None),
                    };
                    let rank = priorities.range(..wanted.priority).count() as u64;
                    let burst = total.as_ref().map_or(0, |total| total.limit().burst());
                    Buckets::Shares {
                        total: total.clone(),
                        guarantee: wanted.guarantee.map(|limit| reuse(scale.scaled(limit), guarantee)),
                        maximum: wanted.maximum.map(|limit| reuse(limit, maximum)),
                        reserve: share(burst, rank, priorities.len() as u64),
                    }
                }
            };
            let counts = before.map_or_else(Counts::new, |before| before.counts.clone());
            Queue { number, limits: buckets, counts }
        };
        let queues = limits.queues.iter().filter(|(number, _)| **number != 0);
        Some(Arc::new(Self {
            default: make(0, limits.queues.get(&0).unwrap_or(&default)),
            queues: queues.map(|(number, wanted)| make(*number, wanted)).collect(),
            limits: limits.clone(),
            uncounted,
        }))
    }

    /// The port's bucket with [`Scheme::Shares`].
    fn total(&self) -> Option<&Arc<Bucket>> {
        match &self.default.limits {
            Buckets::Shares { total, .. } => total.as_ref(),
            Buckets::Marked { .. } => None,
        }
    }

    /// The queue with this number.
    fn known(&self, number: u16) -> Option<&Queue> {
        if number == 0 {
            return Some(&self.default);
        }
        let at = self.queues.binary_search_by_key(&number, |queue| queue.number).ok()?;
        self.queues.get(at)
    }

    /// The queue of a packet's class.
    #[inline]
    fn queue(&self, class: u16) -> &Queue {
        self.known(class).unwrap_or(&self.default)
    }

    #[inline]
    fn counted(&self, len: u32) -> u32 {
        len.saturating_sub(self.uncounted)
    }

    /// Refuses the outputs of a list that exceed the limits; returns their number.
    fn hold(&self, list: &mut OutputList<'_>, now: u64) -> u32 {
        let mut outputs = list.iter();
        let Some(first) = outputs.next() else { return 0 };
        let class = first.class();
        let mut tokens = u64::from(self.counted(first.len()));
        let is_one = outputs.all(|output| {
            tokens += u64::from(self.counted(output.len()));
            output.class() == class
        });
        let mut queue = (class, self.queue(class));
        if is_one && queue.1.limits.admit(now, Demand::Several(tokens)) {
            return 0;
        }
        list.hold(DropReason::EgressPoliced, |output| {
            if output.class() != queue.0 {
                queue = (output.class(), self.queue(output.class()));
            }
            let passes = queue.1.limits.admit(now, Demand::Packet(self.counted(output.len())));
            if !passes {
                queue.1.counts.policed.fetch_add(1, Relaxed);
            }
            passes
        })
    }

    /// Counts the outputs of a list that have left.
    fn count(&self, list: &OutputList<'_>) {
        let mut open: Option<(u16, u64, u64)> = None;
        let close = |(class, packets, bytes): (u16, u64, u64)| {
            let counts = &self.queue(class).counts;
            counts.packets.fetch_add(packets, Relaxed);
            counts.bytes.fetch_add(bytes, Relaxed);
        };
        for output in list.iter() {
            let (class, len) = (output.class(), u64::from(output.len()));
            open = Some(match open {
                Some((other, packets, bytes)) if other == class => (class, packets + 1, bytes + len),
                other => {
                    other.into_iter().for_each(close);
                    (class, 1, len)
                }
            });
        }
        open.into_iter().for_each(close);
    }

    /// Counters by queue.
    pub(crate) fn snapshot(&self) -> Vec<EgressQueueSnapshot> {
        let now = clock::nanoseconds();
        let show = |queue: &Queue| EgressQueueSnapshot {
            queue: queue.number,
            packets: queue.counts.packets.load(Relaxed),
            bytes: queue.counts.bytes.load(Relaxed),
            policed: queue.counts.policed.load(Relaxed),
            waiting: None,
            age: Duration::from_nanos(now.saturating_sub(queue.counts.created)),
        };
        std::iter::once(&self.default).chain(&self.queues).map(show).collect()
    }
}

impl Counts {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            policed: AtomicU64::new(0),
            created: clock::nanoseconds(),
        })
    }
}

/// What guarantees are scaled by, so that they fit the port's rate together.
pub(crate) struct Scale {
    rate: u64,
    sum: u128,
}

impl Scale {
    pub(crate) fn of(limits: &EgressLimits) -> Self {
        let guarantees = limits.queues.values().filter_map(|queue| queue.guarantee);
        let sum = guarantees.map(|limit| u128::from(limit.rate)).sum();
        let rate = match limits.scheme {
            Scheme::Shares { total: Some(total) } => total.rate,
            _ => u64::MAX,
        };
        Self { rate, sum }
    }

    pub(crate) fn scaled(&self, limit: Limit) -> Limit {
        if self.sum <= self.rate.into() {
            return limit;
        }
        // The quotient is less than the limit's rate.
        let rate = u128::from(limit.rate) * u128::from(self.rate) / self.sum;
        Limit { rate: rate as u64, ..limit }
    }
}

/// `part` of `parts` of a number.
fn share(number: u64, part: u64, parts: u64) -> u64 {
    let share = u128::from(number) * u128::from(part) / u128::from(parts.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// A bucket for a limit: the one that is there, if it has that limit.
pub(crate) fn reuse(wanted: Limit, there: Option<&Arc<Bucket>>) -> Arc<Bucket> {
    match there {
        Some(bucket) if *bucket.limit() == wanted => bucket.clone(),
        _ => Arc::new(Bucket::new(wanted)),
    }
}

impl EgressLimits {
    /// Whether packets wait.
    pub fn waits(&self) -> bool {
        let queues = self.queues.len() + usize::from(!self.queues.contains_key(&0));
        let may = matches!(self.scheme, Scheme::Shares { .. }) && queues <= MAX_WAITING_QUEUES;
        may && self.waiting.is_some()
    }

    /// All queues, the default queue among them even if it is not listed.
    pub(crate) fn with_default<'a>(
        &'a self,
        default: &'a QueueLimits,
    ) -> impl Iterator<Item = (u16, &'a QueueLimits)> {
        let unlisted = (!self.queues.contains_key(&0)).then_some((0, default));
        unlisted.into_iter().chain(self.queues.iter().map(|(number, queue)| (*number, queue)))
    }
}

/// A transmit queue behind the limits of its port. See the module.
pub(crate) struct Policed {
    egress: Arc<dyn Egress>,
    policer: Arc<EgressPolicer>,
}

impl Policed {
    pub(crate) fn new(egress: Arc<dyn Egress>, policer: Arc<EgressPolicer>) -> Self {
        Self { egress, policer }
    }
}

impl Egress for Policed {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        let held = self.policer.hold(list, clock::cycles());
        if held > 0 {
            let mut drops = Drops::default();
            drops.add(DropReason::EgressPoliced, held);
            counters.add_drops(&mut drops);
            if list.is_empty() {
                return Ok(());
            }
        }
        let delivered = self.egress.deliver(list, counters, tools);
        self.policer.count(list);
        delivered
    }

    fn notify(&self, tools: &mut Tools) {
        self.egress.notify(tools);
    }

    fn depth(&self, counters: &QueueCounters) -> u32 {
        self.egress.depth(counters)
    }

    fn quarantine(&self, on: bool) {
        self.egress.quarantine(on);
    }

    fn close(&self) {
        self.egress.close();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protect::protection::Unit;

    fn bits(rate: u64, burst: u64) -> Limit {
        Limit { unit: Unit::Bits, rate, burst: Some(burst) }
    }

    fn queue(guarantee: Option<Limit>, maximum: Option<Limit>, priority: u32) -> QueueLimits {
        QueueLimits { guarantee, maximum, priority, ..QueueLimits::default() }
    }

    fn limits(
        total: Option<Limit>,
        queues: impl IntoIterator<Item = (u16, QueueLimits)>,
    ) -> Arc<EgressLimits> {
        Arc::new(EgressLimits {
            scheme: Scheme::Shares { total },
            queues: queues.into_iter().collect(),
            waiting: None,
        })
    }

    /// A policer on a clock of the test's own.
    struct Rig {
        policer: Arc<EgressPolicer>,
        start: u64,
    }

    impl Rig {
        fn of(limits: &Arc<EgressLimits>) -> Self {
            let policer = EgressPolicer::of(Some(limits), None).unwrap();
            Self { policer, start: clock::cycles() }
        }

        /// Whether a packet passes at a time, in microseconds.
        fn passes(&self, queue: u16, len: u32, at: u64) -> bool {
            let now = self.start + (u128::from(clock::frequency()) * u128::from(at) / 1_000_000) as u64;
            let demand = Demand::Packet(self.policer.counted(len));
            self.policer.queue(queue).limits.admit(now, demand)
        }

        /// Bytes that pass of each queue from `from` to `to`, in seconds, if each of these sends packets of 1,000 bytes
        /// at a rate in Mbit/s.
        fn offer<const N: usize>(&self, senders: [(u16, u64); N], from: u64, to: u64) -> [u64; N] {
            let mut passed = [0; N];
            let mut due: Vec<u64> = vec![from * 1_000_000; N];
            while let Some((i, at)) = due.iter().copied().enumerate().min_by_key(|(i, at)| (*at, *i))
                && at < to * 1_000_000
            {
                let (queue, rate) = senders[i];
                passed[i] += u64::from(self.passes(queue, 1000, at)) * 1000;
                due[i] += 8000 / rate;
            }
            passed
        }
    }

    /// Whether it is a rate in Mbit/s over four seconds, but for 3 %.
    #[track_caller]
    fn assert_rate(passed: u64, rate: f64) {
        let found = passed as f64 * 8.0 / 4e6;
        assert!((found - rate).abs() <= rate * 0.03, "{found} Mbit/s instead of {rate}");
    }

    const M: u64 = 1_000_000;

    #[test]
    fn a_port_passes_its_rate() {
        let rig = Rig::of(&limits(Some(bits(10 * M, 20_000)), []));
        let [passed] = rig.offer([(0, 50)], 0, 4);
        assert_rate(passed, 10.0);
        // A queue that is not listed is the default queue.
        let [passed] = rig.offer([(9, 5)], 4, 8);
        assert_rate(passed, 5.0);
    }

    #[test]
    fn guarantees_hold_and_the_port_does_not_exceed_its_rate() {
        let guaranteed = |rate: u64| queue(Some(bits(rate * M, 5000)), None, 0);
        let rig = Rig::of(&limits(Some(bits(10 * M, 20_000)), [(3, guaranteed(3)), (7, guaranteed(7))]));
        let [three, seven] = rig.offer([(3, 50), (7, 50)], 0, 4);
        assert_rate(three, 3.0);
        assert_rate(seven, 7.0);
        // The default queue floods; one queue stays within its guarantee and loses nothing; the other is idle.
        let [flood, three] = rig.offer([(0, 100), (3, 2)], 5, 9);
        assert_eq!(three, M);
        assert_rate(flood, 8.0);
    }

    #[test]
    fn a_queue_borrows_up_to_its_maximum() {
        let rig = Rig::of(&limits(
            Some(bits(10 * M, 20_000)),
            [(1, queue(Some(bits(M, 5000)), Some(bits(4 * M, 5000)), 0))],
        ));
        let [passed] = rig.offer([(1, 50)], 0, 4);
        assert_rate(passed, 4.0);
        let [one, other] = rig.offer([(1, 2), (0, 50)], 4, 8);
        assert_rate(one + other, 10.0);
        assert!(one >= M / 2, "its guarantee: {one}");
    }

    #[test]
    fn what_the_port_refuses_does_not_count_for_a_maximum() {
        // Without refunds, the maximum of queue 1 would be used up by packets that the port refuses.
        let rig = Rig::of(&limits(
            Some(bits(10 * M, 20_000)),
            [(1, queue(Some(bits(M, 5000)), Some(bits(2 * M, 5000)), 1))],
        ));
        let [_, one] = rig.offer([(0, 100), (1, 20)], 0, 4);
        assert_rate(one, 1.0);
    }

    #[test]
    fn better_priorities_borrow_first() {
        let with = |priority| queue(None, None, priority);
        let rig =
            Rig::of(&limits(Some(bits(10 * M, 20_000)), [(1, with(5)), (2, with(9)), (0, with(1_000_000))]));
        // Each takes what it needs of what those before it leave.
        let [last, second, first] = rig.offer([(0, 30), (2, 6), (1, 3)], 0, 4);
        assert_rate(first, 3.0);
        assert_rate(second, 6.0);
        assert_rate(last, 1.0);
        let [last, second, first] = rig.offer([(0, 30), (2, 30), (1, 30)], 4, 8);
        assert_rate(first, 10.0);
        assert!(last + second < 30_000, "{last} {second}");
    }

    #[test]
    fn guarantees_beyond_the_ports_rate_are_scaled_down() {
        let guaranteed = |rate: u64| queue(Some(bits(rate * M, 5000)), None, 0);
        let rig = Rig::of(&limits(Some(bits(10 * M, 20_000)), [(1, guaranteed(10)), (2, guaranteed(30))]));
        let [one, three] = rig.offer([(1, 50), (2, 50)], 0, 4);
        assert_rate(one, 2.5);
        assert_rate(three, 7.5);
    }

    #[test]
    fn a_segment_longer_than_every_burst_passes_and_is_paid_back() {
        let guaranteed = queue(Some(bits(M, 2000)), Some(bits(4 * M, 2000)), 0);
        let rig = Rig::of(&limits(Some(bits(8 * M, 2000)), [(1, guaranteed), (2, queue(None, None, 9))]));
        assert!(rig.passes(1, 64_000, 0));
        assert!(!rig.passes(2, 100, 62_000), "the port is in debt");
        assert!(rig.passes(2, 100, 65_000));
        let mut passed = 0;
        for at in (1..4_000).map(|ms| 1_000_000 + ms * 1000) {
            passed += u64::from(rig.passes(1, 64_000, at)) * 64_000;
        }
        // 4 Mbit/s.
        assert!((1_900_000..2_100_000).contains(&passed), "{passed}");
    }

    #[test]
    fn two_rates_in_two_levels() {
        let rates = |committed: u64, excess: Option<u64>| Rates {
            committed: Some(bits(committed * M, 5000)),
            excess: excess.map(|rate| bits(rate * M, 5000)),
        };
        let of = |rates| QueueLimits { rates: Some(rates), ..QueueLimits::default() };
        let scheme = Scheme::Marked(rates(4, Some(3)));
        let queues = [(1, of(rates(1, None))), (2, of(rates(1, Some(5))))].into_iter().collect();
        let rig = Rig::of(&Arc::new(EgressLimits { scheme, queues, waiting: None }));
        // Bytes of the link header do not count.
        let net = |rate: f64| rate * 1000.0 / 986.0;
        let [one] = rig.offer([(1, 20)], 0, 4);
        assert_rate(one, net(1.0));
        // Green by the queue's committed rate, yellow by its excess rate, of which the port's excess rate lets 3 pass.
        let [two] = rig.offer([(2, 20)], 4, 8);
        assert_rate(two, net(4.0));
        // Queue 0 has the port's rates.
        let [zero] = rig.offer([(0, 20)], 8, 12);
        assert_rate(zero, net(7.0));
    }

    #[test]
    fn a_change_keeps_what_it_does_not_concern() {
        let guaranteed = |rate: u64| queue(Some(bits(rate, 2000)), None, 0);
        let total = Some(bits(80 * M, 100_000));
        let before = EgressPolicer::of(Some(&limits(total, [(1, guaranteed(8)), (2, guaranteed(8))])), None);
        let before = before.unwrap();
        let now = clock::cycles();
        for queue in [1, 2] {
            assert!(before.queue(queue).limits.admit(now, Demand::Packet(2000)));
            before.queue(queue).counts.packets.fetch_add(1, Relaxed);
        }
        let same = EgressPolicer::of(Some(&before.limits.clone()), Some(&before)).unwrap();
        assert!(Arc::ptr_eq(&same, &before));
        let limits = limits(total, [(1, guaranteed(8)), (2, guaranteed(9)), (3, guaranteed(8))]);
        let after = EgressPolicer::of(Some(&limits), Some(&before)).unwrap();
        let empty = |queue| match &after.known(queue).unwrap().limits {
            Buckets::Shares { guarantee: Some(guarantee), .. } => !guarantee.has_for_packet(now, 2000),
            _ => unreachable!("it has a guarantee"),
        };
        assert!(empty(1) && !empty(2) && !empty(3));
        assert!(Arc::ptr_eq(after.total().unwrap(), before.total().unwrap()));
        let shown: Vec<_> = after.snapshot().iter().map(|it| (it.queue, it.packets)).collect();
        assert_eq!(shown, [(0, 0), (1, 1), (2, 1), (3, 0)]);
        assert!(EgressPolicer::of(None, Some(&after)).is_none());
    }

    #[test]
    fn workers_together_take_no_more_than_the_limits() {
        let shares = queue(Some(bits(8, 1_000_000)), Some(bits(80, 5_000_000)), 0);
        let rig = Rig::of(&limits(Some(bits(800, 3_000_500)), [(1, shares)]));
        let passed: usize = std::thread::scope(|scope| {
            let offer = || scope.spawn(|| (0..3000).filter(|_| rig.passes(1, 1000, 0)).count());
            let threads: Vec<_> = (0..4).map(|_| offer()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // The port is charged for what the guarantee lets pass, if a moment later.
        assert!((3000..=3004).contains(&passed), "{passed}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn limits_and_guarantees_hold_over_any_time(
            total in 100_000u64..100_000_000,
            burst in 1500u64..100_000,
            queues in prop::collection::vec(
                (100u64..90_000_000, 1500u64..50_000, 1000u64..100_000_000, 0u32..3), 1..5,
            ),
            steps in prop::collection::vec((0u64..20_000, 0usize..6, 60u32..1500), 1..400),
            paced: prop::sample::Index,
        ) {
            let wanted = |(guarantee, burst, more, priority): &(u64, u64, u64, u32)| {
                let maximum = bits(guarantee + more, *burst);
                queue(Some(bits(*guarantee, *burst)), Some(maximum), *priority)
            };
            let queues: Vec<_> = (1..).zip(queues.iter().map(wanted)).collect();
            let limits = limits(Some(bits(total, burst)), queues.clone());
            let scale = Scale::of(&limits);
            let rig = Rig::of(&limits);
            // One queue sends evenly, a little less than its guarantee.
            let paced = paced.index(queues.len());
            let (paced, own) = (queues[paced].0, scale.scaled(queues[paced].1.guarantee.unwrap()));
            let gap = 1000 * 8 * 1_010_000 / own.rate.max(1) + 1;
            let mut due = 0;
            let bursts: u64 = queues.iter().map(|(_, it)| it.guarantee.unwrap().burst()).sum();
            let mut passed: Vec<(u64, u16, u64)> = Vec::new();
            let mut now = 0;
            for (pause, of, len) in steps {
                now += pause;
                while due <= now {
                    prop_assert!(rig.passes(paced, 1000, due), "within its guarantee at {due}");
                    passed.push((due, paced, 1000));
                    due += gap;
                }
                let other = u16::try_from(of).unwrap();
                if other != paced && rig.passes(other, len, now) {
                    passed.push((now, other, len.into()));
                }
            }
            let allowed = |limit: Limit, microseconds: u64| {
                limit.rate as f64 / 8e6 * microseconds as f64 + limit.burst() as f64 + 1.0
            };
            for (i, (since, ..)) in passed.iter().enumerate().step_by(passed.len() / 100 + 1) {
                let mut sums = [0u64; 8];
                let mut sum = 0;
                for (at, queue, len) in &passed[i..] {
                    sum += len;
                    prop_assert!(sum as f64 <= allowed(bits(total, burst), at - since) + bursts as f64);
                    sums[usize::from(*queue)] += len;
                    if let Some(limits) = limits.queues.get(queue) {
                        let most = allowed(limits.maximum.unwrap(), at - since);
                        prop_assert!(sums[usize::from(*queue)] as f64 <= most);
                    }
                }
            }
        }
    }
}
