//! Entries and defaults of tables.
#![allow(deprecated)] // Older controllers write `controller_metadata`.

use std::sync::Arc;

use p4runtime_proto::v1::{TableAction, TableEntry, table_action, update::Type as Kind};
use pipeline::ir::{Entry, EntryResult, Match, ProfileId};
use pipeline::state::{Change, Installed, Update as Step};

use super::action::{self, Place};
use super::book::{Details, OneShot, Part};
use super::direct::{self, Direct};
use super::matches;
use super::work::{MOST_ENTRIES, Work, refusal};
use crate::Failure;
use crate::schema::{Schema, Table};

/// Longest metadata of an entry or group, bytes.
pub(super) const LONGEST_METADATA: usize = 1 << 8;

/// A table by its id.
pub(super) fn table(schema: &Schema, id: u32) -> Result<&Table, Failure> {
    match schema.tables.get(&id) {
        Some(table) => Ok(table),
        None if id == 0 => Err(Failure::invalid("the table's id is missing")),
        None => Err(Failure::not_found(format!(
            "the program has no table {id} ({id:#010x}), or never applies it"
        ))),
    }
}

/// The key of an entry: its conditions and priority.
pub(super) fn key(table: &Table, entry: &TableEntry) -> Result<(Vec<Match>, u32), Failure> {
    if let Some(reason) = &table.unsupported {
        return Err(Failure::unimplemented(reason.clone()));
    }
    let conditions = matches::read(&table.fields, &entry.r#match)?;
    match (table.has_priority, u32::try_from(entry.priority)) {
        (true, Ok(priority)) if priority > 0 => Ok((conditions, priority)),
        (true, _) => Err(Failure::invalid(format!(
            "the priority is {} (expected 1 or more: a key is matched ternary, range or optional)",
            entry.priority
        ))),
        (false, Ok(0)) => Ok((conditions, 0)),
        (false, _) => Err(Failure::invalid(format!(
            "the priority is {} (expected 0: no key is matched ternary, range or optional)",
            entry.priority
        ))),
    }
}

impl Work<'_> {
    pub(super) fn table_entry(&mut self, kind: Kind, entry: &TableEntry) -> Result<(), Failure> {
        let table = table(self.schema, entry.table_id)?;
        let result = match entry.is_default_action {
            true => self.default_entry(kind, table, entry),
            false => self.entry(kind, table, entry),
        };
        result.map_err(|failure| failure.at(format_args!("table {}", table.name)))
    }

    fn entry(&mut self, kind: Kind, table: &Table, entry: &TableEntry) -> Result<(), Failure> {
        if entry.is_const && kind != Kind::Delete {
            return Err(Failure::invalid("is_const is set: only the program has constant entries"));
        }
        if table.is_const {
            return self.const_entry(kind, table, entry);
        }
        let (conditions, priority) = key(table, entry)?;
        if kind == Kind::Delete {
            return self.delete_entry(table, conditions, priority);
        }
        let (direct, mut details) = extras(table, entry)?;
        if table.fields.is_empty() && kind == Kind::Insert {
            return Err(Failure::invalid("it has no keys, so it has only a default"));
        }
        if kind == Kind::Insert && self.entries >= MOST_ENTRIES {
            return Err(Failure::exhausted(format!(
                "the switch has {MOST_ENTRIES} entries and takes no more"
            )));
        }
        let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
        let action = action.ok_or_else(|| Failure::invalid("the entry has no action"))?;
        if kind == Kind::Modify && table.profile.is_some() {
            let found =
                self.state.table(table.ir).and_then(|state| state.find(&conditions, priority)).cloned();
            self.release(table, &found.ok_or_else(not_found)?);
        }
        let (result, one_shot) = self.result(table, action)?;
        details.one_shot = one_shot.map(Box::new);
        let cookie = entry.controller_metadata;
        let step = Entry { matches: conditions.into(), priority, result, idle: 0, hard: 0, cookie };
        let (modifies, step) = match kind {
            Kind::Insert => (false, Step::Insert(table.ir, step)),
            _ => (true, Step::Modify(table.ir, step)),
        };
        let changed = self.change(step).map_err(refusal)?;
        let (Some(Change::Added(_, installed)) | Some(Change::Modified(_, _, installed))) = changed else {
            return Ok(());
        };
        let (id, stats) = (installed.id, installed.stats.clone());
        self.entries += usize::from(!modifies);
        if !details.is_empty() || modifies {
            self.book.entries.set(id, (!details.is_empty()).then_some(details));
        }
        direct::set(&mut self.later, &stats, &direct, modifies && table.meter.is_some());
        Ok(())
    }

    /// Entries of the program: only their counters and meters change.
    fn const_entry(&mut self, kind: Kind, table: &Table, entry: &TableEntry) -> Result<(), Failure> {
        if kind != Kind::Modify || entry.action.is_some() {
            return Err(Failure::denied("its entries are constant: the program fixes them"));
        }
        let (conditions, priority) = key(table, entry)?;
        let (direct, details) = extras(table, entry)?;
        if !details.is_empty() || entry.controller_metadata != 0 {
            return Err(Failure::denied("its entries are constant: only their counters and meters change"));
        }
        let found = self.state.table(table.ir).and_then(|state| state.find(&conditions, priority));
        let stats = found.ok_or_else(not_found)?.stats.clone();
        direct::set(&mut self.later, &stats, &direct, table.meter.is_some());
        Ok(())
    }

    fn delete_entry(&mut self, table: &Table, conditions: Vec<Match>, priority: u32) -> Result<(), Failure> {
        let changed =
            self.change(Step::DeleteMatch(table.ir, conditions.into(), priority)).map_err(refusal)?;
        let Some(Change::Removed(_, removed)) = changed else { return Ok(()) };
        let removed = removed.clone();
        self.entries = self.entries.saturating_sub(1);
        self.release(table, &removed);
        self.book.entries.set(removed.id, None);
        Ok(())
    }

    /// Ends the uses of a profile by an entry, and removes the group that it brought along.
    fn release(&mut self, table: &Table, entry: &Arc<Installed>) {
        let profile = table.profile.and_then(|id| self.schema.profiles.get(&id));
        let Some(profile) = profile else { return };
        let one_shot = self.book.entries.get(&entry.id).and_then(|details| details.one_shot.clone());
        match (one_shot, &entry.entry.result) {
            (Some(one_shot), _) => self.remove_one_shot(profile, &one_shot),
            (None, EntryResult::Member(id)) => self.book.count_use(profile.ir, Part::Member(*id), false),
            (None, EntryResult::Group(id)) => self.book.count_use(profile.ir, Part::Group(*id), false),
            (None, EntryResult::Action(_)) => {}
        }
    }

    /// What an entry does.
    fn result(
        &mut self,
        table: &Table,
        action: &table_action::Type,
    ) -> Result<(EntryResult, Option<OneShot>), Failure> {
        let profile = match (table.profile, action) {
            (None, table_action::Type::Action(action)) => {
                return Ok((EntryResult::Action(action::read(&table.actions, action, Place::Entry)?), None));
            }
            (None, _) => {
                return Err(Failure::invalid(
                    "it has no action profile: its entries have actions of their own",
                ));
            }
            (Some(id), _) => self.schema.profiles.get(&id),
        };
        let profile =
            profile.ok_or_else(|| Failure::unimplemented("the program never uses its action profile"))?;
        let in_profile = |failure: Failure| failure.at(format_args!("action profile {}", profile.name));
        match action {
            table_action::Type::Action(_) => Err(Failure::invalid(
                "it has an action profile: its entries refer to members, groups or sets of actions",
            )),
            table_action::Type::ActionProfileMemberId(id) => {
                self.refer(profile.ir, Part::Member(*id)).map_err(in_profile)?;
                Ok((EntryResult::Member(*id), None))
            }
            _ if !profile.selector => {
                Err(in_profile(Failure::invalid("it has no selector: entries refer to its members alone")))
            }
            table_action::Type::ActionProfileGroupId(id) => {
                self.refer(profile.ir, Part::Group(*id)).map_err(in_profile)?;
                Ok((EntryResult::Group(*id), None))
            }
            table_action::Type::ActionProfileActionSet(set) => {
                let one_shot = self.add_one_shot(profile, set).map_err(in_profile)?;
                Ok((EntryResult::Group(one_shot.group), Some(one_shot)))
            }
        }
    }

    /// Begins a use of a member or group, which must exist.
    fn refer(&mut self, profile: ProfileId, part: Part) -> Result<(), Failure> {
        if self.book.one_shots.get(&profile).is_some() {
            return Err(Failure::invalid(
                "other entries have sets of actions (one-shot), which exclude members and groups",
            ));
        }
        let state = self.state.profile(profile);
        let exists = match part {
            Part::Member(id) => state.is_some_and(|state| state.members.contains_key(&id)),
            Part::Group(id) => state.is_some_and(|state| state.groups.contains_key(&id)),
        };
        if !exists {
            return Err(Failure::not_found(match part {
                Part::Member(id) => format!("it has no member {id}"),
                Part::Group(id) => format!("it has no group {id}"),
            }));
        }
        self.book.count_use(profile, part, true);
        Ok(())
    }

    fn default_entry(&mut self, kind: Kind, table: &Table, entry: &TableEntry) -> Result<(), Failure> {
        if kind != Kind::Modify {
            return Err(Failure::invalid("the default can only be modified: it always exists"));
        }
        if !entry.r#match.is_empty() || entry.priority != 0 {
            return Err(Failure::invalid("the default has no keys and no priority"));
        }
        if entry.idle_timeout_ns != 0 || entry.time_since_last_hit.is_some() {
            return Err(Failure::invalid("the default has no idle timeout"));
        }
        if entry.is_const {
            return Err(Failure::invalid("is_const is set: only the program has constant defaults"));
        }
        if table.const_default {
            return Err(Failure::denied("its default is constant: the program fixes it"));
        }
        if entry.counter_data.is_some() || entry.meter_config.is_some() || entry.meter_counter_data.is_some()
        {
            return Err(Failure::unimplemented(
                "its default has no counter or meter: misses are not counted",
            ));
        }
        let call = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
            None => None,
            Some(table_action::Type::Action(action)) => {
                Some(action::read(&table.actions, action, Place::Default)?)
            }
            Some(_) => return Err(Failure::invalid("the default has an action of its own")),
        };
        let mut details = Details::default();
        if call.is_some() {
            details.metadata = metadata(&entry.metadata)?;
            details.controller_metadata = entry.controller_metadata;
        }
        self.change(Step::Default(table.ir, call)).map_err(refusal)?;
        self.book.defaults.set(table.ir, (!details.is_empty()).then_some(details));
        Ok(())
    }
}

