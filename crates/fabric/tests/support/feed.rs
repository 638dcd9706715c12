//! A receive queue over packets that a test puts into "client memory", split into pieces as it likes.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::offload::Offload;
use rustix::event::{EventfdFlags, eventfd};

/// A packet in client memory. It is overwritten when the switch returns it, which reveals a copy made too late.
pub(crate) struct Sent {
    pieces: Vec<Box<[u8]>>,
    offload: Offload,
}

impl Sent {
    /// A packet in one piece.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        Self { pieces: vec![bytes.into()], offload: Offload::NONE }
    }

    /// A packet split at `cuts` (any order, any value; repeated cuts make empty pieces).
    pub(crate) fn cut(bytes: &[u8], cuts: &[usize]) -> Self {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut from = 0;
        let pieces = cuts
            .into_iter()
            .map(|to| {
                let piece = bytes[from..to].into();
                from = to;
                piece
            })
            .collect();
        Self { pieces, offload: Offload::NONE }
    }

    pub(crate) fn with_offload(mut self, offload: Offload) -> Self {
        self.offload = offload;
        self
    }
}

impl Sent {
    fn describe(&self, batch: &mut RxBatch) -> Result<(), Fault> {
        for piece in &self.pieces {
            let at = NonNull::from(&**piece).cast();
            // SAFETY: the piece lives on the heap in the queue's `lent` until `complete`.
            unsafe { batch.add_segment(at, piece.len() as u32)? };
        }
        batch.end_packet(self.offload);
        Ok(())
    }

    /// As a device's read: the device's header, then the packet.
    fn land(&self, batch: &mut RxBatch) -> Result<(), Fault> {
        let Some(room) = batch.landing() else { return Err(Fault::Device(rustix::io::Errno::NOBUFS)) };
        let (skip, bytes) = (self.pieces.len() % 13, self.pieces.concat());
        room[..skip].fill(0xAB);
        room[skip..skip + bytes.len()].copy_from_slice(&bytes);
        batch.landed(skip, skip + bytes.len(), self.offload)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        for piece in &mut self.pieces {
            piece.fill(0xDD);
        }
    }
}

/// The client's side of the queue.
pub(crate) struct Feed {
    queue: Mutex<VecDeque<Sent>>,
    wants_signal: AtomicBool,
    event: OwnedFd,
    cheap: bool,
    /// Packets are read into the batch's own memory, as from a device.
    lands: bool,
    /// Fault that the next `receive` returns after the queued packets.
    receive_fault: Mutex<Option<Fault>>,
    /// Fault that the next `complete` returns.
    complete_fault: Mutex<Option<Fault>>,
    /// Published, without a signal, as soon as the switch has asked for signals.
    on_arm: Mutex<Option<Sent>>,
    pub(crate) returned: AtomicU64,
    /// Times that the switch polled.
    pub(crate) looks: AtomicU64,
    /// Times that the switch asked for signals.
    pub(crate) armed: AtomicU64,
    /// The switch's side was dropped.
    pub(crate) gone: AtomicBool,
    faulted: AtomicBool,
    /// Calls after the queue's end.
    pub(crate) trespasses: AtomicU64,
}

impl Feed {
    pub(crate) fn new() -> Arc<Self> {
        Self::of(true, false)
    }

    /// A queue whose packets the switch must read into its own memory.
    pub(crate) fn landing() -> Arc<Self> {
        Self::of(true, true)
    }

    /// A queue that is not cheap to poll, like a TAP: it always signals.
    pub(crate) fn device() -> Arc<Self> {
        Self::of(false, true)
    }

    fn of(cheap: bool, lands: bool) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            wants_signal: AtomicBool::new(!cheap),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            cheap,
            lands,
            receive_fault: Mutex::default(),
            complete_fault: Mutex::default(),
            on_arm: Mutex::default(),
            returned: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            faulted: AtomicBool::new(false),
            trespasses: AtomicU64::new(0),
        })
    }

    /// The switch's side.
    pub(crate) fn queue(self: &Arc<Self>) -> Box<dyn RxQueue> {
        Box::new(FeedQueue { feed: self.clone(), lent: Vec::new(), signalled: None })
    }

    /// Publishes packets as a correct client does: index, fence, flag.
    pub(crate) fn send(&self, packets: impl IntoIterator<Item = Sent>) {
        self.publish(packets);
        fence(Ordering::SeqCst);
        if self.wants_signal.load(Ordering::Relaxed) {
            self.signal();
        }
    }

    /// Publishes without a signal.
    pub(crate) fn publish(&self, packets: impl IntoIterator<Item = Sent>) {
        self.queue.lock().unwrap().extend(packets);
    }

    pub(crate) fn signal(&self) {
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).unwrap();
    }

    pub(crate) fn publish_on_arm(&self, packet: Sent) {
        *self.on_arm.lock().unwrap() = Some(packet);
    }

    pub(crate) fn fail_receive(&self, fault: Fault) {
        *self.receive_fault.lock().unwrap() = Some(fault);
    }

    pub(crate) fn fail_complete(&self, fault: Fault) {
        *self.complete_fault.lock().unwrap() = Some(fault);
    }

    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }

    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Acquire)
    }

    pub(crate) fn armed(&self) -> u64 {
        self.armed.load(Ordering::Acquire)
    }

    pub(crate) fn wants_signal(&self) -> bool {
        self.wants_signal.load(Ordering::Acquire)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().unwrap().len()
    }
}

struct FeedQueue {
    feed: Arc<Feed>,
    lent: Vec<Sent>,
    signalled: Option<bool>,
}

impl FeedQueue {
    fn used(&self) {
        if self.feed.gone.load(Ordering::Acquire) || self.feed.faulted.load(Ordering::Acquire) {
            self.feed.trespasses.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl RxQueue for FeedQueue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        self.used();
        let mut queue = self.feed.queue.lock().unwrap();
        while batch.has_room()
            && let Some(packet) = queue.pop_front()
        {
            if self.feed.lands {
                packet.land(batch)?;
            } else {
                packet.describe(batch)?;
            }
            self.lent.push(packet);
        }
        let empty = queue.is_empty();
        drop(queue);
        self.feed.looks.fetch_add(1, Ordering::AcqRel);
        if empty && let Some(fault) = self.feed.receive_fault.lock().unwrap().take() {
            self.feed.faulted.store(true, Ordering::Release);
            return Err(fault);
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        self.used();
        let n = self.lent.len() as u64;
        self.lent.clear();
        self.feed.returned.fetch_add(n, Ordering::AcqRel);
        if let Some(fault) = self.feed.complete_fault.lock().unwrap().take() {
            self.feed.faulted.store(true, Ordering::Release);
            return Err(fault);
        }
        Ok(())
    }

    fn set_signalled(&mut self, on: bool) {
        self.used();
        if self.feed.cheap {
            self.feed.wants_signal.store(on, Ordering::Relaxed);
            // As other implementations of `RxQueue`: the flag, a full fence, and then the index again.
            fence(Ordering::SeqCst);
        }
        if on && self.signalled != Some(true) {
            self.feed.armed.fetch_add(1, Ordering::AcqRel);
            self.feed.publish(self.feed.on_arm.lock().unwrap().take());
        }
        self.signalled = Some(on);
    }

    fn signal(&self) -> BorrowedFd<'_> {
        self.feed.event.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        self.feed.cheap
    }
}

impl Drop for FeedQueue {
    fn drop(&mut self) {
        self.feed.gone.store(true, Ordering::Release);
    }
}
