//! Cost of packets under OpenFlow rules, in the pipeline alone:
//! `cargo run --release -p mswitch-ofswitch --example rules -- CASE ENTRIES [count PACKETS]`.
//!
//! Cases: `ports`, `l2`, `l3`, `prefixes`, `acl`, `stages`, `masks`. Packets have 60 bytes, are uniform over the
//! entries in random order, and come in batches of 64; making them is not measured. The figure is the median of the
//! turns' cycles of the time stamp counter for each packet, with the smallest and the largest. With `count`, that many
//! packets are executed and nothing is measured: the difference of two such runs under `valgrind --tool=callgrind` is
//! the number of instructions.
//!
//! `update` as a third argument measures flow-mods a second, from encoded messages to what packets see.

use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use codegen::{Effects, Engine, Fate, Options, Views, Worker};
use ofswitch::{ConnectionKind, Follower, LIMITS, PortCounters, Settings, Switch};
use openflow::message::{Body, FlowModCommand, Hello, PortConfig, Versions};
use openflow::text::parse_flow;
use openflow::{Message, PortNo, Version};
use pipeline::env::Env;
use pipeline::interp::Received;
use pipeline::ir::ActionId;
use pipeline::state::{Bundle, State};

const TURNS: usize = 31;
const BATCH: usize = 64;
const VERSION: Version = Version::V1_3;

struct World;

impl Env for World {
    fn now(&mut self) -> u64 {
        1
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn is_live(&self, _: u32) -> bool {
        true
    }

    fn ports(&self, _: u32, _: bool) -> Vec<u32> {
        vec![]
    }
}

fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading the counter has no effect.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}

/// A packet that entry `n` of a case matches: IPv4, UDP.
#[derive(Clone, Copy)]
struct Flow {
    port: u32,
    dst: u64,
    from: u32,
    to: u32,
    ports: [u16; 2],
}

impl Flow {
    /// The same for every case, so that cases differ in their rules alone.
    fn of(case: &str, n: u32) -> Self {
        Self {
            port: if case == "ports" { n + 1 } else { 1 },
            dst: 0x0200_0000_0000 + u64::from(n),
            from: 0x0a00_0000 | n >> 6,
            to: if case == "prefixes" { 0x1400_0000 + (n << 8) + 5 } else { 0x1400_0000 + n },
            ports: [1000 + (n % 40_000) as u16, 80 + (n % 7) as u16],
        }
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = self.dst.to_be_bytes()[2..].to_vec();
        bytes.extend([2, 0, 0, 0, 0, 9, 8, 0]);
        let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0];
        header.extend(self.from.to_be_bytes());
        header.extend(self.to.to_be_bytes());
        let sum = packet::checksum::Sum::of(&header).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(header);
        self.ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
        bytes.extend([0, 12, 0, 0]);
        bytes.resize(60, 0);
        bytes
    }
}

fn address(n: u32) -> String {
    std::net::Ipv4Addr::from(n).to_string()
}

