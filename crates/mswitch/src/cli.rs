//! The definition of the command line.
//!
//! A flag has the name of the key in the configuration file: `mtu = 1500` is `--mtu 1500`. So `--socket` is the
//! daemon's control socket everywhere, as in `[daemon]`, and the socket of a port is its `--path`. Former names are
//! accepted with a note and hidden from the help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::card_ports::CardPorts;
use crate::protection::Protection;

/// End of a command's help: shell lines that tests/examples.rs runs in the order of the commands, with a daemon that
/// has the bridge `br0` and its ports `vm1` (memif) and `host` (TAP), and with a namespace `blue`.
macro_rules! examples {
    ($($line:literal),+ $(,)?) => { concat!("Examples:", $("\n  ", $line),+) };
}

/// A modular software switch.
#[derive(Debug, Parser)]
#[command(name = "mswitch", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The daemon's control socket [env: MSWITCH_SOCKET] [default: /run/mswitch/mswitch.sock]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the switch in the foreground, until SIGTERM or Ctrl-C
    #[command(after_help = examples!(
        "mswitch daemon --config /etc/mswitch/mswitch.toml",
        "mswitch daemon --workers 0 --metrics 9090",
    ))]
    Daemon(DaemonArgs),
    /// Show the daemon's health in ten lines
    #[command(after_help = examples!("mswitch status", "mswitch status --json | jq .ports_up"))]
    Status(Output),
    /// Bridges: sets of ports that share a logic
    #[command(subcommand)]
    Bridge(BridgeCommand),
    /// Ports: the attachment points of bridges
    #[command(subcommand)]
    Port(PortCommand),
    /// Workers: the threads that forward packets
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Logics: they decide where packets go
    #[command(subcommand)]
    Logic(LogicCommand),
    /// MAC tables of learning bridges
    #[command(subcommand)]
    Fdb(FdbCommand),
    /// Mirrors: copies of the traffic of ports
    #[command(subcommand)]
    Mirror(MirrorCommand),
    /// OpenFlow: flows, groups, meters and controllers of a bridge
    #[command(subcommand)]
    Openflow(OpenFlowCommand),
    /// sFlow: packet samples and counters for collectors
    #[command(subcommand)]
    Sflow(SflowCommand),
    /// Show or record the packets of a bridge
    Capture(CaptureArgs),
    /// Explain how a bridge handles a packet, hypothetical or received
    Trace(TraceArgs),
    /// Configuration: running and saved
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show events as they happen, until Ctrl-C
    #[command(after_help = examples!("mswitch events br0 --kind fdb-learned --count 1"))]
    Events(EventsArgs),
    /// Watch ports and workers live
    #[command(after_help = examples!(
        "mswitch top",
        "mswitch top br0 --interval 0.5",
        "mswitch top --once --json",
    ))]
    Top(TopArgs),
    /// Benchmarks: mswitch beside other switches on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// P4 programs: check and test them; tables, counters and registers of those that run
    #[command(subcommand)]
    P4(P4Command),
    /// Print a shell completion script for commands, options and the running daemon's objects
    #[command(after_help = examples!(
        "source <(mswitch completion bash)",
        "mswitch completion fish >mswitch.fish",
    ))]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print candidates for the word at the cursor; the scripts of `mswitch completion` call this
    #[command(hide = true)]
    Complete {
        /// The shell
        shell: Shell,
        /// Arguments that the shell's script passes
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Write manual pages, one for each command
    #[command(after_help = examples!("mswitch man man1", "mswitch man man1 --date 2026-11-23"))]
    Man {
        /// Directory for the pages; created if missing
        directory: PathBuf,
        /// Date in the pages' footers [default: none]
        #[arg(long, value_name = "YYYY-MM-DD")]
        date: Option<String>,
    },
}

/// Benchmarks. They need no daemon, but root, and the generator that `make generator` builds.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure switches in turns, and write report.html, report.md and report.json; continues an interrupted run
    #[command(after_help = examples!(
        "mswitch bench run --list",
        "mswitch bench run --quick --out /tmp/quick",
        "mswitch bench run --scenario v2v --peer mswitch --peer ovs --rounds 5 --out /tmp/v2v",
        "mswitch bench run --scenario stations-memif --peer mswitch-learning --ways 2 --out /tmp/stations",
        "mswitch bench run --before /usr/bin/mswitch --peer mswitch --rounds 12 --out /tmp/change",
    ))]
    Run(BenchRunArgs),
    /// Say what changed beyond noise: between two reports, or from the earlier program to the present one in a report of
    /// `run --before`
    #[command(after_help = examples!(
        "mswitch bench compare /tmp/change",
        "mswitch bench compare /tmp/january /tmp/february",
    ))]
    Compare {
        /// Folder of a run, or its report.json; of the earlier run, if there are two
        a: PathBuf,
        /// Folder of the later run, or its report.json
        b: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Measure limits of the machine: memcpy, waking a thread, one hop without a switch, the generator
    #[command(after_help = examples!("mswitch bench ceilings", "mswitch bench ceilings --json"))]
    Ceilings(Output),
}

#[derive(Debug, Args)]
pub(crate) struct BenchRunArgs {
    /// A short run of few scenarios, under 10 minutes [default: the core set, under an hour]
    #[arg(long)]
    pub(crate) quick: bool,
    /// Every scenario, peer and packet size; takes hours
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    /// Only this scenario or kind of scenarios, such as v2v-memif or loopback; may be repeated
    #[arg(long = "scenario", value_name = "NAME")]
    pub(crate) scenarios: Vec<String>,
    /// Only this peer, such as mswitch or ovs; may be repeated, and fails if the peer is missing
    #[arg(long = "peer", value_name = "NAME")]
    pub(crate) peers: Vec<String>,
    /// Packet size in bytes without frame check sequence, 64K or imix; may be repeated
    #[arg(long = "size", value_name = "SIZE")]
    pub(crate) sizes: Vec<String>,
    /// Only this load: max (saturation), idle, 1000/s (packets per second), 10%, 50% or 99% of the rate at saturation; may be
    /// repeated
    #[arg(long = "load", value_name = "LOAD")]
    pub(crate) loads: Vec<bench_run::sample::Load>,
    /// At saturation, only one direction (1) or only both (2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) ways: Option<u8>,
    /// Measured seconds of each sample
    #[arg(long, value_name = "SECONDS", value_parser = bench_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Rounds, no fewer and no more [default: until the spread is small, within limits]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Minutes within which a further round must be able to end
    #[arg(long, value_name = "MINUTES", value_parser = bench_minutes)]
    pub(crate) limit: Option<f64>,
    /// Folder for reports and journal; the journal of an interrupted run is continued
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    pub(crate) out: PathBuf,
    /// Program for the peers named mswitch [default: this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) mswitch: Option<PathBuf>,
    /// Earlier program to measure beside the peers named mswitch, in the same rounds; `bench compare` then says what changed
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// List scenarios and peers, and what is missing for them, without measuring
    #[arg(long)]
    pub(crate) list: bool,
}

