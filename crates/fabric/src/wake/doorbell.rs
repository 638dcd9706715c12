//! Doorbells: what wakes a worker, and what a worker rings.
//!
//! | kind | who waits there | how it is rung |
//! | --- | --- | --- |
//! | [`Doorbell`] of an [`EventBell`] | a worker, or a thread of this process that polls | at once, or after the batch ([`Notifier::add_bell`]) |
//! | [`Doorbell`] of a [`ThreadBell`] | a thread of this process that parks | the same |
//! | a client's eventfd | the client | after the batch, never blocking ([`Notifier::add`]) |
//! | a [`SystemCall`] | the kernel, for a socket that it serves on demand | after the batch ([`Notifier::add_call`]) |
//!
//! Within the process a bell costs its system call only while somebody waits for it. The waiter arms the doorbell, looks
//! once more for work, and then blocks; the one who has work for it publishes the work and then rings. Both steps that meet
//! are exchanges of the same word, so that one of them sees the other: either the waiter finds the work, or it is woken
//! (`loom_models`).
//!
//! [`Notifier::add`]: crate::wake::notifier::Notifier::add
//! [`Notifier::add_bell`]: crate::wake::notifier::Notifier::add_bell
//! [`Notifier::add_call`]: crate::wake::notifier::Notifier::add_call

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::{AtomicU32, Ordering};

/// The waiter is busy and looks by itself.
const IDLE: u32 = 0;
/// The waiter blocks, or is about to.
const ARMED: u32 = 1;
/// Rung since the waiter last asked.
const RUNG: u32 = 2;

/// What wakes a waiter that blocks.
pub trait Bell: Send + Sync {
    /// Wakes it. Never blocks.
    fn wake(&self);
}

/// Something to ring, whatever wakes its waiter.
pub trait Ring: Send + Sync {
    /// See [`Doorbell::ring`].
    fn ring(&self);
}

/// A doorbell for one waiter within this process. See the module.
#[derive(Debug, Default)]
pub struct Doorbell<B> {
    state: AtomicU32,
    bell: B,
}

impl<B> Doorbell<B> {
    /// One that is not armed.
    #[cfg(not(loom))]
    pub const fn new(bell: B) -> Self {
        Self { state: AtomicU32::new(IDLE), bell }
    }

    /// One that is not armed.
    #[cfg(loom)]
    pub fn new(bell: B) -> Self {
        Self { state: AtomicU32::new(IDLE), bell }
    }

    /// The waiter wants to be woken from now on. Returns whether it was rung since the waiter last asked; in any case the
    /// waiter looks for work once more before it blocks.
    pub fn arm(&self) -> bool {
        self.state.swap(ARMED, Ordering::AcqRel) == RUNG
    }

    /// The waiter looks by itself from now on. Returns whether it was rung since the waiter last asked.
    pub fn disarm(&self) -> bool {
        self.state.swap(IDLE, Ordering::AcqRel) == RUNG
    }

    /// Whether it was rung since the waiter, which is not blocked, last asked. Costs a load if not.
    #[inline]
    pub fn answer(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNG && self.disarm()
    }

    /// What wakes the waiter.
    pub fn bell(&self) -> &B {
        &self.bell
    }
}

impl<B: Bell> Doorbell<B> {
    /// Lets the waiter know of what the caller did before. Wakes it if it blocks, or is about to, and was not woken yet.
    #[inline]
    pub fn ring(&self) {
        if self.state.swap(RUNG, Ordering::AcqRel) == ARMED {
            self.bell.wake();
        }
    }
}

impl<B: Bell> Ring for Doorbell<B> {
    fn ring(&self) {
        Doorbell::ring(self);
    }
}

/// Wakes a waiter that polls: an eventfd of the process's own. It is edge-triggered for workers and need not be read.
#[derive(Debug)]
pub struct EventBell(OwnedFd);

impl EventBell {
    /// A fresh eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Bell for EventBell {
    fn wake(&self) {
        // Fails only when the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Wakes a thread that parks.
#[derive(Debug, Default)]
pub struct ThreadBell(OnceLock<Thread>);

impl ThreadBell {
    /// One that nobody waits at yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The calling thread is the one that it wakes from now on; only the first that says so is.
    pub fn belongs_here(&self) {
        self.0.get_or_init(std::thread::current);
    }
}

impl Bell for ThreadBell {
    fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

impl Doorbell<ThreadBell> {
    /// Blocks the calling thread, always the same one, until it was rung since the thread last asked.
    pub fn wait(&self) {
        self.bell.belongs_here();
        while !self.arm() {
            std::thread::park();
        }
        self.disarm();
    }

    /// Blocks the calling thread, always the same one, until `ready`, which is looked at after each ring, returns something.
    pub fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = ready() {
                return found;
            }
            self.wait();
        }
    }
}

/// A system call that has the kernel serve a socket, as AF_XDP's `need_wakeup` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCall {
    /// `sendto` of no bytes: the transmit ring holds packets.
    Send(RawFd),
    /// `recvfrom` of no bytes: the receive side waits for free buffers.
    Receive(RawFd),
}

impl SystemCall {
    /// Makes the call, without waiting. What it returns does not matter: if the kernel is busy, it serves the socket anyway.
    pub(crate) fn make(self) {
        // SAFETY: no buffer and no address is passed; a descriptor that is not a socket is refused.
        unsafe {
            match self {
                Self::Send(fd) => {
                    libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0);
                }
                Self::Receive(fd) => {
                    let (none, nowhere) = (std::ptr::null_mut(), std::ptr::null_mut());
                    libc::recvfrom(fd, std::ptr::null_mut(), 0, libc::MSG_DONTWAIT, none, nowhere);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Counts how often it was rung for somebody who waits.
    #[derive(Default)]
    struct Counting(AtomicU64);

    impl Bell for Counting {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_a_waiter_that_blocks_is_woken_and_only_once() {
        let doorbell = Doorbell::new(Counting::default());
        let woken = || doorbell.bell().0.load(Ordering::Relaxed);
        doorbell.ring();
        assert_eq!((woken(), doorbell.answer(), doorbell.answer()), (0, true, false));
        assert!(!doorbell.arm());
        doorbell.ring();
        doorbell.ring();
        assert_eq!((woken(), doorbell.disarm(), doorbell.disarm()), (1, true, false));
        doorbell.ring();
        assert!(doorbell.arm(), "rung before it was armed");
        assert_eq!(woken(), 1);
    }

    #[test]
    fn a_thread_takes_all_that_it_is_given() {
        let given = Arc::new((AtomicU64::new(0), Doorbell::new(ThreadBell::new())));
        let taker = {
            let given = given.clone();
            std::thread::spawn(move || {
                let (number, doorbell) = &*given;
                (1..=10_000).for_each(|n| {
                    doorbell.wait_for(|| (number.load(Ordering::Acquire) >= n).then_some(()));
                });
            })
        };
        for n in 1..=10_000 {
            given.0.store(n, Ordering::Release);
            given.1.ring();
            if n % 64 == 0 {
                std::thread::yield_now();
            }
        }
        taker.join().unwrap();
    }
}