/// Flows of a case, as text. Output is to ports from 2 on, other than the one that packets come from.
fn rules(case: &str, entries: u32) -> Vec<String> {
    let mac = |n: u64| n.to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let rule = |n: u32| {
        let flow = Flow::of(case, n);
        let out = 2 + n % 7;
        match case {
            "ports" => format!("in_port={},actions=output:{}", flow.port, n + 2),
            "l2" => format!("dl_dst={},actions=output:{out}", mac(flow.dst)),
            "l3" => format!("ip,nw_dst={},actions=output:{out}", address(flow.to)),
            "prefixes" => {
                // Mostly /24, as in routing tables, some shorter.
                let len = [24, 24, 24, 24, 23, 22, 20, 16][n as usize % 8];
                format!("ip,priority={len},nw_dst={}/{len},actions=output:{out}", address(flow.to))
            }
            "acl" => {
                // As in ClassBench: pairs of prefixes, protocols, ports.
                let from = [32, 24, 28, 30][n as usize % 4];
                let to = [32, 32, 30, 28, 24][n as usize % 5];
                let (from, to) =
                    (format!("{}/{from}", address(flow.from)), format!("{}/{to}", address(flow.to)));
                let ports = match n % 3 {
                    0 => format!(",tp_src={},tp_dst={}", flow.ports[0], flow.ports[1]),
                    1 => format!(",tp_dst={}", flow.ports[1]),
                    _ => String::new(),
                };
                let priority = 60_000 - n % 60_000;
                format!("udp,priority={priority},nw_src={from},nw_dst={to}{ports},actions=output:{out}")
            }
            "masks" => {
                // Each rule has a mask of its own: pairs of prefix lengths and parts of the source port.
                let (from, to, part) = (1 + n % 32, 1 + n / 32 % 32, n / 1024);
                let priority = 1 + n;
                let (a, b) = (address(flow.from), address(flow.to));
                format!(
                    "udp,priority={priority},nw_src={a}/{from},nw_dst={b}/{to},tp_src={:#x}/{:#x},actions=output:{out}",
                    flow.ports[0],
                    0xffff << part & 0xffff
                )
            }
            "stages" => format!(
                "table=3,ip,nw_dst={},actions=write_actions(output:{out}),goto_table:4",
                address(flow.to)
            ),
            _ => fail(&format!("no case {case}")),
        }
    };
    let mut rules: Vec<_> = (0..entries).map(rule).collect();
    if case == "stages" {
        rules.extend(
            [
                "table=0,in_port=1,actions=write_metadata:0x10/0xff,goto_table:1",
                "table=1,vlan_tci=0,actions=goto_table:2",
                "table=2,metadata=0x10/0xf0,dl_src=02:00:00:00:00:09,actions=goto_table:3",
                "table=4,metadata=0x10/0xff,udp,actions=write_metadata:0/0xff",
            ]
            .map(str::to_owned),
        );
    }
    rules
}

/// The engine, which the switch keeps in step.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Engine>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follower for Shared {
    fn applied(&mut self, state: &State, bundle: &Bundle) {
        self.lock().follow(state, bundle).unwrap_or_else(|error| fail(&error));
    }

    fn forgotten(&mut self, actions: &[ActionId]) {
        self.lock().forget(actions);
    }

    fn configured(&mut self, _: &[(PortNo, PortConfig)]) {}

    fn flags(&mut self, flags: u64) {
        self.lock().expect_flags(flags);
    }

    fn counters(&mut self, _: PortNo) -> Option<PortCounters> {
        None
    }
}

struct Bed {
    switch: Switch,
    connection: ofswitch::ConnectionId,
    engine: Shared,
}

impl Bed {
    fn new(rules: &[String]) -> Self {
        let mut switch = Switch::new(Settings::default());
        let connection = switch.connect(ConnectionKind::Service).unwrap_or_else(|| fail(&"no connection"));
        let hello = Message::new(VERSION, 1, Body::Hello(Hello::new(Versions::from_iter([VERSION]))));
        let hello = hello.encode().unwrap_or_else(|error| fail(&error));
        switch.receive(connection, &hello, 0);
        while switch.next_message(connection).is_some() {}
        for rule in rules {
            switch.receive(connection, &encode(rule, FlowModCommand::Add), 0);
            if let Some(reply) = switch.next_message(connection) {
                fail(&format!("{rule}: {reply:x?}"));
            }
        }
        let begin = Instant::now();
        let options = Options { limits: LIMITS, ..Options::default() };
        let mut made = None;
        switch.set_follower(|state| {
            let engine = Engine::new(state, options).unwrap_or_else(|error| fail(&error));
            let engine = Shared(Arc::new(Mutex::new(engine)));
            made = Some(engine.clone());
            Box::new(engine)
        });
        let Some(engine) = made else { fail(&"the switch wants no follower") };
        eprintln!("compiled in {:?}, {} KiB of code", begin.elapsed(), engine.lock().code_size() >> 10);
        Self { switch, connection, engine }
    }

    fn improve(&mut self) {
        let begin = Instant::now();
        while self.engine.lock().improve() {}
        eprintln!("improved in {:?}", begin.elapsed());
    }

    fn forms(&self) {
        for table in self.switch.table_summaries() {
            if let Some(info) = self.engine.lock().table(table.id) {
                let per = info.memory / info.entries.max(1);
                eprintln!(
                    "table {}: {:?}, {} entries, {} masks, {per} bytes an entry",
                    table.number, info.form, info.entries, info.masks
                );
            }
        }
    }
}

fn encode(rule: &str, command: FlowModCommand) -> Vec<u8> {
    let flow = parse_flow(rule, command, VERSION).unwrap_or_else(|error| fail(&error));
    let message = Message::new(VERSION, 2, Body::FlowMod(Box::new(flow)));
    message.encode().unwrap_or_else(|error| fail(&error))
}

