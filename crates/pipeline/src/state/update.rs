//! Updates, and how a bundle is applied and taken back.
//!
//! Updates are checked and applied one after the other, so that later ones see earlier ones; each records what it
//! replaced. If one fails, the records are put back in reverse. Nothing else borrows the state meanwhile: packets see
//! all of a bundle or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::arrays::Stats;
use super::{
    Choice, EntryId, EntryStats, Group, Installed, InstalledGroup, MeterCell, Rates, Replication, State,
    Values,
};
use crate::bits::Bits;
use crate::ir::{
    ActionCall, Entry, GroupTableId, Matches, MeterId, ProfileId, RegisterId, ReplicasId, TableId, ValueSetId,
};
use crate::validate::EntryError;
use crate::validate::entry::{check, check_call};

/// A change that a control plane asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// Inserts an entry. There must be none with the same conditions and priority.
    Insert(TableId, Entry),
    /// Replaces result, timeouts and cookie of the entry with the same conditions and priority; counts and times stay.
    Modify(TableId, Entry),
    /// Deletes an entry by number.
    Delete(TableId, EntryId),
    /// Deletes the entry with these conditions and this priority.
    DeleteMatch(TableId, Matches, u32),
    /// Sets the action after a miss; `None` restores the program's.
    Default(TableId, Option<ActionCall>),
    /// Sets or removes a profile's member.
    Member(ProfileId, u32, Option<ActionCall>),
    /// Sets or removes a profile's group.
    Selection(ProfileId, u32, Option<Vec<Choice>>),
    /// Sets or removes a group. Counts restart.
    Group(GroupTableId, u32, Option<Group>),
    /// Sets or removes a replication list.
    Replication(ReplicasId, u32, Option<Replication>),
    /// Replaces a value set's tuples.
    Values(ValueSetId, Values),
    /// Configures a meter; its buckets are full then.
    Meter(MeterId, u32, Option<Rates>),
    /// Configures the meter of an entry.
    EntryMeter(TableId, EntryId, Option<Rates>),
    /// Writes a register.
    Register(RegisterId, u32, Bits),
}

/// A bundle of updates that was applied.
#[derive(Debug, Default)]
pub struct Bundle {
    /// Generation that it began.
    pub generation: u64,
    /// What changed, in order.
    pub changes: Vec<Change>,
}

/// What an update changed, for those that keep structures of their own.
#[derive(Debug, Clone)]
pub enum Change {
    /// An entry appeared.
    Added(TableId, Arc<Installed>),
    /// An entry changed: before and after.
    Modified(TableId, Arc<Installed>, Arc<Installed>),
    /// An entry is gone.
    Removed(TableId, Arc<Installed>),
    /// A table's default changed.
    Default(TableId),
    /// A profile changed.
    Profile(ProfileId),
    /// A group changed.
    Group(GroupTableId, u32),
    /// A replication list changed.
    Replication(ReplicasId, u32),
    /// A value set changed.
    Values(ValueSetId),
}

/// A bundle that was refused: which update, and why. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("update {index}: {problem}")]
pub struct UpdateError {
    /// Index of the update.
    pub index: usize,
    /// Reason.
    pub problem: UpdateProblem,
}

/// Reasons to refuse an update.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateProblem {
    /// The object that it names is not in the program.
    #[error("the program has no such object")]
    NoObject,
    /// The entry, group or member does not exist.
    #[error("it does not exist")]
    NotFound,
    /// An equal entry exists.
    #[error("an entry with the same conditions and priority exists")]
    Exists,
    /// The table is full.
    #[error("full: its size is {0}")]
    Full(u32),
    /// Entries or default are fixed.
    #[error("the program fixes it")]
    Fixed,
    /// The entry or action call does not fit.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A value set's tuple or a register's value has other widths than the set or the register.
    #[error("the value does not fit")]
    Value,
}

/// A bundle that is being made ([`State::begin`]).
#[derive(Debug)]
pub struct Transaction {
    undo: Vec<Undo>,
    changes: Vec<Change>,
}

/// A point in a bundle ([`State::savepoint`]).
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    undo: usize,
    changes: usize,
    next_entry: u64,
}

/// What an update replaced.
#[derive(Debug)]
enum Undo {
    Entry(TableId, EntryId, Option<Arc<Installed>>),
    Default(TableId, Option<ActionCall>),
    Member(ProfileId, u32, Option<ActionCall>),
    Selection(ProfileId, u32, Option<Vec<Choice>>),
    Group(GroupTableId, u32, Option<Arc<InstalledGroup>>),
    Replication(ReplicasId, u32, Option<Replication>),
    Values(ValueSetId, Values),
    /// What has no before: done after everything else has succeeded.
    Later(Update),
}

