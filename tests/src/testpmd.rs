//! DPDK's testpmd: an independent memif client or server, or virtio-user device.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::Running;
use crate::{Error, Result, unique, until};

/// Time limit of every testpmd operation.
const LIMIT: Duration = Duration::from_secs(30);

/// Memory of testpmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Standard pages: packets are copied.
    Common,
    /// Huge pages in few files, as zero-copy memif clients require.
    Huge,
}

/// A running testpmd on CPU 1. Dropping it ends it.
#[derive(Debug)]
pub struct Testpmd {
    process: Running,
    log: tempfile::NamedTempFile,
}

impl Testpmd {
    /// Starts testpmd with these devices (`net_memif0,...`, `net_virtio_user0,...`) and further arguments, and waits
    /// for its prompt.
    pub fn start(memory: Memory, devices: &[String], arguments: &[&str]) -> Result<Testpmd> {
        let log = tempfile::NamedTempFile::new()?;
        let output = File::options().append(true).open(log.path())?;
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--lcores", "(0)@1,(1)@1", "--main-lcore", "0", "--no-pci"]);
        match memory {
            Memory::Common => command.args(["--no-huge", "--no-shconf", "-m", "256"]),
            Memory::Huge => command.args(["--in-memory", "--single-file-segments"]),
        };
        command.arg("--file-prefix").arg(unique("e2e"));
        for device in devices {
            command.arg("--vdev").arg(device);
        }
        // Without --no-flush-rx, testpmd discards packets that arrive while forwarding starts.
        command
            .args(["--", "-i", "--no-mlockall", "--no-flush-rx", "--total-num-mbufs=8192"])
            .args(arguments);
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let mut testpmd = Testpmd { process: Running::start(&mut command)?, log };
        testpmd.wait_for("testpmd> ")?;
        Ok(testpmd)
    }

    /// Kills testpmd (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Sends a command.
    pub fn command(&mut self, line: &str) -> Result<()> {
        let stdin = self.process.stdin().ok_or_else(|| Error::new("testpmd has no standard input"))?;
        Ok(writeln!(stdin, "{line}").and_then(|()| stdin.flush())?)
    }

    /// Waits until testpmd has written this text.
    pub fn wait_for(&mut self, text: &str) -> Result<()> {
        until(&format!("testpmd to write `{text}`"), LIMIT, || {
            let output = self.output()?;
            if output.contains(text) {
                return Ok(Some(()));
            }
            match self.process.ended()? {
                Some(status) => {
                    // The error is among pages of help.
                    let errors =
                        output.lines().filter(|line| line.contains("EAL: ") || line.contains("rror"));
                    Err(Error(format!("testpmd ended, {status}: {}", errors.collect::<Vec<_>>().join("; "))))
                }
                None => Ok(None),
            }
        })
    }

    /// All output so far.
    pub fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.log.path())?).into_owned())
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // The end of its input stops testpmd too; the signal that follows makes sure.
        let _ = self.command("quit");
        let _ = self.process.wait(Duration::from_secs(5));
    }
}
