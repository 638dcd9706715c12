//! Moderation: under a light but steady load, a worker rests between rounds, as a network card moderates interrupts.
//!
//! To poll costs a core however little there is to do, and a signal for every few packets costs their sender a system
//! call and the worker a wake-up. So if some packets come within the time of a rest ([`Pace::rest`]) and keep the
//! worker busy for a small part of the time, the worker lets them gather: once its queues are dry it blocks that long,
//! their senders told nothing, and takes what came as one batch. Fewer packets are taken at once, since their senders
//! may wait for answers, and at more load the worker polls; there, latency counts and there is no core to save.
//!
//! Invariant: a worker rests only between rounds, when no task is lent.

use rustix::thread::{Timespec, nanosleep};

use crate::clock;
use crate::worker::run::Pace;

/// Packets that come in a rest on average, at least.
const FEWEST: u64 = 20;
/// The same at most. Half of the smallest rings in use have room for so many.
const MOST: u64 = 160;

/// Percentages of the time for which packets keep a worker busy: at most so many for a polling worker to begin to rest,
/// and for a resting one to go on. One that polls takes the same packets in smaller batches, at several times the cost.
const BUSY_POLLING: u64 = 60;
const BUSY_RESTING: u64 = 12;

/// Rests' times over which the load is measured.
const WINDOW: u64 = 8;
/// Windows in a row after which a light load is steady: senders that pause now and then have such windows, too.
const STEADY: u32 = 4;

/// A rest that took so many times as long as it should was not one: the machine has coarse timers, or other work. Packets
/// would be lost in full rings.
const OVERSLEPT: u64 = 8;
/// Rests' times for which the worker does not rest after that.
const PAUSE: u64 = 400;

/// The load of a worker. See the module.
pub(crate) struct Moderation {
    /// Cycles of a rest; 0: never rests.
    rest: u64,
    /// When the present window began, and what it has seen.
    since: u64,
    packets: u64,
    busy: u64,
    /// Light windows in a row before this one.
    light: u32,
    /// Packets since the last rest, or since the queues were dry and the worker polled on.
    gathered: u64,
    /// Until when the worker does not rest, whatever the load.
    paused: u64,
}

impl Moderation {
    pub(crate) fn new(pace: &Pace) -> Self {
        let rest = if pace.poll_forever { 0 } else { clock::from_duration(pace.rest) };
        Self { rest, since: 0, packets: 0, busy: 0, light: 0, gathered: 0, paused: 0 }
    }

    /// Counts packets of a task's run, and the cycles spent on them.
    #[inline]
    pub(crate) fn count(&mut self, packets: usize, cycles: u64) {
        self.packets += packets as u64;
        self.gathered += packets as u64;
        self.busy += cycles;
    }

    /// Whether a worker whose queues are dry rests now.
    #[inline]
    pub(crate) fn rests(&mut self, now: u64) -> bool {
        let elapsed = now.wrapping_sub(self.since);
        if elapsed > WINDOW * self.rest {
            self.end_window(elapsed);
            (self.since, self.packets, self.busy) = (now, 0, 0);
        }
        let may_rest = self.is_steady() && now >= self.paused;
        if may_rest && self.gathered <= 2 * MOST {
            return true;
        }
        if may_rest {
            // The load has grown within a rest.
            self.light = 0;
        }
        self.gathered = 0;
        false
    }

    fn is_steady(&self) -> bool {
        self.light >= STEADY
    }

    fn end_window(&mut self, elapsed: u64) {
        let most = if self.is_steady() { BUSY_RESTING } else { BUSY_POLLING };
        let idle = self.busy.saturating_mul(100) <= elapsed.saturating_mul(most);
        let a_rest = self.packets.saturating_mul(self.rest) / elapsed.max(1);
        let light = self.rest > 0 && idle && (FEWEST..=MOST).contains(&a_rest);
        self.light = if light { self.light.saturating_add(1) } else { 0 };
    }

