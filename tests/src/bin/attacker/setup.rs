//! Common setup of all attacks: the daemon's folder, the traffic, and the choice between attack and baseline.

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

use crate::client::Client;

/// Id of the attacker's memif port on the socket `memif`.
pub(crate) const BAD: u32 = 2;
/// Packets in a burst of the partner.
const BURST: usize = 32;
/// Length of a baseline round.
const BASELINE: Duration = Duration::from_millis(200);
/// Time allowed for the switch to free a port.
const LIMIT: Duration = Duration::from_secs(20);

/// The attacker's protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memif,
    VhostUser,
}

/// Setup of one attacker.
pub(crate) struct Setup {
    /// The daemon's folder.
    pub(crate) folder: String,
    pub(crate) kind: Kind,
    /// Whether to run the harmless baseline instead of the attack.
    pub(crate) baseline: bool,
}

impl Setup {
    /// Id of the partner's port on the socket `memif`; the attackers of both protocols have different ones.
    fn feed_id(&self) -> u32 {
        if self.kind == Kind::Memif { 3 } else { 4 }
    }

    /// The attacker's station, which the switch knows.
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

    /// Creates an unsealed memory file of at least this size, optionally of huge pages.
    pub(crate) fn file(&self, size: u64, huge: bool) -> Result<OwnedFd> {
        let flags = if huge { MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB } else { MemfdFlags::CLOEXEC };
        let file = memfd_create("attack", flags).map_err(Error::while_doing("memfd"))?;
        ftruncate(&file, size).map_err(Error::while_doing("ftruncate"))?;
        Ok(file)
    }

    /// Connects a client to the attacker's port, as soon as the switch accepts one.
    pub(crate) fn connect(&self, size: u64, huge: bool) -> Result<Client> {
        let mut refusal = String::new();
        until("the attacker's port to be free", LIMIT, || {
            match self.file(size, huge).and_then(|file| Client::connect(self, file, size)) {
                Ok(client) => Ok(Some(client)),
                Err(error) => {
                    refusal = error.to_string();
                    Ok(None)
                }
            }
        })
        .map_err(|error| Error(format!("{error}; {refusal}")))
    }

    /// Reports the start of a round and runs it; the baseline spins for a similar time instead.
    pub(crate) fn round(&self, round: impl FnOnce() -> Result<()>) -> Result<()> {
        self.report()?;
        match self.baseline {
            true => {
                spin(BASELINE);
                Ok(())
            }
            false => round(),
        }
    }

    /// Reports the start of a round.
    pub(crate) fn report(&self) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "round")?;
        Ok(stdout.flush()?)
    }

    /// Starts the partner, which floods the attacker's station.
    pub(crate) fn feed(&self) -> Result<()> {
        let spec = PortSpec::new(&self.path("memif"), self.feed_id());
        // An earlier partner may still hold the port.
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

    /// Attacks a client that receives, and optionally sends, until the switch disconnects it; then continues with the
    /// next client.
    pub(crate) fn attack_clients(
        &self,
        size: u64,
        huge: bool,
        sending: bool,
        mut prepare: impl FnMut(&Target) -> Result<()>,
        mut round: impl FnMut(&Target) -> Result<()>,
    ) -> Result<()> {
        loop {
            let client = self.connect(size, huge)?;
            let target = Target {
                file: client.file().try_clone_to_owned()?,
                call: client.call().try_clone_to_owned()?,
                kick: client.kick().try_clone_to_owned()?,
            };
            prepare(&target)?;
            let over = Arc::new(AtomicBool::new(false));
            let served = serve(client, over.clone(), sending.then(|| self.frame(self.station(), 1400)));
            while !over.load(Ordering::Relaxed) {
                self.round(|| round(&target))?;
            }
            served.join().map_err(|_| Error::new("the serving thread panicked"))?;
        }
    }
}

/// Parts of a client that an attack can touch.
pub(crate) struct Target {
    /// The memory file.
    pub(crate) file: OwnedFd,
    /// Eventfd that the switch signals.
    pub(crate) call: OwnedFd,
    /// Eventfd that the switch waits for.
    pub(crate) kick: OwnedFd,
}

/// Serves a client on its own thread until the switch disconnects it; sends `sent` over and over.
fn serve(mut client: Client, over: Arc<AtomicBool>, sent: Option<Vec<u8>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        // Rings destroyed by the attack end the loop too.
        while !client.is_over() && client.serve().is_ok() {
            if let Some(frame) = &sent {
                // Until the ring is full.
                let _ = (0..BURST).all(|_| client.send(frame).unwrap_or(false));
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

/// Computes for this time.
pub(crate) fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

/// Ends the process if a thread that was to go on has ended: the test notices.
pub(crate) fn ended(result: Result<()>) {
    eprintln!("a thread has ended: {result:?}");
    std::process::exit(1);
}

/// Allocates pages for a range of a memory file.
pub(crate) fn populate(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    fallocate(file, FallocateFlags::empty(), from, to - from).map_err(Error::while_doing("fallocate"))
}

/// Punches a hole into a range of a memory file.
pub(crate) fn punch(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, hole, from, to - from).map_err(Error::while_doing("punch"))
}
