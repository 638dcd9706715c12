//! Quiescent-state based reclamation: decides when an object that workers use may be dropped.
//!
//! A worker passes a quiescent point between batches, where it holds no reference to anything shared; a sleeping worker
//! is always at one. The control plane unpublishes an object and then [`Quiescence::wait`]s until each worker has
//! passed such a point or sleeps; after that the object is no longer in use.
//!
//! A worker that wakes must not use objects that were unpublished while it slept: it announces itself, fences, and only
//! then loads published pointers; `wait` fences after the unpublishing and before it checks which workers sleep. One of
//! the two sees the other.
//!
//! A worker that a client holds up (`worker/watchdog.rs`) is not waited for: it is [marked](Quiescence::set_stuck), and
//! objects unpublished meanwhile are kept (`Reclaim`) until it has passed a quiescent point after all. The mark decides
//! only who waits, never whether an object may be dropped, so a wrong mark is harmless.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence, relax};

const ASLEEP: u64 = u64::MAX;

/// Quiescence of all switching threads: workers and their stand-ins. See the module.
pub struct Quiescence {
    epoch: AtomicU64,
    workers: Box<[Padded]>,
}

#[repr(align(64))]
struct Padded {
    /// Epoch of its last quiescent point.
    passed: AtomicU64,
    stuck: AtomicBool,
}

/// Epoch of an object that must not be dropped yet because a stuck worker has not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held(u64);

impl Quiescence {
    /// Creates the state of `workers` workers, all asleep.
    pub fn new(workers: usize) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            workers: (0..workers)
                .map(|_| Padded { passed: AtomicU64::new(ASLEEP), stuck: AtomicBool::new(false) })
                .collect(),
        }
    }

    /// Marks that worker `i` holds no reference to anything shared right now.
    #[inline]
    pub fn pass(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.passed.store(self.epoch.load(Ordering::Acquire), Ordering::Release);
            // Loads of shared pointers after this point must not be satisfied before it.
            fence(Ordering::Acquire);
        }
    }

    /// Marks that worker `i` holds no reference and will take none until it wakes.
    pub fn sleep(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.passed.store(ASLEEP, Ordering::Release);
        }
    }

    /// Marks that worker `i` will use shared objects again.
    pub fn wake(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.passed.store(self.epoch.load(Ordering::Acquire), Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Whether worker `i` sleeps.
    pub fn is_asleep(&self, i: usize) -> bool {
        self.workers.get(i).is_none_or(|worker| worker.passed.load(Ordering::SeqCst) == ASLEEP)
    }

    /// Whether a worker does not sleep.
    pub fn is_any_awake(&self) -> bool {
        self.workers.iter().any(|worker| worker.passed.load(Ordering::SeqCst) != ASLEEP)
    }

    /// Marks whether a client holds worker `i` up; then [`Quiescence::wait`] does not wait for it.
    pub fn set_stuck(&self, i: usize, stuck: bool) {
        if let Some(worker) = self.workers.get(i) {
            worker.stuck.store(stuck, Ordering::Relaxed);
        }
    }

    /// Returns when no worker can still be using objects unpublished before the call, except stuck ones. If there are
    /// stuck ones, returns `Err` and the objects must be kept.
    pub fn wait(&self) -> Result<(), Held> {
        fence(Ordering::SeqCst);
        let target = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        let mut held = Ok(());
        for worker in &self.workers {
            #[cfg(not(loom))]
            let mut tries = 0u32;
            while !worker.has_passed(target) {
                if worker.stuck.load(Ordering::Relaxed) {
                    held = Err(Held(target));
                    break;
                }
                #[cfg(not(loom))]
                {
                    tries += 1;
                    if tries > 1000 {
                        std::thread::sleep(std::time::Duration::from_micros(20));
                    }
                }
                relax();
            }
        }
        fence(Ordering::SeqCst);
        held
    }

    /// Whether objects of this epoch may now be dropped.
    pub fn is_over(&self, held: Held) -> bool {
        let over = self.workers.iter().all(|worker| worker.has_passed(held.0));
        fence(Ordering::SeqCst);
        over
    }
}

impl Padded {
    fn has_passed(&self, target: u64) -> bool {
        let passed = self.passed.load(Ordering::Acquire);
        passed == ASLEEP || passed >= target
    }
}

/// Drops unpublished objects as soon as they are no longer in use.
pub(crate) struct Reclaim {
    pub(crate) quiescence: Arc<Quiescence>,
    held: Mutex<Vec<(Held, Garbage)>>,
}

/// An object to drop later.
pub(crate) type Garbage = Box<dyn Send>;

impl Reclaim {
    pub(crate) fn new(quiescence: Arc<Quiescence>) -> Self {
        Self { quiescence, held: Mutex::default() }
    }

    /// Waits for all workers that are not stuck, and drops `garbage`; keeps it while one is stuck.
    pub(crate) fn retire(&self, garbage: impl Send + 'static) {
        match self.quiescence.wait() {
            Ok(()) => drop(garbage),
            Err(held) => self.lock().push((held, Box::new(garbage))),
        }
    }

    /// Waits, at most until `deadline`, until no thread, stuck ones included, can be using objects unpublished before
    /// the call.
    pub(crate) fn settle(&self, deadline: std::time::Instant) {
        let Err(held) = self.quiescence.wait() else { return };
        while !self.quiescence.is_over(held) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Keeps `garbage` for later, for a caller that must not wait.
    pub(crate) fn retire_later(&self, garbage: impl Send + 'static) {
        let held = Held(self.quiescence.epoch.fetch_add(1, Ordering::AcqRel) + 1);
        self.lock().push((held, Box::new(garbage)));
    }

    /// Takes the objects that may now be dropped.
    pub(crate) fn collect(&self) -> Vec<Garbage> {
        let over = |(held, _): &mut (Held, Garbage)| self.quiescence.is_over(*held);
        self.lock().extract_if(.., over).map(|(_, garbage)| garbage).collect()
    }

    /// Whether objects are waiting to be dropped.
    pub(crate) fn has_held(&self) -> bool {
        !self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Held, Garbage)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
