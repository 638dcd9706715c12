//! Random sampling of packets on the workers.
//!
//! Between two samples, a worker skips a random number of packets with a geometric distribution: every packet has the
//! same probability, independent of earlier packets, so no traffic pattern on any number of ports can match the
//! sampling.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Returns the number of packets to skip before the next sample, for a rate of 1 in `rate`. `random` is in [0, 1).
fn skip(rate: u32, random: f64) -> u64 {
    let probability = 1.0 / f64::from(rate.max(1));
    ((-random).ln_1p() / (-probability).ln_1p()) as u64
}

/// The next sample of one worker, which alone uses it.
pub struct Draw {
    /// Packets to skip before the next sample.
    left: AtomicU64,
    /// The rate for which `left` was drawn; 0 before the first draw.
    rate: AtomicU32,
    random: AtomicU64,
}

impl Draw {
    /// Starts with a sample; `seed` seeds the random numbers.
    pub fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed).u64(..);
        Self { left: AtomicU64::new(0), rate: AtomicU32::new(0), random: AtomicU64::new(random) }
    }

    /// Returns the rate for which the next sample was drawn.
    pub fn rate(&self) -> u32 {
        self.rate.load(Relaxed)
    }

    fn draw(&self, rate: u32) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.random.load(Relaxed));
        let skipped = skip(rate, random.f64());
        self.random.store(random.get_seed(), Relaxed);
        skipped
    }

    /// Returns whether one of the next `packets` packets is a sample; if not, skips them.
    pub fn picks(&self, packets: u64, rate: u32) -> bool {
        let mut left = self.left.load(Relaxed);
        if self.rate.load(Relaxed) != rate {
            // Draw again at the new rate: the probability of each packet is independent of the past.
            left = self.draw(rate);
            self.rate.store(rate, Relaxed);
        }
        let picks = left < packets;
        self.left.store(if picks { left } else { left - packets }, Relaxed);
        picks
    }

    /// Calls `f` with the index of each sample among `packets`, after [`picks`](Self::picks) returned true.
    pub fn samples(&self, packets: u64, mut f: impl FnMut(usize)) {
        let rate = self.rate.load(Relaxed);
        let mut at = self.left.load(Relaxed);
        while at < packets {
            f(at as usize);
            at = at.saturating_add(1).saturating_add(self.draw(rate));
        }
        self.left.store(at - packets, Relaxed);
    }
}

#[cfg(test)]
mod tests;
