//! Arrivals of one flow.
//!
//! Invariant: each arrival is counted once: in order, late, duplicate, or too late to tell.

/// Number of past arrivals remembered; a power of two, and more than all rings on a path hold.
const WINDOW: u64 = 1 << 17;

/// Tracks the sequence numbers of one flow.
#[derive(Debug)]
pub struct Tracker {
    /// One more than the highest number seen.
    next: u64,
    /// Bitmap of the last [`WINDOW`] numbers below `next` that have arrived.
    seen: Vec<u64>,
    /// Distinct numbers that arrived, in any order.
    pub unique: u64,
    /// Those of them that arrived after a higher number.
    pub reordered: u64,
    /// Numbers that arrived again.
    pub duplicated: u64,
    /// Numbers that arrived too late to tell whether they are duplicates.
    pub stale: u64,
}

impl Default for Tracker {
    fn default() -> Tracker {
        let seen = vec![0; (WINDOW / 64) as usize];
        Tracker { next: 0, seen, unique: 0, reordered: 0, duplicated: 0, stale: 0 }
    }
}

impl Tracker {
    /// Records the arrival of a packet with this number.
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

    /// Marks a number; returns whether it was unmarked.
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
    fn distinguishes_late_from_duplicate() {
        assert_eq!(after(0..1_000_000), (1_000_000, 0, 0, 0));
        assert_eq!(after([0, 1, 5, 6]), (4, 0, 0, 0));
        assert_eq!(after([0, 2, 1, 3]), (4, 1, 0, 0));
        assert_eq!(after([0, 1, 1, 2, 0]), (3, 0, 2, 0));
        assert_eq!(after([7, 3, 3]), (2, 1, 1, 0));
        assert_eq!(after([0, WINDOW, 0, 1]), (3, 1, 0, 1));
        assert_eq!(after([5, 10 * WINDOW, 10 * WINDOW - 1, 9 * WINDOW + 1]), (4, 2, 0, 0));
    }
}
