//! The control side: compiles a program and follows its state.
//!
//! An [`Engine`] belongs to the thread that changes the [`State`]. It turns every bundle of changes into a new
//! [`View`]; workers meet it with their next batch, and nothing they do waits for it.
//!
//! Invariants:
//! - a view is published after everything in it is complete, code included;
//! - a bundle whose actions cannot be compiled changes nothing;
//! - the previous views are kept, oldest first, until no worker holds them, and with each what it alone still needs: so
//!   a worker never frees memory, and no record is freed under a worker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use pipeline::ir::{
    ActionCall, ActionId, EntryResult, GroupTableId, ProfileId, ReplicasId, TableId, ValueSetId,
};
use pipeline::state::{Bundle, Change, Installed, InstalledGroup, State};

use crate::code::{ActionCode, Actions, Code, Owned};
use crate::compile::{Options, Unsupported, compile, compile_action};
use crate::form::{Form, Writer};
use crate::view::{Call, GroupView, Outcome, ProfileView, Record, TableView, View, Views};

/// A compiled program and what follows its state.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    view: View,
    published: Views,
    tables: Vec<Writer>,
    retired: VecDeque<Retired>,
}

/// A previous view, and the handles of entries that only it and older ones have.
type Retired = (Arc<View>, Vec<(TableId, u32)>);

/// A change of an entry, with its new record.
enum EntryChange {
    Add(Record),
    Modify(Record),
    Remove,
}

/// A table as packets look it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableInfo {
    /// Form.
    pub form: Form,
    /// Number of entries.
    pub entries: usize,
    /// Number of different masks.
    pub masks: usize,
    /// Bytes that lookups read, without the entries' actions.
    pub memory: usize,
}

impl Engine {
    /// Compiles the program of a state, with its entries.
    ///
    /// # Errors
    /// Why it is not compiled: the interpreter has to run it.
    pub fn new(state: &State, options: Options) -> Result<Self, Unsupported> {
        let code = Arc::new(compile(state.program(), &options)?);
        Self::with_code(state, code, options)
    }

    /// Follows a state of a program that has been compiled before, with the same options, for another state.
    ///
    /// # Errors
    /// Why an action of its entries is not compiled.
    pub fn with_code(state: &State, code: Arc<Code>, options: Options) -> Result<Self, Unsupported> {
        let program = state.program().clone();
        let mut calls = Calls { options: &options, code: code.clone(), actions: Arc::default() };
        let (mut tables, mut table_views) = (Vec::new(), Vec::new());
        for (i, schema) in program.tables.iter().enumerate() {
            let mut writer = Writer::new(&program, schema);
            let table = state.table(TableId::at(i));
            writer.begin(false);
            for installed in table.into_iter().flat_map(|table| table.entries()) {
                if let Some(record) = record(&mut calls, state, installed)? {
                    writer.add(installed, record);
                }
            }
            let reader = writer.finish();
            table_views.push(Arc::new(TableView {
                reader: Arc::new(reader),
                default: default(&mut calls, state, TableId::at(i))?,
                counts: table.map(|table| table.counts().clone()).unwrap_or_default(),
                counted: schema.counter.is_some(),
                timed: schema.timeouts,
                profile: schema.profile,
                words: writer.words(),
            }));
            tables.push(writer);
        }
        let (mut profiles, mut groups) = (Vec::new(), Vec::new());
        for i in 0..program.profiles.len() {
            profiles.push(profile_view(&mut calls, state, ProfileId::at(i))?);
        }
        for i in 0..program.groups.len() {
            let mut of_table = BTreeMap::new();
            for (id, group) in state.groups(GroupTableId::at(i)) {
                of_table.insert(id, Arc::new(group_view(&mut calls, state, group)?));
            }
            groups.push(Arc::new(of_table));
        }
        let lists = |i| state.replications(ReplicasId::at(i)).map(|(id, list)| (id, list.clone())).collect();
        let values = |i| Arc::new(state.values(ValueSetId::at(i)).to_vec());
        let view = View {
            code,
            actions: calls.actions,
            tables: table_views,
            profiles,
            groups,
            replicas: (0..program.replicas.len()).map(|i| Arc::new(lists(i))).collect(),
            values: (0..program.value_sets.len()).map(values).collect(),
            arrays: state.arrays().clone(),
        };
        let published = Views(Arc::new(ArcSwap::from_pointee(view.copy())));
        Ok(Self { options, view, published, tables, retired: VecDeque::new() })
    }

    /// Returns what workers load views from.
    pub fn views(&self) -> Views {
        self.published.clone()
    }

    /// Returns the program's code.
    pub fn code(&self) -> &Code {
        &self.view.code
    }

