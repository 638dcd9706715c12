//! Work that the system may block, with a limit on the caller's wait.
//!
//! Opening a file waits for its file system, making an interface for a lock of the kernel. A caller that waits with the
//! configuration locked would block every command. So this work runs on a thread of its own. After the limit the caller
//! continues without it; the thread ends when the system lets it, and drops its result.
//!
//! Invariant: at most 64 threads are past their limit. At that number further work is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Largest number of threads past their limit.
const MOST_LATE: usize = 64;

static LATE: AtomicUsize = AtomicUsize::new(0);

/// Reasons for a missing result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The limit passed first.
    #[error("not finished within {} s: blocked by a file system or the kernel", .0.as_secs_f32())]
    Late(Duration),
    /// Too many earlier attempts are late.
    #[error("{MOST_LATE} earlier attempts are blocked by a file system or the kernel; resolve these first")]
    TooMany,
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    NoThread(String),
    /// The work panicked.
    #[error("it panicked; this is a bug in mswitch")]
    Failed,
}

/// Counts a late thread until it ends.
struct LateCount(Arc<AtomicBool>);

impl Drop for LateCount {
    fn drop(&mut self) {
        if self.0.swap(true, Ordering::AcqRel) {
            LATE.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Does `work` on a thread called `name`, and waits for at most `limit`.
pub fn within<T: Send + 'static>(
    limit: Duration,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    if LATE.load(Ordering::Acquire) >= MOST_LATE {
        return Err(Unfinished::TooMany);
    }
    let (done, result) = sync_channel(1);
    let over = Arc::new(AtomicBool::new(false));
    let late_count = LateCount(over.clone());
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        let _late_count = late_count;
        // A late result has no receiver and is dropped here.
        let _ = done.send(work());
    });
    thread.map_err(|error| Unfinished::NoThread(error.to_string()))?;
    match result.recv_timeout(limit) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Disconnected) => Err(Unfinished::Failed),
        Err(RecvTimeoutError::Timeout) => {
            LATE.fetch_add(1, Ordering::AcqRel);
            // If the thread has just ended, it did not count itself.
            if over.swap(true, Ordering::AcqRel) {
                LATE.fetch_sub(1, Ordering::AcqRel);
            }
            Err(Unfinished::Late(limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn late_work_is_left_alone_up_to_a_limit() {
        assert_eq!(within(Duration::from_secs(20), "test", || 7), Ok(7));
        let limit = Duration::from_millis(1);
        let mut held = Vec::new();
        let refused = loop {
            let (release, released) = channel::<()>();
            let begun = Instant::now();
            let result = within(limit, "test", move || released.recv().is_ok());
            assert!(begun.elapsed() < Duration::from_secs(5));
            match result {
                Err(Unfinished::Late(_)) => held.push(release),
                other => break other,
            }
        };
        assert_eq!((refused, held.len()), (Err(Unfinished::TooMany), MOST_LATE));
        drop(held);
        let begun = Instant::now();
        while LATE.load(Ordering::Acquire) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "ended threads are still counted");
            std::thread::yield_now();
        }
    }
}
