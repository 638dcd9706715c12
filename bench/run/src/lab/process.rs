//! Programs that a benchmark runs.
//!
//! Each starts with the highest priority in a session of its own: Ctrl-C reaches only the benchmark, which ends its
//! programs in order; and where the kernel groups threads by session, the group gets that priority too.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::records::{Record, Records};
use super::removal;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Standard streams of a program besides its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Both outputs go to the log.
    Log,
    /// Standard output goes to a pipe.
    Output,
    /// Standard input comes from a pipe; both outputs go to the log.
    Input,
}

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    started: u64,
    log: PathBuf,
    interrupt: Interrupt,
}

pub(super) fn start(
    records: &Records,
    interrupt: &Interrupt,
    log: &Path,
    name: &str,
    command: Command,
    stream: Stream,
) -> Result<Process> {
    interrupt.check()?;
    let file = File::create(log).map_err(Error::while_doing(log.display()))?;
    let copy = file.try_clone().map_err(Error::while_doing(log.display()))?;
    let mut command = in_session(&command);
    command.stdin(if stream == Stream::Input { Stdio::piped() } else { Stdio::null() });
    command.stdout(if stream == Stream::Output { Stdio::piped() } else { Stdio::from(copy) }).stderr(file);
    let mut child = command.spawn().map_err(Error::while_doing(format!("cannot run {name}")))?;
    // A process that has ended still has its entry, as nobody has waited for it.
    let began = started(child.id()).unwrap_or(0);
    let process = Record::Process { pid: child.id(), started: began, name: name.to_owned() };
    if let Err(error) = records.add(process) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(Process {
        name: name.to_owned(),
        child,
        started: began,
        log: log.to_owned(),
        interrupt: interrupt.clone(),
    })
}

/// The command in a session of its own, with priority. Each of these programs becomes the next: the id is the command's.
fn in_session(command: &Command) -> Command {
    let mut wrapped = Command::new("setsid");
    wrapped.args(["nice", "-n", "-20", "sh", "-c"]);
    wrapped.arg("echo -20 2>/dev/null >/proc/self/autogroup; exec \"$@\"").arg("sh");
    wrapped.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    wrapped
}

impl Process {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to standard input.
    pub fn command(&mut self, line: &str) -> Result<()> {
        let name = self.name.clone();
        let input = self.child.stdin.as_mut().ok_or_else(|| Error::new(format!("{name} has no input")))?;
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(Error::while_doing(name))
    }

    /// The log so far; unreadable bytes are replaced.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Fails if the program has ended, with the end of its log.
    pub fn must_run(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended ({status})"))),
        }
    }

    /// Waits until a condition holds; fails if the program ends before.
    pub fn until(
        &mut self,
        condition: &str,
        limit: Duration,
        mut probe: impl FnMut(&mut Process) -> Result<bool>,
    ) -> Result<()> {
        let interrupt = self.interrupt.clone();
        let waited = interrupt.until(condition, limit, || {
            let holds = probe(self)?;
            if !holds {
                self.must_run()?;
            }
            Ok(holds.then_some(()))
        });
        match waited {
            Err(Error::Failed(text)) if text.starts_with("no ") => Err(self.failure(&text)),
            other => other,
        }
    }

    /// Waits for the end; returns standard output, which was a pipe, of a program that succeeds. The output must fit into
    /// a pipe.
    pub fn finish(mut self, limit: Duration) -> Result<String> {
        let interrupt = self.interrupt.clone();
        let name = self.name.clone();
        let status = interrupt.until(&format!("end of {name}"), limit, || self.ended())?;
        let mut text = String::new();
        if let Some(mut output) = self.child.stdout.take() {
            output.read_to_string(&mut text).map_err(Error::while_doing(&name))?;
        }
        if status.success() { Ok(text) } else { Err(self.failure(&format!("failed ({status})"))) }
    }

    /// An error about this program, with the last lines of its log.
    pub fn failure(&self, what: &str) -> Error {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(3)..).unwrap_or_default().join("; ");
        let colon = if last.is_empty() { "" } else { ": " };
        Error::new(format!("{}: {what}{colon}{last}", self.name))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::while_doing(&self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends a program that reads commands.
        drop(self.child.stdin.take());
        if matches!(self.ended(), Ok(None)) {
            removal::end(self.child.id(), self.started);
        }
        let _ = self.child.wait();
    }
}

/// When a process started, in clock ticks since the machine's start; `None` if there is no such process.
pub(super) fn started(pid: u32) -> Option<u64> {
    Some(status(pid)?.1)
}

/// Whether that process still runs: it exists, is not only waiting to be waited for, and is not another one.
pub(super) fn runs(pid: u32, started: u64) -> bool {
    status(pid).is_some_and(|(state, since)| since == started && !matches!(state, 'Z' | 'X'))
}

/// State and start of a process.
fn status(pid: u32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Field 22; the state is field 3.
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Runs a command to its end; returns its standard output. A failure is an error with its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(Error::while_doing(format!("cannot run {name}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("{name} {}: {}: {}", arguments.join(" "), output.status, errors.trim())))
}
