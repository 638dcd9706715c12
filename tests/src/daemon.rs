//! The daemon under test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use bench::port::PortSpec;
use serde_json::Value;

use crate::command::{Running, binary, succeeded};
use crate::{Cgroup, Error, Netns, Result, until};

/// Time allowed for the daemon to start serving.
const START: Duration = Duration::from_secs(30);
/// Time allowed for a state to change.
const CHANGE: Duration = Duration::from_secs(10);

/// A running daemon with its own folder. Drop ends the daemon and removes the folder.
#[derive(Debug)]
pub struct Daemon {
    process: Running,
    folder: tempfile::TempDir,
    workers: String,
    /// `cgroup.procs` of the daemon's cgroup, if it has one of its own.
    procs: Option<PathBuf>,
    /// Its network namespace, if it is not the test's own.
    netns: Option<String>,
}

/// A port as `port list --json` shows it.
#[derive(Debug, Clone)]
pub struct PortView(Value);

impl PortView {
    /// Whether traffic can pass.
    pub fn is_up(&self) -> bool {
        self.0["link"] == "up"
    }

    /// Reason that traffic cannot pass.
    pub fn reason(&self) -> &str {
        self.0["reason"].as_str().unwrap_or_default()
    }

    /// Packets received from the client.
    pub fn received(&self) -> u64 {
        number(&self.0["totals"]["rx"]["packets"])
    }

    /// Packets delivered to the client.
    pub fn delivered(&self) -> u64 {
        number(&self.0["totals"]["tx"]["packets"])
    }

    /// Dropped packets, from the client and to it.
    pub fn dropped(&self) -> u64 {
        number(&self.0["totals"]["rx"]["dropped"]) + number(&self.0["totals"]["tx"]["dropped"])
    }

    /// The port's whole JSON object.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

/// Parses a number; 0 if it is missing.
fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_u64().unwrap_or(0),
    }
}

impl Daemon {
    /// Starts a daemon with this configuration and one worker on CPU 0, and waits until it serves. `{dir}` in the
    /// configuration stands for the daemon's own folder.
    pub fn start(config: &str) -> Result<Daemon> {
        Daemon::start_with(config, "0")
    }

    /// Like [`start`](Daemon::start), with these workers; if empty, those of the configuration.
    pub fn start_with(config: &str, workers: &str) -> Result<Daemon> {
        Daemon::launch(config, workers, None, None)
    }

    /// Like [`start`](Daemon::start), in a network namespace.
    pub fn start_at(netns: &Netns, config: &str) -> Result<Daemon> {
        Daemon::launch(config, "0", None, Some(netns))
    }

    /// Like [`start`](Daemon::start), in a memory cgroup.
    pub fn start_in(cgroup: &Cgroup, config: &str) -> Result<Daemon> {
        Daemon::launch(config, "0", Some(cgroup), None)
    }

    fn launch(config: &str, workers: &str, cgroup: Option<&Cgroup>, netns: Option<&Netns>) -> Result<Daemon> {
        let folder = tempfile::Builder::new().prefix("mswitch-e2e-").tempdir()?;
        let config = config.replace("{dir}", &folder.path().display().to_string());
        std::fs::write(folder.path().join("config.toml"), config)?;
        let procs = cgroup.map(Cgroup::procs);
        let netns = netns.map(|netns| netns.name().to_owned());
        let process = spawn(folder.path(), workers, procs.as_deref(), netns.as_deref())?;
        let mut daemon = Daemon { process, folder, workers: workers.to_string(), procs, netns };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Starts the daemon again with the same configuration and folder, after it has ended.
    pub fn restart(&mut self) -> Result<()> {
        let netns = self.netns.as_deref();
        self.process = spawn(self.folder.path(), &self.workers, self.procs.as_deref(), netns)?;
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

    /// Folder that `{dir}` stands for.
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

    /// Log of the daemon.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs the command line client and returns its output, successful or not.
    pub fn cli(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments)?.output()?)
    }

