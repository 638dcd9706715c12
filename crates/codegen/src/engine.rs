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

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use arc_swap::ArcSwap;
use pipeline::ir::{ActionId, EntryResult, GroupTableId, ProfileId, ReplicasId, TableId, ValueSetId};
use pipeline::state::{Bundle, Change, Installed, State};

use crate::code::{Actions, Code, new_id};
use crate::compile::{Options, Unsupported, compile};
use crate::form::{Form, Rebuild, Writer};
use crate::records::{Calls, Slots, default, group_view, profile_view, record};
use crate::shards::Shards;
use crate::special::{Special, Specialisation, TableFacts, has_residuals};
use crate::view::{Record, TableView, View, Views};

/// A compiled program and what follows its state.
#[derive(Debug)]
pub struct Engine {
    /// Tells the engine from any other.
    id: u64,
    options: Options,
    view: View,
    published: Views,
    tables: Vec<Writer>,
    slots: Slots,
    retired: VecDeque<Retired>,
    /// Handles of entries that the published view still has, beside those that `view` has.
    pending: Vec<(TableId, u32)>,
    /// Flags of the packets that specialised code is for.
    flags: u64,
    /// Whether there is specialised code for what is there, or none is possible.
    is_special: bool,
}

/// Unlinked entries from which on a view is published for nothing but to free them.
const PENDING: usize = 256;

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
    /// Number of conditions that are compared one by one, beside those in a hash or a trie.
    pub others: usize,
    /// Bytes that lookups read, without the entries' actions.
    pub memory: usize,
    /// Whether it has outgrown its structure, which [`Engine::rebuild`] would build anew.
    pub is_stale: bool,
}

impl TableInfo {
    /// The name of its form, and the reason for it, for people.
    pub fn describe(&self) -> (&'static str, String) {
        let besides = match self.others {
            0 => String::new(),
            others => format!(", but for {others}"),
        };
        match (self.form, self.entries) {
            (Form::Scan, 1) => ("scan", "1 entry".to_owned()),
            (Form::Scan, entries) => ("scan", format!("{entries} entries")),
            (Form::Exact, _) => ("exact", format!("one mask, no two entries alike{besides}")),
            (Form::Prefix, _) => ("prefix", format!("prefixes of one field{besides}")),
            (Form::Classifier, _) => ("classifier", format!("{} masks", self.masks)),
        }
    }
}

impl Engine {
    /// Compiles the program of a state, with its entries.
    ///
    /// # Errors
    /// Why it is not compiled: the interpreter has to run it.
    pub fn new(state: &State, options: Options) -> Result<Self, Unsupported> {
        let code = Arc::new(compile(state.program(), &options)?);
        let mut engine = Self::with_code(state, code, options)?;
        engine.specialise();
        Ok(engine)
    }

    /// Follows a state of a program that has been compiled before, with the same options, for another state. Its code is
    /// not specialised yet.
    ///
    /// # Errors
    /// Why an action of its entries is not compiled.
    pub fn with_code(state: &State, code: Arc<Code>, options: Options) -> Result<Self, Unsupported> {
        let program = state.program().clone();
        let mut slots = Slots::new(program.actions.len());
        let mut calls =
            Calls { options: &options, code: code.clone(), actions: Arc::default(), slots: &mut slots };
        let (mut tables, mut table_views) = (Vec::<Writer>::new(), Vec::new());
        let mut empty: Option<Writer> = None;
        for (i, schema) in program.tables.iter().enumerate() {
            let mut writer = Writer::new(&program, TableId::at(i), schema, empty.as_ref());
            if writer.is_of_other_keys(empty.as_ref()) {
                empty = Some(Writer::new(&program, TableId::at(i), schema, Some(&writer)));
            }
            let table = state.table(TableId::at(i));
            writer.begin(false);
            for installed in table.into_iter().flat_map(|table| table.entries()) {
                if let Some(record) = record(&mut calls, state, installed)? {
                    writer.add(installed, record);
                }
            }
            let reader = writer.finish().unwrap_or_else(|| writer.reader());
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
            let mut of_table = Shards::default();
            for (id, group) in state.groups(GroupTableId::at(i)) {
                of_table.set(id, Some(Arc::new(group_view(&mut calls, state, group)?)));
            }
            groups.push(Arc::new(of_table));
        }
        let lists = |i| {
            state.replications(ReplicasId::at(i)).map(|(id, list)| (id, Arc::new(list.clone()))).collect()
        };
        let values = |i| Arc::new(state.values(ValueSetId::at(i)).to_vec());
        let view = View {
            id: new_id(),
            changes: Arc::default(),
            code,
            special: None,
            actions: calls.actions,
            tables: table_views,
            profiles,
            groups,
            replicas: (0..program.replicas.len()).map(|i| Arc::new(lists(i))).collect(),
            values: (0..program.value_sets.len()).map(values).collect(),
            arrays: state.arrays().clone(),
        };
        let published = Views(Arc::new(ArcSwap::from_pointee(view.copy())));
        Ok(Self {
            id: new_id(),
            options,
            view,
            published,
            tables,
            slots,
            retired: VecDeque::new(),
            pending: vec![],
            flags: 0,
            is_special: false,
        })
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
        let special = self.view.special.as_ref().map_or(0, |special| special.code.len());
        self.view.code.len() + special + actions.sum::<usize>()
    }

