//! Limit on log lines that clients cause.
//!
//! A client that connects, is refused or leaves causes a line, and could do so a thousand times a second. Each port has
//! a [`LogLimit`]: it admits some lines at once, then one now and then with the number of lines left out.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines admitted at once.
const BURST: u32 = 10;

/// Interval of further lines.
const REFILL: Duration = Duration::from_secs(6);

/// Limit on a port's log lines. See the module's documentation.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    lines: u32,
    refilled: Instant,
    suppressed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self(Mutex::new(Bucket { lines: BURST, refilled: Instant::now(), suppressed: 0 }))
    }
}

/// A line that may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Lines left out since the last one written; for the line's field `suppressed`.
    pub(crate) suppressed: Option<u64>,
}

impl LogLimit {
    /// Admits a line, or counts it as left out.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<Admitted> {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while bucket.lines < BURST && now.saturating_duration_since(bucket.refilled) >= REFILL {
            bucket.lines += 1;
            bucket.refilled += REFILL;
        }
        if bucket.lines == BURST {
            bucket.refilled = now;
        }
        if bucket.lines == 0 {
            bucket.suppressed += 1;
            return None;
        }
        bucket.lines -= 1;
        let suppressed = std::mem::take(&mut bucket.suppressed);
        Some(Admitted { suppressed: (suppressed > 0).then_some(suppressed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_trickle_that_counts_the_lines_left_out() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let admitted = (0..1000).filter(|_| limit.admit_at(start).is_some()).count();
        assert_eq!(admitted, BURST as usize);
        let later = start + REFILL;
        assert_eq!(limit.admit_at(later), Some(Admitted { suppressed: Some(1000 - u64::from(BURST)) }));
        assert_eq!(limit.admit_at(later), None);
        assert_eq!(limit.admit_at(later + REFILL), Some(Admitted { suppressed: Some(1) }));
        assert_eq!(limit.admit_at(later + 3 * REFILL), Some(Admitted { suppressed: None }));
    }

    #[test]
    fn silence_refills_it() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        for _ in 0..50 {
            limit.admit_at(start);
        }
        let later = start + Duration::from_secs(86_400);
        let admitted = (0..1000).filter(|_| limit.admit_at(later).is_some()).count();
        assert_eq!(admitted, BURST as usize);
    }
}
