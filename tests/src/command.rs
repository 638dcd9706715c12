//! Programs: locating our own, running them, and ending them on drop.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result, until};

/// Time allowed for a program to end on request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Path of one of our programs: from the variable, or beside the running program.
pub fn binary(name: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    // For target/debug/deps/TEST, programs are two folders up.
    let this = std::env::current_exe()?;
    let beside = this.ancestors().nth(2).map(|folder| folder.join(name));
    match beside.filter(|path| path.exists()) {
        Some(path) => Ok(path),
        None => Err(Error(format!("`{name}` is not built; run `cargo build --workspace` or set {variable}"))),
    }
}

/// Runs a program to its end and returns its standard output; a failure is an error.
pub fn output<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::while_doing(&format!("cannot run {program}")))?;
    succeeded(program, output)
}

/// Standard output of a program that succeeded.
pub(crate) fn succeeded(program: &str, output: Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error(format!("{program}: {}: {text}{errors}", output.status)))
}

/// A running program. Drop ends it, by force if needed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
}

impl Running {
    /// Starts a program.
    pub fn start(command: &mut Command) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(Error::while_doing(&format!("cannot run {name}")))?;
        Ok(Running { child, name })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard input, if it is a pipe to this process.
    pub fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Exit status, if the program has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until the program ends by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let name = self.name.clone();
        until(&format!("{name} to end"), limit, || self.ended())
    }

    /// Waits until the program ends with success; returns its standard output, if that is a pipe to this process.
    pub fn output(mut self) -> Result<String> {
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut text)?;
        }
        let status = self.wait(PATIENCE)?;
        match status.success() {
            true => Ok(text),
            false => Err(Error(format!("{}: {status}: {text}", self.name))),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::new("no such process"))?;
        kill_process(pid, signal).map_err(Error::while_doing("cannot send a signal"))
    }

    /// Sends SIGTERM.
    pub fn request_end(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGTERM and waits for the program to end.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.request_end()?;
        self.wait(PATIENCE)
    }

    /// Kills the program (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        let status = self.child.wait()?;
        match status.signal() {
            Some(9) => Ok(()),
            _ => Err(Error(format!("{} had ended before it was killed: {status}", self.name))),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.ended(), Ok(None)) && self.terminate().is_err() {
            // Best effort: no further means remain.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
