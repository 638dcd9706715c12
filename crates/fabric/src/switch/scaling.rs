//! Adding and removing workers while traffic flows.
//!
//! A new worker's data is made ([`PerThread`](crate::worker::PerThread)), then its thread starts, then it gets tasks:
//! alarms at once, receive queues when it is chosen for them or [by load](Switch::balance). A worker that is removed
//! gives its tasks to others, each after its last batch; then its thread ends. So nothing is lost or reordered.
//!
//! Numbers of workers have no gaps. Unless the last worker is the one to be removed, the last one's tasks move, and the
//! other worker goes to the last one's CPU with the tasks that it has: as if it had been moved itself.

use super::bridges::alarm;
use super::worker_list::Worker;
use super::{
    Assignment, BridgeId, Placement, PortRef, State, Switch, SwitchError, balance, port_mut, queue_of,
};
use crate::bridge::port::PortIndex;
use crate::worker::handle::{ThreadExit, WorkerHandle};
use crate::worker::per_thread::{MAX_WORKERS, Threads};
use crate::worker::request::Stays;
use crate::worker::start;
use crate::worker::tasks::Token;
use crate::worker::thread_info::ThreadInfo;

/// A task other than an alarm: where the state has it.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Receive queue of a port, by number.
    Queue(PortRef, usize),
    /// Drain of a port, by position.
    Drain(PortRef, usize),
    /// Injector of a bridge.
    Injector(BridgeId),
}

/// A task and its worker.
#[derive(Debug, Clone, Copy)]
struct Placed {
    place: Place,
    token: Token,
    worker: usize,
    near: Placement,
    /// CPU to which the queue is pinned.
    pinned: Option<usize>,
}

impl Switch {
    /// Adds a worker, pinned to `cpu` if given. Its queues come with the next clients, or [by load](Switch::balance).
    pub fn add_worker(&self, cpu: Option<usize>) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let number = state.workers.len();
        if number >= MAX_WORKERS {
            return Err(SwitchError::TooManyWorkers);
        }
        if state.workers.is_ending(number) {
            return Err(SwitchError::WorkerEnds);
        }
        let threads = Threads::of(number + 1);
        for bridge in state.bridges.values() {
            bridge.logic.prepare(threads).map_err(SwitchError::Logic)?;
            bridge.observers.iter().for_each(|(_, observer)| observer.prepare(threads));
        }
        let info = ThreadInfo::new(number);
        self.group.watch(info.clone());
        let handle = start::worker(number, cpu, self.batch, self.pace, &self.group, &info)
            .map_err(|error| SwitchError::NoStart(error.to_string()))?;
        if number == 0 {
            let _ = self.group.first_worker.set(handle.commands.clone());
        }
        // Before its first task: a batch can cross to any bridge, and finds the arenas of this worker there.
        for bridge in state.bridges.values_mut() {
            if bridge.logic.arena(number).is_some() {
                self.publish(bridge);
            }
        }
        for bridge in state.bridges.values() {
            if let Some(alarm) = bridge.alarm.and_then(|token| alarm(bridge, token)) {
                handle.add(alarm);
            }
        }
        state.workers.push(Worker::new(handle));
        self.group.workers_are(state.workers.cpus());
        // Shares of time are compared between the same workers.
        state.look = balance::Look::default();
        Ok(())
    }

    /// Removes a worker on this CPU, or one that is not pinned. Its queues go to others. Refused for the last worker,
    /// and while a queue is pinned to the CPU and no other worker is there.
    pub fn remove_worker(&self, cpu: Option<usize>) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let removed = match (state.workers.last_on(cpu), cpu) {
            (Some(removed), _) => removed,
            (None, Some(cpu)) => return Err(state.workers.none_on(cpu)),
            (None, None) => return Err(SwitchError::Gone("worker")),
        };
        let last = state.workers.len() - 1;
        if last == 0 {
            return Err(SwitchError::LastWorker);
        }
        if let Some(cpu) = cpu
            && state.workers.count_on(Some(cpu)) == 1
            && let Some(pinned) = state.pin_to(cpu)
        {
            return Err(pinned);
        }
        let alarms = state.bridges.values().filter_map(|bridge| bridge.alarm).collect();
        let ending = state.workers.get(last).ok_or(SwitchError::Gone("worker"))?;
        // A logic that has not returned from one keeps the thread.
        let alarms = ending.take_all_to_move(alarms).map_err(|Stays| SwitchError::HeldUp)?;
        if let Err(error) = state.take_place(removed, last) {
            alarms.into_iter().for_each(|alarm| state.workers.add(last, alarm));
            return Err(error);
        }
        drop(alarms);
        state.look = balance::Look::default();
        let worker = state.workers.pop();
        self.group.workers_are(state.workers.cpus());
        state.bridges.values().for_each(|bridge| bridge.logic.worker_removed(last));
        drop(state);
        if let Some(worker) = worker {
            worker.handle.end();
            worker.handle.thread.wait(ThreadExit::soon());
        }
        Ok(())
    }

    /// The error that [`Switch::remove_worker`] returns for the last worker on this CPU while a queue is pinned there.
    pub fn pinned_to(&self, cpu: usize) -> Option<SwitchError> {
        self.lock().pin_to(cpu)
    }
}