type Done = Result<(Undo, Option<Change>), UpdateProblem>;

impl State {
    /// Applies a bundle at time `now`, nanoseconds: all of it, or nothing.
    ///
    /// # Errors
    /// The first update that does not fit.
    pub fn apply(&mut self, updates: Vec<Update>, now: u64) -> Result<Bundle, UpdateError> {
        let mut transaction = self.begin();
        let start = self.savepoint(&transaction);
        transaction.undo.reserve(updates.len());
        transaction.changes.reserve(updates.len());
        for (index, update) in updates.into_iter().enumerate() {
            if let Err(problem) = self.change(&mut transaction, update, now) {
                self.go_back(&mut transaction, start);
                return Err(UpdateError { index, problem });
            }
        }
        Ok(self.commit(transaction, now))
    }

    /// Begins a bundle whose updates are given one by one. It ends with [`State::commit`] or with [`State::go_back`] to
    /// its beginning.
    pub fn begin(&self) -> Transaction {
        Transaction { undo: Vec::new(), changes: Vec::new() }
    }

    /// Applies an update of a bundle; returns what it changed. Registers and meters change when the bundle is committed.
    ///
    /// # Errors
    /// The update does not fit: the state and the bundle are as before.
    pub fn change<'t>(
        &mut self,
        transaction: &'t mut Transaction,
        update: Update,
        now: u64,
    ) -> Result<Option<&'t Change>, UpdateProblem> {
        let (before, change) = self.update(update, now)?;
        transaction.undo.push(before);
        Ok(match change {
            Some(change) => {
                transaction.changes.push(change);
                transaction.changes.last()
            }
            None => None,
        })
    }

    /// The point that a bundle has reached.
    pub fn savepoint(&self, transaction: &Transaction) -> Savepoint {
        Savepoint {
            undo: transaction.undo.len(),
            changes: transaction.changes.len(),
            next_entry: self.next_entry,
        }
    }

    /// Takes back the updates since a point of the same bundle.
    pub fn go_back(&mut self, transaction: &mut Transaction, to: Savepoint) {
        while transaction.undo.len() > to.undo {
            transaction.undo.pop().into_iter().for_each(|before| self.put_back(before));
        }
        transaction.changes.truncate(to.changes);
        // Nobody has seen the numbers of entries that were taken back.
        self.next_entry = to.next_entry;
    }

    /// Ends a bundle.
    pub fn commit(&mut self, transaction: Transaction, now: u64) -> Bundle {
        transaction.undo.into_iter().for_each(|done| self.finish(done, now));
        self.generation += 1;
        Bundle { generation: self.generation, changes: transaction.changes }
    }

    /// Installs what the program brings along; validation has checked it.
    pub(super) fn install_initial(&mut self) {
        let program = self.program.clone();
        for (i, table) in program.tables.iter().enumerate() {
            for entry in &table.entries {
                // A second entry with the same conditions can never be hit.
                let _ = self.insert(TableId::at(i), entry.clone(), 0);
            }
            self.tables.iter_mut().skip(i).take(1).for_each(|state| state.default.clone_from(&table.default));
        }
    }

    fn update(&mut self, update: Update, now: u64) -> Done {
        use UpdateProblem::*;
        match update {
            Update::Insert(table, entry) => {
                self.changeable(table)?;
                self.insert(table, entry, now)
            }
            Update::Modify(table, entry) => self.modify(table, entry),
            Update::Delete(table, id) => self.delete(table, id),
            Update::DeleteMatch(table, matches, priority) => {
                let state = self.tables.get(table.index()).ok_or(NoObject)?;
                let id = state.find(&matches, priority).ok_or(NotFound)?.id;
                self.delete(table, id)
            }
            Update::Default(id, call) => self.set_default(id, call),
            Update::Member(id, member, call) => {
                let schema = self.program.profiles.get(id.index()).ok_or(NoObject)?;
                if let Some(call) = &call {
                    if !schema.actions.contains(&call.action) {
                        return Err(Entry(EntryError::Action(call.action.0)));
                    }
                    check_call(call, |id| self.action(id))?;
                }
                let size = schema.size;
                let profile = self.profiles.get_mut(id.index()).ok_or(NoObject)?;
                let before = replace(&mut profile.members, member, call, size as usize, size)?;
                Ok((Undo::Member(id, member, before), Some(Change::Profile(id))))
            }
            Update::Selection(id, group, choices) => {
                let schema = self.program.profiles.get(id.index()).ok_or(NoObject)?;
                if schema.select.is_none() {
                    return Err(NoObject);
                }
                let size = schema.size;
                let profile = self.profiles.get_mut(id.index()).ok_or(NoObject)?;
                let before = replace(&mut profile.groups, group, choices, size as usize, size)?;
                Ok((Undo::Selection(id, group, before), Some(Change::Profile(id))))
            }
            Update::Group(id, number, group) => {
                let size = self.program.groups.get(id.index()).ok_or(NoObject)?.size;
                for bucket in group.iter().flat_map(|group| &group.buckets) {
                    check_call(&bucket.call, |id| self.action(id))?;
                }
                let installed = group.map(|group| {
                    let bucket_stats = group.buckets.iter().map(|_| Stats::default()).collect();
                    Arc::new(InstalledGroup { group, stats: Stats::default(), bucket_stats, since: now })
                });
                let groups = self.groups.get_mut(id.index()).ok_or(NoObject)?;
                let before = replace(groups, number, installed, size as usize, size)?;
                Ok((Undo::Group(id, number, before), Some(Change::Group(id, number))))
            }
            Update::Replication(id, number, list) => {
                let lists = self.replicas.get_mut(id.index()).ok_or(NoObject)?;
                let before = replace(lists, number, list, usize::MAX, u32::MAX)?;
                Ok((Undo::Replication(id, number, before), Some(Change::Replication(id, number))))
            }
            Update::Values(id, values) => {
                let schema = self.program.value_sets.get(id.index()).ok_or(NoObject)?;
                if values.len() > schema.size as usize {
                    return Err(Full(schema.size));
                }
                let fits = |tuple: &Vec<Option<crate::ir::KeyMatch>>| {
                    let widths = schema.types.iter().map(|ty| ty.width());
                    tuple.len() == schema.types.len()
                        && tuple
                            .iter()
                            .zip(widths)
                            .all(|(is, width)| is.as_ref().is_none_or(|is| is.fits(width)))
                };
                if !values.iter().all(fits) {
                    return Err(Value);
                }
                let set = self.value_sets.get_mut(id.index()).ok_or(NoObject)?;
                let before = std::mem::replace(set, values);
                Ok((Undo::Values(id, before), Some(Change::Values(id))))
            }
            Update::Meter(id, index, _) => {
                if !self.arrays.has_meter(id, index.into()) {
                    return Err(NoObject);
                }
                Ok((Undo::Later(update), None))
            }
            Update::EntryMeter(table, entry, _) => {
                let state = self.tables.get(table.index()).ok_or(NoObject)?;
                let installed = state.entries.get(&entry).ok_or(NotFound)?;
                installed.stats.meter.as_ref().ok_or(NoObject)?;
                Ok((Undo::Later(update), None))
            }
            Update::Register(id, index, ref value) => {
                let schema = self.program.registers.get(id.index()).ok_or(NoObject)?;
                if index >= schema.size || value.width() != schema.ty.width() {
                    return Err(Value);
                }
                Ok((Undo::Later(update), None))
            }
        }
    }

    /// Whether a table's entries may change.
    fn changeable(&self, table: TableId) -> Result<(), UpdateProblem> {
        match self.program.tables.get(table.index()).ok_or(UpdateProblem::NoObject)?.const_entries {
            true => Err(UpdateProblem::Fixed),
            false => Ok(()),
        }
    }

    fn insert(&mut self, id: TableId, entry: Entry, now: u64) -> Done {
        let schema = self.program.tables.get(id.index()).ok_or(UpdateProblem::NoObject)?;
        check(&self.program, schema, &entry, |id| self.action(id))?;
        let meter = schema.meter.map(|_| Box::new(MeterCell::default()));
        let table = self.tables.get_mut(id.index()).ok_or(UpdateProblem::NoObject)?;
        if table.find(&entry.matches, entry.priority).is_some() {
            return Err(UpdateProblem::Exists);
        }
        if table.entries.len() >= schema.size as usize {
            return Err(UpdateProblem::Full(schema.size));
        }
        let number = EntryId(self.next_entry);
        self.next_entry += 1;
        let stats = EntryStats::new(meter);
        stats.last_hit.store(now, Relaxed);
        let installed = Arc::new(Installed { id: number, entry, since: now, stats: Arc::new(stats) });
        table.put(installed.clone());
        Ok((Undo::Entry(id, number, None), Some(Change::Added(id, installed))))
    }

    fn modify(&mut self, id: TableId, entry: Entry) -> Done {
        self.changeable(id)?;
        let schema = self.program.tables.get(id.index()).ok_or(UpdateProblem::NoObject)?;
        check(&self.program, schema, &entry, |id| self.action(id))?;
        let table = self.tables.get_mut(id.index()).ok_or(UpdateProblem::NoObject)?;
        let before = table.find(&entry.matches, entry.priority).cloned().ok_or(UpdateProblem::NotFound)?;
        // The same conditions in one place: to find the entry reads no others.
        let entry = Entry { matches: before.entry.matches.clone(), ..entry };
        let after = Arc::new(Installed { entry, stats: before.stats.clone(), ..*before });
        table.put(after.clone());
        Ok((Undo::Entry(id, before.id, Some(before.clone())), Some(Change::Modified(id, before, after))))
    }

    fn delete(&mut self, id: TableId, number: EntryId) -> Done {
        self.changeable(id)?;
        let table = self.tables.get_mut(id.index()).ok_or(UpdateProblem::NoObject)?;
        let before = table.take(number).ok_or(UpdateProblem::NotFound)?;
        Ok((Undo::Entry(id, number, Some(before.clone())), Some(Change::Removed(id, before))))
    }

    fn set_default(&mut self, id: TableId, call: Option<ActionCall>) -> Done {
        let schema = self.program.tables.get(id.index()).ok_or(UpdateProblem::NoObject)?;
        if schema.const_default {
            return Err(UpdateProblem::Fixed);
        }
        if let Some(call) = &call {
            let listed =
                schema.actions.iter().chain(&schema.default_only).any(|action| *action == call.action);
            let defined = schema.open && call.action.index() >= self.program.actions.len();
            if !listed && !defined {
                return Err(EntryError::Action(call.action.0).into());
            }
            check_call(call, |id| self.action(id))?;
        }
        let after = call.or_else(|| schema.default.clone());
        let table = self.tables.get_mut(id.index()).ok_or(UpdateProblem::NoObject)?;
        let before = std::mem::replace(&mut table.default, after);
        Ok((Undo::Default(id, before), Some(Change::Default(id))))
    }

    fn put_back(&mut self, undo: Undo) {
        match undo {
            Undo::Entry(id, number, before) => {
                let Some(table) = self.tables.get_mut(id.index()) else { return };
                table.take(number);
                before.into_iter().for_each(|before| table.put(before));
            }
            Undo::Default(id, before) => {
                self.tables.iter_mut().skip(id.index()).take(1).for_each(|t| t.default.clone_from(&before));
            }
            Undo::Member(id, member, before) => {
                if let Some(profile) = self.profiles.get_mut(id.index()) {
                    restore(&mut profile.members, member, before);
                }
            }
            Undo::Selection(id, group, before) => {
                if let Some(profile) = self.profiles.get_mut(id.index()) {
                    restore(&mut profile.groups, group, before);
                }
            }
            Undo::Group(id, number, before) => {
                if let Some(groups) = self.groups.get_mut(id.index()) {
                    restore(groups, number, before);
                }
            }
            Undo::Replication(id, number, before) => {
                if let Some(lists) = self.replicas.get_mut(id.index()) {
                    restore(lists, number, before);
                }
            }
            Undo::Values(id, before) => {
                self.value_sets.iter_mut().skip(id.index()).take(1).for_each(|set| set.clone_from(&before));
            }
            Undo::Later(_) => {}
        }
    }

    /// Does what cannot fail and cannot be taken back.
    fn finish(&mut self, done: Undo, now: u64) {
        let Undo::Later(update) = done else { return };
        match update {
            Update::Meter(id, index, rates) => {
                self.arrays.configure_meter(id, index.into(), rates, now);
            }
            Update::EntryMeter(table, entry, rates) => {
                let installed = self.tables.get(table.index()).and_then(|table| table.entries.get(&entry));
                let cell = installed.and_then(|installed| installed.stats.meter.as_ref());
                cell.iter().for_each(|cell| cell.configure(rates, now));
            }
            Update::Register(id, index, value) => {
                let guard = self.arrays.lock();
                self.arrays.write(&guard, id, index.into(), &value);
            }
            _ => {}
        }
    }
}

/// Sets or removes an element; returns what was there.
fn replace<T>(
    map: &mut BTreeMap<u32, T>,
    key: u32,
    value: Option<T>,
    room: usize,
    size: u32,
) -> Result<Option<T>, UpdateProblem> {
    match value {
        Some(_) if !map.contains_key(&key) && map.len() >= room => Err(UpdateProblem::Full(size)),
        Some(value) => Ok(map.insert(key, value)),
        None => map.remove(&key).map(Some).ok_or(UpdateProblem::NotFound),
    }
}

fn restore<T>(map: &mut BTreeMap<u32, T>, key: u32, value: Option<T>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
