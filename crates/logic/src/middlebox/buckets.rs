//! Sharing the conversations of a function among its instances, so that each stays where it is.
//!
//! Conversations fall into buckets by their hash, and a bucket belongs to one instance. Resilient hashing: while packets
//! come, a bucket stays, whatever instances come and go; only if its own instance is gone, or it has been silent for a
//! while, does the next packet choose an instance anew, by rendezvous hashing (Thaler and Ravishankar, "Using
//! Name-Based Mappings to Increase Hit Rates", 1998) among those that are up. So a new instance gets the silent buckets
//! that fall to it, and a lost one loses only its own.
//!
//! Invariants: memory does not depend on the number of conversations; workers change a bucket by compare-and-swap, so
//! that none takes it from another that has just chosen.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of buckets of a function.
pub(super) const BUCKETS: usize = 1 << 16;

/// An instance, by its place among all instances of the logic.
pub(super) type Slot = u16;

/// Buckets of a function.
pub(super) struct Buckets(Box<[AtomicU64]>);

/// A bucket in use: its instance, and the second at which its last packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    /// The instance.
    pub(super) slot: Slot,
    /// The second, on the clock of [`fabric::Batch::now`].
    pub(super) heard: u32,
}

impl Bucket {
    fn word(self) -> u64 {
        1 << 63 | u64::from(self.slot) << 32 | u64::from(self.heard)
    }

    fn of(word: u64) -> Option<Self> {
        (word != 0).then_some(Self { slot: (word >> 32) as Slot, heard: word as u32 })
    }

    /// Returns whether packets came less than `idle` seconds ago.
    #[inline]
    pub(super) fn is_active(self, now: u32, idle: u32) -> bool {
        now.saturating_sub(self.heard) < idle
    }
}

/// Returns the number of a conversation's bucket.
#[inline]
pub(super) fn number(hash: u32) -> u16 {
    (hash >> 16) as u16
}

impl Buckets {
    /// Makes buckets, none of them in use.
    pub(super) fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Of a function with one instance, to which everything belongs: remembers nothing.
    pub(super) fn none() -> Self {
        Self(Box::default())
    }

    /// Puts a bucket to use that has not been used yet.
    pub(super) fn inherit(&self, number: u16, bucket: Bucket) {
        let _ = self.replace(number, None, bucket);
    }

    /// Returns the bucket of this number, if it was ever used.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<Bucket> {
        Bucket::of(self.0.get(usize::from(number))?.load(Relaxed))
    }

    /// Replaces a bucket. Fails if another thread has changed it meanwhile; then its new value counts.
    #[inline]
    pub(super) fn replace(
        &self,
        number: u16,
        old: Option<Bucket>,
        new: Bucket,
    ) -> Result<(), Option<Bucket>> {
        let Some(place) = self.0.get(usize::from(number)) else { return Ok(()) };
        let result = place.compare_exchange(old.map_or(0, Bucket::word), new.word(), Relaxed, Relaxed);
        result.map(drop).map_err(Bucket::of)
    }

    /// Lists the buckets that were ever used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, Bucket)> {
        (0..=u16::MAX).filter_map(|number| Some((number, self.get(number)?)))
    }
}

/// Chooses an instance for a bucket by rendezvous hashing: the one with the highest score among `candidates`, which
/// are numbered in the order of their names. A candidate that comes or goes changes the choice only where it wins.
pub(super) fn choose(number: u16, candidates: impl Iterator<Item = (Slot, u16)>) -> Option<Slot> {
    let score = |rank: u16| {
        // The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
        let mut x = (u64::from(number) << 16 | u64::from(rank)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    candidates.max_by_key(|(_, rank)| score(*rank)).map(|(slot, _)| slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_remember_and_one_thread_wins() {
        let buckets = Buckets::new();
        let (one, two) = (Bucket { slot: 0, heard: 0 }, Bucket { slot: 4095, heard: u32::MAX });
        assert_eq!(buckets.get(7), None);
        assert_eq!(buckets.replace(7, None, one), Ok(()));
        assert_eq!(buckets.replace(7, None, two), Err(Some(one)));
        assert_eq!(buckets.replace(7, Some(one), two), Ok(()));
        assert_eq!(buckets.iter().collect::<Vec<_>>(), [(7, two)]);
        buckets.inherit(7, one);
        buckets.inherit(8, one);
        assert_eq!(buckets.iter().collect::<Vec<_>>(), [(7, two), (8, one)]);
        assert_eq!((Buckets::none().replace(7, None, one), Buckets::none().get(7)), (Ok(()), None));
        assert!(one.is_active(9, 10) && !one.is_active(10, 10) && !one.is_active(0, 0));
    }

    #[test]
    fn instances_share_evenly_and_changes_move_little() {
        let choose = |ranks: &[u16]| -> Vec<_> {
            (0..=u16::MAX).map(|n| choose(n, ranks.iter().map(|rank| (*rank, *rank))).unwrap()).collect()
        };
        let (three, two) = (choose(&[0, 1, 2]), choose(&[0, 2]));
        for rank in 0..3 {
            let share = three.iter().filter(|slot| **slot == rank).count();
            assert!(share.abs_diff(BUCKETS / 3) < BUCKETS / 100, "{share}");
        }
        assert!(three.iter().zip(&two).all(|(three, two)| three == two || *three == 1));
        assert_eq!(super::choose(1, [].into_iter()), None);
    }
}
