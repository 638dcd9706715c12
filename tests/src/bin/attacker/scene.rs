//! What all attacks share: where the daemon is, the traffic, and the choice between the deed and its harmless double.

use std::hint::spin_loop;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::port::{PortSpec, Rings};
use e2e::{Error, Result, until};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::plug::Plug;

/// Number of the attacker's port on the socket `memif`, where it is a memif port.
pub(crate) const BAD: u32 = 2;
/// Number of the partner's port on the socket `memif`.
const FEED: u32 = 3;
/// The attacker's station, known to the switch.
pub(crate) const STATION: [u8; 6] = [2, 0, 0, 0, 0x0b, 0xad];
/// The partner's station.
const PARTNER: [u8; 6] = [2, 0, 0, 0, 0x0f, 0xed];
/// Packets that the partner sends at once.
const BURST: usize = 32;
/// How long the harmless double of a deed takes.
const CALM: Duration = Duration::from_millis(300);
/// How long the switch may take to have a port free again.
const LIMIT: Duration = Duration::from_secs(20);

/// The attacker's protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memif,
    VhostUser,
}

/// One attacker's place.
pub(crate) struct Scene {
    /// The daemon's folder.
    pub(crate) folder: String,
    pub(crate) kind: Kind,
    /// Do the harmless double of each deed: the undisturbed phase.
    pub(crate) calm: bool,
}

impl Scene {
    /// A path in the daemon's folder.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// A memory file of at least this size, without seals; of huge pages if so wanted.
    pub(crate) fn file(&self, size: u64, huge: bool) -> Result<OwnedFd> {
        let flags = if huge { MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB } else { MemfdFlags::CLOEXEC };
        let file = memfd_create("attack", flags).map_err(Error::while_doing("memfd"))?;
        ftruncate(&file, size).map_err(Error::while_doing("ftruncate"))?;
        Ok(file)
    }

    /// A client on the attacker's port, as soon as the switch takes one.
    pub(crate) fn plug(&self, size: u64, huge: bool) -> Result<Plug> {
        let mut refusal = String::new();
        until("the attacker's port to be free", LIMIT, || {
            match self.file(size, huge).and_then(|file| Plug::connect(self, file, size)) {
                Ok(plug) => Ok(Some(plug)),
                Err(error) => {
                    refusal = error.to_string();
                    Ok(None)
                }
            }
        })
        .map_err(|error| Error(format!("{error}; {refusal}")))
    }

    /// Reports that the deed begins, and does it, or spins as long as it might take.
    pub(crate) fn deed(&self, deed: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "deed")?;
        stdout.flush()?;
        drop(stdout);
        match self.calm {
            true => {
                spin(CALM);
                Ok(())
            }
            false => deed(),
        }
    }

    /// Starts the partner: it sends to the attacker's station without end.
    pub(crate) fn feed(&self) -> Result<()> {
        let spec = PortSpec::new(&self.path("memif"), FEED);
        // A partner before may not be gone yet.
        let mut client = until("the partner's port to be free", LIMIT, || {
            Ok(bench::port::connect(&spec, Rings::default()).ok())
        })?;
        let frame = frame(STATION, PARTNER, 400);
        std::thread::spawn(move || {
            loop {
                for _ in 0..BURST {
                    if !client.push(0, &[&frame]) {
                        break;
                    }
                }
                client.flush(0);
                std::thread::yield_now();
            }
        });
        Ok(())
    }

    /// Serves a plug on a thread of its own until the switch has thrown it out or `stop` is set. Returns the thread, which
    /// returns the plug.
    pub(crate) fn serve(
        &self,
        mut plug: Plug,
        stop: &Arc<AtomicBool>,
        sending: bool,
    ) -> std::thread::JoinHandle<()> {
        let stop = stop.clone();
        let frame = frame(PARTNER, STATION, 1400);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && !plug.is_over() {
                // Rings that the attack has taken away end the plug too.
                if plug.serve().is_err() {
                    break;
                }
                for _ in 0..BURST {
                    if !sending || !plug.send(&frame).unwrap_or(false) {
                        break;
                    }
                }
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        })
    }
}

/// A frame between two stations.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(length, 0x5a);
    frame
}

/// Computes for some time.
pub(crate) fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

/// Gives a range of a memory file pages.
pub(crate) fn populate(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    fallocate(file, FallocateFlags::empty(), from, to - from).map_err(Error::while_doing("fallocate"))
}

/// Takes them away.
pub(crate) fn punch(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, from, to - from).map_err(Error::while_doing("punch"))
}
