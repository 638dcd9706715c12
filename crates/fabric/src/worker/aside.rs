//! The CPUs of the watchdog: those that no worker is pinned to.
//!
//! While a worker is awake, the [watchdog](crate::worker::watchdog) looks a thousand times a second. On the CPU of a
//! busy worker each look takes the CPU from it, in a virtual machine for 15 µs and more, and a packet in a hundred
//! waits for that. So the watchdog stays away from pinned workers as long as the switch may use another CPU.
//!
//! Clients run on those CPUs, and one of them can keep a CPU from everybody else for a while: by signals that take long
//! (docs/security.md), or a real-time thread. Two looks in a row that come late drive the watchdog from that CPU to all
//! others, those of workers among them, until [`AWAY`] has passed without another.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, gettid, sched_getcpu, sched_setaffinity};

/// A look that comes so long after it was due is late. Single ones come once or twice a second where another thread
/// keeps the CPU busy: the scheduler's doing.
const LATE: Duration = Duration::from_millis(4);
/// A late look that was due within this time of another one is in a row with it.
const IN_A_ROW: Duration = Duration::from_millis(25);
/// Time for which the watchdog stays on other CPUs.
const AWAY: Duration = Duration::from_secs(1);

/// Where the watchdog runs. See the module.
pub(crate) struct Aside {
    /// CPUs that the switch may use.
    all: CpuSet,
    state: Mutex<State>,
}

struct State {
    thread: Option<Pid>,
    /// CPUs without pinned workers.
    cpus: CpuSet,
    /// CPUs that the watchdog may use instead while it is away, and since when.
    away: Option<(CpuSet, Instant)>,
    /// When a look was late last.
    late: Option<Instant>,
}

impl State {
    /// Moves the thread, once it is known. Where it may not go, it stays where it is.
    fn apply(&self) {
        if let Some(thread) = self.thread {
            let cpus = self.away.as_ref().map_or(&self.cpus, |(away, _)| away);
            let _ = sched_setaffinity(Some(thread), cpus);
        }
    }
}

impl Aside {
    /// A switch that may use these CPUs, without workers.
    pub(crate) fn new(all: CpuSet) -> Self {
        Self { all, state: Mutex::new(State { thread: None, cpus: all, away: None, late: None }) }
    }

    /// The calling thread is the watchdog.
    pub(crate) fn occupy(&self) {
        self.change(|state| state.thread = Some(gettid()));
    }

    /// Workers are pinned to these CPUs, and to no others.
    pub(crate) fn keep_from(&self, pinned: impl Iterator<Item = usize>) {
        let cpus = self.without(pinned);
        self.change(|state| state.cpus = cpus);
    }

    /// The calling watchdog looks `late` after it was due.
    pub(crate) fn looks(&self, late: Duration) {
        if late >= LATE {
            let now = Instant::now();
            let before = self.lock().late.replace(now);
            if before.is_some_and(|before| now.duration_since(before) <= late + IN_A_ROW) {
                let away = self.without([sched_getcpu()].into_iter());
                self.change(|state| state.away = Some((away, now)));
            }
        } else if self.lock().away.is_some_and(|(_, since)| since.elapsed() >= AWAY) {
            self.change(|state| state.away = None);
        }
    }

    /// The CPUs that the switch may use without these; all of them, if it may use no other.
    fn without(&self, cpus: impl Iterator<Item = usize>) -> CpuSet {
        let mut rest = self.all;
        cpus.filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| rest.unset(cpu));
        if rest.count() > 0 { rest } else { self.all }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.apply();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn the_thread_keeps_away_from_pinned_workers_while_there_is_another_cpu() {
        let all = sched_getaffinity(None).unwrap();
        let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        let [first, others @ ..] = cpus.as_slice() else { panic!("no CPU") };
        let aside = Arc::new(Aside::new(all));
        // Before the thread has started.
        aside.keep_from([*first].into_iter());
        let (asks, questions) = channel::<()>();
        let (answers, answer) = channel();
        let watchdog = std::thread::spawn({
            let aside = aside.clone();
            move || {
                aside.occupy();
                while questions.recv().is_ok() {
                    answers.send(sched_getaffinity(None).unwrap()).unwrap();
                }
            }
        });
        let now = || {
            asks.send(()).unwrap();
            let set = answer.recv().unwrap();
            cpus.iter().copied().filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
        };
        assert_eq!(now(), if others.is_empty() { &cpus } else { others });
        aside.keep_from(cpus.iter().copied());
        assert_eq!(now(), cpus, "all have workers");
        aside.keep_from(others.iter().copied());
        assert_eq!(now(), [*first]);
        // No such CPU, and none at all.
        aside.keep_from([usize::MAX].into_iter());
        assert_eq!(now(), cpus);
        drop(asks);
        watchdog.join().unwrap();
    }

    #[test]
    fn late_looks_drive_the_watchdog_to_other_cpus_for_a_while() {
        // On a thread of its own, whose CPUs are no other test's.
        std::thread::spawn(flee_and_return).join().unwrap();
    }

    fn flee_and_return() {
        let before = sched_getaffinity(None).unwrap();
        let cpus = || {
            let set = sched_getaffinity(None).unwrap();
            (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
        };
        let all = cpus();
        let aside = Aside::new(before);
        let pinned = all.iter().copied().skip(1);
        aside.keep_from(pinned);
        aside.occupy();
        aside.looks(LATE / 2);
        aside.looks(LATE);
        assert_eq!(cpus(), all[..1], "one may be the scheduler's doing");
        aside.looks(LATE);
        let away = if all.len() > 1 { &all[1..] } else { &all };
        assert_eq!(cpus(), away);
        aside.looks(Duration::ZERO);
        assert_eq!(cpus(), away, "it has just fled");
        aside.change(|state| state.away = state.away.map(|(cpus, since)| (cpus, since - AWAY)));
        aside.looks(Duration::ZERO);
        assert_eq!(cpus(), all[..1]);
        // A single one after a while drives it nowhere.
        aside.change(|state| state.late = state.late.map(|late| late - LATE - 2 * IN_A_ROW));
        aside.looks(LATE);
        assert_eq!(cpus(), all[..1]);
    }
}
