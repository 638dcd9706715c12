//! The control plane's handle: bridges, ports, what is attached to them, and the workers.
//!
//! Every change is: build the new picture, publish it, wait until no worker uses the old one, drop it. The
//! calls block for about a batch's time; none may be made from a worker (from an [`OnFault`], say).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use packet::offload::Offload;

use crate::bridge::cell::BridgeCell;
use crate::bridge::picture::{BridgeState, Lane, PortEntry};
use crate::bridge::port::{Caps, MAX_PORTS, PortIndex, PortSettings};
use crate::bridge::quiescence::Quiescence;
use crate::clock;
use crate::counters::{DropReason, QueueCounters, QueueSnapshot, WorkerSnapshot};
use crate::decide::logic::SwitchLogic;
use crate::deliver::crossing::Inlet;
use crate::deliver::egress::Egress;
use crate::deliver::queueing::{Queued, Retained};
use crate::fault::OnFault;
use crate::observe::mirror::{Copied, Mirror, MirrorSnapshot};
use crate::observe::observer::Observer;
use crate::observe::trace::{self, TraceError, Traced};
use crate::placement::Placement;
use crate::protect::policing::Guards;
use crate::rx::{BatchLimits, RxQueue};
use crate::wake::doorbell::EventBell;
use crate::worker::handle::WorkerHandle;
use crate::worker::run::{self, Pace};
use crate::worker::tasks::alarm::Alarm;
use crate::worker::tasks::drain::{Drain, Gate};
use crate::worker::tasks::inject::{Inject, InjectError, Injection, Injector};
use crate::worker::tasks::take_in::TakeIn;
use crate::worker::tasks::{Task, Token};

/// A bridge of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BridgeId(u32);

/// A port of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRef {
    /// Its bridge.
    pub bridge: BridgeId,
    /// Its index there.
    pub port: PortIndex,
}

/// An observer of a bridge, so that it can be taken away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

/// Why the switch refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// A bridge of this name exists.
    #[error("bridge {0:?} exists already")]
    BridgeExists(String),
    /// A port of this name exists in the bridge.
    #[error("port {0:?} exists already in this bridge")]
    PortExists(String),
    /// The bridge has no room.
    #[error("the bridge has {MAX_PORTS} ports, which is as many as it can hold")]
    TooManyPorts,
    /// No such bridge, port or queue (any more).
    #[error("no such {0}")]
    Gone(&'static str),
    /// No worker runs on this CPU.
    #[error("no worker runs on CPU {0}; the workers' CPUs are {1:?}")]
    NoWorker(usize, Vec<usize>),
    /// The logic could not be made ready.
    #[error("{0}")]
    Logic(String),
    /// Something is attached to the port.
    #[error("the port already has a client")]
    Attached,
    /// The kernel gives no doorbell for a queue.
    #[error("cannot make an eventfd for a queue: {0}")]
    Doorbell(std::io::ErrorKind),
    /// A packet was not injected.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// How a switch runs.
#[derive(Debug, Clone)]
pub struct SwitchOptions {
    /// One worker per entry, pinned to that CPU, or left to the scheduler.
    pub workers: Vec<Option<usize>>,
    /// Bounds of a batch.
    pub batch: BatchLimits,
    /// When workers sleep.
    pub pace: Pace,
}

impl Default for SwitchOptions {
    fn default() -> Self {
        Self { workers: vec![None], batch: BatchLimits::default(), pace: Pace::default() }
    }
}

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
}

/// Queues of the switch's own in front of a port's transmit queues: packets are copied there once, in the order in which
/// they come, and drained by a worker.
pub struct Queueing {
    /// Room of each queue, in slots of 2 KiB; a packet takes at least one.
    pub slots: u32,
    /// Makes the gate of each queue, given its number, which says when packets may leave.
    pub gate: Box<dyn Fn(u16) -> Box<dyn Gate> + Send + Sync>,
}

struct Attached {
    tx: Vec<Arc<dyn Egress>>,
    /// Worker and token of each receive queue.
    rx: Vec<(usize, Token)>,
    /// The same of each queue of the switch's own.
    drains: Vec<(usize, Token)>,
    caps: Caps,
    mtu: u32,
    on_fault: OnFault,
}

