//! The classes of a port where packets wait: their rates, their order, their counters, shared by all of its transmit
//! queues; and the choice of the class that sends next.
//!
//! The order is that of a hierarchical token bucket (tc-htb(8)):
//! 1. nothing leaves unless the port's bucket has a token, nor a class above its maximum;
//! 2. classes within their guarantees come first, by priority;
//! 3. then the others share the rest: by priority, and by weight within one priority ([`Order`]).
//!
//! A packet leaves while a bucket has any token, and is charged in full: a bucket may be in debt by a packet, which it
//! pays back. So rates hold over any time, to within a burst and a packet, whatever the packets' lengths.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::clock;
use crate::lists::output::OutputList;
use crate::protect::bucket::Bucket;
use crate::protect::egress_policing::{EgressQueueSnapshot, Scale, WaitingSnapshot, reuse};
use crate::protection::{EgressLimits, MAX_WAITING_QUEUES, QueueLimits, Scheme};
use crate::queueing::early::Early;
use crate::queueing::scheduler::{Order, Scheduler, Set};

/// Numbers below this find their class without a search.
const DIRECT: usize = 64;

/// The classes of a port. See the module.
#[derive(Debug)]
pub(crate) struct Classes {
    pub(crate) limits: Arc<EgressLimits>,
    total: Option<Arc<Bucket>>,
    /// By number.
    classes: Box<[Class]>,
    /// The place of a number among them; that of the default class for numbers that are not listed.
    places: [u8; DIRECT],
    /// The classes with a maximum.
    limited: Set,
    /// The classes with a guarantee.
    guaranteed: Set,
    marks: bool,
    order: Order,
}

/// A class.
#[derive(Debug)]
pub(crate) struct Class {
    number: u16,
    guarantee: Option<Arc<Bucket>>,
    maximum: Option<Arc<Bucket>>,
    pub(crate) early: Option<Arc<Early>>,
    pub(crate) counts: Arc<Counts>,
}

/// Counters of a class.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Counts {
    /// Packets that passed at once.
    passed: AtomicU64,
    /// Bytes of all that have left.
    bytes: AtomicU64,
    /// Packets that have come to wait. Of these, those that wait no longer, and the cycles that they have, together and at
    /// most.
    came: AtomicU64,
    waited: AtomicU64,
    waited_cycles: AtomicU64,
    longest_cycles: AtomicU64,
    full: AtomicU64,
    early: AtomicU64,
    marked: AtomicU64,
    /// Monotonic time, nanoseconds.
    created: u64,
}

/// Packets of a class that have waited and left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Cycles that they have waited, together,
    pub(crate) cycles: u64,
    /// and at most.
    pub(crate) longest: u64,
    /// Those that were marked.
    pub(crate) marked: u64,
}

/// What is sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Packets of a class, until so many bytes are exceeded.
    Class(Pick, u64),
    /// None before this time on the cycle counter.
    At(u64),
    /// None of those that have packets before this time; others may.
    Held(u64),
}

/// The choice of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Its place.
    pub(crate) place: usize,
    reason: Reason,
}

/// Reason for choosing a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It is within its guarantee.
    Guarantee,
    /// None of its priority is beside it.
    Alone,
    /// It is its turn, among those that may send (first) of those that have packets.
    Turn(Set, Set),
}

/// Packets and bytes of the classes in a list.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, and the small one is the usual one")]
pub(crate) enum Shares {
    /// All are of one class, at this place.
    One { place: usize, packets: u32, bytes: u64 },
    /// They are of several.
    Several { present: Set, sum: u64, packets: [u32; MAX_WAITING_QUEUES], bytes: [u64; MAX_WAITING_QUEUES] },
}

