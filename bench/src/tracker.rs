//! What has arrived of one flow.
//!
//! Invariant: a number is counted once: in order, late, twice, or too late to tell.

/// How far back arrivals are remembered; a power of two, and more than all rings on a path hold.
const WINDOW: u64 = 1 << 17;

/// Follows the sequence numbers of one flow.
#[derive(Debug)]
pub struct Tracker {
    /// One more than the highest number seen.
    next: u64,
    /// Which of the last [`WINDOW`] numbers below `next` have arrived.
    seen: Vec<u64>,
    /// How many different numbers arrived, in whatever order.
    pub unique: u64,
    /// How many of them arrived after a higher number.
    pub reordered: u64,
    /// How many arrived again.
    pub duplicated: u64,
    /// How many arrived so late that it is not known whether they did before.
    pub stale: u64,
}

impl Default for Tracker {
    fn default() -> Tracker {
        let seen = vec![0; (WINDOW / 64) as usize];
        Tracker { next: 0, seen, unique: 0, reordered: 0, duplicated: 0, stale: 0 }
    }
}

impl Tracker {
    /// A packet with this number has arrived.
    pub fn arrived(&mut self, sequence: u64) {
        if sequence >= self.next {
            let first = self.next.max(sequence.saturating_sub(WINDOW - 1));
            for skipped in first..=sequence {
                *self.word(skipped) &= !(1 << (skipped % 64));
            }
            self.next = sequence + 1;
            self.mark(sequence);
        } else if self.next - sequence > WINDOW {
            self.stale += 1;
        } else if self.mark(sequence) {
            self.reordered += 1;
        } else {
            self.duplicated += 1;
        }
    }

    /// Whether it was not marked before.
    fn mark(&mut self, sequence: u64) -> bool {
        let bit = 1 << (sequence % 64);
        let word = self.word(sequence);
        let fresh = *word & bit == 0;
        *word |= bit;
        self.unique += u64::from(fresh);
        fresh
    }

    fn word(&mut self, sequence: u64) -> &mut u64 {
        &mut self.seen[(sequence % WINDOW / 64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sequences: impl IntoIterator<Item = u64>) -> (u64, u64, u64, u64) {
        let mut tracker = Tracker::default();
        sequences.into_iter().for_each(|s| tracker.arrived(s));
        (tracker.unique, tracker.reordered, tracker.duplicated, tracker.stale)
    }

    #[test]
    fn tells_late_from_twice() {
        assert_eq!(after(0..1_000_000), (1_000_000, 0, 0, 0));
        assert_eq!(after([0, 1, 5, 6]), (4, 0, 0, 0));
        assert_eq!(after([0, 2, 1, 3]), (4, 1, 0, 0));
        assert_eq!(after([0, 1, 1, 2, 0]), (3, 0, 2, 0));
        assert_eq!(after([7, 3, 3]), (2, 1, 1, 0));
        assert_eq!(after([0, WINDOW, 0, 1]), (3, 1, 0, 1));
        assert_eq!(after([5, 10 * WINDOW, 10 * WINDOW - 1, 9 * WINDOW + 1]), (4, 2, 0, 0));
    }
}
