//! Receive rings that have stopped for good.
//!
//! A frame that a `virtio_net_hdr` cannot describe, such as a segment of SCTP, stops a ring of Linux 5.6 and later: the
//! kernel drops it without giving its slot free, and from then on drops every frame. Nothing wakes the worker for
//! dropped frames. So the rings of a port are looked at while frames are sent to its interface, and when its counters
//! are read; once one has stopped, the port receives without rings for as long as it is open.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use fabric::clock;
use tokio::sync::Notify;

use super::ring::Ring;
use super::socket;

/// Interval at which rings are looked at while frames are sent.
const INTERVAL: Duration = Duration::from_millis(250);

/// Whether a ring of a port has stopped.
pub(in super::super) struct Stall {
    state: AtomicU8,
    /// Notified when a ring has stopped.
    kick: Arc<Notify>,
}

// States.
const NONE: u8 = 0;
/// A ring has stopped, and is still in use.
const STOPPED: u8 = 1;
/// The port does without rings.
const WITHOUT: u8 = 2;

impl Stall {
    pub(in super::super) fn new(kick: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(NONE), kick })
    }

    /// Returns whether a ring has stopped that is still in use.
    pub(in super::super) fn has_stopped(&self) -> bool {
        self.state.load(Ordering::Acquire) == STOPPED
    }

    /// The port is being opened again: a ring that has stopped is no longer in use.
    pub(in super::super) fn acknowledge(&self) {
        let _ = self.state.compare_exchange(STOPPED, WITHOUT, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns whether the port does without rings.
    pub(super) fn without_rings(&self) -> bool {
        self.state.load(Ordering::Acquire) == WITHOUT
    }

    fn stop(&self) {
        if self.state.compare_exchange(NONE, STOPPED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.kick.notify_one();
        }
    }
}

/// Progress of one socket, as its receiving end reports it.
pub(super) struct Progress {
    socket: Arc<OwnedFd>,
    ring: Option<Arc<Ring>>,
    /// Slots taken since the ring was made.
    taken: AtomicU64,
}

impl Progress {
    pub(super) fn new(socket: Arc<OwnedFd>, ring: Option<Arc<Ring>>) -> Arc<Self> {
        Arc::new(Self { socket, ring, taken: AtomicU64::new(0) })
    }

    /// So many slots have been taken, and will be given back now.
    #[inline(always)]
    pub(super) fn set_taken(&self, taken: u64) {
        self.taken.store(taken, Ordering::Release);
    }

    /// Returns whether the ring was empty just now, after so many slots were taken. A single empty slot is not enough:
    /// the kernel may be filling it while the others wait behind.
    fn is_empty(&self, taken: u64) -> bool {
        // A slot that was given back is seen after the number that includes it.
        self.ring.as_ref().is_some_and(|ring| ring.is_empty(taken) && ring.is_empty(taken + 1))
            && self.taken.load(Ordering::Acquire) == taken
    }
}

/// Looks at the rings of a port.
pub(super) struct Lookout {
    sockets: Vec<Arc<Progress>>,
    /// Time of the next look, in cycles.
    due: AtomicU64,
    /// Findings so far. Workers never wait for it.
    seen: Mutex<Seen>,
    stall: Arc<Stall>,
}

struct Seen {
    /// Slots taken from each ring at the last look.
    taken: Vec<u64>,
    /// Frames that the kernel dropped and that are not reported yet.
    dropped: u64,
}

impl Lookout {
    pub(super) fn new(sockets: Vec<Arc<Progress>>, stall: Arc<Stall>) -> Arc<Self> {
        let seen = Mutex::new(Seen { taken: vec![0; sockets.len()], dropped: 0 });
        Arc::new(Self { sockets, due: AtomicU64::new(0), seen, stall })
    }

    /// Looks at all rings if the last look was long ago: the ring that has stopped need not be that of the socket which
    /// sends.
    #[inline]
    pub(super) fn look_if_due(&self) {
        if clock::cycles() >= self.due.load(Ordering::Relaxed) {
            self.look_now();
        }
    }

    #[cold]
    fn look_now(&self) {
        let mut seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(seen)) => seen.into_inner(),
            // Another thread looks.
            Err(TryLockError::WouldBlock) => return,
        };
        let next = clock::cycles().saturating_add(clock::from_duration(INTERVAL));
        self.due.store(next, Ordering::Relaxed);
        self.look(&mut seen);
    }

    /// Reads the kernel's counters of drops. A ring has stopped if frames were dropped, but none was taken since the
    /// last look, and none waits to be taken.
    fn look(&self, seen: &mut Seen) {
        for (socket, last) in self.sockets.iter().zip(&mut seen.taken) {
            let taken = socket.taken.load(Ordering::Acquire);
            let dropped = socket::take_dropped(&socket.socket);
            seen.dropped += dropped;
            let rests = std::mem::replace(last, taken) == taken;
            if dropped > 0 && rests && socket.is_empty(taken) {
                self.stall.stop();
            }
        }
    }

    /// Returns the frames that the kernel dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut seen);
        std::mem::take(&mut seen.dropped)
    }
}
