//! Tables, their actions, entries and profiles.

use std::collections::{HashMap, HashSet};

use pipeline::bits::Bits;
use pipeline::ir::{
    self, ActionId, Constant, CounterKind, Expr, HeaderRef, KeyMatch, MatchKind, Param, ProfileId, Stmt,
    TableId, Type,
};

use crate::Lower;
use crate::document::{Action, Entry, EntryKey, Key, Pipeline, Table, bounded};
use crate::objects::{hash_kind, unit};
use crate::operand::{self, name, typed, unsigned};
use crate::p4info::TableInfo;
use crate::refusal::{At, Refusal, Result};
use crate::storage::Storage;

/// Actions of the pipeline, of which equal ones are shared.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    known: HashMap<ir::Action, ActionId>,
    names: HashSet<String>,
}

/// A lowered table.
#[derive(Debug, Clone)]
pub(crate) struct Lowered {
    pub(crate) id: TableId,
    /// Its actions by name.
    pub(crate) actions: Vec<(String, ActionId)>,
}

impl<'d> Lower<'d> {
    /// Makes the tables and profiles of a pipeline.
    pub(crate) fn pipeline_tables(&mut self, pipeline: &'d Pipeline) -> Result<()> {
        for profile in &pipeline.action_profiles {
            let place = || format!("action profile {}", profile.name);
            let select = match &profile.selector {
                None => None,
                Some(selector) => {
                    let hash = hash_kind(&selector.algo).within(place)?;
                    let input = self.items(&selector.input).within(place)?;
                    Some(ir::Selection { hash, input })
                }
            };
            let size = u32::try_from(profile.max_size).unwrap_or(u32::MAX);
            self.out.profiles.push(ir::Profile { name: profile.name.clone(), actions: vec![], size, select });
            let id = ProfileId::at(self.out.profiles.len() - 1);
            if self.profiles.insert(&profile.name, id).is_some() {
                return Err(Refusal::of(format!("two action profiles are called {}", profile.name)));
            }
        }
        for table in &pipeline.tables {
            if self.is_hidden(table) {
                continue;
            }
            let lowered = self.table(table).within(|| format!("table {}", table.name))?;
            if self.tables.insert(&table.name, lowered).is_some() {
                return Err(Refusal::of(format!("two tables are called {}", table.name)));
            }
        }
        Ok(())
    }

    /// Whether a table stands for the call of an action: it has no keys, and controllers do not see it.
    pub(crate) fn is_hidden(&self, table: &Table) -> bool {
        let fixed = table.default_entry.as_ref().is_some_and(|entry| entry.action_entry_const);
        let unseen = match self.info {
            Some(info) => info.table(&table.name).is_none(),
            None => table.name.starts_with("tbl_"),
        };
        table.key.is_empty() && table.kind == "simple" && fixed && unseen && table.direct_meters.is_none()
    }

