//! The definition of the command line.
//!
//! A flag has the name of the key in the configuration file: `mtu = 1500` is `--mtu 1500`. So `--socket` is the
//! daemon's control socket everywhere, as in `[daemon]`, and the socket of a port is its `--path`. Former names are
//! accepted with a note and hidden from the help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::protection::Protection;

/// What a command's help ends with: lines of a shell that a test runs, in the order of the commands, beside a daemon
/// with the bridge `br0` and its ports `vm1` (memif), `host` (TAP) and a namespace `blue` (tests/examples.rs).
macro_rules! examples {
    ($($line:literal),+ $(,)?) => { concat!("Examples:", $("\n  ", $line),+) };
}

/// A modular software switch.
#[derive(Debug, Parser)]
#[command(name = "mswitch", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The daemon's control socket [default: /run/mswitch/mswitch.sock]
    #[arg(long, global = true, env = "MSWITCH_SOCKET", value_name = "PATH", hide_env_values = true)]
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
    /// Ports: what plugs into a bridge
    #[command(subcommand)]
    Port(PortCommand),
    /// Workers: the threads that switch
    #[command(subcommand)]
    Worker(WorkerCommand),
    /// Logics: what decides where packets go
    #[command(subcommand)]
    Logic(LogicCommand),
    /// MAC tables of learning bridges
    #[command(subcommand)]
    Fdb(FdbCommand),
    /// Mirrors: copies of what passes at ports
    #[command(subcommand)]
    Mirror(MirrorCommand),
    /// sFlow: samples of packets, and counters, for collectors
    #[command(subcommand)]
    Sflow(SflowCommand),
    /// Show packets as they pass, or record them
    Capture(CaptureArgs),
    /// Show what would become of a packet, or becomes of the next ones, and why
    Trace(TraceArgs),
    /// The configuration: running and saved
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show what happens, as it happens, until Ctrl-C
    #[command(after_help = examples!("mswitch events br0 --kind fdb-learned --count 1"))]
    Events(EventsArgs),
    /// Watch ports and workers live
    #[command(after_help = examples!(
        "mswitch top",
        "mswitch top br0 --interval 0.5",
        "mswitch top --once --json",
    ))]
    Top(TopArgs),
    /// Print a shell's completion script: commands, options, and names that the running daemon knows
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
        /// What the shell's script passes
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

/// Shells that completion is made for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// How to answer.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Print JSON, with the field names of proto/mswitch.proto
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// Configuration to start with
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run a worker on each of these CPUs, such as 0,2-3 [default: one worker, wherever the kernel puts it]
    #[arg(long, value_name = "CPULIST")]
    pub(crate) workers: Option<String>,
    /// Let workers poll for ever: the lowest latency, for all of their CPUs' time
    #[arg(long)]
    pub(crate) poll: bool,
    /// Serve metrics for Prometheus: ADDRESS:PORT, or a port alone for 127.0.0.1 [default: not served]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
}

/// A logic's parameters.
#[derive(Debug, Args)]
pub(crate) struct Params {
    /// Parameter of the logic; `mswitch logic list` shows which there are
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) params: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Add an empty bridge
    #[command(after_help = examples!(
        "mswitch bridge add br1",
        "mswitch bridge add br2 --logic learning --param ageing=60",
    ))]
    Add {
        /// Its name
        name: String,
        /// What decides where its packets go
        #[arg(long, default_value = control::model::DEFAULT_LOGIC)]
        logic: String,
        #[command(flatten)]
        params: Params,
    },
    /// Remove a bridge with its ports
    #[command(after_help = examples!("mswitch bridge del br2"))]
    Del {
        /// Its name
        name: String,
    },
    /// Show a bridge and its ports
    #[command(after_help = examples!("mswitch bridge show br0"))]
    Show {
        /// Its name
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
    /// Remove a port and what it opened
    #[command(after_help = examples!("mswitch port del br0 vm2"))]
    Del(PortName),
    /// Show all that is known of a port
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
        /// Those of this bridge only
        bridge: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Explain the reasons for drops that `port stats` shows; needs no daemon
    #[command(after_help = examples!("mswitch port reasons", "mswitch port reasons vlan"))]
    Reasons {
        /// This reason only
        reason: Option<String>,
        /// Print Markdown: docs/drops.md
        #[arg(long, conflicts_with_all = ["reason", "json"])]
        markdown: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show what ports have carried and dropped; `mswitch port reasons` explains the reasons for drops
    #[command(after_help = examples!(
        "mswitch port stats",
        "mswitch port stats br0 host --queues",
        "mswitch port stats --watch --count 2",
    ))]
    Stats(PortStats),
}

