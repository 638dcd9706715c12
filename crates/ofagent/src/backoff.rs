//! Exponential back-off between attempts to connect.
//!
//! Invariant: a delay is never shorter than the shortest, nor longer than the longest.

use std::time::Duration;

/// Delays that double from the shortest to the longest.
#[derive(Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Backoff { least, most: most.max(least), next: least }
    }

    /// Returns the delay before the next attempt. A connection that lasted at least as long as that delay starts the
    /// delays again; a peer that accepts and closes at once does not.
    pub(crate) fn after(&mut self, lasted: Option<Duration>) -> Duration {
        if lasted.is_some_and(|lasted| lasted >= self.next) {
            self.next = self.least;
        }
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.most);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_a_connection_lasts() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(8));
        let delays: Vec<u64> = (0..6).map(|_| backoff.after(None).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 8, 8]);
        assert_eq!(backoff.after(Some(seconds(7))), seconds(8));
        assert_eq!(backoff.after(Some(seconds(8))), seconds(1));
        assert_eq!(backoff.after(None), seconds(2));
    }
}
