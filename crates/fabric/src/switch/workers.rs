//! Receive queues and their workers: pinning, moving, reports.

use super::{Assigned, PortRef, State, Switch, SwitchError, port_mut, queue_of};
use crate::bridge::port::PortIndex;
use crate::clock;
use crate::counters::WorkerSnapshot;
use crate::worker::handle::WorkerHandle;
use crate::worker::request::Stays;
use crate::worker::tasks::{Task, Token};

/// Report on a worker.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// CPU it is pinned to.
    pub cpu: Option<usize>,
    /// NUMA node of that CPU, if the kernel knows it.
    pub node: Option<usize>,
    /// Its counters since its start.
    pub counters: WorkerSnapshot,
    /// Cycles since its start: with `busy_cycles`, the busy share.
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
    /// The queue was moved because a worker was removed.
    WorkerRemoved {
        /// CPU of that worker.
        cpu: Option<usize>,
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
        let worker = state.queue(at, queue).map(|assigned| assigned.worker);
        let is_there = |worker: &usize| state.workers.cpu_of(*worker) == Some(cpu);
        let to = worker.ok().filter(is_there).or_else(|| state.workers.on_cpu(cpu));
        let to = to.ok_or_else(|| state.workers.none_on(cpu))?;
        state.move_queue(at, queue, to, Assignment::Pinned, WorkerHandle::take_to_move)?;
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

    /// CPUs of the workers; `None` for one that is not pinned.
    pub fn worker_cpus(&self) -> Vec<Option<usize>> {
        self.lock().workers.cpus().collect()
    }

    /// The workers, their counters and queues.
    pub fn workers(&self) -> Vec<WorkerReport> {
        let state = self.lock();
        let mut queues = vec![Vec::new(); state.workers.len()];
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
        let now = clock::cycles();
        (state.workers.iter().zip(queues))
            .map(|(worker, queues)| WorkerReport {
                cpu: worker.handle.cpu,
                node: worker.handle.node,
                counters: worker.handle.counters.snapshot(),
                elapsed_cycles: now.wrapping_sub(worker.started),
                queues,
            })
            .collect()
    }
}

impl State {
    /// Moves a receive queue, which `take` takes from its worker, to worker `to`. Returns after its last batch at the
    /// old one has completed.
    pub(super) fn move_queue(
        &mut self,
        at: PortRef,
        queue: u16,
        to: usize,
        why: Assignment,
        take: impl FnOnce(&WorkerHandle, Token) -> Result<Option<Task>, Stays>,
    ) -> Result<(), SwitchError> {
        let Self { bridges, workers, .. } = self;
        let assigned = queue_of(bridges, at, queue)?;
        if assigned.worker != to {
            workers.move_task(assigned.token, assigned.worker, to, take)?;
        }
        let moved = if matches!(why, Assignment::Moved { .. }) { clock::cycles() } else { 0 };
        *assigned = Assigned { worker: to, token: assigned.token, why, moved };
        Ok(())
    }
}
