//! The workers as the control plane knows them: placing tasks on them and taking tasks away.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Assignment, Placement, SwitchError};
use crate::clock;
use crate::worker::handle::{ThreadExit, WorkerHandle};
use crate::worker::request::{PendingTask, Stays};
use crate::worker::tasks::{Task, Token};

/// A worker.
pub(super) struct Worker {
    pub(super) handle: WorkerHandle,
    /// Number of tasks placed on it, alarms aside.
    tasks: u32,
    /// When it was started, on the cycle counter.
    pub(super) started: u64,
}

impl Worker {
    pub(super) fn new(handle: WorkerHandle) -> Self {
        Self { handle, tasks: 0, started: clock::cycles() }
    }

    fn load(&self) -> Load {
        Load { cpu: self.handle.cpu, node: self.handle.node, tasks: self.tasks }
    }
}

/// Place of a worker and number of its tasks.
#[derive(Debug, Clone, Copy)]
struct Load {
    cpu: Option<usize>,
    node: Option<usize>,
    tasks: u32,
}

/// Returns the number of the worker that suits best; of several, of the one with fewest tasks.
fn best(hint: Placement, workers: impl Iterator<Item = (usize, Load)>) -> Option<usize> {
    let rank = |worker: Load| (Reverse(hint.suits(worker.cpu, worker.node)), worker.tasks);
    workers.min_by_key(|(_, worker)| rank(*worker)).map(|(number, _)| number)
}

/// The workers, by number. See the module.
#[derive(Default)]
pub(super) struct Workers {
    list: Vec<Worker>,
    /// Threads of removed workers that may not have ended, with their numbers.
    ending: Vec<(usize, Arc<ThreadExit>)>,
}

impl Workers {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Worker> {
        self.list.iter()
    }

    pub(super) fn get(&self, worker: usize) -> Option<&WorkerHandle> {
        self.list.get(worker).map(|worker| &worker.handle)
    }

    pub(super) fn get_mut(&mut self, worker: usize) -> Option<&mut WorkerHandle> {
        self.list.get_mut(worker).map(|worker| &mut worker.handle)
    }

    /// The CPUs of the workers; `None` for one that is not pinned.
    pub(super) fn cpus(&self) -> impl ExactSizeIterator<Item = Option<usize>> {
        self.list.iter().map(|worker| worker.handle.cpu)
    }

    /// The CPU of a worker.
    pub(super) fn cpu_of(&self, worker: usize) -> Option<usize> {
        self.get(worker)?.cpu
    }

    /// Number of workers on a CPU; `None` is those that are not pinned.
    pub(super) fn count_on(&self, cpu: Option<usize>) -> usize {
        self.list.iter().filter(|worker| worker.handle.cpu == cpu).count()
    }

    /// The last worker on a CPU.
    pub(super) fn last_on(&self, cpu: Option<usize>) -> Option<usize> {
        self.list.iter().rposition(|worker| worker.handle.cpu == cpu)
    }

    /// The worker on a CPU; of several, the one with fewest tasks.
    pub(super) fn on_cpu(&self, cpu: usize) -> Option<usize> {
        let on_cpu = self.list.iter().enumerate().filter(|(_, worker)| worker.handle.cpu == Some(cpu));
        on_cpu.min_by_key(|(_, worker)| worker.tasks).map(|(number, _)| number)
    }

