//! Doorbells: wake a worker, or are rung by one.
//!
//! | kind | waiter | when it is rung |
//! | --- | --- | --- |
//! | [`Doorbell`] of [`EventBell`] | a worker or polling thread | at once; after the batch ([`Notifier::add_bell`]) |
//! | [`Doorbell`] of [`ThreadBell`] | a parking thread | the same |
//! | a client's eventfd | the client | after the batch, never blocking ([`Notifier::add`]) |
//! | a [`SystemCall`] | the kernel, for a socket served on demand | after the batch ([`Notifier::add_call`]) |
//!
//! Within the process, ringing costs a system call only while the waiter blocks. The waiter arms the doorbell, checks
//! once more for work, and then blocks; the other side publishes work and then rings. Arming and ringing exchange the
//! same word, so one of them sees the other: either the waiter finds the work, or it is woken (`loom_models`).
//!
//! [`Notifier::add`]: crate::wake::notifier::Notifier::add
//! [`Notifier::add_bell`]: crate::wake::notifier::Notifier::add_bell
//! [`Notifier::add_call`]: crate::wake::notifier::Notifier::add_call

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::{AtomicU32, Ordering};

/// The waiter is busy and checks by itself.
const IDLE: u32 = 0;
/// The waiter blocks, or is about to.
const ARMED: u32 = 1;
/// Rung since the waiter last checked.
const RUNG: u32 = 2;

/// Wakes a waiter that blocks.
pub trait Bell: Send + Sync {
    /// Wakes the waiter. Never blocks.
    fn wake(&self);
}

/// Anything that can be rung, whatever wakes its waiter.
pub trait Ring: Send + Sync {
    /// See [`Doorbell::ring`].
    fn ring(&self) -> bool;
}

/// A doorbell for one waiter within this process. See the module.
#[derive(Debug, Default)]
pub struct Doorbell<B> {
    state: AtomicU32,
    bell: B,
}

impl<B> Doorbell<B> {
    /// Creates a doorbell that is not armed.
    #[cfg(not(loom))]
    pub const fn new(bell: B) -> Self {
        Self { state: AtomicU32::new(IDLE), bell }
    }

    /// Creates a doorbell that is not armed.
    #[cfg(loom)]
    pub fn new(bell: B) -> Self {
        Self { state: AtomicU32::new(IDLE), bell }
    }

    /// Arms the doorbell: the waiter wants to be woken. Returns whether it was rung since the waiter last checked; in
    /// any case the waiter checks for work once more before it blocks.
    pub fn arm(&self) -> bool {
        self.state.swap(ARMED, Ordering::AcqRel) == RUNG
    }

    /// Disarms the doorbell: the waiter checks by itself. Returns whether it was rung since the waiter last checked.
    pub fn disarm(&self) -> bool {
        self.state.swap(IDLE, Ordering::AcqRel) == RUNG
    }

    /// Whether it was rung since the waiter, which is awake, last checked. Costs a load if not.
    #[inline]
    pub fn answer(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNG && self.disarm()
    }

    /// The bell that wakes the waiter.
    pub fn bell(&self) -> &B {
        &self.bell
    }
}

impl<B: Bell> Doorbell<B> {
    /// Announces the caller's earlier stores. Wakes the waiter if it blocks, or is about to, and was not woken yet.
    /// Returns whether it was woken.
    #[inline]
    pub fn ring(&self) -> bool {
        let wakes = self.state.swap(RUNG, Ordering::AcqRel) == ARMED;
        if wakes {
            self.bell.wake();
        }
        wakes
    }
}

impl<B: Bell> Ring for Doorbell<B> {
    fn ring(&self) -> bool {
        Doorbell::ring(self)
    }
}

/// Wakes a waiter that polls: the process's own eventfd. Workers watch it edge-triggered; it need not be read.
#[derive(Debug)]
pub struct EventBell(OwnedFd);

impl EventBell {
    /// Creates an eventfd.
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
        // Fails only when the counter is full; then it is already readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Wakes a thread that parks.
#[derive(Debug, Default)]
pub struct ThreadBell(OnceLock<Thread>);

impl ThreadBell {
    /// Creates a bell without a waiter.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Makes the calling thread the waiter; only the first call has an effect.
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
    /// Blocks the calling thread, always the same one, until the doorbell was rung since the last check.
    pub fn wait(&self) {
        self.bell.belongs_here();
        while !self.arm() {
            std::thread::park();
        }
        self.disarm();
    }

    /// As [`Doorbell::wait`], but at most until `deadline`.
    pub fn wait_until(&self, deadline: Instant) {
        self.bell.belongs_here();
        while !self.arm() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.disarm();
    }

    /// Blocks the calling thread, always the same one, until `ready` returns a value; calls it after each ring.
    pub fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = ready() {
                return found;
            }
            self.wait();
        }
    }
}

/// A system call that makes the kernel serve a socket, as AF_XDP's `need_wakeup` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCall {
    /// `sendto` of no bytes: the transmit ring holds packets.
    Send(RawFd),
    /// `recvfrom` of no bytes: the receive side waits for free buffers.
    Receive(RawFd),
}

impl SystemCall {
    /// Makes the call, without waiting. The result does not matter: a kernel that is busy serves the socket anyway.
    pub(crate) fn make(self) {
        // SAFETY: no buffer and no address is passed; the kernel rejects a descriptor that is not a socket.
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
    use std::time::Duration;

    use super::*;

    /// Counts its wake-ups.
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
    fn a_parking_thread_waits_until_its_deadline_or_a_ring() {
        let doorbell = Doorbell::new(ThreadBell::new());
        let begin = Instant::now();
        doorbell.wait_until(begin + Duration::from_millis(5));
        assert!(begin.elapsed() >= Duration::from_millis(5));
        doorbell.ring();
        doorbell.wait_until(begin + Duration::from_secs(3600));
        assert!(begin.elapsed() < Duration::from_secs(3600));
    }

    #[test]
    fn a_parking_thread_misses_no_ring() {
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
