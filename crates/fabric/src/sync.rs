//! Atomics and the short lock, from `core` or, under `--cfg loom`, from the model checker.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::{
    cell::UnsafeCell as StdUnsafeCell,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

/// `std`'s cell behind the model checker's interface.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(StdUnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(StdUnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Yields while another thread finishes.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

/// A lock for a few dozen instructions at a time, never held across anything that can block.
///
/// Data-plane threads are pinned, so spinning beats sleeping; after a while it yields in case the holder shares this
/// CPU.
// The value's first fields share the lock's cache line.
#[repr(C)]
pub(crate) struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives access to the value to one thread at a time.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above; `&SpinLock` gives access only under the lock.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value. `f` must be short and must not take the same lock.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.lock(|| false);
        self.run_locked(f)
    }

    /// The same, unless `given_up` becomes true while another thread has the lock: then `f` is not run.
    #[inline]
    pub(crate) fn with_unless<R>(&self, given_up: &AtomicBool, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock(|| given_up.load(Ordering::Relaxed)).then(|| self.run_locked(f))
    }

    /// Takes the lock. Returns false without it if `stop` returns true while another thread has it.
    #[inline]
    fn lock(&self, stop: impl Fn() -> bool) -> bool {
        self.try_lock() || self.wait(stop)
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock. The holder works on the lock's cache line, which each look takes away from it: so looks are
    /// reads, and become rarer.
    #[cold]
    #[inline(never)]
    fn wait(&self, stop: impl Fn() -> bool) -> bool {
        /// Looks between questions to `stop`.
        const LOOKS: u32 = 16;
        /// Most pauses between two looks, as a power of two.
        const LONGEST: u32 = if cfg!(loom) { 0 } else { 4 };
        let mut looks = 0u32;
        loop {
            for _ in 0..1 << looks.min(LONGEST) {
                relax();
            }
            if !self.locked.load(Ordering::Relaxed) && self.try_lock() {
                return true;
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                if stop() {
                    return false;
                }
                #[cfg(not(loom))]
                std::thread::yield_now();
            }
        }
    }

    /// Runs `f` with the value and unlocks. The caller has taken the lock.
    #[inline]
    fn run_locked<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        struct Unlock<'a>(&'a AtomicBool);
        impl Drop for Unlock<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _unlock = Unlock(&self.locked);
        self.value.with_mut(|value| {
            // SAFETY: the caller took `locked` with acquire and it is released after `f`, so no other thread has a
            // reference to the value now.
            f(unsafe { &mut *value })
        })
    }
}
