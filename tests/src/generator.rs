//! The benchmarks' traffic generator, `mswitch-generator`.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::command::Running;
use crate::{Error, Result};

/// A running generator. Dropping it ends it.
#[derive(Debug)]
pub struct Generator {
    process: Running,
}

impl Generator {
    /// Starts a generator without huge pages.
    pub fn start(arguments: &[&str]) -> Result<Generator> {
        let mut command = Generator::command(arguments)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Generator { process: Running::start(&mut command)? })
    }

    /// Runs a generator to its end; returns its report.
    pub fn run(arguments: &[&str]) -> Result<Value> {
        Generator::start(arguments)?.report()
    }

    /// Runs a generator to its end, whatever that is.
    pub fn output(arguments: &[&str]) -> Result<Output> {
        Ok(Generator::command(arguments)?.stdin(Stdio::null()).output()?)
    }

    /// Waits for the end; returns the report.
    pub fn report(self) -> Result<Value> {
        let text = self.process.output()?;
        serde_json::from_str(&text).map_err(|e| Error(format!("the generator's report: {e}: {text}")))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Asks the generator to end; returns its report.
    pub fn stop(self) -> Result<Value> {
        self.process.request_end()?;
        self.report()
    }

    fn command(arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(path()?);
        command.args(arguments).args(["--huge", "no", "--quiet"]);
        Ok(command)
    }
}

fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("MSWITCH_GENERATOR") {
        return Ok(path.into());
    }
    // For target/debug/deps/TEST, all outputs are three folders up.
    let this = std::env::current_exe()?;
    let built = this.ancestors().nth(3).map(|folder| folder.join("generator/mswitch-generator"));
    match built.filter(|path| path.exists()) {
        Some(path) => Ok(path),
        None => Err(Error::new("the generator is not built; run `make generator` or set MSWITCH_GENERATOR")),
    }
}
