//! Verdicts about fragmented packets: later fragments have no ports, and follow the first one (RFC 791 §3.2).
//!
//! A verdict is kept for a few seconds under source, destination, identification, protocol and VLAN. Fragments that
//! come before it pass if they contain no match themselves.
//!
//! Invariants: the table has a fixed size, takes no lock and allocates nothing; the hash has a secret. A full set
//! forgets its oldest entry. Two packets share an entry with a probability of 2^-32 for each entry of the set.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::frame::FragmentOf;

/// Seconds for which a verdict is remembered.
const LIFETIME: u16 = 5;

const SETS: usize = 256;
const WAYS: usize = 4;

/// Verdicts. An entry is a tag (32 bits), the second (16) and the number of the rule from 1 on (16); 0 is none.
pub(crate) struct Fragments {
    sets: Box<[[AtomicU64; WAYS]]>,
    secret: RandomState,
}

impl Fragments {
    pub(crate) fn new() -> Self {
        let sets = (0..SETS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { sets, secret: RandomState::new() }
    }

    /// Remembers the rule that has decided about a packet, by its number from 0.
    pub(crate) fn note(&self, of: &FragmentOf, rule: usize, now: u32) {
        let Some((set, tag)) = self.place(of) else { return };
        let same = set.iter().find(|entry| tag_of(entry.load(Relaxed)) == tag);
        let entry = same.or_else(|| set.iter().max_by_key(|entry| age(entry.load(Relaxed), now)));
        let rule = u16::try_from(rule + 1).unwrap_or(u16::MAX);
        let value = u64::from(tag) << 32 | u64::from(now as u16) << 16 | u64::from(rule);
        entry.into_iter().for_each(|entry| entry.store(value, Relaxed));
    }

    /// Returns the rule that has decided about a packet.
    pub(crate) fn find(&self, of: &FragmentOf, now: u32) -> Option<usize> {
        let (set, tag) = self.place(of)?;
        let entry = set.iter().map(|entry| entry.load(Relaxed)).find(|entry| tag_of(*entry) == tag)?;
        if age(entry, now) >= u32::from(LIFETIME) {
            return None;
        }
        usize::from(entry as u16).checked_sub(1)
    }

    fn place(&self, of: &FragmentOf) -> Option<(&[AtomicU64; WAYS], u32)> {
        let hash = self.secret.hash_one(of);
        Some((self.sets.get(hash as usize % SETS)?, ((hash >> 32) as u32).max(1)))
    }
}

fn tag_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

/// Age of an entry, seconds; the largest for none.
fn age(entry: u64, now: u32) -> u32 {
    if entry == 0 { u32::MAX } else { u32::from((now as u16).wrapping_sub((entry >> 16) as u16)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::ip4;
    use crate::frame::{Kind, View};

    #[test]
    fn verdicts_are_remembered_for_seconds() {
        let of = |to| match View::of(&ip4((1, to), 17, 2, &[0; 8]), 42, None).unwrap().kind {
            Kind::Fragment(of) => of,
            other => panic!("{other:?}"),
        };
        let fragments = Fragments::new();
        assert_eq!(fragments.find(&of(2), 5), None);
        fragments.note(&of(2), 0, 5);
        fragments.note(&of(3), 9, 5);
        assert_eq!((fragments.find(&of(2), 9), fragments.find(&of(3), 9)), (Some(0), Some(9)));
        assert_eq!(fragments.find(&of(2), 10), None);
    }
}
