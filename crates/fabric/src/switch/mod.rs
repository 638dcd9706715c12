//! The control plane's handle: bridges, ports, attached clients, and the workers.
//!
//! Every change builds a new bridge state, publishes it, waits until no worker uses the old one, and drops that. Calls
//! block for about a batch's time; none may be made from a worker (such as from an [`OnFault`](crate::OnFault)).
//!
//! - `bridges.rs`: bridges and their logics;
//! - `ports.rs`: ports, their settings and counters;
//! - `attach.rs`: attaching and detaching clients' queues;
//! - `queues.rs`: the queues of ports where packets wait;
//! - `inject.rs`: packets of the control plane;
//! - `observing.rs`: observers, mirrors, traces;
//! - `publish.rs`: publishing the state that workers see;
//! - `worker_list.rs`, `placement.rs`: the workers, and choosing one for a task;
//! - `scaling.rs`: adding and removing workers;
//! - `workers.rs`, `balance.rs`: moving receive queues from worker to worker.

mod attach;
mod balance;
mod bridges;
mod inject;
mod observing;
mod placement;
mod ports;
mod publish;
mod queues;
mod scaling;
mod worker_list;
mod workers;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use crate::bridge::port::{Caps, MAX_PORTS, PortIndex, PortSettings};
use crate::bridge::published::PublishedBridge;
use crate::bridge::quiescence::{Quiescence, Reclaim};
use crate::counters::QueueCounters;
use crate::decide::logic::SwitchLogic;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::observe::mirror::{Copied, Mirror};
use crate::observe::observer::Observer;
use crate::protect::egress_policing::EgressPolicer;
use crate::protect::policing::RateLimits;
use crate::protect::violations::Violations;
use crate::queueing::classes::Classes;
use crate::rx::BatchLimits;
use crate::worker::overrun::{Overrun, OverrunListener};
use crate::worker::per_thread::{MAX_THREADS, MAX_WORKERS};
use crate::worker::run::Pace;
use crate::worker::tasks::Token;
use crate::worker::tasks::inject::{InjectError, Injector};
use crate::worker::thread_group::{SupportThreads, ThreadGroup};

pub use attach::{AttachOptions, Attachment};
pub use balance::{LoadListener, Moved};
pub use placement::Placement;
pub use ports::PortSnapshot;
use queues::Queues;
use worker_list::Workers;
pub use workers::{Assignment, QueueReport, WorkerReport};

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

/// Identifies an observer of a bridge for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObserverId(u64);

/// Reasons for refusing a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// A bridge of this name exists.
    #[error("bridge {0:?} already exists")]
    BridgeExists(String),
    /// A port of this name exists in the bridge.
    #[error("port {0:?} already exists in this bridge")]
    PortExists(String),
    /// The bridge is full.
    #[error("the bridge has {MAX_PORTS} ports, the most that it can hold")]
    TooManyPorts,
    /// The bridge, port or queue does not exist, or no longer.
    #[error("no such {0}")]
    Gone(&'static str),
    /// No worker runs on this CPU.
    #[error("no worker runs on CPU {0}; the workers' CPUs are {1:?}")]
    NoWorker(usize, Vec<usize>),
    /// The switch has as many workers as it can have.
    #[error("the switch has {MAX_WORKERS} workers, the most that it can have")]
    TooManyWorkers,
    /// A new worker did not start.
    #[error("{0}")]
    NoStart(String),
    /// The thread of a removed worker runs still.
    #[error(
        "a client still holds up the thread of a worker that was removed; try again when its port is down"
    )]
    WorkerEnds,
    /// The last worker cannot be removed.
    #[error("the last worker cannot be removed")]
    LastWorker,
    /// A receive queue is pinned to the CPU whose last worker is to be removed.
    #[error("queue {queue} of port {port:?} in bridge {bridge:?} is pinned to CPU {cpu}")]
    PinnedThere {
        /// Name of the bridge.
        bridge: String,
        /// Name of the port.
        port: String,
        /// Number of the queue.
        queue: u16,
        /// The CPU.
        cpu: usize,
    },
    /// The logic failed to prepare.
    #[error("{0}")]
    Logic(String),
    /// Something is attached to the port.
    #[error("the port already has a client")]
    Attached,
    /// A client holds up the batch of a queue, or a logic has not returned from it.
    #[error("a client holds up the queue's worker; try again when its port is down")]
    HeldUp,
    /// Queues where packets wait need more memory than there is for them.
    #[error(
        "its queues need {needed} bytes of memory, but of the {most} bytes that the switch has for queues {left} are left"
    )]
    QueueMemory {
        /// Bytes needed.
        needed: u64,
        /// Bytes left.
        left: u64,
        /// [`SwitchOptions::queue_memory`].
        most: u64,
    },
    /// The kernel refused an eventfd for a queue.
    #[error("cannot make an eventfd for a queue: {0}")]
    Doorbell(std::io::ErrorKind),
    /// A packet was not injected.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// Options of a switch.
