//! How much of the control plane's time the front-ends of a port may take.
//!
//! Reading a message takes little; stopping or starting rings makes a new picture of the whole bridge and waits for
//! every worker. A front-end could ask for either as fast as it can write. So each port has an account, kept from one
//! connection to the next: what is done for it is charged as time, and while it has charged more than it was given in
//! advance its socket is not read. Whoever floods a port waits for nobody but himself, and others do not wait for him.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What one unit of work is charged as: 1,600 messages a second, or 100 restarts of rings.
const UNIT: Duration = Duration::from_micros(625);
/// What a port is given in advance: a guest that starts 64 queue pairs takes half of it.
const ADVANCE: Duration = Duration::from_secs(10);

/// A message that was read.
pub(super) const MESSAGE: u32 = 1;
/// Rings that were stopped, or started.
pub(super) const CHANGE: u32 = 8;
/// A connection that was accepted.
pub(super) const CONNECTION: u32 = 16;

/// A port's account: the time up to which its work is paid for. See the module.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Instant>);

impl Default for Pace {
    fn default() -> Self {
        let now = Instant::now();
        Pace(Mutex::new(now.checked_sub(ADVANCE).unwrap_or(now)))
    }
}

impl Pace {
    /// Charges so much work.
    pub(super) fn spend(&self, units: u32) {
        self.spend_at(Instant::now(), units);
    }

    /// Waits until there is time for more.
    pub(super) async fn room(&self) {
        let wait = self.wait_at(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn spend_at(&self, now: Instant, units: u32) {
        let mut charged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What was not used does not add up beyond the advance.
        let least = now.checked_sub(ADVANCE).unwrap_or(now);
        *charged = (*charged).max(least) + UNIT * units;
    }

    fn wait_at(&self, now: Instant) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advance_then_a_trickle() {
        let pace = Pace::default();
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
        // One is allowed to overdraw.
        assert!(pace.wait_at(start) <= 2 * CHANGE * UNIT);
        let second = restarts(start + Duration::from_secs(1));
        assert!((99..=101).contains(&second), "{second}");
    }

    #[test]
    fn a_day_of_silence_is_worth_no_more_than_the_advance() {
        let pace = Pace::default();
        let later = Instant::now() + Duration::from_secs(86_400);
        pace.spend_at(later, 1);
        let mut spent = 1;
        while pace.wait_at(later).is_zero() {
            pace.spend_at(later, 100);
            spent += 100;
        }
        assert!((15_900..=16_200).contains(&spent), "{spent}");
    }
}
