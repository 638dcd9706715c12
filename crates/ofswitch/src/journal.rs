//! Maps whose changes can be taken back: while a change is tried, they keep what it replaces.
//!
//! So a change costs what it changes, however much is there besides.

use std::collections::BTreeMap;
use std::ops::Deref;

/// A map. It is read as a [`BTreeMap`].
#[derive(Debug)]
pub(crate) struct Journaled<K, V> {
    map: BTreeMap<K, V>,
    /// What the change that is being tried has replaced, in order; `None`: none is.
    replaced: Option<Vec<(K, Option<V>)>>,
}

impl<K, V> Default for Journaled<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), replaced: None }
    }
}

impl<K, V> Deref for Journaled<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.map
    }
}

/// What changes can be taken back in.
pub(crate) trait Journal {
    /// Begins to try a change, which ends with [`Journal::keep`] or [`Journal::take_back`].
    fn begin(&mut self);

    /// Ends a change that has succeeded.
    fn keep(&mut self);

    /// Ends a change that has failed: everything is as it was at its beginning.
    fn take_back(&mut self);
}

impl<K: Ord + Clone, V: Clone> Journal for Journaled<K, V> {
    fn begin(&mut self) {
        debug_assert!(self.replaced.is_none(), "one change at a time");
        self.replaced = Some(Vec::new());
    }

    fn keep(&mut self) {
        self.replaced = None;
    }

    fn take_back(&mut self) {
        for (key, before) in self.replaced.take().into_iter().flatten().rev() {
            match before {
                Some(value) => drop(self.map.insert(key, value)),
                None => drop(self.map.remove(&key)),
            }
        }
    }
}

impl<K: Ord + Clone, V: Clone> Journaled<K, V> {
    /// Sets the value of a key; returns the one before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.map.insert(key.clone(), value);
        if let Some(replaced) = &mut self.replaced {
            replaced.push((key, before.clone()));
        }
        before
    }

    /// Removes a key; returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (key, before) = self.map.remove_entry(key)?;
        if let Some(replaced) = &mut self.replaced {
            replaced.push((key, Some(before.clone())));
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_change_is_taken_back_or_kept(
            changes in vec((any::<bool>(), vec((0u8..8, any::<Option<u8>>()), 0..20)), 0..10)
        ) {
            let mut journaled = Journaled::default();
            for (keeps, steps) in changes {
                let before = BTreeMap::clone(&journaled);
                let mut after = before.clone();
                journaled.begin();
                for (key, value) in steps {
                    match value {
                        Some(value) => prop_assert_eq!(journaled.insert(key, value), after.insert(key, value)),
                        None => prop_assert_eq!(journaled.remove(&key), after.remove(&key)),
                    }
                    prop_assert_eq!(&*journaled, &after);
                }
                if keeps {
                    journaled.keep();
                    prop_assert_eq!(&*journaled, &after);
                } else {
                    journaled.take_back();
                    prop_assert_eq!(&*journaled, &before);
                }
            }
        }
    }
}
