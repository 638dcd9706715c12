//! `memif-check`: memif and vhost-user clients that load a switch and verify what it does. See `memif-check --help`.

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

/// Memif and vhost-user clients that load a switch and verify what it does.
///
/// Exit codes: 0 all as it should be, 1 something was not, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "memif-check", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send numbered packets between ports and verify each that arrives.
    Run(Run),
    /// Send every packet back with source and destination address swapped, until the switch goes away.
    Echo {
        /// The port.
        #[arg(long)]
        port: PortSpec,
        #[command(flatten)]
        rings: RingArgs,
    },
    /// Be a small IP host: answer pings, send back what comes over TCP port 7; until the switch goes away.
    Host {
        /// The port.
        #[arg(long)]
        port: PortSpec,
        /// An address of the host, with the length of its network's prefix.
        #[arg(long, required = true)]
        address: Vec<Address>,
        /// The longest IP packet that the host takes.
        #[arg(long, default_value_t = 1500)]
        mtu: usize,
        #[command(flatten)]
        rings: RingArgs,
    },
    /// Connect many clients that then do nothing.
    Idle {
        /// The first interface; the others have the ids after it.
        #[arg(long)]
        port: PortSpec,
        /// How many.
        #[arg(long, default_value_t = 1024)]
        count: u32,
        /// For how many seconds.
        #[arg(long, default_value_t = 30.0)]
        seconds: f64,
        /// Tell how much CPU time this process uses meanwhile: the switch's.
        #[arg(long)]
        watch: Option<u32>,
        #[command(flatten)]
        rings: RingArgs,
    },
}

#[derive(Debug, Clone, Copy, Args)]
struct RingArgs {
    /// Rings in each direction.
    #[arg(long, default_value_t = 1)]
    queues: u16,
    /// Descriptors of each ring, as a power of two.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=14))]
    log2_ring_size: u8,
    /// Bytes of each buffer; vhost-user: of receive buffers that are merged.
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
    /// IPv4 and UDP: flows can be told apart by a hash.
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
    /// Who sends.
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    direction: Direction,
    /// Send to this address instead, whose owner sends everything back with the addresses swapped.
    #[arg(long)]
    reflector: Option<MacAddr>,
    /// Headers before the payload.
    #[arg(long, value_enum, default_value_t = HeaderArg::Udp)]
    headers: HeaderArg,
    /// Packet lengths in bytes: lengths and ranges, drawn at random.
    #[arg(long, default_value = "64")]
    size: Sizes,
    /// Segments of a packet: a number or a range, cut at random places.
    #[arg(long, default_value = "1")]
    segments: Segments,
    /// Flows in each direction.
    #[arg(long, default_value_t = 4)]
    flows: u16,
    /// Packets a second of each sending port; `max`; or `half`, of what `max` gives.
    #[arg(long, default_value = "1000")]
    rate: Rate,
    /// For how many seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Do not let ports announce themselves first: the switch will flood.
    #[arg(long)]
    no_announce: bool,
    /// Loss is no failure: for tests at saturation.
    #[arg(long)]
    allow_loss: bool,
    /// Poll instead of sleeping when there is nothing to do.
    #[arg(long)]
    poll: bool,
    /// The CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// What sizes and cuts are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Report as JSON.
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

/// How long a switch may be busy with clients that have just connected.
const SETTLE: Duration = Duration::from_secs(2);

fn cpu_time(pid: u32) -> Result<Duration, Error> {
    process_time(pid).map_err(|source| Error::System { what: "cannot tell the process's CPU time", source })
}

/// Whether all was as it should be.
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
            // What connecting has set off may go on for a moment.
            idle.hold(SETTLE)?;
            let before = watch.map(cpu_time).transpose()?;
            idle.hold(duration)?;
            if let (Some(before), Some(pid)) = (before, watch) {
                println!("CPU time: {} ns", (cpu_time(pid)? - before).as_nanos());
                // Who watches may want to look at the switch before it is busy with clients that leave.
                idle.hold(SETTLE)?;
            }
            Ok(true)
        }
    }
}

/// A client that serves until the switch goes away has done what it should.
fn until_gone(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Err(Error::Disconnected { reason, .. }) => {
            println!("disconnected: {reason}");
            Ok(true)
        }
        other => other.map(|()| true),
    }
}