impl State {
    /// The refusal that names a receive queue pinned to this CPU, also one whose client is not attached.
    fn pin_to(&self, cpu: usize) -> Option<SwitchError> {
        self.bridges.values().find_map(|bridge| {
            bridge.ports.iter().flatten().find_map(|port| {
                let (queue, _) = port.pins.iter().find(|(_, pinned)| **pinned == cpu)?;
                let (bridge, port) = (bridge.name.clone(), port.settings.name.clone());
                Some(SwitchError::PinnedThere { bridge, port, queue: *queue, cpu })
            })
        })
    }

    /// Moves all tasks of worker `last`, alarms aside, to others, and worker `removed` to its CPU. If a client holds a
    /// task up, all stay where they are.
    fn take_place(&mut self, removed: usize, last: usize) -> Result<(), SwitchError> {
        let cpu_of =
            |state: &Self, worker| state.workers.get(worker).map_or((None, None), |w| (w.cpu, w.node));
        let (from, to) = (cpu_of(self, removed), cpu_of(self, last));
        self.set_cpu(removed, to)?;
        let all = self.placed();
        let mut moved = Vec::new();
        for task in &all {
            let may = |worker: usize| {
                worker != last && task.pinned.is_none_or(|cpu| self.workers.cpu_of(worker) == Some(cpu))
            };
            let target = match self.workers.choose(task.near, may) {
                Some(target) if task.worker == last || self.strays(task, removed, from, target) => Ok(target),
                Some(_) => continue,
                None if task.worker == last || (task.worker == removed && task.pinned.is_some()) => {
                    Err(SwitchError::Gone("worker"))
                }
                None => continue,
            };
            let move_to = |target| self.move_placed(*task, target).map(|()| moved.push((*task, target)));
            if let Err(error) = target.and_then(move_to) {
                for (task, target) in moved {
                    // An error means that a client holds this one up now; it is served where it is.
                    let _ = self.move_placed(Placed { worker: target, ..task }, task.worker);
                }
                let _ = self.set_cpu(removed, from);
                return Err(error);
            }
        }
        self.explain_removal(&all, &moved, removed, from.0);
        Ok(())
    }

    /// Whether a task of worker `removed`, whose thread came `from` another CPU, is better off with `target`: it is
    /// pinned to that CPU, or near to it.
    fn strays(
        &self,
        task: &Placed,
        removed: usize,
        from: (Option<usize>, Option<usize>),
        target: usize,
    ) -> bool {
        let suits =
            |worker| self.workers.get(worker).map_or(0, |worker| task.near.suits(worker.cpu, worker.node));
        let is_far = suits(removed) < task.near.suits(from.0, from.1).min(suits(target));
        let is_elsewhere = task.pinned.is_some() && task.pinned != self.workers.cpu_of(task.worker);
        task.worker == removed && (is_elsewhere || (task.pinned.is_none() && is_far))
    }

