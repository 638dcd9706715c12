//! A transmit ring in memory whose receiver checks the switch's every step, and can break the rules.

use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use fabric::{Buffer, Fault, RingBacking, TxRing};
use rustix::event::{EventfdFlags, eventfd};

/// Guard bytes behind every buffer.
const CANARY: usize = 16;
const POISON: u8 = 0xEE;

// State of an entry.
const POSTED: u32 = 0;
const FILLED: u32 = 1;
const MORE: u32 = 2;

struct Entry {
    memory: UnsafeCell<Box<[u8]>>,
    /// The capacity that the receiver reports.
    capacity: AtomicU32,
    state: AtomicU32,
    len: AtomicU32,
}

/// The receiver's memory and its side of the ring.
pub(crate) struct MemRing {
    entries: Box<[Entry]>,
    start: u32,
    posted: AtomicU32,
    published: AtomicU32,
    wants_signal: AtomicBool,
    event: OwnedFd,
    /// Serialises receivers, and holds where the next packet begins.
    consumed: Mutex<u32>,
    /// Violations by the switch.
    pub(crate) wrongs: Mutex<Vec<String>>,
    pub(crate) asked: AtomicU64,
    /// Faults to simulate.
    pub(crate) index_fault: AtomicBool,
    pub(crate) bad_descriptor: AtomicBool,
    pub(crate) memory_gone: AtomicBool,
    /// The switch's side was dropped.
    pub(crate) gone: AtomicBool,
}

// SAFETY: the switch accesses a buffer while it is in published..posted, the receiver otherwise; both indices are moved
// with release and read with acquire.
unsafe impl Sync for MemRing {}
// SAFETY: plain memory.
unsafe impl Send for MemRing {}

impl MemRing {
    /// A ring of `capacities.len()` (a power of two) posted buffers, starting at entry `start`.
    pub(crate) fn new(start: u32, capacities: &[u32]) -> Arc<Self> {
        assert!(capacities.len().is_power_of_two());
        let n = capacities.len() as u32;
        let mut entries: Vec<_> = (0..n)
            .map(|_| Entry {
                memory: UnsafeCell::new(Box::default()),
                capacity: AtomicU32::new(0),
                state: AtomicU32::new(POSTED),
                len: AtomicU32::new(0),
            })
            .collect();
        for (i, capacity) in (0..n).zip(capacities) {
            let entry = &mut entries[(start.wrapping_add(i) % n) as usize];
            entry.memory = UnsafeCell::new(vec![POISON; *capacity as usize + CANARY].into());
            entry.capacity = AtomicU32::new(*capacity);
        }
        Arc::new(Self {
            entries: entries.into(),
            start,
            posted: AtomicU32::new(start.wrapping_add(n)),
            published: AtomicU32::new(start),
            wants_signal: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            consumed: Mutex::new(start),
            wrongs: Mutex::default(),
            asked: AtomicU64::new(0),
            index_fault: AtomicBool::new(false),
            bad_descriptor: AtomicBool::new(false),
            memory_gone: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        })
    }

    /// The switch's side.
    pub(crate) fn tx(self: &Arc<Self>) -> Arc<TxRing<Backing>> {
        Arc::new(TxRing::new(Backing(self.clone()), (), self.start))
    }

    fn entry(&self, seq: u32) -> &Entry {
        &self.entries[(seq % self.entries.len() as u32) as usize]
    }

    fn wrong(&self, what: String) {
        self.wrongs.lock().unwrap().push(what);
    }

    /// Takes all published packets and posts their buffers again with capacities from `next`.
    pub(crate) fn take(&self, mut next: impl FnMut() -> u32) -> Vec<Vec<u8>> {
        let mut consumed = self.consumed.lock().unwrap();
        let published = self.published.load(Ordering::Acquire);
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        while *consumed != published {
            let entry = self.entry(*consumed);
            let state = entry.state.swap(POSTED, Ordering::AcqRel);
            let (len, capacity) = (entry.len.load(Ordering::Acquire), entry.capacity.load(Ordering::Acquire));
            if state == POSTED {
                self.wrong(format!("entry {consumed} was published empty"));
            }
            // SAFETY: published entries are the receiver's.
            let memory = unsafe { &mut *entry.memory.get() };
            packet.extend_from_slice(&memory[..len.min(capacity) as usize]);
            if memory[len.min(capacity) as usize..].iter().any(|b| *b != POISON) {
                self.wrong(format!("entry {consumed}: bytes behind the {len} filled were written"));
            }
            if state == FILLED {
                packets.push(std::mem::take(&mut packet));
            }
            let before = capacity;
            let capacity = next();
            if capacity == before {
                memory[..len.min(capacity) as usize].fill(POISON);
            } else {
                *memory = vec![POISON; capacity as usize + CANARY].into();
                entry.capacity.store(capacity, Ordering::Release);
            }
            *consumed = consumed.wrapping_add(1);
        }
        if !packet.is_empty() {
            self.wrong("half a packet was published".into());
        }
        self.posted.store(consumed.wrapping_add(self.entries.len() as u32), Ordering::Release);
        packets
    }

