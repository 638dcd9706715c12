//! What another program's state had, for a program that takes its place.
//!
//! Entities of the program before are read, the ids in them are translated by name, and they are written. Objects of
//! which one side has another shape keep nothing.

use std::collections::{BTreeMap, HashMap};

use p4runtime_proto::v1::{
    Action, ActionProfileGroup, ActionProfileMember, CounterData, DigestEntry, Entity, FieldMatch,
    MeterConfig, PacketReplicationEngineEntry, TableAction, TableEntry, Update, ValueSetEntry, action,
    entity::Entity as Kind, table_action, update, write_request::Atomicity,
};
use pipeline::state::Update as Step;

use super::Switch;
use crate::WriteFailure;
use crate::schema::{self, Field, Profile, Schema, Table};

/// Takes over what fits; returns a line for each object that loses something.
pub(super) fn take_over(switch: &mut Switch, before: &Switch, now: u64) -> Vec<String> {
    let program = switch.program.clone();
    let mut names = Names::between(before.program.schema(), program.schema());
    let mut lost = Lost::default();
    names.shapes(before, &mut lost);
    empty_tables(switch, &names, now);
    let table = TableEntry {
        counter_data: Some(CounterData::default()),
        meter_config: Some(MeterConfig::default()),
        ..TableEntry::default()
    };
    // Members before groups, and both before entries.
    let wanted = [
        Kind::ActionProfileMember(ActionProfileMember::default()),
        Kind::ActionProfileGroup(ActionProfileGroup::default()),
        Kind::TableEntry(table.clone()),
        Kind::TableEntry(TableEntry { is_default_action: true, ..table }),
        Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry::default()),
        Kind::ValueSetEntry(ValueSetEntry::default()),
        Kind::DigestEntry(DigestEntry::default()),
    ];
    for wanted in wanted {
        let wanted = [Entity { entity: Some(wanted) }];
        // Wildcards are always right.
        let _ = before.read(&wanted, now, &mut |part| {
            write(switch, before, &names, part, &mut lost, now);
            true
        });
    }
    arrays(switch, before, &mut lost, now);
    lost.lines()
}

/// Removes the program's own entries from tables that take over others.
fn empty_tables(switch: &mut Switch, names: &Names<'_>, now: u64) {
    for table in names.tables.values().filter(|table| !table.new.is_const) {
        let own = switch.state.table(table.new.ir).into_iter().flat_map(|state| state.entries());
        let steps = own.map(|entry| Step::Delete(table.new.ir, entry.id)).collect();
        // They exist, and the table is not constant.
        if let Ok(bundle) = switch.state.apply(steps, now) {
            switch.follow(&bundle);
        }
    }
}

fn write(
    switch: &mut Switch,
    before: &Switch,
    names: &Names<'_>,
    part: Vec<Entity>,
    lost: &mut Lost,
    now: u64,
) {
    let mut updates = Vec::with_capacity(part.len());
    let mut owners = Vec::with_capacity(part.len());
    for entity in part.into_iter().filter_map(|entity| entity.entity) {
        let owner = names.owner(&entity);
        let Some((kind, entity)) = names.translate(entity, before) else { continue };
        match entity {
            Ok(entity) => {
                updates.push(Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) });
                owners.push(owner);
            }
            Err(reason) => lost.add(owner, reason),
        }
    }
    if let Err(WriteFailure::Updates(results)) = switch.write(&updates, Atomicity::ContinueOnError, now) {
        for (owner, result) in owners.into_iter().zip(results) {
            if let Err(failure) = result {
                lost.add(owner, failure.message);
            }
        }
    }
}

