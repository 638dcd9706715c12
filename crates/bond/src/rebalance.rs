//! Moving load from members that carry much to members that carry little.

use std::collections::BTreeMap;

use crate::Millis;
use crate::bond::Negotiation;
use crate::{Bond, Mode};

/// Difference of loads, in bytes, below which nothing moves.
const LEAST: u64 = 100_000;
/// Part of the smaller load below which nothing moves.
const PART: u64 = 32;
/// Part of what would have to move for an even split that a move has to gain.
const GAIN: u64 = 10;

impl Bond {
    /// Whether load is moved between members.
    pub(crate) fn is_balanced(&self) -> bool {
        let falls_back = self.settings.fallback && self.negotiation == Negotiation::Configured;
        self.is_bond()
            && self.settings.rebalance_interval > 0
            && self.settings.mode != Mode::ActiveBackup
            && !falls_back
    }

    /// Moves load if that is due.
    pub(crate) fn rebalance(&mut self, now: Millis) {
        if !self.is_balanced() || now < self.next_rebalance {
            return;
        }
        self.next_rebalance = now.saturating_add(self.settings.rebalance_interval);
        let enabled = self.members.iter().filter(|(_, member)| member.is_enabled);
        let mut loads: BTreeMap<String, u64> = enabled.map(|(name, _)| (name.clone(), 0)).collect();
        // Buckets with load by descending load; a bucket moves once.
        let mut loaded: Vec<(usize, u64)> = Vec::new();
        for (number, bucket) in self.buckets.iter().enumerate().filter(|(_, bucket)| bucket.load > 0) {
            if let Some(load) = bucket.member.as_ref().and_then(|name| loads.get_mut(name)) {
                *load += bucket.load;
                loaded.push((number, bucket.load));
            }
        }
        loaded.sort_by_key(|(_, load)| std::cmp::Reverse(*load));
        while loads.len() > 1 {
            let most = loads.iter().max_by_key(|(_, load)| **load).map(|(name, load)| (name.clone(), *load));
            let least = loads.iter().min_by_key(|(_, load)| **load).map(|(name, load)| (name.clone(), *load));
            let (Some((from, high)), Some((to, low))) = (most, least) else { return };
            if high - low < (low / PART).max(LEAST) {
                break;
            }
            let its = |(number, _): &&(usize, u64)| {
                self.buckets.get(*number).is_some_and(|bucket| bucket.member.as_ref() == Some(&from))
            };
            let moved = choose(high, low, loaded.iter().filter(its).copied());
            if moved.is_empty() {
                // It stays as it is, and others are looked at.
                loads.remove(&from);
                continue;
            }
            for (number, load) in moved {
                loaded.retain(|(other, _)| *other != number);
                loads.entry(from.clone()).and_modify(|sum| *sum -= load);
                loads.entry(to.clone()).and_modify(|sum| *sum += load);
                if let Some(bucket) = self.buckets.get_mut(number) {
                    bucket.member = Some(to.clone());
                }
                let (name, load) = (&self.name, load / 1024);
                self.events
                    .push(format!("bond {name}: shift {load}kB of load (hash {number}) from {from} to {to}"));
            }
        }
        // Old load counts for less and less.
        self.buckets.iter_mut().for_each(|bucket| bucket.load /= 2);
    }
}

/// Chooses the buckets that move from a member with load `high` to one with load `low`; `loaded` are its buckets by
/// descending load.
fn choose(high: u64, low: u64, loaded: impl Iterator<Item = (usize, u64)>) -> Vec<(usize, u64)> {
    let loaded: Vec<_> = loaded.collect();
    let ideal = (high - low) / 2;
    let threshold = ideal / GAIN;
    // The only bucket would take the load along.
    if loaded.len() < 2 {
        return Vec::new();
    }
    let (mut chosen, mut delta) = (Vec::new(), 0);
    for (number, load) in &loaded {
        if delta + load <= ideal {
            chosen.push((*number, *load));
            delta += load;
        }
        if ideal - delta < threshold {
            break;
        }
    }
    if chosen.is_empty() {
        chosen.extend(loaded.last());
        delta = chosen.iter().map(|(_, load)| load).sum();
    }
    let new_low = (high - delta).min(low + delta);
    if new_low > low && new_low - low >= threshold { chosen } else { Vec::new() }
}
