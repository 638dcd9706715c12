//! A client that is attached to a port: who is responsible for a worker's waiting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::deliver::egress::Egress;
use crate::fault::{Fault, OnFault};

/// Takes the client's memory away, so that a thread that is stuck in it comes out. Called on a thread that may wait.
pub type GiveUp = Arc<dyn Fn() + Send + Sync>;

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
    give_up: Option<GiveUp>,
}

impl Client {
    /// One with these transmit queues. Numbers are not used twice, and not 0.
    pub(crate) fn new(
        number: u64,
        on_fault: OnFault,
        egress: Vec<Arc<dyn Egress>>,
        give_up: Option<GiveUp>,
    ) -> Arc<Self> {
        let (shunned, abandoned, told) = Default::default();
        Arc::new(Self { number, shunned, abandoned, on_fault, told, egress, give_up })
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
        let on = on || self.is_abandoned();
        self.shunned.store(on, Relaxed);
        self.egress.iter().for_each(|egress| egress.shun(on));
    }

    /// Shuns it for good, and tells the port.
    pub(crate) fn abandon(&self, fault: Fault) {
        self.abandoned.store(true, Relaxed);
        self.shun(true);
        self.fault(fault);
    }

    /// What takes its memory away, if there is a way.
    pub(crate) fn give_up(&self) -> Option<GiveUp> {
        self.give_up.clone()
    }
}

/// Whose memory or descriptor a thread is at: written by that thread, read by the [watchdog](crate::worker::watchdog).
#[derive(Debug, Default)]
pub(crate) struct Site(AtomicU64);

/// Set beside a client's number while a thread signals it.
const RINGING: u64 = 1 << 63;

impl Site {
    #[inline(always)]
    pub(crate) fn enter(&self, client: &Client) {
        self.0.store(client.number, Relaxed);
    }

    /// What comes now is for no client.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(0, Relaxed);
    }

    /// Signals go to the client of this number now; 0: to several.
    #[inline]
    pub(crate) fn ring(&self, client: u64) {
        self.0.store(client | RINGING, Relaxed);
    }

    /// The number of the client, and whether it is being signalled.
    #[inline]
    pub(crate) fn get(&self) -> (u64, bool) {
        let at = self.0.load(Relaxed);
        (at & !RINGING, at & RINGING != 0)
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
