//! The client attached to a port, accountable when a worker has to wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use crate::deliver::egress::Egress;
use crate::fault::{Fault, OnFault};

/// A client's memory as far as it can hold a worker up. Both methods are called on threads that may wait.
pub trait SharedMemory: Send + Sync {
    /// Replaces the memory by private memory, so that a thread stuck in it comes out.
    fn take_away(&self);

    /// Returns when no operation is under way that blocks access to the memory; at once if that is unknown.
    fn wait_for_holes(&self);
}

/// A client, shared by all of its queues.
pub(crate) struct Client {
    pub(crate) number: u64,
    /// Its memory must not be touched, for now or for good.
    quarantined: AtomicBool,
    /// It is never served again.
    abandoned: AtomicBool,
    on_fault: OnFault,
    reported: AtomicBool,
    egress: Vec<Arc<dyn Egress>>,
    pub(crate) memory: Option<Arc<dyn SharedMemory>>,
}

impl Client {
    /// Creates a client with these transmit queues. Numbers are unique and never 0.
    pub(crate) fn new(
        number: u64,
        on_fault: OnFault,
        egress: Vec<Arc<dyn Egress>>,
        memory: Option<Arc<dyn SharedMemory>>,
    ) -> Arc<Self> {
        let (quarantined, abandoned, reported) = Default::default();
        Arc::new(Self { number, quarantined, abandoned, on_fault, reported, egress, memory })
    }

    #[inline(always)]
    pub(crate) fn is_quarantined(&self) -> bool {
        self.quarantined.load(Relaxed)
    }

    /// Whether it is never served again.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Relaxed)
    }

    /// Reports the client's fault to the port, once: several queues on several workers may detect it.
    #[cold]
    pub(crate) fn fault(&self, fault: Fault) {
        if !self.reported.swap(true, Relaxed) {
            (self.on_fault)(fault);
        }
    }

    /// Starts or ends quarantine, in which no thread touches its memory or waits for one that does.
    pub(crate) fn quarantine(&self, on: bool) {
        let set = |on| {
            self.quarantined.store(on, SeqCst);
            self.egress.iter().for_each(|egress| egress.quarantine(on));
        };
        set(on || self.is_abandoned());
        // It may have been abandoned meanwhile.
        if !on && self.abandoned.load(SeqCst) {
            set(true);
        }
    }

    /// Detaches it: no packet enters from it or is delivered to it any more. The caller then publishes a state without
    /// it and [closes](Client::close) its queues.
    pub(crate) fn leave(&self) {
        self.abandoned.store(true, SeqCst);
        self.quarantine(true);
    }

    /// Closes its transmit queues.
    pub(crate) fn close(&self) {
        self.egress.iter().for_each(|egress| egress.close());
    }

    /// Quarantines it for good and reports the fault.
    pub(crate) fn abandon(&self, fault: Fault) {
        self.abandoned.store(true, SeqCst);
        self.quarantine(true);
        self.fault(fault);
    }
}

/// Attached clients, by number.
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
