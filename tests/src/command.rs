//! Programs: where ours are, running them, and not leaving them behind.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result, until};

/// How long a program may take to end when asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// One of our programs: named by the variable, or beside the program that runs now.
pub fn binary(name: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    // target/debug/deps/TEST: two folders up is where programs are.
    let this = std::env::current_exe()?;
    let beside = this.ancestors().nth(2).map(|folder| folder.join(name));
    match beside.filter(|path| path.exists()) {
        Some(path) => Ok(path),
        None => {
            Err(Error(format!("`{name}` is not built: `cargo build --workspace`, or name it in {variable}")))
        }
    }
}

/// Runs a program to its end; it must succeed. Returns what it wrote to its standard output.
pub fn output<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::while_doing(&format!("cannot run {program}")))?;
    succeeded(program, output)
}

/// The standard output of a program that succeeded.
pub(crate) fn succeeded(program: &str, output: Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Error(format!("{program}: {}: {text}{errors}", output.status)))
}

/// A running program. Dropping it ends it, by force if need be.
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

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it reads from, if that is a pipe to us.
    pub fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let name = self.name.clone();
        until(&format!("{name} to end"), limit, || self.ended())
    }

    /// Waits until it ends by itself and must succeed; returns what it wrote, if that is a pipe to us.
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

    /// Asks it to end (SIGTERM).
    pub fn ask_to_end(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Asks it to end (SIGTERM) and waits.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.ask_to_end()?;
        self.wait(PATIENCE)
    }

    /// Ends it at once (SIGKILL).
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
            // Nothing is left to try after this.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
