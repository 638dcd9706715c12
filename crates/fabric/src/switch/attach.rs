//! Attaching and detaching the queues of a client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::queues::{Memory, Queues};
use super::{Assigned, Assignment, Attached, Placement, PortRef, State, Switch, SwitchError, next, port_mut};
use crate::bridge::port::Caps;
use crate::deliver::client::{Client, SharedMemory};
use crate::deliver::egress::Egress;
use crate::fault::OnFault;
use crate::rx::RxQueue;
use crate::worker::request::PendingTask;
use crate::worker::tasks::Task;
use crate::worker::tasks::take_in::TakeIn;
use crate::worker::tasks::turn::Turn;

/// The queues of one client, which a port type attaches to a port.
pub struct Attachment {
    /// Receive queues.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// Transmit queues.
    pub tx: Vec<Arc<dyn Egress>>,
    /// Offloads that the client takes as they are.
    pub caps: Caps,
    /// Largest packet it takes, bytes without link header.
    pub mtu: u32,
    /// Called when the client breaks the rules. Runs on a worker; see [`OnFault`].
    pub on_fault: OnFault,
}

/// Options for attaching a client.
#[derive(Default)]
pub struct AttachOptions {
    /// Preferred workers of the queues.
    pub placement: Placement,
    /// The client's memory, if it can hold workers up.
    pub memory: Option<Arc<dyn SharedMemory>>,
}

impl Switch {
    /// Attaches a client's queues to a port. Receive queues go to the workers that own fewest, unless they are pinned.
    pub fn attach(&self, at: PortRef, attachment: Attachment) -> Result<(), SwitchError> {
        self.attach_with(at, attachment, AttachOptions::default())
    }