/// What an entry has besides conditions and action.
fn extras(table: &Table, entry: &TableEntry) -> Result<(Direct, Details), Failure> {
    if entry.time_since_last_hit.is_some() {
        return Err(Failure::invalid("time_since_last_hit is set: it can only be read"));
    }
    let idle_timeout = u64::try_from(entry.idle_timeout_ns).map_err(|_| {
        Failure::invalid(format!("the idle timeout is negative ({} ns)", entry.idle_timeout_ns))
    })?;
    if idle_timeout != 0 && !table.timeouts {
        return Err(Failure::invalid("its entries have no idle timeouts (support_timeout is not set)"));
    }
    let metadata = metadata(&entry.metadata)?;
    let direct = Direct::of(table, entry)?;
    Ok((direct, Details { idle_timeout, metadata, ..Details::default() }))
}

/// Metadata of bounded length.
pub(super) fn metadata(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    match bytes.len() {
        0..=LONGEST_METADATA => Ok(bytes.to_vec()),
        len => Err(Failure::exhausted(format!("the metadata has {len} bytes (at most {LONGEST_METADATA})"))),
    }
}

pub(super) fn not_found() -> Failure {
    Failure::not_found("it has no entry with these conditions and this priority")
}

/// An entry's action, as it is read.
pub(super) fn written(table: &Table, entry: &EntryResult, details: Option<&Details>) -> Option<TableAction> {
    if let Some(one_shot) = details.and_then(|details| details.one_shot.as_ref()) {
        return Some(one_shot.action());
    }
    let action = match entry {
        EntryResult::Action(call) => {
            table_action::Type::Action(action::write(table.action_of(call.action)?, call))
        }
        EntryResult::Member(id) => table_action::Type::ActionProfileMemberId(*id),
        EntryResult::Group(id) => table_action::Type::ActionProfileGroupId(*id),
    };
    Some(TableAction { r#type: Some(action) })
}
