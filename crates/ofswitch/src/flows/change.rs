//! Flow-mods (OpenFlow 1.3.5, section 6.4).

use std::sync::Arc;

use openflow::action::FinTimeout;
use openflow::error::ErrorCode;
use openflow::instruction::Instructions;
use openflow::message::{FlowMod, FlowModCommand, FlowModFlags, Form, cookie_of};
use openflow::oxm::Oxm;
use openflow::{Version, version};
use pipeline::state::Update;

use super::{Before, Flow, Selection};
use crate::datapath::{Counts, Datapath, Event, Transaction, entry};
use crate::lower::matching::{Conditions, conditions, overlap};
use crate::program::{Layout, TABLES};

/// Reason of flow-removed messages: deleted.
pub(crate) const DELETED: u8 = 2;

/// The table behind all others: Open vSwitch keeps flows of its own there.
const INTERNAL: u8 = 254;

/// Returns the refusal of a table that is not there.
pub(crate) fn no_table(number: u8) -> ErrorCode {
    if number == INTERNAL { ErrorCode::BrcEperm } else { ErrorCode::FmfcBadTableId }
}

/// A flow-mod, with what its form and version mean made explicit.
#[derive(Debug, Clone)]
pub(crate) struct FlowChange {
    pub(crate) version: Version,
    pub(crate) command: FlowModCommand,
    /// The table; 0xff: all, or the first one for an addition.
    table: u8,
    fields: Arc<[Oxm]>,
    conditions: Conditions,
    selection: Selection,
    cookie: u64,
    /// Whether a modification changes cookies.
    set_cookie: bool,
    /// Whether a modification that finds no flow adds one.
    adds: bool,
    priority: u16,
    idle_timeout: u16,
    hard_timeout: u16,
    flags: FlowModFlags,
    importance: u16,
    instructions: Arc<Instructions>,
    size: usize,
}

impl FlowChange {
    /// Reads a flow-mod of `size` bytes that has passed its check. `tables` says whether version 1.0 names tables.
    pub(crate) fn new(
        request: FlowMod,
        size: usize,
        version: Version,
        form: Form,
        tables: bool,
        datapath: &Datapath,
    ) -> Result<Self, ErrorCode> {
        let fields = request.matching.into_fields()?;
        let in_match = if form == Form::Nicira { cookie_of(&fields) } else { None };
        let fields: Vec<Oxm> = match in_match {
            // The pseudo-field shares its number with a field of another length.
            Some(_) => fields
                .into_iter()
                .filter(|oxm| oxm.field().is_none_or(|f| f.has_length(oxm.value.len())))
                .collect(),
            None => fields,
        };
        let conditions = conditions(&fields, &datapath.model.tunnels)?;
        let old = version == Version::V1_0 || form == Form::Nicira;
        let cookie = match in_match {
            Some(cookie) => cookie,
            None if old => (0, 0),
            None => (request.cookie, request.cookie_mask),
        };
        let strict = matches!(request.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict);
        let adding = request.command == FlowModCommand::Add;
        let table = match version {
            Version::V1_0 if !tables => version::table::ALL,
            _ => request.table_id,
        };
        let deletes = matches!(request.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict);
        let selection = Selection {
            table,
            conditions: conditions.clone(),
            strict: strict.then_some(request.priority),
            cookie,
            out_port: if deletes { request.out_port } else { openflow::PortNo::ANY },
            out_group: if deletes && !old { request.out_group } else { version::group::ANY },
        };
        let mut flags = request.flags;
        // Additions of these versions always start counting anew.
        flags.set(
            FlowModFlags::RESET_COUNTS,
            flags.contains(FlowModFlags::RESET_COUNTS) || adding && version <= Version::V1_1,
        );
        if table != version::table::ALL && table >= TABLES {
            return Err(no_table(table));
        }
        let mut instructions = request.instructions;
        datapath.model.tunnels.fit(&mut instructions);
        Ok(FlowChange {
            version,
            command: request.command,
            table,
            fields: fields.into(),
            conditions,
            selection,
            cookie: request.cookie,
            set_cookie: old && request.cookie != u64::MAX,
            adds: (old || version == Version::V1_1) && cookie.1 == 0 && request.cookie != u64::MAX,
            priority: request.priority,
            idle_timeout: request.idle_timeout,
            hard_timeout: request.hard_timeout,
            flags,
            importance: request.importance,
            instructions: Arc::new(instructions),
            size,
        })
    }

