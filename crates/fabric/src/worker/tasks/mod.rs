//! What a worker does: tasks, which it runs one after the other, each for one batch at a time.
//!
//! | task | file | what it does |
//! | --- | --- | --- |
//! | take in | `take_in.rs` | takes a batch from a receive queue through the bridge's logic |
//! | drain | `drain.rs` | delivers packets that wait in a queue of the switch's own, decided already |
//! | inject | `inject.rs` | sends packets of the control plane, through the logic or straight to ports |
//! | alarm | `alarm.rs` | calls a logic whose time has come |
//!
//! A new kind is a file here, a variant of [`Task`], and a way for the control plane to add it (`switch/`).

pub(crate) mod alarm;
pub(crate) mod drain;
pub(crate) mod inject;
pub(crate) mod take_in;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::picture::BridgeState;
use crate::counters::{WorkerCounters, bump};
use crate::deliver::client::{Client, Clients};
use crate::deliver::levels::Nest;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::{BatchLimits, RxBatch};
use crate::wake::hush::Hush;
use crate::wake::notifier::Notifier;
use crate::worker::post::Post;

use alarm::Alarm;
use drain::Drain;
use inject::Inject;
use take_in::TakeIn;

/// How long a client is left alone that holds another thread up.
const PAUSE: Duration = Duration::from_millis(1);

/// Names a task among all of the switch; the alarms of one logic, one at each worker, have the same.
pub(crate) type Token = u64;

/// A task of a worker. See the module.
pub(crate) enum Task {
    TakeIn(Box<TakeIn>),
    Drain(Box<Drain>),
    Inject(Box<Inject>),
    Alarm(Box<Alarm>),
}

/// When a task wants to be run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// In the next round; after some rounds without packets, when its doorbell is rung.
    Round,
    /// At this time on the cycle counter, and not before, whoever rings.
    At(u64),
    /// Never: it failed, and waits to be removed.
    Never,
}

/// What a task has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Packets that it found.
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

    /// When it is run for the first time on a worker.
    pub(crate) fn first(&self) -> Next {
        match self {
            Self::TakeIn(task) if task.dead => Next::Never,
            Self::Alarm(task) => Next::At(task.due()),
            _ => Next::Round,
        }
    }

    /// What becomes readable (edge-triggered) when there is something to do. Without it, the task runs by time alone.
    pub(crate) fn doorbell(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::TakeIn(task) => Some(task.queue.signal()),
            Self::Drain(task) => Some(task.signal()),
            Self::Inject(task) => Some(task.signal()),
            Self::Alarm(_) => None,
        }
    }

    /// Asks to be rung from now on, or not.
    #[inline]
    pub(crate) fn set_signalled(&mut self, on: bool) {
        match self {
            // A client that holds another thread up may signal more than it needs to.
            Self::TakeIn(task) if !on && task.client.is_shunned() => {}
            Self::TakeIn(task) => task.queue.set_signalled(on),
            Self::Drain(task) => task.set_signalled(on),
            Self::Inject(task) => task.set_signalled(on),
            Self::Alarm(_) => {}
        }
    }

    /// Whether a look for something to do is only a memory access.
    #[inline]
    pub(crate) fn is_cheap_to_poll(&self) -> bool {
        match self {
            Self::TakeIn(task) => task.queue.cheap_to_poll(),
            _ => true,
        }
    }

    /// Who can hold it up.
    pub(crate) fn client(&self) -> Option<&Client> {
        match self {
            Self::TakeIn(task) => Some(&task.client),
            Self::Drain(task) => Some(task.client()),
            Self::Inject(_) | Self::Alarm(_) => None,
        }
    }

    /// Tells its port that it cannot be run.
    #[cold]
    pub(crate) fn fail(&self, fault: Fault) {
        match self {
            Self::TakeIn(task) => task.client.fault(fault),
            Self::Drain(task) => task.fail(fault),
            Self::Inject(_) | Self::Alarm(_) => {}
        }
    }

    /// Does what there is to do, up to a batch.
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

/// What a worker's tasks use in turn.
pub(crate) struct Context {
    /// The thread's number.
    pub(crate) worker: usize,
    /// Those of the worker that it serves.
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) batch: RxBatch,
    pub(crate) pad: Scratchpad,
    pub(crate) tools: Tools,
}

impl Context {
    /// That of the thread at `post`. Fails where the kernel has no asynchronous I/O left.
    pub(crate) fn new(
        post: &Post,
        hush: Arc<Hush>,
        clients: Arc<Clients>,
        limits: BatchLimits,
    ) -> std::io::Result<Self> {
        let worker = post.number;
        let (batch, pad) = (RxBatch::new(limits), Scratchpad::of_worker(worker));
        let notifier = Notifier::at(post.site.clone(), hush, clients)?;
        let tools = Tools { notifier, nest: Nest::of_worker(worker, limits), site: post.site.clone() };
        Ok(Self { worker, counters: Arc::default(), batch, pad, tools })
    }

    /// Makes the private header copies of the packets in the batch, which is about to be switched in `bridge`.
    #[inline]
    fn load_for(&mut self, bridge: &BridgeState) {
        if let Some(arena) = bridge.arena(self.worker) {
            // SAFETY: it is this worker's own; the batch has it until it is emptied, which is before the next one is loaded.
            unsafe { self.batch.keep_headers_in(arena) };
        }
        self.batch.load_headers();
        self.tools.nest.begin();
    }

    /// Counts the packets that a task has found.
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
