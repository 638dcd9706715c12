//! The thread that specialises code soon after flows have changed.
//!
//! Until then packets run code that is for any flows, several times as slow. Flows come in bursts, and controllers that
//! react to packets change them all the time: the thread waits for a while before each specialisation, and longer after
//! one that took long.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::Compiled;

/// Time for which changes gather.
const PAUSE: Duration = Duration::from_millis(100);
/// Rest after a specialisation, in units of its duration: the thread takes a tenth of a CPU at most.
const REST: u32 = 9;

/// Wishes for specialised code.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    state: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wish {
    is_pending: bool,
    is_ending: bool,
}

impl Wishes {
    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flows have changed.
    pub(crate) fn add(&self) {
        // Its own pause does not end for further ones.
        if !std::mem::replace(&mut self.lock().is_pending, true) {
            self.changed.notify_one();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_one();
    }

    /// Waits for a wish and the changes that come with it, and until `earliest`; returns false at the end.
    fn take(&self, earliest: Instant) -> bool {
        let waiting = |wish: &mut Wish| !wish.is_pending && !wish.is_ending;
        let guard = self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
        let gathering = |wish: &mut Wish| !wish.is_ending;
        let pause = PAUSE.max(earliest.saturating_duration_since(Instant::now()));
        let guard = self.changed.wait_timeout_while(guard, pause, gathering);
        let (mut wish, _) = guard.unwrap_or_else(PoisonError::into_inner);
        wish.is_pending = false;
        !wish.is_ending
    }
}

/// Specialises code whenever that is wished for, until the end.
pub(crate) fn run(compiled: &Compiled) {
    let mut earliest = Instant::now();
    while compiled.wishes.take(earliest) {
        let begin = Instant::now();
        compiled.specialise();
        earliest = Instant::now() + begin.elapsed() * REST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_that_come_together_are_one_and_the_end_does_not_wait() {
        let wishes = Wishes::default();
        wishes.add();
        wishes.add();
        let begin = Instant::now();
        assert!(wishes.take(begin));
        assert!(begin.elapsed() >= PAUSE, "changes gather");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| wishes.take(begin + Duration::from_secs(600)));
            wishes.end();
            assert!(!second.join().unwrap(), "no wish is left, and the pause is cut short");
        });
        wishes.add();
        assert!(!wishes.take(begin), "it has ended");
    }
}
