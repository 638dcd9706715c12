//! Vital threads: those that others wait for without a limit, so that the process must not outlive them.
//!
//! A worker that panics never passes a quiescent point again. Whoever unpublishes something waits for that point with the
//! switch's lock held, so the whole control plane would hang while the daemon looks alive. A process that ends is started
//! again within seconds, and its clients reconnect.
//!
//! Panics that are caught below the guard, such as those of code that a module brings, end nothing.

use std::io::Write;

/// A vital thread.
#[derive(Debug, Clone)]
pub struct Vital {
    who: String,
    why: &'static str,
}

/// Aborts the process if it is dropped by a panic. What is below it on the stack is dropped before that, and what is above it is
/// not: whoever has something whose end could wait holds a guard of its own.
#[derive(Debug)]
pub struct Guard<'a>(&'a Vital);

impl Vital {
    /// The calling thread; `who` is named in the message, and `why` says who would wait for it.
    #[must_use]
    pub fn new(who: impl Into<String>, why: &'static str) -> Self {
        Self { who: who.into(), why }
    }

    /// Holds from now on.
    #[must_use]
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's hook has said where it was and why. `eprintln` would panic if nobody could read this.
            let Vital { who, why } = self.0;
            let _ = writeln!(std::io::stderr(), "mswitch: {who} panicked, and {why}: aborting");
            std::process::abort();
        }
    }
}
