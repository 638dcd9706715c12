//! Work that the system may hold up, with a limit on how long the caller waits for it.
//!
//! Opening a file waits for its file system, making an interface for a lock of the kernel's. Who does that with the
//! configuration locked would make every command wait as well. Such work runs on a thread of its own. After the limit the
//! caller goes on without it; the thread ends when the system lets it, and what it made is dropped there.
//!
//! Invariant: at most 64 threads that nobody waits for exist. While there are so many, further work is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Threads past their limit.
const MOST_LATE: usize = 64;

static LATE: AtomicUsize = AtomicUsize::new(0);

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The limit passed first.
    #[error("not done within {} s; a file system or the kernel holds it up", .0.as_secs_f32())]
    Late(Duration),
    /// Too many earlier ones are late.
    #[error("{MOST_LATE} earlier attempts are held up by a file system or the kernel; resolve these first")]
    TooMany,
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    NoThread(String),
    /// The work panicked.
    #[error("it failed; this is a bug in mswitch")]
    Failed,
}

/// Counts a late thread until it ends.
struct Lateness(Arc<AtomicBool>);

impl Drop for Lateness {
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
    let lateness = Lateness(over.clone());
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        let _lateness = lateness;
        // Who is too late finds nobody, and the result is dropped here.
        let _ = done.send(work());
    });
    thread.map_err(|error| Unfinished::NoThread(error.to_string()))?;
    match result.recv_timeout(limit) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Disconnected) => Err(Unfinished::Failed),
        Err(RecvTimeoutError::Timeout) => {
            LATE.fetch_add(1, Ordering::AcqRel);
            // It may have ended just now, and did not count itself.
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
    fn late_work_is_not_waited_for_and_there_is_a_limit_of_it() {
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
            assert!(begun.elapsed() < Duration::from_secs(20), "threads that ended are still counted");
            std::thread::yield_now();
        }
    }
}
