//! Cost of packets in P4 programs, beside OpenFlow tables that do the same, in the pipeline alone:
//! `cargo run --release -p mswitch-p4 --example speed -- CASE ENTRIES [general|specialised|openflow PACKETS]`.
//! `compile FILE…` in place of a case measures how long programs take from text to machine code.
//!
//! Cases: `router` (examples/p4/router.p4: prefixes and 64 next hops, every fourth with a VLAN), `adjusting`
//! (bench/p4/router.p4: the same, all with a VLAN, and checksums are adjusted, not computed) and `l2` (addresses).
//! Packets have 60 bytes, are uniform over the entries in random order, and come in batches of 64; making them is not
//! measured. The executions take turns. Figures are medians of the turns' cycles of the time stamp counter for each
//! packet, with the smallest and the largest, and the median of the turns' ratios to OpenFlow. With an execution and
//! PACKETS, that many packets are executed and nothing is measured: the difference of two such runs under
//! `valgrind --tool=callgrind` is the number of instructions.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use codegen::{Effects, Engine, Fate, Options, Views, Worker};
use mswitch_p4::compile;
use mswitch_p4::preprocess;
use ofswitch::{ConnectionKind, Follower, LIMITS, PortCounters, Settings, Switch};
use openflow::message::{Body, FlowModCommand, Hello, PortConfig, Versions};
use openflow::text::parse_flow;
use openflow::{Message, PortNo, Version};
use pipeline::Checked;
use pipeline::bits::Bits;
use pipeline::env::Env;
use pipeline::interp::Received;
use pipeline::ir::{Action, ActionCall, ActionId, Constant, Entry, EntryResult, KeyMatch, Match, TableId};
use pipeline::state::{Bundle, State, Update};

const TURNS: usize = 31;
const BATCH: usize = 64;
const HOPS: u32 = 64;
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

/// What entries of both kinds of programs are made of.
struct Case {
    name: &'static str,
    file: &'static str,
    entries: u32,
}

/// Prefix lengths: mostly 24, as in routing tables.
const LENGTHS: [u16; 8] = [24, 24, 24, 24, 23, 22, 20, 16];

fn prefix(n: u32) -> (u32, u16) {
    let len = LENGTHS[n as usize % 8];
    ((0x1400_0000 + (n << 8)) >> (32 - len) << (32 - len), len)
}

const STATION: u64 = 0x0200_0000_0000;

fn out(n: u32) -> u32 {
    2 + n % 7
}