    /// The call that a hidden table stands for.
    pub(crate) fn hidden_action(&self, table: &Table) -> Result<&'d Action> {
        let entry = table.default_entry.as_ref().ok_or_else(|| Refusal::of("it has no default"))?;
        let action = self.action(entry.action_id)?;
        match action.runtime_data.is_empty() {
            true => Ok(action),
            false => Err(Refusal::unsupported("a call with parameters is")),
        }
    }

    pub(crate) fn action(&self, id: u64) -> Result<&'d Action> {
        self.action_ids
            .get(&id)
            .copied()
            .ok_or_else(|| Refusal::unknown("action", format_args!("with id {id}")))
    }

    fn table(&mut self, table: &'d Table) -> Result<Lowered> {
        let info = self.info.and_then(|info| info.table(&table.name));
        let size = u32::try_from(table.max_size).unwrap_or(u32::MAX);
        let entries = u32::try_from(table.entries.len()).unwrap_or(u32::MAX);
        let mut made = ir::Table::new(&table.name, size.max(entries).max(1));
        self.keys(&mut made, table, info)?;
        made.timeouts = table.support_timeout;
        made.counter = self.direct_counter(table, info);
        made.profile = self.table_profile(table)?;
        let meter = self.direct_meter(table)?;
        made.meter = meter.as_ref().map(|(unit, _)| *unit);
        let id = TableId::at(self.out.tables.len());
        let metered = meter.and_then(|(_, place)| place).map(|place| (id, place));
        // Actions may name their table.
        self.out.tables.push(made);
        let mut lowered = Lowered { id, actions: Vec::new() };
        let listed = self.listed(table)?;
        let mut ids = HashMap::new();
        for action in listed {
            let made = self.table_action(action, metered.as_ref())?;
            ids.insert(action.id, made);
            lowered.actions.push((action.name.clone(), made));
            let default_only = info.is_some_and(|info| info.is_default_only(&action.name));
            self.set(
                id,
                |table| if default_only { table.default_only.push(made) } else { table.actions.push(made) },
            );
        }
        self.default(table, id, &mut ids, metered.as_ref())?;
        self.entries(table, id, &ids, info)?;
        self.profile_actions(id);
        Ok(lowered)
    }

    fn set(&mut self, id: TableId, change: impl FnOnce(&mut ir::Table)) {
        if let Some(table) = self.out.tables.get_mut(id.index()) {
            change(table);
        }
    }

    /// The actions in a table's list.
    fn listed(&mut self, table: &'d Table) -> Result<Vec<&'d Action>> {
        bounded("actions", table.actions.len().max(table.action_ids.as_ref().map_or(0, Vec::len)))?;
        match &table.action_ids {
            Some(ids) => ids.iter().map(|id| self.action(*id)).collect(),
            None => {
                self.take(self.document.actions.len())?;
                let by_name: HashMap<&str, &Action> =
                    self.document.actions.iter().map(|action| (action.name.as_str(), action)).collect();
                let find = |name: &String| by_name.get(name.as_str()).copied();
                let found = table
                    .actions
                    .iter()
                    .map(|name| find(name).ok_or_else(|| Refusal::unknown("action", name)));
                found.collect()
            }
        }
    }

    /// Lowers an action. With a direct meter, its colour is read first, as BMv2 does when an entry is hit.
    fn table_action(
        &mut self,
        action: &'d Action,
        metered: Option<&(TableId, ir::LValue)>,
    ) -> Result<ActionId> {
        let place = || format!("action {}", action.name);
        let mut params = Vec::new();
        for parameter in &action.runtime_data {
            self.take(1)?;
            let of = format_args!("parameter {}", parameter.name);
            let width = operand::width(parameter.bitwidth, of).within(place)?;
            params.push(Param { name: parameter.name.clone(), ty: Type::Bit(width) });
        }
        self.params = params.iter().map(|param| param.ty).collect();
        let body = self.block(|lower| {
            if let Some((table, place)) = metered {
                lower.emit(Stmt::MeterEntry(place.clone(), *table, None))?;
            }
            lower.primitives(&action.primitives)
        });
        self.params.clear();
        let lowered = ir::Action { name: action.name.clone(), params, body: body.within(place)? };
        if let Some(known) = self.actions.known.get(&lowered) {
            return Ok(*known);
        }
        let id = ActionId::at(self.out.actions.len());
        // Several actions may have one name, the parts of one that p4c has written out for each table.
        let mut unique = lowered.name.clone();
        let mut number = self.out.actions.len();
        while !self.actions.names.insert(unique.clone()) {
            unique = format!("{}#{number}", lowered.name);
            number += 1;
        }
        self.out.actions.push(ir::Action { name: unique, ..lowered.clone() });
        self.actions.known.insert(lowered, id);
        Ok(id)
    }

    fn keys(&mut self, made: &mut ir::Table, table: &'d Table, info: Option<TableInfo<'d>>) -> Result<()> {
        if let Some(info) = info
            && info.table.match_fields.len() != table.key.len()
        {
            return Err(Refusal::of(format!(
                "it has {} keys; the P4Info has {}",
                table.key.len(),
                info.table.match_fields.len()
            )));
        }
        let mut names = HashSet::new();
        for (i, key) in table.key.iter().enumerate() {
            let seen = info.as_ref().and_then(|info| info.key(i));
            let (value, own_name) = self.key_value(key).within(|| format!("key {}", i + 1))?;
            let own_kind = match key.match_type.as_str() {
                "exact" | "valid" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" => MatchKind::Ternary,
                "range" => MatchKind::Range,
                "optional" => MatchKind::Optional,
                other => return Err(Refusal::unsupported(format!("key {}: match kind {other} is", i + 1))),
            };
            let kind = match seen.and_then(|(_, kind)| kind) {
                // The format has no kind of its own for it.
                Some(MatchKind::Optional) if own_kind == MatchKind::Ternary => MatchKind::Optional,
                Some(kind) if kind != own_kind => {
                    return Err(Refusal::of(format!(
                        "key {} is matched {}, and {} in the P4Info",
                        i + 1,
                        own_kind.name(),
                        kind.name()
                    )));
                }
                _ => own_kind,
            };
            let name = seen.map_or(own_name, |(name, _)| name.to_owned());
            let unique = if names.contains(&name) { format!("{name}#{}", i + 1) } else { name };
            if !names.insert(unique.clone()) {
                return Err(Refusal::of(format!("two keys are called {unique}")));
            }
            made.keys.push(ir::Key { name: unique, value, kind });
        }
        Ok(())
    }

    /// A key's value, and the name that it has in the document.
    fn key_value(&mut self, key: &Key) -> Result<(Expr, String)> {
        if key.match_type == "valid" {
            let header = match key.target.as_str() {
                Some(header) => header,
                None => name(&key.target, &["header"])?,
            };
            let name = key.name.clone().unwrap_or_else(|| format!("{header}.$valid$"));
            return match self.header(header)?.storage {
                Storage::Header(id) => Ok((Expr::Valid(HeaderRef::Header(id)), name)),
                Storage::Metadata(_) => Err(Refusal::unsupported("the validity of metadata is")),
            };
        }
        let target = serde_json::json!({ "type": "field", "value": key.target });
        let (kind, value) = typed(&target)?;
        let named =
            value.as_array().map(|parts| parts.iter().filter_map(|part| part.as_str()).collect::<Vec<_>>());
        let name = key.name.clone().unwrap_or_else(|| named.unwrap_or_else(|| vec![kind]).join("."));
        let valid = value.get(1).and_then(|field| field.as_str()) == Some("$valid$");
        let number = self.number(&target)?;
        if valid {
            return Ok((number.is_set()?, name));
        }
        let whole = match value.as_array().map(Vec::as_slice) {
            Some([header, field]) => {
                let (header, field) =
                    (header.as_str().unwrap_or_default(), field.as_str().unwrap_or_default());
                let ty = self.field(header, field)?.ty;
                number.of(Type::Bit(ty.width()))?
            }
            _ => number.whole()?,
        };
        let Some(mask) = &key.mask else { return Ok((whole, name)) };
        let width = pipeline::validate::expr_type(&self.out, &whole).map_or(1, Type::width);
        let mask = Constant { ty: Type::Bit(width), value: unsigned(mask, width)? };
        Ok((whole.op(ir::BinOp::And, Expr::Const(mask)), name))
    }

    fn direct_counter(&self, table: &Table, info: Option<TableInfo<'_>>) -> Option<CounterKind> {
        let bound = || {
            let mut direct = self.document.counter_arrays.iter().filter(|counter| counter.is_direct);
            direct.any(|counter| counter.binding.as_deref() == Some(table.name.as_str()))
        };
        let counts = table.with_counters || bound();
        counts.then(|| info.and_then(|info| info.counter()).unwrap_or(CounterKind::Both))
    }

    /// The unit of a table's direct meter, and the place of its colour.
    fn direct_meter(&mut self, table: &Table) -> Result<Option<(ir::MeterUnit, Option<ir::LValue>)>> {
        let Some(name) = &table.direct_meters else { return Ok(None) };
        let meter = self.document.meter_arrays.iter().find(|meter| meter.is_direct && meter.name == *name);
        let meter = meter.ok_or_else(|| Refusal::unknown("direct meter array", name))?;
        let unit = unit(&meter.unit)?;
        let place = match &meter.result_target {
            None => None,
            Some((header, field)) => {
                let field = self.field(header, field).within(|| format!("meter array {name}"))?;
                match field.ty {
                    Type::Bit(_) => Some(field.place),
                    _ => return Err(Refusal::unsupported("a signed field for a colour is")),
                }
            }
        };
        Ok(Some((unit, place)))
    }

    fn table_profile(&self, table: &Table) -> Result<Option<ProfileId>> {
        let profile = match table.kind.as_str() {
            "simple" => return Ok(None),
            "indirect" | "indirect_ws" => table.action_profile.as_deref(),
            other => return Err(Refusal::unsupported(format!("table type {other} is"))),
        };
        let profile = profile.ok_or_else(|| Refusal::of("it has no `action_profile`"))?;
        let id = self.profiles.get(profile).copied();
        id.map(Some).ok_or_else(|| Refusal::unknown("action profile", profile))
    }

    /// A table's profile has its actions.
    fn profile_actions(&mut self, table: TableId) {
        let Some(table) = self.out.tables.get(table.index()) else { return };
        let Some(profile) = table.profile.and_then(|id| self.out.profiles.get_mut(id.index())) else {
            return;
        };
        let known: HashSet<ActionId> = profile.actions.iter().copied().collect();
        profile.actions.extend(table.actions.iter().filter(|action| !known.contains(action)));
    }

    fn default(
        &mut self,
        table: &'d Table,
        id: TableId,
        ids: &mut HashMap<u64, ActionId>,
        metered: Option<&(TableId, ir::LValue)>,
    ) -> Result<()> {
        let Some(entry) = &table.default_entry else { return Ok(()) };
        let declared = self.action(entry.action_id).at("default")?;
        let action = match ids.get(&entry.action_id) {
            Some(action) => *action,
            None => {
                let action = self.table_action(declared, metered)?;
                ids.insert(entry.action_id, action);
                self.set(id, |table| table.default_only.push(action));
                action
            }
        };
        let args = arguments(declared, &entry.action_data).at("default")?;
        self.set(id, |table| {
            table.default = Some(ir::ActionCall { action, args: args.into() });
            table.const_default = entry.action_entry_const;
        });
        Ok(())
    }

    fn entries(
        &mut self,
        table: &'d Table,
        id: TableId,
        ids: &HashMap<u64, ActionId>,
        info: Option<TableInfo<'_>>,
    ) -> Result<()> {
        if table.entries.is_empty() {
            return Ok(());
        }
        let Some(target) = self.out.tables.get(id.index()) else { return Ok(()) };
        let kinds = target.keys.iter().map(|key| {
            (key.kind, pipeline::validate::expr_type(&self.out, &key.value).map_or(1, Type::width))
        });
        let kinds: Vec<(MatchKind, u16)> = kinds.collect();
        let has_priority = target.has_priority();
        // In the format the smallest number wins.
        let largest = table.entries.iter().map(|entry| entry.priority).max().unwrap_or(0);
        let mut entries = Vec::new();
        for (i, entry) in table.entries.iter().enumerate() {
            let place = || format!("entry {}", i + 1);
            let declared = self.action(entry.action_entry.action_id).within(place)?;
            let action = ids.get(&declared.id).copied();
            let action =
                action.ok_or_else(|| Refusal::of("its action is not one of the table's")).within(place)?;
            let args = arguments(declared, &entry.action_entry.action_data).within(place)?;
            let matches = matches(entry, &kinds).within(place)?;
            let priority = u32::try_from(largest - entry.priority + 1).unwrap_or(u32::MAX);
            entries.push(ir::Entry {
                matches: matches.into(),
                priority: if has_priority { priority } else { 0 },
                result: ir::EntryResult::Action(ir::ActionCall { action, args: args.into() }),
                idle: 0,
                hard: 0,
                cookie: 0,
            });
        }
        let fixed = info.is_none_or(|info| info.table.is_const_table);
        self.set(id, |table| {
            table.entries = entries;
            table.const_entries = fixed;
        });
        Ok(())
    }
}

