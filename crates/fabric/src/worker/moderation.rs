//! Moderation: under a light but steady load, a worker rests between rounds, as a network card moderates interrupts.
//!
//! To poll costs a core however little there is to do, and a signal for every few packets costs their sender a system
//! call and the worker a wake-up. So if several packets come within the time of a rest ([`Pace::rest`]) and keep the
//! worker busy for a small part of the time, the worker lets them gather: once its queues are dry it blocks that long,
//! their senders told nothing, and takes what came as one batch. Fewer packets are taken at once, since their senders
//! may wait for answers, and at more load the worker polls; there, latency counts and there is no core to save.
//!
//! Invariant: a worker rests only between rounds, when no task is lent.

use rustix::event::Timespec;

use crate::clock;
use crate::worker::run::Pace;

/// Packets that come in a rest on average, at least.
const GATHERED: u64 = 8;

/// Share of the time for which packets keep a worker that rests busy, at most one in so many. A worker that polls takes
/// the same packets in smaller batches, so it is busier than after it has begun to rest: it does not alternate.
const BUSY_SHARE: u64 = 4;

/// Rests' times over which the load is measured.
const WINDOW: u64 = 8;

/// The load of a worker. See the module.
pub(crate) struct Moderation {
    /// Cycles of a rest; 0: never rests.
    rest: u64,
    /// When the present window began, and what it has seen.
    since: u64,
    packets: u64,
    busy: u64,
    /// Whether the previous window was light and steady.
    steady: bool,
}

impl Moderation {
    pub(crate) fn new(pace: &Pace) -> Self {
        let rest = if pace.poll_forever { 0 } else { clock::from_duration(pace.rest) };
        Self { rest, since: 0, packets: 0, busy: 0, steady: false }
    }

    /// Counts packets of a task's run, and the cycles spent on them.
    #[inline]
    pub(crate) fn count(&mut self, packets: usize, cycles: u64) {
        self.packets += packets as u64;
        self.busy += cycles;
    }

    /// Whether a worker whose queues are dry rests now.
    #[inline]
    pub(crate) fn rests(&mut self, now: u64) -> bool {
        let elapsed = now.wrapping_sub(self.since);
        if elapsed > WINDOW * self.rest {
            let many = self.packets.saturating_mul(self.rest) >= GATHERED.saturating_mul(elapsed);
            let light = self.busy.saturating_mul(BUSY_SHARE) <= elapsed;
            self.steady = self.rest > 0 && many && light;
            (self.since, self.packets, self.busy) = (now, 0, 0);
        }
        self.steady
    }

    /// The longest time to block: a rest, or until `due` if a task waits for that time.
    pub(crate) fn timeout(&self, now: u64, due: Option<u64>) -> Timespec {
        let left = due.map_or(self.rest, |due| due.saturating_sub(now).min(self.rest));
        let left = clock::to_duration(left);
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const REST: Duration = Duration::from_micros(25);

    /// Whether a worker rests after packets of `cost` have come every `gap` for ten windows, one a round.
    fn rests(pace: Pace, gap: Duration, cost: Duration) -> bool {
        let (mut load, gap, cost) =
            (Moderation::new(&pace), clock::from_duration(gap), clock::from_duration(cost));
        let end = clock::from_duration(REST) * WINDOW * 10;
        let (mut now, mut rests) = (1, false);
        while now < end {
            load.count(1, cost);
            now += gap;
            rests = load.rests(now);
        }
        rests
    }

    #[test]
    fn only_steady_and_light_load_is_moderated() {
        let (pace, micros, nanos) =
            (Pace { rest: REST, ..Pace::default() }, Duration::from_micros, Duration::from_nanos);
        assert!(rests(pace, micros(1), nanos(100)), "a million packets a second, a tenth of the time");
        assert!(!rests(pace, micros(1), nanos(500)), "half of the time");
        assert!(!rests(pace, micros(20), nanos(100)), "as rare as requests that wait for answers");
        assert!(!rests(Pace { rest: Duration::ZERO, ..pace }, micros(1), nanos(100)), "turned off");
        assert!(!rests(Pace { poll_forever: true, ..pace }, micros(1), nanos(100)), "polling was asked for");
    }

    #[test]
    fn a_rest_ends_when_a_task_is_due() {
        let load = Moderation::new(&Pace { rest: REST, ..Pace::default() });
        let nanos = |due: Option<u64>| load.timeout(1000, due).tv_nsec;
        let whole = nanos(None);
        assert!((24_900..=25_000).contains(&whole), "{whole}");
        assert_eq!(nanos(Some(u64::MAX)), whole);
        assert_eq!(nanos(Some(900)), 0);
        assert!(nanos(Some(1000 + clock::from_duration(REST) / 2)) < whole);
    }
}
