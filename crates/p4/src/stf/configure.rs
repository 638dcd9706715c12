//! Commands of the control plane become updates of a state.

use std::collections::BTreeMap;

use pipeline::Checked;
use pipeline::ir::{
    ActionCall, ActionId, Constant, CounterId, Entry, EntryResult, Key, Match, MatchKind, MeterId, Param,
    ProfileId, RegisterId, Table, TableId, Type, ValueSetId,
};
use pipeline::state::{Change, Choice, EntryId, Rates, State, Update};
use pipeline::validate::expr_type;

use super::literal::Pattern;
use super::names::{find, find_action, find_key};
use super::parse::{Action, Cell, Command, Quantity, Rate};
use super::replication::Replicator;

/// What a command asks for.
pub(super) enum Request {
    /// Updates, applied as a bundle.
    Updates(Vec<Update>),
    /// Packets and bytes of a counter.
    Counter(CounterId, u32, u64, u64),
    /// A line for the log.
    Note(String),
}

/// Names that commands introduce, and what they build up.
pub(super) struct Configurator {
    program: Checked,
    replicator: Replicator,
    /// Entries by the name that a command gave them.
    handles: BTreeMap<String, (TableId, EntryId)>,
}

impl Configurator {
    pub(super) fn new(program: Checked) -> Self {
        Self { program, replicator: Replicator::default(), handles: BTreeMap::new() }
    }

    /// What a command asks for, in the current state.
    ///
    /// # Errors
    /// Why it cannot be carried out, or that what it checks does not hold.
    pub(super) fn request(&mut self, state: &State, command: &Command) -> Result<Request, String> {
        let replicator = &mut self.replicator;
        let updates = match command {
            Command::Add { table, priority, keys, action, .. } => {
                let id = self.table(table)?;
                vec![Update::Insert(id, self.entry(id, *priority, keys, action)?)]
            }
            Command::SetDefault(table, action) => {
                let id = self.table(table)?;
                let table = self.schema(id)?;
                let actions: Vec<_> = table.actions.iter().chain(&table.default_only).copied().collect();
                vec![Update::Default(id, Some(self.call(&actions, action)?))]
            }
            Command::Remove(handle) => {
                let (table, entry) = self.handle(handle)?;
                vec![Update::Delete(table, entry)]
            }
            Command::GroupCreate(group) => replicator.create_group(*group),
            Command::NodeCreate(replica, ports) => {
                replicator.create_node(*replica, ports.clone());
                vec![]
            }
            Command::NodeUpdate(node, ports) => replicator.update_node(*node, ports.clone())?,
            Command::NodeAssociate(group, node) => replicator.associate(*group, *node)?,
            Command::MirrorToPort(session, port) => replicator.mirror_to_port(*session, *port),
            Command::MirrorToGroup(session, group) => replicator.mirror_to_group(*session, *group),
            Command::MirrorDelete(session) => replicator.remove_session(*session)?,
            Command::MirrorGet(session) => return replicator.describe(*session).map(Request::Note),
            Command::CheckCounter(name, cell, check) => {
                let (packets, bytes) = self.counts(state, name, cell)?;
                if let Some((quantity, comparison, wanted)) = check {
                    let (found, unit) = match quantity {
                        Quantity::Packets => (packets, "packets"),
                        Quantity::Bytes => (bytes, "bytes"),
                    };
                    if !comparison.holds(found, *wanted) {
                        return Err(format!(
                            "counter {name}: expected {unit} {comparison} {wanted}, found {found}"
                        ));
                    }
                }
                vec![]
            }
            Command::CounterRead(name, index) => {
                let (packets, bytes) = self.counts(state, name, &Cell::Index(*index))?;
                return Ok(Request::Note(format!(
                    "counter {name}[{index}]: {packets} packets, {bytes} bytes"
                )));
            }
            Command::CounterWrite(name, index, packets, bytes) => {
                let id = self.counter(name, *index)?;
                return Ok(Request::Counter(id, *index, *packets, *bytes));
            }
            Command::RegisterRead(name, index) => {
                let (id, _) = self.register(name, *index)?;
                return Ok(Request::Note(format!("register {name}[{index}]: {}", read(state, id, *index)?)));
            }
            Command::RegisterWrite(name, index, value) => {
                let (id, ty) = self.register(name, *index)?;
                vec![Update::Register(id, *index, value.value(ty.width())?)]
            }
            Command::RegisterReset(name) => {
                let (id, ty) = self.register(name, 0)?;
                let size = self.program.registers.get(id.index()).map_or(0, |register| register.size);
                let zero = pipeline::bits::Bits::zero(ty.width());
                (0..size).map(|cell| Update::Register(id, cell, zero.clone())).collect()
            }
            Command::CheckRegister(name, index, value) => {
                let (id, ty) = self.register(name, *index)?;
                let (wanted, found) = (value.value(ty.width())?, read(state, id, *index)?);
                if wanted != found {
                    return Err(format!("register {name}[{index}]: expected {wanted}, found {found}"));
                }
                vec![]
            }
            Command::MeterSetRates(_, Cell::Entry(handle), rates) => {
                let (table, entry) = self.handle(handle)?;
                vec![Update::EntryMeter(table, entry, Some(to_rates(rates)))]
            }
            Command::MeterSetRates(name, Cell::Index(index), rates) => {
                vec![Update::Meter(self.meter(name)?, *index, Some(to_rates(rates)))]
            }
            Command::MeterArraySetRates(name, rates) => {
                let id = self.meter(name)?;
                let size = self.program.meters.get(id.index()).map_or(0, |meter| meter.size);
                (0..size).map(|cell| Update::Meter(id, cell, Some(to_rates(rates)))).collect()
            }
            Command::MeterGetRates(name, index) => {
                let cell = state.arrays().meter(self.meter(name)?, (*index).into());
                let rates = cell.and_then(|cell| cell.rates());
                let rates = rates.map_or("not configured".into(), |rates| format!("{rates:?}"));
                return Ok(Request::Note(format!("meter {name}[{index}]: {rates}")));
            }
            Command::Member(profile, member, action) => {
                let id = self.profile(profile)?;
                let actions =
                    self.program.profiles.get(id.index()).map_or(&[][..], |profile| &profile.actions);
                vec![Update::Member(id, *member, Some(self.call(actions, action)?))]
            }
            Command::Group(profile, group, members) => {
                let choice =
                    |(member, weight): &(u32, u32)| Choice { member: *member, weight: *weight, watch: None };
                let choices = members.iter().map(choice).collect();
                vec![Update::Selection(self.profile(profile)?, *group, Some(choices))]
            }
            Command::ValueSet(name, parts) => {
                let id = self.value_set(name)?;
                let types = self.program.value_sets.get(id.index()).map_or(&[][..], |set| &set.types);
                if types.len() != parts.len() {
                    return Err(format!(
                        "value set {name} has tuples of {}, found {}",
                        types.len(),
                        parts.len()
                    ));
                }
                let tuple = types.iter().zip(parts).map(|(ty, part)| part.on_part(ty.width()));
                let mut values = state.values(id).to_vec();
                values.push(tuple.collect::<Result<_, _>>()?);
                vec![Update::Values(id, values)]
            }
            Command::Packet(..)
            | Command::Expect(..)
            | Command::ExpectDigest(..)
            | Command::NoPacket
            | Command::Wait => vec![],
        };
        Ok(Request::Updates(updates))
    }

