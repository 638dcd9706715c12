//! The control side: compiles a program and follows its state.
//!
//! An [`Engine`] belongs to the thread that changes the [`State`]. It turns every bundle of changes into a new
//! [`View`]; workers meet it with their next batch, and nothing they do waits for it.
//!
//! Invariants: a view is published after everything in it is complete, code included; the previous views are kept until
//! no worker holds them, so that a worker never frees memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arc_swap::ArcSwap;
use pipeline::ir::{
    ActionCall, ActionId, EntryResult, GroupTableId, ProfileId, ReplicasId, TableId, ValueSetId,
};
use pipeline::state::{Bundle, Change, Installed, InstalledGroup, State};

use crate::code::{ActionCode, Actions, Code, Function};
use crate::compile::{Options, Unsupported, compile, compile_action};
use crate::form::{Reader, Scan, ScanEntry};
use crate::keys::KeyLayout;
use crate::view::{Call, GroupView, Outcome, ProfileView, Record, TableView, View, Views};

/// A compiled program and what follows its state.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    view: View,
    published: Views,
    retired: VecDeque<Arc<View>>,
}

impl Engine {
    /// Compiles the program of a state, with its entries.
    ///
    /// # Errors
    /// Why it is not compiled: the interpreter has to run it.
    pub fn new(state: &State, options: Options) -> Result<Self, Unsupported> {
        let program = state.program().clone();
        let code = Arc::new(compile(&program, &options)?);
        let mut view = View {
            code,
            actions: Arc::default(),
            tables: vec![],
            profiles: program.profiles.iter().map(|_| Arc::default()).collect(),
            groups: program.groups.iter().map(|_| Arc::default()).collect(),
            replicas: vec![],
            values: vec![],
            arrays: state.arrays().clone(),
        };
        let mut compiler =
            Calls { options: &options, code: view.code.clone(), actions: view.actions.clone() };
        for (i, schema) in program.tables.iter().enumerate() {
            let layout = Arc::new(KeyLayout::new(&program, schema));
            view.tables.push(Arc::new(table_view(&mut compiler, state, TableId::at(i), layout)?));
        }
        for i in 0..program.profiles.len() {
            let profile = profile_view(&mut compiler, state, ProfileId::at(i))?;
            view.profiles.iter_mut().skip(i).take(1).for_each(|slot| *slot = profile.clone());
        }
        for (i, slot) in view.groups.iter_mut().enumerate() {
            let mut groups = BTreeMap::new();
            for (id, group) in state.groups(GroupTableId::at(i)) {
                groups.insert(id, Arc::new(group_view(&mut compiler, state, group)?));
            }
            *slot = Arc::new(groups);
        }
        let lists = |i| state.replications(ReplicasId::at(i)).map(|(id, list)| (id, list.clone())).collect();
        view.replicas = (0..program.replicas.len()).map(|i| Arc::new(lists(i))).collect();
        let values = |i| Arc::new(state.values(ValueSetId::at(i)).to_vec());
        view.values = (0..program.value_sets.len()).map(values).collect();
        view.actions = compiler.actions;
        let published = Views(Arc::new(ArcSwap::from_pointee(view.clone())));
        Ok(Self { options, view, published, retired: VecDeque::new() })
    }

    /// Returns what workers load views from.
    pub fn views(&self) -> Views {
        self.published.clone()
    }

    /// Returns the program's code.
    pub fn code(&self) -> &Code {
        &self.view.code
    }

    /// Makes a bundle that the state has applied visible to packets.
    ///
    /// # Errors
    /// Why an action that it uses is not compiled. Packets see the state before the bundle then; the interpreter has to
    /// take over.
    pub fn follow(&mut self, state: &State, bundle: &Bundle) -> Result<(), Unsupported> {
        let mut view = self.view.clone();
        let mut compiler =
            Calls { options: &self.options, code: view.code.clone(), actions: view.actions.clone() };
        let mut tables = std::collections::BTreeSet::new();
        for change in &bundle.changes {
            match change {
                Change::Added(table, _)
                | Change::Modified(table, ..)
                | Change::Removed(table, _)
                | Change::Default(table) => {
                    tables.insert(*table);
                }
                Change::Profile(id) => {
                    let profile = profile_view(&mut compiler, state, *id)?;
                    set(&mut view.profiles, id.index(), profile);
                }
                Change::Group(id, number) => {
                    let mut groups =
                        view.groups.get(id.index()).map_or_else(BTreeMap::new, |g| (**g).clone());
                    match state.group(*id, *number) {
                        Some(group) => {
                            groups.insert(*number, Arc::new(group_view(&mut compiler, state, group)?));
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
        for id in tables {
            let Some(schema) = view.code.program.tables.get(id.index()) else { continue };
            let layout = Arc::new(KeyLayout::new(&view.code.program, schema));
            let table = Arc::new(table_view(&mut compiler, state, id, layout)?);
            set(&mut view.tables, id.index(), table);
        }
        view.actions = compiler.actions;
        self.view = view;
        self.publish();
        Ok(())
    }

    fn publish(&mut self) {
        let old = self.published.0.swap(Arc::new(self.view.clone()));
        self.retired.push_back(old);
        // `get_mut` acquires the last worker's release.
        while self.retired.front_mut().is_some_and(|view| Arc::get_mut(view).is_some()) {
            self.retired.pop_front();
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
        Ok(self.function(state, call.action)?.map(|function| Call::new(function, call)))
    }

    fn function(&mut self, state: &State, id: ActionId) -> Result<Option<Function>, Unsupported> {
        if let Some(function) = self.code.action(id) {
            return Ok(Some(function));
        }
        if let Some(code) = self.actions.get(&id) {
            return Ok(code.function());
        }
        let Some(action) = state.action(id) else { return Ok(None) };
        let code: Arc<ActionCode> = Arc::new(compile_action(&self.code, action, self.options)?);
        let function = code.function();
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

fn table_view(
    calls: &mut Calls<'_>,
    state: &State,
    id: TableId,
    layout: Arc<KeyLayout>,
) -> Result<TableView, Unsupported> {
    let code = calls.code.clone();
    let (schema, table) = (code.program.tables.get(id.index()), state.table(id));
    let mut entries = Vec::new();
    for installed in table.into_iter().flat_map(|table| table.entries()) {
        if let Some(record) = record(calls, state, installed)? {
            let ternary = layout.ternary(&installed.entry);
            entries.push(ScanEntry { ternary, record: Arc::new(record) });
        }
    }
    let default = match table.and_then(|table| table.default_action()) {
        Some(call) => calls.call(state, call)?.map(Arc::new),
        None => None,
    };
    Ok(TableView {
        default,
        counts: table.map(|table| table.counts().clone()).unwrap_or_default(),
        counted: schema.is_some_and(|schema| schema.counter.is_some()),
        timed: schema.is_some_and(|schema| schema.timeouts),
        profile: schema.and_then(|schema| schema.profile),
        words: layout.words,
        reader: Reader::Scan(Scan::new(layout, entries)),
    })
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
