//! Fragments of IP packets: only the first one has ports, the others follow it (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! The decision about a first fragment is kept for a few seconds under source, destination, identification and
//! protocol. A later fragment that arrives before the first one, or too late, is unknown.
//!
//! Invariants: the table has a fixed size, takes no lock and allocates nothing; the hash has a secret, so no sender can
//! aim at the entries of another. A full set forgets its oldest entry. Two packets share an entry with a probability of
//! 2^-32 for each entry of the set.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabric::PortIndex;

/// Seconds for which a first fragment is remembered. Fragments of one packet follow each other closely; Linux waits for
/// 30 seconds for all of them.
const LIFETIME: u16 = 5;

const SETS: usize = 256;
const WAYS: usize = 4;

/// Decisions about first fragments. An entry is a tag (32 bits), the second of the decision (16) and a port (16); 0 is
/// none.
pub(super) struct Fragments {
    sets: Box<[[AtomicU64; WAYS]]>,
    secret: RandomState,
}

impl Fragments {
    pub(super) fn new() -> Self {
        let sets = (0..SETS).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { sets, secret: RandomState::new() }
    }

    /// Remembers where the first fragment went; [`PortIndex::NONE`] forgets an earlier packet of the same
    /// identification.
    pub(super) fn note(&self, of: impl Hash, port: PortIndex, now: u32) {
        let Some((set, tag)) = self.place(of) else { return };
        let same = set.iter().find(|entry| tag_of(entry.load(Relaxed)) == tag);
        let oldest = || set.iter().max_by_key(|entry| age(entry.load(Relaxed), now));
        let entry = match (same, port) {
            (None, PortIndex::NONE) => None,
            (Some(entry), _) => Some(entry),
            (None, _) => oldest(),
        };
        let value = match port {
            PortIndex::NONE => 0,
            port => u64::from(tag) << 32 | u64::from(now as u16) << 16 | u64::from(port.0),
        };
        entry.into_iter().for_each(|entry| entry.store(value, Relaxed));
    }

    /// Returns where the first fragment went.
    pub(super) fn find(&self, of: impl Hash, now: u32) -> Option<PortIndex> {
        let (set, tag) = self.place(of)?;
        let entry = set.iter().map(|entry| entry.load(Relaxed)).find(|entry| tag_of(*entry) == tag)?;
        (age(entry, now) < u32::from(LIFETIME)).then_some(PortIndex(entry as u16))
    }

    /// Forgets decisions for a port.
    pub(super) fn forget(&self, port: PortIndex) {
        for entry in self.sets.iter().flatten() {
            let value = entry.load(Relaxed);
            if value != 0 && value as u16 == port.0 {
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
        let fragments = Fragments::new();
        fragments.note((1, 2), PortIndex(7), 65_534);
        assert_eq!(fragments.find((1, 2), 65_534), Some(PortIndex(7)));
        assert_eq!(fragments.find((1, 2), 65_538), Some(PortIndex(7)));
        assert_eq!(fragments.find((1, 2), 65_539), None);
        assert_eq!(fragments.find((1, 3), 65_534), None);
        fragments.note((1, 2), PortIndex(8), 65_535);
        assert_eq!(fragments.find((1, 2), 65_535), Some(PortIndex(8)));
        fragments.forget(PortIndex(7));
        assert_eq!(fragments.find((1, 2), 65_535), Some(PortIndex(8)));
        fragments.forget(PortIndex(8));
        assert_eq!(fragments.find((1, 2), 65_535), None);
        fragments.note((1, 2), PortIndex(9), 65_535);
        fragments.note((1, 2), PortIndex::NONE, 65_535);
        assert_eq!(fragments.find((1, 2), 65_535), None);
    }

    #[test]
    fn a_flood_replaces_the_oldest() {
        let fragments = Fragments::new();
        for packet in 0..100_000u32 {
            fragments.note(packet, PortIndex(1), packet / 1000);
        }
        let found = (0..100_000u32).filter(|packet| fragments.find(packet, 99).is_some()).count();
        assert!((SETS..=SETS * WAYS).contains(&found), "{found}");
        assert_eq!(fragments.find(99_999u32, 99), Some(PortIndex(1)));
    }
}
