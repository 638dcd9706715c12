//! Members and groups of action profiles.
#![allow(deprecated)] // Older controllers write `watch`.

use std::collections::HashSet;

use p4runtime_proto::v1::{
    ActionProfileGroup, ActionProfileMember, action_profile_group::Member,
    action_profile_group::member::WatchKind, update::Type as Kind,
};
use pipeline::state::{Choice, Update as Step};

use super::action::{self, Place};
use super::book::{Group, Part};
use super::work::{MOST_ENTRIES, Work, refusal};
use crate::schema::{Profile, Schema};
use crate::{Code, Failure, bytestring};

/// A profile by its id.
pub(super) fn profile(schema: &Schema, id: u32) -> Result<&Profile, Failure> {
    match schema.profiles.get(&id) {
        Some(profile) => Ok(profile),
        None if id == 0 => Err(Failure::invalid("the action profile's id is missing")),
        None => Err(Failure::not_found(format!("the program has no action profile {id} ({id:#010x})"))),
    }
}

impl Work<'_> {
    pub(super) fn member(&mut self, kind: Kind, member: &ActionProfileMember) -> Result<(), Failure> {
        let profile = profile(self.schema, member.action_profile_id)?;
        self.change_member(kind, profile, member).map_err(|failure| {
            failure.at(format_args!("action profile {}, member {}", profile.name, member.member_id))
        })
    }

    fn change_member(
        &mut self,
        kind: Kind,
        profile: &Profile,
        member: &ActionProfileMember,
    ) -> Result<(), Failure> {
        let id = member.member_id;
        self.without_one_shots(profile)?;
        let state = self.state.profile(profile.ir);
        let exists = state.is_some_and(|state| state.members.contains_key(&id));
        check_existence(kind, exists)?;
        if !exists && state.is_some_and(|state| state.members.len() >= MOST_ENTRIES) {
            return Err(Failure::exhausted(format!("it has {MOST_ENTRIES} members and takes no more")));
        }
        if kind == Kind::Delete {
            self.unused(profile, Part::Member(id))?;
            self.change(Step::Member(profile.ir, id, None)).map_err(refusal)?;
            return Ok(());
        }
        let action = member.action.as_ref().ok_or_else(|| Failure::invalid("it has no action"))?;
        let call = action::read(&profile.actions, action, Place::Entry)?;
        self.change(Step::Member(profile.ir, id, Some(call))).map_err(refusal)?;
        Ok(())
    }

    pub(super) fn group(&mut self, kind: Kind, group: &ActionProfileGroup) -> Result<(), Failure> {
        let profile = profile(self.schema, group.action_profile_id)?;
        self.change_group(kind, profile, group).map_err(|failure| {
            failure.at(format_args!("action profile {}, group {}", profile.name, group.group_id))
        })
    }

    fn change_group(
        &mut self,
        kind: Kind,
        profile: &Profile,
        group: &ActionProfileGroup,
    ) -> Result<(), Failure> {
        let id = group.group_id;
        if !profile.selector {
            return Err(Failure::invalid("the action profile has no selector, and so no groups"));
        }
        if id == 0 {
            return Err(Failure::invalid("a group's id is not 0"));
        }
        self.without_one_shots(profile)?;
        let before = self.book.groups.get(&(profile.ir, id)).cloned();
        check_existence(kind, before.is_some())?;
        if kind == Kind::Delete {
            self.unused(profile, Part::Group(id))?;
        }
        for member in before.iter().flat_map(|before| &before.members) {
            self.book.count_use(profile.ir, Part::Member(member.member_id), false);
        }
        let size_before = before.as_ref().map_or(0, |before| before.size);
        if kind == Kind::Delete {
            self.change(Step::Selection(profile.ir, id, None)).map_err(refusal)?;
            self.book.groups.set((profile.ir, id), None);
            return self.resize(profile, size_before, 0);
        }
        if let Some(before) = before.filter(|before| before.max_size != group.max_size) {
            return Err(Failure::invalid(format!(
                "its max_size is {} and cannot change (found {})",
                before.max_size, group.max_size
            )));
        }
        let choices = self.choices(profile, &group.members)?;
        let size = size(profile, choices.iter().map(|choice| choice.weight));
        check_max_size(profile, group.max_size, size)?;
        self.change(Step::Selection(profile.ir, id, Some(choices))).map_err(refusal)?;
        for member in &group.members {
            self.book.count_use(profile.ir, Part::Member(member.member_id), true);
        }
        let members = group.members.iter().map(canonical).collect();
        let kept = Group { max_size: group.max_size, size, members };
        self.book.groups.set((profile.ir, id), Some(kept));
        self.resize(profile, size_before, size)
    }

    fn choices(&self, profile: &Profile, members: &[Member]) -> Result<Vec<Choice>, Failure> {
        let mut seen = HashSet::with_capacity(members.len());
        let state = self.state.profile(profile.ir);
        let choice = |member: &Member| {
            let id = member.member_id;
            if !seen.insert(id) {
                return Err(Failure::invalid(format!(
                    "member {id} is listed twice: give it a larger weight"
                )));
            }
            if !state.is_some_and(|state| state.members.contains_key(&id)) {
                return Err(Failure::not_found(format!("the action profile has no member {id}")));
            }
            let weight = weight(profile, member.weight).map_err(|f| f.at(format_args!("member {id}")))?;
            let watch = match &member.watch_kind {
                None => None,
                Some(WatchKind::Watch(port)) => watched(*port),
                Some(WatchKind::WatchPort(port)) => watched_port(port)?,
            };
            Ok(Choice { member: id, weight, watch })
        };
        members.iter().map(choice).collect()
    }

    /// Entries with sets of actions exclude members and groups that controllers make.
    fn without_one_shots(&self, profile: &Profile) -> Result<(), Failure> {
        match self.book.one_shots.get(&profile.ir) {
            None => Ok(()),
            Some(count) => Err(Failure::invalid(format!(
                "entries with sets of actions (one-shot), of which there are {count}, exclude members and groups"
            ))),
        }
    }

    fn unused(&self, profile: &Profile, part: Part) -> Result<(), Failure> {
        match self.book.uses.get(&(profile.ir, part)) {
            None => Ok(()),
            Some(uses) => Err(Failure::new(
                Code::FailedPrecondition,
                format!("entries or groups refer to it ({uses}): change or delete them first"),
            )),
        }
    }

    /// Notes that the size of a group changed.
    pub(super) fn resize(&mut self, profile: &Profile, before: u64, after: u64) -> Result<(), Failure> {
        let all = self.book.group_sizes.get(&profile.ir).copied().unwrap_or(0);
        let all = all.saturating_sub(before).saturating_add(after);
        if after > before && profile.size > 0 && all > profile.size {
            return Err(Failure::exhausted(format!(
                "the sizes of all groups would add up to {all}, and the selector's size is {}",
                profile.size
            )));
        }
        self.book.group_sizes.set(profile.ir, (all > 0).then_some(all));
        Ok(())
    }
}

