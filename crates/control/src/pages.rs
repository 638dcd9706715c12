//! Two pages of memory that change places: what a worker writes and another thread reads, with nobody waiting for the
//! other's pace.
//!
//! The worker takes its page with a lock that is tried once a batch; the one that it is to write to is held by nobody
//! else. The reader takes the other page, after the worker is through with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The longest wait for a worker that is writing: many batches. One that takes longer is stuck in a client's memory.
const PATIENCE: Duration = Duration::from_millis(20);

/// A worker's two pages.
pub(crate) struct Pages<T> {
    pages: [Mutex<T>; 2],
    /// Which one the worker writes to.
    active: AtomicUsize,
}

impl<T> Pages<T> {
    /// Two of what `page` makes.
    pub(crate) fn new(page: impl Fn() -> T) -> Self {
        Self { pages: [Mutex::new(page()), Mutex::new(page())], active: AtomicUsize::new(0) }
    }

    /// The page to write to. It is the other one if they changed places since `active` was read.
    pub(crate) fn to_write(&self) -> Option<MutexGuard<'_, T>> {
        let active = self.active.load(Ordering::Acquire);
        let page = |i: usize| self.pages.get(i & 1)?.try_lock().ok();
        page(active).or_else(|| page(active + 1))
    }

    /// Lets the pages change places; the one to read, and which it is. The worker is through with it within a batch. `None`
    /// when it is not, for it is stuck: what it wrote comes when it goes on.
    pub(crate) fn to_read(&self) -> Option<(usize, MutexGuard<'_, T>)> {
        let old = self.active.fetch_xor(1, Ordering::AcqRel) & 1;
        let since = Instant::now();
        loop {
            match self.pages[old].try_lock() {
                Ok(page) => return Some((old, page)),
                Err(TryLockError::Poisoned(page)) => return Some((old, page.into_inner())),
                Err(TryLockError::WouldBlock) if since.elapsed() > PATIENCE => return None,
                // Who waited in the lock would have to be woken, by the worker.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_stuck_is_not_waited_for() {
        let pages = Pages::new(|| 0);
        let mut stuck = pages.to_write().unwrap();
        assert!(pages.to_read().is_none());
        // Whoever has its queues meanwhile has a page to write to, and that is read.
        *pages.to_write().unwrap() += 1;
        assert_eq!(pages.to_read().map(|(_, page)| *page), Some(1));
        assert!(pages.to_read().is_none());
        *stuck += 2;
        drop(stuck);
        assert_eq!(pages.to_read().map(|(_, page)| *page), Some(1));
        assert_eq!(pages.to_read().map(|(_, page)| *page), Some(2));
    }
}