#[derive(Debug, Clone)]
pub struct SwitchOptions {
    /// One worker per entry, pinned to that CPU, or left to the scheduler.
    pub workers: Vec<Option<usize>>,
    /// Bounds of a batch.
    pub batch: BatchLimits,
    /// When workers stop polling.
    pub pace: Pace,
    /// Memory for packets that wait at ports, bytes; the kernel supplies it as packets wait.
    pub queue_memory: u64,
}

impl Default for SwitchOptions {
    fn default() -> Self {
        let (batch, pace) = Default::default();
        Self { workers: vec![None], batch, pace, queue_memory: 1 << 30 }
    }
}

struct Attached {
    tx: Vec<Arc<dyn Egress>>,
    rx: Vec<Assigned>,
    /// Receive queues that the client uses.
    enabled: u32,
    /// The switch's own queues in front of the transmit queues, if packets wait at the port.
    queues: Option<Queues>,
    caps: Caps,
    mtu: u32,
    /// The client's link is down: nothing passes.
    down: bool,
    client: Arc<Client>,
    /// Preferred workers of the receive queues.
    near: Placement,
}

/// A receive queue's worker.
struct Assigned {
    worker: usize,
    token: Token,
    why: Assignment,
    /// When it was last moved because of load, on the cycle counter; 0 for never.
    moved: u64,
}

struct Port {
    settings: Arc<PortSettings>,
    rate_limits: Option<Arc<RateLimits>>,
    egress_policer: Option<Arc<EgressPolicer>>,
    /// Its classes, if packets wait at it.
    classes: Option<Arc<Classes>>,
    violations: Arc<Violations>,
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
    attached: Option<Attached>,
    /// CPUs to which receive queues are pinned, by number of the queue; also while no client is attached.
    pins: BTreeMap<u16, usize>,
    /// The client's queues are being replaced; the link stays up meanwhile.
    suspended: bool,
}

impl Port {
    fn is_up(&self) -> bool {
        self.settings.admin_up && (self.has_link() || self.suspended)
    }

    fn has_link(&self) -> bool {
        self.attached.as_ref().is_some_and(|attached| !attached.down)
    }
}

struct Bridge {
    name: String,
    published: Arc<PublishedBridge>,
    logic: Arc<dyn SwitchLogic>,
    /// Token of the alarms that wake the logic, if it wants that.
    alarm: Option<Token>,
    /// Injector of packets, once requested, and the worker and token of its task.
    injector: Option<(Injector, usize, Token)>,
    /// Counts packets that the logic originates.
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
    look: balance::Look,
    workers: Workers,
}

impl State {
    /// The worker of a receive queue.
    fn queue(&mut self, at: PortRef, queue: u16) -> Result<&mut Assigned, SwitchError> {
        queue_of(&mut self.bridges, at, queue)
    }
}

