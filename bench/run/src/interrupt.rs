//! Interruption by a signal: a flag that every wait looks at.
//!
//! Invariant: no wait of this crate is longer than `TICK` without a look at the flag, so that Ctrl-C ends a benchmark
//! soon, through the ordinary way out, which removes everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time between two looks.
const TICK: Duration = Duration::from_millis(5);

/// Set once by whoever receives the signal.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the benchmark to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails once the benchmark has been asked to end.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Waits until `probe` returns a value. After `limit`, fails with an error that names the condition.
    pub fn until<T>(
        &self,
        condition: &str,
        limit: Duration,
        mut probe: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            self.check()?;
            if let Some(value) = probe()? {
                return Ok(value);
            }
            if Instant::now() >= deadline {
                return Err(Error::new(format!("no {condition} within {:.1} s", limit.as_secs_f64())));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Sleeps.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.check()?;
            std::thread::sleep(left.min(TICK));
        }
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_value_the_limit_or_the_signal() {
        let interrupt = Interrupt::default();
        let long = Duration::from_secs(60);
        assert_eq!(interrupt.until("x", long, || Ok(Some(7))), Ok(7));
        let late = interrupt.until("answer", Duration::ZERO, || Ok(None::<()>));
        assert_eq!(late, Err(Error::new("no answer within 0.0 s")));
        interrupt.set();
        assert_eq!(interrupt.until("x", long, || Ok(None::<()>)), Err(Error::Interrupted));
        assert_eq!(interrupt.sleep(long), Err(Error::Interrupted));
    }
}