/// The arguments of a call.
fn arguments(action: &Action, data: &[String]) -> Result<Vec<Constant>> {
    if data.len() != action.runtime_data.len() {
        return Err(Refusal::of(format!(
            "action {} has {} parameters, and {} arguments are given",
            action.name,
            action.runtime_data.len(),
            data.len()
        )));
    }
    let one = |(value, param): (&String, &crate::document::Parameter)| {
        let width = u16::try_from(param.bitwidth).unwrap_or(u16::MAX);
        let width = if width <= pipeline::bits::MAX_WIDTH { width } else { pipeline::bits::MAX_WIDTH };
        Ok(Constant { ty: Type::Bit(width), value: unsigned(value, width)? })
    };
    data.iter().zip(&action.runtime_data).map(one).collect()
}

fn matches(entry: &Entry, kinds: &[(MatchKind, u16)]) -> Result<Vec<ir::Match>> {
    if entry.match_key.len() != kinds.len() {
        return Err(Refusal::of(format!(
            "it has {} keys; its table has {}",
            entry.match_key.len(),
            kinds.len()
        )));
    }
    let mut list = Vec::new();
    for (i, (key, (kind, width))) in (0..).zip(entry.match_key.iter().zip(kinds)) {
        let is = condition(key, *kind, *width).within(|| format!("key {}", i + 1))?;
        list.extend(is.map(|is| ir::Match { key: i, is }));
    }
    Ok(list)
}