/// Copies counters, meters and registers.
fn arrays(switch: &mut Switch, before: &Switch, lost: &mut Lost, now: u64) {
    let (old, new) = (before.program.schema(), switch.program.schema());
    let (from, to) = (before.state.arrays(), switch.state.arrays());
    for counter in new.counters.values() {
        let Some(other) = old.counters.values().find(|other| other.name == counter.name) else { continue };
        for cell in 0..counter.size.min(other.size) {
            let counts = from.used_counter(other.ir, cell.into()).map_or((0, 0), |stats| stats.get());
            if counts != (0, 0) {
                to.counter(counter.ir, cell.into()).iter().for_each(|stats| stats.set(counts.0, counts.1));
            }
        }
    }
    for meter in new.meters.values() {
        let Some(other) = old.meters.values().find(|other| other.name == meter.name) else { continue };
        if other.ty != meter.ty {
            lost.add(format!("meter {}", meter.name), "it has other rates now".to_owned());
            continue;
        }
        for cell in 0..meter.size.min(other.size) {
            let rates = from.meter(other.ir, cell.into()).and_then(|meter| meter.rates());
            if rates.is_some() {
                to.configure_meter(meter.ir, cell.into(), rates, now);
            }
        }
    }
    for register in new.registers.values() {
        let Some(other) = old.registers.values().find(|other| other.name == register.name) else { continue };
        if other.ty != register.ty {
            lost.add(format!("register {}", register.name), "its cells have another type now".to_owned());
            continue;
        }
        let (read, write) = (from.lock(), to.lock());
        for cell in 0..register.size.min(other.size) {
            if let Some(value) = from.read(&read, other.ir, cell.into()).filter(|value| !value.is_zero()) {
                to.write(&write, register.ir, cell.into(), &value);
            }
        }
    }
}

/// Objects that lose something: for each the first reason, and how often.
#[derive(Default)]
struct Lost(BTreeMap<String, (String, u64)>);

impl Lost {
    fn add(&mut self, owner: String, reason: String) {
        self.0.entry(owner).or_insert((reason, 0)).1 += 1;
    }

    fn lines(self) -> Vec<String> {
        let line = |(owner, (reason, count)): (String, (String, u64))| match count {
            1 => format!("{owner}: {reason}"),
            _ => format!("{owner}: {reason} (and {} more)", count - 1),
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Objects of both programs, joined by name; by the id that they had before.
struct Names<'s> {
    old: &'s Schema,
    new: &'s Schema,
    tables: HashMap<u32, TableNames<'s>>,
    profiles: HashMap<u32, ProfileNames<'s>>,
}

struct TableNames<'s> {
    new: &'s Table,
    actions: HashMap<u32, ActionNames>,
}

struct ProfileNames<'s> {
    new: &'s Profile,
    actions: HashMap<u32, ActionNames>,
}

/// An action's id now, and its parameters' ids by those they had.
struct ActionNames {
    id: u32,
    params: HashMap<u32, u32>,
}

impl<'s> Names<'s> {
    fn between(old: &'s Schema, new: &'s Schema) -> Self {
        let by_name: HashMap<&str, &Table> =
            new.tables.values().map(|table| (table.name.as_str(), table)).collect();
        let table = |(id, old): (&u32, &Table)| {
            let new = *by_name.get(old.name.as_str())?;
            let agrees =
                fields_agree(&old.fields, &new.fields) && old.profile.is_some() == new.profile.is_some();
            agrees.then(|| (*id, TableNames { new, actions: actions(&old.actions, &new.actions) }))
        };
        let profile = |(id, old): (&u32, &Profile)| {
            let new = new.profiles.values().find(|new| new.name == old.name)?;
            let agrees = old.selector == new.selector;
            agrees.then(|| (*id, ProfileNames { new, actions: actions(&old.actions, &new.actions) }))
        };
        Self {
            old,
            new,
            tables: old.tables.iter().filter_map(table).collect(),
            profiles: old.profiles.iter().filter_map(profile).collect(),
        }
    }

    /// Notes tables that have entries and do not agree.
    fn shapes(&mut self, before: &Switch, lost: &mut Lost) {
        for (id, table) in &self.old.tables {
            let count = before.state.table(table.ir).map_or(0, |state| state.len());
            if self.tables.contains_key(id) || table.is_const || count == 0 {
                continue;
            }
            let exists = self.new.tables.values().any(|new| new.name == table.name);
            let reason =
                if exists { "its keys are other ones now" } else { "the new program has no such table" };
            let entries = if count == 1 { "entry is" } else { "entries are" };
            lost.add(format!("table {}", table.name), format!("{reason}: {count} {entries} gone"));
        }
    }

