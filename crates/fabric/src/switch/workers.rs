//! Workers: choosing one for a task, moving a queue, reports.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{Assigned, Placement, PortRef, State, Switch, SwitchError, port_mut};
use crate::bridge::port::PortIndex;
use crate::clock;
use crate::counters::WorkerSnapshot;
use crate::worker::handle::{PendingTask, WorkerHandle};
use crate::worker::tasks::{Task, Token};

/// Report on a worker.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// CPU it is pinned to.
    pub cpu: Option<usize>,
    /// Its counters since the start.
    pub counters: WorkerSnapshot,
    /// Cycles since the start of the switch: with `busy_cycles`, the busy share.
    pub elapsed_cycles: u64,
    /// Receive queues that it owns.
    pub queues: Vec<QueueReport>,
}

/// Report on a receive queue.
#[derive(Debug, Clone)]
pub struct QueueReport {
    /// Its port.
    pub port: PortRef,
    /// Its number in the port.
    pub queue: u16,
    /// Cycles spent on its packets, since the port was added.
    pub cycles: u64,
    /// Reason why the worker has it.
    pub assignment: Assignment,
}

/// Reason why a worker has a receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The worker had fewest queues when the client was attached.
    Fewest,
    /// It is near to the queue's memory or device, and of those workers had fewest queues.
    Near,
    /// The queue was moved because its worker was busy.
    Moved {
        /// CPU of that worker.
        from: Option<usize>,
        /// Percentage of its time that it spent on packets.
        busy: u8,
    },
    /// It is pinned there.
    Pinned,
    /// It was pinned there.
    Unpinned,
}

impl Switch {
    /// Moves a port's receive queue to the worker on `cpu`, where it stays: its next batch is taken there. The pin
    /// outlives the client.
    pub fn pin(&self, at: PortRef, queue: u16, cpu: usize) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let Some(to) = self.worker_on(cpu) else {
            return Err(SwitchError::NoWorker(cpu, self.workers.iter().filter_map(|w| w.cpu).collect()));
        };
        self.move_queue(&mut state, at, queue, to, Assignment::Pinned, WorkerHandle::take_to_move)?;
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        port_mut(bridge, at.port)?.pins.insert(queue, cpu);
        Ok(())
    }

    /// Lets a pinned receive queue follow load again. Returns whether it was pinned.
    pub fn unpin(&self, at: PortRef, queue: u16) -> Result<bool, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let was_pinned = port_mut(bridge, at.port)?.pins.remove(&queue).is_some();
        if let Ok(assigned) = state.queue(at, queue)
            && was_pinned
        {
            assigned.why = Assignment::Unpinned;
        }
        Ok(was_pinned)
    }

    /// Moves a receive queue, which `take` takes from its worker, to worker `to`. Returns after its last batch at the old
    /// one has completed.
    pub(super) fn move_queue(
        &self,
        state: &mut State,
        at: PortRef,
        queue: u16,
        to: usize,
        why: Assignment,
        take: impl FnOnce(&WorkerHandle, Token) -> Result<Option<Task>, PendingTask>,
    ) -> Result<(), SwitchError> {
        let assigned = state.queue(at, queue)?;
        let from = assigned.worker;
        if from != to {
            let (Some(old), Some(new)) = (self.workers.get(from), self.workers.get(to)) else {
                return Err(SwitchError::Gone("worker"));
            };
            let task = take(old, assigned.token).map_err(|_| SwitchError::HeldUp)?;
            new.add(task.ok_or(SwitchError::Gone("queue"))?);
            if let (Some(a), Some(b)) = (self.load.get(from), self.load.get(to)) {
                a.fetch_sub(1, Relaxed);
                b.fetch_add(1, Relaxed);
            }
        }
        let moved = if matches!(why, Assignment::Moved { .. }) { clock::cycles() } else { 0 };
        *assigned = Assigned { worker: to, token: assigned.token, why, moved };
        Ok(())
    }

    /// The worker on a CPU.
    pub(super) fn worker_on(&self, cpu: usize) -> Option<usize> {
        self.workers.iter().position(|worker| worker.cpu == Some(cpu))
    }

    /// The CPU of a worker.
    pub(super) fn cpu_of(&self, worker: usize) -> Option<usize> {
        self.workers.get(worker)?.cpu
    }

    /// The workers, their counters and queues.
    pub fn workers(&self) -> Vec<WorkerReport> {
        let state = self.lock();
        let mut queues = vec![Vec::new(); self.workers.len()];
        for (id, bridge) in &state.bridges {
            for (index, port) in (0u16..).zip(&bridge.ports) {
                let Some((port, attached)) = port.as_ref().and_then(|p| Some((p, p.attached.as_ref()?)))
                else {
                    continue;
                };
                for ((queue, assigned), counters) in (0u16..).zip(&attached.rx).zip(&port.rx) {
                    let port = PortRef { bridge: *id, port: PortIndex(index) };
                    let (cycles, assignment) = (counters.cycles(), assigned.why);
                    if let Some(list) = queues.get_mut(assigned.worker) {
                        list.push(QueueReport { port, queue, cycles, assignment });
                    }
                }
            }
        }
        let elapsed_cycles = clock::cycles().wrapping_sub(self.started);
        self.workers
            .iter()
            .zip(queues)
            .map(|(w, queues)| WorkerReport {
                cpu: w.cpu,
                counters: w.counters.snapshot(),
                elapsed_cycles,
                queues,
            })
            .collect()
    }

    /// Chooses the worker for another task: of those that suit best, the one with fewest tasks.
    pub(super) fn place(&self, hint: Placement) -> (usize, Assignment) {
        let rank = |(worker, load): (&WorkerHandle, &AtomicU32)| {
            (std::cmp::Reverse(hint.suits(worker.cpu, worker.node)), load.load(Relaxed))
        };
        let ranks = self.workers.iter().zip(&self.load).map(rank);
        let best = ranks.enumerate().min_by_key(|(_, rank)| *rank).map_or(0, |(worker, _)| worker);
        let near = self.workers.get(best).is_some_and(|worker| hint.is_near(worker.cpu, worker.node));
        (self.place_at(best), if near { Assignment::Near } else { Assignment::Fewest })
    }

    /// Chooses this worker for another task.
    pub(super) fn place_at(&self, worker: usize) -> usize {
        if let Some(load) = self.load.get(worker) {
            load.fetch_add(1, Relaxed);
        }
        worker
    }

    /// Gives a worker the task that was [placed](Switch::place) there.
    pub(super) fn add(&self, worker: usize, task: Task) {
        if let Some(worker) = self.workers.get(worker) {
            worker.add(task);
        }
    }

    /// Asks the workers for tasks that were placed there and are to be removed.
    pub(super) fn ask(&self, tasks: &[(usize, Token)]) -> Vec<PendingTask> {
        let ask = |(worker, token): &(usize, Token)| {
            if let Some(load) = self.load.get(*worker) {
                load.fetch_sub(1, Relaxed);
            }
            Some(self.workers.get(*worker)?.ask(*token))
        };
        tasks.iter().filter_map(ask).collect()
    }

    /// Takes a task from the worker where it was placed; returns after its last batch has completed, unless a client
    /// holds it up.
    pub(super) fn take(&self, worker: usize, token: Token) -> Result<Option<Task>, PendingTask> {
        if let Some(load) = self.load.get(worker) {
            load.fetch_sub(1, Relaxed);
        }
        self.workers.get(worker).map_or(Ok(None), |worker| worker.take(token))
    }
}
