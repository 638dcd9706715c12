//! The control side: what controllers have put there, and the pipeline's state that follows it.
//!
//! A change is prepared on the model and recorded as updates of the pipeline ([`Transaction`]); [`Datapath::commit`]
//! applies the updates as one bundle. If anything in between is refused, what has changed in the model is taken back
//! ([`Model::begin`]): so a message, and a bundle of messages, takes effect as a whole or not at all.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use openflow::error::ErrorCode;
use openflow::field::FieldId;
use pipeline::ir::{ActionCall, Entry, EntryResult, GroupTableId, KeyMatch, Match, Matches};
use pipeline::state::{Bucket, Group, GroupKind, Installed, State, Update};

use crate::flows::{Flow, FlowKey, FlowTable};
use crate::follow::{Follower, OnlyFlow};
use crate::groups::GroupEntry;
use crate::lower::{Body, Known, Lowered, MOST_BYTES, Owner, World, instructions};
use crate::meters::MeterEntry;
use crate::model::Model;
use crate::program::{Layout, outputs};
use crate::settings::{Limits, Settings};
use crate::tunnels::Tunnels;

/// What happened to a flow.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Added(Arc<Flow>),
    /// The flow, and what it was before.
    Modified(Arc<Flow>, Arc<Flow>),
    /// With the reason as in a flow-removed message, and its statistics.
    Removed(Arc<Flow>, u8, Counts),
}

/// A flow's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// Nanoseconds since its addition.
    pub(crate) age: u64,
    /// Nanoseconds since its last packet, or its addition.
    pub(crate) idle: u64,
    /// Nanoseconds since the last packet of it and of those in whose place it came.
    pub(crate) silent: u64,
}

impl Counts {
    /// The same with packets and bytes counted anew, if a change says so.
    pub(crate) fn after(self, resets: bool) -> Self {
        if resets { Self { packets: 0, bytes: 0, ..self } } else { self }
    }
}

/// A change being prepared.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) updates: Vec<Update>,
    pub(crate) events: Vec<Event>,
    /// Counters that replaced flows leave to those that replace them.
    inherited: Vec<(Arc<Flow>, Counts)>,
    /// In a bundle, the flows that it has put there, by address, with what they count when it is applied.
    put: Option<HashMap<usize, (Arc<Flow>, Counts)>>,
    /// Packets and bytes of entries that go, for the conjunctive flows that they stood for.
    pub(crate) carried: Vec<(Arc<Flow>, u64, u64)>,
    /// Tables whose conjunctive flows have changed.
    pub(crate) conjunctive: Vec<u8>,
    /// Table and cookie of learned flows that are deleted with the flows that taught them.
    pub(crate) unlearned: BTreeSet<(u8, u64)>,
    /// Cells of bands that start counting anew.
    pub(crate) bands: Vec<u32>,
    /// Only the interpreter meets what changes: actions of packet-outs.
    pub(crate) is_private: bool,
}

impl Transaction {
    /// Says that this is a bundle: messages may be about flows of earlier ones, whose entries are not there yet.
    pub(crate) fn begin_bundle(&mut self) {
        self.put = Some(HashMap::new());
    }

    /// Notes what a flow that was put there counts.
    pub(crate) fn note(&mut self, flow: &Arc<Flow>, counts: Counts) {
        if let Some(put) = &mut self.put {
            put.insert(Arc::as_ptr(flow) as usize, (flow.clone(), counts));
        }
    }

    /// What a flow counts that this bundle has put there.
    pub(crate) fn counts(&self, flow: &Arc<Flow>) -> Option<Counts> {
        self.put.as_ref()?.get(&(Arc::as_ptr(flow) as usize)).map(|(_, counts)| *counts)
    }
}

/// The control side.
#[derive(Debug)]
pub(crate) struct Datapath {
    pub(crate) state: State,
    pub(crate) model: Model,
    pub(crate) limits: Limits,
    /// Whether some controller speaks a version before 1.3.
    pub(crate) old_controllers: bool,
    pub(crate) follower: Option<Box<dyn Follower>>,
    /// Whether the follower was told of an only flow.
    has_only_normal: bool,
    /// Changes so far, but for those of packet-outs.
    pub(crate) changes: u64,
    next_flow: u64,
    next_number: u32,
    known: Known,
    /// Defined actions that were left when the unused ones were forgotten, and flows then.
    used_actions: usize,
    used_by: usize,
}

