//! Waiting for a condition, and repeating an attempt.

use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Calls `probe` until it returns a value. After `limit`, fails with an error that names the condition.
pub fn until<T>(condition: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            return Err(Error(format!("waited {} s for {condition}, without success", limit.as_secs_f32())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Repeats, up to `times` times, an attempt that a stalled machine can spoil, such as a rate over one second; fails
/// with the errors of all attempts. `attempt` itself asserts conditions that must hold in each.
pub fn one_of(times: usize, mut attempt: impl FnMut() -> std::result::Result<(), String>) -> Result<()> {
    let mut errors = Vec::new();
    while errors.len() < times {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) => errors.push(error),
        }
    }
    Err(Error(format!("all {times} attempts failed: {}", errors.join("\n"))))
}
