//! Injecting: packets of the control plane (a controller's packet-out, say) enter a bridge, through its logic or straight to
//! ports.
//!
//! A bridge has one queue of them, of [`INJECT_ROOM`] packets, and a worker that takes them in order. Buffers go round: the
//! control plane fills them, the worker gives them back.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_queue::ArrayQueue;
use packet::offload::{Offload, OffloadError};

use super::{Context, Next, Ran, Token};
use crate::bridge::cell::BridgeCell;
use crate::bridge::port::PortIndex;
use crate::counters::{DropReason, QueueCounters, QueueSnapshot};
use crate::decide::forward::{forward, originate};
use crate::rx::{MAX_BATCH, MAX_PACKET, MIN_PACKET};
use crate::sync::{Ordering, fence};
use crate::wake::doorbell::{Doorbell, EventBell};

/// Packets that wait for a bridge's worker at most.
pub const INJECT_ROOM: usize = 256;

/// Where an injected packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// Through the bridge's logic, as if it was received at this port: the port's rates hold for it, and mirrors and
    /// observers see it.
    At(PortIndex),
    /// Straight to these ports, as it is: neither the logic nor VLAN settings change it. A port that is down drops it.
    To(Vec<PortIndex>),
}

/// Why a packet was not injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// The queue is full.
    #[error("{INJECT_ROOM} packets wait to be injected into this bridge already")]
    Full,
    /// No packet has that length.
    #[error("the packet has {0} bytes; packets have {MIN_PACKET} to {MAX_PACKET}")]
    Length(usize),
    /// Its metadata does not describe it.
    #[error("the packet's offload metadata does not describe it: {0}")]
    Offload(#[from] OffloadError),
    /// The bridge was removed.
    #[error("the bridge was removed")]
    Gone,
}

/// A packet on its way to the worker.
struct Injected {
    bytes: Vec<u8>,
    offload: Offload,
    to: Injection,
}

/// A bridge's queue.
struct Queue {
    filled: ArrayQueue<Injected>,
    spent: ArrayQueue<Injected>,
    doorbell: Doorbell<EventBell>,
    closed: AtomicBool,
    counters: QueueCounters,
}

/// Injects packets into one bridge, from any thread.
#[derive(Clone)]
pub struct Injector(Arc<Queue>);

impl Injector {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Queue {
            filled: ArrayQueue::new(INJECT_ROOM),
            // There are never more than those in `filled`, those of a batch, and one for each thread that injects.
            spent: ArrayQueue::new(INJECT_ROOM + MAX_BATCH),
            doorbell: Doorbell::new(EventBell::new()?),
            closed: AtomicBool::new(false),
            counters: QueueCounters::default(),
        })))
    }

    /// Queues a packet for the bridge; what becomes of it then is counted. Does not wait.
    pub fn inject(&self, bytes: &[u8], offload: Offload, to: Injection) -> Result<(), InjectError> {
        let queue = &*self.0;
        let fits = u32::try_from(bytes.len()).is_ok_and(|len| (MIN_PACKET..=MAX_PACKET).contains(&len));
        if !fits {
            return Err(InjectError::Length(bytes.len()));
        }
        let offload = offload.validate(bytes, bytes.len() as u32)?;
        if queue.closed.load(Ordering::Acquire) {
            return Err(InjectError::Gone);
        }
        let mut buffer = queue.spent.pop().map_or_else(Vec::new, |spent| spent.bytes);
        buffer.clear();
        buffer.extend_from_slice(bytes);
        let injected = Injected { bytes: buffer, offload, to };
        if queue.filled.push(injected).is_err() {
            queue.counters.add_drop(DropReason::RingFull);
            return Err(InjectError::Full);
        }
        queue.doorbell.ring();
        // Whoever closes sees the packet, or is seen here: see `close`.
        fence(Ordering::SeqCst);
        if queue.closed.load(Ordering::Relaxed) {
            self.discard();
        }
        Ok(())
    }

    /// Packets that were taken from the queue, and drops: of those that it had no room for, and of those that went nowhere or
    /// not everywhere.
    pub fn counters(&self) -> QueueSnapshot {
        self.0.counters.snapshot()
    }

    /// Refuses packets from now on, and drops those that wait. For when the bridge has no worker for them any more.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.discard();
    }

    /// Drops the packets that wait.
    fn discard(&self) {
        while self.0.filled.pop().is_some() {
            self.0.counters.add_drop(DropReason::PortDown);
        }
    }
}

/// The worker's end of a bridge's queue.
pub(crate) struct Inject {
    queue: Arc<Queue>,
    bridge: Arc<BridgeCell>,
    token: Token,
    /// The packets of the batch.
    taken: Vec<Injected>,
    /// One that was taken from the queue and goes elsewhere than those before it.
    ahead: Option<Injected>,
}

impl Inject {
    pub(crate) fn new(injector: &Injector, bridge: Arc<BridgeCell>, token: Token) -> Self {
        let taken = Vec::with_capacity(MAX_BATCH);
        Self { queue: injector.0.clone(), bridge, token, taken, ahead: None }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.queue.doorbell.bell().as_fd()
    }

    pub(crate) fn set_signalled(&mut self, on: bool) {
        // The worker looks at the queue after this, whatever was rung before.
        let _ = if on { self.queue.doorbell.arm() } else { self.queue.doorbell.disarm() };
    }

    /// Switches the packets at the front that go the same way.
    pub(crate) fn run(&mut self, context: &mut Context) -> Ran {
        context.tools.site.leave();
        let batch = &mut context.batch;
        batch.clear();
        batch.queue = 0;
        while batch.has_room()
            && let Some(injected) = self.ahead.take().or_else(|| self.queue.filled.pop())
        {
            if self.taken.first().is_some_and(|first| first.to != injected.to) {
                self.ahead = Some(injected);
                break;
            }
            let bytes = NonNull::from(injected.bytes.as_slice()).cast();
            // SAFETY: the bytes stay where they are, in `taken`, until the batch is done with. One piece is never too many.
            let _ = unsafe { batch.add_segment(bytes, injected.bytes.len() as u32) };
            batch.end_packet(injected.offload);
            self.taken.push(injected);
        }
        let packets = batch.len();
        if let Some(first) = self.taken.first() {
            // SAFETY: the worker that runs this is awake and `bridge` does not outlive this function.
            let bridge = unsafe { self.bridge.get() };
            context.load_for(bridge);
            let Context { batch, pad, tools, .. } = &mut *context;
            match &first.to {
                Injection::At(port) => forward(batch, pad, tools, bridge, *port),
                Injection::To(ports) => originate(batch, pad, tools, bridge, |batch| {
                    for v in batch.packets() {
                        ports.iter().for_each(|port| batch.send(v, *port));
                    }
                }),
            }
            self.queue.counters.add_drops(&mut batch.drops);
            self.queue.counters.add_drops(&mut pad.drops);
            self.queue.counters.add_batch_alone(packets as u64, batch.bytes);
            context.count(packets);
            context.batch.clear();
            for spent in self.taken.drain(..) {
                // There is room: see `Injector::new`.
                let _ = self.queue.spent.push(spent);
            }
        }
        Ran { packets, next: Next::Round }
    }

    /// Counts what was taken from the queue and not switched: the bridge is gone.
    pub(crate) fn discard(self) {
        if self.ahead.is_some() {
            self.queue.counters.add_drop(DropReason::PortDown);
        }
    }
}
