//! The order among classes that have packets: strict priority between groups, deficit round robin within one.
//!
//! Deficit round robin (Shreedhar and Varghese 1995) in the form that needs no length ahead of time: a class sends while
//! its deficit is positive, and may overdraw it by part of a packet, which its next turns pay back. Over time, the bytes
//! of classes that always have packets are in proportion to their quanta, to within a quantum and a packet.
//!
//! Invariant: a class without packets keeps no credit.

use crate::protection::MAX_WAITING_QUEUES;

/// A set of classes, by their place among the port's.
pub(crate) type Set = u64;

const _: () = assert!(MAX_WAITING_QUEUES <= Set::BITS as usize);

/// Bytes of the smallest quantum in a group: an Ethernet frame.
const QUANTUM: u64 = 1514;

/// Groups of classes and their quanta. Fixed while a port's limits are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// The groups, the one served first first.
    groups: Box<[Set]>,
    /// Bytes of each class in a round.
    quanta: Box<[i64]>,
}

impl Order {
    /// The order of classes with these priorities (lower is served first) and weights.
    pub(crate) fn new(classes: &[(u32, u64)]) -> Self {
        let mut priorities: Vec<u32> = classes.iter().map(|(priority, _)| *priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let of = |wanted: u32| {
            let its = classes.iter().enumerate().filter(move |(_, (priority, _))| *priority == wanted);
            its.map(|(class, (_, weight))| (class, (*weight).max(1)))
        };
        let mut quanta = vec![0; classes.len()];
        for priority in &priorities {
            let least = of(*priority).map(|(_, weight)| weight).min().unwrap_or(1);
            for (class, weight) in of(*priority) {
                // Weights far apart would make a round last for ever.
                let quantum = u128::from(weight) * u128::from(QUANTUM) / u128::from(least);
                quanta[class] = quantum.min(1 << 30) as i64;
            }
        }
        let groups = priorities.iter().map(|priority| of(*priority).map(|(class, _)| 1 << class).sum());
        Self { groups: groups.collect(), quanta: quanta.into() }
    }

    /// The class of the best priority in a set that is not empty, the lowest among equals.
    pub(crate) fn first(&self, of: Set) -> usize {
        let best = self.groups.iter().map(|group| group & of).find(|group| *group != 0);
        best.unwrap_or(of).trailing_zeros() as usize
    }
}

/// Whose turn it is in each group.
#[derive(Debug, Clone)]
pub(crate) struct Scheduler {
    deficits: Box<[i64]>,
    turns: Box<[Turn]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    class: u32,
    /// It has its quantum for this turn.
    begun: bool,
}

impl Scheduler {
    /// The start of a round.
    pub(crate) fn new(order: &Order) -> Self {
        let turns = vec![Turn::default(); order.groups.len()];
        Self { deficits: vec![0; order.quanta.len()].into(), turns: turns.into() }
    }

    /// The class among `open` that sends next, and the bytes that it may have sent when it begins its last packet; `None`:
    /// it has the turns of its group for itself. `waiting` are all classes that have packets, those that may not send now
    /// among them, which keep their credit.
    #[inline]
    pub(crate) fn pick(&mut self, order: &Order, open: Set, waiting: Set) -> Option<(usize, Option<u64>)> {
        let groups = order.groups.iter().zip(&mut self.turns);
        let (group, turn) =
            groups.map(|(group, turn)| (*group & open, turn)).find(|(group, _)| *group != 0)?;
        if group.is_power_of_two() {
            return Some((group.trailing_zeros() as usize, None));
        }
        loop {
            // The class whose turn it is, or else the next one that is open.
            let from = group & Set::MAX.checked_shl(turn.class).unwrap_or(0);
            let class = if from != 0 { from } else { group }.trailing_zeros();
            if class != turn.class {
                // The turn of a class ends for want of packets, or of permission.
                if let Some(deficit) = self.deficits.get_mut(turn.class as usize)
                    && waiting >> turn.class & 1 == 0
                {
                    *deficit = (*deficit).min(0);
                }
                *turn = Turn { class, begun: false };
            }
            let deficit = self.deficits.get_mut(class as usize)?;
            if !turn.begun {
                turn.begun = true;
                let quantum = *order.quanta.get(class as usize)?;
                // What a class saves in turns that end early is bounded.
                *deficit = (*deficit + quantum).min(2 * quantum);
            }
            if let Ok(bytes @ 1..) = u64::try_from(*deficit) {
                return Some((class as usize, Some(bytes)));
            }
            *turn = Turn { class: (class + 1) % Set::BITS, begun: false };
        }
    }

    /// A class has sent so many bytes in its turn.
    #[inline]
    pub(crate) fn sent(&mut self, class: usize, bytes: u64) {
        if let Some(deficit) = self.deficits.get_mut(class) {
            *deficit = deficit.saturating_sub_unsigned(bytes);
        }
    }

    /// Returns to a former state: packets that were [sent](Scheduler::sent) since stay after all.
    pub(crate) fn restore(&mut self, to: &Scheduler) {
        self.deficits.copy_from_slice(&to.deficits);
        self.turns.copy_from_slice(&to.turns);
    }

