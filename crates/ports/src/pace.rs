//! Limit on the control plane's time that the clients of a port may take.
//!
//! Reading a message takes little; stopping or starting rings makes a new picture of the whole bridge and waits for
//! every worker. A client could ask for either as fast as it can write. So each port has an account, kept from one
//! connection to the next: work for it is charged as messages, and while the account is overdrawn beyond its advance,
//! its socket is not read. A client that floods its port delays only itself.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Default rate, messages a second: as many as 100 restarts of rings.
pub(crate) const DEFAULT_RATE: u32 = 1600;
/// Time whose messages are given in advance: at the default rate, a guest that starts 64 queue pairs takes half of it.
const ADVANCE: Duration = Duration::from_secs(10);

/// Price of a message.
pub(crate) const MESSAGE: u32 = 1;
/// Price of starting or stopping rings, in messages.
pub(crate) const CHANGE: u32 = 8;
/// Price of accepting a connection, in messages.
pub(crate) const CONNECTION: u32 = 16;

/// A port's account: the time up to which its work is paid for. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: u32,
    /// Time that a message costs.
    unit: Duration,
    charged: Mutex<Instant>,
}

impl Pace {
    /// Makes an account with this many messages a second.
    pub(crate) fn new(rate: u32) -> Self {
        let now = Instant::now();
        let charged = Mutex::new(now.checked_sub(ADVANCE).unwrap_or(now));
        Self { rate, unit: Duration::from_secs(1) / rate.max(1), charged }
    }

    /// Returns the rate, messages a second.
    pub(crate) fn rate(&self) -> u32 {
        self.rate
    }

    /// Charges work worth this many messages.
    pub(crate) fn spend(&self, messages: u32) {
        self.spend_at(Instant::now(), messages);
    }

    /// Returns the time until more work is allowed; `None` if it is allowed now.
    pub(crate) fn wait(&self) -> Option<Duration> {
        Some(self.wait_at(Instant::now())).filter(|wait| !wait.is_zero())
    }

    fn spend_at(&self, now: Instant, messages: u32) {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused time does not add up beyond the advance.
        let least = now.checked_sub(ADVANCE).unwrap_or(now);
        *charged = (*charged).max(least) + self.unit * messages;
    }

    fn wait_at(&self, now: Instant) -> Duration {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advance_then_a_trickle() {
        let pace = Pace::new(DEFAULT_RATE);
        let start = Instant::now();
        let restarts = |now: Instant| {
            let mut count = 0;
            while pace.wait_at(now).is_zero() {
                pace.spend_at(now, 2 * CHANGE);
                count += 1;
            }
            count
        };
        let at_once = restarts(start);
        assert!((990..=1010).contains(&at_once), "{at_once}");
        // One charge may overdraw the account.
        assert!(pace.wait_at(start) <= Duration::from_secs(1) / DEFAULT_RATE * 2 * CHANGE);
        let second = restarts(start + Duration::from_secs(1));
        assert!((99..=101).contains(&second), "{second}");
    }

    #[test]
    fn a_day_of_silence_is_worth_no_more_than_the_advance() {
        let pace = Pace::new(100);
        let later = Instant::now() + Duration::from_secs(86_400);
        pace.spend_at(later, 1);
        let mut spent = 1;
        while pace.wait_at(later).is_zero() {
            pace.spend_at(later, 10);
            spent += 10;
        }
        assert!((1000..=1020).contains(&spent), "{spent}");
    }
}
