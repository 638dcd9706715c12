//! Limit of log lines whose pace others set, such as the partner of a link aggregation.

/// Lines at once at most, after a pause.
const BURST: u64 = 100;
/// Time after which another line is allowed, milliseconds.
const INTERVAL: u64 = 6_000;

/// Lines that may still be written.
#[derive(Debug)]
pub(crate) struct LineLimit {
    left: u64,
    /// When the last line was added to those left, milliseconds.
    since: u64,
    left_out: u64,
}

impl Default for LineLimit {
    fn default() -> Self {
        LineLimit { left: BURST, since: 0, left_out: 0 }
    }
}

impl LineLimit {
    /// Asks for a line at a time in milliseconds. Returns how many were left out before it; `None`: it is left out, too.
    pub(crate) fn take(&mut self, now: u64) -> Option<u64> {
        let more = now.saturating_sub(self.since) / INTERVAL;
        if self.left + more >= BURST {
            (self.left, self.since) = (BURST, now);
        } else {
            (self.left, self.since) = (self.left + more, self.since + more * INTERVAL);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_a_burst_are_counted() {
        let mut limit = LineLimit::default();
        let now = 1_000_000;
        assert!((0..BURST).all(|_| limit.take(now) == Some(0)));
        assert_eq!((limit.take(now), limit.take(now + INTERVAL - 1)), (None, None));
        assert_eq!(limit.take(now + INTERVAL), Some(2));
        assert_eq!(limit.take(now + INTERVAL), None);
        assert!((0..BURST).all(|_| limit.take(now + 1000 * INTERVAL).is_some()));
        assert_eq!(limit.take(now + 1000 * INTERVAL), None);
    }
}
