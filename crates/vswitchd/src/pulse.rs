//! Pulses: a command that moved the clock has the database follow before it answers.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Time for the database to follow.
const LIMIT: Duration = Duration::from_secs(2);
/// Pause between looks at the answer.
const PAUSE: Duration = Duration::from_micros(200);

/// Counts of pulses that were asked for, and that were followed.
#[derive(Debug)]
pub(crate) struct Pulse {
    asked: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { asked: watch::Sender::new(0), done: watch::Sender::new(0) }
    }

    /// Returns a receiver of the pulses that are asked for.
    pub(crate) fn requests(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Tells that a pulse, and all before it, were followed.
    pub(crate) fn follow(&self, number: u64) {
        self.done.send_if_modified(|done| std::mem::replace(done, number.max(*done)) < number);
    }

    /// Asks for a pulse, and waits until it was followed; not for long, since the database may be away.
    pub(crate) fn request(&self) {
        let mut number = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        let deadline = Instant::now() + LIMIT;
        while *self.done.borrow() < number && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
    }
}
