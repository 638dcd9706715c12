//! A transmit ring whose receiver takes each packet for nothing: a buffer is free again as soon as it is published.
//!
//! The sender's worker pays what a ring costs it (reservation, copy, descriptor, index), and nobody else works; the
//! mSwitch paper (section 4.3) measures many destinations that way. Buffers are used in turn, so a port has the working
//! set of a ring that a receiver drains.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fabric::{Buffer, Fault, RingBacking, Slab, TxRing, prefetch_write};

use crate::audit::Audit;
use crate::memory;

/// Size of a ring.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Buffers, a power of two.
    pub entries: u32,
    /// Bytes of a buffer.
    pub buffer: usize,
}

impl Shape {
    /// The paper's ring, with buffers as DPDK has them: the headroom keeps them from sharing few sets of the cache.
    pub const DEFAULT: Shape = Shape { entries: 1024, buffer: 2048 + 128 };

    /// Bytes of a ring: its buffers, and their packets' lengths.
    fn bytes(&self) -> usize {
        self.entries as usize * (self.buffer + LEN)
    }
}

/// Bytes of an entry's length.
const LEN: usize = size_of::<AtomicU32>();

/// The ring's memory and indices. See the module.
pub struct Sink {
    shape: Shape,
    memory: Arc<Slab>,
    /// Where the ring's buffers begin in `memory`.
    start: usize,
    published: AtomicU32,
    audit: Option<Arc<Audit>>,
}

impl Sink {
    /// `count` rings in one piece of memory, of huge pages if the kernel gives them; with `audit`, each packet is
    /// checked when it is published.
    pub fn rings(count: usize, shape: Shape, audit: Option<&Arc<Audit>>) -> Vec<Arc<TxRing<Sink>>> {
        let bytes = shape.bytes();
        // Each buffer begins a cache line, and each length is aligned.
        assert!(bytes.is_multiple_of(64) && shape.buffer.is_multiple_of(64), "{shape:?}");
        let memory = Arc::new(Slab::new(count * bytes));
        memory::back(&memory, count * bytes);
        let ring = |i: usize| {
            let first = Self::first(i);
            let sink = Self {
                shape,
                memory: memory.clone(),
                start: i * bytes,
                published: AtomicU32::new(first),
                audit: audit.cloned(),
            };
            Arc::new(TxRing::new(sink, (), first))
        };
        (0..count).map(ring).collect()
    }

    /// The first entry that ring `i` uses: rings in step would use the same few sets of the caches, as their memory is
    /// laid out alike.
    pub(crate) fn first(i: usize) -> u32 {
        (i as u32).wrapping_mul(0x9e37_79b1)
    }

    /// The first byte of an entry's buffer.
    fn at(&self, seq: u32) -> Option<NonNull<u8>> {
        self.memory.get(self.start + self.index(seq) * self.shape.buffer, self.shape.buffer)
    }

    /// Where an entry's length is kept: behind the buffers, as a client's memory has descriptors.
    fn len_of(&self, seq: u32) -> Option<&AtomicU32> {
        let before = self.shape.entries as usize * self.shape.buffer;
        let at = self.memory.get(self.start + before + self.index(seq) * LEN, LEN)?;
        // SAFETY: four aligned bytes of the slab, which the ring keeps, and which are accessed only here.
        Some(unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) })
    }

    /// Index of an entry.
    fn index(&self, seq: u32) -> usize {
        (seq & (self.shape.entries - 1)) as usize
    }

    /// Checks the packets before `seq` that are published now.
    #[cold]
    fn check(&self, audit: &Audit, seq: u32) {
        let mut at = self.published.load(Ordering::Relaxed);
        while at != seq {
            let len = self.len_of(at).map_or(0, |len| len.load(Ordering::Acquire));
            if let Some(bytes) = self.at(at) {
                // SAFETY: a filled entry of the slab, which the switch does not write again before it is published.
                audit.check(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len as usize) });
            }
            at = at.wrapping_add(1);
        }
    }
}

// SAFETY: buffers lie in a slab that the ring keeps; `check` alone makes references to them, while they are filled and
// not yet free.
unsafe impl RingBacking for Sink {
    type Own = ();
    type Entry = ();

    const SIGNALS: bool = false;

    fn size(&self) -> u32 {
        self.shape.entries
    }

    fn posted(&self, (): &mut (), published: u32) -> Result<u32, Fault> {
        Ok(published.wrapping_add(self.shape.entries))
    }

    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        let capacity = self.shape.buffer;
        let beyond =
            || Fault::OutOfRegion { index: seq as u16, region: 0, offset: 0, length: capacity as u32 };
        let at = self.at(seq).ok_or_else(beyond)?;
        Ok(Buffer { at, capacity: capacity as u32 })
    }

    fn prefetch(&self, seq: u32) {
        if let Some(len) = self.len_of(seq) {
            prefetch_write(std::ptr::from_ref(len).cast());
        }
    }

    fn fill(&self, seq: u32, (): &mut (), len: u32, _more: bool) {
        if let Some(slot) = self.len_of(seq) {
            slot.store(len, Ordering::Release);
        }
    }

    fn publish(&self, (): &mut (), seq: u32) {
        if let Some(audit) = &self.audit {
            self.check(audit, seq);
        }
        self.published.store(seq, Ordering::Release);
    }

    fn notify(&self) -> Option<RawFd> {
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}
