//! The CPU time of a process, in nanoseconds.
//!
//! `/proc/PID/stat` counts in ticks of 10 ms, and `/proc/PID/task/*/schedstat` omits threads that have ended; the
//! process's CPU clock has neither limitation.

use std::io;
use std::time::Duration;

/// Returns the CPU time that a process has used so far, over all threads, ended ones included.
pub fn process_time(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: writes the clock's number to `clock`, a local variable.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time to `time`, a local variable.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // CPU clocks start at 0 and nanoseconds are below 10^9.
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_cpu_time() {
        let before = process_time(std::process::id()).unwrap();
        while process_time(std::process::id()).unwrap() < before + Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(process_time(u32::MAX).is_err());
    }
}
