//! What P4Runtime knows of entities and the pipeline does not.
//!
//! All of it changes in journals, so that updates can be taken back together with those of the pipeline's state.

use p4runtime_proto::v1::{
    ActionProfileActionSet, CloneSessionEntry, MulticastGroupEntry, TableAction, action_profile_group,
    digest_entry,
};
use pipeline::ir::{ProfileId, TableId};
use pipeline::state::EntryId;

use crate::journal::Journal;

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Entries that have more than their conditions and action.
    pub(crate) entries: Journal<EntryId, Details>,
    /// Defaults that have more than their action.
    pub(crate) defaults: Journal<TableId, Details>,
    /// Groups that controllers made.
    pub(crate) groups: Journal<(ProfileId, u32), Group>,
    /// Sum of the sizes of a profile's groups.
    pub(crate) group_sizes: Journal<ProfileId, u64>,
    /// Number of entries and groups that refer to a member or group.
    pub(crate) uses: Journal<(ProfileId, Part), u32>,
    /// Number of entries that brought groups along.
    pub(crate) one_shots: Journal<ProfileId, u32>,
    pub(crate) multicast: Journal<u32, MulticastGroupEntry>,
    /// Replicas of all multicast groups.
    pub(crate) replicas: Journal<(), u64>,
    pub(crate) clones: Journal<u32, CloneSessionEntry>,
    pub(crate) digests: Journal<u32, digest_entry::Config>,
    /// Last number of a member or group that an entry brought along.
    pub(crate) last_implicit: u32,
}

/// A part of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Member(u32),
    Group(u32),
}

/// What a controller gave an entry or default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    pub(crate) idle_timeout: u64,
    pub(crate) metadata: Vec<u8>,
    /// Only of defaults: entries keep theirs in the pipeline.
    pub(crate) controller_metadata: u64,
    pub(crate) one_shot: Option<Box<OneShot>>,
}

/// A group that an entry brought along.
#[derive(Debug, Clone)]
pub(crate) struct OneShot {
    pub(crate) group: u32,
    pub(crate) members: Vec<u32>,
    pub(crate) size: u64,
    /// As it is read.
    pub(crate) set: ActionProfileActionSet,
}

/// What a controller gave a group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) max_size: i32,
    pub(crate) size: u64,
    /// As they are read.
    pub(crate) members: Vec<action_profile_group::Member>,
}

/// A point to go back to.
#[derive(Debug)]
pub(crate) struct Mark([usize; 10]);

/// Calls a function of each journal.
macro_rules! each {
    ($book:ident, $journal:ident => $do:expr) => {
        [
            {
                let $journal = &mut $book.entries;
                $do
            },
            {
                let $journal = &mut $book.defaults;
                $do
            },
            {
                let $journal = &mut $book.groups;
                $do
            },
            {
                let $journal = &mut $book.group_sizes;
                $do
            },
            {
                let $journal = &mut $book.uses;
                $do
            },
            {
                let $journal = &mut $book.one_shots;
                $do
            },
            {
                let $journal = &mut $book.multicast;
                $do
            },
            {
                let $journal = &mut $book.replicas;
                $do
            },
            {
                let $journal = &mut $book.clones;
                $do
            },
            {
                let $journal = &mut $book.digests;
                $do
            },
        ]
    };
}

impl Book {
    /// The point reached.
    pub(crate) fn mark(&mut self) -> Mark {
        Mark(each!(self, journal => journal.mark()))
    }

    /// Takes back the changes since a point.
    pub(crate) fn go_back(&mut self, mark: &Mark) {
        let mut marks = mark.0.iter().copied();
        each!(self, journal => journal.go_back(marks.next().unwrap_or(0)));
    }

    /// Keeps all changes.
    pub(crate) fn keep(&mut self) {
        each!(self, journal => journal.keep());
    }

    /// Counts a use of a part of a profile, or that it ended.
    pub(crate) fn count_use(&mut self, profile: ProfileId, part: Part, begins: bool) {
        let before = self.uses.get(&(profile, part)).copied().unwrap_or(0);
        let after = if begins { before.saturating_add(1) } else { before.saturating_sub(1) };
        self.uses.set((profile, part), (after > 0).then_some(after));
    }
}

impl Details {
    /// Whether there is anything to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.idle_timeout == 0
            && self.metadata.is_empty()
            && self.controller_metadata == 0
            && self.one_shot.is_none()
    }
}

impl OneShot {
    /// The action of its entry, as it is read.
    pub(crate) fn action(&self) -> TableAction {
        let set = p4runtime_proto::v1::table_action::Type::ActionProfileActionSet(self.set.clone());
        TableAction { r#type: Some(set) }
    }
}
