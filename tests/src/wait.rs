//! Waiting for something to become so.

use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Calls `probe` until it yields something, at most for `limit`; then fails, saying what was waited for.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(Error(format!("waited {} s in vain for {what}", limit.as_secs_f32())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
