//! Moderation: under a light but steady load, a worker rests between rounds, as a network card moderates interrupts.
//!
//! To poll costs a core however little there is to do, and a signal for every few packets costs their sender a system
//! call and the worker a wake-up. So if some packets come within the time of a rest ([`Pace::rest`]) and keep the
//! worker busy for a small part of the time, the worker lets them gather: once its queues are dry it blocks that long,
//! their senders told nothing, and takes what came as one batch. Fewer packets are taken at once, since their senders
//! may wait for answers, and at more load the worker polls; there, latency counts and there is no core to save. The
//! more packets come, the shorter are rests: a batch of [`GATHER`] is as cheap as a larger one. After such rests that
//! more load soon ended, the worker polls for longer before the next ones ([`STEADIEST`]). Where a rest itself takes
//! much CPU time, as in virtual machines whose timers are emulated, rests are longer ([`WORTH`]). The smallest ring that
//! packets come from or go to bounds how many may gather ([`most_of`]). More than a light load earns the worker
//! [patience](crate::worker::patience) with its pauses.
//!
//! Invariant: a worker rests only between rounds, when no task is lent.

use std::time::Duration;

use rustix::thread::{Timespec, nanosleep};
use rustix::time::{ClockId, clock_gettime};

use crate::clock;
use crate::worker::patience::Patience;
use crate::worker::run::Pace;

/// Packets that come in a rest on average, at least.
const FEWEST: u64 = 20;
/// The same at most: two million a second with rests of 60 us. More may be a tenth of what a worker can forward, or half
/// of what its clients can send, which it cannot tell; there, latency counts.
const MOST: u64 = 120;
/// The same if the smallest ring has so many entries, one for each packet: it has room for twice as many.
fn most_of(ring: u64) -> u64 {
    (ring * 15 / 32).min(MOST)
}
/// A smaller or larger ring counts as one of so many entries: a client's own ring of a few entries is no reason to poll,
/// and the packets of a rest are to stay in the caches.
const SMALLEST_RING: u64 = 128;
const LARGEST_RING: u64 = 1024;

/// A rest is shortened to the time in which so many packets come, as far as its cost permits ([`WORTH`]).
const GATHER: u64 = 64;

/// A rest takes at least so many times the CPU time that it costs, but not longer than ten thirds of [`Pace::rest`],
/// since packets wait for its end, nor longer than it takes [`fitting`] packets to come.
const WORTH: u64 = 5;

/// Packets that may come in a rest that is longer for its cost: they and those of the wake-up fit into the smallest ring.
fn fitting(ring: u64) -> u64 {
    ring * 5 / 12
}

/// Percentages of the time for which packets keep a worker busy: at most so many for a polling worker to begin to rest,
/// and for a resting one to go on. One that polls takes the same packets in smaller batches, at several times the cost,
/// so it also begins to rest if its packets would keep it busy for at most [`BUSY_RESTING`] at the cost of those in
/// [`DENSE`] batches.
const BUSY_POLLING: u64 = 60;
const BUSY_RESTING: u64 = 12;
/// Packets of a batch, on average over a window, from which on each costs as much as in a batch after a rest.
const DENSE: u64 = 16;

/// Rests' times over which the load is measured.
const WINDOW: u64 = 8;
/// Windows in a row after which a light load is steady: senders that pause now and then have such windows, too.
const STEADY: u32 = 4;
/// Factor by which a worker waits for longer after rests with many packets that more load soon ended, and the longest
/// wait, in windows. A load at the limit would have it rest and poll by turns, and a packet in a hundred would wait for
/// the end of a rest. After so many windows the wait is shorter again by that factor.
const LONGER: u32 = 4;
const STEADIEST: u32 = 512;

/// A rest that took so many times as long as the usual one is too long: the machine has coarse timers, or other work.
/// Packets would be lost in full rings.
const OVERSLEPT: u64 = 8;
/// Rests' times for which the worker does not rest after that. It is [`LONGER`] times as long each time, up to the
/// longest, since with coarse timers every rest is like that; and the shortest again after so many rests in time, since
/// the next one has come by chance then: a host that is busy makes one in a hundred too long.
const PAUSE: u64 = 25;
const LONGEST_PAUSE: u64 = 400;
const IN_TIME: u32 = 50;

