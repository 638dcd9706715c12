//! Activity of a thread: whose memory it touches, whom it signals, and whom it has yet to signal. Written by that
//! thread, read by the [watchdog](crate::worker::watchdog).

use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicI32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::deliver::client::Client;
use crate::wake::notifier::MOST;

/// A signal to send: the receiver's descriptor, and its client's number (0 if unknown).
pub(crate) type Signal = (RawFd, u64);

/// Activity of a thread. See the module.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Activity {
    /// The client whose packets are being switched.
    from: AtomicU64,
    /// The client that they are delivered to, or that is signalled.
    to: AtomicU64,
    /// Number of receivers to signal after the batch,
    collected: AtomicUsize,
    /// and the receivers.
    receivers: Receivers,
}

#[derive(Debug)]
struct Receivers([(AtomicI32, AtomicU64); MOST]);

impl Default for Receivers {
    fn default() -> Self {
        Self([const { (AtomicI32::new(-1), AtomicU64::new(0)) }; MOST])
    }
}

/// Set beside a client's number while a thread signals it.
const SIGNALLING: u64 = 1 << 63;

/// Clients that a thread works for; 0 for none or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveClients {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// `to` is being signalled.
    pub(crate) signalling: bool,
}

impl Activity {
    /// Only memory of this client is touched from now on.
    #[inline(always)]
    pub(crate) fn enter(&self, client: &Client) {
        self.from.store(client.number, Relaxed);
        self.to.store(0, Relaxed);
    }

    /// The packets have been copied to private memory, in whole if `whole`: then the sender's memory is no longer
    /// touched.
    #[inline(always)]
    pub(crate) fn loaded(&self, whole: bool) {
        if whole {
            self.from.store(0, Relaxed);
        }
    }

    /// The packets are delivered to this client from now on.
    #[inline(always)]
    pub(crate) fn deliver(&self, client: &Client) {
        self.to.store(client.number, Relaxed);
    }

    /// No client is involved from now on.
    #[inline]
    pub(crate) fn leave(&self) {
        self.from.store(0, Relaxed);
        self.to.store(0, Relaxed);
    }

    /// Runs `work`, which signals the client with this number.
    pub(crate) fn signalling<R>(&self, client: u64, work: impl FnOnce() -> R) -> R {
        let before = (self.from.swap(0, Relaxed), self.to.swap(client | SIGNALLING, Relaxed));
        let result = work();
        self.from.store(before.0, Relaxed);
        self.to.store(before.1, Relaxed);
        result
    }

    /// Runs `look`, which looks at the memory of this client, while packets are decided.
    pub(crate) fn looking_at<R>(&self, client: &Client, look: impl FnOnce() -> R) -> R {
        let before = self.to.swap(client.number, Relaxed);
        let result = look();
        self.to.store(before, Relaxed);
        result
    }

    #[inline]
    pub(crate) fn get(&self) -> ActiveClients {
        let (from, to) = (self.from.load(Relaxed), self.to.load(Relaxed));
        ActiveClients { from, to: to & !SIGNALLING, signalling: to & SIGNALLING != 0 }
    }

    /// The client whose descriptor is being collected.
    #[inline]
    pub(crate) fn client(&self) -> u64 {
        let ActiveClients { from, to, .. } = self.get();
        if to == 0 { from } else { to }
    }

    /// Receiver number `i` is to be signalled after the batch.
    #[inline]
    pub(crate) fn collect(&self, i: usize, (fd, client): Signal) {
        if let Some(receiver) = self.receivers.0.get(i) {
            receiver.0.store(fd, Relaxed);
            receiver.1.store(client, Relaxed);
            self.collected.store(i + 1, Release);
        }
    }

    /// All receivers have been signalled.
    pub(crate) fn all_signalled(&self) {
        self.collected.store(0, Release);
    }

    /// Receivers that are yet to be signalled, or were signalled just now.
    pub(crate) fn pending(&self) -> impl Iterator<Item = Signal> {
        let receivers = self.receivers.0.iter().take(self.collected.load(Acquire));
        receivers.map(|receiver| (receiver.0.load(Relaxed), receiver.1.load(Relaxed)))
    }
}
