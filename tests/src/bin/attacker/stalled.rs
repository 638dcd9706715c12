//! Memory that stalls who touches it: pages that are being punched away make a page fault wait until the last one is gone.

use std::time::Duration;

use e2e::{Error, Result};

use crate::plug::{BUFFERS, NEEDED};
use crate::scene::{Kind, Scene, populate, punch, spin};

const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;

/// How the memory is punched.
#[derive(Clone, Copy, Default)]
pub(crate) struct Punch {
    /// Of huge pages.
    pub(crate) huge: bool,
    /// The rings too: costs the port at once, and the next client follows.
    pub(crate) rings: bool,
    /// The client sends from the memory.
    pub(crate) sending: bool,
    /// The punching thread gets next to no CPU time.
    pub(crate) starved: bool,
    /// Piece by piece, so that many faults wait a little each.
    pub(crate) pieces: u64,
}

/// Takes packets while another thread punches their buffers away, again and again.
pub(crate) fn punched(scene: &Scene, how: Punch) -> Result<()> {
    let size = match (how.huge, scene.kind) {
        (true, _) => free_huge_pages()? * HUGE,
        (false, Kind::Memif) => 3 * GIB,
        (false, Kind::VhostUser) => 2 * GIB,
    };
    // A third for the pages, and the machine has other users.
    let size = size.min(available()? / 3) & !(HUGE - 1);
    if size < 2 * NEEDED {
        return Err(Error(format!("{size} bytes of memory are too little for this attack")));
    }
    scene.feed()?;
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
    scene.siege(
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

/// Huge pages that the test has reserved.
const RESERVED: u64 = 256;

/// Has the calling thread run only when nobody else wants to.
fn starve() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is valid for the call, which reads it; 0 is the calling thread. Anybody may lower a thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
}

fn number(path: &str, name: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or(&text);
    let digits = line.split_whitespace().find_map(|word| word.parse().ok());
    digits.ok_or_else(|| Error(format!("no number of {name} in {path}")))
}

/// Bytes of memory that nobody uses.
pub(crate) fn available() -> Result<u64> {
    Ok(number("/proc/meminfo", "MemAvailable:")? << 10)
}

/// Huge pages that nobody uses: once there are those that the test has reserved, for the switch may still be unmapping those of
/// the attacker before.
pub(crate) fn free_huge_pages() -> Result<u64> {
    e2e::until("huge pages", Duration::from_secs(10), || {
        let free = number("/proc/meminfo", "HugePages_Free:")?;
        Ok((free >= RESERVED).then_some(free))
    })
}