/// Bytes of a packet that entry `n` of a case matches: IPv4, UDP.
fn packet(case: &Case, n: u32) -> Vec<u8> {
    let mut bytes = (STATION + u64::from(n)).to_be_bytes()[2..].to_vec();
    bytes.extend([2, 0, 0, 0, 1, 9, 8, 0]);
    if case.name == "l2" {
        // Stations send from their ports.
        bytes[6..12].copy_from_slice(&(STATION + u64::from(n / 7 * 7)).to_be_bytes()[2..]);
    }
    let mut header = vec![0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0];
    header.extend((0x0a00_0000 | n >> 6).to_be_bytes());
    header.extend((0x1400_0000 + (n << 8) + 5).to_be_bytes());
    let sum = packet::checksum::Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend([4, 0, 0, 80, 0, 12, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

/// The port that packets of a case come from.
fn from(case: &Case) -> u32 {
    if case.name == "l2" { out(0) } else { 1 }
}

/// Flows of a case, as text.
fn flows(case: &Case) -> Vec<String> {
    let mac = |n: u64| n.to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let entries = 0..case.entries;
    if case.name == "l2" {
        let known = |n: u32| {
            format!("table=0,in_port={},dl_src={},actions=goto_table:1", out(n), mac(STATION + u64::from(n)))
        };
        let to = |n: u32| format!("table=1,dl_dst={},actions=output:{}", mac(STATION + u64::from(n)), out(n));
        return entries.clone().map(known).chain(entries.map(to)).collect();
    }
    let route = |n: u32| {
        let (address, len) = prefix(n);
        let (address, hop) = (Ipv4Addr::from(address), n % HOPS);
        format!("table=0,ip,priority={len},nw_dst={address}/{len},actions=write_metadata:{hop},goto_table:1")
    };
    let hop = |n: u32| {
        let (port, n64) = (out(n), u64::from(n));
        let (src, dst) = (mac(STATION + 0x10_0000 + n64), mac(STATION + 0x20_0000 + n64));
        let vlan = match if case.name == "adjusting" { 0 } else { n % 4 } {
            0 => format!("push_vlan:0x8100,set_field:{}->vlan_vid,", 0x1000 + 100 + n),
            _ => String::new(),
        };
        format!(
            "table=1,metadata={n},ip,actions=dec_ttl,set_field:{src}->eth_src,set_field:{dst}->eth_dst,\
             {vlan}output:{port}"
        )
    };
    entries.map(route).chain((0..HOPS).map(hop)).collect()
}

/// Entries of a P4 program by the ends of names: table, conditions, action, arguments.
type Given = (&'static str, Vec<KeyMatch>, &'static str, Vec<u64>);

fn entries(case: &Case) -> Vec<Given> {
    let exact = |width: u16, n: u64| KeyMatch::Exact(Bits::from_u64(width, n));
    let all = 0..case.entries;
    if case.name == "l2" {
        let station = |n: u32| exact(48, STATION + u64::from(n));
        let known = |n: u32| ("stations", vec![station(n), exact(9, out(n).into())], "NoAction", vec![]);
        let to = |n: u32| ("destinations", vec![station(n)], "forward", vec![out(n).into()]);
        return all.clone().map(known).chain(all.map(to)).collect();
    }
    let route = |n: u32| {
        let (address, len) = prefix(n);
        let is = KeyMatch::Prefix(Bits::from_u64(32, address.into()), len);
        ("routes", vec![is], "via", vec![u64::from(n % HOPS)])
    };
    let hop = |n: u32| {
        let (port, n64) = (u64::from(out(n)), u64::from(n));
        let (src, dst) = (STATION + 0x10_0000 + n64, STATION + 0x20_0000 + n64);
        let is = vec![exact(16, n64)];
        match if case.name == "adjusting" { 0 } else { n % 4 } {
            0 => ("next_hops", is, "forward_tagged", vec![port, 100 + n64, src, dst]),
            _ => ("next_hops", is, "forward", vec![port, src, dst]),
        }
    };
    all.map(route).chain((0..HOPS).map(hop)).collect()
}

fn update(program: &Checked, given: Given) -> Update {
    let (table, conditions, action, args) = given;
    let ends = |name: &str, end: &str| name == end || name.ends_with(&format!(".{end}"));
    let table = program.tables.iter().position(|schema| ends(&schema.name, table));
    let action_id = program.actions.iter().position(|known| ends(&known.name, action));
    let (Some(table), Some(action_id)) = (table, action_id) else { fail(&"no such table or action") };
    let params = program.actions.get(action_id).map_or(&[][..], |Action { params, .. }| params);
    let constant = |(param, arg): (&pipeline::ir::Param, u64)| Constant {
        ty: param.ty,
        value: Bits::from_u64(64, arg).resize(param.ty.width()),
    };
    let call =
        ActionCall { action: ActionId::at(action_id), args: params.iter().zip(args).map(constant).collect() };
    let matches = conditions.into_iter().enumerate().map(|(i, is)| Match { key: i as u32, is }).collect();
    let entry =
        Entry { matches, priority: 0, result: EntryResult::Action(call), idle: 0, hard: 0, cookie: 0 };
    Update::Insert(TableId::at(table), entry)
}

/// A P4 program with its entries.
fn program(case: &Case) -> State {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(case.file);
    let begin = Instant::now();
    let front = compile::file(&file, &preprocess::Options::default());
    let program = front.ok().and_then(|mut front| front.lower());
    let Some(program) = program else { fail(&format!("{} is no program", file.display())) };
    eprintln!("{}: lowered in {:?}", case.file, begin.elapsed());
    let mut state = State::new(program.clone());
    let updates: Vec<_> = entries(case).into_iter().map(|given| update(&program, given)).collect();
    // Prefixes that are equal are one entry.
    updates.into_iter().for_each(|update| drop(state.apply(vec![update], 0)));
    state
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

/// An OpenFlow switch with the flows of a case.
fn switch(case: &Case) -> Shared {
    let mut switch = Switch::new(Settings::default());
    let connection = switch.connect(ConnectionKind::Service).unwrap_or_else(|| fail(&"no connection"));
    let hello = Message::new(VERSION, 1, Body::Hello(Hello::new(Versions::from_iter([VERSION]))));
    let hello = hello.encode().unwrap_or_else(|error| fail(&error));
    switch.receive(connection, &hello, 0);
    while switch.next_message(connection).is_some() {}
    for flow in flows(case) {
        let parsed = parse_flow(&flow, FlowModCommand::Add, VERSION).unwrap_or_else(|error| fail(&error));
        let message = Message::new(VERSION, 2, Body::FlowMod(Box::new(parsed)));
        let message = message.encode().unwrap_or_else(|error| fail(&error));
        switch.receive(connection, &message, 0);
        if let Some(reply) = switch.next_message(connection) {
            fail(&format!("{flow}: {reply:x?}"));
        }
    }
    let options = Options { limits: LIMITS, ..Options::default() };
    let mut made = None;
    switch.set_follower(|state| {
        let engine = Engine::new(state, options).unwrap_or_else(|error| fail(&error));
        let engine = Shared(Arc::new(Mutex::new(engine)));
        made = Some(engine.clone());
        Box::new(engine)
    });
    let Some(engine) = made else { fail(&"the switch wants no follower") };
    while engine.lock().improve() {}
    engine
}

/// One execution of a case.
struct Lane {
    name: &'static str,
    views: Views,
    worker: Worker,
    effects: Effects,
    fates: Vec<Fate>,
    figures: Vec<f64>,
    sum: u64,
}

impl Lane {
    fn new(name: &'static str, views: Views) -> Self {
        let (worker, effects) = (Worker::new(), Effects::default());
        Self { name, views, worker, effects, fates: vec![], figures: vec![], sum: 0 }
    }

    fn run(&mut self, port: u32, packets: &[Vec<u8>]) {
        let begin = cycles();
        let view = self.views.load();
        self.effects.clear();
        self.fates.clear();
        let packets = packets.iter().map(|bytes| Received::whole(bytes, port));
        self.worker.run_batch(&view, &mut World, packets, &mut self.effects, &mut self.fates);
        black_box(&self.effects);
        self.sum += cycles() - begin;
    }
}

/// Packets of a case in random order, in buffers that stay in the caches, as those of a port do.
struct Packets {
    seed: u64,
    buffers: Vec<Vec<u8>>,
}

impl Packets {
    fn fill(&mut self, case: &Case) {
        for bytes in &mut self.buffers {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *bytes = packet(case, (self.seed >> 33) as u32 % case.entries.max(1));
        }
    }
}

fn lanes(case: &Case, wanted: Option<&String>) -> Vec<Lane> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    let mut lanes = vec![];
    if is_wanted("general") || is_wanted("specialised") {
        let state = program(case);
        let code = codegen::compile(state.program(), &Options::default()).unwrap_or_else(|e| fail(&e));
        let code = Arc::new(code);
        for name in ["general", "specialised"].into_iter().filter(|name| is_wanted(name)) {
            let engine = Engine::with_code(&state, code.clone(), Options::default());
            let mut engine = engine.unwrap_or_else(|error| fail(&error));
            engine.improve_tables();
            let begin = Instant::now();
            if name == "specialised" {
                while engine.improve() {}
                eprintln!("specialised in {:?}: {}", begin.elapsed(), engine.is_specialised());
            }
            lanes.push(Lane::new(name, engine.views()));
        }
    }
    if is_wanted("openflow") {
        lanes.push(Lane::new("openflow", switch(case).lock().views()));
    }
    lanes
}

fn median(figures: &mut [f64]) -> (f64, f64, f64) {
    figures.sort_unstable_by(f64::total_cmp);
    let at = |i: usize| figures.get(i).copied().unwrap_or(f64::NAN);
    (at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}

/// Times that programs take.
fn compile_all(files: &[String]) {
    for file in files {
        let begin = Instant::now();
        let front = compile::file(Path::new(file), &preprocess::Options::default());
        let Some(program) = front.ok().and_then(|mut front| front.lower()) else {
            println!("{file}: no program");
            continue;
        };
        let lowered = begin.elapsed();
        let code = match codegen::compile(&program, &Options::default()) {
            Ok(code) => Arc::new(code),
            Err(error) => {
                println!("{file}: lowered in {lowered:?}, {error}");
                continue;
            }
        };
        let compiled = begin.elapsed();
        let engine = Engine::with_code(&State::new(program), code, Options::default());
        let mut engine = engine.unwrap_or_else(|error| fail(&error));
        while engine.improve() {}
        println!(
            "{file}: lowered in {lowered:.0?}, code in {:.0?} ({} KiB), specialised in {:.0?}: {}",
            compiled - lowered,
            engine.code().len() >> 10,
            begin.elapsed() - compiled,
            engine.is_specialised()
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|word| word == "compile") {
        return compile_all(&args[1..]);
    }
    let entries = args.get(1).and_then(|entries| entries.parse::<u32>().ok());
    let case = match (args.first().map(String::as_str), entries) {
        (Some("router"), Some(entries)) => Case { name: "router", file: "examples/p4/router.p4", entries },
        (Some("adjusting"), Some(entries)) => Case { name: "adjusting", file: "bench/p4/router.p4", entries },
        (Some("l2"), Some(entries)) => Case { name: "l2", file: "examples/p4/l2.p4", entries },
        _ => fail(
            &"usage: speed router|adjusting|l2 ENTRIES [general|specialised|openflow [PACKETS]], or speed compile FILE...",
        ),
    };
    let mut packets = Packets { seed: 7, buffers: vec![vec![]; BATCH] };
    let mut lanes = lanes(&case, args.get(2));
    if let Some(count) = args.get(3).and_then(|count| count.parse::<usize>().ok()) {
        packets.fill(&case);
        for lane in &mut lanes {
            (0..count / BATCH).for_each(|_| lane.run(from(&case), &packets.buffers));
        }
        return;
    }
    let batches = (case.entries as usize / BATCH).clamp(64, 1 << 13);
    for turn in 0..=TURNS {
        for _ in 0..batches {
            packets.fill(&case);
            lanes.iter_mut().for_each(|lane| lane.run(from(&case), &packets.buffers));
        }
        for lane in &mut lanes {
            let sum = std::mem::take(&mut lane.sum);
            if turn > 0 {
                lane.figures.push(sum as f64 / (batches * BATCH) as f64);
            }
        }
    }
    let base = lanes.iter().find(|lane| lane.name == "openflow").map(|lane| lane.figures.clone());
    for lane in &mut lanes {
        let ratio = base.as_ref().map(|base| {
            let mut ratios: Vec<_> = lane.figures.iter().zip(base).map(|(own, base)| own / base).collect();
            format!(", {:.2} of openflow", median(&mut ratios).0)
        });
        let (middle, low, high) = median(&mut lane.figures);
        println!(
            "{}, {} entries, {}: {middle:.0} cycles a packet ({low:.0} to {high:.0}){}; first effect: {:?}",
            case.name,
            case.entries,
            lane.name,
            ratio.unwrap_or_default(),
            lane.effects.list().first()
        );
    }
}