    /// A class has no packets left: its credit ends.
    #[inline]
    pub(crate) fn emptied(&mut self, class: usize) {
        if let Some(deficit) = self.deficits.get_mut(class) {
            *deficit = (*deficit).min(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The class that sends next.
    fn next(scheduler: &mut Scheduler, order: &Order, open: Set) -> usize {
        scheduler.pick(order, open, open).unwrap().0
    }

    /// Bytes of each class in so many picks, with packets of `len(class)` bytes.
    fn shares(order: &Order, open: Set, picks: u32, len: impl Fn(usize, u32) -> u32) -> Vec<u64> {
        let mut scheduler = Scheduler::new(order);
        let mut sent = vec![0; order.quanta.len()];
        for i in 0..picks {
            let class = next(&mut scheduler, order, open);
            assert_eq!(open >> class & 1, 1);
            let len = u64::from(len(class, i));
            scheduler.sent(class, len);
            sent[class] += len;
        }
        sent
    }

    #[test]
    fn a_better_priority_takes_all() {
        let order = Order::new(&[(7, 1), (6, 1), (0, 1)]);
        assert_eq!(shares(&order, 0b111, 100, |_, _| 60), [0, 0, 6000]);
        assert_eq!(shares(&order, 0b011, 100, |_, _| 60), [0, 6000, 0]);
        assert_eq!(Scheduler::new(&order).pick(&order, 0, 0), None);
    }

    #[test]
    fn weights_are_shares_of_bytes_whatever_the_lengths() {
        let order = Order::new(&[(0, 1), (0, 2), (0, 5)]);
        let sent = shares(&order, 0b111, 100_000, |class, i| [1514, 64, 64 + i * 7919 % 9000][class]);
        let total: u64 = sent.iter().sum();
        for (bytes, weight) in sent.iter().zip([1, 2, 5]) {
            let share = *bytes as f64 / total as f64 * 8.0 / f64::from(weight);
            assert!((0.98..1.02).contains(&share), "{sent:?}");
        }
    }

    #[test]
    fn packets_longer_than_a_quantum_are_paid_back() {
        let order = Order::new(&[(3, 1), (3, 1)]);
        let sent = shares(&order, 0b11, 20_000, |class, _| [65_535, 60][class]);
        let ratio = sent[0] as f64 / sent[1] as f64;
        assert!((0.9..1.1).contains(&ratio), "{sent:?}");
    }

    #[test]
    fn a_class_that_comes_back_has_no_credit_from_before() {
        let order = Order::new(&[(0, 1), (0, 1)]);
        let mut scheduler = Scheduler::new(&order);
        // Class 0 alone, and then idle in the middle of its turn.
        let first = next(&mut scheduler, &order, 3);
        scheduler.sent(first, 60);
        scheduler.emptied(first);
        for _ in 0..1000 {
            assert_eq!(scheduler.pick(&order, 2, 2), Some((1, None)), "alone, its turns have no end");
        }
        let mut sent = [0, 0];
        for _ in 0..400 {
            let class = next(&mut scheduler, &order, 3);
            scheduler.sent(class, 1000);
            sent[class] += 1;
        }
        assert!(sent.iter().all(|n| (198..=202).contains(n)), "{sent:?}");
    }

    #[test]
    fn packets_that_stay_cost_their_class_nothing() {
        let order = Order::new(&[(0, 1), (0, 3)]);
        let mut scheduler = Scheduler::new(&order);
        let mut sent = [0u64, 0];
        for round in 0..20_000u32 {
            // Eight picks, of which the receiver takes some from the front.
            let before = scheduler.clone();
            let pick = |scheduler: &mut Scheduler| {
                let class = next(scheduler, &order, 3);
                scheduler.sent(class, 500);
                class
            };
            let picks: Vec<_> = (0..8).map(|_| pick(&mut scheduler)).collect();
            let taken = (round * 7919 % 9) as usize;
            scheduler.restore(&before);
            let again: Vec<_> = (0..taken).map(|_| pick(&mut scheduler)).collect();
            assert_eq!(again, picks[..taken]);
            again.iter().for_each(|class| sent[*class] += 500);
        }
        let ratio = sent[1] as f64 / sent[0] as f64;
        assert!((2.94..3.06).contains(&ratio), "{sent:?}");
    }

    proptest! {
        /// Shares are those of the weights to within a quantum and a packet, whatever the classes.
        #[test]
        fn shares_follow_weights(weights in prop::collection::vec(1u64..50, 1..12), seed: u32) {
            let classes: Vec<_> = weights.iter().map(|weight| (1, *weight)).collect();
            let order = Order::new(&classes);
            let open = (1 << weights.len()) - 1;
            let len = |class: usize, i: u32| 64 + (i.wrapping_mul(seed | 1) >> 7).wrapping_add(class as u32) % 1450;
            let sent = shares(&order, open, 30_000, len);
            let per_weight: Vec<f64> =
                sent.iter().zip(&order.quanta).map(|(bytes, quantum)| *bytes as f64 / *quantum as f64).collect();
            let (low, high) = per_weight.iter().fold((f64::MAX, 0f64), |(low, high), it| (low.min(*it), high.max(*it)));
            // A round is one quantum; a class may be ahead by one, and by a packet.
            prop_assert!(high - low <= 2.1, "{sent:?} {per_weight:?}");
        }
    }
}