struct Port {
    settings: Arc<PortSettings>,
    guards: Option<Arc<Guards>>,
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
    attached: Option<Attached>,
}

impl Port {
    fn is_up(&self) -> bool {
        self.settings.admin_up && self.attached.is_some()
    }
}

struct Bridge {
    name: String,
    cell: Arc<BridgeCell>,
    logic: Arc<dyn SwitchLogic>,
    /// Wakes the logic, at every worker, if it wants that.
    alarm: Option<Token>,
    /// What packets are injected through, once somebody has asked for it, and the worker and token of the task.
    injector: Option<(Injector, usize, Token)>,
    /// Of packets that the logic originates.
    originated: Arc<QueueCounters>,
    ports: Vec<Option<Port>>,
    observers: Vec<(ObserverId, Arc<dyn Observer>)>,
    mirrors: Vec<(Mirror, Arc<Copied>)>,
}

#[derive(Default)]
struct State {
    bridges: BTreeMap<BridgeId, Bridge>,
    next_bridge: u32,
    next_token: Token,
    next_observer: u64,
}

/// Counters of a port, by queue; they last from client to client.
#[derive(Debug, Clone, Default)]
pub struct PortSnapshot {
    /// Whether traffic can pass.
    pub up: bool,
    /// From the client.
    pub rx: Vec<QueueSnapshot>,
    /// To the client.
    pub tx: Vec<QueueSnapshot>,
}

/// A worker as it is.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// CPU it is pinned to.
    pub cpu: Option<usize>,
    /// Its counters since the start.
    pub counters: WorkerSnapshot,
    /// Cycles since the start of the switch: with `busy_cycles`, the busy share.
    pub elapsed_cycles: u64,
    /// Queues it owns: port and queue number.
    pub queues: Vec<(PortRef, u16)>,
}

/// A running switch. See the module.
pub struct Switch {
    // Workers stop before anything they use goes.
    workers: Vec<WorkerHandle>,
    load: Vec<AtomicU32>,
    quiescence: Arc<Quiescence>,
    state: Mutex<State>,
    started: u64,
    link_listener: OnceLock<LinkListener>,
}

/// A port's way for traffic opened or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange {
    /// The bridge's name.
    pub bridge: String,
    /// The port's name.
    pub port: String,
    /// Whether traffic can pass now.
    pub up: bool,
}

/// Told of every [`LinkChange`], on the thread that makes it and while the switch is locked: it must return at once
/// and not call the switch.
pub type LinkListener = Box<dyn Fn(LinkChange) + Send + Sync>;