    /// Blocks for a rest, or until `due` if a task waits for that time.
    pub(crate) fn rest(&mut self, now: u64, due: Option<u64>) {
        let left = clock::to_duration(self.time_left(now, due));
        // Not in epoll, whose timeout has milliseconds on kernels before 5.11. Interrupted, it ends early.
        let _ = nanosleep(&Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        self.rested(now, clock::cycles());
    }

    fn time_left(&self, now: u64, due: Option<u64>) -> u64 {
        due.map_or(self.rest, |due| due.saturating_sub(now).min(self.rest))
    }

    fn rested(&mut self, began: u64, now: u64) {
        self.gathered = 0;
        if now.wrapping_sub(began) > OVERSLEPT * self.rest {
            (self.light, self.paused) = (0, now.saturating_add(PAUSE * self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const REST: Duration = Duration::from_micros(60);

    fn pace() -> Pace {
        Pace { rest: REST, ..Pace::default() }
    }

    /// A worker under a load, as it polls and rests.
    struct Worker {
        load: Moderation,
        now: u64,
    }

    impl Worker {
        fn new(pace: Pace) -> Self {
            Self { load: Moderation::new(&pace), now: 1 }
        }

        /// Whether it rests after packets have come every `gap` nanoseconds for some windows, each of which costs
        /// `polling` nanoseconds while it polls and `resting` while it rests.
        fn under(&mut self, gap: u64, polling: u64, resting: u64) -> bool {
            let [gap, polling, resting] =
                [gap, polling, resting].map(|nanos| clock::from_duration(Duration::from_nanos(nanos)));
            let (end, mut rests) = (self.now + clock::from_duration(REST) * WINDOW * 10, false);
            while self.now < end {
                let came = if rests { self.load.rest / gap } else { 1 };
                if rests {
                    self.load.rested(self.now, self.now);
                }
                self.load.count(came as usize, came * if rests { resting } else { polling });
                self.now += gap * came;
                rests = self.load.rests(self.now);
            }
            rests
        }
    }

    #[test]
    fn only_steady_and_light_load_is_moderated() {
        let rests = |pace, gap, polling, resting| Worker::new(pace).under(gap, polling, resting);
        assert!(rests(pace(), 1000, 300, 50), "a million packets a second, a twentieth of the time");
        assert!(!rests(pace(), 1000, 700, 50), "two thirds of the time");
        assert!(!rests(pace(), 20_000, 300, 50), "as rare as requests that wait for answers");
        assert!(!rests(pace(), 300, 100, 20), "more than rings may have room for");
        assert!(!rests(Pace { rest: Duration::ZERO, ..pace() }, 1000, 300, 50), "turned off");
        assert!(!rests(Pace { poll_forever: true, ..pace() }, 1000, 300, 50), "polling was asked for");
    }

    #[test]
    fn a_load_that_grows_ends_rests() {
        let mut worker = Worker::new(pace());
        assert!(worker.under(1000, 300, 50));
        assert!(!worker.under(1000, 700, 300));
        assert!(worker.under(1000, 300, 50));
        worker.load.count(2 * MOST as usize + 1, 0);
        assert!(!worker.load.rests(worker.now), "a burst");
    }

    #[test]
    fn one_light_window_is_no_steady_load() {
        let mut worker = Worker::new(pace());
        let rest = clock::from_duration(REST);
        for i in 0..10 * WINDOW {
            // Every other window is busy.
            worker.load.count(50, if (i / WINDOW).is_multiple_of(2) { rest / 10 } else { rest });
            worker.now += rest;
            assert!(!worker.load.rests(worker.now));
        }
    }

    #[test]
    fn a_rest_ends_when_a_task_is_due() {
        let load = Moderation::new(&pace());
        let rest = clock::from_duration(REST);
        assert_eq!(load.time_left(1000, None), rest);
        assert_eq!(load.time_left(1000, Some(u64::MAX)), rest);
        assert_eq!(load.time_left(1000, Some(900)), 0);
        assert_eq!(load.time_left(1000, Some(1000 + rest / 2)), rest / 2);
    }

    #[test]
    fn a_worker_that_overslept_does_not_rest_for_a_while() {
        let mut worker = Worker::new(pace());
        let rest = clock::from_duration(REST);
        assert!(worker.under(1000, 300, 50));
        worker.load.rested(worker.now - 2 * rest, worker.now);
        assert!(worker.load.rests(worker.now), "a little late");
        worker.load.rested(worker.now - 9 * rest, worker.now);
        assert!(!worker.load.rests(worker.now));
        assert!(!worker.under(1000, 300, 50));
        for _ in 0..5 {
            worker.under(1000, 300, 50);
        }
        assert!(worker.under(1000, 300, 50));
    }
}