impl Class {
    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Classes {
    /// The classes that limits ask for, if packets wait by them. Unchanged classes keep their buckets and counters.
    pub(crate) fn of(limits: Option<&Arc<EgressLimits>>, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let limits = limits.filter(|limits| limits.waits())?;
        if let Some(before) = before.filter(|before| before.limits == *limits) {
            return Some(before.clone());
        }
        let Scheme::Shares { total } = limits.scheme else { return None };
        let default = QueueLimits::default();
        let wanted: BTreeMap<u16, &QueueLimits> = limits.with_default(&default).collect();
        let scale = Scale::of(limits);
        let make = |(number, wanted): (&u16, &&QueueLimits)| {
            let before = before.and_then(|before| {
                let at = before.classes.binary_search_by_key(number, |class| class.number).ok()?;
                before.classes.get(at)
            });
            let same_early = |early: &&Arc<Early>| Some(early.settings()) == wanted.early;
            let kept = before.and_then(|it| it.early.as_ref()).filter(same_early).cloned();
            Class {
                number: *number,
                // Without a rate of the port, nothing has to be shared.
                guarantee: total.and(wanted.guarantee).map(|limit| {
                    reuse(scale.scaled(limit).of_shaper(), before.and_then(|it| it.guarantee.as_ref()))
                }),
                maximum: wanted
                    .maximum
                    .map(|limit| reuse(limit.of_shaper(), before.and_then(|it| it.maximum.as_ref()))),
                early: kept.or_else(|| wanted.early.map(|settings| Arc::new(Early::new(settings)))),
                counts: before.map_or_else(Counts::new, |it| it.counts.clone()),
            }
        };
        let classes: Box<[Class]> = wanted.iter().map(make).collect();
        let place = |number: u16| classes.binary_search_by_key(&number, |class| class.number).unwrap_or(0);
        let having = |has: fn(&Class) -> bool| {
            classes.iter().enumerate().filter(|(_, it)| has(it)).map(|(at, _)| 1 << at).sum()
        };
        let order: Vec<_> = wanted.values().map(|it| (it.priority, it.weight.into())).collect();
        Some(Arc::new(Self {
            total: total
                .map(|total| reuse(total.of_shaper(), before.and_then(|before| before.total.as_ref()))),
            places: std::array::from_fn(|number| place(number as u16) as u8),
            limited: having(|class| class.maximum.is_some()),
            guaranteed: having(|class| class.guarantee.is_some()),
            marks: wanted.values().any(|it| it.early.is_some_and(|early| early.marks)),
            order: Order::new(&order),
            limits: limits.clone(),
            classes,
        }))
    }

    /// The classes, by number.
    pub(crate) fn all(&self) -> &[Class] {
        &self.classes
    }

    /// The place of a packet's class.
    #[inline]
    pub(crate) fn place(&self, number: u16) -> usize {
        match self.places.get(usize::from(number)) {
            Some(place) => usize::from(*place),
            // The default class is the first.
            None => self.classes.binary_search_by_key(&number, |class| class.number).unwrap_or(0),
        }
    }

    /// Whether early detection of any class marks.
    #[inline]
    pub(crate) fn marks(&self) -> bool {
        self.marks
    }

    /// A scheduler at its start.
    pub(crate) fn scheduler(&self) -> Scheduler {
        Scheduler::new(&self.order)
    }

    /// What is sent next, of the classes that have packets.
    #[inline]
    pub(crate) fn next(&self, scheduler: &mut Scheduler, now: u64, waiting: Set) -> Choice {
        let mut budget = u64::MAX;
        if let Some(total) = &self.total {
            let opens = total.opens_at();
            if opens > now {
                return Choice::At(opens);
            }
            budget = total.level(now);
        }
        let (mut open, mut earliest) = (waiting, u64::MAX);
        for class in places(waiting & self.limited) {
            if let Some(maximum) = self.classes.get(class).and_then(|class| class.maximum.as_ref()) {
                let opens = maximum.opens_at();
                if opens > now {
                    open &= !(1 << class);
                    earliest = earliest.min(opens);
                }
            }
        }
        let level = |of: fn(&Class) -> &Option<Arc<Bucket>>, place: usize| {
            let bucket = self.classes.get(place).and_then(|class| of(class).as_ref());
            bucket.map_or(u64::MAX, |bucket| bucket.level(now))
        };
        let is_due = |class: &usize| {
            let guarantee = self.classes.get(*class).and_then(|class| class.guarantee.as_ref());
            guarantee.is_some_and(|guarantee| guarantee.opens_at() <= now)
        };
        let due: Set = places(open & self.guaranteed).filter(is_due).map(|class| 1 << class).sum();
        let (place, reason) = if due != 0 {
            // Guarantees are rates: whichever class is served first, the others are in time.
            let place = self.order.first(due);
            budget = budget.min(level(|class| &class.guarantee, place));
            (place, Reason::Guarantee)
        } else {
            match scheduler.pick(&self.order, open, waiting) {
                Some((place, Some(bytes))) => {
                    budget = budget.min(bytes);
                    (place, Reason::Turn(open, waiting))
                }
                Some((place, None)) => (place, Reason::Alone),
                None => return Choice::Held(earliest),
            }
        };
        if self.limited >> place & 1 != 0 {
            budget = budget.min(level(|class| &class.maximum, place));
        }
        Choice::Class(Pick { place, reason }, budget)
    }

    /// So many bytes of a class leave, as [`Classes::next`] has chosen.
    #[inline]
    pub(crate) fn sent(&self, scheduler: &mut Scheduler, now: u64, pick: Pick, bytes: u64) {
        let Some(class) = self.classes.get(pick.place) else { return };
        for bucket in self.total.iter().chain(&class.maximum) {
            bucket.charge(now, bytes);
        }
        match (pick.reason, &class.guarantee) {
            (Reason::Guarantee, Some(guarantee)) => guarantee.charge(now, bytes),
            (Reason::Turn(..), _) => scheduler.sent(pick.place, bytes),
            _ => {}
        }
    }

    /// Repeats a choice, from the scheduler's state in which it was made.
    pub(crate) fn repeat(&self, scheduler: &mut Scheduler, pick: Pick, bytes: u64) {
        if let Reason::Turn(open, waiting) = pick.reason {
            let again = scheduler.pick(&self.order, open, waiting);
            debug_assert_eq!(again.map(|(place, _)| place), Some(pick.place));
            scheduler.sent(pick.place, bytes);
        }
    }

    /// Bytes that were [sent](Classes::sent) stay after all: their tokens are given back.
    pub(crate) fn unsent(&self, pick: Pick, bytes: u64) {
        let Some(class) = self.classes.get(pick.place) else { return };
        let guarantee = class.guarantee.as_ref().filter(|_| pick.reason == Reason::Guarantee);
        for bucket in self.total.iter().chain(&class.maximum).chain(guarantee) {
            bucket.refund(bytes);
        }
    }

    /// Packets and bytes of a list by class.
    #[inline]
    pub(crate) fn shares(&self, list: &OutputList<'_>) -> Shares {
        match list.sum_of_one_class() {
            Some((class, bytes)) => {
                Shares::One { place: self.place(class), packets: list.len() as u32, bytes }
            }
            None => self.shares_of_several(list),
        }
    }

    #[cold]
    fn shares_of_several(&self, list: &OutputList<'_>) -> Shares {
        let (mut present, mut sum) = (0, 0);
        let (mut packets, mut bytes) = ([0; MAX_WAITING_QUEUES], [0; MAX_WAITING_QUEUES]);
        for output in list.iter() {
            let (place, len) = (self.place(output.class()), u64::from(output.len()));
            if let (Some(packets), Some(bytes)) = (packets.get_mut(place), bytes.get_mut(place)) {
                present |= 1 << place;
                *packets += 1;
                *bytes += len;
                sum += len;
            }
        }
        Shares::Several { present, sum, packets, bytes }
    }

    /// Takes the tokens of a whole list that passes at once, or none.
    #[inline]
    pub(crate) fn take(&self, shares: &Shares, now: u64) -> bool {
        if let Some(total) = &self.total
            && !total.take(now, shares.sum())
        {
            return false;
        }
        for (taken, (place, bytes)) in shares.limited(self.limited).enumerate() {
            let maximum = self.classes.get(place).and_then(|class| class.maximum.as_ref());
            if maximum.is_some_and(|maximum| !maximum.take(now, bytes)) {
                self.give_back_first(shares, taken);
                return false;
            }
        }
        true
    }

    /// Gives back the tokens of a list that did not pass after all.
    #[cold]
    pub(crate) fn give_back(&self, shares: &Shares) {
        self.give_back_first(shares, MAX_WAITING_QUEUES);
    }

    /// Gives back those of the port and of the first classes with a maximum.
    fn give_back_first(&self, shares: &Shares, classes: usize) {
        if let Some(total) = &self.total {
            total.refund(shares.sum());
        }
        for (place, bytes) in shares.limited(self.limited).take(classes) {
            if let Some(maximum) = self.classes.get(place).and_then(|class| class.maximum.as_ref()) {
                maximum.refund(bytes);
            }
        }
    }

    /// Counts a list that has left.
    #[inline]
    pub(crate) fn count(&self, shares: &Shares) {
        let left = |place: usize, packets: u32, bytes: u64| {
            if let Some(class) = self.classes.get(place) {
                class.counts.pass(packets.into(), bytes);
            }
        };
        match shares {
            Shares::One { place, packets, bytes } => left(*place, *packets, *bytes),
            Shares::Several { present, packets, bytes, .. } => {
                for place in places(*present) {
                    let of = |it: &[u32]| it.get(place).copied().unwrap_or(0);
                    left(place, of(packets), bytes.get(place).copied().unwrap_or(0));
                }
            }
        }
    }

    /// Counters by class.
    pub(crate) fn snapshot(&self) -> Vec<EgressQueueSnapshot> {
        self.classes.iter().map(|class| class.counts.snapshot(class.number)).collect()
    }
}

impl Shares {
    /// The classes that have packets.
    pub(crate) fn present(&self) -> Set {
        match self {
            Shares::One { place, .. } => 1 << place,
            Shares::Several { present, .. } => *present,
        }
    }

