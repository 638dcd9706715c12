//! Frames on their way from the workers to the recording thread: a ring in the switch's own memory.
//!
//! To the fabric it is a ring like a client's, filled by [`fabric::TxRing`]: several workers at once, one copy, in
//! order, never waiting; frames that do not fit are dropped and counted as `ring-full`. This module has the memory and
//! the receiving end.
//!
//! Invariants: entries before `taken` and after `published` belong to the workers, those between to the recorder.
//! `published` is stored after the entries that it publishes and loaded before they are read, `taken` the other way
//! round.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fabric::doorbell::{Bell, Doorbell, EventBell};
use fabric::{Buffer, Fault, RingBacking, Slab, clock};

/// Entries of the ring, a power of two.
const SLOTS: u32 = 4096;
/// Bytes in an entry; a longer frame takes several.
const SLOT_BYTES: u32 = 2048;

/// Metadata of an entry.
#[derive(Default)]
struct Entry {
    /// Length in bytes; the highest bit is set if the frame continues in the next entry.
    len: AtomicU32,
    /// Cycle counter when it was filled.
    at: AtomicU64,
}

const MORE: u32 = 1 << 31;

/// The ring. See the module's documentation.
pub(crate) struct Slots {
    memory: Slab,
    entries: Box<[Entry]>,
    published: AtomicU32,
    taken: AtomicU32,
    /// Rung for the recorder: frames are available.
    doorbell: Doorbell<EventBell>,
}

impl Slots {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            memory: Slab::new((SLOTS * SLOT_BYTES) as usize),
            entries: (0..SLOTS).map(|_| Entry::default()).collect(),
            published: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            doorbell: Doorbell::new(EventBell::new()?),
        }))
    }

    /// Returns the beginning of entry `seq`.
    fn slot(&self, seq: u32) -> NonNull<u8> {
        let at = (seq % SLOTS) as usize * SLOT_BYTES as usize;
        // SAFETY: `at` is less than SLOTS * SLOT_BYTES, which is the slab's length.
        unsafe { self.memory.at(at) }
    }

    fn entry(&self, seq: u32) -> Option<&Entry> {
        self.entries.get((seq % SLOTS) as usize)
    }

    /// Copies the next frame to `frame`, which is emptied first. Returns the cycle counter at its arrival, and its
    /// number of entries; `None` if no frame is available. Only the recorder may call this; the frame stays until
    /// [`Slots::release`].
    pub(crate) fn peek(&self, frame: &mut Vec<u8>) -> Option<(u64, u32)> {
        frame.clear();
        let published = self.published.load(Ordering::Acquire);
        let first = self.taken.load(Ordering::Relaxed);
        let mut seq = first;
        while seq != published {
            let entry = self.entry(seq)?;
            let field = entry.len.load(Ordering::Relaxed);
            let len = (field & !MORE).min(SLOT_BYTES) as usize;
            let (from, room) = (self.slot(seq), frame.len());
            frame.resize(room + len, 0);
            if let Some(to) = frame.get_mut(room..) {
                // SAFETY: `len` bytes at `from` are within the entry, which lies between `taken` and `published`: no
                // worker writes to it. `to` is `len` bytes of this side's own.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), len) };
            }
            seq = seq.wrapping_add(1);
            if field & MORE == 0 {
                return Some((entry.at.load(Ordering::Relaxed), seq.wrapping_sub(first)));
            }
        }
        None
    }

    /// Gives this many entries back to the workers.
    pub(crate) fn release(&self, entries: u32) {
        let taken = self.taken.load(Ordering::Relaxed).wrapping_add(entries);
        self.taken.store(taken, Ordering::Release);
    }

    /// Has the workers ring the doorbell for frames from now on. Returns false if frames are available already.
    pub(crate) fn arm(&self) -> bool {
        self.doorbell.arm();
        let idle = self.published.load(Ordering::Relaxed) == self.taken.load(Ordering::Relaxed);
        if !idle {
            self.doorbell.disarm();
        }
        idle
    }

    /// Returns the descriptor that becomes readable when frames are available, or [`Slots::wake`] is called.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.doorbell.bell().as_fd()
    }

    /// Wakes the recorder, even if it does not wait for frames.
    pub(crate) fn wake(&self) {
        self.doorbell.bell().wake();
    }
}

/// The workers' end of the ring.
pub(crate) struct Filling(pub(crate) Arc<Slots>);

// SAFETY: `buffer` returns an entry of the ring's own memory, which lives as long as the ring, has SLOT_BYTES bytes,
// and is only accessed through pointers.
unsafe impl RingBacking for Filling {
    type Own = ();
    type Entry = ();

    fn size(&self) -> u32 {
        SLOTS
    }

    #[inline]
    fn posted(&self, (): &mut (), _published: u32) -> Result<u32, Fault> {
        Ok(self.0.taken.load(Ordering::Acquire).wrapping_add(SLOTS))
    }

    #[inline]
    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        Ok(Buffer { at: self.0.slot(seq), capacity: SLOT_BYTES })
    }

    #[inline]
    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        if let Some(entry) = self.0.entry(seq) {
            entry.len.store(if more { len | MORE } else { len }, Ordering::Relaxed);
            entry.at.store(clock::cycles(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn publish(&self, (): &mut (), seq: u32) {
        self.0.published.store(seq, Ordering::Release);
    }

    #[inline]
    fn notify(&self) -> Option<RawFd> {
        self.0.doorbell.ring();
        None
    }

    fn faulted(&self) -> bool {
        false
    }
}
