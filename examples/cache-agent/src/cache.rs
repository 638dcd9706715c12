//! Which flows are in the cache.
//!
//! Invariant: with the changes that it returns carried out in order, the cache never has more than its most flows.
//! What is really there is read every second ([`Cache::measured`]), so a change that failed is made up for.

use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Addresses, protocol and ports of a packet; without ports, these are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

/// What the rules have decided for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    /// P4 number of the port; 511 drops.
    pub(crate) port: u16,
    /// Generation of the rules.
    pub(crate) generation: u32,
}

/// A change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Insert(Flow, Decision),
    Modify(Flow, Decision),
    /// Makes room for another flow.
    Evict(Flow),
    /// Removes a decision of an old generation.
    Expire(Flow),
}

#[derive(Debug, Clone, Copy)]
struct Cached {
    decision: Decision,
    /// Packets that have hit it.
    packets: u64,
    /// Those between the last two readings; `None` until then.
    recent: Option<u64>,
    /// Order of insertion.
    since: u64,
}

/// The flows in the cache.
#[derive(Debug)]
pub(crate) struct Cache {
    most: usize,
    flows: HashMap<Flow, Cached>,
    generation: u32,
    inserted: u64,
}

impl Cache {
    /// An empty cache for so many flows.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, flows: HashMap::new(), generation: 0, inserted: 0 }
    }

    /// Number of flows.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Largest number of flows.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Generation of the rules, as far as it is known.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The switch takes no more flows than are there.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = self.most.min(most.max(1));
    }

    /// Takes decisions of the rules, and returns the changes that put them into the cache.
    pub(crate) fn decided(&mut self, decisions: &[(Flow, Decision)]) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut new: HashMap<Flow, Decision> = HashMap::new();
        for (flow, decision) in decisions {
            // Of an old generation: the packet was on its way while the rules changed.
            if decision.generation < self.generation {
                continue;
            }
            self.generation = decision.generation;
            match self.flows.get_mut(flow) {
                Some(cached) if cached.decision == *decision => {}
                Some(cached) => {
                    cached.decision = *decision;
                    changes.push(Change::Modify(*flow, *decision));
                }
                None if new.len() < self.most || new.contains_key(flow) => {
                    new.insert(*flow, *decision);
                }
                // Its next packet makes another digest.
                None => {}
            }
        }
        let excess = (self.flows.len() + new.len()).saturating_sub(self.most);
        let evicted = self.coldest(excess);
        // A flow that goes needs no modification before.
        changes.retain(|change| !matches!(change, Change::Modify(flow, _) if evicted.contains(flow)));
        self.forget(&evicted);
        changes.extend(evicted.into_iter().map(Change::Evict));
        for (flow, decision) in new {
            self.inserted += 1;
            let cached = Cached { decision, packets: 0, recent: None, since: self.inserted };
            self.flows.insert(flow, cached);
            changes.push(Change::Insert(flow, decision));
        }
        changes
    }

    /// Takes what is in the table, with the packets that have hit each entry, and the generation of the rules. Returns
    /// the packets since the last reading, and changes that remove what is old or too much.
    pub(crate) fn measured(
        &mut self,
        entries: &[(Flow, Decision, u64)],
        generation: u32,
    ) -> (u64, Vec<Change>) {
        let hits = self.found(entries, generation);
        let is_old = |(_, cached): &(&Flow, &Cached)| cached.decision.generation != generation;
        let mut old: Vec<Flow> = self.flows.iter().filter(is_old).map(|(flow, _)| *flow).collect();
        old.sort();
        self.forget(&old);
        let evicted = self.coldest(self.flows.len().saturating_sub(self.most));
        self.forget(&evicted);
        let changes = old.into_iter().map(Change::Expire).chain(evicted.into_iter().map(Change::Evict));
        (hits, changes.collect())
    }

    /// Takes what is in the table. Returns the packets since the last reading.
    pub(crate) fn found(&mut self, entries: &[(Flow, Decision, u64)], generation: u32) -> u64 {
        self.generation = generation;
        let before = std::mem::take(&mut self.flows);
        let mut hits = 0;
        for (flow, decision, packets) in entries {
            let known = before.get(flow);
            let recent = known.map_or(0, |known| packets.saturating_sub(known.packets));
            hits += recent;
            let since = known.map_or(0, |known| known.since);
            let cached = Cached { decision: *decision, packets: *packets, recent: Some(recent), since };
            self.flows.insert(*flow, cached);
        }
        hits
    }

    fn forget(&mut self, flows: &[Flow]) {
        for flow in flows {
            self.flows.remove(flow);
        }
    }

    /// The flows with the fewest recent packets, the oldest first; new flows, which have not been measured, come last.
    fn coldest(&self, count: usize) -> Vec<Flow> {
        if count == 0 {
            return Vec::new();
        }
        let heat = |cached: &Cached| (cached.recent.is_none(), cached.recent, cached.since);
        let mut flows: Vec<_> = self.flows.iter().map(|(flow, cached)| (heat(cached), *flow)).collect();
        flows.sort();
        flows.into_iter().take(count).map(|(_, flow)| flow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u16) -> Flow {
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        Flow { src, dst, protocol: 17, sport: number, dport: 80 }
    }

    fn decision(generation: u32) -> Decision {
        Decision { port: 2, generation }
    }

    fn fill(cache: &mut Cache, numbers: impl Iterator<Item = u16>) -> Vec<Change> {
        let decisions: Vec<_> = numbers.map(|number| (flow(number), decision(1))).collect();
        cache.decided(&decisions)
    }

    #[test]
    fn decisions_are_cached_once() {
        let mut cache = Cache::new(10);
        let twice = [(flow(1), decision(1)), (flow(1), decision(1))];
        assert_eq!(cache.decided(&twice), [Change::Insert(flow(1), decision(1))]);
        assert_eq!(cache.decided(&twice), []);
        let denied = Decision { port: 511, generation: 1 };
        assert_eq!(cache.decided(&[(flow(1), denied)]), [Change::Modify(flow(1), denied)]);
    }

    #[test]
    fn the_coldest_make_room() {
        let mut cache = Cache::new(3);
        assert_eq!(fill(&mut cache, 1..=3).len(), 3);
        let (hits, changes) = cache
            .measured(&[(flow(1), decision(1), 9), (flow(2), decision(1), 5), (flow(3), decision(1), 7)], 1);
        assert_eq!((hits, changes), (21, vec![]));
        assert_eq!(fill(&mut cache, 4..=4), [Change::Evict(flow(2)), Change::Insert(flow(4), decision(1))]);
        // The new one is not measured yet: an older one goes.
        assert_eq!(fill(&mut cache, 5..=5), [Change::Evict(flow(3)), Change::Insert(flow(5), decision(1))]);
        assert_eq!(cache.len(), 3);
    }

    #[test]
    fn more_flows_than_there_is_room_for_at_once() {
        let mut cache = Cache::new(3);
        fill(&mut cache, 1..=3);
        let changes = fill(&mut cache, 10..=99);
        let evicted = changes.iter().filter(|change| matches!(change, Change::Evict(_))).count();
        assert_eq!((changes.len(), evicted, cache.len()), (6, 3, 3));
        cache.limit(2);
        let there: Vec<_> = (10..=12).map(|number| (flow(number), decision(1), 0)).collect();
        let (_, changes) = cache.measured(&there, 1);
        assert!(matches!(changes[..], [Change::Evict(_)]), "{changes:?}");
    }

    #[test]
    fn old_generations_go() {
        let mut cache = Cache::new(10);
        fill(&mut cache, 1..=2);
        let there = [(flow(1), decision(1), 3), (flow(2), decision(2), 4)];
        assert_eq!(cache.measured(&there, 2), (7, vec![Change::Expire(flow(1))]));
        // A digest that was on its way.
        assert_eq!(cache.decided(&[(flow(1), decision(1))]), []);
        assert_eq!(cache.decided(&[(flow(1), decision(3))]), [Change::Insert(flow(1), decision(3))]);
        assert_eq!(cache.generation(), 3);
    }

    #[test]
    fn what_is_there_counts() {
        let mut cache = Cache::new(10);
        // An agent before this one has left it, and an insertion of this one has failed.
        fill(&mut cache, 1..=1);
        assert_eq!(cache.measured(&[(flow(7), decision(1), 100)], 1), (0, vec![]));
        assert_eq!(cache.len(), 1);
        assert_eq!(cache.measured(&[(flow(7), decision(1), 103)], 1), (3, vec![]));
    }
}