    /// Entries that the switch has handed over.
    pub(crate) fn published(&self) -> u32 {
        self.published.load(Ordering::Acquire).wrapping_sub(self.start)
    }

    /// Takes back `n` of the posted entries, as an honest receiver never does.
    pub(crate) fn rewind(&self, n: u32) {
        self.posted.fetch_sub(n, Ordering::AcqRel);
    }

    /// Stops simulating faults.
    pub(crate) fn heal(&self) {
        for fault in [&self.index_fault, &self.bad_descriptor, &self.memory_gone] {
            fault.store(false, Ordering::Release);
        }
    }

    /// Asks to be signalled, fences, and returns whether there is already something to take.
    pub(crate) fn arm(&self) -> bool {
        self.wants_signal.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.published.load(Ordering::Acquire) != *self.consumed.lock().unwrap()
    }

    pub(crate) fn disarm(&self) {
        self.wants_signal.store(false, Ordering::Relaxed);
    }

    /// Blocks until signalled; false if that takes longer than `patience`.
    pub(crate) fn sleep(&self, patience: std::time::Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let timeout = rustix::time::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
        let woken = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&timeout)).unwrap() == 1;
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
        woken
    }

    #[track_caller]
    pub(crate) fn assert_no_wrongs(&self) {
        let wrongs = self.wrongs.lock().unwrap();
        assert!(wrongs.is_empty(), "{wrongs:?}");
    }
}

/// The switch's view of a [`MemRing`].
pub(crate) struct Backing(Arc<MemRing>);

impl Drop for Backing {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
    }
}

// SAFETY: buffers lie in vectors that the backing keeps, without references to them while the ring has them.
unsafe impl RingBacking for Backing {
    type Own = ();
    type Entry = ();

    fn size(&self) -> u32 {
        self.0.entries.len() as u32
    }

    fn posted(&self, (): &mut (), published: u32) -> Result<u32, Fault> {
        let size = self.size();
        let posted = self.0.posted.load(Ordering::Acquire);
        let distance = posted.wrapping_sub(published);
        if self.0.index_fault.load(Ordering::Acquire) || distance > size {
            return Err(Fault::RingIndex { published: distance, size });
        }
        Ok(posted)
    }

    fn buffer(&self, (): &mut (), seq: u32, (): &mut ()) -> Result<Buffer, Fault> {
        if self.0.bad_descriptor.load(Ordering::Acquire) {
            return Err(Fault::OutOfRegion { index: seq as u16, region: 9, offset: 0, length: 1 });
        }
        let entry = self.0.entry(seq);
        // SAFETY: posted entries are the switch's; only the address is taken here.
        let memory = unsafe { &mut *entry.memory.get() };
        let at = NonNull::from(&mut **memory).cast();
        Ok(Buffer { at, capacity: entry.capacity.load(Ordering::Acquire) })
    }

    fn fill(&self, seq: u32, (): &mut (), len: u32, more: bool) {
        let entry = self.0.entry(seq);
        if len > entry.capacity.load(Ordering::Acquire) {
            self.0.wrong(format!("entry {seq} was filled with {len} bytes"));
        }
        entry.len.store(len, Ordering::Release);
        if entry.state.swap(if more { MORE } else { FILLED }, Ordering::AcqRel) != POSTED {
            self.0.wrong(format!("entry {seq} was filled twice"));
        }
    }

    fn publish(&self, (): &mut (), seq: u32) {
        let mut at = self.0.published.load(Ordering::Acquire);
        while at != seq {
            if self.0.entry(at).state.load(Ordering::Acquire) == POSTED {
                self.0.wrong(format!("entry {at} was published before it was filled"));
                break;
            }
            at = at.wrapping_add(1);
        }
        self.0.published.store(seq, Ordering::Release);
    }

    fn notify(&self) -> Option<RawFd> {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
        self.0.wants_signal.load(Ordering::Relaxed).then(|| self.0.event.as_raw_fd())
    }

    fn faulted(&self) -> bool {
        self.0.memory_gone.load(Ordering::Acquire)
    }
}
