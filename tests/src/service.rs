//! The daemon as a service without root: user `nobody`, and given capabilities.

use std::fs::File;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Running, binary, succeeded};
use crate::{Error, Result, until};

/// Time allowed for the daemon to start serving.
const START: Duration = Duration::from_secs(30);

/// A daemon of user `nobody` in a folder of its own. Drop ends the daemon and removes the folder.
#[derive(Debug)]
pub struct Service {
    process: Running,
    folder: TempDir,
    program: PathBuf,
}

impl Service {
    /// Ids of `nobody` and `nogroup`.
    pub const USER: u32 = 65_534;

    /// Starts a daemon with these capabilities and this configuration, in which `{dir}` stands for the folder.
    pub fn start(config: &str, capabilities: &[String]) -> Result<Service> {
        Self::start_by(Command::new("setpriv"), config, capabilities)
    }

    /// Like [`start`](Service::start); the command ends with `setpriv`, which becomes the daemon.
    pub fn start_by(mut command: Command, config: &str, capabilities: &[String]) -> Result<Service> {
        let folder = tempfile::Builder::new().prefix("mswitch-nobody-").tempdir()?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        chown(folder.path(), Some(Self::USER), Some(Self::USER))?;
        // `nobody` may not be able to read the build folder.
        let (built, program) = (binary("mswitch", "MSWITCH_BIN")?, folder.path().join("mswitch"));
        std::fs::hard_link(&built, &program).or_else(|_| std::fs::copy(&built, &program).map(drop))?;
        let config = config.replace("{dir}", &folder.path().display().to_string());
        std::fs::write(folder.path().join("config.toml"), config)?;

        let caps: String = capabilities
            .iter()
            .map(|cap| format!(",+{}", cap.trim_start_matches("CAP_").to_lowercase()))
            .collect();
        let user = Self::USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"]);
        for set in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
            command.arg(set).arg(format!("-all{caps}"));
        }
        command
            .arg(&program)
            .args(["daemon", "--workers", "0", "--config"])
            .arg(folder.path().join("config.toml"));
        command.arg("--socket").arg(folder.path().join("ctl"));
        let log = File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Running::start(&mut command)?;
        Ok(Service { process, folder, program })
    }

    /// Waits until the daemon serves.
    pub fn wait_ready(&mut self) -> Result<()> {
        until("the daemon to serve", START, || match self.process.ended()? {
            Some(status) => Err(Error(format!("the daemon ended, {status}: {}", self.log()))),
            None => Ok(self.cli(&["status"])?.status.success().then_some(())),
        })
    }

    /// Folder that `{dir}` stands for.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Log of the daemon.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs the command line client as root and returns its output, successful or not.
    pub fn cli(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--socket").arg(self.folder.path().join("ctl"));
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// Runs the command line client with `--json`; a failure is an error.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let arguments = [arguments, &["--json"]].concat();
        let text = succeeded(&format!("mswitch {}", arguments.join(" ")), self.cli(&arguments)?)?;
        serde_json::from_str(&text).map_err(|e| Error(format!("{e} in JSON output: {text}")))
    }

    /// Sends SIGTERM and waits for the daemon to end.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}