    /// Moves a worker's thread to a CPU on that NUMA node.
    fn set_cpu(
        &mut self,
        number: usize,
        (cpu, node): (Option<usize>, Option<usize>),
    ) -> Result<(), SwitchError> {
        if let Some(worker) = self.workers.get_mut(number)
            && worker.cpu != cpu
        {
            let refused =
                |error| SwitchError::NoStart(format!("worker {number} cannot go to another CPU: {error}"));
            worker.info.pin(cpu, &worker.unpinned).map_err(refused)?;
            (worker.cpu, worker.node) = (cpu, node);
        }
        Ok(())
    }

    /// Records why receive queues are at another CPU than before the worker on `cpu`, number `removed`, was removed.
    fn explain_removal(
        &mut self,
        all: &[Placed],
        moved: &[(Placed, usize)],
        removed: usize,
        cpu: Option<usize>,
    ) {
        let was_moved = |task: &&Placed| {
            let target = moved.iter().find(|(other, _)| other.token == task.token).map(|(_, target)| *target);
            // A queue of the last worker that went to the one in its place is on the same CPU as before.
            target.map_or(task.worker == removed, |target| target != removed || task.worker == removed)
        };
        for task in all.iter().filter(|task| task.pinned.is_none()).filter(was_moved) {
            if let Place::Queue(at, queue) = task.place
                && let Ok(queue) = u16::try_from(queue)
                && let Ok(assigned) = self.queue(at, queue)
            {
                assigned.why = Assignment::WorkerRemoved { cpu };
            }
        }
    }

    /// All tasks, alarms aside.
    fn placed(&self) -> Vec<Placed> {
        let mut all = Vec::new();
        for (id, bridge) in &self.bridges {
            if let Some((_, worker, token)) = bridge.injector {
                let (place, near) = (Place::Injector(*id), Placement::default());
                all.push(Placed { place, token, worker, near, pinned: None });
            }
            for (index, port) in (0u16..).zip(&bridge.ports) {
                let Some((port, attached)) = port.as_ref().and_then(|p| Some((p, p.attached.as_ref()?)))
                else {
                    continue;
                };
                let (at, near) = (PortRef { bridge: *id, port: PortIndex(index) }, attached.near);
                all.extend(attached.rx.iter().enumerate().map(|(number, queue)| {
                    let pin = u16::try_from(number).ok().and_then(|number| port.pins.get(&number).copied());
                    let pinned = pin.filter(|_| queue.why == Assignment::Pinned);
                    let (token, worker) = (queue.token, queue.worker);
                    Placed { place: Place::Queue(at, number), token, worker, near, pinned }
                }));
                let drains = attached.queues.iter().flat_map(|queues| &queues.drains);
                all.extend(drains.enumerate().map(|(i, (worker, token))| {
                    let (token, worker) = (*token, *worker);
                    Placed { place: Place::Drain(at, i), token, worker, near, pinned: None }
                }));
            }
        }
        all
    }

    /// Moves a task to worker `to`.
    fn move_placed(&mut self, task: Placed, to: usize) -> Result<(), SwitchError> {
        self.workers.move_task(task.token, task.worker, to, WorkerHandle::take_to_move)?;
        match task.place {
            Place::Queue(at, number) => {
                let number = u16::try_from(number).map_err(|_| SwitchError::Gone("queue"))?;
                queue_of(&mut self.bridges, at, number)?.worker = to;
            }
            Place::Drain(at, i) => {
                let bridge = self.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
                let attached = port_mut(bridge, at.port)?.attached.as_mut();
                let queues = attached.and_then(|attached| attached.queues.as_mut());
                if let Some(drain) = queues.and_then(|queues| queues.drains.get_mut(i)) {
                    drain.0 = to;
                }
            }
            Place::Injector(id) => {
                let injector = self.bridges.get_mut(&id).and_then(|bridge| bridge.injector.as_mut());
                if let Some(injector) = injector {
                    injector.1 = to;
                }
            }
        }
        Ok(())
    }
}