impl Switch {
    /// Starts the workers.
    pub fn start(options: &SwitchOptions) -> std::io::Result<Self> {
        let n = options.workers.len().max(1);
        let quiescence = Arc::new(Quiescence::new(n));
        let workers = (0..n)
            .map(|i| {
                let cpu = options.workers.get(i).copied().flatten();
                run::start(i, cpu, options.batch, options.pace, quiescence.clone())
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let load = workers.iter().map(|_| AtomicU32::new(0)).collect();
        let (state, link_listener) = (Mutex::default(), OnceLock::new());
        Ok(Self { workers, load, quiescence, state, started: clock::cycles(), link_listener })
    }

    /// Names who is told when ports go up and down; only the first one named is.
    pub fn on_link(&self, listener: LinkListener) {
        let _ = self.link_listener.set(listener);
    }

    fn tell(&self, bridge: &Bridge, at: PortIndex, was_up: bool) {
        let Some(port) = bridge.ports.get(usize::from(at.0)).and_then(Option::as_ref) else { return };
        if was_up == port.is_up() {
            return;
        }
        if was_up {
            bridge.logic.port_down(at);
        }
        if let Some(listener) = self.link_listener.get() {
            let (bridge, port_name) = (bridge.name.clone(), port.settings.name.clone());
            listener(LinkChange { bridge, port: port_name, up: port.is_up() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an empty bridge.
    pub fn add_bridge(&self, name: &str, logic: Arc<dyn SwitchLogic>) -> Result<BridgeId, SwitchError> {
        let state = &mut *self.lock();
        if state.bridges.values().any(|b| b.name == name) {
            return Err(SwitchError::BridgeExists(name.into()));
        }
        logic.prepare(self.workers.len()).map_err(SwitchError::Logic)?;
        let id = BridgeId(state.next_bridge);
        state.next_bridge += 1;
        let cell = Arc::new(BridgeCell::new(BridgeState::new(logic.clone(), Vec::new(), Vec::new())));
        let (ports, observers, mirrors, originated) = Default::default();
        let mut bridge = Bridge {
            name: name.into(),
            cell,
            logic,
            alarm: None,
            injector: None,
            originated,
            ports,
            observers,
            mirrors,
        };
        let alarms = self.alarms(&bridge, &bridge.logic, next(&mut state.next_token));
        self.set_alarms(&mut bridge, alarms);
        state.bridges.insert(id, bridge);
        Ok(id)
    }

    /// Removes a bridge and its ports.
    pub fn remove_bridge(&self, id: BridgeId) -> Result<(), SwitchError> {
        let ports = self.ports(id)?;
        for port in ports {
            self.remove_port(PortRef { bridge: id, port })?;
        }
        let bridge = self.lock().bridges.remove(&id).ok_or(SwitchError::Gone("bridge"))?;
        self.remove_alarms(bridge.alarm);
        if let Some((injector, worker, token)) = &bridge.injector {
            if let Some(Task::Inject(task)) = self.take(*worker, *token) {
                task.discard();
            }
            injector.close();
        }
        self.quiescence.wait();
        for (_, observer) in &bridge.observers {
            observer.bridge_removed();
        }
        drop(bridge);
        Ok(())
    }

    /// Replaces a bridge's logic: batches under way finish with the old one, the next meet the new one.
    pub fn set_logic(&self, id: BridgeId, logic: Arc<dyn SwitchLogic>) -> Result<(), SwitchError> {
        let state = &mut *self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        logic.prepare(self.workers.len()).map_err(SwitchError::Logic)?;
        let alarms = self.alarms(bridge, &logic, next(&mut state.next_token));
        let old = std::mem::replace(&mut bridge.logic, logic);
        self.publish(bridge);
        self.set_alarms(bridge, alarms);
        drop(old);
        Ok(())
    }

    /// What wakes a logic that is about to be the bridge's: an alarm for each worker, or none.
    fn alarms(&self, bridge: &Bridge, logic: &Arc<dyn SwitchLogic>, token: Token) -> Vec<Alarm> {
        let Some(period) = logic.period() else { return Vec::new() };
        let alarm = |_| Alarm::every(period, bridge.cell.clone(), bridge.originated.clone(), token);
        self.workers.iter().map(alarm).collect()
    }

    /// Sets these alarms in the place of those that the bridge has.
    fn set_alarms(&self, bridge: &mut Bridge, alarms: Vec<Alarm>) {
        self.remove_alarms(bridge.alarm.take());
        bridge.alarm = alarms.first().map(Alarm::token);
        for (worker, alarm) in self.workers.iter().zip(alarms) {
            worker.add(Task::Alarm(Box::new(alarm)));
        }
    }

    fn remove_alarms(&self, token: Option<Token>) {
        if let Some(token) = token {
            self.workers.iter().for_each(|worker| drop(worker.take(token)));
        }
    }

    /// What became of packets that a bridge's logic originated when its time had come, as far as they went nowhere.
    pub fn originated(&self, id: BridgeId) -> Result<QueueSnapshot, SwitchError> {
        Ok(self.lock().bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.originated.snapshot())
    }

    /// Lets `observer` see the packets of a bridge from its next batch on.
    pub fn observe(&self, id: BridgeId, observer: Arc<dyn Observer>) -> Result<ObserverId, SwitchError> {
        let mut state = self.lock();
        let added = ObserverId(state.next_observer);
        state.next_observer += 1;
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        bridge.observers.push((added, observer));
        self.publish(bridge);
        Ok(added)
    }

    /// How many observers a bridge has.
    pub fn observers(&self, id: BridgeId) -> Result<usize, SwitchError> {
        let state = self.lock();
        Ok(state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.observers.len())
    }

    /// Takes an observer away. When this returns no worker will call it again.
    pub fn unobserve(&self, id: BridgeId, observer: ObserverId) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        let at = bridge.observers.iter().position(|(other, _)| *other == observer);
        let gone = bridge.observers.remove(at.ok_or(SwitchError::Gone("observer"))?);
        self.publish(bridge);
        drop(gone);
        Ok(())
    }

    /// Gives a bridge these mirrors in place of those it has; one that stays as it is goes on counting.
    pub fn set_mirrors(&self, id: BridgeId, mirrors: Vec<Mirror>) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        let before = std::mem::take(&mut bridge.mirrors);
        let copied = |mirror: &Mirror| {
            before
                .iter()
                .find(|(other, _)| other == mirror)
                .map(|(_, copied)| copied.clone())
                .unwrap_or_default()
        };
        bridge.mirrors = mirrors.into_iter().map(|mirror| (mirror.clone(), copied(&mirror))).collect();
        self.publish(bridge);
        Ok(())
    }

    /// A bridge's mirrors and what they have copied.
    pub fn mirrors(&self, id: BridgeId) -> Result<Vec<(Mirror, MirrorSnapshot)>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        Ok(bridge.mirrors.iter().map(|(mirror, copied)| (mirror.clone(), copied.snapshot())).collect())
    }

    /// What would become of a packet that came from a port now, and why. Nothing is sent, counted or learned.
    pub fn trace(&self, at: PortRef, packet: &[u8], offload: Offload) -> Result<Traced, TraceError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        port_mut(bridge, at.port)?;
        // SAFETY: pictures are replaced by `publish` only, which needs the lock that is held until the end.
        let picture = unsafe { bridge.cell.get() };
        trace::rehearse(picture, at.port, packet, offload)
    }

    /// Sends a packet of the control plane into a bridge; see [`Switch::injector`].
    pub fn inject(
        &self,
        id: BridgeId,
        packet: &[u8],
        offload: Offload,
        to: Injection,
    ) -> Result<(), SwitchError> {
        Ok(self.injector(id)?.inject(packet, offload, to)?)
    }

    /// What packets of the control plane are sent into a bridge through, without waiting for changes of the switch. They
    /// are taken by one worker, in order.
    pub fn injector(&self, id: BridgeId) -> Result<Injector, SwitchError> {
        let state = &mut *self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        if let Some((injector, ..)) = &bridge.injector {
            return Ok(injector.clone());
        }
        let injector = Injector::new().map_err(doorbell)?;
        let token = next(&mut state.next_token);
        let worker = self.place(Placement::default());
        self.add(worker, Task::Inject(Box::new(Inject::new(&injector, bridge.cell.clone(), token))));
        bridge.injector = Some((injector.clone(), worker, token));
        Ok(injector)
    }

    /// The ports of a bridge.
    pub fn ports(&self, id: BridgeId) -> Result<Vec<PortIndex>, SwitchError> {
        let state = self.lock();
        let bridge = state.bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?;
        Ok((0..).zip(&bridge.ports).filter(|(_, p)| p.is_some()).map(|(i, _)| PortIndex(i)).collect())
    }

    /// Adds a port without a client.
    pub fn add_port(&self, id: BridgeId, settings: PortSettings) -> Result<PortRef, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&id).ok_or(SwitchError::Gone("bridge"))?;
        if bridge.ports.iter().flatten().any(|p| p.settings.name == settings.name) {
            return Err(SwitchError::PortExists(settings.name));
        }
        let at = bridge.ports.iter().position(Option::is_none).unwrap_or(bridge.ports.len());
        if at >= MAX_PORTS {
            return Err(SwitchError::TooManyPorts);
        }
        let guards = Guards::of(&settings, None);
        let settings = Arc::new(settings);
        let port = Port { settings, guards, rx: Vec::new(), tx: Vec::new(), attached: None };
        if at == bridge.ports.len() {
            bridge.ports.push(Some(port));
        } else {
            bridge.ports[at] = Some(port);
        }
        self.publish(bridge);
        Ok(PortRef { bridge: id, port: PortIndex(at as u16) })
    }

