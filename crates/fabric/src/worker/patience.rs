//! Patience: the time for which a worker whose queues have all run dry polls on after a dense load.
//!
//! Under such a load a pause is most likely short: the sender has lost its CPU for a moment. To sleep through the pause
//! saves little, and the packets behind it wait for the wake-up, in a virtual machine for tens of microseconds. So a
//! worker that had [more than a light load](crate::worker::moderation) polls through pauses, for as long in all as it
//! was busy with that load: it never takes more than twice the time that it needs.
//!
//! Invariant: time polled through pauses is spent once, and only time in which packets were switched is earned.

use crate::clock;
use crate::worker::run::Pace;

/// The most that is earned, in [longest rests](Pace::rest): 8 ms with rests of 60 us.
const MOST: u64 = 128;

/// Patience of a worker, in cycles. See the module.
pub(crate) struct Patience {
    /// Time for which dry queues are polled in any case.
    linger: u64,
    most: u64,
    earned: u64,
    /// When packets came last.
    last: u64,
}

impl Patience {
    pub(crate) fn new(pace: &Pace) -> Self {
        let most = clock::from_duration(pace.rest).saturating_mul(MOST);
        Self { linger: clock::from_duration(pace.linger), most, earned: 0, last: 0 }
    }

    /// Earns the cycles that a dense load has kept the worker busy.
    pub(crate) fn earn(&mut self, busy: u64) {
        self.earned = self.earned.saturating_add(busy).min(self.most);
    }

    /// Packets came, and were switched by `now` in so many cycles: spends the pause before them.
    #[inline]
    pub(crate) fn packets_came(&mut self, now: u64, cycles: u64) {
        let pause = now.saturating_sub(self.last).saturating_sub(cycles);
        if pause > self.linger {
            self.earned = self.earned.saturating_sub(pause - self.linger);
        }
        self.last = now;
    }

    /// Whether dry queues are polled on, although none of the worker's has had a packet for the usual time.
    #[inline]
    pub(crate) fn polls_on(&self, now: u64) -> bool {
        let pause = now.saturating_sub(self.last);
        pause > self.linger && pause - self.linger <= self.earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: u64 = 20;

    fn patience() -> Patience {
        Patience { linger: LINGER, most: 1000, earned: 0, last: 0 }
    }

    #[test]
    fn pauses_are_polled_through_for_as_long_as_the_worker_was_busy() {
        let mut patience = patience();
        patience.packets_came(100, 10);
        assert!(!patience.polls_on(100 + LINGER + 1), "nothing is earned");
        patience.earn(300);
        assert!(!patience.polls_on(100 + LINGER), "another queue may have had packets just now");
        assert!(patience.polls_on(100 + LINGER + 1));
        assert!(patience.polls_on(100 + LINGER + 300));
        assert!(!patience.polls_on(100 + LINGER + 301));
        // A pause of 200, and 30 cycles for the packets behind it.
        patience.packets_came(100 + LINGER + 230, 30);
        assert_eq!(patience.earned, 100);
        // Pauses within the usual time cost nothing; one through which the worker slept costs all.
        patience.packets_came(patience.last + LINGER, 0);
        assert_eq!(patience.earned, 100);
        patience.packets_came(patience.last + 5000, 0);
        assert_eq!(patience.earned, 0);
    }

    #[test]
    fn no_more_is_earned_than_the_most() {
        let mut patience = patience();
        (0..5).for_each(|_| patience.earn(700));
        assert_eq!(patience.earned, 1000);
        patience.earn(u64::MAX);
        assert_eq!(patience.earned, 1000);
    }
}