    /// The table of an addition.
    fn added_to(&self) -> u8 {
        if self.table == version::table::ALL { 0 } else { self.table }
    }
}

impl Datapath {
    /// Whether a change may fail half-way, so that the model must keep what it replaces.
    fn may_fail_halfway(&self, change: &FlowChange) -> bool {
        let table = self.model.settings.get(usize::from(change.added_to()));
        change.command == FlowModCommand::Modify
            || table.is_some_and(|settings| settings.evicts())
            || self.expands()
            || super::is_clause(&change.instructions)
    }

    /// Whether tables have conjunctive flows, so that changes of flows may add more entries than fit.
    pub(crate) fn expands(&self) -> bool {
        self.model.sums.clauses > 0
    }

    /// Applies a flow-mod by itself, and returns what happened.
    pub(crate) fn apply_flow_mod(&mut self, change: &FlowChange, now: u64) -> Result<Vec<Event>, ErrorCode> {
        let prepare =
            |datapath: &mut Self, transaction: &mut Transaction| datapath.flow_mod(change, now, transaction);
        let ((), events) = match self.may_fail_halfway(change) {
            true => self.change_many(now, prepare)?,
            false => self.change(now, prepare)?,
        };
        Ok(events)
    }

    /// Restarts the timeouts of a flow that an addition would replace by an equal one, if that changes nothing else:
    /// then the addition is done. Hard timeouts restart once a second, by a replacement.
    pub(crate) fn refresh(&self, change: &FlowChange, now: u64) -> bool {
        let table = self.model.tables().get(usize::from(change.added_to()));
        let Some(flow) = table.and_then(|table| table.find(change.priority, &change.conditions)) else {
            return false;
        };
        let is_recent = flow.hard_timeout == 0 || now.saturating_sub(flow.created) < 1_000_000_000;
        let equal = flow.cookie == change.cookie
            && (flow.idle_timeout, flow.hard_timeout) == (change.idle_timeout, change.hard_timeout)
            && (flow.flags, flow.importance) == (change.flags, change.importance)
            && flow.version == change.version
            && flow.instructions == change.instructions
            && !change.flags.contains(FlowModFlags::RESET_COUNTS);
        match self.installed(flow) {
            Some(installed) if is_recent && equal => {
                installed.stats.last_hit.store(now, std::sync::atomic::Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    /// Prepares a flow-mod.
    pub(crate) fn flow_mod(
        &mut self,
        change: &FlowChange,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        match change.command {
            FlowModCommand::Add => self.add_flow(change, now, transaction),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                let chosen = change.selection.of(self.model.tables());
                if chosen.is_empty() && change.adds {
                    return self.add_flow(change, now, transaction);
                }
                chosen.iter().try_for_each(|flow| self.modify_flow(change, flow, now, transaction))
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                let chosen = change.selection.of(self.model.tables());
                chosen.iter().for_each(|flow| self.remove_flow(flow, DELETED, now, transaction));
                Ok(())
            }
        }
    }

    fn add_flow(
        &mut self,
        change: &FlowChange,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let table = change.added_to();
        let found = self.model.tables().get(usize::from(table)).ok_or(ErrorCode::FmfcBadTableId)?;
        let before = found.find(change.priority, &change.conditions).cloned();
        if change.flags.contains(FlowModFlags::CHECK_OVERLAP) {
            let overlaps = |flow: &&Arc<Flow>| {
                flow.priority == change.priority && overlap(&flow.conditions, &change.conditions)
            };
            if found.iter().any(|flow| overlaps(&flow)) {
                return Err(ErrorCode::FmfcOverlap);
            }
        }
        if before.is_none() {
            self.make_room(table, change.importance, now, transaction)?;
        }
        self.check_bytes(before.as_ref().map_or(0, |flow| flow.size), change.size)?;
        let inherited = before.as_ref().map(|flow| self.counts_within(flow, now, transaction));
        let resets = change.flags.contains(FlowModFlags::RESET_COUNTS);
        let new = Before { used: now, packets: 0 };
        let kept = inherited.as_ref().map_or(new, |counts| Before::of(counts, resets, now));
        let flow = Flow {
            table,
            priority: change.priority,
            conditions: change.conditions.clone(),
            fields: change.fields.clone(),
            cookie: change.cookie,
            idle_timeout: change.idle_timeout,
            hard_timeout: change.hard_timeout,
            flags: change.flags,
            importance: change.importance,
            instructions: change.instructions.clone(),
            version: change.version,
            created: now,
            modified: now,
            before: kept,
            copies: vec![],
            learns: vec![],
            size: change.size,
        };
        let flow = self.put_flow(flow, before.as_deref(), now, transaction)?;
        let counted = inherited.unwrap_or_default().after(resets);
        transaction.note(&flow, Counts { age: 0, ..counted });
        if inherited.is_some() {
            self.inherit(flow.clone(), counted, transaction);
        }
        // An addition is told of as one, even in the place of another flow.
        transaction.events.push(Event::Added(flow));
        Ok(())
    }

    fn modify_flow(
        &mut self,
        change: &FlowChange,
        flow: &Arc<Flow>,
        now: u64,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        self.check_bytes(flow.size, change.size)?;
        let mut new = Flow::clone(flow);
        new.size = change.size;
        new.instructions = change.instructions.clone();
        new.version = change.version;
        new.modified = now;
        if change.set_cookie {
            new.cookie = change.cookie;
        }
        let counts = self.counts_within(flow, now, transaction);
        let created = flow.created;
        let resets = change.flags.contains(FlowModFlags::RESET_COUNTS);
        new.before = Before::of(&counts, resets, now);
        let new = self.put_flow(new, Some(flow), created, transaction)?;
        // An entry that is changed in its place goes on counting.
        let counted = counts.after(resets);
        transaction.note(&new, counted);
        if resets || flow.is_clause() || new.is_clause() {
            self.inherit(new.clone(), counted, transaction);
        }
        transaction.events.push(Event::Modified(new, flow.clone()));
        Ok(())
    }

    /// Reduces the timeouts of the flow whose `fin_timeout` action has this number; longer ones and none become those.
    /// Hosts decide how often this is called.
    pub(crate) fn shorten(&mut self, number: u32, fin: FinTimeout, now: u64) -> Result<(), ErrorCode> {
        // The flow may have gone meanwhile. Conjunctive matches and packet-outs have none.
        let Some(flow) = self.model.fins.get(&number).and_then(|key| self.model.flow(key)).cloned() else {
            return Ok(());
        };
        let reduced = |timeout: u16, most: u16| match (timeout, most) {
            (timeout, 0) => timeout,
            (0, most) => most,
            (timeout, most) => timeout.min(most),
        };
        let (idle, hard) = (reduced(flow.idle_timeout, fin.idle), reduced(flow.hard_timeout, fin.hard));
        if (idle, hard) == (flow.idle_timeout, flow.hard_timeout) {
            return Ok(());
        }
        let counts = self.counts(&flow, now);
        self.change(now, |datapath, transaction| {
            let new = Flow { idle_timeout: idle, hard_timeout: hard, ..Flow::clone(&flow) };
            let new = datapath.put_flow(new, Some(&flow), flow.created, transaction)?;
            datapath.inherit(new, counts, transaction);
            Ok(())
        })?;
        Ok(())
    }

    /// What a flow counts at a time, which this transaction may have put there.
    fn counts_within(&self, flow: &Arc<Flow>, now: u64, transaction: &Transaction) -> Counts {
        transaction.counts(flow).unwrap_or_else(|| self.counts(flow, now))
    }

    /// Whether a flow of `after` bytes may take the place of one of `before` bytes.
    fn check_bytes(&self, before: usize, after: usize) -> Result<(), ErrorCode> {
        // What grows nothing is possible beyond the limit, too.
        let fits =
            after <= before || self.model.sums.bytes.saturating_sub(before) + after <= self.limits.bytes;
        if fits { Ok(()) } else { Err(ErrorCode::FmfcTableFull) }
    }

    /// Installs a flow, in the place of `before` if there is one.
    fn put_flow(
        &mut self,
        mut flow: Flow,
        before: Option<&Flow>,
        since: u64,
        transaction: &mut Transaction,
    ) -> Result<Arc<Flow>, ErrorCode> {
        let call = self.define_flow(&mut flow, transaction)?;
        flow.created = since;
        let id = Layout::get().table(flow.table).ok_or(ErrorCode::FmfcBadTableId)?;
        self.withdraw_conjunctions(flow.table, transaction);
        let joins = flow.is_clause();
        let number = self.flow_number();
        let replaced = before.is_some_and(|before| !before.is_clause());
        let changed = entry(&flow, call);
        let flow = Arc::new(flow);
        match (replaced, joins) {
            (true, false) if before.is_some_and(|before| before.created == flow.created) => {
                transaction.updates.push(Update::Modify(id, changed));
            }
            (true, _) => {
                let matches = changed.matches.clone();
                transaction.updates.push(Update::DeleteMatch(id, matches, flow.priority.into()));
                if !joins {
                    transaction.updates.push(Update::Insert(id, changed));
                }
            }
            (false, false) => transaction.updates.push(Update::Insert(id, changed)),
            (false, true) => {}
        }
        self.model.sums.timed += usize::from(flow.is_timed());
        if let Some(before) = before {
            self.model.sums.timed = self.model.sums.timed.saturating_sub(usize::from(before.is_timed()));
            self.uninstall(&before.copies, &before.learns, transaction);
            self.model.sums.bytes = self.model.sums.bytes.saturating_sub(before.size);
        } else {
            self.model.sums.flows += 1;
        }
        self.model.sums.bytes += flow.size;
        self.note_fins(&flow);
        self.model.put(number, flow.clone());
        if self.model.has_clauses(flow.table) {
            transaction.conjunctive.push(flow.table);
        }
        Ok(flow)
    }

    /// Removes a flow that is there.
    pub(crate) fn remove_flow(
        &mut self,
        flow: &Arc<Flow>,
        reason: u8,
        now: u64,
        transaction: &mut Transaction,
    ) {
        let counts = self.counts_within(flow, now, transaction);
        self.withdraw_conjunctions(flow.table, transaction);
        if let (true, Some(id)) = (!flow.is_clause(), Layout::get().table(flow.table)) {
            let matches = flow.conditions.clone();
            transaction.updates.push(Update::DeleteMatch(id, matches, flow.priority.into()));
        }
        self.uninstall(&flow.copies, &flow.learns, transaction);
        self.model.remove(flow);
        if self.model.has_clauses(flow.table) {
            transaction.conjunctive.push(flow.table);
        }
        self.model.sums.flows = self.model.sums.flows.saturating_sub(1);
        self.model.sums.timed = self.model.sums.timed.saturating_sub(usize::from(flow.is_timed()));
        self.model.sums.bytes = self.model.sums.bytes.saturating_sub(flow.size);
        transaction.events.push(Event::Removed(flow.clone(), reason, counts));
    }
}
