//! Action profiles, multicast groups, clone sessions, value sets and digests.

use p4runtime_proto::v1::{
    ActionProfileGroup, ActionProfileMember, DigestEntry, PacketReplicationEngineEntry, ValueSetEntry,
    ValueSetMember, entity::Entity as Kind, packet_replication_engine_entry::Type as Replicated,
};
use pipeline::ir::Match;

use super::super::{action, matches};
use super::{End, Parts, Reader, chosen};
use crate::Failure;

impl Reader<'_> {
    pub(super) fn members(&self, wanted: &ActionProfileMember, parts: &mut Parts) -> Result<(), End> {
        let profiles = chosen(&self.schema.profiles, "action profile", wanted.action_profile_id)?;
        for (id, profile) in self.rest(profiles, |(id, _)| *id) {
            // Those that entries brought along are read with them.
            if self.book.one_shots.get(&profile.ir).is_some() {
                continue;
            }
            let Some(state) = self.state.profile(profile.ir) else { continue };
            let is_wanted = |member: u32| {
                wanted.action_profile_id == 0 || wanted.member_id == 0 || wanted.member_id == member
            };
            let is_unread = |member: u32| self.behind(id).is_none_or(|last| u64::from(member) > last);
            let members = state.members.iter().filter(|(id, _)| is_wanted(**id) && is_unread(**id));
            for (number, call) in members {
                let action = profile.action_of(call.action).map(|schema| action::write(schema, call));
                let member = ActionProfileMember { action_profile_id: id, member_id: *number, action };
                parts.add_at(Kind::ActionProfileMember(member), id, (*number).into())?;
            }
        }
        Ok(())
    }

    pub(super) fn groups(&self, wanted: &ActionProfileGroup, parts: &mut Parts) -> Result<(), End> {
        let profiles = chosen(&self.schema.profiles, "action profile", wanted.action_profile_id)?;
        for ((ir, group_id), group) in self.book.groups.iter() {
            let Some((id, _)) = profiles.iter().find(|(_, profile)| profile.ir == *ir) else { continue };
            if wanted.action_profile_id != 0 && wanted.group_id != 0 && wanted.group_id != *group_id {
                continue;
            }
            parts.add(Kind::ActionProfileGroup(ActionProfileGroup {
                action_profile_id: *id,
                group_id: *group_id,
                members: group.members.clone(),
                max_size: group.max_size,
            }));
        }
        Ok(())
    }

    pub(super) fn replication(
        &self,
        wanted: &PacketReplicationEngineEntry,
        parts: &mut Parts,
    ) -> Result<(), End> {
        let (group, session) = match &wanted.r#type {
            Some(Replicated::MulticastGroupEntry(group)) => (Some(group.multicast_group_id), None),
            Some(Replicated::CloneSessionEntry(session)) => (None, Some(session.session_id)),
            None => (Some(0), Some(0)),
        };
        let mut add = |entry: Replicated| {
            let entry = PacketReplicationEngineEntry { r#type: Some(entry) };
            parts.add(Kind::PacketReplicationEngineEntry(entry));
        };
        let fits = |wanted: Option<u32>, id: u32| wanted.is_some_and(|wanted| wanted == 0 || wanted == id);
        for (_, entry) in self.book.multicast.iter().filter(|(id, _)| fits(group, **id)) {
            add(Replicated::MulticastGroupEntry(entry.clone()));
        }
        for (_, entry) in self.book.clones.iter().filter(|(id, _)| fits(session, **id)) {
            add(Replicated::CloneSessionEntry(entry.clone()));
        }
        Ok(())
    }

    pub(super) fn value_sets(&self, wanted: &ValueSetEntry, parts: &mut Parts) -> Result<(), End> {
        for (id, set) in chosen(&self.schema.value_sets, "value set", wanted.value_set_id)? {
            let member = |tuple: &Vec<Option<pipeline::ir::KeyMatch>>| {
                let conditions = (0..).zip(tuple);
                let conditions: Vec<_> =
                    conditions.filter_map(|(key, is)| Some(Match { key, is: is.clone()? })).collect();
                ValueSetMember { r#match: matches::write(&set.fields, &conditions) }
            };
            let members = self.state.values(set.ir).iter().map(member).collect();
            parts.add(Kind::ValueSetEntry(ValueSetEntry { value_set_id: id, members }));
        }
        Ok(())
    }

    pub(super) fn digests(&self, wanted: &DigestEntry, parts: &mut Parts) -> Result<(), End> {
        let digests = chosen(&self.schema.digests, "digest", wanted.digest_id)?;
        for (id, _) in digests {
            match self.book.digests.get(&id) {
                Some(config) => {
                    let entry = DigestEntry { digest_id: id, config: Some(*config) };
                    parts.add(Kind::DigestEntry(entry));
                }
                None if wanted.digest_id != 0 => {
                    return Err(
                        Failure::not_found(format!("digest {id} is not enabled: insert its entry")).into()
                    );
                }
                None => {}
            }
        }
        Ok(())
    }
}
