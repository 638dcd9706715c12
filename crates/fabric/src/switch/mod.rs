//! The control plane's handle: bridges, ports, what is attached to them, and the workers.
//!
//! Every change is: build the new picture, publish it, wait until no worker uses the old one, drop it. The
//! calls block for about a batch's time; none may be made from a worker (from an [`OnFault`](crate::OnFault), say).
//!
//! - `bridges.rs`: bridges and their logics;
//! - `ports.rs`: ports, their settings and counters;
//! - `attach.rs`: attaching and detaching clients' queues, with queues of the switch's own;
//! - `inject.rs`: packets of the control plane;
//! - `observing.rs`: observers, mirrors, traces;
//! - `publish.rs`: the picture that workers see;
//! - `workers.rs`, `placement.rs`: which worker a task goes to.

mod attach;
mod bridges;
mod inject;
mod observing;
mod placement;
mod ports;
mod publish;
mod workers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::bridge::cell::BridgeCell;
use crate::bridge::port::{Caps, MAX_PORTS, PortIndex, PortSettings};
use crate::bridge::quiescence::{Quiescence, Reclaim};
use crate::clock;
use crate::counters::QueueCounters;
use crate::decide::logic::SwitchLogic;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::observe::mirror::{Copied, Mirror};
use crate::observe::observer::Observer;
use crate::protect::policing::Guards;
use crate::protect::violations::Violations;
use crate::rx::BatchLimits;
use crate::worker::crew::{Crew, Reserve, STAND_INS};
use crate::worker::handle::WorkerHandle;
use crate::worker::post::Post;
use crate::worker::run::Pace;
use crate::worker::start;
use crate::worker::tasks::Token;
use crate::worker::tasks::inject::{InjectError, Injector};

pub use attach::{AttachOptions, Attachment, Queueing};
pub use placement::Placement;
pub use ports::PortSnapshot;
pub use workers::WorkerReport;

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
    /// The queue is in a batch that a client holds up.
    #[error("a client holds up the queue's worker; try again when its port is down")]
    HeldUp,
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

struct Attached {
    tx: Vec<Arc<dyn Egress>>,
    /// Worker and token of each receive queue.
    rx: Vec<(usize, Token)>,
    /// The same of each queue of the switch's own.
    drains: Vec<(usize, Token)>,
    caps: Caps,
    mtu: u32,
    client: Arc<Client>,
}

struct Port {
    settings: Arc<PortSettings>,
    guards: Option<Arc<Guards>>,
    violations: Arc<Violations>,
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
    attached: Option<Attached>,
    /// Its client's queues are being replaced, for which the link does not go down.
    suspended: bool,
}

impl Port {
    fn is_up(&self) -> bool {
        self.settings.admin_up && (self.attached.is_some() || self.suspended)
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

/// A running switch. See the module.
pub struct Switch {
    // Workers stop before anything they use goes, and those that stand in for them after them.
    workers: Vec<WorkerHandle>,
    _reserve: Reserve,
    crew: Arc<Crew>,
    load: Vec<AtomicU32>,
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
        let posts: Vec<_> = (0..n + STAND_INS).map(Post::new).collect();
        let crew = Crew::new(Arc::new(Reclaim::new(Arc::new(Quiescence::new(posts.len())))));
        let workers = (0..n)
            .zip(&posts)
            .map(|(i, post)| {
                let cpu = options.workers.get(i).copied().flatten();
                start::worker(i, cpu, options.batch, options.pace, &crew, post)
            })
            .collect::<std::io::Result<Vec<_>>>()?;
        let reserve = Reserve::start(&crew, &posts, options.batch)?;
        let load = workers.iter().map(|_| AtomicU32::new(0)).collect();
        let (state, link_listener) = (Mutex::default(), OnceLock::new());
        Ok(Self { workers, _reserve: reserve, crew, load, state, started: clock::cycles(), link_listener })
    }

    /// Threads that switch: one for each worker, and after them those that stand in for one that a client holds up.
    /// [`Batch::worker`](crate::Batch::worker) is below this.
    pub fn threads(&self) -> usize {
        self.workers.len() + STAND_INS
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
}

impl Drop for Switch {
    fn drop(&mut self) {
        // A thread that is relieved, and whose worker has ended, has nowhere to go back to.
        self.crew.stopped.store(true, Relaxed);
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

fn port_mut(bridge: &mut Bridge, at: PortIndex) -> Result<&mut Port, SwitchError> {
    bridge.ports.get_mut(usize::from(at.0)).and_then(Option::as_mut).ok_or(SwitchError::Gone("port"))
}
