//! The guardian: a process that gives the configuration back when the daemon dies.
//!
//! The daemon starts its own program again, with [`ARGUMENT`], and keeps one end of a socket pair; the other end is
//! the guardian's standard input. The kernel closes the daemon's end when the daemon dies, in whatever way, and that
//! wakes the guardian: no timer runs. Until then it sleeps in one `read`.
//!
//! The guardian has its own session and ignores the signals that end services, so it survives what ends the daemon:
//! Ctrl-C, `SIGKILL`, and the `SIGTERM` that systemd sends to all processes of a service. It keeps `CAP_NET_ADMIN`
//! and gives all other capabilities up, apart from the one that lets root remove the journal.
//!
//! Invariants: a guardian that has reported to be ready has read the journal and holds its lock. It changes nothing
//! unless its daemon is gone without having said `released`.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::Error;
use crate::journal::{Journal, Lock};
use crate::recovery::{Recovered, recover_locked};

/// Hidden first argument of a program that is to be a guardian; the path of the journal follows.
pub const ARGUMENT: &str = "host-guardian";

/// What the guardian says when it is ready.
const READY: &[u8] = b"ready\n";
/// What the daemon says when everything is back.
const RELEASED: u8 = b'R';

/// Time for a guardian to start, on a host under load.
const START: Duration = Duration::from_secs(10);
/// Time for a guardian to end once it was released.
const END: Duration = Duration::from_secs(1);
/// Attempts to give the configuration back, and the time between them.
const ATTEMPTS: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(250);
/// Bytes that a pipe takes at once (`PIPE_BUF`).
const PIPE_BUF: usize = 4096;

/// A running guardian. Dropping it without [`Guardian::release`] makes it give the configuration back.
#[derive(Debug)]
pub struct Guardian {
    socket: UnixStream,
    child: Child,
}

/// Returns the command that runs this program as a guardian: its `main` passes the arguments to [`main`].
#[must_use]
pub fn command() -> Command {
    // The running program, even if its file was replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("mswitch-guardian").arg(ARGUMENT);
    command
}

impl Guardian {
    /// Starts a guardian for a journal and returns when it is ready. `command` is [`command`], or another command
    /// whose program calls [`main`] with its last argument, the journal's path.
    pub fn start(mut command: Command, journal: &Path) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Guardian(error.to_string());
        let journal = std::path::absolute(journal).map_err(failed)?;
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        command.arg(journal).stdin(OwnedFd::from(other)).stdout(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        // It holds the guardian's end, whose closing tells that the guardian has ended.
        drop(command);
        let mut guardian = Self { socket, child };
        guardian.socket.set_read_timeout(Some(START)).map_err(failed)?;
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\n") {
            match guardian.socket.read(&mut byte) {
                Ok(0) => break,
                Ok(_) => answer.push(byte[0]),
                Err(error) => {
                    return Err(guardian.failed(format!("no answer within {} s: {error}", START.as_secs())));
                }
            }
        }
        if answer == READY {
            return Ok(guardian);
        }
        let answer = String::from_utf8_lossy(&answer).trim().to_owned();
        Err(guardian.failed(if answer.is_empty() { "it ended at once".to_owned() } else { answer }))
    }

    /// Ends a guardian that has not become ready.
    fn failed(mut self, why: String) -> Error {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        Error::Guardian(why)
    }

    /// Returns the guardian's process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the guardian: everything is back.
    pub fn release(mut self) {
        // A guardian that has died needs no word.
        let _ = self.socket.write_all(&[RELEASED]);
        let _ = self.socket.set_read_timeout(Some(END));
        // It ends by closing its end.
        if matches!(self.socket.read(&mut [0]), Ok(0)) {
            let _ = self.child.wait();
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Best effort: closing the socket tells the guardian as well.
        let _ = self.socket.shutdown(Shutdown::Both);
        if matches!(self.child.try_wait(), Ok(None)) {
            // It needs time to give everything back. Without a thread it stays a zombie, which does no harm.
            let process = Pid::from_child(&self.child);
            let reaper = std::thread::Builder::new().name("mswitch-reaper".to_owned());
            let _ = reaper.spawn(move || waitpid(Some(process), WaitOptions::empty()));
        }
    }
}