/// The load of a worker. See the module.
pub(crate) struct Moderation {
    /// Cycles of the usual longest rest; 0: never rests.
    rest: u64,
    /// CPU time of a rest in cycles, on average, and whether that of the next one is measured.
    cost: u64,
    weighs: bool,
    /// Cycles of a rest under the present load, and packets that come in a usual one: both of the last window.
    length: u64,
    a_rest: u64,
    /// When the present window began, and what it has seen.
    since: u64,
    packets: u64,
    batches: u64,
    busy: u64,
    /// Cycles of a thousand packets in dense batches; 0: none yet.
    dense: u64,
    /// Entries of the smallest ring that packets have come from or gone to: in this window so far; and, unless this one
    /// has been smaller, in the last.
    ring: u64,
    smallest: u64,
    /// Whether the worker rests in it.
    resting: bool,
    /// Windows with rests before this one, since it began to rest.
    rested: u32,
    /// Light windows in a row before this one.
    light: u32,
    /// Light windows in a row after which the worker rests, and windows since that number changed.
    steady: u32,
    unchanged: u32,
    /// Packets since the last rest, or since the queues were dry and the worker polled on.
    gathered: u64,
    /// Until when the worker does not rest, whatever the load.
    paused: u64,
    /// Rests' times for which it will not after the next rest that is too long, and rests in time since the last one.
    pause: u64,
    in_time: u32,
    patience: Patience,
}

impl Moderation {
    pub(crate) fn new(pace: &Pace) -> Self {
        let rest = if pace.poll_forever { 0 } else { clock::from_duration(pace.rest) };
        Self {
            rest,
            cost: 0,
            weighs: false,
            length: rest,
            a_rest: 0,
            since: 0,
            packets: 0,
            batches: 0,
            busy: 0,
            dense: 0,
            ring: LARGEST_RING,
            smallest: LARGEST_RING,
            resting: false,
            rested: 0,
            light: 0,
            steady: STEADY,
            unchanged: 0,
            gathered: 0,
            paused: 0,
            pause: PAUSE,
            in_time: 0,
            patience: Patience::new(pace),
        }
    }

    /// Whether dry queues are polled on, although none has had a packet for the usual time.
    #[inline]
    pub(crate) fn polls_on(&self, now: u64) -> bool {
        self.patience.polls_on(now)
    }

    /// Counts packets of a task's run that has just ended, and the cycles spent on them. The smallest ring that they came
    /// from or went to has `ring` entries.
    #[inline]
    pub(crate) fn count(&mut self, packets: usize, ring: u32, cycles: u64, now: u64) {
        if packets > 0 {
            self.patience.packets_came(now, cycles);
            self.ring = self.ring.min(u64::from(ring).max(SMALLEST_RING));
            self.batches += 1;
        }
        self.packets += packets as u64;
        self.gathered += packets as u64;
        self.busy += cycles;
    }

    /// Whether a worker whose queues are dry rests now.
    #[inline]
    pub(crate) fn rests(&mut self, now: u64) -> bool {
        if self.rest == 0 {
            return false;
        }
        let elapsed = now.wrapping_sub(self.since);
        if elapsed > WINDOW * self.rest {
            self.end_window(elapsed);
            (self.since, self.weighs) = (now, true);
            (self.packets, self.batches, self.busy, self.ring) = (0, 0, 0, LARGEST_RING);
            self.resting = self.light >= self.steady && now >= self.paused;
        }
        if self.ring < self.smallest {
            self.smallest = self.ring;
            self.length = self.length.min(self.until(fitting(self.smallest)));
        }
        if self.resting && self.gathered <= 2 * most_of(self.smallest) {
            return true;
        }
        if self.resting {
            // The load has grown within a rest.
            self.end_light(self.a_rest > GATHER);
        }
        self.gathered = 0;
        false
    }

