//! The daemon under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use bench::port::PortSpec;
use serde_json::Value;

use crate::command::{Running, binary, succeeded};
use crate::{Cgroup, Error, Result, until};

/// How long a daemon may take to serve.
const START: Duration = Duration::from_secs(30);
/// How long states may take to change.
const CHANGE: Duration = Duration::from_secs(10);

/// A running daemon with a folder of its own. Dropping it ends it and removes the folder.
#[derive(Debug)]
pub struct Daemon {
    process: Running,
    folder: tempfile::TempDir,
    workers: String,
    /// The file of its cgroup that takes process ids, if it is in one of its own.
    procs: Option<PathBuf>,
}

/// A port as `port list --json` shows it.
#[derive(Debug, Clone)]
pub struct PortView(Value);

impl PortView {
    /// Whether traffic can pass.
    pub fn is_up(&self) -> bool {
        self.0["link"] == "up"
    }

    /// Why not.
    pub fn reason(&self) -> &str {
        self.0["reason"].as_str().unwrap_or_default()
    }

    /// Packets that were taken from the client.
    pub fn received(&self) -> u64 {
        number(&self.0["totals"]["rx"]["packets"])
    }

    /// Packets that were delivered to the client.
    pub fn delivered(&self) -> u64 {
        number(&self.0["totals"]["tx"]["packets"])
    }

    /// Packets from the client and to it that were dropped.
    pub fn dropped(&self) -> u64 {
        number(&self.0["totals"]["rx"]["dropped"]) + number(&self.0["totals"]["tx"]["dropped"])
    }

    /// The whole, as the daemon says it.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

/// A number, 0 if it was left out.
fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

impl Daemon {
    /// Starts a daemon with this configuration, in which `{dir}` stands for a folder of its own, and one worker on CPU 0;
    /// waits until it serves.
    pub fn start(config: &str) -> Result<Daemon> {
        Daemon::start_with(config, "0")
    }

    /// The same with these workers.
    pub fn start_with(config: &str, workers: &str) -> Result<Daemon> {
        Daemon::launch(config, workers, None)
    }

    /// As [`start`](Daemon::start), in a memory cgroup.
    pub fn start_in(cgroup: &Cgroup, config: &str) -> Result<Daemon> {
        Daemon::launch(config, "0", Some(cgroup))
    }

    fn launch(config: &str, workers: &str, cgroup: Option<&Cgroup>) -> Result<Daemon> {
        let folder = tempfile::Builder::new().prefix("mswitch-e2e-").tempdir()?;
        let config = config.replace("{dir}", &folder.path().display().to_string());
        std::fs::write(folder.path().join("config.toml"), config)?;
        let procs = cgroup.map(Cgroup::procs);
        let process = spawn(folder.path(), workers, procs.as_deref())?;
        let mut daemon = Daemon { process, folder, workers: workers.to_string(), procs };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Starts it again, with the same configuration and folder, after it has ended.
    pub fn restart(&mut self) -> Result<()> {
        self.process = spawn(self.folder.path(), &self.workers, self.procs.as_deref())?;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        until("the daemon to serve", START, || {
            if let Some(status) = self.process.ended()? {
                return Err(Error(format!("the daemon ended, {status}: {}", self.log())));
            }
            Ok(self.cli(&["status"])?.status.success().then_some(()))
        })
    }

    /// The folder that `{dir}` stands for.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Interface `id` of a memif socket in the folder.
    pub fn memif(&self, socket: &str, id: u32) -> PortSpec {
        PortSpec::new(&self.path(socket), id)
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs the command line client, whatever becomes of it.
    pub fn cli(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments)?.output()?)
    }

    /// The command line client, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(mswitch()?);
        command.args(arguments).arg("--socket").arg(self.folder.path().join("ctl")).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs the command line client, which must succeed, and returns what it wrote.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        succeeded(&format!("mswitch {}", arguments.join(" ")), self.cli(arguments)?)
    }