/// A condition on a key; `None` if anything fulfils it.
fn condition(key: &EntryKey, kind: MatchKind, width: u16) -> Result<Option<KeyMatch>> {
    let number = |text: Option<&str>, what: &str| match text {
        Some(text) => unsigned(text, width),
        None => Err(Refusal::of(format!("{what} is missing"))),
    };
    let value = || match &key.key {
        serde_json::Value::Bool(value) => Ok(Bits::from_bool(*value).resize(width)),
        other => number(other.as_str(), "`key`"),
    };
    Ok(match (key.match_type.as_str(), kind) {
        ("exact" | "valid", MatchKind::Exact | MatchKind::Optional) => Some(KeyMatch::Exact(value()?)),
        ("lpm", MatchKind::Lpm) => {
            let length = key.prefix_length.and_then(|length| u16::try_from(length).ok());
            let length = length.filter(|length| *length <= width);
            let length = length.ok_or_else(|| Refusal::of("`prefix_length` is missing or too large"))?;
            let mask = Bits::ones(width).shl(u64::from(width - length));
            Some(KeyMatch::Prefix(value()?.and(&mask), length))
        }
        ("ternary" | "optional", MatchKind::Ternary | MatchKind::Optional) => {
            let mask = match (&key.mask, key.match_type.as_str()) {
                (None, "optional") => Bits::ones(width),
                (mask, _) => number(mask.as_deref(), "`mask`")?,
            };
            match (mask.is_zero(), kind) {
                (true, _) => None,
                (false, MatchKind::Ternary) => Some(KeyMatch::Mask(value()?.and(&mask), mask)),
                (false, _) if mask == Bits::ones(width) => Some(KeyMatch::Exact(value()?)),
                (false, _) => return Err(Refusal::of("an optional key is matched under a mask")),
            }
        }
        ("range", MatchKind::Range) => {
            let (low, high) =
                (number(key.start.as_deref(), "`start`")?, number(key.end.as_deref(), "`end`")?);
            Some(KeyMatch::Range(low, high))
        }
        (other, kind) => {
            return Err(Refusal::of(format!(
                "it is {other}, and the table's key is matched {}",
                kind.name()
            )));
        }
    })
}
