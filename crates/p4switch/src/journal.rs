//! A map whose changes can be taken back.

use std::collections::BTreeMap;

/// The map, with what changes replaced since the last [`Journal::keep`].
#[derive(Debug)]
pub(crate) struct Journal<K, V> {
    map: BTreeMap<K, V>,
    log: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Journal<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), log: Vec::new() }
    }
}

impl<K: Ord + Clone, V> Journal<K, V> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    /// Sets or removes the value of a key.
    pub(crate) fn set(&mut self, key: K, value: Option<V>) {
        let before = match value {
            Some(value) => self.map.insert(key.clone(), value),
            None => match self.map.remove(&key) {
                None => return,
                before => before,
            },
        };
        self.log.push((key, before));
    }

    /// All values, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.map.iter()
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The point to which [`Journal::go_back`] goes.
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Takes back the changes since a point.
    pub(crate) fn go_back(&mut self, mark: usize) {
        while self.log.len() > mark {
            match self.log.pop() {
                Some((key, Some(before))) => drop(self.map.insert(key, before)),
                Some((key, None)) => drop(self.map.remove(&key)),
                None => {}
            }
        }
    }

    /// Keeps all changes.
    pub(crate) fn keep(&mut self) {
        self.log.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_back_to_a_point() {
        let mut journal = Journal::default();
        journal.set(1, Some("a"));
        journal.keep();
        journal.set(2, Some("b"));
        let mark = journal.mark();
        journal.set(1, None);
        journal.set(1, Some("c"));
        journal.set(3, Some("d"));
        journal.set(3, None);
        journal.set(9, None);
        journal.go_back(mark);
        assert_eq!(journal.iter().collect::<Vec<_>>(), [(&1, &"a"), (&2, &"b")]);
        journal.go_back(0);
        assert_eq!(journal.iter().collect::<Vec<_>>(), [(&1, &"a")]);
    }
}