/// P4-16 programs.
#[derive(Debug, Subcommand)]
pub(crate) enum P4Command {
    /// Check programs: errors, warnings, and constructs that the switch does not support
    #[command(after_help = examples!(
        "mswitch p4 check /etc/mswitch/router.p4",
        "mswitch p4 check /etc/mswitch/router.p4 -D DEBUG=1 --json",
    ))]
    Check {
        /// Programs
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        source: P4Source,
        #[command(flatten)]
        output: Output,
    },
    /// Print what a controller can address in a program (P4Info of P4Runtime)
    #[command(after_help = examples!(
        "mswitch p4 info /etc/mswitch/router.p4",
        "mswitch p4 info /etc/mswitch/router.p4 --json | jq '.tables[].preamble.name'",
        "mswitch p4 info /etc/mswitch/router.p4 --binary >/tmp/router.p4info.bin",
    ))]
    Info {
        /// Program
        program: PathBuf,
        /// Print the message's encoding instead of text
        #[arg(long, conflicts_with = "json")]
        binary: bool,
        /// Print the message as JSON instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        source: P4Source,
    },
    /// Run test cases (STF) on a program: interpreted, and as machine code, which must agree
    #[command(after_help = examples!(
        "mswitch p4 test /etc/mswitch/router.p4 /etc/mswitch/router.stf",
        "mswitch p4 test /etc/mswitch/router.p4 /etc/mswitch/router.stf --trace",
        "mswitch p4 test /etc/mswitch/router.p4 /etc/mswitch/router.stf --xdp",
    ))]
    Test {
        /// Program
        program: PathBuf,
        /// Cases: commands, packets and the packets expected
        #[arg(required = true, value_name = "CASE.stf")]
        cases: Vec<PathBuf>,
        /// Show the way of each packet through the program where a case fails
        #[arg(long)]
        trace: bool,
        /// Native module with the functions that the program declares as `extern`
        #[arg(long, value_name = "FILE")]
        functions: Option<PathBuf>,
        /// Also run cases, and then random packets, in the kernel (XDP), and say which constructs need the CPU; as root
        #[arg(long)]
        xdp: bool,
        #[command(flatten)]
        source: P4Source,
    },
    /// Write what P4Runtime controllers push: a program with all that it includes
    #[command(after_help = examples!("mswitch p4 compile /etc/mswitch/router.p4 --output /tmp/router.p4b"))]
    Compile {
        /// Program
        program: PathBuf,
        /// File to write
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        source: P4Source,
    },
    /// Split a switch's program into programs of line cards around a fabric
    ///
    /// Each card runs parser, ingress and egress for packets of its ports; to ports of other cards they go through the
    /// fabric. Writes a program for each card, one for the CPU if ports share registers or meters, and a configuration.
    #[command(after_help = examples!(
        "mswitch p4 split /etc/mswitch/router.p4 --cards 1-2 3-4 --output /tmp/cards",
        "mswitch p4 split /etc/mswitch/router.p4 --cards 0 1 -o /tmp/c --test /etc/mswitch/router.stf",
    ))]
    Split {
        /// Program, for v1model
        program: PathBuf,
        /// P4 ports of each card: numbers and ranges with `,` between them
        #[arg(long, required = true, num_args = 1.., value_name = "PORTS")]
        cards: Vec<CardPorts>,
        /// P4 port of each card that leads to the fabric
        #[arg(long, default_value_t = 500, value_name = "PORT")]
        link: u32,
        /// Folder to write to
        #[arg(short, long, value_name = "FOLDER")]
        output: PathBuf,
        /// Test cases (STF): cards and fabric must do what the program does, with random packets, too
        #[arg(long, num_args = 1.., value_name = "CASE.stf")]
        test: Vec<PathBuf>,
        #[command(flatten)]
        source: P4Source,
    },
    /// Show the entries of tables, as `add` takes them
    #[command(after_help = examples!("mswitch p4 tables router", "mswitch p4 tables router routes"))]
    Tables(P4Read),
    /// Add an entry to a table, keys before `=>` and its action behind, or a group, a session or a member
    #[command(after_help = examples!(
        "mswitch p4 add router 'routes hdr.ipv4.dst=10.0.0.0/8 => via(next_hop=1)'",
        "mswitch p4 add router multicast 1 ports=1,2,3",
    ))]
    Add(P4Write),
    /// Change an entry, a default (`TABLE default => ACTION(...)`), a group, a counter, a register or a meter
    #[command(after_help = examples!("mswitch p4 mod router 'routes hdr.ipv4.dst=10.0.0.0/8 => via(next_hop=2)'"))]
    Mod(P4Write),
    /// Delete an entry
    #[command(after_help = examples!("mswitch p4 del router 'routes hdr.ipv4.dst=10.0.0.0/8'"))]
    Del(P4Write),
    /// Show counters that are not 0
    #[command(after_help = examples!("mswitch p4 counters router"))]
    Counters(P4Read),
    /// Show cells of registers that are not 0
    #[command(after_help = examples!("mswitch p4 registers router"))]
    Registers(P4Read),
    /// Show meters that have rates
    #[command(after_help = examples!("mswitch p4 meters router"))]
    Meters(P4Read),
    /// Show multicast groups, clone sessions, and members and groups of action profiles
    #[command(after_help = examples!("mswitch p4 groups router"))]
    Groups {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        output: Output,
    },
}

/// What is read of a program that runs.
#[derive(Debug, Args)]
pub(crate) struct P4Read {
    /// The bridge
    pub(crate) bridge: String,
    /// Only the object of this name
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// An entry of a table.
#[derive(Debug, Args)]
pub(crate) struct P4Write {
    /// The bridge
    pub(crate) bridge: String,
    /// `TABLE KEY=VALUE... [prio=N] => ACTION(PARAM=VALUE, ...)`, or another entity as `mswitch p4 groups`, `counters`,
    /// `registers` and `meters` show it (docs/p4.md)
    #[arg(required = true, value_name = "ENTRY")]
    pub(crate) entry: Vec<String>,
}

/// What a program is read with.
#[derive(Debug, Args)]
pub(crate) struct P4Source {
    /// Folder of included files, before those that mswitch brings along; may be repeated
    #[arg(short = 'I', long = "include", value_name = "DIR")]
    pub(crate) include: Vec<PathBuf>,
    /// Macro: NAME or NAME=VALUE; may be repeated
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) defines: Vec<String>,
}

