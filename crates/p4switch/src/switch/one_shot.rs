//! Groups that entries bring along: sets of actions.
//!
//! An entry's set becomes members and a group of the profile, which go with the entry. Controllers do not see them:
//! they read the set. A profile has either such groups or those that controllers make.
#![allow(deprecated)] // Older controllers write `watch`.

use p4runtime_proto::v1::{
    ActionProfileActionSet, action_profile_action::WatchKind, action_profile_action_set::SizeSemantics,
};
use pipeline::ir::ProfileId;
use pipeline::state::{Choice, Update as Step};

use super::action::{self, Place};
use super::book::OneShot;
use super::profile::{canonical_port, size, watched, watched_port, weight};
use super::work::{Work, refusal};
use crate::Failure;
use crate::schema::Profile;

impl Work<'_> {
    /// Makes the members and the group of an entry's set.
    pub(super) fn add_one_shot(
        &mut self,
        profile: &Profile,
        set: &ActionProfileActionSet,
    ) -> Result<OneShot, Failure> {
        check_modes(profile, set)?;
        let others = self.book.one_shots.get(&profile.ir).copied().unwrap_or(0);
        let state = self.state.profile(profile.ir);
        if others == 0 && state.is_some_and(|state| !state.members.is_empty() || !state.groups.is_empty()) {
            return Err(Failure::invalid(
                "it has members or groups, which exclude entries with sets of actions (one-shot)",
            ));
        }
        let mut weights = Vec::with_capacity(set.action_profile_actions.len());
        let mut members = Vec::with_capacity(set.action_profile_actions.len());
        let mut choices = Vec::with_capacity(set.action_profile_actions.len());
        let mut kept = set.clone();
        for (given, kept) in set.action_profile_actions.iter().zip(&mut kept.action_profile_actions) {
            let action =
                given.action.as_ref().ok_or_else(|| Failure::invalid("a set's action is missing"))?;
            let call = action::read(&profile.actions, action, Place::Entry)?;
            if let Some(schema) = profile.action_of(call.action) {
                kept.action = Some(action::write(schema, &call));
            }
            let weight = weight(profile, given.weight)?;
            let watch = match &given.watch_kind {
                None => None,
                Some(WatchKind::Watch(port)) => watched(*port),
                Some(WatchKind::WatchPort(port)) => {
                    kept.watch_kind = (!port.is_empty()).then(|| WatchKind::WatchPort(canonical_port(port)));
                    watched_port(port)?
                }
            };
            let member = self.free_number(profile.ir);
            self.change(Step::Member(profile.ir, member, Some(call))).map_err(refusal)?;
            weights.push(weight);
            members.push(member);
            choices.push(Choice { member, weight, watch });
        }
        let size = size(profile, weights.into_iter());
        if profile.max_group_size > 0 && size > profile.max_group_size {
            return Err(Failure::invalid(format!(
                "the set's size is {size} (at most {})",
                profile.max_group_size
            )));
        }
        let group = self.free_number(profile.ir);
        self.change(Step::Selection(profile.ir, group, Some(choices))).map_err(refusal)?;
        self.resize(profile, 0, size)?;
        self.book.one_shots.set(profile.ir, Some(others.saturating_add(1)));
        Ok(OneShot { group, members, size, set: kept })
    }

    /// Removes the members and the group of an entry's set.
    pub(super) fn remove_one_shot(&mut self, profile: &Profile, one_shot: &OneShot) {
        // They exist: nothing else removes them.
        let _ = self.change(Step::Selection(profile.ir, one_shot.group, None));
        for member in &one_shot.members {
            let _ = self.change(Step::Member(profile.ir, *member, None));
        }
        let _ = self.resize(profile, one_shot.size, 0);
        let others = self.book.one_shots.get(&profile.ir).copied().unwrap_or(0).saturating_sub(1);
        self.book.one_shots.set(profile.ir, (others > 0).then_some(others));
    }

    /// A number that no member and no group has.
    fn free_number(&mut self, profile: ProfileId) -> u32 {
        loop {
            self.book.last_implicit = self.book.last_implicit.wrapping_add(1).max(1);
            let number = self.book.last_implicit;
            let is_taken = self.state.profile(profile).is_some_and(|state| {
                state.members.contains_key(&number) || state.groups.contains_key(&number)
            });
            if !is_taken {
                return number;
            }
        }
    }
}

/// A set may name the modes that the selector has anyway.
fn check_modes(profile: &Profile, set: &ActionProfileActionSet) -> Result<(), Failure> {
    use p4runtime_proto::v1::action_profile_action_set::ActionSelectionMode as Mode;
    let mode_fits = matches!(
        Mode::try_from(set.action_selection_mode),
        Ok(Mode::DefaultModeDeterminedByActionSelector | Mode::Hash)
    );
    let size_fits = match SizeSemantics::try_from(set.size_semantics) {
        Ok(SizeSemantics::DefaultSizeDeterminedByActionSelector) => true,
        Ok(SizeSemantics::SumOfWeights) => !profile.counts_members,
        Ok(SizeSemantics::SumOfMembers) => profile.counts_members,
        Err(_) => false,
    };
    match mode_fits && size_fits {
        true => Ok(()),
        false => Err(Failure::unimplemented(
            "a set cannot change how its selector selects (by hash) or what its size means: leave the modes out",
        )),
    }
}
