//! A client that is attached to a port: who is responsible for a worker's waiting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::deliver::egress::Egress;
use crate::fault::{Fault, OnFault};

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
