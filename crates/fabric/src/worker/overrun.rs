//! Overruns: batches in which a thread spends longer than [`LIMIT`] without a client holding it up, as in a logic
//! that loops.
//!
//! Code that loops cannot be stopped. The [watchdog](crate::worker::watchdog) reports it, marks the thread as stuck
//! so that nothing waits for it, and has the worker's other tasks taken over.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::worker::per_thread::MAX_WORKERS;
use crate::worker::tasks::Token;

/// CPU time and sleep of one batch after which it counts as an overrun. Page faults and signals do not count: clients
/// cause those.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);

/// A batch that overruns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun {
    /// Number of the thread.
    pub thread: usize,
    /// When the batch began.
    pub since: Instant,
    /// The task that is lost to the thread, once another thread has taken over the others.
    pub(crate) task: Option<Token>,
    /// `task` is known, or no thread is free to take over the others.
    pub(crate) settled: bool,
}

impl Overrun {
    /// Number of the worker whose thread it is; `None` for a thread that stands in for workers.
    pub fn worker(&self) -> Option<usize> {
        Some(self.thread).filter(|thread| *thread < MAX_WORKERS)
    }
}

/// Called with all overruns whenever a batch begins or ceases to overrun, and when a new overrun appears in
/// [`Switch::overruns`](crate::Switch::overruns). Runs on the watchdog's thread, first before the stuck thread is
/// relieved, so it must return at once.
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

    /// The current overruns whose task is settled.
    pub(crate) fn list(&self) -> Vec<Overrun> {
        self.lock().iter().filter(|overrun| overrun.settled).copied().collect()
    }

    /// A batch overruns.
    pub(crate) fn begin(&self, overrun: Overrun) {
        self.change(|current| current.push(overrun));
    }

    /// The worker of an overrunning thread was taken over, except this task.
    pub(crate) fn set_task(&self, thread: usize, task: Option<Token>) {
        self.lock().iter_mut().filter(|overrun| overrun.thread == thread).for_each(|it| it.task = task);
    }

    /// The watchdog has tried to have the thread relieved.
    pub(crate) fn settle(&self, thread: usize) {
        let is_new = |overrun: &&mut Overrun| overrun.thread == thread && !overrun.settled;
        if let Some(overrun) = self.lock().iter_mut().find(is_new) {
            overrun.settled = true;
        } else {
            return;
        }
        self.change(|_| ());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn an_overrun_is_announced_at_once_and_listed_once_its_task_is_settled() {
        let overruns = Overruns::default();
        let announced = Arc::new(AtomicUsize::new(0));
        let count = announced.clone();
        overruns.listen(Box::new(move |all| {
            assert!(all.iter().all(|overrun| overrun.thread == 3));
            count.fetch_add(1, Relaxed);
        }));
        overruns.begin(Overrun { thread: 3, since: Instant::now(), task: None, settled: false });
        assert_eq!((announced.load(Relaxed), overruns.list().len()), (1, 0));
        overruns.set_task(3, None);
        overruns.settle(3);
        assert_eq!((announced.load(Relaxed), overruns.list().len()), (2, 1));
        overruns.settle(3);
        assert_eq!(announced.load(Relaxed), 2, "it is settled already");
        overruns.end(3);
        assert_eq!((announced.load(Relaxed), overruns.list().len()), (3, 0));
    }
}