/// Measured seconds of a sample.
fn bench_seconds(text: &str) -> Result<f64, String> {
    within(text, 0.05, 3600.0)
}

/// Minutes of a benchmark.
fn bench_minutes(text: &str) -> Result<f64, String> {
    within(text, 0.0, 100_000.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| format!("expected a number from {least} to {most}"))
}

/// Shells with a completion script.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Output format.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Print JSON, with the fields of the gRPC interface
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run a worker on each of these CPUs, such as 0,2-3; 0-1x4: four on each of two [default: one unpinned worker]
    #[arg(long, value_name = "CPULIST")]
    pub(crate) workers: Option<String>,
    /// Never let workers sleep: lowest latency, at 100 % of their CPUs
    #[arg(long)]
    pub(crate) poll: bool,
    /// Serve metrics for Prometheus: ADDRESS:PORT, or a port alone for 127.0.0.1 [default: not served]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
}

/// A logic's parameters.
#[derive(Debug, Args)]
pub(crate) struct Params {
    /// Parameter of the logic; `mswitch logic list` lists the parameters
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) params: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Add an empty bridge
    #[command(after_help = examples!(
        "mswitch bridge add br1",
        "mswitch bridge add br1 --may-exist",
        "mswitch bridge add br2 --logic learning --param ageing=60",
        "mswitch bridge add router --logic p4:/etc/mswitch/router.p4",
    ))]
    Add {
        /// Name of the bridge
        name: String,
        /// Logic of the bridge
        #[arg(long, default_value = control::model::DEFAULT_LOGIC)]
        logic: String,
        #[command(flatten)]
        params: Params,
        /// Succeed if the bridge exists, which stays as it is
        #[arg(long)]
        may_exist: bool,
    },
    /// Remove a bridge with its ports
    #[command(after_help = examples!("mswitch bridge del br2", "mswitch bridge del br2 --if-exists"))]
    Del {
        /// Name of the bridge
        name: String,
        /// Succeed if there is no such bridge
        #[arg(long)]
        if_exists: bool,
    },
    /// Show a bridge and its ports
    #[command(after_help = examples!("mswitch bridge show br0"))]
    Show {
        /// Name of the bridge
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Show multicast groups learned by snooping
    #[command(after_help = examples!(
        "mswitch logic set br0 learning --param snooping=on && mswitch bridge groups br0",
    ))]
    Groups {
        /// The bridge
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// List the bridges
    #[command(after_help = examples!("mswitch bridge list"))]
    List(Output),
}

/// A port of a bridge.
#[derive(Debug, Args)]
pub(crate) struct PortName {
    /// The bridge
    pub(crate) bridge: String,
    /// The port
    pub(crate) port: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PortCommand {
    /// Add a port and open it
    #[command(after_help = examples!(
        "mswitch port add br0 vm2 --type memif --path /run/mswitch/vm2.sock --vlan access:10",
        "mswitch port add br0 blue --type tap --netns blue --addresses 10.0.0.1/24",
        "mswitch port add br0 uplink --type netdev --interface eth0 --netns blue",
        "mswitch port add br0 eth0 --type netdev --host",
        "mswitch port add br0 tape --type pcap --write /run/mswitch/tape.pcapng --snaplen 96",
        "mswitch port add br0 up --type patch --peer br1/down",
        "mswitch port add br0 replay --type pcap --read /etc/mswitch/trace.pcap --speed 2x",
        "mswitch port add br0 guest --type vhost-user --path /run/mswitch/guest.sock --mode 0660",
    ))]
    Add(Box<PortAdd>),
    /// Change a port's settings; its client stays connected
    #[command(after_help = examples!(
        "mswitch port set br0 vm2 --mtu 1400 --vlan trunk:10,20-29",
        "mswitch port set br0 vm2 --admin down",
        "mswitch port set br0 vm2 --isolated on --police 100Mbit --police-burst 64KiB",
    ))]
    Set(Box<PortSet>),
    /// Remove a port with its socket, interface or files
    #[command(after_help = examples!("mswitch port del br0 vm2", "mswitch port del br0 vm2 --if-exists"))]
    Del {
        #[command(flatten)]
        port: PortName,
        /// Succeed if there is no such port
        #[arg(long)]
        if_exists: bool,
    },
    /// Show a port's settings, state and counters
    #[command(after_help = examples!("mswitch port show br0 vm1"))]
    Show {
        #[command(flatten)]
        port: PortName,
        #[command(flatten)]
        output: Output,
    },
    /// List ports
    #[command(after_help = examples!(
        "mswitch port list",
        "mswitch port list br0 --json | jq -r '.ports[].name'",
    ))]
    List {
        /// Only ports of this bridge
        bridge: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Explain the reasons for drops that `port stats` shows; needs no daemon
    #[command(after_help = examples!("mswitch port reasons", "mswitch port reasons vlan"))]
    Reasons {
        /// Only this reason
        reason: Option<String>,
        /// Print Markdown, as in docs/drops.md
        #[arg(long, conflicts_with_all = ["reason", "json"])]
        markdown: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show packets, bytes and drops of ports; `mswitch port reasons` explains the reasons for drops
    #[command(after_help = examples!(
        "mswitch port stats",
        "mswitch port stats br0 host --queues",
        "mswitch port stats --watch --count 2",
    ))]
    Stats(PortStats),
}

/// Administrative state of a port.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Admin {
    Up,
    Down,
}

/// Settings common to all port types.
#[derive(Debug, Args)]
pub(crate) struct PortSettings {
    /// Administrative state: whether traffic passes
    #[arg(long, value_enum)]
    pub(crate) admin: Option<Admin>,
    /// Largest packet in bytes without Ethernet header; 0: the type's maximum
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// transparent, access:10, trunk:10,20-29, trunk:all,native:1, trunk:all,native-tagged:1 or tunnel:10
    #[arg(long, value_name = "VLANS")]
    pub(crate) vlan: Option<String>,
    #[command(flatten)]
    pub(crate) protection: Protection,
}

