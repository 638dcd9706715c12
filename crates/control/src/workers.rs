//! Adds and removes workers so that there is one for each CPU of the configuration's list, or of the command line's.
//!
//! The option `--workers` of the daemon takes the place of the file's list. `worker add` and `worker remove` change
//! whichever of the two is in effect; without either, one worker runs that is not pinned to a CPU.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabric::SwitchError;

use crate::state::State;

/// The wanted workers, where the configuration does not decide. See the module.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    /// CPUs of the command line.
    command_line: Mutex<Option<Vec<usize>>>,
    /// Changes that failed in the last pass.
    unmet: Mutex<Vec<Unmet>>,
    /// The workers stay as they are: the daemon ends.
    stay: AtomicBool,
}

/// A worker that was not added or removed.
#[derive(Debug, Clone)]
pub(crate) struct Unmet {
    /// Whether it is to be added.
    is_missing: bool,
    cpu: Option<usize>,
    reason: String,
}

impl Workers {
    /// Returns the list that takes the place of the configuration's.
    pub(crate) fn command_line(&self) -> Option<Vec<usize>> {
        self.lock().clone()
    }

    /// Sets that list.
    pub(crate) fn set_command_line(&self, cpus: Vec<usize>) {
        *self.lock() = Some(cpus);
    }

    /// Returns the changes that failed in the last pass.
    pub(crate) fn unmet(&self) -> Vec<Unmet> {
        self.unmet.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_unmet(&self, unmet: Vec<Unmet>) {
        *self.unmet.lock().unwrap_or_else(PoisonError::into_inner) = unmet;
    }

    /// Returns the reasons of the failures that were not among those `before`; `None` if all were.
    pub(crate) fn new_trouble(&self, mut before: Vec<Unmet>) -> Option<String> {
        let is_same = |a: &Unmet, b: &Unmet| (a.is_missing, a.cpu) == (b.is_missing, b.cpu);
        let mut unmet = self.unmet();
        unmet.retain(|new| match before.iter().position(|old| is_same(old, new)) {
            Some(at) => {
                before.swap_remove(at);
                false
            }
            None => true,
        });
        (!unmet.is_empty()).then(|| reasons(&unmet))
    }

    /// Leaves the workers as they are from now on.
    pub(crate) fn leave(&self) {
        self.stay.store(true, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<usize>>> {
        self.command_line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds and removes workers until there is one for each of `cpus`, the configuration's list, or of the command
    /// line's list. Returns `None` if there was nothing to do, or the reasons why not all is done. Workers are added
    /// first, so that one is always there; one that cannot be added or removed does not keep others from it.
    pub(crate) fn reconcile_workers(&self, cpus: &[usize]) -> Option<Result<(), String>> {
        if self.workers.stay.load(Relaxed) {
            return None;
        }
        let command_line = self.workers.command_line();
        let wanted = places(command_line.as_deref().unwrap_or(cpus));
        let running = self.switch().worker_cpus();
        let (mut missing, mut surplus) = (without(&wanted, &running), without(&running, &wanted));
        if missing.is_empty() && surplus.is_empty() {
            self.workers.set_unmet(Vec::new());
            return None;
        }
        loop {
            let (mut unmet, mut changed, mut limited) = (Vec::new(), false, false);
            let added = missing.iter().map(|cpu| (true, *cpu, self.switch().add_worker(*cpu)));
            let removed = surplus.iter().map(|cpu| (false, *cpu, self.switch().remove_worker(*cpu)));
            for (is_missing, cpu, done) in added.chain(removed) {
                match done {
                    Ok(()) => changed = true,
                    // It goes once another one is added; what prevents that is the reason.
                    Err(SwitchError::LastWorker) => limited = true,
                    Err(error) => {
                        limited |= error == SwitchError::TooManyWorkers;
                        unmet.push(Unmet { is_missing, cpu, reason: self.reason(error, cpu) });
                    }
                }
            }
            // Those that were removed make room for others, and the other way round.
            if !(limited && changed) {
                let done = if unmet.is_empty() { Ok(()) } else { Err(reasons(&unmet)) };
                self.workers.set_unmet(unmet);
                return Some(done);
            }
            let running = self.switch().worker_cpus();
            (missing, surplus) = (without(&wanted, &running), without(&running, &wanted));
        }
    }

    /// Returns why the workers on these CPUs cannot be removed: a queue is pinned to one of them.
    pub(crate) fn pinned_to(&self, mut cpus: impl Iterator<Item = usize>) -> Option<String> {
        cpus.find_map(|cpu| Some(self.reason(self.switch().pinned_to(cpu)?, Some(cpu))))
    }

    /// Explains why a worker on `cpu` was not added or removed, with a remedy.
    fn reason(&self, error: SwitchError, cpu: Option<usize>) -> String {
        match error {
            SwitchError::PinnedThere { ref bridge, ref port, queue, .. } => {
                format!("{error}; release it first, with `mswitch worker unpin {bridge} {port} {queue}`")
            }
            SwitchError::HeldUp | SwitchError::WorkerEnds => {
                let running = self.switch().worker_cpus();
                // The tasks of the last worker move, and so does the thread of a worker on this CPU. A stand-in's number
                // is larger; it may serve either.
                let concerns = |thread: usize| {
                    thread + 1 >= running.len() || running.get(thread).is_some_and(|other| *other == cpu)
                };
                let stuck = self.stuck().into_iter().find(|stuck| concerns(stuck.thread));
                stuck.map_or_else(|| error.to_string(), |stuck| stuck.to_string())
            }
            error => error.to_string(),
        }
    }
}

/// Returns the reasons of failures; of equal ones in a row, one.
fn reasons(unmet: &[Unmet]) -> String {
    let mut reasons: Vec<_> = unmet.iter().map(|unmet| unmet.reason.as_str()).collect();
    reasons.dedup();
    reasons.join("; ")
}

/// Returns the CPUs of workers for a list; no CPU for the worker that an empty list stands for.
pub(crate) fn places(cpus: &[usize]) -> Vec<Option<usize>> {
    if cpus.is_empty() { vec![None] } else { cpus.iter().copied().map(Some).collect() }
}

/// Returns the elements of `all` without those of `others`, as often as they are there.
fn without(all: &[Option<usize>], others: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut others = others.to_vec();
    let is_left = |cpu: &&Option<usize>| match others.iter().position(|other| other == *cpu) {
        Some(at) => {
            others.swap_remove(at);
            false
        }
        None => true,
    };
    all.iter().filter(is_left).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_difference_is_added_and_removed() {
        let (running, wanted) = (places(&[0, 1, 1]), places(&[1, 2]));
        assert_eq!(without(&wanted, &running), [Some(2)]);
        assert_eq!(without(&running, &wanted), [Some(0), Some(1)]);
        assert_eq!(without(&places(&[]), &places(&[0])), [None]);
    }
}
