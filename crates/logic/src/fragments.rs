//! Decisions about fragmented IP packets: only the first fragment has ports, the others follow it (RFC 791 §3.2,
//! RFC 8200 §4.5).
//!
//! The decision about a packet is kept for a few seconds under what identifies the packet: source, destination,
//! identification and protocol, and what else tells the logic's packets apart. A later fragment that arrives before the
//! first one, or too late, is unknown.
//!
//! Invariants: the table has a fixed size, takes no lock and allocates nothing; the hash has a secret, so no sender can
//! aim at the entries of another. A full set forgets its oldest entry. Two packets share an entry with a probability of
//! 2^-32 for each entry of the set.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Seconds for which a first fragment is remembered. Fragments of one packet follow each other closely; Linux waits for
/// 30 seconds for all of them.
const LIFETIME: u16 = 5;

const SETS: usize = 256;
const WAYS: usize = 4;

/// Decisions, numbers of the logic's own. An entry is a tag (32 bits), the second of the decision (16) and its number (16);
/// 0 is none.
pub struct Fragments {
    sets: Box<[[AtomicU64; WAYS]]>,
    secret: RandomState,
}

impl Default for Fragments {
    fn default() -> Self {
        let sets = (0..SETS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { sets, secret: RandomState::new() }
    }
}

impl Fragments {
    /// Remembers the decision about a packet; `None` forgets that about an earlier packet of the same identification.
    /// `now` is in seconds.
    pub fn note(&self, of: impl Hash, decision: Option<u16>, now: u32) {
        let Some((set, tag)) = self.place(of) else { return };
        let same = set.iter().find(|entry| tag_of(entry.load(Relaxed)) == tag);
        let oldest = || set.iter().max_by_key(|entry| age(entry.load(Relaxed), now));
        let (entry, value) = match decision {
            None => (same, 0),
            Some(decision) => {
                let value = u64::from(tag) << 32 | u64::from(now as u16) << 16 | u64::from(decision);
                (same.or_else(oldest), value)
            }
        };
        entry.into_iter().for_each(|entry| entry.store(value, Relaxed));
    }

    /// Returns the decision about a packet.
    pub fn find(&self, of: impl Hash, now: u32) -> Option<u16> {
        let (set, tag) = self.place(of)?;
        let entry = set.iter().map(|entry| entry.load(Relaxed)).find(|entry| tag_of(*entry) == tag)?;
        (age(entry, now) < u32::from(LIFETIME)).then_some(entry as u16)
    }

    /// Forgets all decisions of this number.
    pub fn forget(&self, decision: u16) {
        for entry in self.sets.iter().flatten() {
            let value = entry.load(Relaxed);
            if value != 0 && value as u16 == decision {
                // A worker that has replaced the entry meanwhile keeps its own.
                let _ = entry.compare_exchange(value, 0, Relaxed, Relaxed);
            }
        }
    }

    fn place(&self, of: impl Hash) -> Option<(&[AtomicU64; WAYS], u32)> {
        let hash = self.secret.hash_one(of);
        let tag = ((hash >> 32) as u32).max(1);
        Some((self.sets.get(hash as usize % SETS)?, tag))
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

    #[test]
    fn later_fragments_follow_the_first_for_a_while() {
        let fragments = Fragments::default();
        fragments.note((1, 2), Some(7), 65_534);
        assert_eq!(fragments.find((1, 2), 65_534), Some(7));
        assert_eq!(fragments.find((1, 2), 65_538), Some(7));
        assert_eq!(fragments.find((1, 2), 65_539), None);
        assert_eq!(fragments.find((1, 3), 65_534), None);
        fragments.note((1, 2), Some(8), 65_535);
        assert_eq!(fragments.find((1, 2), 65_535), Some(8));
        fragments.forget(7);
        assert_eq!(fragments.find((1, 2), 65_535), Some(8));
        fragments.forget(8);
        assert_eq!(fragments.find((1, 2), 65_535), None);
        fragments.note((1, 2), Some(9), 65_535);
        fragments.note((1, 2), None, 65_535);
        assert_eq!(fragments.find((1, 2), 65_535), None);
    }

    #[test]
    fn a_flood_replaces_the_oldest() {
        let fragments = Fragments::default();
        for packet in 0..100_000u32 {
            fragments.note(packet, Some(1), packet / 1000);
        }
        let found = (0..100_000u32).filter(|packet| fragments.find(packet, 99).is_some()).count();
        assert!((SETS..=SETS * WAYS).contains(&found), "{found}");
        assert_eq!(fragments.find(99_999u32, 99), Some(1));
    }
}