    /// The error for a CPU without a worker.
    pub(super) fn none_on(&self, cpu: usize) -> SwitchError {
        let mut cpus: Vec<_> = self.list.iter().filter_map(|worker| worker.handle.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        SwitchError::NoWorker(cpu, cpus)
    }

    /// Adds a worker, whose number is the next one.
    pub(super) fn push(&mut self, worker: Worker) {
        self.list.push(worker);
    }

    /// Removes the last worker, for the caller to end.
    pub(super) fn pop(&mut self) -> Option<Worker> {
        let worker = self.list.pop()?;
        self.ending.push((self.list.len(), worker.handle.thread.clone()));
        Some(worker)
    }

    /// Ends all workers at once. A thread that a client holds up is left behind.
    pub(super) fn end(&mut self) {
        let workers = std::mem::take(&mut self.list);
        workers.iter().for_each(|worker| worker.handle.end());
        let deadline = ThreadExit::soon();
        workers.iter().for_each(|worker| worker.handle.thread.wait(deadline));
    }

    /// Whether the thread of a removed worker with this number may still run.
    pub(super) fn is_ending(&mut self, number: usize) -> bool {
        self.ending.retain(|(_, thread)| !thread.is_over());
        self.ending.iter().any(|(other, _)| *other == number)
    }

    /// Chooses the worker for another task: of those that suit best, the one with fewest tasks.
    pub(super) fn place(&mut self, hint: Placement) -> (usize, Assignment) {
        let best = self.choose(hint, |_| true).unwrap_or(0);
        let near = self.get(best).is_some_and(|worker| hint.is_near(worker.cpu, worker.node));
        (self.place_at(best), if near { Assignment::Near } else { Assignment::Fewest })
    }

    /// The same among the workers that `may` accepts, without placing a task there.
    pub(super) fn choose(&self, hint: Placement, may: impl Fn(usize) -> bool) -> Option<usize> {
        let candidates = self.list.iter().enumerate().filter(|(number, _)| may(*number));
        best(hint, candidates.map(|(number, worker)| (number, worker.load())))
    }

    /// Chooses this worker for another task.
    pub(super) fn place_at(&mut self, worker: usize) -> usize {
        if let Some(worker) = self.list.get_mut(worker) {
            worker.tasks += 1;
        }
        worker
    }

    /// Gives a worker the task that was [placed](Workers::place) there.
    pub(super) fn add(&self, worker: usize, task: Task) {
        if let Some(worker) = self.get(worker) {
            worker.add(task);
        }
    }

    /// Asks a worker for a task that was placed there and is to be removed.
    pub(super) fn ask(&mut self, (worker, token): (usize, Token)) -> Option<PendingTask> {
        let worker = self.list.get_mut(worker)?;
        worker.tasks = worker.tasks.saturating_sub(1);
        Some(worker.handle.ask(token))
    }

    /// Moves a task, which `take` takes from its worker.
    pub(super) fn move_task(
        &mut self,
        token: Token,
        from: usize,
        to: usize,
        take: impl FnOnce(&WorkerHandle, Token) -> Result<Option<Task>, Stays>,
    ) -> Result<(), SwitchError> {
        let (Some(old), Some(new)) = (self.get(from), self.get(to)) else {
            return Err(SwitchError::Gone("worker"));
        };
        let task = take(old, token).map_err(|Stays| SwitchError::HeldUp)?;
        new.add(task.ok_or(SwitchError::Gone("queue"))?);
        if let Some(old) = self.list.get_mut(from) {
            old.tasks = old.tasks.saturating_sub(1);
        }
        self.place_at(to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places as many tasks with this hint, and returns the number of tasks of each worker: two on each of the NUMA
    /// nodes 0 and 1, and one without a CPU of its own.
    fn placed(hint: Placement, tasks: usize) -> [u32; 5] {
        let place = |number: usize| (number < 4).then_some(number);
        let mut workers: [Load; 5] = std::array::from_fn(|number| Load {
            cpu: place(number),
            node: place(number).map(|cpu| cpu / 2),
            tasks: 0,
        });
        for _ in 0..tasks {
            let chosen = best(hint, workers.iter().copied().enumerate()).unwrap();
            workers[chosen].tasks += 1;
        }
        workers.map(|worker| worker.tasks)
    }

    #[test]
    fn tasks_spread_over_the_workers_of_their_node() {
        let near = |node| Placement { cpu: None, node: Some(node) };
        assert_eq!(placed(near(1), 6), [0, 0, 3, 3, 0]);
        assert_eq!(placed(near(0), 5), [3, 2, 0, 0, 0]);
        // No worker is on that node, or the node is unknown.
        assert_eq!(placed(near(2), 5), [1, 1, 1, 1, 1]);
        assert_eq!(placed(Placement::default(), 5), [1, 1, 1, 1, 1]);
        assert_eq!(placed(Placement { cpu: Some(3), node: Some(0) }, 2), [0, 0, 0, 2, 0]);
        assert_eq!(best(near(0), std::iter::empty()), None);
    }
}
