//! Pulses: a command that moved the clock has the database follow before it answers.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Time for the database to follow.
const LIMIT: Duration = Duration::from_secs(2);

/// Counts of pulses that were asked for, and that were followed.
#[derive(Debug)]
pub(crate) struct Pulse {
    asked: watch::Sender<u64>,
    done: Mutex<u64>,
    /// Told when `done` grows.
    has_followed: Condvar,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { asked: watch::Sender::new(0), done: Mutex::new(0), has_followed: Condvar::new() }
    }

    /// Returns a receiver of the pulses that are asked for.
    pub(crate) fn requests(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Tells that a pulse, and all before it, were followed.
    pub(crate) fn follow(&self, number: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        *done = number.max(*done);
        self.has_followed.notify_all();
    }

    /// Asks for a pulse, and waits until it was followed; not for long, since the database may be away.
    pub(crate) fn request(&self) {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.has_followed.wait_timeout_while(done, LIMIT, |done| *done < number));
    }
}
