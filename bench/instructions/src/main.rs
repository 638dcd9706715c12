//! `mswitch-instructions`: one worker between two memif ports, for bench/instructions.sh to run under callgrind.
//!
//! ```text
//! mswitch-instructions cases             prints the names of all cases
//! mswitch-instructions run CASE ROUNDS   switches PACKETS_PER_ROUND packets a round, and prints their total
//! mswitch-instructions cycles CASE ROUNDS    the same without callgrind, and prints the worker's cycles per packet
//! ```
//!
//! The clients run in a separate process, which callgrind does not follow. They publish a whole ring of packets at once
//! and then wait until all have arrived, so every batch is full and the worker polls empty rings once in 16,384
//! packets. Other work (start, handshakes, sleep) does not depend on the number of rounds, or too little to matter: the
//! difference of two runs is the cost of the additional rounds.

use std::error::Error;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fabric::protection::{EgressLimits, Limit, QueueLimits, Scheme, Unit, Waiting};
use fabric::rx::BatchLimits;
use fabric::worker::Pace;
use fabric::{Interest, Observer, PortIndex, PortSettings, Sightings, Switch, SwitchLogic, SwitchOptions};
use logic::{Learning, StaticPairs};
use memif::client::{Client, ClientConfig};
use memif::socket::Address;
use metering::{Detail, Meter, Scope};
use ports::{Environment, Spec};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Entries of a ring, as a power of two.
const LOG2_RING: u8 = 14;
/// Packets published to the switch at once: a whole ring.
const FILL: u64 = 1 << LOG2_RING;
/// A fill in either direction.
const PACKETS_PER_ROUND: u64 = 2 * FILL;
/// Time allowed for a fill; it takes a second under callgrind.
const FILL_TIMEOUT: Duration = Duration::from_secs(60);
/// Length of a packet in bytes.
const PACKET: usize = 64;

/// A case to measure.
struct Case {
    name: &'static str,
    logic: fn() -> Result<Arc<dyn SwitchLogic>>,
    /// Packets per batch.
    batch: usize,
    /// Stations behind each port, which send and receive in turn.
    stations: u16,
    extra: Extra,
}

/// What a case has besides its logic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extra {
    Nothing,
    /// An observer at a third port, which carries none of the packets.
    Observer,
    /// A limit of what leaves each port, never reached, with a queue that is guaranteed a part.
    Limits,
    /// Classes at each port, where no packet has to wait.
    Classes,
    /// Classes at each port, where all packets wait.
    Waiting,
    /// NetFlow counts the packets, which are of UDP then.
    NetFlow,
}

const CASES: [Case; 9] = [
    Case { name: "learning", logic: learning, batch: 64, stations: 1, extra: Extra::Nothing },
    Case { name: "learning, batches of 8", logic: learning, batch: 8, stations: 1, extra: Extra::Nothing },
    Case { name: "learning, 64 stations", logic: learning, batch: 64, stations: 64, extra: Extra::Nothing },
    Case { name: "static", logic: pairs, batch: 64, stations: 1, extra: Extra::Nothing },
    Case {
        name: "static, another port observed",
        logic: pairs,
        batch: 64,
        stations: 1,
        extra: Extra::Observer,
    },
    Case { name: "static, ports limited", logic: pairs, batch: 64, stations: 1, extra: Extra::Limits },
    Case { name: "static, classes", logic: pairs, batch: 64, stations: 1, extra: Extra::Classes },
    Case { name: "static, packets wait", logic: pairs, batch: 64, stations: 1, extra: Extra::Waiting },
    Case { name: "static, NetFlow", logic: pairs, batch: 64, stations: 1, extra: Extra::NetFlow },
];

/// Observes all packets of port c, as a capture does.
struct PortCObserver;

impl Observer for PortCObserver {
    fn interest(&self, _: PortIndex, name: &str) -> Interest {
        let wanted = name == "c";
        Interest { received: wanted, sent: wanted, explained: false }
    }

