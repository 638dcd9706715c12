//! Memory that stalls its users: a page fault in a range being punched waits until the last page is gone.

use std::time::Duration;

use e2e::{Error, Result};

use crate::client::{BUFFERS, NEEDED};
use crate::setup::{Kind, Setup, populate, punch, spin};

const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;

/// Variants of punching.
#[derive(Clone, Copy, Default)]
pub(crate) struct Punch {
    /// Huge pages.
    pub(crate) huge: bool,
    /// Punch the rings too: the port is lost at once, and the next client follows.
    pub(crate) rings: bool,
    /// Send from the memory.
    pub(crate) sending: bool,
    /// Give the punching thread almost no CPU time.
    pub(crate) starved: bool,
    /// Punch in this many pieces, so that many faults wait briefly.
    pub(crate) pieces: u64,
}

/// Receives packets while another thread punches out their buffers, again and again.
pub(crate) fn punch_buffers(setup: &Setup, how: Punch) -> Result<()> {
    let size = match (how.huge, setup.kind) {
        (true, _) => free_huge_pages()? * HUGE,
        (false, Kind::Memif) => 3 * GIB,
        (false, Kind::VhostUser) => 2 * GIB,
    };
    // A third for the pages: the machine has other users.
    let size = size.min(available()? / 3) & !(HUGE - 1);
    if size < 2 * NEEDED {
        return Err(Error(format!("{size} bytes of memory are not enough for this attack")));
    }
    setup.feed()?;
    if how.starved {
        for _ in 0..2 {
            std::thread::spawn(|| {
                loop {
                    spin(std::time::Duration::from_secs(1))
                }
            });
        }
    }
    let from = if how.rings { 0 } else { BUFFERS };
    setup.attack_clients(
        size,
        how.huge,
        how.sending,
        |target| populate(&target.file, from, size),
        |target| {
            std::thread::scope(|scope| {
                let puncher = scope.spawn(|| {
                    if how.starved {
                        starve();
                    }
                    let step = ((size - from) / how.pieces.max(1)).next_multiple_of(HUGE);
                    for at in (from..size).step_by(step as usize) {
                        punch(&target.file, at, size.min(at + step))?;
                    }
                    Ok(())
                });
                puncher.join().unwrap_or_else(|_| Err(Error::new("the punching thread panicked")))
            })?;
            populate(&target.file, from, size)
        },
    )
}

/// Huge pages reserved by the test.
const RESERVED: u64 = 256;

/// Lets the calling thread run only on an otherwise idle CPU.
fn starve() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is valid for the call, which reads it; 0 is the calling thread. Lowering a priority needs
    // no privilege.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
}

fn number(path: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or(&text);
    let digits = line.split_whitespace().find_map(|word| word.parse().ok());
    digits.ok_or_else(|| Error(format!("no number of {name} in {path}")))
}

/// Bytes of available memory.
pub(crate) fn available() -> Result<u64> {
    Ok(number("/proc/meminfo", "MemAvailable:")? << 10)
}

/// Number of free huge pages. Waits until the reserved ones are free: the switch may still be unmapping those of the
/// previous attacker.
pub(crate) fn free_huge_pages() -> Result<u64> {
    e2e::until("huge pages", Duration::from_secs(10), || {
        let free = number("/proc/meminfo", "HugePages_Free:")?;
        Ok((free >= RESERVED).then_some(free))
    })
}
