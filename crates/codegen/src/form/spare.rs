//! The structure that packets read before a bundle, kept for the next one.
//!
//! A copy for each bundle would take as long as the table is large. So two structures take turns: packets read one. Once
//! no view leads to the other, it repeats the changes that it has missed, and the next bundle changes it. Each change is
//! made twice, which takes less time than a copy as long as there are few for each entry.
//!
//! # Invariant
//! A spare is used only if nothing but itself has the last reader that views had of it. The engine frees views oldest
//! first, so earlier readers are gone by then.

use std::sync::Arc;

use tables::Lookup;

use super::rebuild::Step;
use super::structure::Structure;

/// A structure that was read before, with the changes that it lacks.
pub(super) struct Spare {
    structure: Box<dyn Structure>,
    /// The last reader that views have of it.
    lookup: Arc<dyn Lookup>,
    missed: Vec<Step>,
    /// The most changes that it may lack.
    most: usize,
    /// Whether [`super::Writer::tidy`] has been called since it was kept.
    pub(super) is_idle: bool,
}

impl Spare {
    /// Keeps the structure of a table of so many entries, which `lookup` and its clones read.
    pub(super) fn new(structure: Box<dyn Structure>, lookup: Arc<dyn Lookup>, entries: usize) -> Self {
        let most = structure.worth_repeating(entries);
        Self { structure, lookup, missed: vec![], most, is_idle: false }
    }

    /// Notes a change; whether to repeat all of them still takes less time than to copy the structure.
    pub(super) fn note(&mut self, step: Step) -> bool {
        self.missed.push(step);
        self.missed.len() <= self.most
    }

    /// The structure with all changes, to be committed; `None` if packets may still read it, or if it has no room for
    /// the changes.
    pub(super) fn caught_up(mut self) -> Option<Box<dyn Structure>> {
        // Acquires the last reader's release.
        Arc::get_mut(&mut self.lookup)?;
        self.structure.prepare();
        let mut missed = self.missed.iter();
        missed.try_for_each(|step| step.apply(&mut *self.structure)).ok()?;
        Some(self.structure)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use smallvec::smallvec;
    use tables::MISS;

    use super::super::{Form, structure};
    use super::*;
    use crate::keys::Ternary;

    fn of(key: u64) -> Ternary {
        Ternary { value: smallvec![key], mask: smallvec![u64::MAX] }
    }

    /// A spare with three keys that lacks three changes, and what reads it.
    fn spare(form: Form) -> (Spare, Arc<dyn Lookup>) {
        let mut structure = structure::new(form, 1, &[u64::MAX], 64).unwrap();
        (1..4).for_each(|key| structure.insert(&of(key), 9, key as u32).unwrap());
        let lookup = structure.reader();
        let mut spare = Spare::new(structure, lookup.clone(), 3);
        let steps = [Step::Replace(of(1), 9, 11), Step::Remove(of(2), 9), Step::Insert(of(4), 9, 14)];
        assert!(steps.into_iter().all(|step| spare.note(step)));
        (spare, lookup)
    }

    #[test]
    fn a_structure_that_nobody_reads_repeats_what_it_has_missed() {
        for form in [Form::Exact, Form::Prefix, Form::Classifier] {
            let (spare, lookup) = spare(form);
            drop(lookup);
            let mut structure = spare.caught_up().unwrap();
            structure.commit();
            let reader = structure.reader();
            let found = [1, 2, 3, 4].map(|key| reader.find(&[key]));
            assert_eq!(found, [11, MISS, 3, 14], "{form:?}");
        }
    }

    #[test]
    fn a_structure_that_is_read_stays_as_it_is() {
        let (spare, lookup) = spare(Form::Prefix);
        assert!(spare.caught_up().is_none());
        assert_eq!([1, 2, 3, 4].map(|key| lookup.find(&[key])), [1, 2, 3, MISS]);
    }

    #[test]
    fn many_changes_are_not_worth_repeating() {
        let (mut spare, _) = spare(Form::Exact);
        let more = (0..).take_while(|i| spare.note(Step::Replace(of(1), 9, *i))).count();
        assert_eq!(more, 256 - 3);
        let (structure, lookup) = (spare.structure, spare.lookup);
        assert_eq!(Spare::new(structure, lookup, 1 << 20).most, 1 << 18);
    }
}
