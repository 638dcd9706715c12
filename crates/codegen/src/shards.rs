//! Maps by number that views share.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of a map. Controllers make tens of thousands of groups, one after the other: a part has about as many then as
/// there are parts.
const SHARDS: u32 = 128;

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
        self.0.get((number % SHARDS) as usize)?.get(&number)
    }

    /// Sets or removes the value of a number.
    pub(crate) fn set(&mut self, number: u32, value: Option<T>) {
        let Some(shard) = self.0.get_mut((number % SHARDS) as usize).map(Arc::make_mut) else { return };
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
        let numbers = [0, 1, SHARDS, SHARDS + 1, u32::MAX];
        let before: Shards<u32> = numbers.into_iter().map(|number| (number, number)).collect();
        let mut after = before.clone();
        after.set(SHARDS, None);
        after.set(0, Some(7));
        after.set(2 * SHARDS, Some(8));
        for number in numbers {
            assert_eq!(before.get(number), Some(&number));
        }
        assert_eq!((before.get(2), before.get(2 * SHARDS)), (None, None));
        let now = [0, 1, SHARDS, SHARDS + 1, 2 * SHARDS, u32::MAX].map(|number| after.get(number).copied());
        assert_eq!(now, [Some(7), Some(1), None, Some(SHARDS + 1), Some(8), Some(u32::MAX)]);
        let shared = before.0.iter().zip(&after.0).filter(|(one, other)| Arc::ptr_eq(one, other)).count();
        assert_eq!(shared as u32, SHARDS - 1);
    }
}