    /// The same, with options.
    pub fn attach_with(
        &self,
        at: PortRef,
        attachment: Attachment,
        options: AttachOptions,
    ) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let State { bridges, next_token, workers, .. } = &mut *state;
        let memory = Memory::without(self.queue_memory, bridges, at);
        let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let published = bridge.published.clone();
        let port = port_mut(bridge, at.port)?;
        if port.attached.is_some() {
            return Err(SwitchError::Attached);
        }
        let was_up = port.is_up();
        let classes = port.classes.as_ref();
        let mut queues = classes.map(|classes| Queues::new(classes, &attachment.tx, memory)).transpose()?;
        while port.rx.len() < attachment.rx.len() {
            port.rx.push(Arc::default());
        }
        while port.tx.len() < attachment.tx.len() {
            port.tx.push(Arc::default());
        }
        let number = next(next_token) + 1;
        let client = Client::new(number, attachment.on_fault, attachment.tx.clone(), options.memory);
        self.group.clients.add(client.clone());
        let (mut tasks, mut rx) = (Vec::new(), Vec::new());
        let enabled = attachment.rx.iter().filter(|queue| queue.is_enabled()).count() as u32;
        for ((number, queue), counters) in (0..).zip(attachment.rx).zip(&port.rx) {
            let task = TakeIn {
                entries: queue.entries(),
                queue,
                bridge: published.clone(),
                ingress: at.port,
                number,
                counters: counters.clone(),
                client: client.clone(),
                turn: Turn::default(),
                token: next(next_token),
                dead: false,
            };
            let (worker, why) = match port.pins.get(&number).and_then(|cpu| workers.on_cpu(*cpu)) {
                Some(worker) => (workers.place_at(worker), Assignment::Pinned),
                None => workers.place(options.placement),
            };
            rx.push(Assigned { worker, token: task.token, why, moved: 0 });
            tasks.push((worker, Task::TakeIn(Box::new(task))));
        }
        let tx = attachment.tx;
        let (caps, mtu) = (attachment.caps, attachment.mtu);
        let near = options.placement;
        if let Some(queues) = &mut queues {
            tasks.extend(queues.start(&port.tx, &client, near, workers, next_token));
        }
        port.attached = Some(Attached { tx, rx, enabled, queues, caps, mtu, down: false, client, near });
        port.suspended = false;
        self.publish(bridge);
        self.report_link(bridge, at.port, was_up);
        // The port is published before its first packet can arrive.
        for (worker, task) in tasks {
            workers.add(worker, task);
        }
        Ok(())
    }

    /// Detaches a port's client, if there is one. On return no worker uses its queues or memory, except a worker that
    /// another client has held up for two seconds or more: that one delivers nothing more to it, but may still write
    /// where it was writing.
    pub fn detach(&self, at: PortRef) -> Result<(), SwitchError> {
        self.unplug(at, false)
    }

    /// As [`Switch::detach`], but the link stays up, and with it everything learned at the port: for a client whose
    /// queues are being replaced. Packets to the port are dropped (`port-down`) until [`Switch::attach`]; if nothing is
    /// attached after all, [`Switch::detach`] takes the link down.
    pub fn suspend(&self, at: PortRef) -> Result<(), SwitchError> {
        self.unplug(at, true)
    }

    fn unplug(&self, at: PortRef, suspend: bool) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let State { bridges, workers, .. } = &mut *state;
        let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        port.suspended = suspend && (port.suspended || port.has_link());
        let attached = port.attached.take();
        let Some(attached) = attached else {
            self.report_link(bridge, at.port, was_up);
            return Ok(());
        };
        let (mut tasks, mut lent) = (Vec::new(), Vec::new());
        let mut keep = |asked: Vec<PendingTask>| {
            let deadline = Instant::now() + PATIENCE;
            for asked in asked {
                match asked.answer(deadline) {
                    Ok(task) => tasks.extend(task),
                    Err(later) => lent.push(later),
                }
            }
        };
        keep(attached.rx.iter().filter_map(|queue| workers.ask((queue.worker, queue.token))).collect());
        let client = &attached.client;
        let was_abandoned = client.is_abandoned();
        // Before the new state: a thread that comes late must neither take packets for, nor deliver to, the port's next
        // client.
        client.leave();
        self.publish(bridge);
        // Nothing more is retained for the client.
        let drains = attached.queues.iter().flat_map(|queues| &queues.drains);
        keep(drains.filter_map(|drain| workers.ask(*drain)).collect());
        self.group.clients.remove(client);
        client.close();
        self.report_link(bridge, at.port, was_up);
        drop(state);
        if !was_abandoned {
            // Another client holds up a thread that may be using this one's queues. Without the lock: only this port
            // waits.
            let deadline = Instant::now() + PATIENCE;
            let left = || deadline.saturating_duration_since(Instant::now());
            tasks.extend(lent.into_iter().filter_map(|later| later.wait(left())));
            self.group.reclaim.settle(deadline);
        }
        tasks.into_iter().for_each(end);
        Ok(())
    }

    /// Returns when every worker has ended its current batch, except those that a client holds up.
    pub fn settle(&self) {
        self.group.reclaim.retire(());
    }

    /// Drops an object that a port type has replaced in queues that stay attached, as soon as no worker can be using
    /// it.
    pub fn retire(&self, replaced: impl Send + 'static) {
        self.group.reclaim.retire(replaced);
    }
}

/// Ends the tasks that were asked for; those of workers that are held up, when they return.
pub(super) fn discard(asked: impl Iterator<Item = PendingTask>) {
    let deadline = Instant::now() + PATIENCE;
    for asked in asked {
        let task = asked
            .answer(deadline)
            .unwrap_or_else(|later| later.wait(deadline.saturating_duration_since(Instant::now())));
        task.into_iter().for_each(end);
    }
}

/// Ends a task that no worker has any more.
fn end(task: Task) {
    match task {
        Task::Drain(drain) => drain.discard(),
        task => drop(task),
    }
}

/// Time to wait for a detached client's queues when another client holds up a worker that is using them.
const PATIENCE: Duration = Duration::from_secs(2);
