//! Turns: how many packets of a receive queue a worker takes at once, fewer while they are expensive.
//!
//! All other queues of a worker wait until a batch ends, and a client can make its packets expensive: buffers in memory
//! without pages cost a page fault each, for which a hypervisor may have to find the page; others make a logic compute
//! for long. So a long batch soon after another one halves the bound of the next, and some short ones in a row double it.
//! A single batch may seem long because the thread lost its CPU meanwhile.

use crate::rx::MAX_BATCH;

/// A batch is short if it takes less than this part of a turn ([`Pace::turn`](crate::worker::run::Pace::turn)), and long
/// if it takes longer than one. Usual ones take 5 to 50 µs.
const SHORT: u64 = 4;
/// Batches in a row without a long one after which a long one stands alone.
const CALM: u32 = 8;

/// The bound of a queue's next batch. See the module.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Packets, at least 1.
    packets: usize,
    /// Batches in a row that were not long, up to [`CALM`].
    calm: u32,
}

impl Default for Turn {
    fn default() -> Self {
        Self { packets: MAX_BATCH, calm: CALM }
    }
}

impl Turn {
    /// Most packets of the next batch.
    #[inline]
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Learns how many cycles a batch took, of a turn.
    #[inline]
    pub(crate) fn took(&mut self, packets: usize, cycles: u64, turn: u64) {
        if cycles > turn || self.calm < CALM || self.packets < MAX_BATCH {
            self.change(packets, cycles, turn);
        }
    }

    #[cold]
    fn change(&mut self, packets: usize, cycles: u64, turn: u64) {
        if cycles > turn {
            if self.calm < CALM {
                self.packets = self.packets.min(packets).div_ceil(2);
            }
            self.calm = 0;
            return;
        }
        self.calm = CALM.min(self.calm + 1);
        if self.calm == CALM && self.packets < MAX_BATCH && cycles < turn / SHORT {
            self.packets = (2 * self.packets).min(MAX_BATCH);
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cycles of a turn.
    const LONG: u64 = 1_000_000;

    #[test]
    fn expensive_packets_come_in_smaller_batches() {
        let mut turn = Turn::default();
        // Each packet takes a tenth of the time of a long batch.
        let cost = |packets: usize| packets as u64 * (LONG / 10);
        let mut batches = Vec::new();
        for _ in 0..9 {
            let packets = turn.packets().min(64);
            batches.push(packets);
            turn.took(packets, cost(packets), LONG);
        }
        assert_eq!(batches, [64, 64, 32, 16, 8, 8, 8, 8, 8]);
        // One packet may be too long by itself.
        (0..8).for_each(|_| turn.took(turn.packets(), 2 * LONG, LONG));
        assert_eq!(turn.packets(), 1);
        // They are cheap again.
        (0..CALM * 11).for_each(|_| turn.took(turn.packets(), LONG / 100, LONG));
        assert_eq!(turn.packets(), MAX_BATCH);
    }

    #[test]
    fn usual_batches_are_not_bounded() {
        let mut turn = Turn::default();
        (0..100).for_each(|packets| turn.took(packets, LONG / 10, LONG));
        assert_eq!(turn.packets(), MAX_BATCH);
        // Nor because the thread loses its CPU now and then.
        for _ in 0..100 {
            turn.took(64, 10 * LONG, LONG);
            (0..CALM).for_each(|_| turn.took(64, LONG / 10, LONG));
        }
        assert_eq!(turn.packets(), MAX_BATCH);
    }

    #[test]
    fn cheap_packets_between_expensive_ones_do_not_help() {
        let mut turn = Turn::default();
        for _ in 0..20 {
            turn.took(turn.packets().min(64), 2 * LONG, LONG);
            turn.took(1, LONG / 100, LONG);
        }
        assert_eq!(turn.packets(), 1);
    }
}
