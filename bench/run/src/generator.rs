//! The traffic generator: finds the program, runs it, reads its report.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::cpus::Cpus;
use crate::error::{Error, Result};
use crate::fingerprint::fingerprint;
use crate::lab::{Lab, Namespace, Process, Stream};
use crate::peers::Site;
use crate::sample::Packets;
use crate::scenarios::Attachment;

/// Version of the generator's report that this program reads.
const VERSION: u64 = 1;
/// Time that a generator takes beyond its measured time: start, connections, packets in flight.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program.
#[derive(Debug, Clone)]
pub struct Generator {
    path: PathBuf,
}

/// Its report, as far as it is needed.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    version: u64,
    /// Version of DPDK.
    pub dpdk: String,
    /// Measured time.
    pub seconds: f64,
    /// Beginning of the measured time: nanoseconds of `CLOCK_MONOTONIC`.
    pub began_ns: u64,
    /// Frequency of the time stamp counter.
    pub tsc_hz: f64,
    /// Its core.
    pub core: Core,
    /// Mean length of a packet.
    pub mean_size: f64,
    /// Each direction.
    pub directions: Vec<Direction>,
    /// Each port.
    pub ports: Vec<Port>,
}

/// The generator's core.
#[derive(Debug, Clone, Deserialize)]
pub struct Core {
    /// Share of its cycles without anything to do.
    pub idle_share: f64,
    /// Cycles for sending and receiving a packet.
    pub cycles_per_packet: f64,
    /// Whether the generator may have been the limit.
    pub near_ceiling: bool,
}

/// Packets of a direction.
#[derive(Debug, Clone, Deserialize)]
pub struct Direction {
    /// Rate at which the port accepted packets.
    pub sent_pps: f64,
    /// Rate of distinct unchanged packets.
    pub received_pps: f64,
    /// Rate that was asked for; `None` at saturation.
    pub offered_pps: Option<f64>,
    /// Packets that the port accepted in the measured time.
    pub sent: u64,
    /// Packets of these that did not arrive.
    pub lost: u64,
    /// Packets that were due and not sent, because the port did not accept those before in time.
    pub skipped: u64,
    /// Packets that arrived again.
    pub duplicated: u64,
    /// Packets that arrived after later ones of their flow; `None` if flows share their counters.
    pub reordered: Option<u64>,
    /// Packets with wrong bytes, and at wrong ports.
    pub corrupted: u64,
    /// See `corrupted`.
    pub misdelivered: u64,
    /// Round-trip times, if they were measured.
    pub rtt_ns: Option<Rtt>,
}

/// Packets of a port that belong to no direction.
#[derive(Debug, Clone, Deserialize)]
pub struct Port {
    /// Packets of a generator that cannot be assigned, because of wrong bytes.
    pub corrupted: u64,
}

/// Round-trip times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, Deserialize)]
pub struct Rtt {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Highest.
    pub max: f64,
}

impl Report {
    /// Packets of all directions in the measured time.
    pub fn packets(&self) -> Packets {
        let sum = |of: fn(&Direction) -> u64| self.directions.iter().map(of).sum();
        Packets {
            sent: sum(|direction| direction.sent),
            lost: sum(|direction| direction.lost),
            skipped: sum(|direction| direction.skipped),
            duplicated: sum(|direction| direction.duplicated),
            reordered: self.directions.iter().map(|direction| direction.reordered).sum(),
        }
    }

    /// Rate that was asked for, all directions added up; `None` at saturation.
    pub fn offered_pps(&self) -> Option<f64> {
        let offered: Vec<f64> =
            self.directions.iter().filter_map(|direction| direction.offered_pps).collect();
        (!offered.is_empty()).then(|| offered.iter().sum())
    }

    /// Packets with wrong bytes or at a wrong port.
    pub fn damaged(&self) -> u64 {
        let directions = self.directions.iter().map(|way| way.corrupted + way.misdelivered);
        directions.chain(self.ports.iter().map(|port| port.corrupted)).sum()
    }

