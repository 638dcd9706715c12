//! The state of a program: what control planes and packets change.
//!
//! A [`State`] belongs to one program. Its control side (entries, groups, profiles, replication lists, value sets)
//! changes by bundles of [`Update`]s, each applied whole or not at all ([`State::apply`]) under one generation number;
//! a bundle's [`Change`]s tell table structures and generated code what to follow. Its packet side ([`Arrays`], the
//! counts of entries and groups) is shared memory that packets change while they borrow the state.
//!
//! Actions may be defined at run time ([`State::define`]): equal ones share one number, so that a million flows with
//! the same list of actions, but for constants, are a million entries of one action.
//!
//! Invariants:
//! - every entry fits its table, every action call its action (`validate::entry`); so the interpreter never meets a
//!   wrong type;
//! - [`TableState`]'s two maps hold the same entries;
//! - numbers of entries and of defined actions are never reused.
//!
//! References from entries to members, groups and from groups to each other are not checked: control protocols differ
//! in whether they may dangle. A dangling reference does nothing.
//!
//! - `objects.rs`: entries, groups, profiles, replication lists;
//! - `arrays.rs`: counters, meters, registers; `pages.rs`: their memory; `meter.rs`: one meter; `liveness.rs`: watched groups;
//! - `update.rs`: updates, and how a bundle is applied and taken back.

mod arrays;
mod liveness;
mod meter;
mod objects;
mod pages;
mod update;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ir::{
    Action, ActionCall, ActionId, EntryResult, GroupTableId, KeyMatch, ProfileId, ReplicasId, TableId,
    ValueSetId,
};
use crate::validate::{Checked, Invalid, validate_action};

pub use arrays::{Arrays, RegisterGuard, SharedArrays, Stats};
pub use liveness::LiveGroups;
pub use meter::{Color, METER_WORDS, Meter, MeterCell, Rates, meter_words};
pub use objects::{
    Bucket, Choice, EntryStats, Expiry, Group, GroupKind, Installed, InstalledGroup, LookupCounts,
    ProfileState, Replica, Replication, TableState,
};
pub use update::{Bundle, Change, Savepoint, Transaction, Update, UpdateError, UpdateProblem};

/// Number of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

/// Tuples of conditions; `None` matches anything.
pub type Values = Vec<Vec<Option<KeyMatch>>>;

/// The state of a program.
#[derive(Debug)]
pub struct State {
    program: Checked,
    generation: u64,
    next_entry: u64,
    next_action: u32,
    actions: BTreeMap<ActionId, Arc<Action>>,
    /// Defined actions by what they are; their names are empty here.
    shapes: HashMap<Action, ActionId>,
    /// The one that was asked for last: entries are often added by the thousand with one, and its comparison is cheaper
    /// than its hash.
    recent: Option<ActionId>,
    tables: Vec<TableState>,
    profiles: Vec<ProfileState>,
    groups: Vec<BTreeMap<u32, Arc<InstalledGroup>>>,
    replicas: Vec<BTreeMap<u32, Replication>>,
    value_sets: Vec<Values>,
    arrays: Arc<Arrays>,
}

impl State {
    /// The state at a program's start: its own entries and defaults.
    pub fn new(program: Checked) -> Self {
        let mut state = Self {
            generation: 0,
            next_entry: 1,
            next_action: ActionId::at(program.actions.len()).0,
            actions: BTreeMap::new(),
            shapes: HashMap::new(),
            recent: None,
            tables: program.tables.iter().map(|_| TableState::default()).collect(),
            profiles: program.profiles.iter().map(|_| ProfileState::default()).collect(),
            groups: program.groups.iter().map(|_| BTreeMap::new()).collect(),
            replicas: program.replicas.iter().map(|_| BTreeMap::new()).collect(),
            value_sets: program.value_sets.iter().map(|_| Vec::new()).collect(),
            arrays: Arc::new(Arrays::new(&program)),
            program,
        };
        state.install_initial();
        state
    }

    /// The program.
    pub fn program(&self) -> &Checked {
        &self.program
    }

    /// Number of bundles applied.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A table.
    pub fn table(&self, id: TableId) -> Option<&TableState> {
        self.tables.get(id.index())
    }

    /// A profile.
    pub fn profile(&self, id: ProfileId) -> Option<&ProfileState> {
        self.profiles.get(id.index())
    }