/// A running switch. See the module.
pub struct Switch {
    // Drop order: the stand-ins end before anything that they use. The workers have ended before (`Drop`).
    _support: SupportThreads,
    group: Arc<ThreadGroup>,
    state: Mutex<State>,
    batch: BatchLimits,
    pace: Pace,
    queue_memory: u64,
    link_listener: OnceLock<LinkListener>,
}

/// A port's link went up or down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange {
    /// The bridge's name.
    pub bridge: String,
    /// The port's name.
    pub port: String,
    /// Whether traffic can pass.
    pub up: bool,
}

/// Called on every [`LinkChange`], on the thread that makes it and with the switch locked: it must return at once and
/// not call the switch.
pub type LinkListener = Box<dyn Fn(LinkChange) + Send + Sync>;

impl Switch {
    /// Starts the workers: those of the options, or one that is not pinned to a CPU.
    pub fn start(options: &SwitchOptions) -> std::io::Result<Self> {
        let quiescence = Quiescence::new(MAX_THREADS);
        let group = ThreadGroup::new(Arc::new(Reclaim::new(Arc::new(quiescence))));
        let support = SupportThreads::start(&group, options.batch)?;
        let (state, link_listener) = (Mutex::default(), OnceLock::new());
        let SwitchOptions { batch, pace, queue_memory, .. } = *options;
        let switch = Self { _support: support, group, state, batch, pace, queue_memory, link_listener };
        let workers = if options.workers.is_empty() { &[None] } else { options.workers.as_slice() };
        for cpu in workers {
            switch.add_worker(*cpu).map_err(std::io::Error::other)?;
        }
        Ok(switch)
    }

    /// Sets the listener to link changes; only the first call has an effect.
    pub fn on_link(&self, listener: LinkListener) {
        let _ = self.link_listener.set(listener);
    }

    /// Sets the listener that is told when batches begin and cease to overrun; only the first call has an effect.
    pub fn on_overrun(&self, listener: OverrunListener) {
        self.group.overruns.listen(listener);
    }

    /// Batches that have kept their thread for more than a second, as one in a logic that loops does.
    pub fn overruns(&self) -> Vec<Overrun> {
        self.group.overruns.list()
    }

    /// The receive queue whose batch overruns: name of its port, and queue number. `None` if the thread does other
    /// work, or no other thread has taken over yet.
    pub fn queue_of(&self, overrun: &Overrun) -> Option<(String, u16)> {
        let task = overrun.task?;
        let state = self.lock();
        state.bridges.values().flat_map(|bridge| bridge.ports.iter().flatten()).find_map(|port| {
            let mut queues = port.attached.as_ref()?.rx.iter();
            let queue = queues.position(|queue| queue.token == task)?;
            Some((port.settings.name.clone(), u16::try_from(queue).ok()?))
        })
    }

    fn report_link(&self, bridge: &Bridge, at: PortIndex, was_up: bool) {
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

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // A relieved thread whose worker has ended has no state to take back.
        self.group.stopped.store(true, Relaxed);
        self.lock().workers.end();
    }
}

fn doorbell(error: std::io::Error) -> SwitchError {
    SwitchError::Doorbell(error.kind())
}

/// Returns a number and increments it.
fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}

/// The worker of a receive queue.
fn queue_of(
    bridges: &mut BTreeMap<BridgeId, Bridge>,
    at: PortRef,
    queue: u16,
) -> Result<&mut Assigned, SwitchError> {
    let bridge = bridges.get_mut(&at.bridge).ok_or(SwitchError::Gone("bridge"))?;
    let attached = port_mut(bridge, at.port)?.attached.as_mut().ok_or(SwitchError::Gone("client"))?;
    attached.rx.get_mut(usize::from(queue)).ok_or(SwitchError::Gone("queue"))
}

fn port_mut(bridge: &mut Bridge, at: PortIndex) -> Result<&mut Port, SwitchError> {
    bridge.ports.get_mut(usize::from(at.0)).and_then(Option::as_mut).ok_or(SwitchError::Gone("port"))
}
