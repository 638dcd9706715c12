//! The versions of tables that a batch is looked up in.
//!
//! Invariant: what is held is of the tables of one view, and is released before the worker lets go of that view.

use tables::Held;

use crate::view::View;

/// What is held, for each table of a view.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    tables: Vec<Held>,
    /// Tables of which a version is held.
    used: Vec<usize>,
}

impl Versions {
    /// Makes room for the tables of a view.
    pub(super) fn prepare(&mut self, view: &View) {
        if self.tables.len() < view.tables.len() {
            self.tables.resize_with(view.tables.len(), Held::default);
            self.used.reserve(view.tables.len());
        }
    }

    /// Looks up in the version of a table, which is the current one the first time.
    #[inline]
    pub(crate) fn look<R>(&mut self, table: usize, find: impl FnOnce(&mut Held) -> R) -> R {
        let Some(held) = self.tables.get_mut(table) else { return find(&mut Held::default()) };
        let was_held = held.is_held();
        let found = find(held);
        if !was_held && held.is_held() {
            self.used.push(table);
        }
        found
    }

    /// Lets go of all versions.
    pub(super) fn release(&mut self) {
        for table in self.used.drain(..) {
            self.tables.get_mut(table).into_iter().for_each(Held::release);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tables::{Direct, Exact, Lookup};

    use super::*;

    #[test]
    fn what_a_batch_has_held_is_released_once() {
        let mut hash = Exact::new([u64::MAX]);
        hash.insert(&[1], 7).unwrap();
        let mut array = Direct::new(u64::MAX).unwrap();
        array.insert(1, 8).unwrap();
        let (hash, array) = (hash.reader(), array.reader());
        let mut versions = Versions { tables: vec![Held::default(), Held::default()], used: vec![] };
        for _ in 0..3 {
            assert_eq!(versions.look(0, |held| hash.find_held(held, &[1])), 7);
            // An array has no versions, and the third table no place.
            assert_eq!(versions.look(1, |held| array.find_held(held, &[1])), 8);
            assert_eq!(versions.look(2, |held| hash.find_held(held, &[1])), 7);
        }
        assert_eq!(versions.used, [0]);
        versions.release();
        assert!(versions.used.is_empty() && versions.tables.iter().all(|held| !held.is_held()));
    }
}
