//! `mswitch-instructions`: one worker between two memif ports, for bench/instructions.sh to run under callgrind.
//!
//! ```text
//! mswitch-instructions cases             the names of all cases
//! mswitch-instructions run CASE ROUNDS   switches PACKETS_PER_ROUND packets a round, and prints how many in all
//! ```
//!
//! The clients are a process of their own, which callgrind does not follow. They show a whole ring of packets at once and then
//! wait until all have arrived, so that every batch is full and the worker looks at empty rings once in 16,384 packets. What
//! is left beside the worker's way (start, handshakes, sleep) does not depend on the number of rounds, or too little to matter:
//! the difference of two runs is the cost of the rounds between them.

use std::error::Error;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fabric::rx::BatchLimits;
use fabric::{Interest, Observer, PortIndex, PortSettings, Sightings, Switch, SwitchLogic, SwitchOptions};
use logic::{Learning, StaticPairs};
use memif::client::{Client, ClientConfig};
use memif::socket::Address;
use ports::{Environment, Spec};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Entries of a ring, as a power of two.
const LOG2_RING: u8 = 14;
/// Packets shown to the switch at once: a ring of them.
const FILL: u64 = 1 << LOG2_RING;
/// A fill in either direction.
const PACKETS_PER_ROUND: u64 = 2 * FILL;
/// Time that a fill may take; it takes a second under callgrind.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a packet.
const PACKET: usize = 64;

/// Something to count.
struct Case {
    name: &'static str,
    logic: fn() -> Result<Arc<dyn SwitchLogic>>,
    /// Packets in a batch.
    batch: usize,
    /// Stations behind each port, which send and receive by turns.
    stations: u16,
    /// Whether somebody observes a third port, through which none of the packets goes.
    observed: bool,
}

const CASES: [Case; 5] = [
    Case { name: "learning", logic: learning, batch: 64, stations: 1, observed: false },
    Case { name: "learning, batches of 8", logic: learning, batch: 8, stations: 1, observed: false },
    Case { name: "learning, 64 stations", logic: learning, batch: 64, stations: 64, observed: false },
    Case { name: "static", logic: pairs, batch: 64, stations: 1, observed: false },
    Case { name: "static, another port observed", logic: pairs, batch: 64, stations: 1, observed: true },
];

/// Wants to see all packets of port c, as a capture does.
struct OfC;

impl Observer for OfC {
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

/// Switches so many rounds of a case.
fn run(case: &Case, rounds: u64) -> Result<()> {
    let batch = BatchLimits { packets: case.batch, ..BatchLimits::default() };
    let switch = Arc::new(Switch::start(&SwitchOptions { batch, ..SwitchOptions::default() })?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let env = Environment::new(switch.clone(), runtime.handle().clone());
    let bridge = switch.add_bridge("br0", (case.logic)()?)?;
    // In the abstract namespace nothing has to be removed.
    let socket = format!("@mswitch-instructions-{}", std::process::id());
    let mut open = Vec::new();
    for (id, name) in [(0, "a"), (1, "b")] {
        let at = switch.add_port(bridge, PortSettings::new(name))?;
        let options = serde_json::from_value(json!({ "path": socket, "id": id }))?;
        open.push(ports::open(&Spec::Memif(options), at, &env)?);
    }
    if case.observed {
        switch.add_port(bridge, PortSettings::new("c"))?;
        switch.observe(bridge, Arc::new(OfC))?;
    }
    let (up, ups) = mpsc::channel();
    switch.on_link(Box::new(move |change| up.send(change.up).unwrap_or_default()));
    let mut clients = Command::new(std::env::current_exe()?)
        .args(["clients", &socket, &case.stations.to_string(), &rounds.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    // Clients may be connected before their queues are attached: what they sent earlier would be lost.
    let attached = open.iter().all(|_| ups.recv_timeout(PATIENCE) == Ok(true));
    drop(clients.stdin.take());
    if !clients.wait()?.success() || !attached {
        return Err("the clients failed".into());
    }
    let worker = switch.workers().into_iter().next().ok_or("no worker")?.counters;
    let expected = rounds * PACKETS_PER_ROUND;
    if worker.packets != expected || worker.batches != expected / case.batch as u64 {
        return Err(format!(
            "{} packets in {} batches, not {expected} in batches of {}",
            worker.packets, worker.batches, case.batch
        )
        .into());
    }
    open.iter().for_each(|port| port.close());
    println!("{expected}");
    Ok(())
}

/// A packet from one station to another of the same number. Sides are 0 and 1.
fn packet(from: u8, to: u8, station: u16) -> [u8; PACKET] {
    let mut packet = [0x5a; PACKET];
    let [high, low] = station.to_be_bytes();
    packet[..12].copy_from_slice(&[2, 0, 0, to, high, low, 2, 0, 0, from, high, low]);
    // IEEE 802.1 local experimental: nobody looks further.
    packet[12..14].copy_from_slice(&[0x88, 0xb5]);
    packet
}

/// Is the client of both ports. Starts when standard input ends.
fn clients(socket: &str, stations: u16, rounds: u64) -> Result<()> {
    let connect = |id| {
        let mut config = ClientConfig::new(Address::new(socket), id);
        config.log2_ring_size = LOG2_RING;
        config.buffer_size = 128;
        config.timeout = PATIENCE;
        Client::connect(&config)
    };
    let (mut a, mut b) = (connect(0)?, connect(1)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for _ in 0..rounds {
        send(&mut a, &mut b, 0, 1, stations)?;
        send(&mut b, &mut a, 1, 0, stations)?;
    }
    Ok(())
}

/// Sends a ring full of packets, and takes them at the other side.
fn send(source: &mut Client, sink: &mut Client, from: u8, to: u8, stations: u16) -> Result<()> {
    let (Some(tx), Some(rx)) = (source.tx.first_mut(), sink.rx.first_mut()) else {
        return Err("a client without rings".into());
    };
    for i in 0..FILL as u16 {
        if !tx.push(&[&packet(from, to, i % stations)]) {
            return Err("packets sent before were not taken".into());
        }
    }
    tx.flush();
    let deadline = Instant::now() + PATIENCE;
    let (mut arrived, mut taken) = (0, Vec::new());
    while arrived < FILL {
        if rx.pop(&mut taken) {
            if taken != packet(from, to, (arrived % u64::from(stations)) as u16) {
                return Err(format!("packet {arrived} of a ring is another than was sent").into());
            }
            arrived += 1;
        } else if Instant::now() > deadline {
            return Err(format!("{arrived} of {FILL} packets arrived").into());
        } else {
            // To be signalled would add to what the worker has to do.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    rx.refill();
    Ok(())
}

fn start() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["cases"] => CASES.iter().for_each(|case| println!("{}", case.name)),
        ["run", name, rounds] => {
            let case = CASES.iter().find(|case| case.name == *name);
            run(case.ok_or_else(|| format!("no case {name:?}"))?, rounds.parse()?)?;
        }
        ["clients", socket, stations, rounds] => clients(socket, stations.parse()?, rounds.parse()?)?,
        _ => return Err("usage: mswitch-instructions cases | run CASE ROUNDS".into()),
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