impl PortSettings {
    /// Returns whether no setting is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.admin.is_none()
            && self.mtu.is_none()
            && self.vlan.is_none()
            && self.protection.clone().given().is_empty()
    }
}

#[derive(Debug, Args)]
pub(crate) struct PortAdd {
    #[command(flatten)]
    pub(crate) port: PortName,
    /// Port type: memif, tap, netdev, pcap, vhost-user or patch
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) settings: PortSettings,
    #[command(flatten)]
    pub(crate) options: PortOptions,
    /// The port's number in OpenFlow [default: the lowest free one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_279))]
    pub(crate) openflow_port: Option<u32>,
    /// The port's number in P4 programs [default: the lowest free one from 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65_535))]
    pub(crate) p4_port: Option<u32>,
    /// Option of the type by its key in the configuration file; commas separate list items
    #[arg(long = "opt", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) others: Vec<(String, String)>,
    /// Succeed if the bridge has a port of this name and type, which stays as it is
    #[arg(long)]
    pub(crate) may_exist: bool,
}

/// The options of all port types. The daemon parses the values, as it does those of the file.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of the port's type")]
pub(crate) struct PortOptions {
    /// memif, vhost-user: path of the port's socket; for memif a leading @ makes it abstract
    #[arg(long, value_name = "SOCKET")]
    path: Option<String>,
    /// memif: interface of the socket [default: 0]
    #[arg(long)]
    id: Option<String>,
    /// memif, vhost-user: server or client [default: server]
    #[arg(long)]
    role: Option<String>,
    /// memif: secret that clients must present
    #[arg(long)]
    secret: Option<String>,
    /// memif, tap, netdev: queues in each direction; vhost-user: maximum number of queue pairs
    #[arg(long, value_name = "N")]
    queues: Option<String>,
    /// memif client: entries of each ring, a power of two
    #[arg(long, value_name = "N")]
    ring_size: Option<String>,
    /// memif client: bytes of each buffer
    #[arg(long, value_name = "BYTES")]
    buffer_size: Option<String>,
    /// memif or vhost-user server, pcap: access mode of the socket or of the recorded file, such as 0660
    #[arg(long)]
    mode: Option<String>,
    /// memif or vhost-user server, pcap: owner of the socket or the recorded file
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// memif or vhost-user server, pcap: group of the socket or the recorded file
    #[arg(long)]
    group: Option<String>,
    /// tap, netdev: name of the interface [default: the port's name]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// tap: MAC address of the host's end
    #[arg(long)]
    mac: Option<String>,
    /// tap, netdev: network namespace of the interface: name, path or pid:N
    #[arg(long)]
    netns: Option<String>,
    /// tap: IP addresses of the host's end, such as 10.0.0.1/24,fd00::1/64; may be repeated
    #[arg(long, value_name = "IP/BITS")]
    addresses: Vec<String>,
    #[arg(long = "address", hide = true)]
    former_address: Vec<String>,
    /// netdev: move the host's addresses on the interface to this TAP port of the bridge; without a name to BRIDGE-host,
    /// which is added if it is missing
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "")]
    host: Option<String>,
    /// netdev: way to exchange packets with the interface: auto, af-packet or af-xdp [default: auto]
    #[arg(long)]
    driver: Option<String>,
    /// netdev with af-xdp: poll the interface instead of waiting for interrupts while packets come: on or off [default: off]
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, default_missing_value = "on")]
    busy_poll: Option<String>,
    /// tap, vhost-user: pass large segments and partial checksums uncut: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    offloads: Option<String>,
    /// tap: keep the interface, with its addresses and routes, when the daemon ends: on or off [default: off]
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, default_missing_value = "on")]
    persist: Option<String>,
    /// vhost-user: let a packet span several receive buffers: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    mergeable: Option<String>,
    /// vhost-user: offer packed rings besides split rings: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    packed: Option<String>,
    /// vhost-user: maximum number of memory regions that a front-end may share [default: 32]
    #[arg(long, value_name = "N")]
    memory_slots: Option<String>,
    /// memif, vhost-user: memory of a client that the switch may allocate, such as 256MiB
    #[arg(long, value_name = "SIZE")]
    first_touch_limit: Option<String>,
    /// memif, vhost-user: longest time that the port refuses clients after repeated faults [default: 30]
    #[arg(long, value_name = "SECONDS")]
    hold_off: Option<String>,
    /// memif, vhost-user: client messages served per second [default: 1600]
    #[arg(long, value_name = "N")]
    message_rate: Option<String>,
    /// memif, vhost-user: maximum number of client descriptors waiting to be closed [default: 128]
    #[arg(long, value_name = "N")]
    unclosed_descriptors: Option<String>,
    /// pcap: file to replay into the switch, pcap or pcapng
    #[arg(long, value_name = "FILE")]
    read: Option<String>,
    /// pcap: replay speed: recorded, 2x, full, 10000pps or 100Mbit [default: recorded]
    #[arg(long)]
    speed: Option<String>,
    /// pcap: number of replays, or forever [default: 1]
    #[arg(long = "loop", value_name = "N")]
    rounds: Option<String>,
    /// pcap: file that records packets sent to the port; an existing file is continued
    #[arg(long, value_name = "FILE")]
    write: Option<String>,
    /// pcap: bytes of each frame to record [default: all]
    #[arg(long, value_name = "BYTES")]
    snaplen: Option<String>,
    /// patch: the patch port at the other end, whose peer is this port
    #[arg(long, value_name = "BRIDGE/PORT")]
    peer: Option<String>,
}

impl PortOptions {
    /// Returns the former flags that were given, each with its current name.
    pub(crate) fn former(&self) -> Vec<(&'static str, &'static str)> {
        if self.former_address.is_empty() { Vec::new() } else { vec![("--address", "--addresses")] }
    }

