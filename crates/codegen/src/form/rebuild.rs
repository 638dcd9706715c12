//! A table's structure built anew while the table changes.
//!
//! A [`Rebuild`] is a copy that belongs to whoever builds it, without the table's lock. The table notes its changes
//! meanwhile, and the copy repeats them before it takes the original's place. Packets use the original until then. A copy
//! is of no use any more once the table has put all its entries into a new structure, or has changed [`NOTES`] times for
//! each entry.

use pipeline::ir::TableId;

use super::structure::{Misfit, Structure};
use crate::keys::Ternary;

/// Changes at most that are repeated while the table waits, at first; they double with each round,
const AT_ONCE: usize = 64;
/// so many times: to 1,024, which take 10 to 50 ms.
const DOUBLINGS: u32 = 4;
/// Rounds after which a copy that does not catch up is given up.
const ROUNDS: u32 = 16;
/// Changes that a table notes for each of its entries at most. One takes less memory than an entry.
const NOTES: usize = 4;

/// A change of a structure.
pub(super) enum Step {
    Insert(Ternary, u32, u32),
    Replace(Ternary, u32, u32),
    Remove(Ternary, u32),
}

impl Step {
    pub(super) fn apply(&self, structure: &mut dyn Structure) -> Result<(), Misfit> {
        match self {
            Self::Insert(ternary, order, handle) => structure.insert(ternary, *order, *handle),
            Self::Replace(ternary, order, handle) => structure.replace(ternary, *order, *handle),
            Self::Remove(ternary, order) => structure.remove(ternary, *order),
        }
    }
}

/// Changes since a copy was taken.
#[derive(Default)]
pub(super) struct Log {
    /// Tells the copy from earlier ones.
    number: u64,
    steps: Option<Vec<Step>>,
    /// Changes at most.
    most: usize,
}

impl Log {
    pub(super) fn note(&mut self, step: impl FnOnce() -> Step) {
        match &mut self.steps {
            Some(steps) if steps.len() < self.most => steps.push(step()),
            Some(_) => self.end(),
            None => {}
        }
    }

    /// Changes count from now on, for this copy of a structure with so many entries. An earlier one is of no use any more.
    pub(super) fn begin(
        &mut self,
        engine: u64,
        table: TableId,
        structure: Box<dyn Structure>,
        entries: usize,
    ) -> Rebuild {
        self.number += 1;
        (self.steps, self.most) = (Some(vec![]), entries.saturating_mul(NOTES));
        Rebuild { engine, table, number: self.number, structure, steps: vec![], rounds: 0, is_sound: true }
    }

    /// Gives the copy the changes that it has not seen; whether it is still of use.
    pub(super) fn hand_over(&mut self, rebuild: &mut Rebuild) -> bool {
        if self.number != rebuild.number {
            return false;
        }
        if !rebuild.is_sound || rebuild.rounds > ROUNDS {
            self.end();
        }
        let is_of_use = self.steps.is_some();
        rebuild.steps.extend(self.steps.iter_mut().flat_map(std::mem::take));
        is_of_use
    }

    /// The copy has taken the structure's place, or is of no use any more.
    pub(super) fn end(&mut self) {
        self.steps = None;
    }
}

/// A copy of a table's structure, to be made faster without the engine.
pub struct Rebuild {
    /// The engine's number.
    pub(crate) engine: u64,
    table: TableId,
    number: u64,
    structure: Box<dyn Structure>,
    /// Changes of the original that are still to be repeated.
    steps: Vec<Step>,
    /// Times that it has caught up.
    rounds: u32,
    /// Whether it has everything that it should have.
    is_sound: bool,
}

impl std::fmt::Debug for Rebuild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rebuild").field("table", &self.table).field("steps", &self.steps.len()).finish()
    }
}

impl Rebuild {
    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Builds the copy anew.
    pub fn build(&mut self) {
        self.is_sound &= self.structure.rebuild().is_ok();
    }

    /// Repeats the changes that the engine has handed over.
    pub fn catch_up(&mut self) {
        self.rounds += 1;
        let mut steps = std::mem::take(&mut self.steps).into_iter();
        self.is_sound &= steps.try_for_each(|step| step.apply(&mut *self.structure)).is_ok();
    }

    /// Whether so many changes are still to be repeated that the table should not wait for them.
    pub(super) fn is_behind(&self) -> bool {
        self.steps.len() > AT_ONCE << self.rounds.min(DOUBLINGS)
    }

    /// The structure, if it has repeated all changes.
    pub(super) fn finish(mut self) -> Option<Box<dyn Structure>> {
        self.catch_up();
        self.structure.commit();
        self.is_sound.then_some(self.structure)
    }
}