    fn end_window(&mut self, elapsed: u64) {
        let busiest = if self.resting { BUSY_RESTING } else { BUSY_POLLING };
        let within = |busy: u64, most: u64| busy.saturating_mul(100) <= elapsed.saturating_mul(most);
        if self.batches > 0 && self.packets / self.batches >= DENSE {
            // A run in which the thread lost its CPU seems expensive: more is believed step by step.
            let seen = self.busy.saturating_mul(1000) / self.packets;
            self.dense = if self.dense == 0 { seen } else { seen.min(2 * self.dense) };
        }
        let dense = self.packets.saturating_mul(self.dense) / 1000;
        let idle = within(self.busy, busiest)
            || !self.resting
                && dense > 0
                && self.packets < DENSE * self.batches
                && within(dense, BUSY_RESTING);
        let a_rest = self.packets.saturating_mul(self.rest) / elapsed.max(1);
        let was_crowded = self.a_rest > GATHER;
        (self.a_rest, self.smallest) = (a_rest, self.ring);
        if self.resting {
            self.rested = self.rested.saturating_add(1);
        }
        match idle && a_rest <= most_of(self.smallest) {
            true if a_rest >= FEWEST => self.light = self.light.saturating_add(1),
            true => (self.light, self.rested) = (0, 0),
            false => {
                self.end_light(was_crowded);
                // A run in which the thread lost its CPU seems to have kept it busy.
                self.patience.earn(self.busy.min(WINDOW * self.rest));
            }
        }
        let worth = self.cost.saturating_mul(WORTH).min((self.rest / 3).saturating_mul(10));
        let usual = self.until(GATHER).min(self.rest);
        self.length = usual.max(worth).min(self.until(fitting(self.smallest)));
        self.unchanged += 1;
        if self.unchanged >= STEADIEST {
            self.wait_for((self.steady / LONGER).max(STEADY));
        }
    }

    /// Cycles in which so many packets come.
    fn until(&self, packets: u64) -> u64 {
        self.rest.saturating_mul(packets) / self.a_rest.max(1)
    }

    /// The load is more than light now. Rests were `crowded` if more than [`GATHER`] packets came in a usual one.
    fn end_light(&mut self, crowded: bool) {
        // Under fewer packets something held the worker or its senders up, whose packets come at once then.
        if self.resting && crowded && self.rested < self.steady {
            self.wait_for((self.steady * LONGER).min(STEADIEST));
        }
        (self.light, self.rested, self.resting) = (0, 0, false);
    }

    /// Sets the number of light windows in a row after which the worker rests.
    fn wait_for(&mut self, windows: u32) {
        (self.steady, self.unchanged) = (windows, 0);
    }

