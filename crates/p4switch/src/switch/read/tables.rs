//! Entries and defaults of tables, with their counters and meters.
#![allow(deprecated)] // Older controllers write `controller_metadata`.

use std::sync::atomic::Ordering::Relaxed;

use p4runtime_proto::v1::{
    DirectCounterEntry, DirectMeterEntry, MeterCounterData, TableAction, TableEntry, entity::Entity as Kind,
    table_action, table_entry::IdleTimeout,
};
use pipeline::ir::EntryResult;
use pipeline::state::{EntryId, Installed};

use super::super::book::Details;
use super::super::direct::{counter_data, meter_config};
use super::super::table::{key, not_found, table, written};
use super::super::{action, matches};
use super::{End, Parts, Reader};
use crate::Failure;
use crate::schema::Table;

impl Reader<'_> {
    pub(super) fn table_entries(&self, wanted: &TableEntry, parts: &mut Parts) -> Result<(), End> {
        for table in self.rest(self.tables(wanted.table_id)?, |table| table.id) {
            if wanted.is_default_action {
                self.default_entry(table).into_iter().for_each(|entry| parts.add(Kind::TableEntry(entry)));
                continue;
            }
            self.entries(table, wanted, |entry| {
                parts.add_at(Kind::TableEntry(self.entry(table, wanted, entry)), table.id, entry.id.0)
            })?;
        }
        Ok(())
    }

    pub(super) fn direct_counters(&self, wanted: &DirectCounterEntry, parts: &mut Parts) -> Result<(), End> {
        let any = TableEntry::default();
        let entry = wanted.table_entry.as_ref().unwrap_or(&any);
        for table in self.rest(self.tables(entry.table_id)?, |table| table.id) {
            let Some(kind) = table.counter else {
                refuse_one(entry, table, "counter")?;
                continue;
            };
            self.direct(table, entry, |installed| {
                let data = Some(counter_data(installed.stats.hits(), kind));
                let table_entry = Some(named(table, installed));
                let entry = DirectCounterEntry { table_entry, data };
                parts.add_at(Kind::DirectCounterEntry(entry), table.id, installed.id.0)
            })?;
        }
        Ok(())
    }

    pub(super) fn direct_meters(&self, wanted: &DirectMeterEntry, parts: &mut Parts) -> Result<(), End> {
        let any = TableEntry::default();
        let entry = wanted.table_entry.as_ref().unwrap_or(&any);
        for table in self.rest(self.tables(entry.table_id)?, |table| table.id) {
            if table.meter.is_none() {
                refuse_one(entry, table, "meter")?;
                continue;
            }
            self.direct(table, entry, |installed| {
                let rates = installed.stats.meter.as_ref().and_then(|meter| meter.rates());
                let entry = DirectMeterEntry {
                    table_entry: Some(named(table, installed)),
                    config: rates.map(meter_config),
                    counter_data: None,
                };
                parts.add_at(Kind::DirectMeterEntry(entry), table.id, installed.id.0)
            })?;
        }
        Ok(())
    }

    /// The tables that an id means, in the order of the P4Info.
    fn tables(&self, id: u32) -> Result<Vec<&Table>, Failure> {
        match id {
            0 => Ok(self.schema.table_order.iter().filter_map(|id| self.schema.tables.get(id)).collect()),
            id => Ok(vec![table(self.schema, id)?]),
        }
    }

    /// Calls a function with the entries whose counters or meters are read: one, which must exist, or all.
    fn direct(
        &self,
        table: &Table,
        wanted: &TableEntry,
        mut each: impl FnMut(&Installed) -> Result<(), End>,
    ) -> Result<(), End> {
        if wanted.r#match.is_empty() || wanted.table_id == 0 {
            return self.entries(table, wanted, each);
        }
        let in_table = |failure: Failure| failure.at(format_args!("table {}", table.name));
        let (conditions, priority) = key(table, wanted).map_err(in_table)?;
        let found = self.state.table(table.ir).and_then(|state| state.find(&conditions, priority));
        each(found.ok_or_else(|| in_table(not_found()))?)
    }

    /// Calls a function with the entries that are wanted.
    fn entries(
        &self,
        table: &Table,
        wanted: &TableEntry,
        mut each: impl FnMut(&Installed) -> Result<(), End>,
    ) -> Result<(), End> {
        let Some(state) = self.state.table(table.ir) else { return Ok(()) };
        let in_table = |failure: Failure| failure.at(format_args!("table {}", table.name));
        // With the table's id a wildcard, nothing else is a filter.
        let filters = wanted.table_id != 0;
        let action = match wanted.action.as_ref().and_then(|action| action.r#type.as_ref()) {
            Some(table_action::Type::Action(action)) if filters && action.action_id != 0 => {
                let found = table.actions.iter().find(|known| known.id == action.action_id);
                let missing = || {
                    in_table(Failure::invalid(format!(
                        "action {} is not one of its actions",
                        action.action_id
                    )))
                };
                Some(found.ok_or_else(missing)?.ir)
            }
            Some(table_action::Type::Action(_)) | None => None,
            Some(_) if !filters => None,
            Some(_) => {
                let message =
                    "entries cannot be chosen by member, group or set of actions: leave the action out";
                return Err(in_table(Failure::invalid(message)).into());
            }
        };
        let priority = match u32::try_from(wanted.priority) {
            Ok(priority) => priority,
            Err(_) => return Err(in_table(Failure::invalid("the priority is negative")).into()),
        };
        let fits = |entry: &Installed| {
            !filters
                || (priority == 0 || read_priority(entry) == wanted.priority)
                    && action.is_none_or(|wanted| match &entry.entry.result {
                        EntryResult::Action(call) => call.action == wanted,
                        _ => false,
                    })
                    && (wanted.controller_metadata == 0 || entry.entry.cookie == wanted.controller_metadata)
                    && (wanted.metadata.is_empty()
                        || self.details(entry).is_some_and(|details| details.metadata == wanted.metadata))
        };
        if !filters || wanted.r#match.is_empty() {
            let unread = state.entries_behind(self.behind(table.id).map(EntryId));
            return unread.filter(|entry| fits(entry)).try_for_each(|entry| each(entry));
        }
        let conditions = matches::read(&table.fields, &wanted.r#match).map_err(in_table)?;
        if priority != 0 || !table.has_priority {
            let found = state.find(&conditions, if table.has_priority { priority } else { 0 });
            return found.filter(|entry| fits(entry)).map_or(Ok(()), |entry| each(entry));
        }
        // Entries with the same conditions may have several priorities.
        let unread = state.entries_behind(self.behind(table.id).map(EntryId));
        let same = unread.filter(|entry| entry.entry.matches[..] == conditions[..] && fits(entry));
        same.into_iter().try_for_each(|entry| each(entry))
    }

    fn details(&self, entry: &Installed) -> Option<&Details> {
        self.book.entries.get(&entry.id)
    }

    /// An entry as it is read; `wanted` says with which counts.
    pub(in super::super) fn entry(
        &self,
        table: &Table,
        wanted: &TableEntry,
        installed: &Installed,
    ) -> TableEntry {
        let details = self.details(installed);
        let hits = table.counter.filter(|_| wanted.counter_data.is_some());
        let rates = installed.stats.meter.as_ref().filter(|_| wanted.meter_config.is_some());
        let idle = |_| {
            let elapsed = self.now.saturating_sub(installed.stats.last_hit.load(Relaxed));
            IdleTimeout { elapsed_ns: i64::try_from(elapsed).unwrap_or(i64::MAX) }
        };
        TableEntry {
            action: written(table, &installed.entry.result, details),
            controller_metadata: installed.entry.cookie,
            meter_config: rates.and_then(|meter| meter.rates()).map(meter_config),
            counter_data: hits.map(|kind| counter_data(installed.stats.hits(), kind)),
            meter_counter_data: wanted
                .meter_counter_data
                .filter(|_| table.meter.is_some())
                .map(|_| MeterCounterData::default()),
            idle_timeout_ns: details
                .map_or(0, |details| i64::try_from(details.idle_timeout).unwrap_or(i64::MAX)),
            time_since_last_hit: wanted.time_since_last_hit.filter(|_| table.timeouts).as_ref().map(idle),
            metadata: details.map_or_else(Vec::new, |details| details.metadata.clone()),
            is_const: table.is_const,
            ..named(table, installed)
        }
    }

    fn default_entry(&self, table: &Table) -> Option<TableEntry> {
        let call = self.state.table(table.ir)?.default_action();
        let action = call.and_then(|call| Some(action::write(table.action_of(call.action)?, call)));
        let details = self.book.defaults.get(&table.ir);
        Some(TableEntry {
            table_id: table.id,
            action: action.map(|action| TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action: true,
            controller_metadata: details.map_or(0, |details| details.controller_metadata),
            metadata: details.map_or_else(Vec::new, |details| details.metadata.clone()),
            is_const: table.const_default,
            ..TableEntry::default()
        })
    }
}

/// The part of an entry that names it.
pub(in super::super) fn named(table: &Table, installed: &Installed) -> TableEntry {
    TableEntry {
        table_id: table.id,
        r#match: matches::write(&table.fields, &installed.entry.matches),
        priority: read_priority(installed),
        ..TableEntry::default()
    }
}

/// A priority as it is read. Those of a program with `@priority` count down from the largest number of 32 bits.
fn read_priority(installed: &Installed) -> i32 {
    i32::try_from(installed.entry.priority & i32::MAX as u32).unwrap_or(i32::MAX)
}

/// A table without counter or meter is refused if it is asked for, and left out otherwise.
fn refuse_one(wanted: &TableEntry, table: &Table, what: &str) -> Result<(), Failure> {
    match wanted.table_id {
        0 => Ok(()),
        _ => Err(Failure::invalid(format!("table {}: its entries have no {what}", table.name))),
    }
}