    /// A group.
    pub fn group(&self, table: GroupTableId, id: u32) -> Option<&Arc<InstalledGroup>> {
        self.groups.get(table.index())?.get(&id)
    }

    /// All groups of a table.
    pub fn groups(&self, table: GroupTableId) -> impl Iterator<Item = (u32, &Arc<InstalledGroup>)> {
        self.groups.get(table.index()).into_iter().flatten().map(|(id, group)| (*id, group))
    }

    /// A replication list.
    pub fn replication(&self, list: ReplicasId, id: u32) -> Option<&Replication> {
        self.replicas.get(list.index())?.get(&id)
    }

    /// All replication lists of a table.
    pub fn replications(&self, list: ReplicasId) -> impl Iterator<Item = (u32, &Replication)> {
        self.replicas.get(list.index()).into_iter().flatten().map(|(id, list)| (*id, list))
    }

    /// The tuples of a value set.
    pub fn values(&self, set: ValueSetId) -> &[Vec<Option<KeyMatch>>] {
        self.value_sets.get(set.index()).map_or(&[], Vec::as_slice)
    }

    /// Counters, meters and registers. Generated code shares them.
    pub fn arrays(&self) -> &Arc<Arrays> {
        &self.arrays
    }

    /// An action, of the program or defined.
    pub fn action(&self, id: ActionId) -> Option<&Action> {
        self.program.actions.get(id.index()).or_else(|| self.actions.get(&id).map(Arc::as_ref))
    }

    /// A defined action by name; of several, the first.
    pub fn action_named(&self, name: &str) -> Option<ActionId> {
        self.actions.iter().find(|(_, action)| action.name == name).map(|(id, _)| *id)
    }

    /// Defines an action and returns its number; if an equal one exists (names do not count), that one's. It has no
    /// effect on packets until an entry, a default, a member or a bucket uses it.
    ///
    /// # Errors
    /// What is wrong with the action.
    pub fn define(&mut self, mut action: Action) -> Result<ActionId, Vec<Invalid>> {
        let is_equal = |known: &Action| (&known.params, &known.body) == (&action.params, &action.body);
        if let Some(id) = self.recent
            && self.actions.get(&id).is_some_and(|known| is_equal(known))
        {
            return Ok(id);
        }
        let name = std::mem::take(&mut action.name);
        if let Some(id) = self.shapes.get(&action) {
            self.recent = Some(*id);
            return Ok(*id);
        }
        let shape = action.clone();
        action.name = name;
        let errors = validate_action(&self.program, &action);
        if !errors.is_empty() {
            return Err(errors);
        }
        let id = ActionId(self.next_action);
        self.next_action = self.next_action.saturating_add(1);
        self.shapes.insert(shape, id);
        self.actions.insert(id, Arc::new(action));
        self.recent = Some(id);
        Ok(id)
    }

    /// Returns the number of defined actions.
    pub fn defined(&self) -> usize {
        self.actions.len()
    }

    /// Forgets the defined actions that nothing uses; returns their numbers. Walks the whole state.
    pub fn forget_unused(&mut self) -> Vec<ActionId> {
        let mut used = std::collections::HashSet::new();
        let mut uses = |call: &ActionCall| used.extend([call.action]);
        for table in &self.tables {
            table.default.iter().for_each(&mut uses);
            for installed in table.entries() {
                if let EntryResult::Action(call) = &installed.entry.result {
                    uses(call);
                }
            }
        }
        self.profiles.iter().flat_map(|profile| profile.members.values()).for_each(&mut uses);
        let groups = self.groups.iter().flat_map(BTreeMap::values);
        groups.flat_map(|group| &group.group.buckets).for_each(|bucket| uses(&bucket.call));
        let unused: Vec<_> = self.actions.keys().copied().filter(|id| !used.contains(id)).collect();
        self.actions.retain(|id, _| used.contains(id));
        self.shapes.retain(|_, id| used.contains(id));
        unused
    }

    /// Returns the entries that have expired at time `now`, nanoseconds. Walks all tables with timeouts.
    pub fn expired(&self, now: u64) -> Vec<(TableId, EntryId, Expiry)> {
        let mut expired = Vec::new();
        for (i, (schema, table)) in self.program.tables.iter().zip(&self.tables).enumerate() {
            if schema.timeouts {
                let of = |entry: &Arc<Installed>| Some((TableId::at(i), entry.id, entry.expired(now)?));
                expired.extend(table.entries().filter_map(of));
            }
        }
        expired
    }
}
