//! A double buffer: a worker writes one page while another thread reads the other. The worker never waits for the
//! reader.
//!
//! The worker takes its page with one `try_lock` per batch, which succeeds because the reader holds only the other
//! page. The reader swaps the pages, then waits until the worker has finished its batch in the old one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// Longest wait for a worker to finish its batch. A worker that takes longer is blocked by a client's memory.
const BATCH_LIMIT: Duration = Duration::from_millis(20);

/// The two pages of a worker.
pub struct DoubleBuffer<T> {
    pages: [Mutex<T>; 2],
    /// Index of the page that the worker writes.
    active: AtomicUsize,
}

impl<T> DoubleBuffer<T> {
    /// Creates both pages with `page`.
    pub fn new(page: impl Fn() -> T) -> Self {
        Self { pages: [Mutex::new(page()), Mutex::new(page())], active: AtomicUsize::new(0) }
    }

    /// Returns the page to write. If the pages were swapped after `active` was read, that is the other page.
    pub fn write(&self) -> Option<MutexGuard<'_, T>> {
        let active = self.active.load(Ordering::Acquire);
        let page = |i: usize| self.pages.get(i & 1)?.try_lock().ok();
        page(active).or_else(|| page(active + 1))
    }

    /// Swaps the pages and returns the one to read, with its index. Returns `None` if the worker is blocked and still
    /// holds the page: its contents are read after it continues.
    pub fn swap(&self) -> Option<(usize, MutexGuard<'_, T>)> {
        let old = self.active.fetch_xor(1, Ordering::AcqRel) & 1;
        let since = Instant::now();
        loop {
            match self.pages[old].try_lock() {
                Ok(page) => return Some((old, page)),
                Err(TryLockError::Poisoned(page)) => return Some((old, page.into_inner())),
                Err(TryLockError::WouldBlock) if since.elapsed() > BATCH_LIMIT => return None,
                // Sleeping, not waiting in `lock`: the worker would have to wake this thread with a system call.
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_does_not_wait_for_a_blocked_worker() {
        let buffer = DoubleBuffer::new(|| 0);
        let mut blocked = buffer.write().unwrap();
        assert!(buffer.swap().is_none());
        // The thread that takes over the worker's queues writes the other page, and the reader gets that one.
        *buffer.write().unwrap() += 1;
        assert_eq!(buffer.swap().map(|(_, page)| *page), Some(1));
        assert!(buffer.swap().is_none());
        *blocked += 2;
        drop(blocked);
        assert_eq!(buffer.swap().map(|(_, page)| *page), Some(1));
        assert_eq!(buffer.swap().map(|(_, page)| *page), Some(2));
    }
}