/// Whether an insertion, modification or deletion finds what it needs.
pub(super) fn check_existence(kind: Kind, exists: bool) -> Result<(), Failure> {
    match (kind, exists) {
        (Kind::Insert, true) => Err(Failure::new(Code::AlreadyExists, "it exists: modify it")),
        (Kind::Modify | Kind::Delete, false) => Err(Failure::not_found("it does not exist")),
        _ => Ok(()),
    }
}

/// A member's weight in a group.
pub(super) fn weight(profile: &Profile, given: i32) -> Result<u32, Failure> {
    if profile.no_weights {
        return match given {
            0 => Ok(1),
            _ => Err(Failure::invalid(format!("the weight is {given} (expected 0: there are no weights)"))),
        };
    }
    let weight = u32::try_from(given).ok().filter(|weight| *weight > 0);
    let weight =
        weight.ok_or_else(|| Failure::invalid(format!("the weight is {given} (expected 1 or more)")))?;
    if profile.max_weight > 0 && u64::from(weight) > profile.max_weight {
        return Err(Failure::invalid(format!("the weight is {weight} (at most {})", profile.max_weight)));
    }
    Ok(weight)
}

/// The size of a group whose members have these weights.
pub(super) fn size(profile: &Profile, weights: impl ExactSizeIterator<Item = u32>) -> u64 {
    match profile.counts_members {
        true => weights.len() as u64,
        false => weights.map(u64::from).sum(),
    }
}

/// A port that was watched by number.
pub(super) fn watched(port: i32) -> Option<u32> {
    u32::try_from(port).ok().filter(|port| *port > 0)
}

/// A port that is watched; no bytes: none.
pub(super) fn watched_port(port: &[u8]) -> Result<Option<u32>, Failure> {
    match port {
        [] => Ok(None),
        port => bytestring::small(port).map(Some).map_err(|failure| failure.at("watch_port")),
    }
}

/// Port bytes in their shortest form.
pub(super) fn canonical_port(port: &[u8]) -> Vec<u8> {
    match bytestring::small(port) {
        Ok(port) => bytestring::of_number(port.into()),
        Err(_) => port.to_vec(),
    }
}

fn canonical(member: &Member) -> Member {
    let watch_kind = match &member.watch_kind {
        Some(WatchKind::WatchPort(port)) if port.is_empty() => None,
        Some(WatchKind::WatchPort(port)) => Some(WatchKind::WatchPort(canonical_port(port))),
        other => other.clone(),
    };
    Member { watch_kind, ..member.clone() }
}

fn check_max_size(profile: &Profile, given: i32, size: u64) -> Result<(), Failure> {
    let max_size =
        u64::try_from(given).map_err(|_| Failure::invalid(format!("its max_size is negative ({given})")))?;
    let most = profile.max_group_size;
    if most > 0 && !(1..=most).contains(&max_size) {
        return Err(Failure::invalid(format!("its max_size is {max_size} (expected 1 to {most})")));
    }
    if max_size > 0 && size > max_size {
        return Err(Failure::exhausted(format!("its size is {size}, and its max_size {max_size}")));
    }
    Ok(())
}