    fn observe(&self, _: usize, _: &Sightings<'_>) {}
}

fn learning() -> Result<Arc<dyn SwitchLogic>> {
    Ok(Arc::new(Learning::new(&[])?))
}

fn pairs() -> Result<Arc<dyn SwitchLogic>> {
    Ok(Arc::new(StaticPairs::new(&[("a".into(), "b".into())])?))
}

/// A rate that a worker does not reach.
fn limits() -> Arc<EgressLimits> {
    let limit = |rate| Limit { unit: Unit::Bits, rate, burst: None };
    let queue = QueueLimits { guarantee: Some(limit(12_000)), ..QueueLimits::default() };
    let scheme = Scheme::Shares { total: Some(limit(1_000_000_000_000)) };
    Arc::new(EgressLimits { scheme, queues: [(0, queue)].into(), waiting: None })
}

/// Eight classes in strict order, at a rate that a worker does not reach, with this burst.
fn classes(burst: Option<u64>) -> Arc<EgressLimits> {
    let of = |class: u16| QueueLimits { priority: (7 - class).into(), ..QueueLimits::default() };
    let total = Limit { unit: Unit::Bits, rate: 100_000_000_000, burst };
    let queues = (0..8).map(|class| (class, of(class))).collect();
    let scheme = Scheme::Shares { total: Some(total) };
    Arc::new(EgressLimits { scheme, queues, waiting: Some(Waiting::default()) })
}

/// Switches this many rounds of a case. Returns the packets, and the worker's cycles on batches that held some.
fn run(case: &Case, rounds: u64) -> Result<(u64, u64)> {
    let batch = BatchLimits { packets: case.batch, ..BatchLimits::default() };
    // Under valgrind each batch takes long. Without rests, the worker does not poll through the pauses between fills
    // either: how often it polls depends on the clock, and is no cost of a packet.
    let pace = Pace { turn: Duration::MAX, rest: Duration::ZERO, ..Pace::default() };
    let switch = Arc::new(Switch::start(&SwitchOptions { batch, pace, ..SwitchOptions::default() })?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let env = Environment::new(switch.clone(), runtime.handle().clone());
    let bridge = switch.add_bridge("br0", (case.logic)()?)?;
    // A socket in the abstract namespace needs no removal.
    let socket = format!("@mswitch-instructions-{}", std::process::id());
    let mut open = Vec::new();
    for (id, name) in [(0, "a"), (1, "b")] {
        let egress = match case.extra {
            Extra::Limits => Some(limits()),
            Extra::Classes => Some(classes(None)),
            // A byte less than a batch: it does not pass at once, but in one go from its queue.
            Extra::Waiting => Some(classes(Some((case.batch * PACKET) as u64 - 1))),
            Extra::Nothing | Extra::Observer | Extra::NetFlow => None,
        };
        let at = switch.add_port(bridge, PortSettings { egress, ..PortSettings::new(name) })?;
        let options = serde_json::from_value(json!({ "path": socket, "id": id }))?;
        open.push(ports::open(&Spec::Memif(options), at, &env)?);
    }
    if case.extra == Extra::Observer {
        switch.add_port(bridge, PortSettings::new("c"))?;
        switch.observe(bridge, Arc::new(PortCObserver))?;
    }
    if case.extra == Extra::NetFlow {
        let scope = Scope { detail: Detail::Ipv4, input: true, output: false };
        switch.observe(bridge, Arc::new(Meter::new(scope, 1, true)))?;
    }
    let (up, ups) = mpsc::channel();
    switch.on_link(Box::new(move |change| up.send(change.up).unwrap_or_default()));
    let mut clients = Command::new(std::env::current_exe()?)
        .args([
            "clients",
            &socket,
            &case.stations.to_string(),
            &rounds.to_string(),
            &(case.extra == Extra::NetFlow).to_string(),
        ])
        .stdin(Stdio::piped())
        .spawn()?;
    // Clients may be connected before their queues are attached; packets sent before that would be lost.
    let attached = open.iter().all(|_| ups.recv_timeout(FILL_TIMEOUT) == Ok(true));
    drop(clients.stdin.take());
    if !clients.wait()?.success() || !attached {
        return Err("the clients failed".into());
    }
    let worker = switch.workers().into_iter().next().ok_or("no worker")?.counters;
    let expected = rounds * PACKETS_PER_ROUND;
    if case.extra == Extra::Waiting {
        // Each packet is taken twice: by the worker, and from its class. In how many batches depends on the clock.
        if worker.packets != 2 * expected {
            return Err(format!("{} packets, expected {}", worker.packets, 2 * expected).into());
        }
    } else if worker.packets != expected || worker.batches != expected / case.batch as u64 {
        return Err(format!(
            "{} packets in {} batches, expected {expected} in batches of {}",
            worker.packets, worker.batches, case.batch
        )
        .into());
    }
    open.iter().for_each(|port| port.close());
    Ok((expected, worker.busy_cycles))
}

/// Makes a packet from a station to the station of the same number on the other side. Sides are 0 and 1.
fn packet(from: u8, to: u8, station: u16, udp: bool) -> [u8; PACKET] {
    let mut packet = [0x5a; PACKET];
    let [high, low] = station.to_be_bytes();
    packet[..12].copy_from_slice(&[2, 0, 0, to, high, low, 2, 0, 0, from, high, low]);
    // IEEE 802.1 local experimental: no parsing beyond the type.
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    if udp {
        // IPv4, of 50 bytes, from 10.0.0.1 to 10.0.0.2; ports as they are.
        let ipv4 = [0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet[12..14].copy_from_slice(&[0x08, 0x00]);
        packet[14..34].copy_from_slice(&ipv4);
    }
    packet
}

/// Runs the clients of both ports. Starts when standard input ends.
fn clients(socket: &str, stations: u16, rounds: u64, udp: bool) -> Result<()> {
    let connect = |id| {
        let mut config = ClientConfig::new(Address::new(socket), id);
        config.log2_ring_size = LOG2_RING;
        config.buffer_size = 128;
        config.timeout = FILL_TIMEOUT;
        Client::connect(&config)
    };
    let (mut a, mut b) = (connect(0)?, connect(1)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for _ in 0..rounds {
        send(&mut a, &mut b, (0, 1), stations, udp)?;
        send(&mut b, &mut a, (1, 0), stations, udp)?;
    }
    Ok(())
}

/// Sends a ring full of packets, and receives them on the other side.
fn send(
    source: &mut Client,
    sink: &mut Client,
    (from, to): (u8, u8),
    stations: u16,
    udp: bool,
) -> Result<()> {
    let (Some(tx), Some(rx)) = (source.tx.first_mut(), sink.rx.first_mut()) else {
        return Err("a client has no rings".into());
    };
    for i in 0..FILL as u16 {
        if !tx.push(&[&packet(from, to, i % stations, udp)]) {
            return Err("the switch left earlier packets in the ring".into());
        }
    }
    tx.flush();
    let deadline = Instant::now() + FILL_TIMEOUT;
    let (mut arrived, mut taken) = (0, Vec::new());
    while arrived < FILL {
        if rx.pop(&mut taken) {
            if taken != packet(from, to, (arrived % u64::from(stations)) as u16, udp) {
                return Err(format!("packet {arrived} of a ring differs from the packet sent").into());
            }
            arrived += 1;
        } else if Instant::now() > deadline {
            return Err(format!("{arrived} of {FILL} packets arrived").into());
        } else {
            // Polling with sleeps: signals would add to the worker's instructions.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    rx.refill();
    Ok(())
}

fn named(name: &str) -> Result<&'static Case> {
    CASES.iter().find(|case| case.name == name).ok_or_else(|| format!("no case {name:?}").into())
}

fn start() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cases"] => CASES.iter().for_each(|case| println!("{}", case.name)),
        ["run", name, rounds] => {
            println!("{}", run(named(name)?, rounds.parse()?)?.0);
        }
        ["cycles", name, rounds] => {
            let (packets, cycles) = run(named(name)?, rounds.parse()?)?;
            println!("{:.2}", cycles as f64 / packets as f64);
        }
        ["clients", socket, stations, rounds, udp] => {
            clients(socket, stations.parse()?, rounds.parse()?, udp.parse()?)?;
        }
        _ => return Err("usage: mswitch-instructions cases | run CASE ROUNDS | cycles CASE ROUNDS".into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mswitch-instructions: {error}");
            ExitCode::FAILURE
        }
    }
}
