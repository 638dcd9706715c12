//! Memory that is not there: files that shrink while the switch works in them, and files without pages.

use std::time::{Duration, Instant};

use e2e::{Error, Result};
use memif::Descriptor;
use rustix::fs::ftruncate;

use crate::plug::{BUFFERS, NEEDED, Plug};
use crate::scene::{Scene, populate, punch};
use crate::stalled::{available, free_huge_pages};

const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
const PAGE: u64 = 4096;

/// Cuts the buffers' memory off, over and over, and gives it back in between: before the switch looks, most times.
pub(crate) fn truncated(scene: &Scene, huge: bool) -> Result<()> {
    let size = size(huge)?;
    scene.feed()?;
    scene.siege(
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
        true => Err(Error(format!("{size} bytes of memory are too little for this attack"))),
        false => Ok(size),
    }
}

/// Punches out single buffers that are being sent, so that the switch reads zeros.
pub(crate) fn emptied(scene: &Scene) -> Result<()> {
    scene.feed()?;
    scene.siege(
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

/// Has the switch touch memory that has no pages yet, each packet another page, as much as there is.
pub(crate) fn sparse(scene: &Scene, size: u64) -> Result<()> {
    scene.feed()?;
    loop {
        let mut plug = scene.plug(size, false)?;
        let mut at = BUFFERS;
        while !plug.is_over() {
            scene.report()?;
            // The double touches the same few pages again and again.
            let end = if scene.calm { NEEDED } else { size };
            (0..2_000).try_for_each(|_| sweep(&mut plug, &mut at, end).map(drop))?;
        }
    }
}

/// Has the switch touch all pages, and takes them away then: all of the mapping goes at once.
pub(crate) fn swept(scene: &Scene, huge: bool) -> Result<()> {
    let size = size(huge)?;
    scene.feed()?;
    loop {
        let mut plug = scene.plug(size, huge)?;
        let file = plug.file().try_clone_to_owned()?;
        populate(&file, BUFFERS, size)?;
        let (mut at, mut touched) = (BUFFERS, 0);
        while touched < (size - BUFFERS) / PAGE && !plug.is_over() {
            touched += u64::from(sweep(&mut plug, &mut at, size)?);
        }
        scene.deed(|| ftruncate(&file, BUFFERS).map_err(Error::while_doing("ftruncate")))?;
        let end = Instant::now() + Duration::from_millis(300);
        while !plug.is_over() && (!scene.calm || Instant::now() < end) {
            sweep(&mut plug, &mut at, size)?;
        }
    }
}

/// Gives receive buffers to the switch, each in the next page. Returns how many were filled.
fn sweep(plug: &mut Plug, at: &mut u64, size: u64) -> Result<u16> {
    let mut next = || {
        *at = if *at + 2 * PAGE > size { BUFFERS } else { *at + PAGE };
        *at
    };
    let filled = match plug {
        Plug::VhostUser(front) => front.serve_at(next)?,
        Plug::Memif { client, tail } => {
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
