//! What packets see of entries, groups and profiles, made of what the state has: for the control side.

use std::sync::Arc;

use pipeline::ir::{ActionCall, ActionId, EntryResult, ProfileId, TableId};
use pipeline::state::{Installed, InstalledGroup, State};

use crate::code::{ActionCode, Actions, Code, Owned};
use crate::compile::{Options, Unsupported, compile_action};
use crate::shortcut::Shortcut;
use crate::view::{Call, GroupView, Outcome, ProfileView, Record};

/// Places of actions among the addresses of actions in specialised code. That of an action which is forgotten is used
/// again: specialised code that has the former action there does not permit the new one.
#[derive(Debug)]
pub(crate) struct Slots {
    next: u32,
    free: Vec<u32>,
}

impl Slots {
    /// Behind the program's actions.
    pub(crate) fn new(own: usize) -> Self {
        Self { next: u32::try_from(own).unwrap_or(u32::MAX), free: vec![] }
    }

    /// A place that no action has.
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next = self.next.saturating_add(1);
            self.next - 1
        })
    }

    /// Takes the place of an action back.
    pub(crate) fn release(&mut self, place: u32) {
        self.free.push(place);
    }
}

/// Makes action calls; compiles the actions that have no code yet.
pub(crate) struct Calls<'a> {
    pub(crate) options: &'a Options,
    pub(crate) code: Arc<Code>,
    pub(crate) actions: Arc<Actions>,
    pub(crate) slots: &'a mut Slots,
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
        let code: Arc<ActionCode> =
            Arc::new(compile_action(&self.code, action, self.options, self.slots.take())?);
        let function = code.function().map(|function| (function, Some(code.clone())));
        let mut actions: Actions = (*self.actions).clone();
        actions.insert(id, code);
        self.actions = Arc::new(actions);
        Ok(function)
    }
}

pub(crate) fn record(
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
    Ok(Some(Record {
        outcome,
        shortcut: Shortcut::default(),
        stats: installed.stats.clone(),
        id: installed.id,
    }))
}

pub(crate) fn default(
    calls: &mut Calls<'_>,
    state: &State,
    id: TableId,
) -> Result<Option<Arc<Call>>, Unsupported> {
    match state.table(id).and_then(|table| table.default_action()) {
        Some(call) => Ok(calls.call(state, call)?.map(Arc::new)),
        None => Ok(None),
    }
}

pub(crate) fn profile_view(
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

pub(crate) fn group_view(
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
