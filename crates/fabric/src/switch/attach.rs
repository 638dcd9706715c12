//! Attaching and detaching the queues of a client, with the switch's own queues in front of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Assigned, Assignment, Attached, Placement, PortRef, State, Switch, SwitchError, doorbell, next, port_mut,
};
use crate::bridge::port::Caps;
use crate::deliver::client::{Client, SharedMemory};
use crate::deliver::egress::Egress;
use crate::deliver::queueing::{Queued, Retained};
use crate::fault::OnFault;
use crate::rx::RxQueue;
use crate::wake::doorbell::EventBell;
use crate::worker::request::PendingTask;
use crate::worker::tasks::Task;
use crate::worker::tasks::drain::{Drain, Gate};
use crate::worker::tasks::take_in::TakeIn;

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
    /// The switch's own queue in front of each transmit queue. Without it packets are delivered at once.
    pub queueing: Option<Queueing>,
    /// The client's memory, if it can hold workers up.
    pub memory: Option<Arc<dyn SharedMemory>>,
}

/// The switch's own queues in front of a port's transmit queues: packets are copied there once, in the order of
/// arrival, and drained by a worker.
pub struct Queueing {
    /// Capacity of each queue, in slots of 2 KiB; a packet takes at least one.
    pub slots: u32,
    /// Creates the gate of queue number `n`, which decides when packets may leave.
    pub gate: Box<dyn Fn(u16) -> Box<dyn Gate> + Send + Sync>,
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
        let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let published = bridge.published.clone();
        let port = port_mut(bridge, at.port)?;
        if port.attached.is_some() {
            return Err(SwitchError::Attached);
        }
        let was_up = port.is_up();
        let rings: Option<Vec<_>> = match &options.queueing {
            Some(queueing) => {
                let ring = |_| Ok(Retained::new(queueing.slots, EventBell::new()?));
                Some(attachment.tx.iter().map(ring).collect::<std::io::Result<_>>().map_err(doorbell)?)
            }
            None => None,
        };
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
                queue,
                bridge: published.clone(),
                ingress: at.port,
                number,
                counters: counters.clone(),
                client: client.clone(),
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
        let (mut tx, mut drains) = (attachment.tx, Vec::new());
        if let Some((rings, queueing)) = rings.zip(options.queueing) {
            for (((number, egress), ring), counters) in (0..).zip(&mut tx).zip(rings).zip(&port.tx) {
                let queued: Arc<dyn Egress> = Arc::new(Queued::new(ring.clone(), egress.clone()));
                let (egress, gate) = (std::mem::replace(egress, queued), (queueing.gate)(number));
                let (counters, token) = (counters.clone(), next(next_token));
                let drain = Drain::new(ring, gate, egress, counters, client.clone(), token);
                let worker = workers.place(options.placement).0;
                drains.push((worker, token));
                tasks.push((worker, Task::Drain(Box::new(drain))));
            }
        }
        let Attachment { caps, mtu, .. } = attachment;
        let near = options.placement;
        port.attached = Some(Attached { tx, rx, enabled, drains, caps, mtu, down: false, client, near });
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
        keep(attached.drains.iter().filter_map(|drain| workers.ask(*drain)).collect());
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
        for task in tasks {
            match task {
                Task::Drain(drain) => drain.discard(),
                task => drop(task),
            }
        }
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

/// Time to wait for a detached client's queues when another client holds up a worker that is using them.
const PATIENCE: Duration = Duration::from_secs(2);
