//! Attaching and detaching the queues of a client, with queues of the switch's own in front of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Attached, Placement, PortRef, State, Switch, SwitchError, doorbell, next, port_mut};
use crate::bridge::port::Caps;
use crate::deliver::client::{Client, SharedMemory};
use crate::deliver::egress::Egress;
use crate::deliver::queueing::{Queued, Retained};
use crate::fault::OnFault;
use crate::rx::RxQueue;
use crate::wake::doorbell::EventBell;
use crate::worker::handle::Lent;
use crate::worker::tasks::Task;
use crate::worker::tasks::drain::{Drain, Gate};
use crate::worker::tasks::take_in::TakeIn;

/// What a port type plugs into a port: the queues of one client.
pub struct Attachment {
    /// Where packets come from.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// Where packets go.
    pub tx: Vec<Arc<dyn Egress>>,
    /// What the client takes as it is.
    pub caps: Caps,
    /// Largest packet it takes, bytes without link header.
    pub mtu: u32,
    /// Told when the client breaks the rules. Runs on a worker; see [`OnFault`].
    pub on_fault: OnFault,
}

/// How a client's queues are plugged in, beside what they are.
#[derive(Default)]
pub struct AttachOptions {
    /// Where their work is best done.
    pub placement: Placement,
    /// A queue of the switch's own in front of each transmit queue. Without it packets are delivered at once.
    pub queueing: Option<Queueing>,
    /// The client's memory, if it can hold workers up.
    pub memory: Option<Arc<dyn SharedMemory>>,
}

/// Queues of the switch's own in front of a port's transmit queues: packets are copied there once, in the order in which
/// they come, and drained by a worker.
pub struct Queueing {
    /// Room of each queue, in slots of 2 KiB; a packet takes at least one.
    pub slots: u32,
    /// Makes the gate of each queue, given its number, which says when packets may leave.
    pub gate: Box<dyn Fn(u16) -> Box<dyn Gate> + Send + Sync>,
}

impl Switch {
    /// Plugs a client's queues into a port. Receive queues go to the workers that own fewest.
    pub fn attach(&self, at: PortRef, attachment: Attachment) -> Result<(), SwitchError> {
        self.attach_with(at, attachment, AttachOptions::default())
    }

    /// The same, with hints and queues of the switch's own.
    pub fn attach_with(
        &self,
        at: PortRef,
        attachment: Attachment,
        options: AttachOptions,
    ) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let State { bridges, next_token, .. } = &mut *state;
        let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let cell = bridge.cell.clone();
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
        self.crew.clients.add(client.clone());
        let mut tasks = Vec::new();
        for ((number, queue), counters) in (0..).zip(attachment.rx).zip(&port.rx) {
            let task = TakeIn {
                queue,
                bridge: cell.clone(),
                ingress: at.port,
                number,
                counters: counters.clone(),
                client: client.clone(),
                token: next(next_token),
                dead: false,
            };
            tasks.push((self.place(options.placement), Task::TakeIn(Box::new(task))));
        }
        let names =
            |tasks: &[(usize, Task)]| tasks.iter().map(|(worker, task)| (*worker, task.token())).collect();
        let rx: Vec<_> = names(&tasks);
        let mut tx = attachment.tx;
        if let Some((rings, queueing)) = rings.zip(options.queueing) {
            for (((number, egress), ring), counters) in (0..).zip(&mut tx).zip(rings).zip(&port.tx) {
                let queued: Arc<dyn Egress> = Arc::new(Queued::new(ring.clone()));
                let (egress, gate) = (std::mem::replace(egress, queued), (queueing.gate)(number));
                let (counters, token) = (counters.clone(), next(next_token));
                let drain = Drain::new(ring, gate, egress, counters, client.clone(), token);
                tasks.push((self.place(options.placement), Task::Drain(Box::new(drain))));
            }
        }
        let drains = names(tasks.get(rx.len()..).unwrap_or_default());
        port.attached = Some(Attached { tx, rx, drains, caps: attachment.caps, mtu: attachment.mtu, client });
        port.suspended = false;
        self.publish(bridge);
        self.tell(bridge, at.port, was_up);
        // The port is in the picture before its first packet can be.
        for (worker, task) in tasks {
            self.add(worker, task);
        }
        Ok(())
    }

    /// Unplugs a port's client, if there is one. When this returns no worker uses its queues or memory, but for one that another
    /// client has held up for two seconds and more: that delivers nothing to it any more, and may still write where it was at.
    pub fn detach(&self, at: PortRef) -> Result<(), SwitchError> {
        self.unplug(at, false)
    }

    /// As [`Switch::detach`], but the link stays up, and with it all that was learned at the port: for a client whose queues
    /// are replaced. Packets to the port are dropped (`port-down`) until [`Switch::attach`]; if nothing is to be attached
    /// after all, [`Switch::detach`] takes the link down.
    pub fn suspend(&self, at: PortRef) -> Result<(), SwitchError> {
        self.unplug(at, true)
    }

    fn unplug(&self, at: PortRef, suspend: bool) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        let attached = port.attached.take();
        port.suspended = suspend && (port.suspended || attached.is_some());
        let Some(attached) = attached else {
            self.tell(bridge, at.port, was_up);
            return Ok(());
        };
        let (mut tasks, mut lent) = (Vec::new(), Vec::new());
        let mut keep = |asked: Vec<Lent>| {
            let deadline = Instant::now() + PATIENCE;
            for asked in asked {
                match asked.answer(deadline) {
                    Ok(task) => tasks.extend(task),
                    Err(later) => lent.push(later),
                }
            }
        };
        keep(self.ask(&attached.rx));
        let client = &attached.client;
        let was_abandoned = client.is_abandoned();
        // Before the picture goes: a thread that comes late must neither enter at, nor deliver to, what comes in its place.
        client.leave();
        self.publish(bridge);
        // Nothing is retained for the client any more.
        keep(self.ask(&attached.drains));
        self.crew.clients.remove(client);
        client.close();
        self.tell(bridge, at.port, was_up);
        drop(state);
        if !was_abandoned {
            // Another client holds up a thread that may be at a batch of this one's, or for it. Without the lock: it is this
            // port alone that waits.
            let deadline = Instant::now() + PATIENCE;
            let left = || deadline.saturating_duration_since(Instant::now());
            tasks.extend(lent.into_iter().filter_map(|later| later.wait(left())));
            self.crew.reclaim.settle(deadline);
        }
        for task in tasks {
            match task {
                Task::Drain(drain) => drain.discard(),
                task => drop(task),
            }
        }
        Ok(())
    }

    /// Returns when every worker has ended the batch that it was at, but for those that a client holds up.
    pub fn settle(&self) {
        self.crew.reclaim.retire(());
    }

    /// Drops what a port type had replaced before, in queues that stay attached: as soon as no worker can be using it.
    pub fn retire(&self, replaced: impl Send + 'static) {
        self.crew.reclaim.retire(replaced);
    }
}

/// How long the queues of a client that goes are waited for, where another client holds up the worker that is at one.
const PATIENCE: Duration = Duration::from_secs(2);