    /// Frees the code of actions that nothing uses any more; calls in views that are still held keep it until then.
    pub fn forget(&mut self, actions: &[ActionId]) {
        let mut kept: Actions = (*self.view.actions).clone();
        let gone: Vec<_> = actions.iter().filter_map(|id| kept.remove(id)).collect();
        if !gone.is_empty() {
            gone.iter().for_each(|code| self.slots.release(code.slot));
            self.view.actions = Arc::new(kept);
            self.publish();
        }
    }

    /// Returns how a table is looked up.
    pub fn table(&self, id: TableId) -> Option<TableInfo> {
        let writer = self.tables.get(id.index())?;
        let (form, entries, masks, memory) = (writer.form(), writer.len(), writer.masks(), writer.memory());
        let (others, is_stale) = (writer.others(), writer.is_outgrown());
        Some(TableInfo { form, entries, masks, others, memory, is_stale })
    }

    /// Makes a bundle that the state has applied visible to packets. Bundles have to come in the order of their
    /// generations, each before the state changes again.
    ///
    /// # Errors
    /// Why an action that it uses is not compiled. Nothing has changed then, and the interpreter has to take over: the
    /// engine cannot follow later bundles.
    pub fn follow(&mut self, state: &State, bundle: &Bundle) -> Result<(), Unsupported> {
        if let [change] = &bundle.changes[..]
            && self.follow_one(state, change)?
        {
            return Ok(());
        }
        // Tables can then change the structures that only old views read.
        self.free();
        let mut view = self.view.copy();
        let mut calls = Calls {
            options: &self.options,
            code: view.code.clone(),
            actions: view.actions.clone(),
            slots: &mut self.slots,
        };
        // First what may fail.
        let mut entries = Vec::new();
        // Views are made of the state behind the bundle: once for each profile, however many members change.
        let mut profiles = BTreeSet::new();
        for change in &bundle.changes {
            match change {
                Change::Profile(id) if !profiles.insert(*id) => {}
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
                    let group = match state.group(*id, *number) {
                        Some(group) => Some(Arc::new(group_view(&mut calls, state, group)?)),
                        None => None,
                    };
                    if let Some(groups) = view.groups.get_mut(id.index()) {
                        Arc::make_mut(groups).set(*number, group);
                    }
                }
                Change::Replication(id, number) => {
                    if let Some(lists) = view.replicas.get_mut(id.index()) {
                        let list = state.replication(*id, *number).map(|list| Arc::new(list.clone()));
                        Arc::make_mut(lists).set(*number, list);
                    }
                }
                Change::Values(id) => set(&mut view.values, id.index(), Arc::new(state.values(*id).to_vec())),
            }
        }
        view.actions = calls.actions;
        let special = view.special.take();
        let special =
            special.filter(|special| bundle.changes.iter().all(|change| permits(special, &view, change)));
        let garbage = self.change_tables(&mut view, entries);
        self.pending.extend(garbage);
        let tables = &self.tables;
        let has_layout = |special: &Arc<Special>, change: &Change| match change {
            Change::Added(id, _) | Change::Modified(id, ..) | Change::Removed(id, _) => {
                tables.get(id.index()).is_some_and(|writer| special.has_layout(*id, writer.layout()))
            }
            _ => true,
        };
        let special =
            special.filter(|special| bundle.changes.iter().all(|change| has_layout(special, change)));
        self.is_special &= special.is_some();
        view.special = special;
        self.view = view;
        self.publish();
        Ok(())
    }

    /// Follows the change of one entry, in place if its table can; packets see it at once then. Returns whether it was
    /// followed: nothing has changed if not.
    fn follow_one(&mut self, state: &State, change: &Change) -> Result<bool, Unsupported> {
        if !self.all_permit(change) {
            return Ok(false);
        }
        let mut calls = Calls {
            options: &self.options,
            code: self.view.code.clone(),
            actions: self.view.actions.clone(),
            slots: &mut self.slots,
        };
        let (id, installed, record) = match change {
            Change::Added(id, installed) | Change::Modified(id, _, installed) => {
                (id, installed, record(&mut calls, state, installed)?)
            }
            Change::Removed(id, installed) => (id, installed, None),
            _ => return Ok(false),
        };
        self.view.actions = calls.actions;
        let Some(writer) = self.tables.get_mut(id.index()) else { return Ok(false) };
        writer.begin(true);
        let garbage = match (change, record) {
            (Change::Added(..), Some(record)) => {
                writer.add(installed, record);
                None
            }
            (Change::Modified(..), Some(record)) => writer.modify(installed, record),
            (Change::Removed(..), _) => writer.remove(installed.id),
            _ => None,
        };
        self.pending.extend(garbage.map(|handle| (*id, handle)));
        let Some(reader) = writer.finish() else {
            // Packets that see the number see the change.
            self.view.changes.fetch_add(1, Release);
            if self.pending.len() >= PENDING {
                self.publish();
            }
            return Ok(true);
        };
        let has_layout = |special: &Arc<Special>| special.has_layout(*id, writer.layout());
        self.view.special = self.view.special.take().filter(has_layout);
        self.is_special &= self.view.special.is_some();
        if let Some(table) = self.view.tables.get_mut(id.index()) {
            *table = Arc::new(table.with_reader(reader));
        }
        self.publish();
        Ok(true)
    }

    /// Whether a change may happen under the views that workers hold: specialised code must not meet an action that it
    /// does not know.
    fn all_permit(&self, change: &Change) -> bool {
        let views = self.retired.iter().map(|(view, _)| &**view).chain([&self.view]);
        views.filter_map(|view| view.special.as_deref()).all(|special| permits(special, &self.view, change))
    }

    /// Changes entries for the next view; returns what previous views may still use.
    fn change_tables(
        &mut self,
        view: &mut View,
        entries: Vec<(TableId, Arc<Installed>, EntryChange)>,
    ) -> Vec<(TableId, u32)> {
        let mut garbage = Vec::new();
        let touched: BTreeSet<TableId> = entries.iter().map(|(table, ..)| *table).collect();
        for id in &touched {
            self.tables.iter_mut().skip(id.index()).take(1).for_each(|writer| writer.begin(false));
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
            if let Some(reader) = writer.finish() {
                *table = Arc::new(table.with_reader(reader));
            }
        }
        garbage
    }

    /// Makes lookups faster after many changes, where a structure has outgrown its form, and specialises code; packets
    /// use the previous ones meanwhile. For times at which nothing else is to be done. Returns whether there was
    /// something to do.
    pub fn improve(&mut self) -> bool {
        self.improve_tables() | self.specialise()
    }

    /// The part of [`Engine::improve`] that concerns structures.
    pub fn improve_tables(&mut self) -> bool {
        let (mut from, mut any) = (TableId(0), false);
        while let Some(mut rebuild) = self.rebuild(from) {
            from = TableId::at(rebuild.table().index() + 1);
            rebuild.build();
            // Nothing has changed meanwhile that it would have to catch up with.
            any |= self.install_table(rebuild).is_ok_and(|is_new| is_new);
        }
        any
    }

    /// A copy of the structure of the next table, from this one on, that has outgrown its form. It is built anew without
    /// the engine, which may follow changes meanwhile, and then given to [`Engine::install_table`].
    pub fn rebuild(&mut self, from: TableId) -> Option<Rebuild> {
        self.tables.iter_mut().skip(from.index()).find_map(|writer| writer.rebuild(self.id))
    }

    /// Lets packets use a structure that was built anew, if it is still of use; whether it is.
    ///
    /// # Errors
    /// Too many entries have changed meanwhile for the engine to wait: the structure has to catch up with them, again
    /// without the engine.
    pub fn install_table(&mut self, rebuild: Rebuild) -> Result<bool, Rebuild> {
        let id = rebuild.table();
        let writer = self.tables.get_mut(id.index()).filter(|_| rebuild.engine == self.id);
        let Some(reader) = writer.map_or(Ok(None), |writer| writer.swap(rebuild))? else { return Ok(false) };
        if let Some(table) = self.view.tables.get_mut(id.index()) {
            *table = Arc::new(table.with_reader(reader));
        }
        self.publish();
        Ok(true)
    }

    /// Says which flags packets have, of which specialised code is for those with just these; 0 at first.
    pub fn expect_flags(&mut self, flags: u64) {
        if self.flags != flags {
            (self.flags, self.is_special) = (flags, false);
        }
    }

    /// Whether packets with the expected flags run specialised code.
    pub fn is_specialised(&self) -> bool {
        self.view.special.as_ref().is_some_and(|special| special.flags == self.flags)
    }

    /// Whether the program is one that code can be specialised for: with a single stage, or with two that can be
    /// joined, of which the second has no parser, no other deparser, and shares no block with the end of the first.
    pub fn can_specialise(&self) -> bool {
        has_residuals(&self.view.code.program)
    }

    /// Makes code for the entries that are there, unless it exists; whether it is new.
    fn specialise(&mut self) -> bool {
        let Some(mut specialisation) = self.specialisation() else { return false };
        specialisation.compile();
        self.install(specialisation)
    }

    /// What code has to be made of, if none exists for the entries that are there. It is compiled without the engine,
    /// which may follow changes meanwhile, and then given to [`Engine::install`].
    pub fn specialisation(&mut self) -> Option<Specialisation> {
        if std::mem::replace(&mut self.is_special, true) || !self.can_specialise() {
            return None;
        }
        let tables = (0..self.tables.len()).filter_map(|i| self.facts(i)).collect();
        let (code, actions) = (self.view.code.clone(), self.view.actions.clone());
        Some(Specialisation::new(self.id, code, actions, self.flags, tables, self.options))
    }

    /// Lets packets run specialised code, if it is still right; whether it is.
    pub fn install(&mut self, specialisation: Specialisation) -> bool {
        let Some(special) = specialisation.of(self.id) else { return false };
        let is_right = special.flags == self.flags
            && (0..self.tables.len()).all(|i| {
                let facts = self.facts(i);
                facts.is_some_and(|facts| special.fits(TableId::at(i), &facts))
            });
        if is_right {
            self.view.special = Some(Arc::new(special));
            self.publish();
        }
        self.is_special = is_right;
        is_right
    }

    /// What is known about a table now.
    fn facts(&self, table: usize) -> Option<TableFacts> {
        let (writer, view) = (self.tables.get(table)?, self.view.tables.get(table)?);
        Some(TableFacts {
            keys: writer.placed(),
            actions: writer.actions().collect(),
            default: view.default.as_ref().map(|call| ActionId(call.action as u32)),
            layout: writer.layout().clone(),
        })
    }

    fn publish(&mut self) {
        let garbage = std::mem::take(&mut self.pending);
        let old = self.published.0.swap(Arc::new(self.view.copy()));
        self.retired.push_back((old, garbage));
        self.free();
    }

    /// Frees what no worker can use any more, and what tables keep for the next bundle if none has come since the last
    /// call. Every change does the former; after the last change this may be called again.
    pub fn reclaim(&mut self) {
        self.tables.iter_mut().for_each(Writer::tidy);
        if !self.pending.is_empty() {
            return self.publish();
        }
        self.free();
    }

    fn free(&mut self) {
        // `get_mut` acquires the last worker's release.
        while self.retired.front_mut().is_some_and(|(view, _)| Arc::get_mut(view).is_some()) {
            let Some((_, garbage)) = self.retired.pop_front() else { break };
            for (id, handle) in garbage {
                self.tables.iter_mut().skip(id.index()).take(1).for_each(|writer| writer.release(handle));
            }
        }
    }
}

/// Whether specialised code is right after a change, but for the layouts of keys, which tables decide.
fn permits(special: &Special, view: &View, change: &Change) -> bool {
    match change {
        Change::Added(id, installed) | Change::Modified(id, _, installed) => match &installed.entry.result {
            EntryResult::Action(call) => special.permits(*id, call.action),
            _ => false,
        },
        Change::Default(id) => {
            let call = view.tables.get(id.index()).and_then(|table| table.default.as_ref());
            special.permits_default(*id, call.map(|call| ActionId(call.action as u32)))
        }
        Change::Profile(_) => false,
        Change::Removed(..) | Change::Group(..) | Change::Replication(..) | Change::Values(_) => true,
    }
}

fn set<T>(list: &mut [T], i: usize, value: T) {
    if let Some(slot) = list.get_mut(i) {
        *slot = value;
    }
}
