//! What packets see: code, tables, groups, and so on, as one bundle of updates left them.
//!
//! A view is immutable but for table structures that accept single changes in place; whoever holds one sees each bundle
//! of several changes whole or not at all. Workers load the current view once per batch ([`Views::load`]).
//!
//! Invariants: addresses that generated code gets from a view (calls, records) are valid as long as the view is held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, Guard};
use pipeline::ir::{ActionCall, ProfileId};
use pipeline::state::{
    Arrays, Choice, EntryId, EntryStats, InstalledGroup, LookupCounts, Replication, Values,
};
use tables::Held;

use crate::code::{ActionCode, Actions, Code, Function, new_id};
use crate::form::Reader;
use crate::shards::Shards;
use crate::shortcut::Shortcut;
use crate::special::Special;

/// An action with its arguments, as generated code calls it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Call {
    /// Code of the action.
    pub(crate) code: Function,
    /// Its arguments: the limbs of all parameters, one after the other.
    pub(crate) args: *const u64,
    /// Its number.
    pub(crate) action: u64,
    /// Its place among the addresses of actions in specialised code.
    pub(crate) slot: u64,
    _args: Box<[u64]>,
    /// Keeps the code of an action that was defined at run time, whatever view leads here.
    _owner: Option<Arc<ActionCode>>,
}

// SAFETY: `args` is the address of `_args`, which nobody writes to.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

impl Call {
    /// Lays out the arguments of a call whose action has this code, of a program or of `owner`. The state has checked
    /// their types.
    pub(crate) fn new(code: Function, owner: Option<Arc<ActionCode>>, call: &ActionCall) -> Self {
        let args: Box<[u64]> = call.args.iter().flat_map(|arg| arg.value.limbs().iter().copied()).collect();
        let slot = owner.as_ref().map_or(call.action.0, |owner| owner.slot);
        let (action, slot) = (call.action.0.into(), slot.into());
        Self { code, args: args.as_ptr(), action, slot, _args: args, _owner: owner }
    }
}

/// An entry of a table, as packets see it: what they need of it is in the two cache lines of its slot
/// ([`crate::form`]), and its arguments.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) outcome: Outcome,
    pub(crate) shortcut: Shortcut,
    /// Those of the entry, without a detour.
    pub(crate) stats: Arc<EntryStats>,
    pub(crate) id: EntryId,
}

impl Record {
    /// Prefetches what a hit needs besides the record, and what it changes if it is `noted` (counted or timed).
    pub(crate) fn prefetch_rest(&self, noted: bool) {
        if noted {
            tables::prefetch(self.stats.own());
        }
        if let Outcome::Call(call) = &self.outcome {
            call._args.first().into_iter().for_each(tables::prefetch);
        }
    }
}

/// What an entry does.
#[derive(Debug)]
pub(crate) enum Outcome {
    Call(Call),
    Member(u32),
    Group(u32),
}

/// A table.
#[derive(Debug)]
pub(crate) struct TableView {
    pub(crate) reader: Arc<Reader>,
    pub(crate) default: Option<Arc<Call>>,
    pub(crate) counts: Arc<LookupCounts>,
    /// Whether hits are counted.
    pub(crate) counted: bool,
    /// Whether hits are timed.
    pub(crate) timed: bool,
    pub(crate) profile: Option<ProfileId>,
    /// Words of a key of all of the table's keys.
    pub(crate) words: usize,
}

impl TableView {
    pub(crate) fn with_reader(&self, reader: Reader) -> Self {
        Self { reader: Arc::new(reader), counts: self.counts.clone(), default: self.default.clone(), ..*self }
    }

    pub(crate) fn with_default(&self, default: Option<Arc<Call>>) -> Self {
        Self { reader: self.reader.clone(), counts: self.counts.clone(), default, ..*self }
    }

    /// The entry that a key of all of the table's keys hits.
    pub(crate) fn find(&self, held: &mut Held, key: &[u64]) -> Option<&Record> {
        self.reader.find_wide(held, key)
    }

    /// The action after a miss.
    pub(crate) fn default_call(&self) -> *const Call {
        self.default.as_deref().map_or(std::ptr::null(), std::ptr::from_ref)
    }
}

/// Members and groups of a profile.
#[derive(Debug, Default)]
pub(crate) struct ProfileView {
    pub(crate) members: BTreeMap<u32, Call>,
    pub(crate) groups: BTreeMap<u32, Vec<Choice>>,
}

/// A group with the calls of its buckets.
#[derive(Debug)]
pub(crate) struct GroupView {
    pub(crate) installed: Arc<InstalledGroup>,
    pub(crate) calls: Vec<Call>,
}

/// What packets see. Only the control side copies it: it frees records by counting the references to each view.
#[derive(Debug)]
pub struct View {
    /// Tells the view from any other.
    pub(crate) id: u64,
    /// Changes that were made in place, under whatever view.
    pub(crate) changes: Arc<AtomicU64>,
    pub(crate) code: Arc<Code>,
    /// Code for the entries that are there.
    pub(crate) special: Option<Arc<Special>>,
    /// Kept for the addresses in calls.
    pub(crate) actions: Arc<Actions>,
    pub(crate) tables: Vec<Arc<TableView>>,
    pub(crate) profiles: Vec<Arc<ProfileView>>,
    pub(crate) groups: Vec<Arc<Shards<Arc<GroupView>>>>,
    pub(crate) replicas: Vec<Arc<Shards<Arc<Replication>>>>,
    pub(crate) values: Vec<Arc<Values>>,
    pub(crate) arrays: Arc<Arrays>,
}

impl View {
    /// A copy, for the control side: another view.
    pub(crate) fn copy(&self) -> Self {
        Self {
            id: new_id(),
            changes: self.changes.clone(),
            code: self.code.clone(),
            special: self.special.clone(),
            actions: self.actions.clone(),
            tables: self.tables.clone(),
            profiles: self.profiles.clone(),
            groups: self.groups.clone(),
            replicas: self.replicas.clone(),
            values: self.values.clone(),
            arrays: self.arrays.clone(),
        }
    }
}

/// Gives workers the current view.
#[derive(Debug, Clone)]
pub struct Views(pub(crate) Arc<ArcSwap<View>>);

impl Views {
    /// Returns the current view: wait-free, and held for one batch.
    pub fn load(&self) -> Guard<Arc<View>> {
        self.0.load()
    }
}