    /// Remembers the entry that a command with a handle has added.
    pub(super) fn added(&mut self, command: &Command, changes: &[Change]) {
        if let (Command::Add { handle: Some(handle), .. }, [Change::Added(table, installed)]) =
            (command, changes)
        {
            self.handles.insert(handle.clone(), (*table, installed.id));
        }
    }

    fn table(&self, name: &str) -> Result<TableId, String> {
        find("table", name, self.program.tables.iter().map(|table| table.name.as_str())).map(TableId::at)
    }

    fn schema(&self, id: TableId) -> Result<&Table, String> {
        self.program.tables.get(id.index()).ok_or_else(|| format!("no table {}", id.0))
    }

    fn counter(&self, name: &str, index: u32) -> Result<CounterId, String> {
        let counters = &self.program.counters;
        let id = find("counter", name, counters.iter().map(|counter| counter.name.as_str()))?;
        in_bounds(name, index, counters.get(id).map_or(0, |counter| counter.size))?;
        Ok(CounterId::at(id))
    }

    fn register(&self, name: &str, index: u32) -> Result<(RegisterId, Type), String> {
        let registers = &self.program.registers;
        let id = find("register", name, registers.iter().map(|register| register.name.as_str()))?;
        let register = registers.get(id);
        in_bounds(name, index, register.map_or(0, |register| register.size))?;
        Ok((RegisterId::at(id), register.map_or(Type::Bool, |register| register.ty)))
    }

    fn meter(&self, name: &str) -> Result<MeterId, String> {
        find("meter", name, self.program.meters.iter().map(|meter| meter.name.as_str())).map(MeterId::at)
    }

    fn profile(&self, name: &str) -> Result<ProfileId, String> {
        let names = self.program.profiles.iter().map(|profile| profile.name.as_str());
        find("action profile", name, names).map(ProfileId::at)
    }

    fn value_set(&self, name: &str) -> Result<ValueSetId, String> {
        find("value set", name, self.program.value_sets.iter().map(|set| set.name.as_str()))
            .map(ValueSetId::at)
    }

    fn handle(&self, name: &str) -> Result<(TableId, EntryId), String> {
        self.handles.get(name).copied().ok_or_else(|| format!("no entry was added as {name}"))
    }

