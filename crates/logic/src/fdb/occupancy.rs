//! Buckets that hold stations, a bit each: a search of a table with few stations skips the empty buckets.
//!
//! Invariant: the bit of a bucket with a station is set, but for the instant between the insertion and
//! [`Occupancy::set`]. The insertion comes first and [`Occupancy::clear`] is followed by another look at the bucket;
//! all of these are sequentially consistent, so that either the inserting thread finds the bit cleared, or the other
//! one the station.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// A bit for each bucket.
pub(super) struct Occupancy(Box<[AtomicU64]>);

impl Occupancy {
    /// No bucket holds a station.
    pub(super) fn new(buckets: usize) -> Self {
        Self((0..buckets.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes that a bucket holds a station.
    pub(super) fn set(&self, bucket: usize) {
        let bit = 1 << (bucket % BITS);
        // The load spares workers that learn under a flood the locked instruction.
        if let Some(bits) = self.0.get(bucket / BITS)
            && bits.load(Ordering::SeqCst) & bit == 0
        {
            bits.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Notes that a bucket was found empty.
    pub(super) fn clear(&self, bucket: usize) {
        if let Some(bits) = self.0.get(bucket / BITS) {
            bits.fetch_and(!(1 << (bucket % BITS)), Ordering::SeqCst);
        }
    }

    /// Lists the buckets noted, each once, beginning with the word of a bucket.
    pub(super) fn buckets_from(&self, bucket: usize) -> impl Iterator<Item = usize> {
        let (before, after) = self.0.split_at_checked(bucket / BITS).unwrap_or((&[], &self.0));
        let skipped = before.len();
        let words = (skipped..).zip(after).chain((0..).zip(before));
        words.flat_map(|(at, bits)| {
            let without_lowest = |left: &u64| (*left != 0).then(|| left & (left - 1));
            let left = std::iter::successors(Some(bits.load(Ordering::Relaxed)), without_lowest);
            let set = left.take_while(|left| *left != 0).map(u64::trailing_zeros);
            set.map(move |bit| at * BITS + bit as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_listed_round_and_once() {
        let occupancy = Occupancy::new(4096);
        for bucket in [0, 63, 64, 70, 4095] {
            occupancy.set(bucket);
            occupancy.set(bucket);
        }
        let from = |bucket| occupancy.buckets_from(bucket).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 63, 64, 70, 4095]);
        assert_eq!(from(71), [64, 70, 4095, 0, 63]);
        assert_eq!(from(4095), [4095, 0, 63, 64, 70]);
        occupancy.clear(64);
        assert_eq!(from(4096), [0, 63, 70, 4095]);
    }
}