impl AsFd for Guardian {
    /// Returns a descriptor that hangs up when the guardian dies.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether a program was started as a guardian: its `main` then calls [`main`] before anything else.
#[must_use]
pub fn is_asked_for(first_argument: Option<&OsStr>) -> bool {
    first_argument == Some(OsStr::new(ARGUMENT))
}

/// The guardian itself. `args` are the program's arguments behind [`ARGUMENT`]. To be called before the program has
/// opened any file or started any thread.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(journal) = args.into_iter().next().map(PathBuf::from) else {
        say("the journal's path is missing; the daemon starts its guardian by itself");
        return ExitCode::from(2);
    };
    detach();
    let mut daemon = match rustix::io::dup(std::io::stdin()) {
        Ok(socket) => UnixStream::from(socket),
        Err(_) => return ExitCode::from(2),
    };
    let lock = match get_ready(&journal) {
        Ok(lock) => lock,
        Err(error) => {
            let _ = writeln!(daemon, "{}", error.to_string().replace('\n', " "));
            return ExitCode::FAILURE;
        }
    };
    if daemon.write_all(READY).is_ok() && is_released(&mut daemon) {
        return ExitCode::SUCCESS;
    }
    give_back(&journal, &lock)
}

/// Separates the guardian from the daemon's files, session, signals, directory and privileges. Each step is worth
/// taking even if another fails.
fn detach() {
    // SAFETY: by the contract of `main`, this process has opened no file yet, so nothing in it refers to a descriptor
    // from 3 on. Such descriptors were inherited, and a TAP queue among them would keep the host port alive.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal installs no handler.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let _ = rustix::thread::set_name(c"mswitch-guard");
    // The last process to be killed for its memory; only permitted with CAP_SYS_RESOURCE.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = rustix::thread::set_no_new_privs(true);
    let _ = rustix::thread::clear_ambient_capability_set();
    if let Ok(sets) = rustix::thread::capabilities(None) {
        let kept = sets.permitted & (CapabilitySet::NET_ADMIN | CapabilitySet::DAC_OVERRIDE);
        let kept = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        let _ = rustix::thread::set_capabilities(None, kept);
    }
}

fn get_ready(journal: &Path) -> Result<Lock, Error> {
    let missing = |what: &str| Error::Journal { path: journal.to_owned(), what: what.to_owned() };
    let lock = Lock::take(journal, END)?.ok_or_else(|| missing("another guardian holds it"))?;
    // Read now, so that a journal that cannot be read is known before anything moves.
    Journal::read(journal)?.ok_or_else(|| missing("it does not exist"))?;
    Ok(lock)
}

/// Waits for the daemon's word or end. Returns whether it has said that everything is back.
fn is_released(daemon: &mut UnixStream) -> bool {
    let mut byte = [0];
    loop {
        match daemon.read(&mut byte) {
            Ok(1) => return byte[0] == RELEASED,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
}

fn give_back(journal: &Path, lock: &Lock) -> ExitCode {
    let start = Instant::now();
    for attempt in 1..=ATTEMPTS {
        match recover_locked(journal, lock) {
            Ok(Recovered::Restored(interface)) => {
                say(&format!(
                    "the daemon ended; interface {interface} has its addresses and routes back after {} ms",
                    start.elapsed().as_millis()
                ));
                return ExitCode::SUCCESS;
            }
            Ok(Recovered::Gone(interface)) => {
                say(&format!(
                    "the daemon ended, and interface {interface} is gone: its addresses were discarded"
                ));
                return ExitCode::SUCCESS;
            }
            Ok(Recovered::Nothing | Recovered::EarlierBoot) => return ExitCode::SUCCESS,
            Err(error) => {
                say(&format!("attempt {attempt} of {ATTEMPTS} to give addresses back: {error}"));
                // What is in the way is another program's change, which no descriptor announces.
                std::thread::sleep(INTERVAL);
            }
        }
    }
    say("giving up; the journal is kept, and the daemon recovers from it when it starts");
    ExitCode::FAILURE
}

/// Writes to the daemon's log, unless it is gone, or full and not read: addresses do not wait for it.
fn say(text: &str) {
    let mut stderr = std::io::stderr();
    let mut line = format!("mswitch guardian: {}", text.replace('\n', " "));
    // A pipe that is ready for one byte takes this many.
    line.truncate(line.floor_char_boundary(PIPE_BUF - 1));
    line.push('\n');
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if matches!(poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&now)), Ok(1)) {
        let _ = stderr.write_all(line.as_bytes());
    }
}
