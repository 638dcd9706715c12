//! When something that workers use may be dropped: quiescent-state based reclamation.
//!
//! A worker passes a quiescent point between batches, where it holds no reference to anything shared, and a
//! sleeping worker is always at one. The control plane unpublishes a thing, then [`Quiescence::wait`]s until
//! each worker has passed such a point or sleeps; after that nobody can still be using it.
//!
//! A worker that wakes must not use what was unpublished while it slept: it announces itself, fences, and
//! only then loads published pointers; `wait` fences after the unpublishing and before it looks who sleeps.
//! One of the two sees the other.

use crate::sync::{AtomicU64, Ordering, fence, relax};

const ASLEEP: u64 = u64::MAX;

/// Of all workers of a switch. See the module.
pub struct Quiescence {
    epoch: AtomicU64,
    workers: Box<[Padded]>,
}

#[repr(align(64))]
struct Padded(AtomicU64);

impl Quiescence {
    /// For `workers` workers, all asleep.
    pub fn new(workers: usize) -> Self {
        Self {
            epoch: AtomicU64::new(0),
            workers: (0..workers).map(|_| Padded(AtomicU64::new(ASLEEP))).collect(),
        }
    }

    /// Worker `i` holds no reference to anything shared right now.
    #[inline]
    pub fn pass(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.0.store(self.epoch.load(Ordering::Acquire), Ordering::Release);
            // Loads of shared pointers after this point must not be satisfied before it.
            fence(Ordering::Acquire);
        }
    }

    /// Worker `i` holds no reference and will take none until it wakes.
    pub fn sleep(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.0.store(ASLEEP, Ordering::Release);
        }
    }

    /// Worker `i` will use shared things again.
    pub fn wake(&self, i: usize) {
        if let Some(worker) = self.workers.get(i) {
            worker.0.store(self.epoch.load(Ordering::Acquire), Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Returns when no worker can still be using what was unpublished before the call.
    pub fn wait(&self) {
        fence(Ordering::SeqCst);
        let target = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        for worker in &self.workers {
            #[cfg(not(loom))]
            let mut tries = 0u32;
            loop {
                let at = worker.0.load(Ordering::Acquire);
                if at == ASLEEP || at >= target {
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
    }
}
