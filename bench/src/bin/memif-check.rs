//! `memif-check`: memif and vhost-user clients that load a switch and verify its behaviour. See `memif-check --help`.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::cpu::process_time;
use bench::host::Address;
use bench::idle::Idle;
use bench::pace::Rate;
use bench::packet::Headers;
use bench::port::{Error, PortSpec, Rings};
use bench::session::{Options, Session, Traffic};
use bench::shape::{Segments, Sizes};
use clap::{Args, Parser, Subcommand, ValueEnum};
use packet::MacAddr;

/// Memif and vhost-user clients that load a switch and verify its behaviour.
///
/// Exit codes: 0 success, 1 verification failed or the run ended with an error, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "memif-check", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send numbered packets between ports and verify each packet that arrives.
    Run(Run),
    /// Return every packet with source and destination address swapped, until the switch disconnects.
    Echo {
        /// The port.
        #[arg(long)]
        port: PortSpec,
        #[command(flatten)]
        rings: RingArgs,
    },
    /// Act as a small IP host that answers pings and echoes TCP port 7, until the switch disconnects.
    Host {
        /// The port.
        #[arg(long)]
        port: PortSpec,
        /// An address of the host, with the prefix length of its network.
        #[arg(long, required = true)]
        address: Vec<Address>,
        /// The longest IP packet that the host accepts.
        #[arg(long, default_value_t = 1500)]
        mtu: usize,
        #[command(flatten)]
        rings: RingArgs,
    },
    /// Connect many clients that stay idle.
    Idle {
        /// The first interface; the others have the ids after it.
        #[arg(long)]
        port: PortSpec,
        /// Number of clients.
        #[arg(long, default_value_t = 1024)]
        count: u32,
        /// Duration in seconds.
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        /// Report the CPU time that this process, the switch, uses meanwhile.
        #[arg(long)]
        watch: Option<u32>,
        #[command(flatten)]
        rings: RingArgs,
    },
}

#[derive(Debug, Clone, Copy, Args)]
struct RingArgs {
    /// Number of rings in each direction.
    #[arg(long, default_value_t = 1)]
    queues: u16,
    /// Number of descriptors of each ring, as a power of two.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=14))]
    log2_ring_size: u8,
    /// Size of each buffer in bytes; vhost-user: of receive buffers that are merged.
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    buffer_size: u32,
}

impl From<RingArgs> for Rings {
    fn from(args: RingArgs) -> Rings {
        Rings { queues: args.queues, log2_size: args.log2_ring_size, buffer_size: args.buffer_size }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Direction {
    /// Ports 0 and 1 to each other, 2 and 3, and so on.
    Both,
    /// Port 0 to port 1, 2 to 3, and so on.
    Forward,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum HeaderArg {
    /// IPv4 and UDP: a hash can tell flows apart.
    Udp,
    /// An EtherType for experiments.
    Ethernet,
}

#[derive(Debug, Args)]
struct Run {
    /// A port: `SOCKET[,id=NUMBER][,secret=TEXT][,mac=ADDRESS]` (memif) or
    /// `vhost-user:SOCKET[,packed][,mergeable][,indirect][,event-idx][,in-order][,mac=ADDRESS]`. Two or more, in pairs.
    #[arg(long, required = true)]
    port: Vec<PortSpec>,
    #[command(flatten)]
    rings: RingArgs,
    /// Sending ports.
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    direction: Direction,
    /// Send to this address instead; its owner returns every packet with the addresses swapped.
    #[arg(long)]
    reflector: Option<MacAddr>,
    /// Headers before the payload.
    #[arg(long, value_enum, default_value_t = HeaderArg::Udp)]
    headers: HeaderArg,
    /// Packet lengths in bytes: a list of lengths and ranges, drawn at random.
    #[arg(long, default_value = "64")]
    size: Sizes,
    /// Segments of a packet: a number or a range, divided at random places.
    #[arg(long, default_value = "1")]
    segments: Segments,
    /// Number of flows in each direction.
    #[arg(long, default_value_t = 4)]
    flows: u16,
    /// Packets per second of each sending port; `max`; or `half` of the rate measured with `max`.
    #[arg(long, default_value = "1000")]
    rate: Rate,
    /// Duration in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Skip the ports' announcements, so that the switch floods at first.
    #[arg(long)]
    no_announce: bool,
    /// Accept loss, for tests at saturation.
    #[arg(long)]
    allow_loss: bool,
    /// Poll when idle, instead of sleeping.
    #[arg(long)]
    poll: bool,
    /// CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Seed for random sizes and segments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Run {
    fn options(&self) -> Result<Options, Error> {
        Ok(Options {
            ports: self.port.clone(),
            rings: self.rings.into(),
            traffic: match (self.reflector, self.direction) {
                (Some(mac), _) => Traffic::Reflected(mac),
                (None, Direction::Both) => Traffic::Pairs,
                (None, Direction::Forward) => Traffic::OneWay,
            },
            headers: match self.headers {
                HeaderArg::Udp => Headers::Udp,
                HeaderArg::Ethernet => Headers::Ethernet,
            },
            sizes: self.size.clone(),
            segments: self.segments,
            flows: self.flows,
            rate: self.rate,
            duration: seconds(self.seconds)?,
            least: 0,
            announce: !self.no_announce,
            allow_loss: self.allow_loss,
            poll: self.poll,
            cpu: self.cpu,
            seed: self.seed,
        })
    }
}

fn seconds(seconds: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds).map_err(|e| Error::Options(format!("{seconds} seconds: {e}")))
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("memif-check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Time for the switch to settle after clients have connected.
const SETTLE: Duration = Duration::from_secs(2);

fn cpu_time(pid: u32) -> Result<Duration, Error> {
    process_time(pid)
        .map_err(|source| Error::System { operation: "cannot read the process's CPU time", source })
}

/// Runs a command; returns whether verification succeeded.
fn execute(command: Command) -> Result<bool, Error> {
    let never = AtomicBool::new(false);
    match command {
        Command::Run(run) => {
            let report = Session::connect(run.options()?)?.run(&never)?;
            if run.json {
                let text = serde_json::to_string(&report);
                println!("{}", text.map_err(|e| Error::Options(e.to_string()))?);
            } else {
                println!("{report}");
            }
            Ok(report.ok)
        }
        Command::Echo { port, rings } => until_gone(bench::echo::echo(&port, rings.into(), &never).map(drop)),
        Command::Host { port, address, mtu, rings } => {
            until_gone(bench::host::serve(&port, rings.into(), &address, mtu, &never).map(drop))
        }
        Command::Idle { port, count, seconds: wanted, watch, rings } => {
            let duration = seconds(wanted)?;
            let mut idle = Idle::connect(&port, count, rings.into())?;
            println!("{count} clients are connected");
            // Work caused by connecting may continue for a moment.
            idle.hold(SETTLE)?;
            let before = watch.map(cpu_time).transpose()?;
            idle.hold(duration)?;
            if let (Some(before), Some(pid)) = (before, watch) {
                println!("CPU time: {} ns", (cpu_time(pid)? - before).as_nanos());
                // An observer may query the switch before it is busy with disconnecting clients.
                idle.hold(SETTLE)?;
            }
            Ok(true)
        }
    }
}

/// A client that serves until the switch disconnects has succeeded.
fn until_gone(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Err(Error::Disconnected { reason, .. }) => {
            println!("disconnected: {reason}");
            Ok(true)
        }
        other => other.map(|()| true),
    }
}