    /// Returns the options that were given, by their keys in the file.
    pub(crate) fn given(self) -> Vec<(String, String)> {
        let addresses = [self.addresses, self.former_address].concat();
        let addresses = (!addresses.is_empty()).then(|| addresses.join(","));
        [
            ("path", self.path),
            ("id", self.id),
            ("role", self.role),
            ("secret", self.secret),
            ("queues", self.queues),
            ("ring-size", self.ring_size),
            ("buffer-size", self.buffer_size),
            ("mode", self.mode),
            ("owner", self.owner),
            ("group", self.group),
            ("interface", self.interface),
            ("mac", self.mac),
            ("netns", self.netns),
            ("addresses", addresses),
            ("host", self.host),
            ("driver", self.driver),
            ("busy-poll", self.busy_poll),
            ("offloads", self.offloads),
            ("persist", self.persist),
            ("mergeable", self.mergeable),
            ("packed", self.packed),
            ("memory-slots", self.memory_slots),
            ("first-touch-limit", self.first_touch_limit),
            ("hold-off", self.hold_off),
            ("message-rate", self.message_rate),
            ("unclosed-descriptors", self.unclosed_descriptors),
            ("read", self.read),
            ("speed", self.speed),
            ("loop", self.rounds),
            ("write", self.write),
            ("snaplen", self.snaplen),
            ("peer", self.peer),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct PortSet {
    #[command(flatten)]
    pub(crate) port: PortName,
    #[command(flatten)]
    pub(crate) settings: PortSettings,
}

#[derive(Debug, Args)]
pub(crate) struct PortStats {
    /// Only ports of this bridge
    pub(crate) bridge: Option<String>,
    /// Only this port
    #[arg(requires = "bridge")]
    pub(crate) port: Option<String>,
    /// Per queue
    #[arg(long)]
    pub(crate) queues: bool,
    /// Show rates every second, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// Stop after this many seconds
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Show workers and their receive queues: CPU, load, reasons
    #[command(after_help = examples!("mswitch worker show", "mswitch worker show --interval 1"))]
    Show {
        /// Measure for this many seconds instead of since the start
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        interval: Option<f64>,
        #[command(flatten)]
        output: Output,
    },
    /// Add a worker on each of these CPUs while traffic flows; queues move there by load
    #[command(after_help = examples!("mswitch worker add 1"))]
    Add {
        /// CPUs, such as 0,2-3; 2x1 adds one to CPU 2 though it has a worker, for tests
        #[arg(value_name = "CPULIST")]
        cpus: String,
    },
    /// Remove the workers on these CPUs while traffic flows; their queues go to the others
    #[command(after_help = examples!("mswitch worker remove 1"))]
    Remove {
        /// CPUs, such as 0,2-3; of several workers on a CPU, one is removed, 2x3 removes three
        #[arg(value_name = "CPULIST")]
        cpus: String,
    },
    /// Assign a port's receive queue to the worker on a CPU, where it stays
    #[command(after_help = examples!("mswitch worker pin br0 host 0 0"))]
    Pin {
        #[command(flatten)]
        port: PortName,
        /// Number of the receive queue, from 0
        queue: u32,
        /// CPU of the worker
        cpu: u32,
    },
    /// Let a pinned receive queue follow load again
    #[command(after_help = examples!("mswitch worker unpin br0 host 0"))]
    Unpin {
        #[command(flatten)]
        port: PortName,
        /// Number of the receive queue, from 0
        queue: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogicCommand {
    /// Replace a bridge's logic while traffic flows
    #[command(after_help = examples!(
        "mswitch logic set br0 static --param vm1=host",
        "mswitch logic set br0 chain --param 1='static vm1=probe' --param 2='learning ageing=60'",
        "mswitch logic set br0 p4:/etc/mswitch/router.json --param p4info=router.p4info.txtpb",
        "mswitch logic set br0 learning --param ageing=60",
    ))]
    Set {
        /// The bridge
        bridge: String,
        /// The logic's name
        logic: String,
        #[command(flatten)]
        params: Params,
    },
    /// Show a bridge's logic: parameters, counters, tables and commands
    #[command(after_help = examples!("mswitch logic show br0", "mswitch logic show br0 --table stations"))]
    Show {
        /// The bridge
        bridge: String,
        /// Only this table, with all of its rows
        #[arg(long, value_name = "NAME")]
        table: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Run a command of a bridge's logic; `mswitch logic show` lists the commands
    #[command(after_help = examples!(
        "mswitch logic call br0 forget 02:00:00:00:00:01 || mswitch logic show br0",
        "mswitch logic call br0 2 forget 02:00:00:00:00:01 || true  # stage 2 of a chain",
        "mswitch logic call br0 -- limit -5 || true",
    ))]
    Call {
        /// The bridge
        bridge: String,
        /// Command of the logic and its arguments; after `--` arguments may begin with dashes
        #[arg(required = true)]
        command: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// List the available logics with their parameters; of a module, with its counters and tables
    #[command(after_help = examples!("mswitch logic list", "mswitch logic list learning"))]
    List {
        /// Only this logic, such as learning or wasm:FILE
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum FdbCommand {
    /// Show a bridge's MAC table
    #[command(after_help = examples!("mswitch fdb show br0", "mswitch fdb show br0 --port host --vlan 10"))]
    Show {
        /// The bridge
        bridge: String,
        /// Only this MAC address
        mac: Option<String>,
        /// Only addresses behind this port
        #[arg(long)]
        port: Option<String>,
        /// Only addresses in this VLAN; 0: untagged
        #[arg(long)]
        vlan: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
    /// Forget learned addresses
    #[command(after_help = examples!("mswitch fdb flush br0", "mswitch fdb flush br0 --port host"))]
    Flush {
        /// The bridge
        bridge: String,
        /// Only addresses behind this port
        #[arg(long)]
        port: Option<String>,
        /// Only addresses in this VLAN; 0: untagged
        #[arg(long)]
        vlan: Option<u32>,
    },
    /// Add a static address, which neither ages nor moves
    #[command(after_help = examples!("mswitch fdb add br0 52:54:00:12:34:56 --port vm1 --vlan 10"))]
    Add {
        /// The bridge
        bridge: String,
        /// MAC address
        mac: String,
        /// Port that leads to the address
        #[arg(long)]
        port: String,
        /// VLAN; 0: untagged [default: that of an access port, otherwise 0]
        #[arg(long)]
        vlan: Option<u32>,
    },
    /// Delete an address
    #[command(after_help = examples!("mswitch fdb del br0 52:54:00:12:34:56 --vlan 10"))]
    Del {
        /// The bridge
        bridge: String,
        /// MAC address
        mac: String,
        /// Delete only if the address is behind this port
        #[arg(long)]
        port: Option<String>,
        /// VLAN; 0: untagged [default: the only one in which the address is]
        #[arg(long)]
        vlan: Option<u32>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SflowCommand {
    /// Switch sFlow export on, or change the settings that are given
    #[command(after_help = examples!(
        "mswitch sflow set --collectors 192.0.2.9,[2001:db8::9]:6344",
        "mswitch sflow set --sampling 400 --polling 30 --header 64",
        "mswitch sflow set --agent 192.0.2.1",
    ))]
    Set {
        /// Receivers of datagrams, ADDRESS or ADDRESS:PORT; may be repeated. Replaces the current collectors
        #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
        collectors: Vec<String>,
        #[arg(long = "collector", hide = true)]
        former_collector: Vec<String>,
        /// Agent address in datagrams; auto: their source address
        #[arg(long, value_name = "ADDRESS")]
        agent: Option<String>,
        /// Sample one packet in N [default: 1000]
        #[arg(long, value_name = "N")]
        sampling: Option<u32>,
        /// Interval between port counters; 0: no counters [default: 20]
        #[arg(long, value_name = "SECONDS")]
        polling: Option<u32>,
        /// Bytes of each sampled packet, 14 to 512 [default: 128]
        #[arg(long, value_name = "BYTES")]
        header: Option<u32>,
    },
    /// Show settings, statistics and interface indices of ports
    #[command(after_help = examples!("mswitch sflow show", "mswitch sflow show --json | jq .samples"))]
    Show(Output),
    /// Switch sFlow export off
    #[command(after_help = examples!("mswitch sflow off"))]
    Off,
}

/// Direction of packets, seen from the switch.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Direction {
    /// From the ports' clients
    In,
    /// To the ports' clients
    Out,
    /// Both ways
    Both,
}

impl Direction {
    /// Returns the name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Both => "both",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum MirrorCommand {
    /// Mirror the traffic of ports to another port
    #[command(after_help = examples!(
        "mswitch mirror add br0 watch --from host --to vm1",
        "mswitch mirror add br0 remote --from host --direction in --to vm1 --vlan 999",
    ))]
    Add {
        /// The bridge
        bridge: String,
        /// The mirror's name
        name: String,
        /// Ports to mirror; may be repeated [default: all ports but the target]
        #[arg(long, value_name = "PORT", value_delimiter = ',')]
        from: Vec<String>,
        /// Direction of the packets to mirror
        #[arg(long, value_enum, default_value_t = Direction::Both)]
        direction: Direction,
        /// Target port, which receives only copies unless --vlan tags them
        #[arg(long, value_name = "PORT")]
        to: String,
        /// Put this VLAN tag on copies (RSPAN)
        #[arg(long, value_name = "VID", value_parser = clap::value_parser!(u32).range(1..=4094))]
        vlan: Option<u32>,
    },
    /// Remove a mirror
    #[command(after_help = examples!("mswitch mirror del br0 watch"))]
    Del {
        /// The bridge
        bridge: String,
        /// The mirror
        name: String,
    },
    /// List mirrors with their statistics
    #[command(after_help = examples!("mswitch mirror list"))]
    List {
        /// Only mirrors of this bridge
        bridge: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum OpenFlowCommand {
    /// Show flows, in the syntax of ovs-ofctl
    #[command(after_help = examples!(
        "mswitch logic set br0 openflow && mswitch openflow flows br0",
        "mswitch openflow flows br0 table=0,in_port=1 --json | jq length",
    ))]
    Flows {
        /// The bridge
        bridge: String,
        /// Only flows that match: a match as in add-flow, also `table=TABLE`, `cookie=C/MASK` and `out_port=PORT`
        #[arg(value_name = "MATCH")]
        filter: Vec<String>,
        #[command(flatten)]
        stats: FlowStats,
        #[command(flatten)]
        output: Output,
    },
    /// Show groups, or their statistics
    #[command(after_help = examples!("mswitch openflow groups br0 --stats"))]
    Groups {
        /// The bridge
        bridge: String,
        /// Show statistics
        #[arg(long)]
        stats: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show meters, or their statistics
    #[command(after_help = examples!("mswitch openflow meters br0"))]
    Meters {
        /// The bridge
        bridge: String,
        /// Show statistics
        #[arg(long)]
        stats: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show the flow tables that are in use
    #[command(after_help = examples!("mswitch openflow tables br0"))]
    Tables {
        /// The bridge
        bridge: String,
        /// Show all tables
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show the OpenFlow numbers and states of ports
    #[command(after_help = examples!("mswitch openflow ports br0"))]
    Ports {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        output: Output,
    },
    /// Show controllers, sockets and the bridge's id
    #[command(after_help = examples!("mswitch openflow controllers br0"))]
    Controllers {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        output: Output,
    },
    /// Set controllers and their treatment; connections that stay are left as they are
    #[command(after_help = examples!(
        "mswitch openflow set br0 --controller tcp:127.0.0.1:6653 --fail-mode secure",
        "mswitch openflow set br0 --no-controllers --fail-mode standalone",
    ))]
    Set(OpenFlowSet),
    /// Add flows, all or none
    #[command(after_help = examples!(
        "mswitch openflow add-flow br0 arp,actions=FLOOD ip,nw_dst=10.0.0.2,actions=output:1",
        "echo 'priority=9,udp,actions=drop' | mswitch openflow add-flow br0 --file -",
    ))]
    AddFlow(Changes),
    /// Change the actions of flows
    #[command(after_help = examples!("mswitch openflow mod-flows br0 arp,actions=NORMAL"))]
    ModFlows {
        #[command(flatten)]
        changes: Changes,
        /// Only flows with exactly this match and priority
        #[arg(long)]
        strict: bool,
    },
    /// Delete flows; without a match all of them
    #[command(after_help = examples!(
        "mswitch openflow del-flows br0 udp",
        "mswitch openflow del-flows br0 && mswitch openflow add-flow br0 priority=0,actions=NORMAL",
    ))]
    DelFlows {
        #[command(flatten)]
        changes: Changes,
        /// Only the flow with exactly this match and priority
        #[arg(long)]
        strict: bool,
    },
    /// Replace all flows, all or none: those that are equal stay and keep their counters
    #[command(after_help = examples!(
        "mswitch openflow replace-flows br0 arp,actions=FLOOD ip,nw_dst=10.0.0.2,actions=output:1",
        "echo 'priority=0,actions=NORMAL' | mswitch openflow replace-flows br0 --file -",
    ))]
    ReplaceFlows(Changes),
    /// Compare the flows with wanted ones; exit code 1 if they differ
    #[command(after_help = examples!(
        "mswitch openflow diff-flows br0 priority=0,actions=NORMAL || echo 'others than NORMAL'",
    ))]
    DiffFlows(Changes),
    /// Send packets: `in_port=PORT packet=HEX actions=ACTIONS`; the port is the controller by default
    #[command(after_help = examples!(
        "mswitch openflow packet-out br0 'packet=ffffffffffff5254001234560806 actions=FLOOD'",
        "mswitch openflow packet-out br0 'in_port=1 packet=ffffffffffff5254001234560806 actions=TABLE'",
    ))]
    PacketOut(Changes),
    /// Add groups
    #[command(after_help = examples!(
        "mswitch openflow add-group br0 group_id=1,type=select,bucket=weight:2,output:1,bucket=output:2",
    ))]
    AddGroup(Changes),
    /// Replace the buckets of groups
    #[command(after_help = examples!("mswitch openflow mod-group br0 group_id=1,type=all,bucket=output:1"))]
    ModGroup(Changes),
    /// Add buckets to groups
    #[command(after_help = examples!(
        "mswitch openflow insert-buckets br0 group_id=1,bucket=bucket_id:7,output:2",
    ))]
    InsertBuckets(Changes),
    /// Remove buckets from groups
    #[command(after_help = examples!("mswitch openflow remove-buckets br0 group_id=1,command_bucket_id=7"))]
    RemoveBuckets(Changes),
    /// Delete groups, with the flows that use them; without an id all of them
    #[command(after_help = examples!("mswitch openflow del-groups br0 group_id=1"))]
    DelGroups(Changes),
    /// Add meters
    #[command(after_help = examples!("mswitch openflow add-meter br0 meter=1,kbps,bands=type=drop,rate=1000"))]
    AddMeter(Changes),
    /// Replace the bands of meters
    #[command(after_help = examples!("mswitch openflow mod-meter br0 meter=1,pktps,bands=type=drop,rate=500"))]
    ModMeter(Changes),
    /// Delete meters, with the flows that use them; without a number all of them
    #[command(after_help = examples!(
        "mswitch openflow del-meters br0 meter=1 && mswitch logic set br0 learning",
    ))]
    DelMeters(Changes),
}

