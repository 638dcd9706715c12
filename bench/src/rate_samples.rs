//! Samples of a rate: packets received in each tenth of a second.
//!
//! An average over a short run depends on the machine as much as on the switch: a pause of a thread lowers it. The
//! median of the tenths is the rate while the thread ran.

use std::time::{Duration, Instant};

/// Minimum length of a sample.
const SAMPLE: Duration = Duration::from_millis(100);

/// Rates of several directions, sample by sample.
#[derive(Debug)]
pub(crate) struct RateSamples {
    since: Instant,
    before: Vec<u64>,
    /// Packets per second, by direction.
    parts: Vec<Vec<f64>>,
}

impl RateSamples {
    /// Starts with no arrivals.
    pub(crate) fn new(now: Instant, directions: usize) -> RateSamples {
        RateSamples { since: now, before: vec![0; directions], parts: vec![Vec::new(); directions] }
    }

    /// Whether the next sample is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= SAMPLE
    }

    /// Records the number of packets received so far, by direction.
    pub(crate) fn note(&mut self, now: Instant, received: &[u64]) {
        let seconds = now.duration_since(self.since).as_secs_f64();
        for ((parts, before), received) in self.parts.iter_mut().zip(&mut self.before).zip(received) {
            parts.push(received.saturating_sub(*before) as f64 / seconds.max(1e-9));
            *before = *received;
        }
        self.since = now;
    }

    /// Returns the median of a direction's samples; 0 without samples.
    pub(crate) fn median(&self, direction: usize) -> f64 {
        let mut parts = self.parts.get(direction).cloned().unwrap_or_default();
        parts.sort_by(f64::total_cmp);
        parts.get(parts.len() / 2).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lowers_one_sample_only() {
        let start = Instant::now();
        let mut samples = RateSamples::new(start, 2);
        assert!(!samples.is_due(start + SAMPLE / 2) && samples.is_due(start + SAMPLE));
        // Samples of 100 packets, except one of 20 that takes five times as long.
        for (tenths, received) in [(1, 100), (2, 200), (7, 220), (8, 320)] {
            samples.note(start + tenths * SAMPLE, &[received, 0]);
        }
        assert!((samples.median(0) - 1000.0).abs() < 1.0, "{samples:?}");
        assert_eq!((samples.median(1), samples.median(2)), (0.0, 0.0));
    }
}
