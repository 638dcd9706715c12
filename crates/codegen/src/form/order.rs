//! Precedence of entries as numbers of 32 bits, for structures that compare nothing else.
//!
//! An entry of higher priority comes first, then one with a longer prefix, then the older one. Numbers have gaps, so
//! that a new entry finds one between its neighbours. Entries of equal priority arrive in the order of their age: each
//! takes the number below the one before. Lists of priorities are added from one end to the other: an entry beside the one
//! added last takes a number near that one's, so that the gap lasts for many. When a gap is used up, all numbers are given
//! anew, which takes as long as the table is large.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pipeline::ir::KeyMatch;
use pipeline::state::Installed;

/// Precedence: the larger wins.
pub(crate) type Rank = (u32, u16, Reverse<u64>);

/// Precedence of an entry.
pub(crate) fn rank(installed: &Installed) -> Rank {
    let lengths = installed.entry.matches.iter().map(|condition| match condition.is {
        KeyMatch::Prefix(_, len) => len,
        _ => 0,
    });
    (installed.entry.priority, lengths.max().unwrap_or(0), Reverse(installed.id.0))
}

const MIDDLE: u32 = 1 << 31;
/// Gap to the outermost number, beyond which a new one begins, and to the number of the entry added last.
const STEP: u32 = 1 << 16;

/// Numbers of all entries of a table.
#[derive(Default)]
pub(crate) struct Order {
    numbers: BTreeMap<Rank, u32>,
    /// The entry added last.
    last: Option<Rank>,
}

impl Order {
    pub(crate) fn get(&self, rank: Rank) -> Option<u32> {
        self.numbers.get(&rank).copied()
    }

    /// Gives a number to a new entry; `None` if there is none between its neighbours: then all are to be
    /// numbered anew ([`Order::of`]).
    pub(crate) fn insert(&mut self, rank: Rank) -> Option<u32> {
        let below = self.numbers.range(..rank).next_back();
        let above = self.numbers.range(rank..).next();
        let number = match (below, above) {
            (None, None) => MIDDLE,
            (Some((_, n)), None) => n.checked_add(STEP)?,
            (None, Some((above, n))) if same(above, &rank) => n.checked_sub(1)?,
            (None, Some((_, n))) => n.checked_sub(STEP)?,
            (Some((below, least)), Some((above, most))) => {
                let half = (most - least) / 2;
                let number = match self.last.as_ref() {
                    _ if same(above, &rank) => most - 1,
                    Some(last) if last == above => most - half.clamp(1, STEP),
                    Some(last) if last == below => least + half.min(STEP),
                    _ => least + half,
                };
                Some(number).filter(|number| number > least)?
            }
        };
        self.numbers.insert(rank, number);
        self.last = Some(rank);
        Some(number)
    }

    pub(crate) fn remove(&mut self, rank: Rank) {
        self.numbers.remove(&rank);
    }

    /// Numbers entries anew: with gaps between different priorities, large ones beside the newest entry, where more are
    /// likely to come, and room beyond all. Numbers suffice: handles of entries have 32 bits too, and [`tables::MISS`] is
    /// none.
    pub(crate) fn of(ranks: impl Iterator<Item = Rank>) -> Self {
        let mut numbers: BTreeMap<Rank, u32> = ranks.map(|rank| (rank, 0)).collect();
        let newest = numbers.keys().copied().max_by_key(|rank| rank.2.0);
        let is_newest = |rank: &Rank| newest.is_some_and(|newest| same(rank, &newest));
        let groups = numbers.keys().zip(numbers.keys().skip(1)).filter(|(a, b)| !same(a, b)).count() + 1;
        // An eighth beyond either end, a quarter on either side of the newest entry, a quarter for all gaps.
        let eighth = (u32::MAX - u32::try_from(numbers.len()).unwrap_or(u32::MAX)) / 8;
        let gap = eighth * 2 / u32::try_from(groups).unwrap_or(u32::MAX);
        let mut last: Option<(Rank, u32)> = None;
        for (rank, number) in &mut numbers {
            *number = match last {
                Some((before, n)) if same(&before, rank) => n + 1,
                Some((before, n)) if is_newest(&before) || is_newest(rank) => n + 1 + gap + eighth * 2,
                Some((_, n)) => n + 1 + gap,
                None => eighth,
            };
            last = Some((*rank, *number));
        }
        Self { numbers, last: newest }
    }
}

/// Whether only age tells two entries apart.
fn same(a: &Rank, b: &Rank) -> bool {
    (a.0, a.1) == (b.0, b.1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_in_order(changes in prop::collection::vec((0u32..40, 0u16..3, any::<bool>()), 1..300)) {
            let mut order = Order::default();
            let mut renewed = 0;
            for (id, (priority, prefix, remove)) in changes.into_iter().enumerate() {
                let rank = (priority, prefix, Reverse(id as u64));
                if order.insert(rank).is_none() {
                    order = Order::of(order.numbers.keys().copied().chain([rank]));
                    renewed += 1;
                }
                if remove {
                    order.remove(rank);
                }
                let numbers: Vec<u32> = order.numbers.values().copied().collect();
                prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            }
            prop_assert!(renewed < 40);
        }
    }

    /// How often the numbers are given anew while these priorities are added.
    fn renewals(priorities: impl Iterator<Item = u32>) -> usize {
        let (mut order, mut renewals) = (Order::default(), 0);
        for (id, priority) in priorities.enumerate() {
            let rank = (priority, 0, Reverse(id as u64));
            if order.insert(rank).is_none() {
                order = Order::of(order.numbers.keys().copied().chain([rank]));
                renewals += 1;
            }
        }
        renewals
    }

    #[test]
    fn lists_from_one_end_to_the_other_need_few_renewals() {
        // With and without an entry for the rest, before and behind.
        for rest in [None, Some(0), Some(u32::MAX)] {
            assert!(renewals(rest.into_iter().chain((1..50_000).rev())) < 10, "{rest:?}, from the first on");
            assert!(renewals(rest.into_iter().chain(1..50_000)) < 10, "{rest:?}, from the last on");
        }
        // Every second one, then the others.
        assert!(renewals((1..50_000).rev().step_by(2).chain((2..50_000).rev().step_by(2))) < 10);
    }

    #[test]
    fn equal_priorities_need_no_renewal() {
        let mut order = Order::default();
        assert!((0..100_000).all(|id| order.insert((5, 0, Reverse(id))).is_some()));
    }
}