#[derive(Debug, Args)]
pub(crate) struct FlowStats {
    /// Leave out what changes with packets and time
    #[arg(long)]
    pub(crate) no_stats: bool,
}

/// Changes of a bridge's flows, groups or meters.
#[derive(Debug, Args)]
pub(crate) struct Changes {
    /// The bridge
    pub(crate) bridge: String,
    /// Changes in the syntax of ovs-ofctl; the bridge makes all or none of them
    #[arg(value_name = "TEXT")]
    pub(crate) changes: Vec<String>,
    /// File with more of them, one a line, `#` before comments; - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("setting").required(true).multiple(true))]
pub(crate) struct OpenFlowSet {
    /// The bridge
    pub(crate) bridge: String,
    /// Controller, in place of all others: `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:PATH`, `ptcp:[PORT][:HOST]`,
    /// `pssl:[PORT][:HOST]` or `punix:PATH`; may be repeated
    #[arg(long = "controller", value_name = "TARGET", group = "setting")]
    pub(crate) controllers: Vec<String>,
    /// Remove all controllers
    #[arg(long, group = "setting", conflicts_with = "controllers")]
    pub(crate) no_controllers: bool,
    /// Behaviour without a controller: standalone or secure
    #[arg(long, value_name = "MODE", group = "setting")]
    pub(crate) fail_mode: Option<String>,
    /// Versions of OpenFlow, such as 1.0,1.3
    #[arg(long, value_name = "LIST", value_delimiter = ',', group = "setting")]
    pub(crate) versions: Vec<String>,
    /// The bridge's id for controllers: 16 hexadecimal digits
    #[arg(long, value_name = "ID", group = "setting")]
    pub(crate) datapath_id: Option<String>,
    /// File with the bridge's private key, for ssl: and pssl: controllers
    #[arg(long, value_name = "FILE", group = "setting")]
    pub(crate) private_key: Option<PathBuf>,
    /// File with the bridge's certificate
    #[arg(long, value_name = "FILE", group = "setting")]
    pub(crate) certificate: Option<PathBuf>,
    /// File with the certificates of the authorities that vouch for controllers
    #[arg(long, value_name = "FILE", group = "setting")]
    pub(crate) ca_cert: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("packets").required(true))]
