//! Waking a sleeping thread through an eventfd: what a client must wait for a switch that sleeps.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::{Deserialize, Serialize};

use crate::cpus::{Cpus, pin};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Number of times that the thread is woken.
const TIMES: usize = 500;
/// Time for the thread to fall asleep, and its CPU with it.
const PAUSE: Duration = Duration::from_millis(1);
/// Time allowed for a wake-up, in seconds.
const PATIENCE: i64 = 5;

/// Times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Median from the beginning of the write to the thread's first instruction.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Median duration of the write.
    pub write_ns: f64,
}

/// Wakes a thread on the switch's CPU from the generator's.
pub(super) fn measure(cpus: Cpus, interrupt: &Interrupt) -> Result<WakeUp> {
    let doorbell = eventfd(0, EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))?;
    let answer = eventfd(0, EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))?;
    // Nanoseconds since `zero` at which the thread was awake.
    let (zero, awake) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| -> Result<()> {
            pin(cpus.switch)?;
            for _ in 0..TIMES {
                wait(doorbell.as_fd())?;
                awake.store(zero.elapsed().as_nanos() as u64, Ordering::Release);
                ring(answer.as_fd())?;
            }
            Ok(())
        });
        let waker = scope.spawn(|| -> Result<WakeUp> {
            pin(cpus.generator)?;
            let (mut wakes, mut writes) = (Vec::new(), Vec::new());
            for _ in 0..TIMES {
                // An interrupted waker leaves the sleeper to its limit of time.
                interrupt.sleep(PAUSE)?;
                let before = zero.elapsed();
                ring(doorbell.as_fd())?;
                let after = zero.elapsed();
                wait(answer.as_fd())?;
                wakes.push(awake.load(Ordering::Acquire).saturating_sub(before.as_nanos() as u64) as f64);
                writes.push(after.saturating_sub(before).as_nanos() as f64);
            }
            let quantile = |values: &mut Vec<f64>, share: f64| {
                values.sort_by(f64::total_cmp);
                values.get((values.len() as f64 * share) as usize).copied().unwrap_or_default()
            };
            Ok(WakeUp {
                p50_ns: quantile(&mut wakes, 0.5),
                p99_ns: quantile(&mut wakes, 0.99),
                write_ns: quantile(&mut writes, 0.5),
            })
        });
        let failed = |_| Err(Error::new("the measurement of wake-ups failed"));
        let measured = waker.join().unwrap_or_else(failed);
        let slept = sleeper.join().unwrap_or_else(|_| Err(Error::new("the measurement of wake-ups failed")));
        // The waker knows best why: the sleeper then only waited too long.
        let measured = measured?;
        slept.map(|()| measured)
    })
}

fn ring(fd: BorrowedFd<'_>) -> Result<()> {
    rustix::io::write(fd, &1u64.to_ne_bytes()).map(drop).map_err(Error::while_doing("eventfd"))
}

fn wait(fd: BorrowedFd<'_>) -> Result<()> {
    let limit = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    if poll(&mut fds, Some(&limit)).map_err(Error::while_doing("eventfd"))? == 0 {
        return Err(Error::new("a thread was not woken"));
    }
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).map(drop).map_err(Error::while_doing("eventfd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_takes_time() {
        let wake_up = measure(Cpus::choose().unwrap(), &Interrupt::default()).unwrap();
        assert!(wake_up.p50_ns > 100.0 && wake_up.p50_ns <= wake_up.p99_ns, "{wake_up:?}");
        assert!(wake_up.write_ns > 0.0, "{wake_up:?}");
    }
}