    /// What an entity belongs to, for people.
    fn owner(&self, entity: &Kind) -> String {
        let table = |id: &u32| self.old.tables.get(id).map_or("?", |table| &table.name);
        let profile = |id: &u32| self.old.profiles.get(id).map_or("?", |profile| &profile.name);
        match entity {
            Kind::TableEntry(entry) => format!("table {}", table(&entry.table_id)),
            Kind::ActionProfileMember(member) => {
                format!("action profile {}", profile(&member.action_profile_id))
            }
            Kind::ActionProfileGroup(group) => {
                format!("action profile {}", profile(&group.action_profile_id))
            }
            Kind::PacketReplicationEngineEntry(_) => "packet replication".to_owned(),
            Kind::ValueSetEntry(entry) => {
                let set = self.old.value_sets.get(&entry.value_set_id);
                format!("value set {}", set.map_or("?", |set| &set.name))
            }
            Kind::DigestEntry(entry) => {
                let digest = self.old.digests.get(&entry.digest_id);
                format!("digest {}", digest.map_or("?", |digest| &digest.name))
            }
            _ => "state".to_owned(),
        }
    }

    /// An entity as it is written now, or why it cannot be; `None` if there is nothing to write.
    fn translate(&self, entity: Kind, before: &Switch) -> Option<(update::Type, Result<Kind, String>)> {
        let translated = match entity {
            Kind::TableEntry(entry) if entry.is_default_action => {
                let (kind, entry) = self.default(entry, before)?;
                return Some((kind, entry.map(Kind::TableEntry)));
            }
            Kind::TableEntry(entry) => {
                // Tables that do not agree were noted, and constant entries are the program's own.
                let table = self.tables.get(&entry.table_id).filter(|table| !table.new.is_const)?;
                if entry.is_const {
                    return None;
                }
                self.entry(table, entry).map(Kind::TableEntry)
            }
            Kind::ActionProfileMember(member) => self.member(member).map(Kind::ActionProfileMember),
            Kind::ActionProfileGroup(group) => match self.profiles.get(&group.action_profile_id) {
                Some(profile) => Ok(Kind::ActionProfileGroup(ActionProfileGroup {
                    action_profile_id: profile.new.id,
                    ..group
                })),
                None => Err("the new program has no such action profile".to_owned()),
            },
            Kind::ValueSetEntry(entry) => {
                if entry.members.is_empty() {
                    return None;
                }
                return Some((update::Type::Modify, self.value_set(entry).map(Kind::ValueSetEntry)));
            }
            Kind::DigestEntry(entry) => {
                let name = self.old.digests.get(&entry.digest_id).map(|digest| &digest.name);
                match self.new.digests.iter().find(|(_, digest)| Some(&digest.name) == name) {
                    Some((id, _)) => Ok(Kind::DigestEntry(DigestEntry { digest_id: *id, ..entry })),
                    None => Err("the new program has no such digest".to_owned()),
                }
            }
            other => Ok(other),
        };
        Some((update::Type::Insert, translated))
    }

