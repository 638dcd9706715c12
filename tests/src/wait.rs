//! Waiting for something to become so, and trying it again.

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

/// Tries up to `times` what a machine that stands still for a moment can spoil, such as a rate over a second; fails with all
/// complaints. What must hold in each try is for `attempt` to assert.
pub fn one_of(times: usize, mut attempt: impl FnMut() -> std::result::Result<(), String>) -> Result<()> {
    let mut complaints = Vec::new();
    while complaints.len() < times {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(complaint) => complaints.push(complaint),
        }
    }
    Err(Error(format!("none of {times} tries: {}", complaints.join("\n"))))
}