    /// Returns the number of compiled actions that were defined at run time.
    pub fn action_count(&self) -> usize {
        self.view.actions.len()
    }

    /// Returns the bytes of all machine code. Walks the actions.
    pub fn code_size(&self) -> usize {
        let actions = self.view.actions.values().map(|action| action.functions.len());
        self.view.code.len() + actions.sum::<usize>()
    }

    /// Frees the code of actions that nothing uses any more; calls in views that are still held keep it until then.
    pub fn forget(&mut self, actions: &[ActionId]) {
        let mut kept: Actions = (*self.view.actions).clone();
        let gone: BTreeSet<_> = actions.iter().collect();
        kept.retain(|id, _| !gone.contains(id));
        if kept.len() < self.view.actions.len() {
            self.view.actions = Arc::new(kept);
            self.publish(Vec::new());
        }
    }

    /// Returns how a table is looked up.
    pub fn table(&self, id: TableId) -> Option<TableInfo> {
        let writer = self.tables.get(id.index())?;
        let (form, entries, masks, memory) = (writer.form(), writer.len(), writer.masks(), writer.memory());
        Some(TableInfo { form, entries, masks, memory })
    }

    /// Makes a bundle that the state has applied visible to packets. Bundles have to come in the order of their
    /// generations, each before the state changes again.
    ///
    /// # Errors
    /// Why an action that it uses is not compiled. Nothing has changed then, and the interpreter has to take over: the
    /// engine cannot follow later bundles.
    pub fn follow(&mut self, state: &State, bundle: &Bundle) -> Result<(), Unsupported> {
        let mut view = self.view.copy();
        let mut calls =
            Calls { options: &self.options, code: view.code.clone(), actions: view.actions.clone() };
        // First what may fail.
        let mut entries = Vec::new();
        for change in &bundle.changes {
            match change {
                Change::Added(table, installed) => {
                    let record = record(&mut calls, state, installed)?.map(EntryChange::Add);
                    entries.extend(record.map(|change| (*table, installed.clone(), change)));
                }
                Change::Modified(table, _, installed) => {
                    let record = record(&mut calls, state, installed)?.map(EntryChange::Modify);
                    entries.extend(record.map(|change| (*table, installed.clone(), change)));
                }
                Change::Removed(table, installed) => {
                    entries.push((*table, installed.clone(), EntryChange::Remove));
                }
                Change::Default(id) => {
                    let default = default(&mut calls, state, *id)?;
                    if let Some(table) = view.tables.get_mut(id.index()) {
                        *table = Arc::new(table.with_default(default));
                    }
                }
                Change::Profile(id) => {
                    let profile = profile_view(&mut calls, state, *id)?;
                    set(&mut view.profiles, id.index(), profile);
                }
                Change::Group(id, number) => {
                    let mut groups =
                        view.groups.get(id.index()).map_or_else(BTreeMap::new, |g| (**g).clone());
                    match state.group(*id, *number) {
                        Some(group) => {
                            groups.insert(*number, Arc::new(group_view(&mut calls, state, group)?));
                        }
                        None => drop(groups.remove(number)),
                    }
                    set(&mut view.groups, id.index(), Arc::new(groups));
                }
                Change::Replication(id, number) => {
                    let mut lists =
                        view.replicas.get(id.index()).map_or_else(BTreeMap::new, |l| (**l).clone());
                    match state.replication(*id, *number) {
                        Some(list) => drop(lists.insert(*number, list.clone())),
                        None => drop(lists.remove(number)),
                    }
                    set(&mut view.replicas, id.index(), Arc::new(lists));
                }
                Change::Values(id) => set(&mut view.values, id.index(), Arc::new(state.values(*id).to_vec())),
            }
        }
        view.actions = calls.actions;
        let garbage = self.change_tables(&mut view, entries, bundle.changes.len() == 1);
        self.view = view;
        self.publish(garbage);
        Ok(())
    }

    /// Changes entries; returns what previous views may still use.
    fn change_tables(
        &mut self,
        view: &mut View,
        entries: Vec<(TableId, Arc<Installed>, EntryChange)>,
        single: bool,
    ) -> Vec<(TableId, u32)> {
        let mut garbage = Vec::new();
        let touched: BTreeSet<TableId> = entries.iter().map(|(table, ..)| *table).collect();
        for id in &touched {
            self.tables.iter_mut().skip(id.index()).take(1).for_each(|writer| writer.begin(single));
        }
        for (id, installed, change) in entries {
            let Some(writer) = self.tables.get_mut(id.index()) else { continue };
            let retired = match change {
                EntryChange::Add(record) => {
                    writer.add(&installed, record);
                    None
                }
                EntryChange::Modify(record) => writer.modify(&installed, record),
                EntryChange::Remove => writer.remove(installed.id),
            };
            garbage.extend(retired.map(|retired| (id, retired)));
        }
        for id in touched {
            let (Some(writer), Some(table)) =
                (self.tables.get_mut(id.index()), view.tables.get_mut(id.index()))
            else {
                continue;
            };
            *table = Arc::new(table.with_reader(writer.finish()));
        }
        garbage
    }