    /// Blocks for a rest, or until `due` if a task waits for that time.
    pub(crate) fn rest(&mut self, now: u64, due: Option<u64>) {
        let left = self.time_left(now, due);
        // A shorter one might end before it begins.
        let before = (self.weighs && left == self.length).then(cpu_time);
        let left = clock::to_duration(left);
        // Not in epoll, whose timeout has milliseconds on kernels before 5.11. Interrupted, it ends early.
        let _ = nanosleep(&Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        });
        if let Some(before) = before {
            self.weigh(clock::from_duration(cpu_time().saturating_sub(before)));
        }
        self.rested(now, clock::cycles());
    }

    /// A rest took so many cycles of CPU time.
    fn weigh(&mut self, cost: u64) {
        // One that was interrupted, or lost its CPU, does not count for more than it should take.
        (self.cost, self.weighs) = (self.cost - self.cost / 4 + cost.min(self.rest) / 4, false);
    }

    fn time_left(&self, now: u64, due: Option<u64>) -> u64 {
        due.map_or(self.length, |due| due.saturating_sub(now).min(self.length))
    }

    fn rested(&mut self, began: u64, now: u64) {
        self.gathered = 0;
        if now.wrapping_sub(began) > OVERSLEPT * self.rest {
            (self.light, self.rested, self.resting) = (0, 0, false);
            self.paused = now.saturating_add(self.pause * self.rest);
            self.pause = (self.pause * u64::from(LONGER)).min(LONGEST_PAUSE);
            self.in_time = 0;
        } else {
            self.in_time += 1;
            if self.in_time >= IN_TIME {
                (self.pause, self.in_time) = (PAUSE, 0);
            }
        }
    }
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(tv_sec.unsigned_abs(), u32::try_from(tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_micros(60);

    fn pace() -> Pace {
        Pace { rest: REST, ..Pace::default() }
    }

    /// A worker under a load, as it polls and rests.
    struct Worker {
        load: Moderation,
        now: u64,
        /// Entries of its smallest ring.
        ring: u32,
    }

    impl Worker {
        fn new(pace: Pace) -> Self {
            Self { load: Moderation::new(&pace), now: 1, ring: 256 }
        }

        /// Whether it rests after packets have come every `gap` nanoseconds for some windows, each of which costs
        /// `polling` nanoseconds while it polls and `resting` while it rests.
        fn under(&mut self, gap: u64, polling: u64, resting: u64) -> bool {
            self.under_for(10, gap, polling, resting)
        }

        /// The same for so many windows.
        fn under_for(&mut self, windows: u64, gap: u64, polling: u64, resting: u64) -> bool {
            let [gap, polling, resting] =
                [gap, polling, resting].map(|nanos| clock::from_duration(Duration::from_nanos(nanos)));
            let (end, mut rests) = (self.now + clock::from_duration(REST) * WINDOW * windows, false);
            while self.now < end {
                let came = if rests { self.load.length / gap } else { 1 };
                if rests {
                    self.load.rested(self.now, self.now);
                }
                self.load.count(
                    came as usize,
                    self.ring,
                    came * if rests { resting } else { polling },
                    self.now,
                );
                self.now += gap * came;
                rests = self.load.rests(self.now);
            }
            rests
        }

        /// Rests' times until it rests again after a rest that was too long.
        fn oversleeps(&mut self) -> u64 {
            let (rest, began) = (clock::from_duration(REST), self.now);
            self.load.rested(began - 9 * rest, began);
            assert!(
                (0..10 * LONGEST_PAUSE).any(|_| self.under_for(1, 1000, 300, 50)),
                "it never rests again"
            );
            (self.now - began) / rest
        }
    }

    #[test]
    fn only_steady_and_light_load_is_moderated() {
        let rests = |pace, gap, polling, resting| Worker::new(pace).under(gap, polling, resting);
        assert!(rests(pace(), 1000, 300, 50), "a million packets a second, a twentieth of the time");
        assert!(!rests(pace(), 1000, 700, 50), "two thirds of the time");
        let mut worker = Worker::new(pace());
        for _ in 0..=WINDOW {
            worker.load.count(100, 256, clock::from_duration(Duration::from_micros(5)), worker.now);
            worker.now += clock::from_duration(REST);
            assert!(!worker.load.rests(worker.now));
        }
        assert!(worker.under(1000, 700, 50), "but a twentieth in larger batches, as seen before");
        let mut worker = Worker::new(pace());
        worker.load.dense = 200 * clock::from_duration(Duration::from_micros(1));
        assert!(!worker.under(1000, 700, 50), "a fifth in larger batches");
        assert!(!rests(pace(), 20_000, 300, 50), "as rare as requests that wait for answers");
        assert!(!rests(pace(), 400, 100, 20), "more than are worth a rest");
        assert!(!rests(Pace { rest: Duration::ZERO, ..pace() }, 1000, 300, 50), "turned off");
        assert!(!rests(Pace { poll_forever: true, ..pace() }, 1000, 300, 50), "polling was asked for");
    }

    #[test]
    fn the_more_packets_come_the_shorter_are_rests() {
        let length = |gap| {
            let mut worker = Worker::new(pace());
            assert!(worker.under(gap, 100, 30));
            (worker.load.length < worker.load.rest, clock::to_duration(worker.load.length))
        };
        assert!(!length(2000).0, "30 packets");
        assert!(!length(1000).0, "60 packets");
        let (_, shorter) = length(550);
        assert!((33..=37).contains(&shorter.as_micros()), "{shorter:?} for 64 of 109 packets");
    }

    #[test]
    fn rests_that_cost_more_are_longer() {
        let mut worker = Worker::new(pace());
        let mut length = |gap, cost| {
            (0..20).for_each(|_| worker.load.weigh(clock::from_duration(Duration::from_micros(cost))));
            assert!(worker.under(gap, 100, 30));
            clock::to_duration(worker.load.length).as_micros()
        };
        assert!((59..=60).contains(&length(2000, 3)), "a twentieth of the time");
        assert!((74..=75).contains(&length(2000, 15)), "a fifth of it");
        assert!((198..=200).contains(&length(2000, 45)), "the longest");
        assert!((57..=59).contains(&length(550, 40)), "106 packets of a ring of 256");
        assert!((59..=60).contains(&length(2000, 3)), "the machine has changed");
        let mut worker = Worker::new(pace());
        worker.load.weighs = true;
        worker.load.rest(clock::cycles(), None);
        assert!(worker.load.cost > 0 && !worker.load.weighs, "a rest is measured");
    }

    #[test]
    fn the_smallest_ring_bounds_what_gathers() {
        let length = |ring, gap, cost| {
            let mut worker = Worker { ring, ..Worker::new(pace()) };
            (0..20).for_each(|_| worker.load.weigh(clock::from_duration(Duration::from_micros(cost))));
            worker.under(gap, 60, 10).then(|| clock::to_duration(worker.load.length).as_micros())
        };
        assert_eq!(length(1024, 400, 3), None, "150 packets");
        let of = |ring, gap, cost| length(ring, gap, cost).unwrap_or_default();
        assert!((33..=37).contains(&of(1024, 550, 3)), "64 packets suffice where rests are cheap");
        assert!((88..=92).contains(&of(1024, 550, 18)), "164 packets where they are not");
        assert!((57..=59).contains(&of(256, 550, 18)), "106 packets of a ring of 256");
        assert!((52..=54).contains(&of(128, 1000, 18)), "53 packets of a ring of 128");
        assert!((52..=54).contains(&of(16, 1000, 18)), "a smaller one counts as one of 128");
        assert_eq!(length(128, 900, 3), None, "66 packets are more than half of the ring");
    }

    #[test]
    fn a_smaller_ring_shortens_rests_that_were_made_for_larger_ones() {
        let mut worker = Worker { ring: 1024, ..Worker::new(pace()) };
        (0..20).for_each(|_| worker.load.weigh(clock::from_duration(Duration::from_micros(18))));
        assert!(worker.under(550, 60, 10));
        let long = worker.load.length;
        worker.load.count(1, 256, 0, worker.now);
        assert!(worker.load.rests(worker.now) && worker.load.length < long);
        let short = worker.load.length;
        worker.ring = 256;
        assert!(worker.under_for(2, 550, 60, 10) && worker.load.length.abs_diff(short) < short / 50);
    }

    #[test]
    fn a_run_without_its_cpu_does_not_make_packets_expensive() {
        let mut worker = Worker::new(pace());
        (0..WINDOW).for_each(|_| _ = window(&mut worker, 100, true));
        let before = worker.load.dense;
        worker.load.count(100, 256, 100 * worker.load.rest, worker.now);
        window(&mut worker, 100, true);
        assert!((before..=2 * before).contains(&worker.load.dense), "{before}");
        (0..2).for_each(|_| _ = window(&mut worker, 100, true));
        assert_eq!(worker.load.dense, before);
    }

    #[test]
    fn a_load_that_grows_ends_rests() {
        let mut worker = Worker::new(pace());
        assert!(worker.under(1000, 300, 50));
        assert!(!worker.under_for(20, 1000, 700, 300));
        assert!(worker.under(1000, 300, 50));
        worker.load.count(2 * most_of(256) as usize + 1, 256, 0, worker.now);
        assert!(!worker.load.rests(worker.now), "a burst");
    }

    #[test]
    fn one_light_window_is_no_steady_load() {
        let mut worker = Worker::new(pace());
        let rest = clock::from_duration(REST);
        for i in 0..10 * WINDOW {
            // Every other window is busy.
            worker.load.count(
                50,
                256,
                if (i / WINDOW).is_multiple_of(2) { rest / 10 } else { rest },
                worker.now,
            );
            worker.now += rest;
            assert!(!worker.load.rests(worker.now));
        }
    }

    /// Whether a worker rests in a window in which so many packets came in the time of a rest.
    fn window(worker: &mut Worker, packets: usize, is_light: bool) -> bool {
        let (rest, mut rests) = (worker.load.rest, false);
        for _ in 0..WINDOW {
            worker.load.count(packets, 256, if is_light { rest / 10 } else { rest }, worker.now);
            worker.now += rest + 1;
            rests |= worker.load.rests(worker.now);
            worker.load.rested(worker.now, worker.now);
        }
        rests
    }

    #[test]
    fn a_load_at_the_limit_is_polled_for() {
        let mut worker = Worker::new(pace());
        let at_limit = (0..4 * STEADIEST).filter(|i| window(&mut worker, 110, i % 6 > 0)).count();
        assert!((1..STEADIEST as usize / 16).contains(&at_limit), "{at_limit} of {} windows", 4 * STEADIEST);
        // Few packets are no load at the limit, however often something holds them up.
        let mut worker = Worker::new(pace());
        let held_up = (0..600).filter(|i| window(&mut worker, 50, i % 6 > 0)).count();
        assert!((100..400).contains(&held_up), "{held_up} of 600 windows");
    }

    #[test]
    fn a_load_that_was_at_the_limit_is_light_again_after_a_while() {
        let mut worker = Worker::new(pace());
        (0..600).for_each(|i| _ = window(&mut worker, 110, i % 6 > 0));
        // Its pauses do not keep it from resting.
        let rests = (0..20 * STEADIEST).filter(|i| window(&mut worker, 50, i % 100 > 0)).count();
        assert!(rests > 18 * STEADIEST as usize, "{rests} of {} windows", 20 * STEADIEST);
    }

    #[test]
    fn a_burst_ends_rests_once() {
        let mut worker = Worker::new(pace());
        (0..3 * STEADY).for_each(|_| _ = window(&mut worker, 110, true));
        assert!(worker.load.resting && worker.load.length < worker.load.rest);
        worker.load.count(2 * most_of(256) as usize + 1, 256, 0, worker.now);
        assert!(!worker.load.rests(worker.now));
        assert!(!worker.load.rests(worker.now), "nor within the window");
        let waits = (0..STEADIEST).take_while(|_| !window(&mut worker, 110, true)).count();
        assert!(waits <= STEADY as usize + 1, "{waits}");
    }

    #[test]
    fn more_than_a_light_load_earns_patience_with_its_pauses() {
        let pause = 4 * clock::from_duration(REST);
        for (gap, polling, earns) in [(1000, 300, false), (400, 100, true), (1000, 700, true)] {
            let mut worker = Worker::new(pace());
            worker.under(gap, polling, 50);
            assert_eq!(worker.load.polls_on(worker.now + pause), earns, "{gap} ns");
            // It ends: at most as long as the load has lasted.
            assert!(!worker.load.polls_on(worker.now + 10 * WINDOW * clock::from_duration(REST)));
        }
        let mut worker = Worker::new(Pace { rest: Duration::ZERO, ..pace() });
        worker.under(400, 100, 50);
        assert!(!worker.load.polls_on(worker.now + pause), "turned off");
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
        assert!(worker.under(1000, 300, 50), "one by chance");
        let mut worker = Worker::new(pace());
        assert!(worker.under(1000, 300, 50));
        let pauses: Vec<u64> = (0..4).map(|_| worker.oversleeps()).collect();
        assert!((PAUSE..2 * PAUSE + WINDOW * u64::from(STEADY)).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses[1] >= 4 * PAUSE && pauses[2] >= LONGEST_PAUSE, "{pauses:?}");
        assert!(pauses[3] < pauses[2] + 2 * WINDOW, "no longer than the longest: {pauses:?}");
        (0..IN_TIME).for_each(|_| worker.load.rested(worker.now, worker.now));
        assert!(worker.oversleeps() < pauses[1], "many rests were in time: {pauses:?}");
    }
}