    /// The differences that `config diff` prints; empty without differences.
    pub fn differences(&self, file: Option<&str>) -> Result<String> {
        let words: Vec<&str> = ["config", "diff"].into_iter().chain(file).collect();
        let output = self.cli(&words)?;
        match output.status.code() {
            Some(0) => Ok(String::new()),
            Some(1) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => succeeded("mswitch config diff", output),
        }
    }

    /// The same as [`Daemon::run`] with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|e| Error(format!("{e} in what should be JSON: {text}")))
    }

    /// A port of a bridge.
    pub fn port(&self, bridge: &str, name: &str) -> Result<PortView> {
        let ports = self.ports(bridge)?;
        ports
            .into_iter()
            .find(|port| port.0["name"] == name)
            .ok_or_else(|| Error(format!("bridge {bridge} has no port {name}")))
    }

    /// All ports of a bridge.
    pub fn ports(&self, bridge: &str) -> Result<Vec<PortView>> {
        let reply = self.json(&["port", "list", bridge])?;
        let ports = reply["ports"].as_array().ok_or_else(|| Error(format!("no list of ports: {reply}")))?;
        Ok(ports.iter().cloned().map(PortView).collect())
    }

    /// Waits until traffic can pass a port.
    pub fn wait_up(&self, bridge: &str, name: &str) -> Result<PortView> {
        until(&format!("port {name} to come up"), CHANGE, || {
            Ok(Some(self.port(bridge, name)?).filter(PortView::is_up))
        })
    }

    /// Waits until a port is down for a reason with this text in it. Returns the whole reason.
    pub fn wait_down(&self, bridge: &str, name: &str, reason: &str) -> Result<String> {
        let mut last = String::new();
        let found = until(&format!("port {name} to go down because of `{reason}`"), CHANGE, || {
            let port = self.port(bridge, name)?;
            last = if port.is_up() { "it is up".to_string() } else { port.reason().to_string() };
            Ok((!port.is_up() && port.reason().contains(reason)).then(|| port.reason().to_string()))
        });
        found.map_err(|e| Error(format!("{e}; last seen: {last}")))
    }

    /// How often workers have returned from sleep.
    pub fn wakeups(&self) -> Result<u64> {
        let reply = self.json(&["worker", "show"])?;
        let workers =
            reply["workers"].as_array().ok_or_else(|| Error(format!("no list of workers: {reply}")))?;
        Ok(workers.iter().map(|worker| number(&worker["wakeups"])).sum())
    }

    /// How many workers it has.
    pub fn workers(&self) -> Result<usize> {
        let reply = self.json(&["worker", "show"])?;
        Ok(reply["workers"].as_array().map_or(0, Vec::len))
    }

    /// The CPU time that it has used.
    pub fn cpu_time(&self) -> Result<Duration> {
        Ok(bench::cpu::process_time(self.pid())?)
    }

    /// Asks it to end, as [`Daemon::terminate`], and does not wait.
    pub fn ask_to_end(&self) -> Result<()> {
        self.process.ask_to_end()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.process.wait(Duration::from_secs(10))
    }

    /// Asks it to end (SIGTERM) and waits.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate()
    }

    /// Ends it at once (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Whether it runs still.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.process.ended()?.is_none())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

fn mswitch() -> Result<PathBuf> {
    binary("mswitch", "MSWITCH_BIN")
}

fn spawn(folder: &Path, workers: &str, procs: Option<&Path>) -> Result<Running> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = match procs {
        None => Command::new(mswitch()?),
        Some(procs) => {
            // It must be in the cgroup before it looks.
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(mswitch()?);
            command
        }
    };
    command.env("CACHE_DIRECTORY", folder.join("cache"));
    command.arg("daemon").arg("--socket").arg(folder.join("ctl")).args(["--workers", workers]);
    command.arg("--config").arg(folder.join("config.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Running::start(&mut command)
}