/// What lowering asks.
struct Objects<'a> {
    groups: &'a BTreeMap<u32, Arc<GroupEntry>>,
    meters: &'a BTreeMap<u32, Arc<MeterEntry>>,
    tunnels: &'a Tunnels,
    next: &'a mut u32,
    /// A group that is being changed, and may refer to itself: that is found later.
    also: Option<u32>,
    /// Whether lowering asked anything.
    asked: Cell<bool>,
}

impl World for Objects<'_> {
    fn has_group(&self, group: u32) -> bool {
        self.asked.set(true);
        self.also == Some(group) || self.groups.contains_key(&group)
    }

    fn has_meter(&self, meter: u32) -> bool {
        self.asked.set(true);
        self.meters.contains_key(&meter)
    }

    fn tunnel_option(&self, id: FieldId) -> Option<(u16, u16)> {
        self.asked.set(true);
        self.tunnels.span(id)
    }

    fn number(&mut self) -> u32 {
        self.asked.set(true);
        *self.next = self.next.wrapping_add(1);
        *self.next
    }
}

/// Actions that may be defined, besides as many as there were when the unused ones were forgotten, before that is done
/// again, unless flows have become half as many: it takes time in proportion to all entries.
const DEFINED: usize = 4096;

impl Datapath {
    pub(crate) fn new(limits: Limits) -> Self {
        Datapath {
            state: State::new(Layout::get().program.clone()),
            model: Model::new(),
            limits,
            old_controllers: false,
            follower: None,
            has_only_normal: false,
            changes: 0,
            next_flow: 0,
            next_number: 0,
            known: Known::default(),
            used_actions: 0,
            used_by: 0,
        }
    }

    /// One with the settings' limits.
    pub(crate) fn configured(settings: &Settings) -> Self {
        let mut datapath = Self::new(settings.limits);
        datapath.configure_tables(&settings.table_limits);
        datapath
    }

    /// Prepares and applies a change, or leaves everything as it was.
    pub(crate) fn change<T>(
        &mut self,
        now: u64,
        prepare: impl FnOnce(&mut Self, &mut Transaction) -> Result<T, ErrorCode>,
    ) -> Result<(T, Vec<Event>), ErrorCode> {
        let mut transaction = Transaction::default();
        let result = prepare(self, &mut transaction)?;
        let events = self.commit(transaction, now)?;
        Ok((result, events))
    }

    /// The same, for changes that may fail half-way: the model keeps what they replace meanwhile.
    pub(crate) fn change_many<T>(
        &mut self,
        now: u64,
        prepare: impl FnOnce(&mut Self, &mut Transaction) -> Result<T, ErrorCode>,
    ) -> Result<(T, Vec<Event>), ErrorCode> {
        let before = self.model.begin();
        let result = self.change(now, prepare);
        match &result {
            Ok(_) => self.model.keep(),
            Err(_) => self.model.take_back(before),
        }
        result
    }

