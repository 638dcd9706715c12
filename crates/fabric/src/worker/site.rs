//! Where a thread is: whose memory it touches, whom it signals, and whom it has yet to signal. Written by that thread, read by the
//! [watchdog](crate::worker::watchdog).

use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicI32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::deliver::client::Client;
use crate::wake::notifier::MOST;

/// A signal to be sent: the descriptor of who receives it, and the number of its client; 0 for none that is known.
pub(crate) type Signal = (RawFd, u64);

/// See the module.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Site {
    /// The client whose packets are at hand.
    from: AtomicU64,
    /// The client that they are delivered to, or that is signalled.
    to: AtomicU64,
    /// How many receivers are to be signalled after the batch,
    collected: AtomicUsize,
    /// and these.
    rings: Rings,
}

#[derive(Debug)]
struct Rings([(AtomicI32, AtomicU64); MOST]);

impl Default for Rings {
    fn default() -> Self {
        Self([const { (AtomicI32::new(-1), AtomicU64::new(0)) }; MOST])
    }
}

/// Set beside a client's number while a thread signals it.
const RINGING: u64 = 1 << 63;

/// What a [`Site`] says; 0 for no client, or none that is known.
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

    /// Does `work`, which signals the client of this number.
    pub(crate) fn ringing<R>(&self, client: u64, work: impl FnOnce() -> R) -> R {
        let before = (self.from.swap(0, Relaxed), self.to.swap(client | RINGING, Relaxed));
        let result = work();
        self.from.store(before.0, Relaxed);
        self.to.store(before.1, Relaxed);
        result
    }

    #[inline]
    pub(crate) fn get(&self) -> At {
        let (from, to) = (self.from.load(Relaxed), self.to.load(Relaxed));
        At { from, to: to & !RINGING, ringing: to & RINGING != 0 }
    }

    /// The client whose descriptor is collected now.
    #[inline]
    pub(crate) fn client(&self) -> u64 {
        let At { from, to, .. } = self.get();
        if to == 0 { from } else { to }
    }

    /// Signal number `i` is to be signalled after the batch.
    #[inline]
    pub(crate) fn collect(&self, i: usize, (fd, client): Signal) {
        if let Some(receiver) = self.rings.0.get(i) {
            receiver.0.store(fd, Relaxed);
            receiver.1.store(client, Relaxed);
            self.collected.store(i + 1, Release);
        }
    }

    /// All have been signalled.
    pub(crate) fn told(&self) {
        self.collected.store(0, Release);
    }

    /// Those that are to be signalled, or were a moment ago.
    pub(crate) fn rings(&self) -> impl Iterator<Item = Signal> {
        let receivers = self.rings.0.iter().take(self.collected.load(Acquire));
        receivers.map(|receiver| (receiver.0.load(Relaxed), receiver.1.load(Relaxed)))
    }
}
