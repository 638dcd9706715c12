//! When the database is told that something has changed: at once, but not again before a pause has passed, since
//! neighbours on the network decide how often something changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two messages.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct News(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_waiting: bool,
    told: Option<Instant>,
}

impl News {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the database is to be told now. `is_change`: there is something new.
    pub(crate) fn are_due(&self, is_change: bool) -> bool {
        let mut state = self.lock();
        state.is_waiting |= is_change;
        let are_due = state.is_waiting && state.told.is_none_or(|told| told.elapsed() >= PAUSE);
        if are_due {
            *state = State { is_waiting: false, told: Some(Instant::now()) };
        }
        are_due
    }

    /// Returns the time after which to ask again, `longest` unless something waits.
    pub(crate) fn wait(&self, longest: Duration) -> Duration {
        if self.lock().is_waiting { PAUSE } else { longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_for_the_pause() {
        let news = News::default();
        assert!(!news.are_due(false));
        assert!(news.are_due(true) && !news.are_due(true));
        assert_eq!(news.wait(Duration::MAX), PAUSE);
        news.lock().told = None;
        assert!(news.are_due(false) && !news.are_due(false), "it was told once");
        assert_eq!(news.wait(Duration::MAX), Duration::MAX);
    }
}