    /// Applies a prepared change.
    fn commit(&mut self, mut transaction: Transaction, now: u64) -> Result<Vec<Event>, ErrorCode> {
        self.delete_learned(now, &mut transaction);
        let mut tables = std::mem::take(&mut transaction.conjunctive);
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            self.expand_conjunctions(table, &mut transaction)?;
        }
        let changes = !transaction.is_private && !transaction.updates.is_empty();
        // What the model permits fits the program, whose tables are larger; a mistake here changes nothing.
        let bundle = self.state.apply(transaction.updates, now).map_err(|_| ErrorCode::FmfcUnknown)?;
        self.changes += u64::from(changes);
        for cell in transaction.bands {
            if let Some(counter) = self.state.arrays().counter(Layout::get().band_counts, cell.into()) {
                counter.set(0, 0);
            }
        }
        // What a changed flow inherits has that already.
        for (flow, packets, bytes) in transaction.carried {
            if let Some(installed) = self.installed(&flow) {
                let (before, bytes_before) = installed.stats.hits();
                installed.stats.set_hits(before + packets, bytes_before + bytes);
            }
        }
        for (flow, counts) in transaction.inherited {
            if let Some(installed) = self.installed(&flow) {
                installed.stats.set_hits(counts.packets, counts.bytes);
            }
        }
        if let Some(follower) = self.follower.as_mut().filter(|_| !transaction.is_private) {
            follower.applied(&self.state, &bundle);
            self.tell_only_normal();
        }
        let most = if self.model.sums.flows < self.used_by / 2 { 0 } else { 2 * self.used_actions };
        if self.state.defined() > most + DEFINED {
            let forgotten = self.state.forget_unused();
            (self.used_actions, self.used_by) = (self.state.defined(), self.model.sums.flows);
            self.known.forget();
            self.follower.iter_mut().for_each(|follower| follower.forgotten(&forgotten));
        }
        Ok(transaction.events)
    }

    /// Tells the follower whether every packet meets one flow that does nothing but `NORMAL`.
    pub(crate) fn tell_only_normal(&mut self) {
        let flow = self.model.only_flow().filter(|flow| flow.is_normal());
        let only = flow.and_then(|flow| {
            let flow = self.installed(flow)?.clone();
            let lookups = self.state.table(Layout::get().table(0)?)?.counts().clone();
            Some(OnlyFlow { flow, lookups })
        });
        let found = only.is_some();
        if let Some(follower) = self.follower.as_mut().filter(|_| found || self.has_only_normal) {
            follower.only_normal(only);
        }
        self.has_only_normal = found;
    }

    /// Lowers with the objects that exist.
    pub(crate) fn lower<T>(&mut self, also: Option<u32>, lower: impl FnOnce(&mut dyn World) -> T) -> T {
        lower(&mut self.objects(also))
    }

    fn objects(&mut self, also: Option<u32>) -> Objects<'_> {
        Objects {
            groups: self.model.groups(),
            meters: &self.model.meters,
            tunnels: &self.model.tunnels,
            next: &mut self.next_number,
            also,
            asked: Cell::new(false),
        }
    }

    /// Has a flow's instructions defined: returns the call, and sets what belongs to the flow.
    pub(crate) fn define_flow(
        &mut self,
        flow: &mut Flow,
        transaction: &mut Transaction,
    ) -> Result<ActionCall, ErrorCode> {
        let missed = flow.priority == 0 && flow.conditions.is_empty();
        let reason = if missed { outputs::TABLE_MISS } else { outputs::ACTION };
        let owner = Owner { table: flow.table, cookie: flow.cookie, reason };
        if let Some(call) = self.known.find(owner, &mut flow.instructions) {
            (flow.copies, flow.learns) = (vec![], vec![]);
            return Ok(call);
        }
        let mut objects = self.objects(None);
        let lowered = instructions(&mut objects, owner, &flow.instructions)?;
        let asked = objects.asked.get();
        let (call, copies, learns) = self.install(lowered, transaction)?;
        (flow.copies, flow.learns) = (copies, learns);
        if !asked && flow.size <= MOST_BYTES {
            self.known.keep(owner, &flow.instructions, &call);
        }
        Ok(call)
    }

    /// A number for a flow.
    pub(crate) fn flow_number(&mut self) -> u64 {
        self.next_flow += 1;
        self.next_flow
    }

    /// Defines a lowered body.
    pub(crate) fn define(&mut self, body: Body) -> Result<ActionCall, ErrorCode> {
        // Lowering makes valid actions; fuzzing says so.
        let action = self.state.define(body.action).map_err(|_| ErrorCode::BacBadArgument)?;
        Ok(ActionCall { action, args: body.args.into() })
    }

    /// Defines a lowered list and records what belongs to it; returns the call, and the numbers of nested lists and
    /// learned flows.
    pub(crate) fn install(
        &mut self,
        lowered: Lowered,
        transaction: &mut Transaction,
    ) -> Result<(ActionCall, Vec<u32>, Vec<u32>), ErrorCode> {
        let (mut copies, mut learns) = (Vec::new(), Vec::new());
        for (number, body) in lowered.copies {
            let call = self.define(body)?;
            let bucket = Bucket { weight: 1, watch_port: None, watch_group: None, call };
            let group = Group { kind: GroupKind::Indirect, buckets: vec![bucket] };
            transaction.updates.push(Update::Group(Layout::get().copies, number, Some(group)));
            copies.push(number);
        }
        for (number, template) in lowered.learns {
            self.model.learns.insert(number, template);
            learns.push(number);
        }
        Ok((self.define(lowered.body)?, copies, learns))
    }

    /// Records that nested lists and learned flows go.
    pub(crate) fn uninstall(&mut self, copies: &[u32], learns: &[u32], transaction: &mut Transaction) {
        let copies_table: GroupTableId = Layout::get().copies;
        transaction.updates.extend(copies.iter().map(|number| Update::Group(copies_table, *number, None)));
        learns.iter().for_each(|number| drop(self.model.fins.remove(number)));
        let templates = learns.iter().filter_map(|number| self.model.learns.remove(number));
        transaction.unlearned.extend(templates.filter_map(|template| template.deletes()));
    }

    /// Numbers of a flow's `fin_timeout` actions.
    fn fins_of(&self, flow: &Flow) -> impl Iterator<Item = u32> {
        let has_fin = |number: &u32| self.model.learns.get(number).is_some_and(|known| known.fin.is_some());
        flow.learns.iter().copied().filter(has_fin)
    }

    /// Has the flow be found by its `fin_timeout` actions, until they are uninstalled.
    pub(crate) fn note_fins(&mut self, flow: &Flow) {
        let fins: Vec<u32> = self.fins_of(flow).collect();
        for number in fins {
            self.model.fins.insert(number, flow.key());
        }
    }

    /// Whether each flow, but for clauses of conjunctions, has its entry, there are no others, and sums are right;
    /// whether each `fin_timeout` leads to its flow, and each group and meter to those that refer to it.
    pub(crate) fn is_consistent(&self) -> bool {
        let of_table = |(number, table): (usize, &FlowTable)| {
            let plain: Vec<_> = table.iter().filter(|flow| !flow.is_clause()).collect();
            let joined =
                self.model.conjunctive.get(&(number as u8)).map_or(0, |expansion| expansion.entries.len());
            let entries = Layout::get().tables.get(number).and_then(|id| self.state.table(*id));
            let wanted = plain.len() + joined;
            plain.iter().all(|flow| self.installed(flow).is_some())
                && entries.is_some_and(|entries| entries.len() == wanted)
        };
        let flows: usize = self.model.tables().iter().map(FlowTable::len).sum();
        let groups = self.state.groups(Layout::get().groups).count();
        let buckets: usize = self.model.groups().values().map(|group| group.buckets.len()).sum();
        let of_groups: usize = self.model.groups().values().map(|group| group.size).sum();
        let bytes = of_groups + self.flows().map(|flow| flow.size).sum::<usize>();
        let of_flows: usize = self.flows().map(|flow| self.fins_of(flow).count()).sum();
        let leads = |(number, key): (&u32, &FlowKey)| {
            self.model.flow(key).is_some_and(|flow| self.fins_of(flow).any(|own| own == *number))
        };
        self.model.tables().iter().enumerate().all(of_table)
            && of_flows == self.model.fins.len()
            && self.model.fins.iter().all(leads)
            && self.model.knows_users()
            && flows == self.model.sums.flows
            && self.flows().filter(|flow| flow.is_clause()).count() == self.model.sums.clauses
            && self.flows().filter(|flow| flow.is_timed()).count() == self.model.sums.timed
            && groups == self.model.groups().len()
            && (buckets, bytes) == (self.model.sums.buckets, self.model.sums.bytes)
    }

    /// All flows.
    pub(crate) fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.model.tables().iter().flat_map(FlowTable::iter)
    }

    /// The entry of a flow.
    pub(crate) fn installed(&self, flow: &Flow) -> Option<&Arc<Installed>> {
        let table = Layout::get().table(flow.table)?;
        self.state.table(table)?.find(&flow.conditions, flow.priority.into())
    }

    /// A flow's statistics at a time.
    pub(crate) fn counts(&self, flow: &Flow, now: u64) -> Counts {
        let age = now.saturating_sub(flow.created);
        // An entry that clauses are multiplied out to may look like that of a clause, which has none.
        match self.installed(flow).filter(|_| !flow.is_clause()) {
            None => {
                Counts { age, idle: age, silent: now.saturating_sub(flow.before.used), ..Counts::default() }
            }
            Some(installed) => {
                let (packets, bytes) = installed.stats.hits();
                let joined = self.joined_hits(flow);
                let last = installed.stats.last_hit.load(std::sync::atomic::Ordering::Relaxed).max(joined.2);
                let (packets, bytes) = (packets + joined.0, bytes + joined.1);
                let used = if packets > flow.before.packets { last } else { flow.before.used };
                let (idle, silent) = (now.saturating_sub(last), now.saturating_sub(used));
                Counts { packets, bytes, age, idle, silent }
            }
        }
    }

    /// Records that a flow inherits another's counters.
    pub(crate) fn inherit(&self, flow: Arc<Flow>, counts: Counts, transaction: &mut Transaction) {
        transaction.inherited.push((flow, counts));
    }
}

