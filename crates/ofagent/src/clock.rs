//! The clock of OpenFlow: that of the machine, or for tests one that is stopped and moved by hand.
//!
//! There is one for the process, as Open vSwitch's `time/stop` has it. Workers read it once a batch; a running clock
//! costs them one load more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time of the clock at its start: ten years, so that restored flows have times before the start.
const EPOCH: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The stopped clock's time in nanoseconds; 0 while it runs.
static STOPPED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds on the clock.
#[inline]
pub fn now() -> u64 {
    match STOPPED.load(Relaxed) {
        0 => running(),
        stopped => stopped,
    }
}

#[inline]
fn running() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    u64::try_from((EPOCH + start.elapsed()).as_nanos()).unwrap_or(u64::MAX)
}

/// Stops the clock, for the rest of the process.
pub fn stop() {
    // One that is stopped already keeps its time.
    let _ = STOPPED.compare_exchange(0, running(), Relaxed, Relaxed);
}

/// Stops the clock, and moves it forward.
pub fn warp(by: Duration) {
    stop();
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    let _ = STOPPED.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_add(by)));
}
