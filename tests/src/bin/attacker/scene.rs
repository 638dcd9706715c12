//! What all attacks share: where the daemon is, the traffic, and the choice between the deed and its harmless double.

use std::hint::spin_loop;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::port::{PortSpec, Rings};
use e2e::{Error, Result, until};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

use crate::plug::Plug;

/// Number of the attacker's port on the socket `memif`, where it is a memif port.
pub(crate) const BAD: u32 = 2;
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
    /// Number of the partner's port on the socket `memif`: each protocol's attacker has its own.
    fn feed_id(&self) -> u32 {
        if self.kind == Kind::Memif { 3 } else { 4 }
    }

    /// The attacker's station, known to the switch.
    fn station(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0x0b, if self.kind == Kind::Memif { 1 } else { 2 }]
    }

    /// The partner's station.
    fn partner(&self) -> [u8; 6] {
        [2, 0, 0, 0, 0x0f, if self.kind == Kind::Memif { 1 } else { 2 }]
    }

    /// A frame from a station to the partner.
    pub(crate) fn frame(&self, from: [u8; 6], length: usize) -> Vec<u8> {
        frame(self.partner(), from, length)
    }

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
        self.report()?;
        match self.calm {
            true => {
                spin(CALM);
                Ok(())
            }
            false => deed(),
        }
    }

    /// Reports that the deed begins.
    pub(crate) fn report(&self) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "deed")?;
        Ok(stdout.flush()?)
    }

    /// Starts the partner: it sends to the attacker's station without end.
    pub(crate) fn feed(&self) -> Result<()> {
        let spec = PortSpec::new(&self.path("memif"), self.feed_id());
        // A partner before may not be gone yet.
        let mut client = until("the partner's port to be free", LIMIT, || {
            Ok(bench::port::connect(&spec, Rings::default()).ok())
        })?;
        let frame = frame(self.station(), self.partner(), 400);
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

    /// Has a client on the port that takes what comes, and sends too if so wanted, and does the deed to it until the switch
    /// has thrown it out; then the next one.
    pub(crate) fn siege(
        &self,
        size: u64,
        huge: bool,
        sending: bool,
        mut prepare: impl FnMut(&Target) -> Result<()>,
        mut deed: impl FnMut(&Target) -> Result<()>,
    ) -> Result<()> {
        loop {
            let plug = self.plug(size, huge)?;
            let target = Target {
                file: plug.file().try_clone_to_owned()?,
                call: plug.call().try_clone_to_owned()?,
                kick: plug.kick().try_clone_to_owned()?,
            };
            prepare(&target)?;
            let over = Arc::new(AtomicBool::new(false));
            let served = serve(plug, over.clone(), sending.then(|| self.frame(self.station(), 1400)));
            while !over.load(Ordering::Relaxed) {
                self.deed(|| deed(&target))?;
            }
            served.join().map_err(|_| Error::new("the serving thread panicked"))?;
        }
    }
}

/// What an attack can be done to.
pub(crate) struct Target {
    /// The memory.
    pub(crate) file: OwnedFd,
    /// What the switch signals.
    pub(crate) call: OwnedFd,
    /// What the switch waits for.
    pub(crate) kick: OwnedFd,
}

/// Serves a plug on a thread of its own until the switch has thrown it out; it sends `sent` over and over.
fn serve(mut plug: Plug, over: Arc<AtomicBool>, sent: Option<Vec<u8>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        // Rings that the attack has taken away end it too.
        while !plug.is_over() && plug.serve().is_ok() {
            if let Some(frame) = &sent {
                // Until there is no room.
                let _ = (0..BURST).all(|_| plug.send(frame).unwrap_or(false));
            }
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
    })
}

/// A frame between two stations.
fn frame(to: [u8; 6], from: [u8; 6], length: usize) -> Vec<u8> {
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
