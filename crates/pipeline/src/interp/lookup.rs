//! Tables, selections and groups.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use super::pass::Pass;
use super::{Dropped, Event, Flow, Machine};
use crate::bits::Bits;
use crate::hash::hash;
use crate::ir::{
    ActionCall, Applied, Constant, EntryResult, GroupTableId, KeyMatch, ProfileId, Selection, Table, TableId,
};
use crate::state::{Bucket, GroupKind, Installed, LiveGroups};

impl Machine<'_> {
    /// Looks a table up, runs what it finds, then the branch for it.
    pub(super) fn apply(&mut self, id: TableId, applied: &Applied, pass: &mut Pass) -> Flow {
        let (state, program) = (self.state, self.program);
        let (Some(schema), Some(table)) = (program.tables.get(id.index()), state.table(id)) else {
            return Flow::Next;
        };
        let keys: Vec<_> = schema.keys.iter().map(|key| self.eval(&key.value, pass, &[])).collect();
        let found = find(table.entries().map(AsRef::as_ref), &keys);
        if !self.mode.rehearsal {
            table.counts.add(1, 0);
        }
        self.event(|| Event::Lookup(id, keys, found.map(|entry| entry.id)));
        if let Some(entry) = found.filter(|_| !self.mode.rehearsal) {
            table.counts.add(0, 1);
            self.count_hit(schema, entry, pass);
        }
        let hit = found.map(|entry| entry.id);
        pass.origin = Some((id, hit));
        pass.hits.retain(|(table, _)| *table != id);
        pass.hits.push((id, hit));
        let call = match found.map(|entry| &entry.entry.result) {
            None => table.default_action().cloned(),
            Some(EntryResult::Action(call)) => Some(call.clone()),
            Some(EntryResult::Member(member)) => self.member(schema.profile, *member),
            Some(EntryResult::Group(group)) => self.choose_member(schema.profile, *group, pass),
        };
        if let Some(call) = &call {
            match self.action(call.action, &call.args, pass) {
                Flow::Next => {}
                flow => return flow,
            }
        }
        match self.body(if found.is_some() { &applied.hit } else { &applied.miss }, pass, &[]) {
            Flow::Next => {}
            flow => return flow,
        }
        let branch = applied
            .actions
            .iter()
            .find(|(action, _)| call.as_ref().is_some_and(|call| call.action == *action));
        self.body(branch.map_or(&applied.other, |(_, body)| body), pass, &[])
    }

    fn count_hit(&mut self, schema: &Table, entry: &Installed, pass: &Pass) {
        if schema.counter.is_some() {
            entry.stats.add(1, pass.len.into());
        }
        if schema.timeouts {
            let now = self.env.now();
            entry.stats.last_hit.store(now, Relaxed);
        }
    }

    fn member(&self, profile: Option<ProfileId>, member: u32) -> Option<ActionCall> {
        self.state.profile(profile?)?.members.get(&member).cloned()
    }

    fn choose_member(
        &mut self,
        profile: Option<ProfileId>,
        group: u32,
        pass: &mut Pass,
    ) -> Option<ActionCall> {
        let (program, state) = (self.program, self.state);
        let select = program.profiles.get(profile?.index())?.select.as_ref()?;
        let choices = state.profile(profile?)?.groups.get(&group)?;
        let live = |watch: Option<u32>| watch.is_none_or(|port| self.env.is_live(port));
        let weights: Vec<u32> = choices.iter().map(|c| if live(c.watch) { c.weight } else { 0 }).collect();
        let chosen = self.choose(select, &weights, pass)?;
        self.member(profile, choices.get(chosen)?.member)
    }

    /// Chooses one of several alternatives by hash; `None` if all weights are 0.
    fn choose(&self, select: &Selection, weights: &[u32], pass: &mut Pass) -> Option<usize> {
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut point = hash(select.hash, &self.list(&select.input, pass, &[])).checked_rem(total)?;
        weights.iter().position(|weight| match point.checked_sub((*weight).into()) {
            Some(rest) => {
                point = rest;
                false
            }
            None => true,
        })
    }

    /// Runs the buckets of a group, each on a copy.
    pub(super) fn group(&mut self, table: GroupTableId, id: u64, pass: &mut Pass) -> Flow {
        let (program, state) = (self.program, self.state);
        let found = u32::try_from(id).ok().and_then(|id| state.group(table, id));
        let (Some(installed), Some(schema)) = (found, program.groups.get(table.index())) else {
            return Flow::Next;
        };
        if !self.mode.rehearsal {
            installed.stats.count(pass.len.into());
        }
        let group = &installed.group;
        let watching = match group.kind {
            GroupKind::All | GroupKind::Indirect => &[],
            GroupKind::Failover | GroupKind::Select => group.buckets.as_slice(),
        };
        let port_is_live = |port: u32| self.env.is_live(port);
        let watched = |id: u32| state.group(table, id).map(|installed| &installed.group);
        let groups = LiveGroups::watched_by(watching, watched, port_is_live);
        for _ in 0..groups.visited() {
            if let Some(reason) = self.step() {
                return Flow::Drop(reason);
            }
        }
        let live = |bucket: &Bucket| groups.has(bucket, |port| self.env.is_live(port));
        let chosen: Vec<usize> = match group.kind {
            GroupKind::All => (0..group.buckets.len()).collect(),
            GroupKind::Indirect => (0..group.buckets.len().min(1)).collect(),
            GroupKind::Failover => group.buckets.iter().position(live).into_iter().collect(),
            GroupKind::Select => {
                let weight = |bucket: &Bucket| if live(bucket) { bucket.weight } else { 0 };
                let weights: Vec<u32> = group.buckets.iter().map(weight).collect();
                self.choose(&schema.select, &weights, pass).into_iter().collect()
            }
        };
        for i in chosen {
            let Some(bucket) = group.buckets.get(i) else { continue };
            if let Some(reason) = self.step() {
                return Flow::Drop(reason);
            }
            self.event(|| Event::Bucket(table, id as u32, i));
            if !self.mode.rehearsal {
                installed.bucket_stats.get(i).iter().for_each(|stats| stats.count(pass.len.into()));
            }
            let before = pass.data.clone();
            self.groups += 1;
            let mut flow = self.action(bucket.call.action, &bucket.call.args, pass);
            if let Flow::Goto(block) = flow {
                flow = self.block(block, pass);
            }
            pass.data = before;
            self.groups -= 1;
            match flow {
                Flow::Drop(Dropped::Limit(limit)) => return Flow::Drop(Dropped::Limit(limit)),
                // Only this bucket's copy is dropped.
                Flow::Drop(reason) => self.drop_packet(pass, reason),
                _ => {}
            }
            if self.is_over() {
                return Flow::Exit;
            }
        }
        Flow::Next
    }
}

/// Finds the entry that is hit: of those that match, the one with the highest priority, then with the longest prefix,
/// then the oldest.
pub(super) fn find<'e>(
    entries: impl Iterator<Item = &'e Installed>,
    keys: &[Constant],
) -> Option<&'e Installed> {
    let matches = |entry: &Installed| {
        entry.entry.matches.iter().all(|condition| {
            keys.get(condition.key as usize).is_some_and(|key| condition.is.contains(&key.value))
        })
    };
    let prefix = |entry: &Installed| {
        let lengths = entry.entry.matches.iter().map(|condition| match condition.is {
            KeyMatch::Prefix(_, len) => len,
            _ => 0,
        });
        lengths.max().unwrap_or(0)
    };
    let rank = |entry: &&Installed| (entry.entry.priority, prefix(entry), Reverse(entry.id));
    entries.filter(|entry| matches(entry)).max_by_key(rank)
}

/// Whether a tuple of values is in a value set's tuple of conditions.
pub(super) fn contains(conditions: &[Option<KeyMatch>], values: &[Bits]) -> bool {
    conditions.len() == values.len()
        && conditions.iter().zip(values).all(|(is, value)| is.as_ref().is_none_or(|is| is.contains(value)))
}
