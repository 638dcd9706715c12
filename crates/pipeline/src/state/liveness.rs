//! Liveness of watched groups: a group is live if one of its buckets is, a bucket if what it watches is.
//!
//! One query visits each group once, whatever the groups watch: groups that watch only each other are not live.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bucket, Group};

/// The live ones of the groups that some buckets watch.
#[derive(Debug, Default)]
pub struct LiveGroups {
    live: BTreeSet<u32>,
    visited: usize,
}

impl LiveGroups {
    /// Visits the groups that `buckets` watch, directly or through other groups. `group` finds a group by its number,
    /// `port_is_live` says whether a port is live.
    pub fn watched_by<'s>(
        buckets: &[Bucket],
        group: impl Fn(u32) -> Option<&'s Group>,
        port_is_live: impl Fn(u32) -> bool,
    ) -> Self {
        let mut todo: Vec<u32> = buckets.iter().filter_map(|bucket| bucket.watch_group).collect();
        // Groups by a group that they watch through a live port.
        let mut watchers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        while let Some(id) = todo.pop() {
            if !seen.insert(id) {
                continue;
            }
            for bucket in group(id).iter().flat_map(|group| &group.buckets) {
                if !bucket.watch_port.is_none_or(&port_is_live) {
                    continue;
                }
                let Some(watched) = bucket.watch_group else {
                    found.push(id);
                    break;
                };
                watchers.entry(watched).or_default().push(id);
                todo.push(watched);
            }
        }
        let mut live = BTreeSet::new();
        while let Some(id) = found.pop() {
            if live.insert(id) {
                found.extend(watchers.remove(&id).unwrap_or_default());
            }
        }
        LiveGroups { live, visited: seen.len() }
    }

    /// Groups visited, to be counted as steps.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// Whether one of the watching buckets is live.
    pub fn has(&self, bucket: &Bucket, port_is_live: impl Fn(u32) -> bool) -> bool {
        bucket.watch_port.is_none_or(port_is_live)
            && bucket.watch_group.is_none_or(|group| self.live.contains(&group))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::ir::{ActionCall, ActionId};
    use crate::state::GroupKind;

    fn bucket(watch_port: Option<u32>, watch_group: Option<u32>) -> Bucket {
        let call = ActionCall { action: ActionId(0), args: [].into() };
        Bucket { weight: 1, watch_port, watch_group, call }
    }

    fn group(buckets: Vec<Bucket>) -> Group {
        Group { kind: GroupKind::Failover, buckets }
    }

    /// Whether a bucket that watches the group is live while port 1 alone is.
    fn is_live(groups: &BTreeMap<u32, Group>, id: u32) -> bool {
        let watching = bucket(None, Some(id));
        let live =
            LiveGroups::watched_by(std::slice::from_ref(&watching), |id| groups.get(&id), |port| port == 1);
        live.has(&watching, |port| port == 1)
    }

    #[test]
    fn liveness_follows_chains_and_loops() {
        let groups = BTreeMap::from([
            (1, group(vec![bucket(Some(2), None), bucket(Some(1), Some(2))])),
            (2, group(vec![bucket(None, Some(1)), bucket(None, Some(3))])),
            (3, group(vec![bucket(None, Some(9)), bucket(Some(1), None)])),
            (4, group(vec![bucket(Some(2), Some(3))])),
            (5, group(vec![bucket(None, Some(6))])),
            (6, group(vec![bucket(None, Some(5)), bucket(None, Some(6))])),
        ]);
        let live: Vec<u32> = (1..=9).filter(|id| is_live(&groups, *id)).collect();
        assert_eq!(live, [1, 2, 3]);
    }

    #[test]
    fn each_group_is_visited_once() {
        // Ten groups whose hundred buckets all watch the next one: 100^10 ways through them.
        let next = |id: u32| group(vec![bucket(None, Some(id % 10 + 1)); 100]);
        let groups: BTreeMap<u32, Group> = (1..=10).map(|id| (id, next(id))).collect();
        let lookups = Cell::new(0);
        let find = |id: u32| {
            lookups.set(lookups.get() + 1);
            groups.get(&id)
        };
        let live = LiveGroups::watched_by(&groups[&1].buckets, find, |_| true);
        assert_eq!((lookups.get(), live.visited()), (10, 10));
        assert!(!live.has(&groups[&1].buckets[0], |_| true));
    }
}
