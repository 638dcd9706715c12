//! Vital threads: those that others wait for without a limit, so that the process must not outlive them.
//!
//! A worker that panics never passes a quiescent point again. Whoever unpublishes something waits for that point with the
//! switch's lock held, so the whole control plane would hang while the daemon looks alive. A process that ends is started
//! again within seconds, and its clients reconnect.
//!
//! Panics that are caught below the guard, such as those of code that a module brings, end nothing.

use std::io::Write;

/// Aborts the process if it is dropped by a panic. Held by the outermost function of a vital thread.
#[derive(Debug)]
pub struct Vital {
    who: String,
    why: &'static str,
}

impl Vital {
    /// A guard of the current thread; `who` is named in the message, and `why` says who would wait for it.
    #[must_use]
    pub fn new(who: impl Into<String>, why: &'static str) -> Self {
        Self { who: who.into(), why }
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's hook has said where it was and why. `eprintln` would panic if nobody could read this.
            let Self { who, why } = self;
            let _ = writeln!(std::io::stderr(), "mswitch: {who} panicked, and {why}: aborting");
            std::process::abort();
        }
    }
}
