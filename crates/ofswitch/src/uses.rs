//! Groups and meters, and the flows and groups that refer to them.
//!
//! Found by object, so that deletions and statistics cost what refers to one, however many flows there are.

use std::collections::BTreeSet;

use crate::journal::Journaled;

/// What flows and groups refer to, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Group(u32),
    Meter(u32),
}

/// What refers to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    /// The flow of a table that has this number.
    Flow(u8, u64),
    Group(u32),
}

impl User {
    const FIRST: Self = Self::Flow(0, 0);
    const FIRST_GROUP: Self = Self::Group(0);
    const LAST: Self = Self::Group(u32::MAX);
}

/// References from users to objects.
#[derive(Debug, Default)]
pub(crate) struct Uses(pub(crate) Journaled<(Object, User), ()>);

impl Uses {
    /// Says that a user refers to these objects, and to no others any more.
    pub(crate) fn change(&mut self, user: User, before: &BTreeSet<Object>, after: &BTreeSet<Object>) {
        for object in before.difference(after) {
            self.0.remove(&(*object, user));
        }
        for object in after.difference(before) {
            self.0.insert((*object, user), ());
        }
    }

    /// Groups that refer to an object.
    pub(crate) fn groups(&self, object: Object) -> impl Iterator<Item = u32> {
        let users = self.0.range((object, User::FIRST_GROUP)..=(object, User::LAST));
        users.filter_map(|((_, user), ())| match user {
            User::Group(group) => Some(*group),
            User::Flow(..) => None,
        })
    }

    /// What refers to an object: flows in the order of their tables and numbers, then groups.
    pub(crate) fn of(&self, object: Object) -> impl Iterator<Item = User> {
        self.0.range((object, User::FIRST)..=(object, User::LAST)).map(|((_, user), ())| *user)
    }
}
