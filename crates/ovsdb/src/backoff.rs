//! Exponential back-off between attempts to connect.

use std::time::Duration;

/// Delays that double from the shortest to the longest.
#[derive(Debug)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest: longest.max(shortest), next: shortest }
    }

    /// Returns the delay before the next attempt.
    pub(crate) fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.longest);
        delay
    }

    /// Starts again with the shortest delay, after a connection that was useful.
    pub(crate) fn reset(&mut self) {
        self.next = self.shortest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let delays: Vec<_> = (0..4).map(|_| backoff.delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.delay().as_millis(), 100);
    }
}