    /// Packets received per second, all directions added up.
    pub fn received_pps(&self) -> f64 {
        self.directions.iter().map(|direction| direction.received_pps).sum()
    }

    /// Packets sent per second, all directions added up.
    pub fn sent_pps(&self) -> f64 {
        self.directions.iter().map(|direction| direction.sent_pps).sum()
    }
}

impl Generator {
    /// This program.
    #[cfg(test)]
    pub(crate) fn at(path: PathBuf) -> Generator {
        Generator { path }
    }

    /// Finds the program: `MSWITCH_GENERATOR`, where `make generator` puts it, or on the PATH.
    pub fn find() -> Result<Generator> {
        if let Some(path) = std::env::var_os("MSWITCH_GENERATOR") {
            let path = PathBuf::from(path);
            return if path.is_file() {
                Ok(Generator { path })
            } else {
                Err(Error::new(format!("MSWITCH_GENERATOR={}: no such file", path.display())))
            };
        }
        let this = std::env::current_exe().map_err(Error::while_doing("this program"))?;
        // For target/PROFILE/mswitch; tests are one folder deeper.
        let built = this.ancestors().skip(2).take(2).map(|folder| folder.join("generator/mswitch-generator"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed = std::env::split_paths(&path).map(|folder| folder.join("mswitch-generator"));
        let mut candidates = built.chain(installed);
        match candidates.find(|path| path.is_file()) {
            Some(path) => Ok(Generator { path }),
            None => Err(Error::new(
                "mswitch-generator is neither built nor on the PATH; run `make generator`, or set MSWITCH_GENERATOR",
            )),
        }
    }

    /// Returns the fingerprint of the program, in hexadecimal digits.
    pub fn build(&self) -> Result<String> {
        fingerprint(&self.path).map(|build| format!("{build:08x}"))
    }

    /// Runs it shortly without a switch: fails if it does not start here, or has another version. Returns its report.
    pub fn probe(&self, lab: &Lab, cpu: usize) -> Result<Report> {
        self.ceiling(lab, cpu, &["--seconds", "0.05", "--warm-up", "0"])
    }

    /// Measures its own ceiling.
    pub fn ceiling(&self, lab: &Lab, cpu: usize, options: &[&str]) -> Result<Report> {
        let mut command = Command::new(&self.path);
        command.args(["ceiling", "--cpu", &cpu.to_string(), "--quiet"]).args(options);
        // Its socket goes with the laboratory, even if the generator is killed.
        command.env("TMPDIR", lab.folder());
        report_of(lab.start("generator", command, Stream::Output)?, PATIENCE)
    }

    /// Measures one hop of memif without a switch: from a sender on one CPU to a receiver on another.
    pub fn hop(&self, lab: &Lab, cpus: Cpus, seconds: f64) -> Result<Report> {
        let socket = lab.path("hop");
        let server =
            format!("net_memif0,role=server,socket={},socket-abstract=no,rsize=10", socket.display());
        let text = seconds.to_string();
        let of = |mode: &str, cpu: usize, port: &str, seconds: &str| {
            let mut command = Command::new(&self.path);
            command.args([mode, "--cpu", &cpu.to_string(), "--quiet", "--port", port, "--seconds", seconds]);
            command
        };
        let receiver = of("receive", cpus.switch, &server, &(seconds + 3.0).to_string());
        let mut receiver = lab.start("generator-receiver", receiver, Stream::Output)?;
        receiver.until("socket", PATIENCE, |_| Ok(socket.exists()))?;
        let mut sender = of("send", cpus.generator, &format!("memif:{}", socket.display()), &text);
        // Nothing comes back, and nobody answers.
        sender.args(["--announce", "no"]);
        let sent = report_of(lab.start("generator-sender", sender, Stream::Output)?, PATIENCE)?;
        drop(receiver);
        Ok(sent)
    }

    /// A command for the ends of a topology.
    fn command(
        &self,
        mode: &str,
        site: &Site<'_>,
        client: Option<&Namespace>,
        cpu: usize,
        ports: &[usize],
    ) -> Command {
        let program = self.path.to_string_lossy();
        let mut command = match client {
            Some(namespace) => namespace.command(&program),
            None => Command::new(&*program),
        };
        command.args([mode, "--cpu", &cpu.to_string(), "--quiet"]);
        for port in ports {
            let socket = site.socket(*port);
            let name = match site.topology.ports.get(*port) {
                Some(Attachment::Memif) => format!("memif:{}", socket.display()),
                Some(Attachment::VhostUser) => format!("virtio-user:{}", socket.display()),
                Some(Attachment::Veth) | None => format!("af_xdp:{}", client_interface(*port)),
            };
            command.args(["--port", &name]);
        }
        if site.topology.has(Attachment::Memif) {
            // Open vSwitch's memif ports need this; other switches get the same.
            command.args(["--queues", &site.topology.queues().to_string(), "--ring", "2048"]);
        }
        command
    }

    /// Starts the functions of a chain: one process with all of their ports. `None` if there are none.
    pub fn functions(&self, site: &Site<'_>) -> Result<Option<Process>> {
        let ports: Vec<usize> = site.topology.functions.iter().flat_map(|(a, b)| [*a, *b]).collect();
        if ports.is_empty() {
            return Ok(None);
        }
        let mut command = self.command("vnf", site, None, site.cpus.functions, &ports);
        // Chains of learning switches need the addresses as they are, and all peers get the same packets.
        command.args(["--macs-swap", "no"]);
        Ok(Some(site.lab.start("generator-functions", command, Stream::Log)?))
    }

    /// Sends at both ends, or only at the first, and returns the report.
    pub fn send(
        &self,
        site: &Site<'_>,
        client: Option<&Namespace>,
        load: &[String],
        limit: f64,
    ) -> Result<Report> {
        let ends: Vec<usize> = site.topology.ends.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let mut command = self.command("send", site, client, site.cpus.generator, &ends);
        command.args(load);
        let process = site.lab.start("generator", command, Stream::Output)?;
        report_of(process, PATIENCE + Duration::try_from_secs_f64(limit).unwrap_or_default())
    }

    /// Connects to both ends and sends next to nothing: a packet in a quarter of an hour.
    pub fn listen(&self, site: &Site<'_>, client: Option<&Namespace>, seconds: f64) -> Result<Report> {
        let load = ["--one-way", "--announce", "no", "--rate", "0.001", "--warm-up", "0", "--seconds"];
        let mut words: Vec<String> = load.map(String::from).into();
        words.push(seconds.to_string());
        self.send(site, client, &words, seconds)
    }
}

/// Name of the clients' end of a veth pair, in their namespace.
pub fn client_interface(port: usize) -> String {
    format!("c{port}")
}

fn report_of(process: Process, limit: Duration) -> Result<Report> {
    parse(&process.finish(limit)?)
}

fn parse(text: &str) -> Result<Report> {
    // The version first: reports of others have other fields.
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(Error::while_doing("the generator's report"))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(VERSION) {
        let found = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
        return Err(Error::new(format!(
            "mswitch-generator writes reports of version {found} (expected {VERSION}); build it again: make generator"
        )));
    }
    let report: Report = serde_json::from_value(value).map_err(|error| {
        Error::new(format!("the generator's report: {error}; build the generator again: make generator"))
    })?;
    debug_assert_eq!(report.version, VERSION);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_named() {
        let error = parse(r#"{"version":2}"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "mswitch-generator writes reports of version 2 (expected 1); build it again: make generator"
        );
        let error = parse(r#"{"version":1}"#).unwrap_err().to_string();
        assert!(error.contains("missing field") && error.ends_with("make generator"), "{error}");
    }
}