    /// Makes lookups faster after many changes, where a structure has outgrown its form; packets use the previous one
    /// meanwhile. For times at which nothing else is to be done. Returns whether there was something to do.
    pub fn improve(&mut self) -> bool {
        let mut any = false;
        for writer in &mut self.tables {
            any |= writer.improve();
        }
        any
    }

    fn publish(&mut self, garbage: Vec<(TableId, u32)>) {
        let old = self.published.0.swap(Arc::new(self.view.copy()));
        self.retired.push_back((old, garbage));
        self.reclaim();
    }

    /// Frees what no worker can use any more. Every change does it; after the last change it may be called again.
    pub fn reclaim(&mut self) {
        // `get_mut` acquires the last worker's release.
        while self.retired.front_mut().is_some_and(|(view, _)| Arc::get_mut(view).is_some()) {
            let Some((_, garbage)) = self.retired.pop_front() else { break };
            for (id, handle) in garbage {
                self.tables.iter_mut().skip(id.index()).take(1).for_each(|writer| writer.release(handle));
            }
        }
    }
}

fn set<T>(list: &mut [T], i: usize, value: T) {
    if let Some(slot) = list.get_mut(i) {
        *slot = value;
    }
}

/// Makes action calls; compiles the actions that have no code yet.
struct Calls<'a> {
    options: &'a Options,
    code: Arc<Code>,
    actions: Arc<Actions>,
}

impl Calls<'_> {
    /// The call of an action; `None` if the action does not exist, which the state excludes.
    fn call(&mut self, state: &State, call: &ActionCall) -> Result<Option<Call>, Unsupported> {
        Ok(self.function(state, call.action)?.map(|(function, owner)| Call::new(function, owner, call)))
    }

    fn function(&mut self, state: &State, id: ActionId) -> Result<Option<Owned>, Unsupported> {
        if let Some(function) = self.code.action(id) {
            return Ok(Some((function, None)));
        }
        if let Some(code) = self.actions.get(&id) {
            return Ok(code.function().map(|function| (function, Some(code.clone()))));
        }
        let Some(action) = state.action(id) else { return Ok(None) };
        let code: Arc<ActionCode> = Arc::new(compile_action(&self.code, action, self.options)?);
        let function = code.function().map(|function| (function, Some(code.clone())));
        let mut actions: Actions = (*self.actions).clone();
        actions.insert(id, code);
        self.actions = Arc::new(actions);
        Ok(function)
    }
}

fn record(
    calls: &mut Calls<'_>,
    state: &State,
    installed: &Arc<Installed>,
) -> Result<Option<Record>, Unsupported> {
    let outcome = match &installed.entry.result {
        EntryResult::Action(call) => match calls.call(state, call)? {
            Some(call) => Outcome::Call(call),
            None => return Ok(None),
        },
        EntryResult::Member(member) => Outcome::Member(*member),
        EntryResult::Group(group) => Outcome::Group(*group),
    };
    Ok(Some(Record { installed: installed.clone(), outcome }))
}

fn default(calls: &mut Calls<'_>, state: &State, id: TableId) -> Result<Option<Arc<Call>>, Unsupported> {
    match state.table(id).and_then(|table| table.default_action()) {
        Some(call) => Ok(calls.call(state, call)?.map(Arc::new)),
        None => Ok(None),
    }
}

fn profile_view(
    calls: &mut Calls<'_>,
    state: &State,
    id: ProfileId,
) -> Result<Arc<ProfileView>, Unsupported> {
    let mut view = ProfileView::default();
    if let Some(profile) = state.profile(id) {
        for (number, call) in &profile.members {
            if let Some(call) = calls.call(state, call)? {
                view.members.insert(*number, call);
            }
        }
        view.groups.clone_from(&profile.groups);
    }
    Ok(Arc::new(view))
}

fn group_view(
    calls: &mut Calls<'_>,
    state: &State,
    group: &Arc<InstalledGroup>,
) -> Result<GroupView, Unsupported> {
    let mut view = GroupView { installed: group.clone(), calls: vec![] };
    for bucket in &group.group.buckets {
        // The state has checked that the action exists.
        view.calls.extend(calls.call(state, &bucket.call)?);
    }
    Ok(view)
}