/// Whether traffic may pass.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Admin {
    Up,
    Down,
}

/// Settings that every port has.
#[derive(Debug, Args)]
pub(crate) struct PortSettings {
    /// Whether traffic may pass
    #[arg(long, value_enum)]
    pub(crate) admin: Option<Admin>,
    /// Largest packet in bytes without Ethernet header; 0: what the type allows
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// transparent, access:10, trunk:10,20-29 or trunk:all,native:1
    #[arg(long, value_name = "VLANS")]
    pub(crate) vlan: Option<String>,
    #[command(flatten)]
    pub(crate) protection: Protection,
}

impl PortSettings {
    /// Whether no setting is given.
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
    /// What it is: memif, tap, pcap, vhost-user or patch
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) settings: PortSettings,
    #[command(flatten)]
    pub(crate) options: PortOptions,
    /// Any option of the type by its name in the configuration file; lists with commas
    #[arg(long = "opt", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) others: Vec<(String, String)>,
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
    /// memif: what a client must present
    #[arg(long)]
    secret: Option<String>,
    /// memif, tap: queues in each direction; vhost-user: most queue pairs
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
    /// memif or vhost-user server, pcap: owner of that file
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// memif or vhost-user server, pcap: group of that file
    #[arg(long)]
    group: Option<String>,
    /// tap: name of the interface [default: the port's]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// tap: address of the host's end
    #[arg(long)]
    mac: Option<String>,
    /// tap: network namespace to put the interface into: name, path or pid:N
    #[arg(long)]
    netns: Option<String>,
    /// tap: IP addresses of the host's end, such as 10.0.0.1/24,fd00::1/64; may be repeated
    #[arg(long, value_name = "IP/BITS")]
    addresses: Vec<String>,
    #[arg(long = "address", hide = true)]
    former_address: Vec<String>,
    /// tap, vhost-user: whether large segments and partial checksums may cross: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    offloads: Option<String>,
    /// vhost-user: whether a packet may take several receive buffers: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    mergeable: Option<String>,
    /// vhost-user: whether packed rings are offered beside split ones: on or off [default: on]
    #[arg(long, value_name = "ON|OFF")]
    packed: Option<String>,
    /// vhost-user: most memory regions that a front-end may share [default: 32]
    #[arg(long, value_name = "N")]
    memory_slots: Option<String>,
    /// memif, vhost-user: memory of a client that the switch may allocate, such as 256MiB
    #[arg(long, value_name = "SIZE")]
    first_touch_limit: Option<String>,
    /// memif, vhost-user: longest time that the port refuses clients after repeated faults [default: 30]
    #[arg(long, value_name = "SECONDS")]
    hold_off: Option<String>,
    /// memif, vhost-user: messages of clients that are served a second [default: 1600]
    #[arg(long, value_name = "N")]
    message_rate: Option<String>,
    /// memif, vhost-user: most descriptors of clients that wait to be closed [default: 128]
    #[arg(long, value_name = "N")]
    unclosed_descriptors: Option<String>,
    /// pcap: file to replay into the switch, pcap or pcapng
    #[arg(long, value_name = "FILE")]
    read: Option<String>,
    /// pcap: how fast: recorded, 2x, full, 10000pps or 100Mbit [default: recorded]
    #[arg(long)]
    speed: Option<String>,
    /// pcap: how often, a number or forever [default: 1]
    #[arg(long = "loop", value_name = "N")]
    rounds: Option<String>,
    /// pcap: file to record to what the port is sent; continued if it is there
    #[arg(long, value_name = "FILE")]
    write: Option<String>,
    /// pcap: bytes of each frame to record [default: all]
    #[arg(long, value_name = "BYTES")]
    snaplen: Option<String>,
    /// patch: the patch port that it is connected to, which names this one
    #[arg(long, value_name = "BRIDGE/PORT")]
    peer: Option<String>,
}

