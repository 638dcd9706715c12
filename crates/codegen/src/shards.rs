//! Maps by number that views share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of a map. Controllers make tens of thousands of groups: a part has about as many then as there are parts.
const SHARDS: u32 = 128;

/// The part of a number. Controllers put ports and VLANs into some of its bits; the upper bits of the product depend on
/// all of them.
fn place(number: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - SHARDS.ilog2())) as usize
}

/// A map by number. A copy shares all of the map, and a change after that copies a part.
#[derive(Debug, Clone)]
pub(crate) struct Shards<T>(Vec<Arc<BTreeMap<u32, T>>>);

impl<T> Default for Shards<T> {
    fn default() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self((0..SHARDS).map(|_| empty.clone()).collect())
    }
}

impl<T: Clone> Shards<T> {
    /// The value of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.0.get(place(number))?.get(&number)
    }

    /// Sets or removes the value of a number.
    pub(crate) fn set(&mut self, number: u32, value: Option<T>) {
        let Some(shard) = self.0.get_mut(place(number)).map(Arc::make_mut) else { return };
        match value {
            Some(value) => drop(shard.insert(number, value)),
            None => drop(shard.remove(&number)),
        }
    }
}

impl<T: Clone> FromIterator<(u32, T)> for Shards<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(all: I) -> Self {
        let mut shards = Self::default();
        all.into_iter().for_each(|(number, value)| shards.set(number, Some(value)));
        shards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was_and_shares_what_has_not_changed() {
        let numbers = [0, 1, 128, u32::MAX];
        let before: Shards<u32> = numbers.into_iter().map(|number| (number, number)).collect();
        let mut after = before.clone();
        after.set(128, None);
        after.set(0, Some(7));
        after.set(2, Some(8));
        for number in numbers {
            assert_eq!(before.get(number), Some(&number));
        }
        assert_eq!(before.get(2), None);
        let now = [0, 1, 2, 128, u32::MAX].map(|number| after.get(number).copied());
        assert_eq!(now, [Some(7), Some(1), Some(8), None, Some(u32::MAX)]);
        let shared = before.0.iter().zip(&after.0).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(shared as u32, SHARDS - 3);
    }

    #[test]
    fn numbers_that_differ_in_some_bits_only_are_in_many_parts() {
        for shift in [0, 8, 16, 24] {
            let parts: std::collections::BTreeSet<_> =
                (0..256).map(|number| place(number << shift)).collect();
            assert!(parts.len() > 64, "{shift}: {parts:?}");
        }
    }
}
