//! Tasks of a worker, run one after the other, each for one batch at a time.
//!
//! | task | file | purpose |
//! | --- | --- | --- |
//! | take in | `take_in.rs` | takes a batch from a receive queue through the bridge's logic |
//! | drain | `drain.rs` | delivers decided packets that wait in one of the switch's own queues |
//! | inject | `inject.rs` | sends packets of the control plane, through the logic or straight to ports |
//! | alarm | `alarm.rs` | calls a logic at intervals |
//!
//! A new kind is a file here, a variant of [`Task`], and a way for the control plane to add it (`switch/`).

pub(crate) mod alarm;
pub(crate) mod drain;
pub(crate) mod inject;
pub(crate) mod take_in;
pub(crate) mod turn;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::state::BridgeState;
use crate::counters::{WorkerCounters, bump};
use crate::deliver::client::{Client, Clients};
use crate::deliver::levels::NestedBatches;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::{BatchLimits, RxBatch};
use crate::wake::muted::MutedClients;
use crate::wake::notifier::Notifier;
use crate::worker::thread_info::ThreadInfo;

use alarm::Alarm;
use drain::Drain;
use inject::Inject;
use take_in::TakeIn;

/// Back-off before a quarantined client is tried again.
const PAUSE: Duration = Duration::from_millis(1);

/// Identifies a task within the switch; the alarms of one logic, one per worker, share a token.
pub(crate) type Token = u64;

/// A task of a worker. See the module.
pub(crate) enum Task {
    TakeIn(Box<TakeIn>),
    Drain(Box<Drain>),
    Inject(Box<Inject>),
    Alarm(Box<Alarm>),
}

/// When a task is to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// In the next round; after some rounds without packets, when its doorbell rings.
    Round,
    /// At this time on the cycle counter; doorbells do not make it earlier.
    At(u64),
    /// At this time, or when its doorbell rings.
    Before(u64),
    /// Never: it failed and awaits removal.
    Never,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Packets that the task processed.
    pub(crate) packets: usize,
    pub(crate) next: Next,
}

impl Task {
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::TakeIn(task) => task.token,
            Self::Drain(task) => task.token(),
            Self::Inject(task) => task.token(),
            Self::Alarm(task) => task.token(),
        }
    }

    /// When to run it for the first time on a worker.
    pub(crate) fn first(&self) -> Next {
        match self {
            Self::TakeIn(task) if task.dead => Next::Never,
            Self::Alarm(task) => Next::At(task.due()),
            _ => Next::Round,
        }
    }

    /// Descriptor that becomes readable (edge-triggered) when there is work. A task without one runs by time only.
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::TakeIn(task) => Some(task.queue.signal()),
            Self::Drain(task) => Some(task.signal()),
            Self::Inject(task) => Some(task.signal()),
            Self::Alarm(_) => None,
        }
    }

    /// Enables or disables its doorbell.
    #[inline]
    pub(crate) fn set_signalled(&mut self, on: bool) {
        match self {
            // The client holds another thread up; it may signal more than needed.
            Self::TakeIn(task) if !on && task.client.is_quarantined() => {}
            Self::TakeIn(task) => task.queue.set_signalled(on),
            Self::Drain(task) => task.set_signalled(on),
            Self::Inject(task) => task.set_signalled(on),
            Self::Alarm(_) => {}
        }
    }

    /// Whether polling it is only a memory access.
    #[inline]
    pub(crate) fn is_cheap_to_poll(&self) -> bool {
        match self {
            Self::TakeIn(task) => task.queue.cheap_to_poll(),
            _ => true,
        }
    }

    /// The client that can hold it up.
    pub(crate) fn client(&self) -> Option<&Client> {
        match self {
            Self::TakeIn(task) => Some(&task.client),
            Self::Drain(task) => Some(task.client()),
            Self::Inject(_) | Self::Alarm(_) => None,
        }
    }

    /// Reports to its port that it cannot run.
    #[cold]
    pub(crate) fn fail(&self, fault: Fault) {
        match self {
            Self::TakeIn(task) => task.client.fault(fault),
            Self::Drain(task) => task.fail(fault),
            Self::Inject(_) | Self::Alarm(_) => {}
        }
    }

    /// Learns how many cycles a batch with packets took, and how many a turn may take
    /// ([`Pace::turn`](crate::worker::run::Pace::turn)): for the balancing of receive queues and the next batch.
    #[inline]
    pub(crate) fn took(&mut self, packets: usize, cycles: u64, turn: u64) {
        if let Self::TakeIn(task) = self {
            task.counters.add_cycles_alone(cycles);
            task.turn.took(packets, cycles, turn);
        }
    }

    /// Processes up to one batch.
    #[inline]
    pub(crate) fn run(&mut self, context: &mut Context, now: u64) -> Ran {
        match self {
            Self::TakeIn(task) => task.run(context, now),
            Self::Drain(task) => task.run(context, now),
            Self::Inject(task) => task.run(context),
            Self::Alarm(task) => task.run(context, now),
        }
    }
}

/// Working memory that a worker's tasks share.
pub(crate) struct Context {
    /// The thread's number.
    pub(crate) worker: usize,
    /// Counters of the worker that the thread serves.
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) batch: RxBatch,
    pub(crate) pad: Scratchpad,
    pub(crate) tools: Tools,
}

impl Context {
    /// Working memory of the thread of `info`. Fails if the kernel has no asynchronous I/O context left.
    pub(crate) fn new(
        info: &ThreadInfo,
        muted: Arc<MutedClients>,
        clients: Arc<Clients>,
        limits: BatchLimits,
    ) -> std::io::Result<Self> {
        let worker = info.number;
        let (batch, pad) = (RxBatch::new(limits), Scratchpad::of_worker(worker, info.activity.clone()));
        let notifier = Notifier::at(info.activity.clone(), muted, clients)?;
        let tools = Tools {
            notifier,
            published: false,
            smallest_ring: u32::MAX,
            nested: NestedBatches::of_worker(worker, limits, info.activity.clone()),
            activity: info.activity.clone(),
            sorted: None,
        };
        Ok(Self { worker, counters: Arc::default(), batch, pad, tools })
    }

    /// Copies the private headers of the batch, which is about to be switched in `bridge`.
    #[inline]
    fn load_for(&mut self, bridge: &BridgeState) {
        if let Some(arena) = bridge.arena(self.worker) {
            // SAFETY: the arena is this worker's own; the batch uses it until it is emptied, before the next one is
            // loaded.
            unsafe { self.batch.keep_headers_in(arena) };
        }
        self.batch.load_headers();
        self.tools.nested.begin();
    }

    /// Counts the packets that a task processed.
    #[inline]
    fn count(&self, packets: usize) {
        bump(&self.counters.packets, packets as u64);
        bump(&self.counters.batches, 1);
    }

    /// Whether the batch collected doorbells to ring.
    #[inline]
    pub(crate) fn has_rings(&self) -> bool {
        !self.tools.notifier.is_empty()
    }

    /// Rings them.
    pub(crate) fn ring(&mut self) {
        bump(&self.counters.notifications, self.tools.notifier.flush());
    }
}
