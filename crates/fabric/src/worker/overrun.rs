//! Overruns: batches in which a thread spends longer than [`LIMIT`] without a client holding it up, as in a logic
//! that loops.
//!
//! Code that loops cannot be stopped. The [watchdog](crate::worker::watchdog) reports it, marks the thread as stuck
//! so that nothing waits for it, and has the worker's other tasks taken over.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::worker::tasks::Token;

/// CPU time and sleep of one batch after which it counts as an overrun. Page faults and signals do not count: clients
/// cause those.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);

/// A batch that overruns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun {
    /// The thread: the worker's number, or a higher one for a thread that stands in for workers.
    pub thread: usize,
    /// When the batch began.
    pub since: Instant,
    /// The task that is lost to the thread, once another thread has taken over the others.
    pub(crate) task: Option<Token>,
}

/// Called whenever a batch begins or ceases to overrun, with all that do. Runs on the watchdog's thread before the
/// stuck thread is relieved, so it must return at once.
pub type OverrunListener = Box<dyn Fn(&[Overrun]) + Send + Sync>;

/// The overruns of a switch.
#[derive(Default)]
pub(crate) struct Overruns {
    current: Mutex<Vec<Overrun>>,
    listener: OnceLock<OverrunListener>,
}

impl Overruns {
    /// Sets the listener; only the first call has an effect.
    pub(crate) fn listen(&self, listener: OverrunListener) {
        let _ = self.listener.set(listener);
    }

    /// The current overruns.
    pub(crate) fn list(&self) -> Vec<Overrun> {
        self.lock().clone()
    }

    /// A batch overruns.
    pub(crate) fn begin(&self, overrun: Overrun) {
        self.change(|current| current.push(overrun));
    }

    /// The worker of an overrunning thread was taken over, except this task.
    pub(crate) fn set_task(&self, thread: usize, task: Option<Token>) {
        self.lock().iter_mut().filter(|overrun| overrun.thread == thread).for_each(|it| it.task = task);
    }

    /// The batch of a thread has ended after all.
    pub(crate) fn end(&self, thread: usize) {
        self.change(|current| current.retain(|overrun| overrun.thread != thread));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Overrun>)) {
        let mut current = self.lock();
        change(&mut current);
        let current = current.clone();
        if let Some(listener) = self.listener.get() {
            listener(&current);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Overrun>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
