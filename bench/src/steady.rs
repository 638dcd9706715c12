//! How steady a rate was: what arrived in each tenth of a second.
//!
//! An average over a short run says as much about the machine as about the switch: a thread that did not run for a while lowers
//! it. Half of the tenths say what the rate was when it ran.

use std::time::{Duration, Instant};

/// How long each part is, at least.
const PART: Duration = Duration::from_millis(100);

/// Rates of some directions, part by part.
#[derive(Debug)]
pub(crate) struct Steady {
    since: Instant,
    before: Vec<u64>,
    /// Packets a second, by direction.
    parts: Vec<Vec<f64>>,
}

impl Steady {
    /// Nothing has arrived yet.
    pub(crate) fn new(now: Instant, directions: usize) -> Steady {
        Steady { since: now, before: vec![0; directions], parts: vec![Vec::new(); directions] }
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= PART
    }

    /// So many packets have arrived by now, by direction.
    pub(crate) fn note(&mut self, now: Instant, received: &[u64]) {
        let seconds = now.duration_since(self.since).as_secs_f64();
        for ((parts, before), received) in self.parts.iter_mut().zip(&mut self.before).zip(received) {
            parts.push(received.saturating_sub(*before) as f64 / seconds.max(1e-9));
            *before = *received;
        }
        self.since = now;
    }

    /// The rate that half of the parts had at least; 0 if there was none.
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
    fn a_pause_lowers_one_part_only() {
        let start = Instant::now();
        let mut steady = Steady::new(start, 2);
        assert!(!steady.is_due(start + PART / 2) && steady.is_due(start + PART));
        // Tenths of 100 packets, but for one that lasted five times as long.
        for (tenths, received) in [(1, 100), (2, 200), (7, 220), (8, 320)] {
            steady.note(start + tenths * PART, &[received, 0]);
        }
        assert!((steady.median(0) - 1000.0).abs() < 1.0, "{steady:?}");
        assert_eq!((steady.median(1), steady.median(2)), (0.0, 0.0));
    }
}
