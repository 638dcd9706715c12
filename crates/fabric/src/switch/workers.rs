//! Workers: choosing one for a task, moving a queue, reports.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{Placement, PortRef, Switch, SwitchError, port_mut};
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
    /// Queues that it owns: port and queue number.
    pub queues: Vec<(PortRef, u16)>,
}

impl Switch {
    /// Moves a port's receive queue to the worker on `cpu`; its next batch is taken there.
    pub fn pin(&self, at: PortRef, queue: u16, cpu: usize) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let Some(to) = self.workers.iter().position(|w| w.cpu == Some(cpu)) else {
            return Err(SwitchError::NoWorker(cpu, self.workers.iter().filter_map(|w| w.cpu).collect()));
        };
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let attached = port_mut(bridge, at.port)?.attached.as_mut().ok_or(SwitchError::Gone("client"))?;
        let entry = attached.rx.get_mut(usize::from(queue)).ok_or(SwitchError::Gone("queue"))?;
        let (from, token) = *entry;
        if from == to {
            return Ok(());
        }
        let (Some(old), Some(new)) = (self.workers.get(from), self.workers.get(to)) else {
            return Err(SwitchError::Gone("worker"));
        };
        let task = old.take_to_move(token).map_err(|_| SwitchError::HeldUp)?;
        new.add(task.ok_or(SwitchError::Gone("queue"))?);
        entry.0 = to;
        if let (Some(a), Some(b)) = (self.load.get(from), self.load.get(to)) {
            a.fetch_sub(1, Relaxed);
            b.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// The workers, their counters and queues.
    pub fn workers(&self) -> Vec<WorkerReport> {
        let state = self.lock();
        let mut queues = vec![Vec::new(); self.workers.len()];
        for (id, bridge) in &state.bridges {
            for (index, port) in (0u16..).zip(&bridge.ports) {
                let rx = port.iter().filter_map(|p| p.attached.as_ref()).flat_map(|a| &a.rx);
                for (queue, (worker, _)) in (0u16..).zip(rx) {
                    if let Some(list) = queues.get_mut(*worker) {
                        list.push((PortRef { bridge: *id, port: PortIndex(index) }, queue));
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
    pub(super) fn place(&self, hint: Placement) -> usize {
        let rank = |(worker, load): (&WorkerHandle, &AtomicU32)| {
            (std::cmp::Reverse(hint.suits(worker.cpu, worker.node)), load.load(Relaxed))
        };
        let ranks = self.workers.iter().zip(&self.load).map(rank);
        let best = ranks.enumerate().min_by_key(|(_, rank)| *rank).map_or(0, |(worker, _)| worker);
        if let Some(load) = self.load.get(best) {
            load.fetch_add(1, Relaxed);
        }
        best
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