impl PortOptions {
    /// The former flags that were given, each with its present name.
    pub(crate) fn former(&self) -> Vec<(&'static str, &'static str)> {
        if self.former_address.is_empty() { Vec::new() } else { vec![("--address", "--addresses")] }
    }

    /// The options that were given, by their keys in the file.
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
            ("offloads", self.offloads),
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
    /// Those of this bridge only
    pub(crate) bridge: Option<String>,
    /// This one only
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
    /// Show the workers: CPU, load, queues
    #[command(after_help = examples!("mswitch worker show", "mswitch worker show --interval 1"))]
    Show {
        /// Count over this many seconds from now instead of since the start
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        interval: Option<f64>,
        #[command(flatten)]
        output: Output,
    },
    /// Let the worker on a CPU serve a port's receive queue
    #[command(after_help = examples!("mswitch worker pin br0 host 0 0"))]
    Pin {
        #[command(flatten)]
        port: PortName,
        /// Number of the receive queue, from 0
        queue: u32,
        /// CPU of the worker
        cpu: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogicCommand {
    /// Replace a bridge's logic while traffic flows
    #[command(after_help = examples!(
        "mswitch logic set br0 static --param vm1=host",
        "mswitch logic set br0 learning --param ageing=60",
        "mswitch logic set br0 chain --param 1='static vm1=probe' --param 2='learning ageing=60'",
    ))]
    Set {
        /// The bridge
        bridge: String,
        /// The logic's name
        logic: String,
        #[command(flatten)]
        params: Params,
    },
    /// Show a bridge's logic: parameters, counters, tables, and what it can be asked to do
    #[command(after_help = examples!("mswitch logic show br0", "mswitch logic show br0 --table stations"))]
    Show {
        /// The bridge
        bridge: String,
        /// This table only, with all of its rows
        #[arg(long, value_name = "NAME")]
        table: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Have a bridge's logic do something; `mswitch logic show` lists what it can
    #[command(after_help = examples!("mswitch logic call br0 flush || mswitch logic show br0"))]
    Call {
        /// The bridge
        bridge: String,
        /// A command of the logic's and its arguments; after `--` they may begin with dashes
        #[arg(required = true)]
        command: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// List the logics that exist, with their parameters
    #[command(after_help = examples!("mswitch logic list", "mswitch logic list learning"))]
    List {
        /// This one only, such as learning, or what a file has, such as wasm:FILE
        name: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum FdbCommand {
    /// Show a bridge's MAC table
    #[command(after_help = examples!("mswitch fdb show br0"))]
    Show {
        /// The bridge
        bridge: String,
        #[command(flatten)]
        output: Output,
    },
    /// Forget learned addresses
    #[command(after_help = examples!("mswitch fdb flush br0", "mswitch fdb flush br0 --port host"))]
    Flush {
        /// The bridge
        bridge: String,
        /// Those behind this port only
        #[arg(long)]
        port: Option<String>,
    },
    /// Add an address that does not age or move
    #[command(after_help = examples!("mswitch fdb add br0 52:54:00:12:34:56 --port vm1 --vlan 10"))]
    Add {
        /// The bridge
        bridge: String,
        /// The address
        mac: String,
        /// The port that it is behind
        #[arg(long)]
        port: String,
        /// Its VLAN; 0: none [default: that of an access port, else none]
        #[arg(long)]
        vlan: Option<u32>,
    },
    /// Forget an address
    #[command(after_help = examples!("mswitch fdb del br0 52:54:00:12:34:56 --vlan 10"))]
    Del {
        /// The bridge
        bridge: String,
        /// The address
        mac: String,
        /// Only if it is behind this port
        #[arg(long)]
        port: Option<String>,
        /// Its VLAN; 0: none
        #[arg(long, default_value_t = 0)]
        vlan: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SflowCommand {
    /// Switch sFlow export on, or change it while it runs; what is not named stays
    #[command(after_help = examples!(
        "mswitch sflow set --collectors 192.0.2.9,[2001:db8::9]:6344",
        "mswitch sflow set --sampling 400 --polling 30 --header 64",
        "mswitch sflow set --agent 192.0.2.1",
    ))]
    Set {
        /// Receivers of datagrams, ADDRESS or ADDRESS:PORT; may be repeated. Replaces the present ones
        #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
        collectors: Vec<String>,
        #[arg(long = "collector", hide = true)]
        former_collector: Vec<String>,
        /// IP address that collectors know this switch by; auto: the one that datagrams go out from
        #[arg(long, value_name = "ADDRESS")]
        agent: Option<String>,
        /// Sample one packet in so many [default: 1000]
        #[arg(long, value_name = "N")]
        sampling: Option<u32>,
        /// Send ports' counters this often; 0: never [default: 20]
        #[arg(long, value_name = "SECONDS")]
        polling: Option<u32>,
        /// Bytes of a packet that its sample holds, 14 to 512 [default: 128]
        #[arg(long, value_name = "BYTES")]
        header: Option<u32>,
    },
    /// Show settings, what was sent, and what ports are called
    #[command(after_help = examples!("mswitch sflow show", "mswitch sflow show --json | jq .samples"))]
    Show(Output),
    /// Switch sFlow export off
    #[command(after_help = examples!("mswitch sflow off"))]
    Off,
}

/// Which way packets go, seen from the switch.
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
    /// Its name in the configuration.
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
    /// Copy what passes at ports to another port
    #[command(after_help = examples!(
        "mswitch mirror add br0 watch --from host --to vm1",
        "mswitch mirror add br0 remote --from host --direction in --to vm1 --vlan 999",
    ))]
    Add {
        /// The bridge
        bridge: String,
        /// The mirror's name
        name: String,
        /// Copy the packets of these ports; may be repeated [default: all ports but the one copied to]
        #[arg(long, value_name = "PORT", value_delimiter = ',')]
        from: Vec<String>,
        /// Copy packets that come from the ports' clients, that go to them, or both
        #[arg(long, value_enum, default_value_t = Direction::Both)]
        direction: Direction,
        /// The port that gets the copies, and nothing else unless they are tagged
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
    /// List mirrors and what they have copied
    #[command(after_help = examples!("mswitch mirror list"))]
    List {
        /// Those of this bridge only
        bridge: Option<String>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
#[command(after_help = examples!(
    "mswitch trace br0 --packet 'in_port=vm1,dl_vlan=10,tcp,nw_dst=10.0.0.2,tp_dst=80'",
    "mswitch trace br0 --port vm1 --packet 'Ether()/IP(dst=\"10.0.0.2\")/UDP(dport=53)'",
    "mswitch trace br0 --port vm1 --packet 'ffffffffffff 525400123456 0806'",
    "mswitch trace br0 --port host --live 3",
))]
pub(crate) struct TraceArgs {
    /// The bridge
    pub(crate) bridge: String,
    /// The port that the packet comes from; `in_port=PORT` in the packet says it as well
    #[arg(long, required_unless_present = "packet")]
    pub(crate) port: Option<String>,
    /// This packet, which is not sent: a flow as in `ovs-appctl ofproto/trace`, layers as in scapy, or hexadecimal digits
    #[arg(long, value_name = "PACKET", group = "what")]
    pub(crate) packet: Option<String>,
    /// The next packets that come, this many
    #[arg(long, value_name = "N", group = "what", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) live: Option<u32>,
    /// Print JSON; of a live trace, an object a line
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
    /// At this port only; may be repeated
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// Packets that come from clients, that go to them, or both
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    pub(crate) direction: Direction,
    /// Only packets that match, in tcpdump's language (`man 7 pcap-filter`)
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) filter: Option<String>,
    /// Keep only the first bytes of each packet
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(crate) snaplen: Option<u32>,
    /// Stop after this many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Write pcapng to a file, or with - to standard output, instead of a line for each packet
    #[arg(long, value_name = "FILE|-")]
    pub(crate) write: Option<PathBuf>,
    /// Begin another file when one has reached this size: bytes, or with K, M or G
    #[arg(long, value_name = "SIZE", requires_all = ["write", "ring_files"], value_parser = size)]
    pub(crate) ring_size: Option<u64>,
    /// Keep this many files, FILE with a number in its name; then overwrite the oldest
    #[arg(long, value_name = "N", requires = "ring_size", value_parser = clap::value_parser!(u32).range(2..=9999))]
    pub(crate) ring_files: Option<u32>,
    /// Print a JSON object for each packet, a line each
    #[arg(long, conflicts_with = "write")]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the running configuration, as a file would say it
    #[command(after_help = examples!("mswitch config show"))]
    Show {
        /// Show secrets, too
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
        /// The file [default: the one that the daemon was started with]
        file: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    /// Print every mistake in a configuration file, or its number of bridges and ports; needs no daemon
    ///
    /// Directories, CPUs, users and modules that the file names must exist. Sockets that it names must be free, or
    /// belong to the daemon behind the file's control socket (or --socket); the command connects to them to find out.
    /// Exit status 1 with mistakes.
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
    /// Make the switch match a file; objects that do not change are left alone
    #[command(after_help = examples!(
        "mswitch config apply /etc/mswitch/mswitch.toml --dry-run",
        "mswitch config apply /etc/mswitch/mswitch.toml",
    ))]
    Apply {
        /// The file
        file: PathBuf,
        /// Only show the changes
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Save the running configuration, secrets included, to a file
    ///
    /// An existing file is edited: its comments, order, owner and mode stay. A file with mistakes is written anew, and
    /// the old one is kept as FILE.bak. A new file is readable by its owner only.
    #[command(after_help = examples!("mswitch config save /etc/mswitch/saved.toml", "mswitch config save"))]
    Save {
        /// The file, relative to the working directory of this command [default: the daemon's]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Those of this bridge only
    pub(crate) bridge: Option<String>,
    /// Of this kind only, such as port-down; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// Stop after so many events
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print JSON, an event a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Ports of this bridge only, to begin with
    pub(crate) bridge: Option<String>,
    /// Refresh interval in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(crate) interval: f64,
    /// Print one interval as text and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print that interval as JSON
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
    fn flags_become_the_names_of_the_file() {
        let line = "mswitch port add br0 vm1 --type memif --path /a.sock --id 3 --ring-size 512";
        let cli = Cli::parse_from(line.split(' '));
        let Command::Port(PortCommand::Add(add)) = cli.command else { panic!("{cli:?}") };
        let given = add.options.given();
        let given: Vec<_> = given.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(given, [("path", "/a.sock"), ("id", "3"), ("ring-size", "512")]);
        assert_eq!(cli.socket, None);
    }

    /// The flags of `port add` that are options of a type, the former ones included.
    fn flags() -> Vec<String> {
        let options = PortOptions::augment_args(clap::Command::new("options"));
        options.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn every_option_of_every_type_has_the_flag_of_its_name() {
        let own = |kind: &&str| {
            let common = control::keys::names(control::keys::PORT);
            let known = control::options::known(kind).unwrap_or_default();
            known.iter().filter(move |key| !common.contains(key)).map(|key| (*key).to_owned())
        };
        let options: std::collections::BTreeSet<String> = ports::Spec::TYPES.iter().flat_map(own).collect();
        let mut flags: std::collections::BTreeSet<String> = flags().into_iter().collect();
        assert!(flags.remove("address"), "the former name of `addresses`");
        assert_eq!(flags, options);

        // Each flag is handed on under its name.
        let line = ["mswitch", "port", "add", "b", "p", "--type", "t"].map(String::from);
        let values = flags.iter().flat_map(|flag| [format!("--{flag}"), "x".into()]);
        let cli = Cli::parse_from(line.into_iter().chain(values));
        let Command::Port(PortCommand::Add(add)) = cli.command else { panic!("{cli:?}") };
        let given: std::collections::BTreeSet<String> =
            add.options.given().into_iter().map(|(key, _)| key).collect();
        assert_eq!(given, flags);
    }

    /// The keys of a table of the file and the flags of the command that sets them.
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
