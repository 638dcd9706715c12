//! Bandwidth of memcpy.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::cpus::pin;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Time of a measurement.
const TIME: Duration = Duration::from_millis(200);
/// Bytes copied at once: a large segment.
const PIECE: usize = 64 << 10;
/// Both areas begin at a multiple of so many bytes. Some CPUs copy at half the speed to an address a few bytes behind
/// that of the source within a page, as two blocks of a heap have.
const PAGE: usize = 4096;

/// Bytes per second copied from one area of this size to another, on this CPU: the best of five.
pub(super) fn bandwidth(cpu: usize, bytes: usize, interrupt: &Interrupt) -> Result<f64> {
    let thread = std::thread::Builder::new().name("copying".into());
    let interrupt = interrupt.clone();
    let work = move || {
        pin(cpu)?;
        // Not zeros: the kernel would map one page everywhere.
        let [mut from, mut to] = [1u8, 2].map(|byte| vec![byte; bytes + PAGE]);
        let [from, to] = [&mut from, &mut to].map(|area| {
            let start = area.as_ptr().align_offset(PAGE).min(PAGE);
            &mut area[start..start + bytes]
        });
        let mut best = 0f64;
        for _ in 0..5 {
            interrupt.check()?;
            best = best.max(once(from, to, &interrupt)?);
        }
        Ok(best)
    };
    let handle = thread.spawn(work).map_err(Error::while_doing("thread"))?;
    handle.join().unwrap_or_else(|_| Err(Error::new("the measurement of memcpy failed")))
}

fn once(from: &[u8], to: &mut [u8], interrupt: &Interrupt) -> Result<f64> {
    let begin = Instant::now();
    let mut copied = 0u64;
    loop {
        for (source, target) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
            // Both have the same length, as their areas have.
            target.copy_from_slice(black_box(source));
            black_box(&*target);
        }
        copied += from.len() as u64;
        let elapsed = begin.elapsed();
        if elapsed >= TIME {
            return Ok(copied as f64 / elapsed.as_secs_f64());
        }
        interrupt.check()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpus;

    #[test]
    fn memory_is_no_faster_than_a_cache() {
        let cpu = Cpus::choose().unwrap().switch;
        let of = |bytes| bandwidth(cpu, bytes, &Interrupt::default()).unwrap();
        let (small, large) = (of(64 << 10), of(64 << 20));
        assert!(large > 1e8 && small > large * 0.8, "{small} {large}");
    }
}
