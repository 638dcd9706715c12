//! Missing memory: files that shrink while the switch uses them, and files without pages.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use e2e::{Error, Result};
use memif::Descriptor;
use rustix::fs::ftruncate;

use crate::client::{BUFFERS, Client, NEEDED};
use crate::setup::{Setup, ended, populate, punch};
use crate::stalled::{available, free_huge_pages};

const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// Truncates the buffers' memory and restores it, over and over, mostly before the switch accesses it.
pub(crate) fn truncate_repeatedly(setup: &Setup, huge: bool) -> Result<()> {
    let size = size(huge)?;
    setup.feed()?;
    setup.attack_clients(
        size,
        huge,
        false,
        |target| populate(&target.file, BUFFERS, size),
        |target| {
            for _ in 0..100 {
                for end in [BUFFERS, size] {
                    ftruncate(&target.file, end).map_err(Error::while_doing("ftruncate"))?;
                }
            }
            Ok(())
        },
    )
}

fn size(huge: bool) -> Result<u64> {
    let most = if huge { free_huge_pages()? * HUGE } else { GIB };
    let size = most.min(available()? / 3) & !(HUGE - 1);
    match size < 2 * NEEDED {
        true => Err(Error(format!("{size} bytes of memory are not enough for this attack"))),
        false => Ok(size),
    }
}

/// Punches out single buffers that are in transmission, so that the switch reads zeros.
pub(crate) fn punch_while_sending(setup: &Setup) -> Result<()> {
    setup.feed()?;
    setup.attack_clients(
        NEEDED,
        false,
        true,
        |_| Ok(()),
        |target| {
            for _ in 0..10 {
                for at in (BUFFERS..NEEDED).step_by(PAGE as usize) {
                    punch(&target.file, at, at + PAGE)?;
                }
            }
            Ok(())
        },
    )
}

/// Makes the switch touch memory without pages, another page for each packet, throughout the file.
pub(crate) fn touch_sparse(setup: &Setup, size: u64) -> Result<()> {
    setup.feed()?;
    if setup.baseline {
        let own = setup.file(size, false)?;
        std::thread::spawn(move || ended(allocate_own(&own, size)));
    }
    loop {
        let mut client = setup.connect(size, false)?;
        let mut at = BUFFERS;
        while !client.is_over() {
            setup.report()?;
            // The baseline touches the same few pages again and again.
            let end = if setup.baseline { NEEDED } else { size };
            (0..2_000).try_for_each(|_| sweep(&mut client, &mut at, end).map(drop))?;
        }
    }
}

/// Allocates and frees as many pages of an own file. A hypervisor may have to find each page, for which it stops the CPU
/// or slows the whole machine; a client needs no switch for that.
fn allocate_own(file: &OwnedFd, size: u64) -> Result<()> {
    loop {
        for at in (0..size).step_by((64 * PAGE) as usize) {
            populate(file, at, at + 64 * PAGE)?;
        }
        punch(file, 0, size)?;
    }
}

/// Makes the switch touch all pages and truncates them at once.
pub(crate) fn truncate_touched(setup: &Setup, huge: bool) -> Result<()> {
    let size = size(huge)?;
    setup.feed()?;
    loop {
        let mut client = setup.connect(size, huge)?;
        let file = client.file().try_clone_to_owned()?;
        populate(&file, BUFFERS, size)?;
        let (mut at, mut touched) = (BUFFERS, 0);
        while touched < (size - BUFFERS) / PAGE && !client.is_over() {
            touched += u64::from(sweep(&mut client, &mut at, size)?);
        }
        setup.round(|| ftruncate(&file, BUFFERS).map_err(Error::while_doing("ftruncate")))?;
        let end = Instant::now() + Duration::from_millis(300);
        while !client.is_over() && (!setup.baseline || Instant::now() < end) {
            sweep(&mut client, &mut at, size)?;
        }
    }
}

/// Posts receive buffers, each on the next page. Returns the number of filled ones.
fn sweep(client: &mut Client, at: &mut u64, size: u64) -> Result<u16> {
    let mut next = || {
        *at = if *at + 2 * PAGE > size { BUFFERS } else { *at + PAGE };
        *at
    };
    let filled = match client {
        Client::VhostUser(front) => front.serve_at(next)?,
        Client::Memif { client, tail } => {
            let now = client.rx.tail();
            let filled = now.wrapping_sub(*tail);
            for index in 0..filled {
                let descriptor =
                    Descriptor { flags: 0, region: 0, length: 2048, offset: next() as u32, metadata: 0 };
                client.rx.write_desc(tail.wrapping_add(index), &descriptor);
            }
            *tail = now;
            client.rx.set_head(now.wrapping_add(client.rx.size()));
            filled
        }
    };
    std::thread::yield_now();
    Ok(filled)
}
