//! CPU time of a process and of the machine, sampled while a load runs.
//!
//! The generator tells afterwards when its measured time was; samples every few milliseconds let the CPU time of
//! exactly that time be found. Times are those of `CLOCK_MONOTONIC`, which both programs share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::process_clock::process_time;

/// Time between samples.
const INTERVAL: Duration = Duration::from_millis(20);

/// One look: nanoseconds of the clock, and nanoseconds of CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    at: f64,
    process: Option<f64>,
    machine: f64,
    stolen: f64,
}

/// CPUs in use over a time: 1.0 is one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Of the process, all threads.
    pub process: Option<f64>,
    /// Of the machine, everything in user mode and kernel.
    pub machine: f64,
    /// Taken by other virtual machines.
    pub stolen: f64,
}

/// Samples of CPU time.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// Runs `work` while the process and the machine are sampled.
    pub fn during<T>(pid: Option<u32>, work: impl FnOnce() -> T) -> (T, Samples) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sampler = scope.spawn(|| {
                let mut samples = vec![look(pid)];
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(INTERVAL);
                    samples.push(look(pid));
                }
                samples
            });
            let result = work();
            over.store(true, Ordering::Relaxed);
            // Without samples, there is no usage.
            (result, Samples(sampler.join().unwrap_or_default()))
        })
    }

    /// CPUs in use in the `seconds` after `began_ns`; `None` if the samples do not cover them.
    pub fn usage(&self, began_ns: u64, seconds: f64) -> Option<Usage> {
        let (from, to) = (began_ns as f64, began_ns as f64 + seconds * 1e9);
        let (a, b) = (self.at(from)?, self.at(to)?);
        let share = |before: f64, after: f64| ((after - before) / (to - from)).max(0.0);
        Some(Usage {
            process: a.process.zip(b.process).map(|(before, after)| share(before, after)),
            machine: share(a.machine, b.machine),
            stolen: share(a.stolen, b.stolen),
        })
    }

    /// The CPU times at a moment, between those of the samples before and after it.
    fn at(&self, moment: f64) -> Option<Sample> {
        let next = self.0.iter().position(|sample| sample.at >= moment)?;
        let after = *self.0.get(next)?;
        let before = *self.0.get(next.checked_sub(1)?)?;
        let part = (moment - before.at) / (after.at - before.at);
        let between = |a: f64, b: f64| a + (b - a) * part;
        Some(Sample {
            at: moment,
            process: before.process.zip(after.process).map(|(a, b)| between(a, b)),
            machine: between(before.machine, after.machine),
            stolen: between(before.stolen, after.stolen),
        })
    }
}

fn look(pid: Option<u32>) -> Sample {
    let now = clock_gettime(ClockId::Monotonic);
    let (machine, stolen) = machine().unwrap_or_default();
    Sample {
        at: now.tv_sec as f64 * 1e9 + now.tv_nsec as f64,
        process: pid.and_then(|pid| process_time(pid).ok()).map(|time| time.as_nanos() as f64),
        machine,
        stolen,
    }
}

/// CPU time of the machine outside idleness, and stolen time.
fn machine() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let mut fields = text.lines().next()?.split_whitespace().skip(1).map(|field| field.parse::<f64>().ok());
    let mut next = || fields.next().flatten();
    let (user, nice, system, _idle, _waiting) = (next()?, next()?, next()?, next()?, next()?);
    let (irq, softirq, stolen) = (next()?, next()?, next()?);
    // Linux reports hundredths of a second to programs, whatever its own clock.
    Some(((user + nice + system + irq + softirq) * 1e7, stolen * 1e7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_the_time_asked_for() {
        let sample = |at: f64, process: f64| Sample {
            at,
            process: Some(process),
            machine: 2.0 * process,
            stolen: 0.0,
        };
        // Idle for 10 ms, busy for 10, idle again.
        let samples = Samples(vec![sample(0.0, 0.0), sample(1e7, 0.0), sample(2e7, 1e7), sample(3e7, 1e7)]);
        let of = |from: u64, seconds: f64| {
            samples.usage(from, seconds).map(|usage| (usage.process, usage.machine))
        };
        assert_eq!(of(10_000_000, 0.01), Some((Some(1.0), 2.0)));
        assert_eq!(of(5_000_000, 0.02), Some((Some(0.5), 1.0)));
        assert_eq!(of(20_000_000, 0.02), None);
    }

    #[test]
    fn a_busy_process_uses_a_cpu() {
        let pid = Some(std::process::id());
        let (began, samples) = Samples::during(pid, || {
            let begin = std::time::Instant::now();
            let mut began = 0;
            while begin.elapsed() < Duration::from_millis(200) {
                if began == 0 && begin.elapsed() > Duration::from_millis(30) {
                    let now = clock_gettime(ClockId::Monotonic);
                    began = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
                }
            }
            began
        });
        let usage = samples.usage(began, 0.1).unwrap();
        assert!(usage.process.unwrap() > 0.1, "{usage:?}");
    }
}
