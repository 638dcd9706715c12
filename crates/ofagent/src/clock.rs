//! The clock of OpenFlow: that of the machine, or for tests one that is stopped and moved by hand.
//!
//! There is one for the process, as Open vSwitch's `time/stop` has it. Workers read it once a batch; a running clock
//! costs them one load more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time of the clock at its start in nanoseconds: ten years, so that restored flows have times before the start.
const EPOCH: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// The stopped clock's time in nanoseconds; 0 while it runs.
static STOPPED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds on the clock.
#[inline]
pub fn now() -> u64 {
    match STOPPED.load(Relaxed) {
        0 => since_start(monotonic()),
        stopped => stopped,
    }
}

/// Time on the clock when the machine's monotonic clock shows so many nanoseconds, or showed a moment ago.
#[inline]
pub fn at(monotonic: u64) -> u64 {
    match STOPPED.load(Relaxed) {
        0 => since_start(monotonic),
        stopped => stopped,
    }
}

#[inline]
fn since_start(monotonic: u64) -> u64 {
    /// Time of the machine's clock that is [`EPOCH`] on this one. Of a coarse clock, which lags behind.
    static START: OnceLock<u64> = OnceLock::new();
    let start = *START.get_or_init(|| nanoseconds(ClockId::MonotonicCoarse));
    monotonic.saturating_sub(start).saturating_add(EPOCH)
}

/// Nanoseconds on the machine's monotonic clock.
#[inline]
pub(crate) fn monotonic() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Stops the clock, for the rest of the process.
pub fn stop() {
    // One that is stopped already keeps its time.
    let _ = STOPPED.compare_exchange(0, since_start(monotonic()), Relaxed, Relaxed);
}

/// Stops the clock, and moves it forward.
pub fn warp(by: Duration) {
    stop();
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    let _ = STOPPED.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_add(by)));
}
