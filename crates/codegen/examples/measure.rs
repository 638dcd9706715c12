//! Cycles per packet of the two example programs, interpreted, compiled, and specialised for their entries:
//! `cargo run --release -p mswitch-codegen --example measure [ENTRIES]`.
//!
//! Packets are uniform over the entries. The executions take turns; figures are medians over the turns, with the
//! smallest and the largest. Cycles are those of the time stamp counter.

use std::hint::black_box;

use codegen::{Effects, Engine, Options, Worker};
use pipeline::env::Env;
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::{State, Update};
use pipeline::{Checked, text};

const ROUTER: &str = include_str!("../../pipeline/tests/programs/router.txt");
const FIVE_TABLES: &str = include_str!("../../pipeline/tests/programs/five_tables.txt");
const TURNS: usize = 9;
const PACKETS: usize = 1024;

struct World;

impl Env for World {
    fn now(&mut self) -> u64 {
        0
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
        use std::time::Instant;
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

fn insert(state: &mut State, table: u32, entries: impl Iterator<Item = String>) {
    let entry = |state: &State, text: String| {
        let named = |name: &str| state.action_named(name);
        text::parse_entry(state.program(), TableId(table), &text, &named)
    };
    for text in entries {
        let entry = entry(state, text).unwrap_or_else(|error| fail(&error));
        state.apply(vec![Update::Insert(TableId(table), entry)], 0).unwrap_or_else(|error| fail(&error));
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}

fn state(text: &str) -> State {
    let program = text::parse(text).unwrap_or_else(|error| fail(&error));
    State::new(Checked::new(program).unwrap_or_else(|errors| fail(&format!("{errors:?}"))))
}

/// A packet of 60 bytes to `10.(n >> 16).(n >> 8).n`: IPv4, UDP.
fn frame(n: usize) -> Vec<u8> {
    let mut bytes = [&[2, 0, 0, 0, 0, 1][..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
    let mut header =
        [0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, (n >> 16) as u8, (n >> 8) as u8, n as u8];
    let sum = packet::checksum::Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend([4, 0, 0, 80, 0, 12, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

fn router(entries: usize) -> State {
    let mut state = state(ROUTER);
    let permit = ["entry priority 20 { port: 16w1; } -> permit();".to_owned()];
    insert(&mut state, 0, permit.into_iter());
    insert(&mut state, 1, ["entry { dst: 48w0x020000000001; } -> permit();".to_owned()].into_iter());
    let routes =
        (0..entries).map(|n| format!("entry {{ dst: 32w{:#x}/32; }} -> route(16w1);", 0x0a00_0000 + n));
    insert(&mut state, 2, routes);
    let hop = ["entry { hop: 16w1; } -> hop(48w0x0200000000aa, 48w0x020000000001, 12w0, 16w7);".to_owned()];
    insert(&mut state, 4, hop.into_iter());
    state
}

fn five_tables(entries: usize) -> State {
    let mut state = state(FIVE_TABLES);
    for action in [
        "action start() { metadata = 64w0x10; goto table1; }",
        "action tagged() { goto table2; }",
        "action keep_output(port: bit<32>) { kept_output = true; kept_port = $port; goto table3; }",
        "action last() { goto table4; }",
        "action end() { }",
    ] {
        let action = text::parse_action(state.program(), action).unwrap_or_else(|error| fail(&error));
        state.define(action).unwrap_or_else(|errors| fail(&format!("{errors:?}")));
    }
    let one = |text: &str| vec![text.to_owned()].into_iter();
    insert(&mut state, 0, one("entry { in_port: 32w1 &&& 32w0xffffffff; } -> start();"));
    insert(&mut state, 1, one("entry { } -> tagged();"));
    insert(&mut state, 2, one("entry { metadata: 64w0x10 &&& 64w0xf0; } -> keep_output(32w9);"));
    let hosts = (0..entries)
        .map(|n| format!("entry {{ ipv4_dst: 32w{:#x} &&& 32w0xffffffff; }} -> last();", 0x0a00_0000 + n));
    insert(&mut state, 3, hosts);
    insert(&mut state, 4, one("entry { metadata: 64w0x10 &&& 64w0xff; } -> end();"));
    state
}

fn measure(name: &str, state: &State, entries: usize) {
    let limits = Limits::default();
    let mut engine = Engine::new(state, Options::default()).unwrap_or_else(|error| fail(&error));
    let compiled = engine.views().load().clone();
    engine.improve();
    let specialised = engine.views().load().clone();
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|i| frame(i * 7919 % entries)).collect();
    let (mut worker, mut effects, mut fates) = (Worker::new(), Effects::default(), vec![]);
    let mut figures = [vec![], vec![], vec![]];
    // The interpreter searches tables from first to last: fewer packets show enough.
    let few = (PACKETS * 16 / entries.max(16)).max(16);
    for _ in 0..TURNS {
        let begin = cycles();
        for frame in frames.iter().take(few) {
            black_box(interp::run(state, &mut World, &Received::whole(frame, 1), &limits, false));
        }
        figures[0].push((cycles() - begin) / few as u64);
        for (view, figures) in [&compiled, &specialised].into_iter().zip(&mut figures[1..]) {
            let begin = cycles();
            for batch in frames.chunks(64) {
                effects.clear();
                fates.clear();
                let packets = batch.iter().map(|frame| Received::whole(frame, 1));
                worker.run_batch(view, &mut World, packets, &mut effects, &mut fates);
                black_box(&effects);
            }
            figures.push((cycles() - begin) / PACKETS as u64);
        }
    }
    for (execution, figures) in ["interpreted", "compiled", "specialised"].iter().zip(&mut figures) {
        figures.sort_unstable();
        println!(
            "{name}, {entries} entries, {execution}: {} cycles a packet ({} to {})",
            figures[TURNS / 2],
            figures[0],
            figures[TURNS - 1]
        );
    }
}

fn main() {
    let entries = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    measure("router", &router(entries), entries);
    measure("five tables", &five_tables(entries), entries);
}
