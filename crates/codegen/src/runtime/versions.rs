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
