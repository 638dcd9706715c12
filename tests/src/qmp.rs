//! QEMU's monitor: commands and events, each a line of JSON (QMP).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Error, Result};

/// Time allowed for QEMU to answer a command.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a monitor.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
    /// Events received while waiting for an answer.
    events: Vec<Value>,
}

impl Qmp {
    /// Connects to the monitor's socket and enables commands.
    pub fn connect(path: &Path) -> Result<Qmp> {
        let stream = UnixStream::connect(path).map_err(Error::while_doing("cannot reach QEMU's monitor"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut qmp = Qmp { stream: BufReader::new(stream), events: Vec::new() };
        qmp.line()?;
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).map_err(Error::while_doing("QEMU's monitor"))? == 0 {
            return Err(Error::new("QEMU closed its monitor"));
        }
        serde_json::from_str(&line).map_err(|error| Error(format!("{error} in QEMU's answer {line}")))
    }

    /// Runs a command and returns its result; a refusal is an error.
    pub fn run(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        self.stream.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut line = self.line()?;
            if line["event"].is_string() {
                self.events.push(line);
            } else if line["error"].is_object() {
                return Err(Error(format!("{command}: {}", line["error"]["desc"])));
            } else {
                return Ok(line["return"].take());
            }
        }
    }

    /// Waits for an event of this name for which `found` returns a value.
    pub fn event<T>(
        &mut self,
        name: &str,
        limit: Duration,
        mut found: impl FnMut(&Value) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            for event in std::mem::take(&mut self.events) {
                if event["event"] == name
                    && let Some(found) = found(&event["data"])
                {
                    return Ok(found);
                }
            }
            if Instant::now() > deadline {
                return Err(Error(format!("no event {name} within {} s", limit.as_secs())));
            }
            let line = self.line()?;
            self.events.push(line);
        }
    }
}