#[command(after_help = examples!(
    "mswitch trace br0 --packet 'in_port=vm1,dl_vlan=10,tcp,nw_dst=10.0.0.2,tp_dst=80'",
    "mswitch trace br0 --port vm1 --packet 'Ether()/IP(dst=\"10.0.0.2\")/UDP(dport=53)'",
    "mswitch trace br0 --port vm1 --packet 'ffffffffffff 525400123456 0806'",
    "mswitch trace br0 --port host --live 3",
))]
pub(crate) struct TraceArgs {
    /// The bridge
    pub(crate) bridge: String,
    /// Ingress port; `in_port=PORT` in the packet names it too
    #[arg(long, required_unless_present = "packet")]
    pub(crate) port: Option<String>,
    /// Hypothetical packet: a flow as in `ovs-appctl ofproto/trace`, layers as in scapy, or hexadecimal digits
    #[arg(long, value_name = "PACKET", group = "packets")]
    pub(crate) packet: Option<String>,
    /// Trace the next N received packets
    #[arg(long, value_name = "N", group = "packets", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) live: Option<u32>,
    /// Print JSON, with --live one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = examples!(
    "mswitch capture br0 --count 3",
    "mswitch capture br0 --port host --direction in --filter 'arp or icmp' --count 2",
    "mswitch capture br0 --count 3 --write - | tshark -r -",
    "mswitch capture br0 --snaplen 64 --count 3 --write ring.pcapng --ring-size 100M --ring-files 10",
))]
pub(crate) struct CaptureArgs {
    /// The bridge
    pub(crate) bridge: String,
    /// Only packets at this port; may be repeated
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// Direction of the packets
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    pub(crate) direction: Direction,
    /// Only packets that match an expression in tcpdump's language (`man 7 pcap-filter`)
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Keep only the first bytes of each packet
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(crate) snaplen: Option<u32>,
    /// Stop after this many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Write pcapng to a file, or to standard output with -, instead of one line per packet
    #[arg(long, value_name = "FILE|-")]
    pub(crate) write: Option<PathBuf>,
    /// Start the next file at this size: bytes, or a number with K, M or G
    #[arg(long, value_name = "SIZE", requires_all = ["write", "ring_files"], value_parser = size)]
    pub(crate) ring_size: Option<u64>,
    /// Number of files, each named FILE with a number; the oldest is overwritten
    #[arg(long, value_name = "N", requires = "ring_size", value_parser = clap::value_parser!(u32).range(2..=9999))]
    pub(crate) ring_files: Option<u32>,
    /// Print one JSON object per line and packet
    #[arg(long, conflicts_with = "write")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the running configuration as a configuration file
    #[command(after_help = examples!("mswitch config show"))]
    Show {
        /// Include secrets
        #[arg(long)]
        secrets: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show the changes that applying a file would make
    ///
    /// Exit status as of diff(1): 0 without differences, 1 with differences, 2 on trouble.
    #[command(after_help = examples!(
        "mswitch config diff || mswitch config save",
        "mswitch config diff /etc/mswitch/mswitch.toml",
    ))]
    Diff {
        /// The file [default: the daemon's configuration file]
        file: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Print every mistake in a configuration file, or its number of bridges and ports; needs no daemon
    ///
    /// Directories, CPUs, users and modules in the file must exist. Sockets in the file must be free, or belong to the
    /// daemon behind the file's control socket (or --socket); the command connects to them to find out. Exit status 1
    /// with mistakes.
    #[command(after_help = examples!("mswitch config check /etc/mswitch/mswitch.toml"))]
    Check {
        /// The file
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Print the reference of every key, in Markdown; needs no daemon
    #[command(after_help = examples!("mswitch config reference"))]
    Reference,
    /// Make the switch match a file; unchanged objects keep their traffic
    #[command(after_help = examples!(
        "mswitch config apply --dry-run",
        "mswitch config apply /etc/mswitch/mswitch.toml",
    ))]
    Apply {
        /// The file [default: the daemon's configuration file]
        file: Option<PathBuf>,
        /// Only show the changes
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Save the running configuration, secrets included, to a file
    ///
    /// An existing file is edited in place: comments, order, owner and mode stay. A file with mistakes is rewritten. If
    /// the daemon's file has edits that were never applied, the running configuration replaces them, and the command
    /// lists them. In both cases the original is kept as FILE.bak. A new file is readable by its owner only.
    #[command(after_help = examples!("mswitch config save /etc/mswitch/saved.toml", "mswitch config save"))]
    Save {
        /// The file, relative to this command's working directory [default: the daemon's file]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only events of this bridge
    pub(crate) bridge: Option<String>,
    /// Only events of this kind, such as port-down; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print one JSON object per line and event
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Start with only the ports of this bridge
    pub(crate) bridge: Option<String>,
    /// Refresh interval in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(crate) interval: f64,
    /// Print one interval as text and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the interval as JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("expected KEY=VALUE".into()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1u64 << 10),
        Some(digits) if text.ends_with('M') => (digits, 1 << 20),
        Some(digits) => (digits, 1 << 30),
        None => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|size| *size >= 4096)
        .ok_or_else(|| "expected bytes, or a number with K, M or G; at least 4K".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=86_400.0).contains(seconds))
        .ok_or_else(|| "expected seconds, from 0.01 to 86400".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_commands_for_users_of_open_vswitch_exist() {
        let page = include_str!("../../../docs/from-open-vswitch.md");
        let lines: Vec<_> = page.split('`').filter(|code| code.starts_with("mswitch ")).collect();
        assert!(lines.len() > 30, "{lines:?}");
        for line in lines {
            let all = Cli::command();
            let mut command = &all;
            for word in line.split(' ').skip(1) {
                match word.strip_prefix("--") {
                    Some(flag) => {
                        let is_flag =
                            command.get_arguments().any(|argument| argument.get_long() == Some(flag));
                        assert!(is_flag, "{line}: there is no {word}");
                    }
                    None if command.has_subcommands() => {
                        command = command.find_subcommand(word).unwrap_or_else(|| panic!("{line}: {word}"));
                    }
                    None => {}
                }
            }
        }
    }

    #[test]
    fn flags_become_keys_of_the_file() {
        let line = "mswitch port add br0 vm1 --type memif --path /a.sock --id 3 --ring-size 512";
        let cli = Cli::parse_from(line.split(' '));
        let Command::Port(PortCommand::Add(add)) = cli.command else { panic!("{cli:?}") };
        let given = add.options.given();
        let given: Vec<_> = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(given, [("path", "/a.sock"), ("id", "3"), ("ring-size", "512")]);
        assert_eq!(cli.socket, None);
    }

    /// Returns the flags of `port add` that are options of a type, former flags included.
    fn flags() -> Vec<String> {
        let options = PortOptions::augment_args(clap::Command::new("options"));
        options.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn every_option_of_every_type_has_a_flag_of_the_same_name() {
        let own = |kind: &&str| {
            let common = control::keys::names(control::keys::PORT);
            let known = control::options::known(kind).unwrap_or_default();
            known.iter().filter(move |key| !common.contains(key)).map(|key| (*key).to_owned())
        };
        let options: std::collections::BTreeSet<String> = ports::Spec::TYPES.iter().flat_map(own).collect();
        let mut flags: std::collections::BTreeSet<String> = flags().into_iter().collect();
        assert!(flags.remove("address"), "the former name of `addresses`");
        assert_eq!(flags, options);

        // Each flag is passed on under its name.
        let line = ["mswitch", "port", "add", "b", "p", "--type", "t"].map(String::from);
        let values = flags.iter().flat_map(|flag| [format!("--{flag}"), "x".into()]);
        let cli = Cli::parse_from(line.into_iter().chain(values));
        let Command::Port(PortCommand::Add(add)) = cli.command else { panic!("{cli:?}") };
        let given: std::collections::BTreeSet<String> =
            add.options.given().into_iter().map(|(key, _)| key).collect();
        assert_eq!(given, flags);
    }

    /// Keys of a table of the file and flags of the command that sets them are the same.
    #[test]
    fn keys_and_flags_of_other_tables_agree() {
        let flags = |path: &[&str]| -> Vec<String> {
            let command = Cli::command();
            let command = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            shown.filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
        };
        for (keys, path, positional) in [
            (control::keys::SFLOW, &["sflow", "set"][..], &[][..]),
            (control::keys::MIRROR, &["mirror", "add"], &["name"]),
            (control::keys::STATION, &["fdb", "add"], &["mac"]),
            (control::keys::PORT, &["port", "add"], &["name"]),
        ] {
            let flags = flags(path);
            for key in control::keys::names(keys).into_iter().filter(|key| !positional.contains(key)) {
                assert!(flags.iter().any(|flag| flag == key), "{path:?} has no --{key}: {flags:?}");
            }
        }
    }
}