    /// Command line client, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(mswitch()?);
        command.args(arguments).arg("--socket").arg(self.folder.path().join("ctl")).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs the command line client and returns its standard output; a failure is an error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        succeeded(&format!("mswitch {}", arguments.join(" ")), self.cli(arguments)?)
    }

    /// Differences printed by `config diff`; empty if there are none.
    pub fn differences(&self, file: Option<&str>) -> Result<String> {
        let words: Vec<&str> = ["config", "diff"].into_iter().chain(file).collect();
        let output = self.cli(&words)?;
        match output.status.code() {
            Some(0) => Ok(String::new()),
            Some(1) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            _ => succeeded("mswitch config diff", output),
        }
    }

    /// Like [`Daemon::run`], with `--json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(&[arguments, &["--json"]].concat())?;
        serde_json::from_str(&text).map_err(|e| Error(format!("{e} in JSON output: {text}")))
    }

    /// Port of a bridge.
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

    /// Waits until a port is up.
    pub fn wait_up(&self, bridge: &str, name: &str) -> Result<PortView> {
        until(&format!("port {name} to come up"), CHANGE, || {
            Ok(Some(self.port(bridge, name)?).filter(PortView::is_up))
        })
    }

    /// Waits until a port is down for a reason that contains this text. Returns the whole reason.
    pub fn wait_down(&self, bridge: &str, name: &str, reason: &str) -> Result<String> {
        let mut last = String::new();
        let found = until(&format!("port {name} to go down with reason `{reason}`"), CHANGE, || {
            let port = self.port(bridge, name)?;
            last = if port.is_up() { "it is up".to_string() } else { port.reason().to_string() };
            Ok((!port.is_up() && port.reason().contains(reason)).then(|| port.reason().to_string()))
        });
        found.map_err(|e| Error(format!("{e}; last seen: {last}")))
    }

    /// Number of times that workers have woken up.
    pub fn wakeups(&self) -> Result<u64> {
        let reply = self.json(&["worker", "show"])?;
        let workers =
            reply["workers"].as_array().ok_or_else(|| Error(format!("no list of workers: {reply}")))?;
        Ok(workers.iter().map(|worker| number(&worker["wakeups"])).sum())
    }

    /// Number of workers.
    pub fn workers(&self) -> Result<usize> {
        let reply = self.json(&["worker", "show"])?;
        Ok(reply["workers"].as_array().map_or(0, Vec::len))
    }

    /// CPU time used.
    pub fn cpu_time(&self) -> Result<Duration> {
        Ok(bench::cpu::process_time(self.pid())?)
    }

    /// Sends SIGTERM and returns at once.
    pub fn request_end(&self) -> Result<()> {
        self.process.request_end()
    }

    /// Waits for the daemon to end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.process.wait(Duration::from_secs(10))
    }

    /// Sends SIGTERM and waits for the daemon to end.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.process.terminate()
    }

    /// Kills the daemon (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Whether the daemon is still running.
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

fn spawn(folder: &Path, workers: &str, procs: Option<&Path>, netns: Option<&str>) -> Result<Running> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = match (procs, netns) {
        (None, None) => Command::new(mswitch()?),
        (None, Some(netns)) => {
            // It replaces itself by the daemon.
            let mut command = Command::new("ip");
            command.args(["netns", "exec", netns]).arg(mswitch()?);
            command
        }
        (Some(procs), _) => {
            // The process joins the cgroup before it reads its own limits.
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs).arg(mswitch()?);
            command
        }
    };
    command.env("CACHE_DIRECTORY", folder.join("cache")).env("STATE_DIRECTORY", folder.join("state"));
    command.arg("daemon").arg("--socket").arg(folder.join("ctl"));
    if !workers.is_empty() {
        command.args(["--workers", workers]);
    }
    command.arg("--config").arg(folder.join("config.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Running::start(&mut command)
}