/// Packets of a case in random order, in buffers that stay in the caches, as those of a port do.
struct Packets<'c> {
    case: &'c str,
    entries: u32,
    seed: u64,
    buffers: Vec<(u32, Vec<u8>)>,
}

impl<'c> Packets<'c> {
    fn new(case: &'c str, entries: u32) -> Self {
        Self { case, entries, seed: 7, buffers: vec![(0, vec![]); BATCH] }
    }

    /// Fills the buffers with the next batch.
    fn fill(&mut self) {
        for (port, bytes) in &mut self.buffers {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let flow = Flow::of(self.case, (self.seed >> 33) as u32 % self.entries.max(1));
            *port = flow.port;
            bytes.clear();
            bytes.extend(flow.bytes());
        }
    }
}

/// Runs a batch; returns its cycles.
fn batch(
    views: &Views,
    worker: &mut Worker,
    out: &mut (Effects, Vec<Fate>),
    packets: &[(u32, Vec<u8>)],
) -> u64 {
    let begin = cycles();
    let view = views.load();
    out.0.clear();
    out.1.clear();
    let (effects, fates) = out;
    if let Some((port, _)) = packets.first()
        && packets.iter().all(|(from, _)| from == port)
    {
        let left = |fates: &Vec<Fate>| {
            packets.iter().skip(fates.len()).map(|(_, bytes)| (&bytes[..], bytes.len() as u32))
        };
        while let Some(found) = worker.find_ways(&view, (*port, 0), left(fates)) {
            found.follow(1, |leaves| fates.push(Fate::Leaves(leaves)));
        }
    }
    let packets = packets.iter().skip(fates.len()).map(|(port, bytes)| Received::whole(bytes, *port));
    worker.run_batch(&view, &mut World, packets, effects, fates);
    black_box(&out.0);
    cycles() - begin
}

/// Time for flow-mods that delete and add entries, each followed by the engine.
fn updates(mut bed: Bed, rules: &[String]) {
    let strict = |rule: &String| rule.split("actions=").next().unwrap_or_default().to_owned();
    let messages: Vec<_> = rules
        .iter()
        .rev()
        .take(20_000)
        .flat_map(|rule| {
            [encode(&strict(rule), FlowModCommand::DeleteStrict), encode(rule, FlowModCommand::Add)]
        })
        .collect();
    let mut worst = std::time::Duration::ZERO;
    let begin = Instant::now();
    for message in &messages {
        let one = Instant::now();
        bed.switch.receive(bed.connection, message, 0);
        worst = worst.max(one.elapsed());
    }
    let took = begin.elapsed();
    println!(
        "{:.0} flow-mods a second, the slowest took {worst:?}",
        messages.len() as f64 / took.as_secs_f64()
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(case), Some(entries)) =
        (args.first(), args.get(1).and_then(|entries| entries.parse::<u32>().ok()))
    else {
        fail(&"usage: rules CASE ENTRIES [count PACKETS | update]")
    };
    let rules = rules(case, entries);
    let mut bed = Bed::new(&rules);
    bed.improve();
    if args.get(2).is_some_and(|word| word == "update") {
        return updates(bed, &rules);
    }
    let mut packets = Packets::new(case, entries);
    let views = bed.engine.lock().views();
    let (mut worker, mut out) = (Worker::alone(), (Effects::default(), vec![]));
    if let Some(count) = args.get(3).and_then(|count| count.parse::<usize>().ok()) {
        packets.fill();
        for _ in 0..count / BATCH {
            batch(&views, &mut worker, &mut out, &packets.buffers);
        }
        return;
    }
    bed.forms();
    let batches = (entries as usize / BATCH).clamp(64, 1 << 13);
    let mut figures = vec![];
    for turn in 0..=TURNS {
        let mut sum = 0;
        for _ in 0..batches {
            packets.fill();
            sum += batch(&views, &mut worker, &mut out, &packets.buffers);
        }
        if turn > 0 {
            figures.push(sum as f64 / (batches * BATCH) as f64);
        }
    }
    figures.sort_unstable_by(f64::total_cmp);
    println!(
        "{case}, {entries} entries: {:.0} cycles a packet ({:.0} to {:.0}); first effect: {:?}",
        figures[TURNS / 2],
        figures[0],
        figures[TURNS - 1],
        out.0.list().first()
    );
}