    /// Bytes of all.
    #[inline]
    fn sum(&self) -> u64 {
        match self {
            Shares::One { bytes, .. } => *bytes,
            Shares::Several { sum, .. } => *sum,
        }
    }

    /// The classes of a set that have packets, with their bytes.
    #[inline]
    fn limited(&self, by: Set) -> impl Iterator<Item = (usize, u64)> {
        let bytes = move |place: usize| match self {
            Shares::One { bytes, .. } => *bytes,
            Shares::Several { bytes, .. } => bytes.get(place).copied().unwrap_or(0),
        };
        places(self.present() & by).map(move |place| (place, bytes(place)))
    }
}

/// The classes of a set.
#[inline]
pub(crate) fn places(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(place)
    })
}

impl Counts {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self {
            passed: zero(),
            bytes: zero(),
            came: zero(),
            waited: zero(),
            waited_cycles: zero(),
            longest_cycles: zero(),
            full: zero(),
            early: zero(),
            marked: zero(),
            created: clock::nanoseconds(),
        })
    }

    /// Packets have passed at once.
    #[inline]
    pub(crate) fn pass(&self, packets: u64, bytes: u64) {
        self.passed.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Packets have come to wait.
    pub(crate) fn wait(&self, packets: u32) {
        self.came.fetch_add(packets.into(), Relaxed);
    }

    /// Packets that were to wait found no room.
    pub(crate) fn withdraw(&self, packets: u32) {
        self.came.fetch_sub(packets.into(), Relaxed);
    }

    /// Packets that wait now.
    pub(crate) fn depth(&self) -> u32 {
        // Loaded first, so that packets which come and leave in between count as waiting, rather than hide others.
        let waited = self.waited.load(Relaxed);
        // A packet may be counted as gone before it is counted as there.
        let waiting = self.came.load(Relaxed).wrapping_sub(waited).cast_signed().max(0);
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    /// Packets found no room.
    #[cold]
    pub(crate) fn refuse(&self, packets: u32) {
        self.full.fetch_add(packets.into(), Relaxed);
    }

    /// Packets were dropped early.
    #[cold]
    pub(crate) fn drop_early(&self, packets: u32) {
        self.early.fetch_add(packets.into(), Relaxed);
    }

    /// Packets that have waited have left.
    pub(crate) fn end_wait(&self, waits: Waits) {
        self.bytes.fetch_add(waits.bytes, Relaxed);
        self.waited.fetch_add(waits.packets, Relaxed);
        self.waited_cycles.fetch_add(waits.cycles, Relaxed);
        if waits.longest > self.longest_cycles.load(Relaxed) {
            self.longest_cycles.fetch_max(waits.longest, Relaxed);
        }
        if waits.marked > 0 {
            self.marked.fetch_add(waits.marked, Relaxed);
        }
    }

    fn snapshot(&self, queue: u16) -> EgressQueueSnapshot {
        let (waited, cycles) = (self.waited.load(Relaxed), self.waited_cycles.load(Relaxed));
        EgressQueueSnapshot {
            queue,
            packets: self.passed.load(Relaxed).wrapping_add(waited),
            bytes: self.bytes.load(Relaxed),
            policed: 0,
            waiting: Some(WaitingSnapshot {
                packets: self.depth().into(),
                full: self.full.load(Relaxed),
                early: self.early.load(Relaxed),
                marked: self.marked.load(Relaxed),
                waited,
                waited_for: clock::to_duration(cycles),
                longest: clock::to_duration(self.longest_cycles.load(Relaxed)),
            }),
            age: Duration::from_nanos(clock::nanoseconds().saturating_sub(self.created)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protection::{Limit, Unit, Waiting};

    /// Sends packets of 1,000 bytes of classes that always have some, for so long on a clock that the test moves; returns
    /// the packets of each.
    fn sent(limits: EgressLimits, waiting: Set, time: Duration) -> Vec<u64> {
        let classes = Classes::of(Some(&Arc::new(limits)), None).unwrap();
        let mut scheduler = classes.scheduler();
        let mut sent = vec![0; classes.all().len()];
        let mut now = clock::cycles();
        let end = now + clock::from_duration(time);
        while now < end {
            match classes.next(&mut scheduler, now, waiting) {
                Choice::Class(pick, budget) => {
                    let packets = budget.div_ceil(1000).min(64);
                    classes.sent(&mut scheduler, now, pick, packets * 1000);
                    sent[pick.place] += packets;
                }
                Choice::At(time) | Choice::Held(time) => {
                    assert!(time > now, "time does not pass");
                    now = time;
                }
            }
        }
        sent
    }

    fn bits(rate: u64) -> Option<Limit> {
        Some(Limit { unit: Unit::Bits, rate, burst: Some(3000) })
    }

    fn limits(total: Option<Limit>, queues: impl IntoIterator<Item = (u16, QueueLimits)>) -> EgressLimits {
        let waiting = Some(Waiting::default());
        EgressLimits { scheme: Scheme::Shares { total }, queues: queues.into_iter().collect(), waiting }
    }

    /// Within 1 %, and a burst with the packets that go into debt.
    #[track_caller]
    fn assert_near(found: u64, expected: u64) {
        assert!(found.abs_diff(expected) <= expected / 100 + 5, "{found} instead of {expected}");
    }

    #[test]
    fn guarantees_come_first_maxima_hold_and_priorities_share_the_rest() {
        let queue = |guarantee, maximum, priority| QueueLimits {
            guarantee: bits(guarantee),
            maximum,
            priority,
            ..QueueLimits::default()
        };
        // 80 Mbit/s: class 1 has 8 guaranteed; of the rest, class 3 comes first, with 16 at most; class 2 is next.
        let queues = [
            (1, queue(8_000_000, None, 5)),
            (2, queue(8_000, None, 1)),
            (3, queue(8_000, bits(16_000_000), 0)),
        ];
        let second = Duration::from_secs(1);
        let of = |waiting| sent(limits(bits(80_000_000), queues.clone()), waiting, second);
        let all = of(0b1110);
        assert_near(all[1], 1000);
        assert_near(all[3], 2000);
        assert_near(all[2], 7000);
        // Without class 2, class 1 has what class 3 leaves.
        let two = of(0b1010);
        assert_near(two[1], 8000);
        assert_near(two[3], 2000);
        // A class above its maximum waits although the port is free.
        assert_near(of(0b1000)[3], 2000);
    }

    #[test]
    fn a_shaper_keeps_its_rate_and_weights_share_it() {
        let queue = |weight| QueueLimits { weight, ..QueueLimits::default() };
        for rate in [1_000_000, 1_000_000_000, 10_000_000_000] {
            let queues = [(0, queue(1)), (1, queue(3))];
            let found = sent(limits(bits(rate), queues), 0b11, Duration::from_secs(1));
            assert_near(found[0], rate / 8000 / 4);
            assert_near(found[1], rate / 8000 * 3 / 4);
        }
    }

    #[test]
    fn what_stays_gives_its_tokens_back() {
        let classes = Classes::of(Some(&Arc::new(limits(bits(8_000_000), []))), None).unwrap();
        let (mut scheduler, now) = (classes.scheduler(), clock::cycles());
        let Choice::Class(pick, budget) = classes.next(&mut scheduler, now, 1) else { panic!("it is open") };
        classes.sent(&mut scheduler, now, pick, budget);
        assert!(matches!(classes.next(&mut scheduler, now, 1), Choice::At(_)));
        classes.unsent(pick, budget);
        assert_eq!(classes.next(&mut scheduler, now, 1), Choice::Class(pick, budget));
    }
}