    /// Changes a port's settings.
    pub fn set_port(&self, at: PortRef, settings: PortSettings) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        port.guards = Guards::of(&settings, port.guards.as_deref());
        port.settings = Arc::new(settings);
        self.publish(bridge);
        self.tell(bridge, at.port, was_up);
        Ok(())
    }

    /// Changes the largest packet that a port's client takes, bytes without link header.
    pub fn set_client_mtu(&self, at: PortRef, mtu: u32) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        port_mut(bridge, at.port)?.attached.as_mut().ok_or(SwitchError::Gone("client"))?.mtu = mtu;
        self.publish(bridge);
        Ok(())
    }

    /// A port's settings.
    pub fn settings(&self, at: PortRef) -> Result<PortSettings, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        Ok(port_mut(bridge, at.port)?.settings.as_ref().clone())
    }

    /// Where packets that leave at other ports may enter as if they came from a client of this one: what another port is
    /// attached to sends them there. They are dropped (`port-down`) while this port is down. It holds on to the bridge: whoever has
    /// attached it detaches it when the port goes.
    pub fn inlet(&self, at: PortRef) -> Result<Inlet, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let cell = bridge.cell.clone();
        let port = port_mut(bridge, at.port)?;
        if port.rx.is_empty() {
            port.rx.push(Arc::default());
        }
        let counters = port.rx.first().cloned().unwrap_or_default();
        Ok(Inlet::new(cell, at.port, counters))
    }

    /// A bridge's name.
    pub fn bridge_name(&self, id: BridgeId) -> Result<String, SwitchError> {
        Ok(self.lock().bridges.get(&id).ok_or(SwitchError::Gone("bridge"))?.name.clone())
    }

    /// Removes a port, detaching its client first.
    pub fn remove_port(&self, at: PortRef) -> Result<(), SwitchError> {
        self.detach(at)?;
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let slot = bridge.ports.get_mut(usize::from(at.port.0)).ok_or(SwitchError::Gone("port"))?;
        let port = slot.take().ok_or(SwitchError::Gone("port"))?;
        self.publish(bridge);
        bridge.logic.port_removed(at.port);
        drop(port);
        Ok(())
    }

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
        let on_fault = once(attachment.on_fault);
        let mut tasks = Vec::new();
        for ((number, queue), counters) in (0..).zip(attachment.rx).zip(&port.rx) {
            let task = TakeIn {
                queue,
                bridge: cell.clone(),
                ingress: at.port,
                number,
                counters: counters.clone(),
                on_fault: on_fault.clone(),
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
                let drain = Drain::new(ring, gate, egress, counters, on_fault.clone(), token);
                tasks.push((self.place(options.placement), Task::Drain(Box::new(drain))));
            }
        }
        let drains = names(tasks.get(rx.len()..).unwrap_or_default());
        port.attached =
            Some(Attached { tx, rx, drains, caps: attachment.caps, mtu: attachment.mtu, on_fault });
        self.publish(bridge);
        self.tell(bridge, at.port, false);
        // The port is in the picture before its first packet can be.
        for (worker, task) in tasks {
            self.add(worker, task);
        }
        Ok(())
    }

    /// Unplugs a port's client, if there is one. When this returns no worker uses its queues or memory.
    pub fn detach(&self, at: PortRef) -> Result<(), SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        let was_up = port.is_up();
        let Some(attached) = port.attached.take() else { return Ok(()) };
        let queues: Vec<_> = attached.rx.iter().map(|(worker, token)| self.take(*worker, *token)).collect();
        self.publish(bridge);
        // Nothing is retained for the client any more.
        for (worker, token) in &attached.drains {
            if let Some(Task::Drain(drain)) = self.take(*worker, *token) {
                drain.discard();
            }
        }
        drop(queues);
        drop(attached);
        self.tell(bridge, at.port, was_up);
        Ok(())
    }

    /// Returns when every worker has ended the batch that it was at: what a port type had replaced before, in queues that
    /// stay attached, is not used any more.
    pub fn settle(&self) {
        self.quiescence.wait();
    }

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
        new.add(old.take(token).ok_or(SwitchError::Gone("queue"))?);
        entry.0 = to;
        use std::sync::atomic::Ordering::Relaxed;
        if let (Some(a), Some(b)) = (self.load.get(from), self.load.get(to)) {
            a.fetch_sub(1, Relaxed);
            b.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// A port's counters.
    pub fn counters(&self, at: PortRef) -> Result<PortSnapshot, SwitchError> {
        let mut state = self.lock();
        let bridge = state.bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
        let port = port_mut(bridge, at.port)?;
        Ok(PortSnapshot {
            up: port.is_up(),
            rx: port.rx.iter().map(|c| c.snapshot()).collect(),
            tx: port.tx.iter().map(|c| c.snapshot()).collect(),
        })
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

    /// The worker that is to have one more task: of those that suit it best, the one that has fewest.
    fn place(&self, hint: Placement) -> usize {
        use std::sync::atomic::Ordering::Relaxed;
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
    fn add(&self, worker: usize, task: Task) {
        if let Some(worker) = self.workers.get(worker) {
            worker.add(task);
        }
    }

    /// Takes a task that was placed there away from a worker; returns after its last batch has completed.
    fn take(&self, worker: usize, token: Token) -> Option<Task> {
        if let Some(load) = self.load.get(worker) {
            load.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        }
        self.workers.get(worker)?.take(token)
    }

    /// Publishes a bridge's current picture and waits until nobody uses the one before.
    fn publish(&self, bridge: &Bridge) {
        let named: Vec<_> = (0u16..)
            .zip(&bridge.ports)
            .filter_map(|(i, port)| Some((PortIndex(i), port.as_ref()?.settings.clone())))
            .collect();
        bridge.logic.ports_changed(&named);
        let mut lanes = Vec::new();
        let ports = (0u16..)
            .zip(&bridge.ports)
            .map(|(i, port)| Some(picture_of(PortIndex(i), port.as_ref()?, &mut lanes)));
        let ports = ports.collect();
        let observers = bridge.observers.iter().map(|(_, observer)| observer);
        let state = BridgeState::with_aside(bridge.logic.clone(), ports, lanes, &bridge.mirrors, observers);
        let old = bridge.cell.swap(state.with_arenas(self.workers.len()));
        self.quiescence.wait();
        drop(old);
    }
}

fn doorbell(error: std::io::Error) -> SwitchError {
    SwitchError::Doorbell(error.kind())
}

/// The next of some numbers.
fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}

/// Several queues, on several workers, may find out what a client did; its port is told of the first.
fn once(tell: OnFault) -> OnFault {
    let told = AtomicBool::new(false);
    Arc::new(move |fault| {
        if !told.swap(true, std::sync::atomic::Ordering::Relaxed) {
            tell(fault);
        }
    })
}

/// Room for the link header and two VLAN tags on top of an MTU.
const LINK_HEADER: u32 = 14 + 4 + 4;

fn picture_of(at: PortIndex, port: &Port, lanes: &mut Vec<Lane>) -> PortEntry {
    let first_lane = lanes.len() as u32;
    let settings = port.settings.clone();
    let (mut up, mut caps, mut max_frame) = (false, Caps::default(), 0);
    if let Some(attached) = port.attached.as_ref().filter(|_| settings.admin_up) {
        let mtu = if settings.mtu > 0 { settings.mtu.min(attached.mtu) } else { attached.mtu };
        (up, caps, max_frame) = (true, attached.caps, mtu.saturating_add(LINK_HEADER));
        lanes.extend(attached.tx.iter().zip(&port.tx).map(|(egress, counters)| Lane {
            port: at,
            egress: egress.clone(),
            counters: counters.clone(),
            on_fault: attached.on_fault.clone(),
        }));
    }
    PortEntry {
        up,
        first_lane,
        lanes: lanes.len() as u32 - first_lane,
        caps,
        max_frame,
        closed: DropReason::PortDown,
        secured: settings.security.is_on(),
        guards: port.guards.clone(),
        settings,
    }
}

fn port_mut(bridge: &mut Bridge, at: PortIndex) -> Result<&mut Port, SwitchError> {
    bridge.ports.get_mut(usize::from(at.0)).and_then(Option::as_mut).ok_or(SwitchError::Gone("port"))
}
