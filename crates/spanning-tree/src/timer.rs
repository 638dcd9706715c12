//! Timers as deadlines: instead of counting down each second, as the standards describe it, they are compared with the
//! time. A thread that was held up finds the frames that came meanwhile before it finds timers to have expired.

use crate::Millis;

/// A timer that runs until a time, or does not run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timer(Option<Millis>);

impl Timer {
    /// Starts the timer, in place of a former start; it expires after `seconds`.
    pub(crate) fn start(&mut self, now: Millis, seconds: u16) {
        self.0 = Some(now.saturating_add(Millis::from(seconds) * 1000));
    }

    pub(crate) fn stop(&mut self) {
        self.0 = None;
    }

    /// Whether it was started and has not expired.
    pub(crate) fn runs(&self, now: Millis) -> bool {
        self.0.is_some_and(|end| now < end)
    }

    /// Whether it has expired since the last call; it does not run then.
    pub(crate) fn expires(&mut self, now: Millis) -> bool {
        let has_expired = self.0.is_some_and(|end| now >= end);
        if has_expired {
            self.0 = None;
        }
        has_expired
    }

    /// The time at which it expires, if it runs.
    pub(crate) fn end(&self) -> Option<Millis> {
        self.0
    }
}
