//! Precedence of entries as numbers of 32 bits, for structures that compare nothing else.
//!
//! An entry of higher priority comes first, then one with a longer prefix, then the older one. Numbers have gaps, so
//! that a new entry finds one between its neighbours. Entries of equal priority arrive in the order of their age: each
//! takes the number below the one before. When a gap is used up, all numbers are given anew.

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
/// Gap to the outermost number, beyond which a new one begins.
const STEP: u32 = 1 << 16;

/// Numbers of all entries of a table.
#[derive(Default)]
pub(crate) struct Order(BTreeMap<Rank, u32>);

impl Order {
    pub(crate) fn get(&self, rank: Rank) -> Option<u32> {
        self.0.get(&rank).copied()
    }

    /// Gives a number to a new entry; `None` if there is none between its neighbours: then all are to be
    /// numbered anew ([`Order::of`]).
    pub(crate) fn insert(&mut self, rank: Rank) -> Option<u32> {
        let below = self.0.range(..rank).next_back().map(|(_, n)| *n);
        let above = self.0.range(rank..).next().map(|(above, n)| (above, *n));
        let number = match (below, above) {
            (None, None) => MIDDLE,
            (Some(below), None) => below.checked_add(STEP)?,
            (None, Some((above, n))) if same(above, &rank) => n.checked_sub(1)?,
            (None, Some((_, n))) => n.checked_sub(STEP)?,
            (Some(below), Some((above, n))) => {
                let number = if same(above, &rank) { n - 1 } else { below + (n - below) / 2 };
                Some(number).filter(|number| *number > below)?
            }
        };
        self.0.insert(rank, number);
        Some(number)
    }

    pub(crate) fn remove(&mut self, rank: Rank) {
        self.0.remove(&rank);
    }

    /// Numbers entries with equal gaps between different priorities. Numbers suffice: handles of entries have 32 bits
    /// too, and [`tables::MISS`] is none.
    pub(crate) fn of(ranks: impl Iterator<Item = Rank>) -> Self {
        let mut order = Self(ranks.map(|rank| (rank, 0)).collect());
        let groups = order.0.keys().zip(order.0.keys().skip(1)).filter(|(a, b)| !same(a, b)).count() + 1;
        let spare = u32::MAX - u32::try_from(order.0.len()).unwrap_or(u32::MAX);
        let gap = spare / (u32::try_from(groups).unwrap_or(u32::MAX).saturating_add(1));
        let mut last: Option<(Rank, u32)> = None;
        for (rank, number) in &mut order.0 {
            *number = match last {
                Some((before, n)) if same(&before, rank) => n + 1,
                Some((_, n)) => n + 1 + gap,
                None => gap,
            };
            last = Some((*rank, *number));
        }
        order
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
                    order = Order::of(order.0.keys().copied().chain([rank]));
                    renewed += 1;
                }
                if remove {
                    order.remove(rank);
                }
                let numbers: Vec<u32> = order.0.values().copied().collect();
                prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
            }
            prop_assert!(renewed < 40);
        }
    }

    #[test]
    fn equal_priorities_need_no_renewal() {
        let mut order = Order::default();
        assert!((0..100_000).all(|id| order.insert((5, 0, Reverse(id))).is_some()));
    }
}
