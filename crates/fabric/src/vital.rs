//! Vital threads: others wait for them without a limit, so the process must not outlive them.
//!
//! A worker that panics never passes a quiescent point again. A thread that unpublishes something waits for that point
//! with the switch's lock held, so the whole control plane would hang while the daemon looks alive. A process that ends
//! is restarted within seconds, and its clients reconnect.
//!
//! Panics that are caught below the guard, such as those of a module's code, end nothing.

use std::io::Write;

/// A vital thread.
#[derive(Debug, Clone)]
pub struct Vital {
    who: String,
    why: &'static str,
}

/// Aborts the process if a panic drops it. Values below it on the stack are dropped before that, values above it are
/// not: code that owns a value whose drop could block needs a guard of its own.
#[derive(Debug)]
pub struct Guard<'a>(&'a Vital);

impl Vital {
    /// Names the calling thread in the message; `why` states the consequence of its death.
    #[must_use]
    pub fn new(who: impl Into<String>, why: &'static str) -> Self {
        Self { who: who.into(), why }
    }

    /// Returns a guard, in effect until it is dropped.
    #[must_use]
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic hook has printed location and cause. `eprintln` would panic if standard error is closed.
            let Vital { who, why } = self.0;
            let _ = writeln!(std::io::stderr(), "mswitch: {who} panicked, and {why}: aborting");
            std::process::abort();
        }
    }
}