    fn entry(&self, table: &TableNames<'_>, mut entry: TableEntry) -> Result<TableEntry, String> {
        let old = self.old.tables.get(&entry.table_id).ok_or("it does not exist")?;
        for condition in &mut entry.r#match {
            translate_field(condition, &old.fields, &table.new.fields);
        }
        entry.table_id = table.new.id;
        entry.action = entry.action.map(|action| self.table_action(table, action)).transpose()?;
        entry.counter_data = entry.counter_data.filter(|_| table.new.counter.is_some());
        entry.meter_config = entry.meter_config.filter(|_| table.new.meter == old.meter);
        if !table.new.timeouts {
            entry.idle_timeout_ns = 0;
        }
        Ok(entry)
    }

    fn table_action(&self, table: &TableNames<'_>, action: TableAction) -> Result<TableAction, String> {
        let translated = match action.r#type {
            Some(table_action::Type::Action(action)) => {
                Some(table_action::Type::Action(translate_action(&table.actions, action)?))
            }
            Some(table_action::Type::ActionProfileActionSet(mut set)) => {
                for one in &mut set.action_profile_actions {
                    one.action = one
                        .action
                        .take()
                        .map(|action| translate_action(&table.actions, action))
                        .transpose()?;
                }
                Some(table_action::Type::ActionProfileActionSet(set))
            }
            other => other,
        };
        Ok(TableAction { r#type: translated })
    }

    /// A default that a controller has changed.
    fn default(
        &self,
        entry: TableEntry,
        before: &Switch,
    ) -> Option<(update::Type, Result<TableEntry, String>)> {
        let table = self.tables.get(&entry.table_id).filter(|table| !table.new.const_default)?;
        let old = self.old.tables.get(&entry.table_id)?;
        let own = before.program.checked.tables.get(old.ir.index())?.default.as_ref();
        let has_details = !entry.metadata.is_empty() || before.book.defaults.get(&old.ir).is_some();
        if before.state.table(old.ir)?.default_action() == own && !has_details {
            return None;
        }
        let entry = TableEntry { is_const: false, counter_data: None, meter_config: None, ..entry };
        Some((update::Type::Modify, self.entry(table, entry)))
    }

    fn member(&self, member: ActionProfileMember) -> Result<ActionProfileMember, String> {
        let profile = self.profiles.get(&member.action_profile_id);
        let profile = profile.ok_or("the new program has no such action profile")?;
        let action = member.action.map(|action| translate_action(&profile.actions, action)).transpose()?;
        Ok(ActionProfileMember { action_profile_id: profile.new.id, action, ..member })
    }

    fn value_set(&self, mut entry: ValueSetEntry) -> Result<ValueSetEntry, String> {
        let old = self.old.value_sets.get(&entry.value_set_id).ok_or("it does not exist")?;
        let new = self.new.value_sets.iter().find(|(_, new)| new.name == old.name);
        let (id, new) = new.ok_or("the new program has no such value set")?;
        if !fields_agree(&old.fields, &new.fields) {
            return Err("its members have another shape now".to_owned());
        }
        for condition in entry.members.iter_mut().flat_map(|member| &mut member.r#match) {
            translate_field(condition, &old.fields, &new.fields);
        }
        entry.value_set_id = *id;
        Ok(entry)
    }
}

fn fields_agree(old: &[Field], new: &[Field]) -> bool {
    let shape = |field: &Field| (field.name.clone(), field.kind, field.width);
    old.len() == new.len() && old.iter().zip(new).all(|(old, new)| shape(old) == shape(new))
}

/// Actions that agree, by the id that they had.
fn actions(old: &[schema::Action], new: &[schema::Action]) -> HashMap<u32, ActionNames> {
    let one = |old: &schema::Action| {
        let new = new.iter().find(|new| new.name == old.name && new.params.len() == old.params.len())?;
        let param = |old: &schema::Parameter| {
            let new = new.params.iter().find(|new| new.name == old.name && new.ty == old.ty)?;
            Some((old.id, new.id))
        };
        let params = old.params.iter().map(param).collect::<Option<_>>()?;
        Some((old.id, ActionNames { id: new.id, params }))
    };
    old.iter().filter_map(one).collect()
}

fn translate_action(actions: &HashMap<u32, ActionNames>, action: Action) -> Result<Action, String> {
    let names =
        actions.get(&action.action_id).ok_or("the new program has no such action with these parameters")?;
    let params = action.params.into_iter();
    let params = params.map(|param| action::Param {
        param_id: names.params.get(&param.param_id).copied().unwrap_or(param.param_id),
        ..param
    });
    Ok(Action { action_id: names.id, params: params.collect() })
}

fn translate_field(condition: &mut FieldMatch, old: &[Field], new: &[Field]) {
    let at = old.iter().position(|field| field.id == condition.field_id);
    if let Some(field) = at.and_then(|at| new.get(at)) {
        condition.field_id = field.id;
    }
}
