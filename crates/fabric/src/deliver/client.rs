//! A client that is attached to a port: who is responsible for a worker's waiting.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, PoisonError};

use crate::deliver::egress::Egress;
use crate::fault::{Fault, OnFault};
use crate::wake::notifier::MOST;

/// A client's memory, as far as it can hold a worker up. Both are called on threads that may wait.
pub trait SharedMemory: Send + Sync {
    /// Takes it away, so that a thread that is stuck in it comes out: private memory is in its place.
    fn take_away(&self);

    /// Returns when nothing is under way that makes whoever touches the memory wait; at once if it is not known.
    fn wait_for_holes(&self);
}

/// A client, as all of its queues know it.
pub(crate) struct Client {
    pub(crate) number: u64,
    /// Its memory is not to be touched, for now or any more.
    shunned: AtomicBool,
    /// It is not served again.
    abandoned: AtomicBool,
    on_fault: OnFault,
    told: AtomicBool,
    egress: Vec<Arc<dyn Egress>>,
    pub(crate) memory: Option<Arc<dyn SharedMemory>>,
}

impl Client {
    /// One with these transmit queues. Numbers are not used twice, and not 0.
    pub(crate) fn new(
        number: u64,
        on_fault: OnFault,
        egress: Vec<Arc<dyn Egress>>,
        memory: Option<Arc<dyn SharedMemory>>,
    ) -> Arc<Self> {
        let (shunned, abandoned, told) = Default::default();
        Arc::new(Self { number, shunned, abandoned, on_fault, told, egress, memory })
    }

    #[inline(always)]
    pub(crate) fn is_shunned(&self) -> bool {
        self.shunned.load(Relaxed)
    }

    /// Whether it is never served again.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Relaxed)
    }

    /// Tells the port what its client did. Several queues, on several workers, may find out: it is told of the first.
    #[cold]
    pub(crate) fn fault(&self, fault: Fault) {
        if !self.told.swap(true, Relaxed) {
            (self.on_fault)(fault);
        }
    }

    /// From now on no thread touches its memory, nor waits for one that does; or they do again.
    pub(crate) fn shun(&self, on: bool) {
        let set = |on| {
            self.shunned.store(on, SeqCst);
            self.egress.iter().for_each(|egress| egress.shun(on));
        };
        set(on || self.is_abandoned());
        // It may have been abandoned meanwhile.
        if !on && self.abandoned.load(SeqCst) {
            set(true);
        }
    }

    /// It is unplugged: nothing enters from it and nothing is delivered to it any more. The caller publishes a picture without it
    /// after this, and then [closes](Client::close) its queues.
    pub(crate) fn leave(&self) {
        self.abandoned.store(true, SeqCst);
        self.shun(true);
    }

    /// Says where its transmit queues stand.
    pub(crate) fn close(&self) {
        self.egress.iter().for_each(|egress| egress.close());
    }

    /// Shuns it for good, and tells the port.
    pub(crate) fn abandon(&self, fault: Fault) {
        self.abandoned.store(true, SeqCst);
        self.shun(true);
        self.fault(fault);
    }
}

/// Whose memory or descriptor a thread is at: written by that thread, read by the [watchdog](crate::worker::watchdog).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Site {
    /// The client whose packets are at hand.
    from: AtomicU64,
    /// The client that they are delivered to, or that is signalled.
    to: AtomicU64,
    /// Descriptors that are to be signalled after the batch,
    rings: Rings,
    /// and how many.
    collected: AtomicUsize,
}

#[derive(Debug)]
struct Rings([AtomicI32; MOST]);

impl Default for Rings {
    fn default() -> Self {
        Self([const { AtomicI32::new(-1) }; MOST])
    }
}

/// Set beside a client's number while a thread signals it.
const RINGING: u64 = 1 << 63;

/// What a [`Site`] says; 0 for no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// `to` is being signalled.
    pub(crate) ringing: bool,
}

impl Site {
    /// Memory of this client alone is touched now.
    #[inline(always)]
    pub(crate) fn enter(&self, client: &Client) {
        self.from.store(client.number, Relaxed);
        self.to.store(0, Relaxed);
    }

    /// The client's packets are in private memory as a whole, or not: see [`Site::enter`].
    #[inline(always)]
    pub(crate) fn loaded(&self, whole: bool) {
        if whole {
            self.from.store(0, Relaxed);
        }
    }

    /// They are delivered to this client.
    #[inline(always)]
    pub(crate) fn deliver(&self, client: &Client) {
        self.to.store(client.number, Relaxed);
    }

    /// What comes now is for no client.
    #[inline]
    pub(crate) fn leave(&self) {
        self.from.store(0, Relaxed);
        self.to.store(0, Relaxed);
    }

    /// Signals go to the client of this number now; 0: to several.
    #[inline]
    pub(crate) fn ring(&self, client: u64) {
        self.from.store(0, Relaxed);
        self.to.store(client | RINGING, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> At {
        let (from, to) = (self.from.load(Relaxed), self.to.load(Relaxed));
        At { from, to: to & !RINGING, ringing: to & RINGING != 0 }
    }

    /// Descriptor number `i` that is to be signalled after the batch.
    #[inline]
    pub(crate) fn collect(&self, i: usize, fd: RawFd) {
        if let Some(slot) = self.rings.0.get(i) {
            slot.store(fd, Relaxed);
            self.collected(i + 1);
        }
    }

    /// So many descriptors are to be signalled.
    #[inline]
    pub(crate) fn collected(&self, n: usize) {
        self.collected.store(n, Release);
    }

    /// The descriptors that are to be signalled.
    pub(crate) fn rings(&self) -> impl Iterator<Item = RawFd> {
        self.rings.0.iter().take(self.collected.load(Acquire)).map(|fd| fd.load(Relaxed))
    }

    /// The client that a descriptor is of which is to be signalled.
    #[inline]
    pub(crate) fn signalled(&self) -> u64 {
        let At { from, to, .. } = self.get();
        if to == 0 { from } else { to }
    }
}

/// The clients that are attached, by number.
#[derive(Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u64, Arc<Client>>>);

impl Clients {
    pub(crate) fn add(&self, client: Arc<Client>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(client.number, client);
    }

    pub(crate) fn remove(&self, client: &Client) {
        let removed = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&client.number);
        drop(removed);
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}
