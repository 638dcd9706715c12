//! Groups, and selections by hash.

use pipeline::interp::Dropped;
use pipeline::ir::ProfileId;
use pipeline::state::{Bucket, GroupKind, LiveGroups};

use super::Machine;
use crate::code::Function;
use crate::flow;
use crate::view::{Call, GroupView, Outcome, Record, TableView};

impl<'a> Machine<'a> {
    /// The action call of an entry.
    #[inline]
    pub(super) fn resolve(&self, table: &TableView, record: &'a Record, depth: u64) -> Option<&'a Call> {
        match &record.outcome {
            Outcome::Call(call) => Some(call),
            Outcome::Member(member) => self.view.profiles.get(table.profile?.index())?.members.get(member),
            Outcome::Group(group) => self.resolve_group(table.profile?, *group, depth),
        }
    }

    /// The call of the member that a group of a profile selects.
    #[inline(never)]
    fn resolve_group(&self, profile: ProfileId, group: u32, depth: u64) -> Option<&'a Call> {
        self.code.program.profiles.get(profile.index())?.select.as_ref()?;
        let view: &'a crate::view::ProfileView = self.view.profiles.get(profile.index())?;
        let choices = view.groups.get(&group)?;
        let live = |watch: Option<u32>| watch.is_none_or(|port| self.env.borrow().is_live(port));
        let weights = choices.iter().map(|choice| if live(choice.watch) { choice.weight } else { 0 });
        let select = self.code.profile_selection(profile.index());
        let chosen = self.choose(select, weights, depth)?;
        view.members.get(&choices.get(chosen)?.member)
    }

    /// Chooses one of several alternatives by hash; `None` if all weights are 0.
    fn choose(
        &self,
        select: Option<Function>,
        weights: impl Iterator<Item = u32> + Clone,
        depth: u64,
    ) -> Option<usize> {
        let total: u64 = weights.clone().map(u64::from).sum();
        if total == 0 {
            return None;
        }
        let hash = self.execute(select?, std::ptr::null(), depth).cast_unsigned();
        let mut point = hash.checked_rem(total)?;
        weights.map(u64::from).position(|weight| match point.checked_sub(weight) {
            Some(rest) => {
                point = rest;
                false
            }
            None => true,
        })
    }

    /// Runs the buckets of a group, each on a copy.
    pub(super) fn group(&self, table: usize, id: u64, depth: u64) -> Result<(), Dropped> {
        let view: &'a crate::view::View = self.view;
        let groups = view.groups.get(table);
        let found = u32::try_from(id).ok().and_then(|id| groups?.get(id));
        let Some(found) = found else { return Ok(()) };
        let len = u64::from(self.scratch.pass.borrow().len);
        found.installed.stats.count(len);
        let buckets = &found.installed.group.buckets;
        let watching = match found.installed.group.kind {
            GroupKind::All | GroupKind::Indirect => &[],
            GroupKind::Failover | GroupKind::Select => buckets.as_slice(),
        };
        let port_is_live = |port: u32| self.env.borrow().is_live(port);
        let watched = |id: u32| groups?.get(id).map(|group| &group.installed.group);
        let groups = LiveGroups::watched_by(watching, watched, port_is_live);
        for _ in 0..groups.visited() {
            if let Some(reason) = self.step() {
                return Err(reason);
            }
        }
        let live = |bucket: &Bucket| groups.has(bucket, port_is_live);
        let chosen = match found.installed.group.kind {
            GroupKind::All => 0..buckets.len(),
            GroupKind::Indirect => 0..buckets.len().min(1),
            GroupKind::Failover => one(buckets.iter().position(live)),
            GroupKind::Select => {
                let weights = buckets.iter().map(|bucket| if live(bucket) { bucket.weight } else { 0 });
                one(self.choose(self.code.group_selection(table), weights, depth))
            }
        };
        chosen.into_iter().try_for_each(|i| self.bucket(found, i, len, depth))
    }

    fn bucket(&self, group: &GroupView, i: usize, len: u64, depth: u64) -> Result<(), Dropped> {
        let Some(call) = group.calls.get(i) else { return Ok(()) };
        if let Some(reason) = self.step() {
            return Err(reason);
        }
        group.installed.bucket_stats.get(i).iter().for_each(|stats| stats.count(len));
        let before = self.snapshot();
        let mut end = self.execute(call.code, call.args, depth);
        if let Some(block) = flow::goto(end) {
            end = self.block(block, depth);
        }
        self.restore(before);
        match flow::dropped(end) {
            Some(Dropped::Limit(limit)) => return Err(Dropped::Limit(limit)),
            // Only this bucket's copy is dropped.
            Some(reason) => self.drop_packet(reason),
            None => {}
        }
        Ok(())
    }
}

fn one(i: Option<usize>) -> std::ops::Range<usize> {
    i.map_or(0..0, |i| i..i + 1)
}