    /// Packets and bytes of a cell, or of an entry, whatever its counter's name.
    fn counts(&self, state: &State, name: &str, cell: &Cell) -> Result<(u64, u64), String> {
        match cell {
            Cell::Index(index) => {
                let stats = state.arrays().counter(self.counter(name, *index)?, (*index).into());
                Ok(stats.map_or((0, 0), |stats| stats.get()))
            }
            Cell::Entry(handle) => {
                let (table, entry) = self.handle(handle)?;
                let entry = state.table(table).and_then(|table| table.get(entry));
                let entry = entry.ok_or_else(|| format!("entry {handle} has been removed"))?;
                Ok(entry.stats.hits())
            }
        }
    }

    fn entry(
        &self,
        id: TableId,
        priority: Option<u32>,
        keys: &[(String, Pattern)],
        action: &Action,
    ) -> Result<Entry, String> {
        let table = self.schema(id)?;
        let mut matches = vec![None; table.keys.len()];
        for (name, pattern) in keys {
            let index = find_key(name, table.keys.iter().map(|key| key.name.as_str()))?;
            let (Some(key), Some(place)) = (table.keys.get(index), matches.get_mut(index)) else { continue };
            let condition =
                pattern.on(key.kind, self.width(key)).map_err(|error| format!("key {name}: {error}"))?;
            *place = Some(condition);
        }
        let zero = Pattern::parse("0")?;
        let mut conditions = Vec::new();
        for (i, (key, given)) in (0..).zip(table.keys.iter().zip(matches)) {
            let condition = match given {
                Some(condition) => condition,
                None if key.kind == MatchKind::Exact => zero.on(key.kind, self.width(key))?,
                None => None,
            };
            conditions.extend(condition.map(|is| Match { key: i, is }));
        }
        let priority = match (table.has_priority(), priority) {
            (true, None) => return Err(format!("an entry of table {} needs a priority", table.name)),
            (true, Some(priority)) => priority,
            (false, _) => 0,
        };
        let result = match table.profile {
            Some(_) => indirect(action)?,
            None => EntryResult::Action(self.call(&table.actions, action)?),
        };
        Ok(Entry { matches: conditions.into(), priority, result, idle: 0, hard: 0, cookie: 0 })
    }

    fn width(&self, key: &Key) -> u16 {
        expr_type(&self.program, &key.value).map_or(0, Type::width)
    }

    fn call(&self, actions: &[ActionId], action: &Action) -> Result<ActionCall, String> {
        let known = || actions.iter().filter_map(|id| Some((*id, self.program.actions.get(id.index())?)));
        let index = find_action(&action.name, known().map(|(_, action)| action.name.as_str()))?;
        let (id, schema) = known().nth(index).ok_or_else(|| format!("no action {}", action.name))?;
        let is_param = |name: &str| schema.params.iter().any(|param| param.name == name);
        if let Some((name, _)) = action.args.iter().find(|(name, _)| !is_param(name)) {
            let known: Vec<_> = schema.params.iter().map(|param| param.name.as_str()).collect();
            return Err(format!(
                "action {} has no parameter {name} (known: {})",
                schema.name,
                known.join(", ")
            ));
        }
        let argument = |param: &Param| {
            let given = action.args.iter().rfind(|(name, _)| *name == param.name);
            let (_, value) = given
                .ok_or_else(|| format!("action {} needs an argument for {}", schema.name, param.name))?;
            let value = value.value(param.ty.width()).map_err(|error| format!("{}: {error}", param.name))?;
            Ok(Constant { ty: param.ty, value })
        };
        let args = schema.params.iter().map(argument).collect::<Result<_, String>>()?;
        Ok(ActionCall { action: id, args })
    }
}

/// The result of an entry in a table with an action profile.
fn indirect(action: &Action) -> Result<EntryResult, String> {
    let id = match &action.args[..] {
        [(name, id)] if name == "id" => u32::try_from(id.value(32)?.low_u64()).unwrap_or(u32::MAX),
        _ => return Err(format!("expected member(id:n) or group(id:n), found {}", action.name)),
    };
    match action.name.as_str() {
        "member" => Ok(EntryResult::Member(id)),
        "group" => Ok(EntryResult::Group(id)),
        other => Err(format!(
            "the table has an action profile: expected member(id:n) or group(id:n), found {other}"
        )),
    }
}

fn in_bounds(name: &str, index: u32, size: u32) -> Result<(), String> {
    if index < size { Ok(()) } else { Err(format!("{name} has {size} cells, found index {index}")) }
}

fn read(state: &State, id: RegisterId, index: u32) -> Result<pipeline::bits::Bits, String> {
    let arrays = state.arrays();
    arrays.read(&arrays.lock(), id, index.into()).ok_or_else(|| format!("no register {} at {index}", id.0))
}

/// One rate polices; of two, the first is the committed one.
fn to_rates(rates: &[Rate]) -> Rates {
    match rates {
        [committed, peak, ..] => Rates::Two {
            rate: committed.rate,
            burst: committed.burst,
            peak_rate: peak.rate,
            peak_burst: peak.burst,
        },
        [only] => Rates::Single { rate: only.rate, burst: only.burst, excess: 0 },
        [] => Rates::Single { rate: 0, burst: 0, excess: 0 },
    }
}
