//! Time in the data plane: the CPU's cycle counter, read without a system call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The cycle counter: TSC on x86-64 (constant rate on every CPU since 2008), CNTVCT on aarch64.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC has no preconditions; Linux leaves it enabled for user space.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: Linux allows user space to read CNTVCT_EL0; the instruction touches no memory.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack)) };
        value
    }
}

/// Wastes a tenth of the time since `start`, and returns the time then.
#[cfg(feature = "slowdown")]
pub(crate) fn slow_down(start: u64, now: u64) -> u64 {
    let end = now.wrapping_add(now.wrapping_sub(start) / 10);
    let mut now = now;
    while (end.wrapping_sub(now) as i64) > 0 {
        core::hint::spin_loop();
        now = cycles();
    }
    now
}

/// Cycles per second, measured once against the monotonic clock over 20 ms.
pub fn frequency() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        let (t0, c0) = (Instant::now(), cycles());
        std::thread::sleep(Duration::from_millis(20));
        let (t1, c1) = (Instant::now(), cycles());
        let ns = t1.duration_since(t0).as_nanos().max(1);
        u64::try_from(u128::from(c1.wrapping_sub(c0)) * 1_000_000_000 / ns).unwrap_or(1_000_000_000).max(1)
    })
}

/// Number of cycles in `d`.
pub fn from_duration(d: Duration) -> u64 {
    u64::try_from(u128::from(frequency()) * d.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Duration of so many cycles, rounded up to a nanosecond.
pub fn to_duration(cycles: u64) -> Duration {
    let nanoseconds = (u128::from(cycles) * 1_000_000_000).div_ceil(u128::from(frequency()));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Nanoseconds since 1970-01-01 00:00:00 UTC: the time of an observed packet. Costs a vDSO call.
#[inline]
pub fn since_epoch() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Nanoseconds on the monotonic clock. Costs a vDSO call.
#[inline]
pub fn nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Nanoseconds on the clock of [`seconds`] while it is stopped; 0 while it runs, as it does but in tests.
static STOPPED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds on the monotonic clock as of its last tick, some milliseconds ago. Costs a vDSO call, half of that of
/// [`nanoseconds`]; used once a batch.
#[inline]
pub fn coarse_nanoseconds() -> u64 {
    match STOPPED.load(Relaxed) {
        0 => {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
            (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
        }
        stopped => stopped,
    }
}

/// Whole seconds on the monotonic clock: the unit of ageing.
#[inline]
pub fn seconds() -> u32 {
    whole_seconds(coarse_nanoseconds())
}

/// Whole seconds of so many nanoseconds.
#[inline]
pub(crate) fn whole_seconds(nanoseconds: u64) -> u32 {
    (nanoseconds / 1_000_000_000) as u32
}

/// Stops the clock of [`seconds`], for tests of ageing.
pub fn stop_seconds() {
    // One that is stopped already keeps its time.
    let _ = STOPPED.compare_exchange(0, nanoseconds(), Relaxed, Relaxed);
}

/// Stops the clock of [`seconds`] and moves it forward, for tests of ageing.
pub fn warp_seconds(by: Duration) {
    stop_seconds();
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    let _ = STOPPED.fetch_update(Relaxed, Relaxed, |now| Some(now.saturating_add(by)));
}
