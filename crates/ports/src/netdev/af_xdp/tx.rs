//! From the switch to an interface: the transmit ring of an AF_XDP socket as a destination.
//!
//! Frames to send circulate between the transmit ring, the kernel and the completion ring, in any order; an entry takes
//! a free one when it comes into the private view of [`TxRing`]. After publishing, one thread at a time calls the
//! kernel, for all.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use fabric::{Buffer, Egress, Fault, OutputList, QueueCounters, RingBacking, Tools, TxRing};
use rustix::io::Errno;
use tokio::sync::Notify;
use xsk::{Completion, Descriptor, Memory, Socket, Tx};

/// Packets that the kernel sends in a call, by default (`TX_BATCH_SIZE`).
const PACKETS_PER_CALL: u32 = 32;

/// Sending end of one socket.
pub(super) struct XdpTx {
    ring: TxRing<Backing>,
    socket: Arc<Socket>,
    tx: Tx,
    /// A thread calls the kernel.
    calling: AtomicBool,
    /// Packets may be left in the ring.
    rest: AtomicBool,
    /// Told when packets are left.
    stuck: Arc<Notify>,
}

impl XdpTx {
    pub(super) fn new(socket: Arc<Socket>, tx: Tx, completion: Completion, stuck: Arc<Notify>) -> Self {
        let memory = socket.memory().clone();
        let (frames, size) = (memory.frames(), u64::from(memory.frame_size()));
        let free = (frames / 2..frames).map(|frame| u64::from(frame) * size).collect();
        let spans = socket.spans_frames();
        let backing = Backing { memory, tx: tx.clone(), completion, spans };
        let ring = TxRing::new(backing, Own { free, viewed: 0, completed: 0 }, 0);
        Self { ring, socket, tx, calling: AtomicBool::new(false), rest: AtomicBool::new(false), stuck }
    }

    fn is_drained(&self) -> bool {
        self.tx.consumed() == self.tx.published()
    }

    /// Has the kernel send what is published, unless another thread does, which then looks again.
    fn send(&self) -> Result<(), Fault> {
        while !self.is_drained() && self.tx.needs_wakeup() && !self.calling.swap(true, Ordering::Acquire) {
            let sent = self.call();
            self.calling.store(false, Ordering::Release);
            // Another thread publishes and then reads `calling`; this one clears `calling` and then reads the index.
            fence(Ordering::SeqCst);
            if !sent? {
                break;
            }
        }
        Ok(())
    }

    /// Calls the kernel until the ring is drained. Returns false if it takes no more now: it is out of memory or of room
    /// in the interface's queue, or other threads publish meanwhile.
    fn call(&self) -> Result<bool, Fault> {
        for _ in 0..=self.tx.size() / PACKETS_PER_CALL {
            match self.socket.wake() {
                Ok(_) if self.is_drained() => {
                    self.rest.store(false, Ordering::Relaxed);
                    return Ok(true);
                }
                Ok(_) => {}
                // Down, or gone: the link tells why.
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => return Ok(false),
                Err(error) => return Err(Fault::Device(error)),
            }
        }
        if !self.rest.swap(true, Ordering::Relaxed) {
            self.stuck.notify_one();
        }
        Ok(false)
    }

    /// Has the kernel send what it did not take before. Returns whether packets are left again.
    #[inline]
    pub(super) fn send_rest(&self) -> bool {
        if !self.rest.load(Ordering::Relaxed) || !self.rest.swap(false, Ordering::Relaxed) {
            return false;
        }
        // A fault will be met again by the next delivery.
        let _ = self.send();
        self.rest.load(Ordering::Relaxed)
    }
}

impl Egress for XdpTx {
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault> {
        self.ring.deliver(list, counters, tools)?;
        fence(Ordering::SeqCst);
        self.send()
    }

    fn deliver_front(
        &self,
        list: &mut OutputList<'_>,
        least: u32,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<u32, Fault> {
        let done = self.ring.deliver_front(list, least, counters, tools)?;
        fence(Ordering::SeqCst);
        self.send().map(|()| done)
    }

    fn close(&self) {
        self.ring.close();
    }

    fn quarantine(&self, on: bool) {
        self.ring.quarantine(on);
    }
}

/// The backing of the ring.
struct Backing {
    memory: Arc<Memory>,
    tx: Tx,
    completion: Completion,
    spans: bool,
}

/// State under the ring's lock.
struct Own {
    /// Free frames; its capacity is the number of all.
    free: Vec<u64>,
    /// End of the entries that have a frame.
    viewed: u32,
    /// End of the completion entries taken.
    completed: u32,
}

impl Backing {
    /// Takes back the frames whose packets were sent.
    #[inline]
    fn reap(&self, own: &mut Own) {
        let end = self.completion.end();
        if own.completed == end {
            return;
        }
        while own.completed != end {
            own.free.push(self.memory.frame_of(self.completion.frame(own.completed)));
            own.completed = own.completed.wrapping_add(1);
        }
        self.completion.consume(end);
    }
}

// SAFETY: `buffer` returns frames of the packet memory that are free, so nobody else refers to them until they are
// published; the memory is mapped as long as the backing.
unsafe impl RingBacking for Backing {
    type Own = Own;
    /// The frame.
    type Entry = u64;

    /// [`XdpTx::deliver`] calls the kernel.
    const SIGNALS: bool = false;

    #[inline(always)]
    fn size(&self) -> u32 {
        self.tx.size()
    }

    #[inline]
    fn posted(&self, own: &mut Own, _published: u32) -> Result<u32, Fault> {
        self.reap(own);
        let room = self.tx.size() - own.viewed.wrapping_sub(self.tx.consumed()).min(self.tx.size());
        Ok(own.viewed.wrapping_add(room.min(own.free.len() as u32)))
    }

    #[inline(always)]
    fn buffer(&self, own: &mut Own, seq: u32, entry: &mut u64) -> Result<Buffer, Fault> {
        let capacity = self.memory.frame_size();
        let frame = own.free.pop().ok_or(Fault::Device(Errno::NOBUFS))?;
        let at = self.memory.at(frame, capacity).ok_or(Fault::Device(Errno::FAULT))?;
        own.viewed = seq.wrapping_add(1);
        *entry = frame;
        Ok(Buffer { at, capacity })
    }

    fn spans_entries(&self) -> bool {
        self.spans
    }

    #[inline(always)]
    fn fill(&self, seq: u32, entry: &mut u64, len: u32, more: bool) {
        self.tx.write(seq, Descriptor { offset: *entry, length: len, continued: more });
    }

    #[inline(always)]
    fn publish(&self, _own: &mut Own, seq: u32) {
        self.tx.publish(seq);
    }

    /// Frames are taken when they have been sent.
    fn waiting(&self, _own: &mut Own, published: u32) -> Result<u32, Fault> {
        Ok(published.wrapping_sub(self.completion.end()))
    }

    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}
