//! Knowledge about a value in the packet: what comparisons on the way to a step have said about it.
//!
//! Invariant: the value of every packet that reaches the step agrees with it. Forgetting is always right.

use packet::bpf::{Size, Test};

/// Most values that are excluded, and most tests of bits remembered.
const MOST: usize = 8;

/// Knowledge about one value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Knowledge {
    /// Its bounds, both included.
    low: u32,
    high: u32,
    /// Values between the bounds that it has not, in ascending order.
    not: Vec<u32>,
    /// Masks, and whether it has one of their bits, in ascending order.
    bits: Vec<(u32, bool)>,
}

impl Knowledge {
    /// What is known of a value that no comparison has looked at.
    pub(crate) fn of(size: Size) -> Self {
        let high = match size {
            Size::Byte => u8::MAX.into(),
            Size::Half => u16::MAX.into(),
            Size::Word => u32::MAX,
        };
        Self { low: 0, high, not: vec![], bits: vec![] }
    }

    /// Returns the outcome of a comparison, if it is known.
    pub(crate) fn decides(&self, test: Test, with: u32) -> Option<bool> {
        if self.low == self.high {
            return Some(test.holds(self.low, with));
        }
        match test {
            Test::Equal if with < self.low || with > self.high || self.not.contains(&with) => Some(false),
            Test::Greater if self.low > with => Some(true),
            Test::Greater if self.high <= with => Some(false),
            Test::GreaterOrEqual if self.low >= with => Some(true),
            Test::GreaterOrEqual if self.high < with => Some(false),
            Test::AnyBit if with == 0 => Some(false),
            Test::AnyBit => self.bits.iter().find(|(mask, _)| *mask == with).map(|(_, any)| *any),
            _ => None,
        }
    }

    /// Adds the outcome of a comparison that was not known.
    pub(crate) fn learn(&mut self, test: Test, with: u32, holds: bool) {
        match (test, holds) {
            (Test::Equal, true) => (self.low, self.high) = (with, with),
            (Test::Equal, false) if with == self.low => self.low = with.saturating_add(1),
            (Test::Equal, false) if with == self.high => self.high = with.saturating_sub(1),
            (Test::Equal, false) => insert(&mut self.not, with),
            (Test::Greater, true) => self.low = with.saturating_add(1),
            (Test::Greater, false) => self.high = with,
            (Test::GreaterOrEqual, true) => self.low = with,
            (Test::GreaterOrEqual, false) => self.high = with.saturating_sub(1),
            (Test::AnyBit, _) => insert(&mut self.bits, (with, holds)),
        }
        // Excluded values at the bounds are better said by the bounds.
        while let Ok(at) = self.not.binary_search(&self.low)
            && self.low < self.high
        {
            self.not.remove(at);
            self.low += 1;
        }
        while let Ok(at) = self.not.binary_search(&self.high)
            && self.low < self.high
        {
            self.not.remove(at);
            self.high -= 1;
        }
        let Self { low, high, not, bits } = self;
        not.retain(|value| (*low..=*high).contains(value));
        if low == high {
            bits.clear();
        }
    }
}

/// Inserts into a sorted list, if there is room.
fn insert<T: Ord>(list: &mut Vec<T>, value: T) {
    if let Err(at) = list.binary_search(&value)
        && list.len() < MOST
    {
        list.insert(at, value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comparison() -> impl Strategy<Value = (Test, u32)> {
        let test =
            proptest::sample::select(vec![Test::Equal, Test::Greater, Test::GreaterOrEqual, Test::AnyBit]);
        (test, prop_oneof![4 => 0u32..12, 1 => 250u32..260, 1 => any::<u32>()])
    }

    proptest! {
        #[test]
        fn what_is_decided_is_right(
            value in prop_oneof![0u32..12, 250u32..256],
            comparisons in proptest::collection::vec(comparison(), 1..24),
        ) {
            let mut known = Knowledge::of(Size::Byte);
            for (test, with) in comparisons {
                let holds = test.holds(value, with);
                match known.decides(test, with) {
                    Some(decided) => prop_assert_eq!(decided, holds),
                    None => known.learn(test, with, holds),
                }
            }
        }
    }

    #[test]
    fn comparisons_decide_others() {
        let mut known = Knowledge::of(Size::Half);
        assert_eq!(known.decides(Test::Greater, 0xffff), Some(false), "a half word is smaller");
        known.learn(Test::Equal, 7, false);
        assert_eq!((known.decides(Test::Equal, 7), known.decides(Test::Equal, 8)), (Some(false), None));
        known.learn(Test::Greater, 7, true);
        assert_eq!(known.decides(Test::GreaterOrEqual, 8), Some(true));
        known.learn(Test::AnyBit, 3, true);
        assert_eq!((known.decides(Test::AnyBit, 3), known.decides(Test::AnyBit, 1)), (Some(true), None));
        known.learn(Test::GreaterOrEqual, 10, false);
        known.learn(Test::Equal, 8, false);
        assert_eq!(known.decides(Test::Equal, 9), Some(true), "nothing else is left");
    }
}
