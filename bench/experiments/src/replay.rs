//! A receive queue that hands out the same prepared packets again and again, as fast as the worker takes them.
//!
//! Packets lie one after the other, each on its own cache lines, and are not written after their preparation, unless
//! they are numbered for an audit; so the cost of a packet is the switch's alone, and the working set is what the
//! experiment chooses.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric::{Fault, RxBatch, RxQueue, Slab, Tools};
use rustix::event::{EventfdFlags, eventfd};

use crate::audit::{NUMBER, STAMPED};
use crate::memory;

/// Packets of one length, prepared once.
pub struct Packets {
    slab: Slab,
    stride: usize,
    len: u32,
    count: usize,
}

impl Packets {
    /// Prepares `count` packets of `len` bytes; `write(i, bytes)` fills the `i`th, which is zero.
    pub fn new(count: usize, len: usize, mut write: impl FnMut(usize, &mut [u8])) -> Self {
        let stride = len.next_multiple_of(64);
        let slab = Slab::new(count * stride);
        memory::back(&slab, count * stride);
        for i in 0..count {
            if let Some(at) = slab.get(i * stride, len) {
                // SAFETY: `len` initialized bytes of the slab, which nothing else refers to yet.
                write(i, unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), len) });
            }
        }
        Self { slab, stride, len: len as u32, count }
    }

    /// First byte and length of the `i`th packet.
    pub fn get(&self, i: usize) -> (Option<NonNull<u8>>, usize) {
        (self.slab.get(i * self.stride, self.len as usize), self.len as usize)
    }

    /// Number of packets.
    pub fn count(&self) -> usize {
        self.count
    }
}

/// Starts and stops a [`Replay`].
pub struct Valve {
    open: AtomicBool,
    event: OwnedFd,
}

impl Valve {
    /// A closed valve.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { open: AtomicBool::new(false), event }))
    }

    /// Lets packets through, and wakes the worker.
    pub fn open(&self) -> std::io::Result<()> {
        self.open.store(true, Ordering::Release);
        rustix::io::write(&self.event, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Holds packets back.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}

/// The queue. See the module.
pub struct Replay {
    packets: Arc<Packets>,
    valve: Arc<Valve>,
    /// Packets of a batch, at most.
    burst: usize,
    next: usize,
    /// The number of the next packet, if packets are numbered.
    number: Option<u64>,
}

impl Replay {
    /// A queue that hands out bursts of `burst` packets while the valve is open.
    pub fn new(packets: Arc<Packets>, valve: Arc<Valve>, burst: usize) -> Self {
        Self { packets, valve, burst, next: 0, number: None }
    }

    /// A queue whose packets are numbered from 0 for an [`Audit`](crate::audit::Audit), and are nobody else's.
    pub fn numbered(packets: Packets, valve: Arc<Valve>, burst: usize) -> Self {
        let burst = burst.min(packets.count);
        Self { packets: Arc::new(packets), valve, burst, next: 0, number: Some(0) }
    }

    /// Numbers the packets of the next burst.
    fn number(&self, first: u64) {
        let Packets { slab, stride, len, count } = &*self.packets;
        for (i, number) in (first..).take(self.burst).enumerate() {
            let at = (self.next + i) % count * stride;
            if let Some(at) = slab.get(at, *len as usize)
                && *len as usize >= STAMPED
            {
                let bytes = number.to_be_bytes();
                // SAFETY: within the packet, which the switch has given back; nobody else refers to the slab.
                unsafe { at.add(NUMBER).copy_from_nonoverlapping(NonNull::from(&bytes).cast(), bytes.len()) };
            }
        }
    }
}

impl RxQueue for Replay {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        if !self.valve.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let Packets { slab, stride, len, count } = &*self.packets;
        let mut next = self.next;
        if let Some(number) = self.number {
            self.number(number);
        }
        let piece = |_| {
            let at = slab.get(next * stride, *len as usize)?;
            next = if next + 1 == *count { 0 } else { next + 1 };
            Some((at, *len))
        };
        // SAFETY: the slab lives as long as the queue, and is not written before the batch is given back.
        let added = unsafe { batch.add_plain(self.burst, piece) };
        self.next = next;
        self.number = self.number.map(|number| number + added as u64);
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.valve.event.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}
