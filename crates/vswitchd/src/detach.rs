//! Processes: the daemon in the foreground, or detached, alone or under a monitor.
//!
//! A detached daemon is this program started anew, with its role in the environment; so no process is forked while it has
//! threads. The starter waits for a line on the daemon's standard output, which says that it is ready. Until then the
//! daemon's errors reach the user's terminal.
//!
//! Invariant: once the daemon is ready, neither it nor its monitor has an open descriptor of the starter's caller.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::process::{Signal, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Variable with the role of a process that the starter, or the monitor, has started.
const VARIABLE: &str = "MSWITCH_VSWITCHD_ROLE";
const MONITOR: &str = "monitor";
const DAEMON: &str = "daemon";

/// Least interval between two starts of a daemon by its monitor.
const RESTART_INTERVAL: Duration = Duration::from_secs(10);

/// Signals of crashes, after which the monitor starts the daemon again.
const CRASHES: [Signal; 9] = [
    Signal::ABORT,
    Signal::BUS,
    Signal::FPE,
    Signal::ILL,
    Signal::SEGV,
    Signal::SYS,
    Signal::TRAP,
    Signal::XCPU,
    Signal::XFSZ,
];

/// What a process is for.
pub(crate) enum Role {
    /// Starts a process with this role, and waits until the daemon is ready.
    Starter(&'static str),
    /// Starts the daemon, again if it crashes.
    Monitor,
    /// Runs the daemon.
    Daemon(Readiness),
}

impl Role {
    /// Returns the role of this process.
    pub(crate) fn of_this_process(detach: bool, monitor: bool) -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok(MONITOR) => Role::Monitor,
            Ok(DAEMON) => {
                // Fails in the process that leads its session already.
                let _ = setsid();
                Role::Daemon(Readiness(Mutex::new(Some(()))))
            }
            _ if detach && monitor => Role::Starter(MONITOR),
            _ if detach => Role::Starter(DAEMON),
            _ => Role::Daemon(Readiness(Mutex::new(None))),
        }
    }
}

/// Tells the starter, once, that the daemon is ready.
#[derive(Debug)]
pub(crate) struct Readiness(Mutex<Option<()>>);

impl Readiness {
    /// Returns whether a starter waits.
    pub(crate) fn is_detached(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Says that the daemon is ready, and gives the starter's descriptors up.
    pub(crate) fn ready(&self) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).take().is_none() {
            return;
        }
        // A starter that has gone does not wait.
        let _ = writeln!(std::io::stdout()).and_then(|()| std::io::stdout().flush());
        leave_terminal();
    }
}

fn leave_terminal() {
    let null = File::options().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

fn spawn(role: &str, stdout: Stdio) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(VARIABLE, role).stdin(Stdio::null()).stdout(stdout);
    command.spawn().map_err(|error| format!("cannot start the daemon: {error}"))
}

/// Starts the daemon, and waits until it is ready.
pub(crate) fn start(role: &str) -> Result<ExitCode, String> {
    let mut child = spawn(role, Stdio::piped())?;
    let mut line = String::new();
    let output = child.stdout.take();
    let count = output.map(|output| BufReader::new(output).read_line(&mut line)).transpose();
    match count.map_err(|error| format!("cannot wait for the daemon: {error}"))? {
        Some(count) if count > 0 => Ok(ExitCode::SUCCESS),
        _ => {
            // It has said why.
            let status = child.wait().map_err(|error| error.to_string())?;
            match status.signal() {
                Some(_) => Err(format!("the daemon died before it was ready: {status}")),
                None => Ok(ExitCode::FAILURE),
            }
        }
    }
}

/// Runs the daemon in another process, again if it crashes.
pub(crate) fn monitor() -> Result<ExitCode, String> {
    // Fails in the process that leads its session already.
    let _ = setsid();
    let mut first = true;
    loop {
        let started = Instant::now();
        let stdout = if first { Stdio::inherit() } else { Stdio::null() };
        let mut child = spawn(DAEMON, stdout)?;
        if first {
            leave_terminal();
        }
        first = false;
        let status = child.wait().map_err(|error| error.to_string())?;
        if !crashed(status) {
            let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            return Ok(ExitCode::from(code));
        }
        // A daemon that crashes at its start would take a CPU.
        std::thread::sleep(RESTART_INTERVAL.saturating_sub(started.elapsed()));
    }
}

fn crashed(status: ExitStatus) -> bool {
    status.signal().is_some_and(|number| CRASHES.iter().any(|signal| signal.as_raw() == number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_are_told_from_ends() {
        assert!(crashed(ExitStatus::from_raw(Signal::SEGV.as_raw())));
        assert!(!crashed(ExitStatus::from_raw(Signal::KILL.as_raw())));
        assert!(!crashed(ExitStatus::from_raw(1 << 8)));
    }
}
