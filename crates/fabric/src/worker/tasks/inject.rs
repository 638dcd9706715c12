//! Injection: packets of the control plane, such as a controller's packet-out, enter a bridge, through its logic or
//! straight to ports.
//!
//! Each bridge has one queue of [`INJECT_ROOM`] packets, which one worker takes in order. Buffers are recycled: the
//! control plane fills them, the worker returns them.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crossbeam_queue::ArrayQueue;
use packet::offload::{Offload, OffloadError};

use super::{Context, Next, Ran, Token};
use crate::bridge::port::PortIndex;
use crate::bridge::published::PublishedBridge;
use crate::counters::{DropReason, QueueCounters, QueueSnapshot};
use crate::decide::forward::{forward, originate};
use crate::rx::{MAX_BATCH, MAX_PACKET, MIN_PACKET};
use crate::sync::{Ordering, fence};
use crate::wake::doorbell::{Doorbell, EventBell};

/// Capacity of a bridge's injection queue, packets.
pub const INJECT_ROOM: usize = 256;

/// Destination of an injected packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// Through the bridge's logic, as if received at this port: the port's rates apply, and mirrors and observers see
    /// it.
    At(PortIndex),
    /// As [`Injection::At`], with a mark other than 0 that the logic may read ([`crate::Batch::injection_mark`]).
    Marked(PortIndex, u16),
    /// Through the bridge's logic, from no port ([`PortIndex::NONE`]).
    Logic,
    /// Straight to these ports, unchanged by logic and VLAN settings. A port that is down drops it.
    To(Vec<PortIndex>),
}

/// Reasons for refusing an injected packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    /// The queue is full.
    #[error("the bridge's injection queue is full ({INJECT_ROOM} packets)")]
    Full,
    /// The length is out of range.
    #[error("the packet has {0} bytes; expected {MIN_PACKET} to {MAX_PACKET}")]
    Length(usize),
    /// The metadata does not describe the packet.
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
    class: u16,
    to: Injection,
}

/// Injection queue of a bridge.
struct Queue {
    filled: ArrayQueue<Injected>,
    spent: ArrayQueue<Injected>,
    doorbell: Doorbell<EventBell>,
    closed: AtomicBool,
    counters: QueueCounters,
    /// Packets queued or being switched.
    in_flight: AtomicUsize,
}

/// Injects packets into one bridge, from any thread.
#[derive(Clone)]
pub struct Injector(Arc<Queue>);

impl Injector {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arc::new(Queue {
            filled: ArrayQueue::new(INJECT_ROOM),
            // Holds at most those of `filled`, those of a batch, and one for each injecting thread.
            spent: ArrayQueue::new(INJECT_ROOM + MAX_BATCH),
            doorbell: Doorbell::new(EventBell::new()?),
            closed: AtomicBool::new(false),
            counters: QueueCounters::default(),
            in_flight: AtomicUsize::new(0),
        })))
    }

    /// Queues a packet for the bridge without waiting; its fate is then counted.
    pub fn inject(&self, bytes: &[u8], offload: Offload, to: Injection) -> Result<(), InjectError> {
        self.inject_in_class(bytes, offload, 0, to)
    }

    /// [`Injector::inject`] of a packet in a traffic class ([`crate::Batch::set_class`]).
    pub fn inject_in_class(
        &self,
        bytes: &[u8],
        offload: Offload,
        class: u16,
        to: Injection,
    ) -> Result<(), InjectError> {
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
        let injected = Injected { bytes: buffer, offload, class, to };
        queue.in_flight.fetch_add(1, Ordering::Relaxed);
        if queue.filled.push(injected).is_err() {
            queue.in_flight.fetch_sub(1, Ordering::Release);
            queue.counters.add_drop(DropReason::RingFull);
            return Err(InjectError::Full);
        }
        queue.doorbell.ring();
        // Either `close` discards this packet, or this thread sees `closed` and does: see `close`.
        fence(Ordering::SeqCst);
        if queue.closed.load(Ordering::Relaxed) {
            self.discard();
        }
        Ok(())
    }

    /// Whether every packet queued so far has been switched, and every output that is no queue has it.
    pub fn is_idle(&self) -> bool {
        self.0.in_flight.load(Ordering::Acquire) == 0
    }

    /// Packets taken from the queue, and drops: for lack of room, or because a packet did not reach all its
    /// destinations.
    pub fn counters(&self) -> QueueSnapshot {
        self.0.counters.snapshot()
    }

    /// Refuses further packets and drops the queued ones, once the bridge has no worker for them.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.discard();
    }

    /// Drops the queued packets.
    fn discard(&self) {
        while self.0.filled.pop().is_some() {
            self.0.in_flight.fetch_sub(1, Ordering::Release);
            self.0.counters.add_drop(DropReason::PortDown);
        }
    }
}

/// The worker's end of a bridge's injection queue.
pub(crate) struct Inject {
    queue: Arc<Queue>,
    bridge: Arc<PublishedBridge>,
    token: Token,
    /// The packets of the batch.
    taken: Vec<Injected>,
    /// A packet taken from the queue whose destination differs from those before it.
    ahead: Option<Injected>,
}

impl Inject {
    pub(crate) fn new(injector: &Injector, bridge: Arc<PublishedBridge>, token: Token) -> Self {
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
        // The worker polls the queue after this, whether or not it was rung before.
        let _ = if on { self.queue.doorbell.arm() } else { self.queue.doorbell.disarm() };
    }

    /// Switches the packets at the front that share a destination.
    pub(crate) fn run(&mut self, context: &mut Context) -> Ran {
        context.tools.activity.leave();
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
            // SAFETY: the bytes stay where they are, in `taken`, until the batch is done. One piece is never too many.
            let _ = unsafe { batch.add_segment(bytes, injected.bytes.len() as u32) };
            batch.end_packet_in_class(injected.offload, injected.class);
            self.taken.push(injected);
        }
        let packets = batch.len();
        if let Some(first) = self.taken.first() {
            // SAFETY: the worker that runs this is awake, and `bridge` does not outlive this function.
            let bridge = unsafe { self.bridge.get() };
            context.load_for(bridge);
            let Context { batch, pad, tools, .. } = &mut *context;
            match &first.to {
                Injection::At(port) => forward(batch, pad, tools, bridge, *port),
                Injection::Marked(port, mark) => {
                    batch.mark = *mark;
                    forward(batch, pad, tools, bridge, *port);
                    batch.mark = 0;
                }
                // One closure, so that `originate` is compiled once.
                to @ (Injection::Logic | Injection::To(_)) => originate(batch, pad, tools, bridge, |batch| {
                    let Injection::To(ports) = to else { return bridge.logic.forward(batch) };
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
            self.queue.in_flight.fetch_sub(self.taken.len(), Ordering::Release);
            for spent in self.taken.drain(..) {
                // There is room: see `Injector::new`.
                let _ = self.queue.spent.push(spent);
            }
        }
        Ran { packets, next: Next::Round }
    }

    /// Counts a packet taken from the queue but not switched because the bridge is gone.
    pub(crate) fn discard(self) {
        if self.ahead.is_some() {
            self.queue.in_flight.fetch_sub(1, Ordering::Release);
            self.queue.counters.add_drop(DropReason::PortDown);
        }
    }
}
