//! Early detection of congestion in a queue (RED; Floyd and Jacobson, "Random Early Detection Gateways for Congestion
//! Avoidance", 1993, and RFC 2309), with marks instead of drops where the transport understands them (RFC 3168).
//!
//! Packets that are not marked are dropped when they come, before they are copied; packets that can be are marked when
//! they leave. Both go by the average number of packets that waited when packets came.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::protection::EarlyDrop;

/// The average follows the queue with a weight of 2^-SMOOTHNESS a packet.
const SMOOTHNESS: u32 = 7;
/// Fraction bits of the average.
const FRACTION: u32 = 20;
/// Bits of a probability.
const CERTAIN: u64 = 1 << 32;

/// The state of a queue. Several workers may use it at once: an update of the average may be lost.
#[derive(Debug)]
pub(crate) struct Early {
    settings: EarlyDrop,
    average: AtomicU64,
    random: AtomicU64,
}

impl Early {
    pub(crate) fn new(settings: EarlyDrop) -> Self {
        Self { settings, average: AtomicU64::new(0), random: AtomicU64::new(0x9e37_79b9_7f4a_7c15) }
    }

    pub(crate) fn settings(&self) -> EarlyDrop {
        self.settings
    }

    /// Packets come while `depth` wait: the average follows.
    #[inline]
    pub(crate) fn come(&self, depth: u32) {
        let before = self.average.load(Relaxed) as i64;
        let step = ((i64::from(depth) << FRACTION) - before) >> SMOOTHNESS;
        self.average.store((before + step) as u64, Relaxed);
    }

    /// Whether chance picks a packet that comes.
    #[inline]
    pub(crate) fn picks(&self) -> bool {
        let probability = self.probability();
        probability > 0 && (probability >= CERTAIN || self.draw() < probability)
    }

    /// Whether chance picks the packet with this number in its queue, which leaves: the same each time that it tries to.
    #[inline]
    pub(crate) fn picks_number(&self, number: u32) -> bool {
        let probability = self.probability();
        probability > 0
            && u64::from(number.wrapping_mul(0x9e37_79b1).rotate_left(16).wrapping_mul(0x85eb_ca6b))
                < probability
    }

    fn probability(&self) -> u64 {
        let EarlyDrop { least, most, probability, .. } = self.settings;
        let average = self.average.load(Relaxed);
        let (from, to) = (u64::from(least) << FRACTION, u64::from(most) << FRACTION);
        if average < from {
            return 0;
        }
        if average >= to {
            return CERTAIN;
        }
        let full = CERTAIN * u64::from(probability.min(100)) / 100;
        let share = u128::from(full) * u128::from(average - from) / u128::from(to - from);
        share as u64
    }

    /// A number below [`CERTAIN`] (xorshift64; Marsaglia 2003).
    fn draw(&self) -> u64 {
        let mut x = self.random.load(Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Relaxed);
        x >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(depth: u32, settings: EarlyDrop) -> Early {
        let early = Early::new(settings);
        (0..10_000).for_each(|_| early.come(depth));
        early
    }

    #[test]
    fn the_probability_grows_between_the_thresholds() {
        let settings = EarlyDrop { least: 100, most: 300, probability: 20, marks: false };
        let rate = |depth| {
            let early = settled(depth, settings);
            let coming = (0..100_000).filter(|_| early.picks()).count();
            (coming, (0..100_000).filter(|number| early.picks_number(*number)).count())
        };
        assert_eq!(rate(99), (0, 0));
        for (depth, expected) in [(200, 9_500..10_500), (299, 19_200..20_500)] {
            let (coming, leaving) = rate(depth);
            assert!(expected.contains(&coming) && expected.contains(&leaving), "{coming} {leaving}");
        }
        assert_eq!(rate(301), (100_000, 100_000));
    }

    #[test]
    fn a_burst_does_not_move_the_average_far() {
        let early = settled(10, EarlyDrop { least: 50, most: 100, probability: 100, marks: true });
        (0..32).for_each(|_| early.come(150));
        assert!(!early.picks());
        (0..1000).for_each(|_| early.come(150));
        assert!(early.picks());
    }
}
