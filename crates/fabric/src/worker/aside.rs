//! The CPUs of the watchdog: those that no worker is pinned to.
//!
//! While a worker is awake, the [watchdog](crate::worker::watchdog) looks a thousand times a second. On the CPU of a busy
//! worker each look takes the CPU from it, in a virtual machine for 15 µs and more, and a packet in a hundred waits for
//! that. So the watchdog stays away from pinned workers as long as the switch may use another CPU.

use std::sync::{Mutex, PoisonError};

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

/// Where the watchdog runs. See the module.
pub(crate) struct Aside {
    /// CPUs that the switch may use.
    all: CpuSet,
    state: Mutex<State>,
}

struct State {
    thread: Option<Pid>,
    cpus: CpuSet,
}

impl State {
    /// Moves the thread, once it is known. Where it may not go, it stays where it is.
    fn apply(&self) {
        if let Some(thread) = self.thread {
            let _ = sched_setaffinity(Some(thread), &self.cpus);
        }
    }
}

impl Aside {
    /// A switch that may use these CPUs, without workers.
    pub(crate) fn new(all: CpuSet) -> Self {
        Self { all, state: Mutex::new(State { thread: None, cpus: all }) }
    }

    /// The calling thread is the watchdog.
    pub(crate) fn occupy(&self) {
        self.change(|state| state.thread = Some(gettid()));
    }

    /// Workers are pinned to these CPUs, and to no others.
    pub(crate) fn keep_from(&self, pinned: impl Iterator<Item = usize>) {
        let mut rest = self.all;
        pinned.filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| rest.unset(cpu));
        let cpus = if rest.count() > 0 { rest } else { self.all };
        self.change(|state| state.cpus = cpus);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
}