/// The entry of a flow.
pub(crate) fn entry(flow: &Flow, call: ActionCall) -> Entry {
    Entry {
        matches: flow.conditions.clone(),
        priority: flow.priority.into(),
        result: EntryResult::Action(call),
        idle: flow.idle_timeout.into(),
        hard: flow.hard_timeout.into(),
        cookie: flow.cookie,
    }
}

/// An entry of a table with one exact key.
pub(crate) fn exact(value: u32, call: ActionCall) -> Entry {
    Entry {
        matches: exact_match(value),
        priority: 0,
        result: EntryResult::Action(call),
        idle: 0,
        hard: 0,
        cookie: 0,
    }
}

/// The condition of such an entry.
pub(crate) fn exact_match(value: u32) -> Matches {
    Arc::new([Match { key: 0, is: KeyMatch::Exact(pipeline::bits::Bits::from_u64(32, value.into())) }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::FlowChange;
    use openflow::message::{FlowModCommand, Form};
    use openflow::{Version, text};

    fn add(datapath: &mut Datapath, flow: &str) -> Result<(), ErrorCode> {
        let flow = text::parse_flow(flow, FlowModCommand::Add, Version::V1_3).unwrap();
        let change = FlowChange::new(flow, 80, Version::V1_3, Form::Standard, true, datapath)?;
        datapath.change(0, |datapath, transaction| datapath.flow_mod(&change, 0, transaction)).map(drop)
    }

    #[test]
    fn flows_of_one_shape_share_an_action() {
        let mut datapath = Datapath::new(Limits::default());
        for port in 1..100 {
            add(&mut datapath, &format!("in_port={port},actions=set_field:{port}->metadata,output:{port}"))
                .unwrap();
        }
        add(&mut datapath, "in_port=100,actions=output:1").unwrap();
        let table = datapath.state.table(Layout::get().tables[0]).unwrap();
        let actions: std::collections::BTreeSet<_> = table
            .entries()
            .map(|installed| match &installed.entry.result {
                EntryResult::Action(call) => call.action,
                result => panic!("{result:?}"),
            })
            .collect();
        assert_eq!((table.len(), actions.len()), (100, 2));
    }

    #[test]
    fn actions_that_no_flow_uses_any_more_are_forgotten() {
        let mut datapath = Datapath::new(Limits::default());
        // A shape of its own for each number.
        let load = |number: usize| {
            let set = (0..13).filter(|bit| number >> bit & 1 == 1);
            set.map(|bit| format!("load:0->NXM_NX_REG{bit}[],")).collect::<String>()
        };
        for number in 0..2 * DEFINED {
            add(&mut datapath, &format!("in_port=1,actions={}output:2", load(number))).unwrap();
            assert!(datapath.state.defined() <= DEFINED + 2);
        }
        // Those of many flows, when the flows go.
        let flow = |number: usize| format!("priority=2,udp,tp_dst={number},actions={}output:2", load(number));
        for number in 0..2 * DEFINED {
            add(&mut datapath, &flow(number)).unwrap();
        }
        assert!(datapath.state.defined() >= 2 * DEFINED);
        let all: Vec<_> = datapath.flows().filter(|flow| flow.priority == 2).cloned().collect();
        for flow in all {
            let remove = |datapath: &mut Datapath, transaction: &mut Transaction| {
                datapath.remove_flow(&flow, crate::flows::DELETED, 0, transaction);
                Ok(())
            };
            datapath.change(0, remove).unwrap();
        }
        assert!(datapath.state.defined() <= DEFINED + 2);
        let used = datapath.installed(&datapath.flows().next().unwrap().clone()).cloned().unwrap();
        let EntryResult::Action(call) = &used.entry.result else { panic!("{used:?}") };
        assert!(datapath.state.action(call.action).is_some());
        // And are defined again when they are used again, though their calls were known.
        for number in 0..2 * DEFINED {
            add(&mut datapath, &flow(number)).unwrap();
        }
        assert!(datapath.is_consistent());
    }

    #[test]
    fn flows_share_instructions_but_not_what_is_a_flow_s_own() {
        let mut datapath = Datapath::new(Limits::default());
        let group_mod = |datapath: &mut Datapath, command, group| {
            let request = text::parse_group(group, command, Version::V1_3).unwrap();
            datapath.change_many(0, |datapath, transaction| datapath.group_mod(&request, 0, transaction))
        };
        let call = |datapath: &Datapath, at: usize| {
            let flow = datapath.flows().nth(at).unwrap();
            match &datapath.installed(flow).unwrap().entry.result {
                EntryResult::Action(call) => (call.clone(), flow.instructions.clone(), flow.learns.clone()),
                result => panic!("{result:?}"),
            }
        };
        for flow in [
            "in_port=1,actions=set_field:3->metadata,output:1",
            "in_port=2,actions=set_field:3->metadata,output:1",
            "in_port=3,cookie=1,actions=controller",
            "in_port=4,cookie=2,actions=controller",
            "in_port=5,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])",
            "in_port=6,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])",
        ] {
            add(&mut datapath, flow).unwrap();
        }
        let [first, second, cookie_1, cookie_2, learns_1, learns_2] =
            [0, 1, 2, 3, 4, 5].map(|at| call(&datapath, at));
        assert!(Arc::ptr_eq(&first.1, &second.1) && Arc::ptr_eq(&first.0.args, &second.0.args));
        assert_ne!(cookie_1.0.args, cookie_2.0.args);
        assert_ne!(learns_1.2, learns_2.2);
        // A group that is gone is refused, though a flow had it before.
        use openflow::message::GroupModCommand::{Add, Delete};
        group_mod(&mut datapath, Add, "group_id=1,type=all,bucket=output:1").unwrap();
        add(&mut datapath, "in_port=7,actions=group:1").unwrap();
        group_mod(&mut datapath, Delete, "group_id=1").unwrap();
        assert_eq!(add(&mut datapath, "in_port=7,actions=group:1"), Err(ErrorCode::BacBadOutGroup));
    }

    #[test]
    fn messages_of_a_bundle_see_what_flows_of_earlier_ones_count() {
        let after = |mods: &[(FlowModCommand, &str)]| {
            let mut datapath = Datapath::new(Limits::default());
            add(&mut datapath, "in_port=1,actions=output:2").unwrap();
            let flow = |datapath: &Datapath| datapath.flows().next().unwrap().clone();
            datapath.installed(&flow(&datapath)).unwrap().stats.add(10, 600);
            let changes: Vec<_> = mods
                .iter()
                .map(|(command, flow)| {
                    let flow = text::parse_flow(flow, *command, Version::V1_3).unwrap();
                    FlowChange::new(flow, 80, Version::V1_3, Form::Standard, true, &datapath).unwrap()
                })
                .collect();
            let bundle = |datapath: &mut Datapath, transaction: &mut Transaction| {
                transaction.begin_bundle();
                changes.iter().try_for_each(|change| datapath.flow_mod(change, 0, transaction))
            };
            datapath.change_many(0, bundle).unwrap();
            let flow = flow(&datapath);
            (flow.before.packets, datapath.counts(&flow, 0).packets)
        };
        use FlowModCommand::{Add, DeleteStrict, ModifyStrict};
        let (three, four) = ("in_port=1,actions=output:3", "in_port=1,actions=output:4");
        assert_eq!(after(&[(ModifyStrict, three), (ModifyStrict, four)]), (10, 10));
        assert_eq!(after(&[(Add, three), (ModifyStrict, four)]), (10, 10));
        assert_eq!(after(&[(DeleteStrict, "in_port=1"), (Add, three), (ModifyStrict, four)]), (0, 0));
        assert_eq!(after(&[(DeleteStrict, "in_port=1"), (Add, three), (Add, four)]), (0, 0));
        let resets = "in_port=1,reset_counts,actions=output:3";
        assert_eq!(after(&[(Add, resets), (ModifyStrict, four)]), (0, 0));
    }

    #[test]
    fn counters_of_bands_survive_a_refused_change() {
        use openflow::message::{Band, MeterMod, MeterModCommand};
        let mut datapath = Datapath::new(Limits::default());
        let request = MeterMod { meter: 1, bands: vec![Band::default()], ..MeterMod::default() };
        let add = |datapath: &mut Datapath| {
            datapath.change_many(0, |datapath, transaction| datapath.meter_mod(&request, 0, transaction))
        };
        add(&mut datapath).unwrap();
        let cell = datapath.model.meters[&1].bands[0].1;
        let band = |datapath: &Datapath| {
            datapath.state.arrays().counter(Layout::get().band_counts, cell.into()).unwrap().get()
        };
        let counts = datapath.state.arrays().counter(Layout::get().band_counts, cell.into()).unwrap();
        counts.set(3, 300);
        let again = MeterMod { command: MeterModCommand::Modify, ..request.clone() };
        let refused = datapath.change_many(0, |datapath, transaction| {
            datapath.meter_mod(&again, 0, transaction)?;
            Err::<(), _>(ErrorCode::BfcMsgFailed)
        });
        assert_eq!(refused.map(drop), Err(ErrorCode::BfcMsgFailed));
        assert_eq!(band(&datapath), (3, 300));
        datapath.change_many(0, |datapath, transaction| datapath.meter_mod(&again, 0, transaction)).unwrap();
        assert_eq!(band(&datapath), (0, 0));
    }

    #[test]
    fn fin_timeouts_lead_to_their_flows_as_long_as_these_are_there() {
        use openflow::action::FinTimeout;
        let mut datapath = Datapath::new(Limits::default());
        let known = |datapath: &Datapath| {
            assert!(datapath.is_consistent());
            datapath
                .model
                .fins
                .iter()
                .map(|(number, (_, priority, _))| (*number, *priority))
                .collect::<Vec<_>>()
        };
        let fin = "fin_timeout(idle_timeout=5)";
        for priority in 1..=3 {
            let flow = format!("priority={priority},tcp,idle_timeout=60,actions={fin},clone({fin}),output:1");
            add(&mut datapath, &flow).unwrap();
        }
        // A learned flow's template is no such action.
        let learns =
            "table=1,priority=9,actions=learn(table=2,fin_idle_timeout=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
        add(&mut datapath, learns).unwrap();
        let first = known(&datapath);
        assert_eq!(first.iter().map(|(_, priority)| *priority).collect::<Vec<_>>(), [1, 1, 2, 2, 3, 3]);
        // Shortened flows have new numbers; the old ones lead nowhere, and change nothing.
        let five = FinTimeout { idle: 5, hard: 0 };
        let idle = |datapath: &Datapath| datapath.flows().map(|flow| flow.idle_timeout).collect::<Vec<_>>();
        datapath.shorten(first[3].0, five, 0).unwrap();
        assert_eq!(idle(&datapath), [60, 5, 60, 0]);
        let second = known(&datapath);
        assert_eq!((second.len(), second.iter().filter(|fin| first.contains(fin)).count()), (6, 4));
        let changes = datapath.changes;
        datapath.shorten(first[3].0, five, 0).unwrap();
        second.iter().filter(|(_, priority)| *priority == 2).for_each(|(number, _)| {
            datapath.shorten(*number, five, 0).unwrap();
        });
        assert_eq!(datapath.changes, changes);
        // A flow that is replaced, one that is deleted, and a change that is taken back.
        add(&mut datapath, "priority=1,tcp,actions=output:1").unwrap();
        assert_eq!(known(&datapath).len(), 4);
        let third = datapath.flows().find(|flow| flow.priority == 3).cloned().unwrap();
        let remove = |datapath: &mut Datapath, transaction: &mut Transaction| {
            datapath.remove_flow(&third, crate::flows::DELETED, 0, transaction);
        };
        let refused = datapath.change_many(0, |datapath, transaction| {
            remove(datapath, transaction);
            Err::<(), _>(ErrorCode::BfcMsgFailed)
        });
        assert_eq!(refused.map(drop), Err(ErrorCode::BfcMsgFailed));
        assert_eq!(known(&datapath).len(), 4);
        datapath
            .change(0, |datapath, transaction| {
                remove(datapath, transaction);
                Ok(())
            })
            .unwrap();
        assert_eq!(known(&datapath).iter().map(|(_, priority)| *priority).collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_refused_change_leaves_everything_as_it_was() {
        let mut datapath = Datapath::new(Limits::default());
        add(&mut datapath, "in_port=1,actions=clone(output:2),output:3").unwrap();
        assert_eq!(
            add(&mut datapath, "in_port=1,actions=clone(output:2),group:9"),
            Err(ErrorCode::BacBadOutGroup)
        );
        assert!(datapath.is_consistent());
        let copies = datapath.state.groups(Layout::get().copies).count();
        assert_eq!(copies, 1);
        // What belonged to the flow goes with it.
        add(&mut datapath, "in_port=1,actions=output:3").unwrap();
        assert_eq!(datapath.state.groups(Layout::get().copies).count(), 0);
    }
}
