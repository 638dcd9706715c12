//! WebAssembly modules that nobody wrote: each of their functions stores, calls and returns what comes to the generator's mind, numbers
//! that mean something here above all.
//!
//! Held invariants: a bridge that has such a module, and the worker that runs it, go on; a neighbour on the same worker has every one of
//! its packets; what a client is sent has a length that packets can have.
//!
//! `MSWITCH_GENERATED` says for how many seconds (`make fuzz`), and `MSWITCH_SEED` which ones, as a failure names it.
#![allow(unreachable_pub, dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(feature = "wasm")]

#[path = "../../logic/tests/switch/rig.rs"]
mod rig;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use fabric::VlanMode;
use fastrand::Rng;
use rig::{Client, Rig, make};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, InstructionSink, MemArg, MemorySection, MemoryType, Module, TypeSection,
    ValType,
};

/// What a module can import: the name, and how many numbers it takes; the last but one of `msw_remark` is one of 64 bits.
const IMPORTS: [(&str, &[ValType], &[ValType]); 10] = {
    use ValType::{I32, I64};
    [
        ("msw_pull", &[I32, I32, I32], &[I32]),
        ("msw_copy", &[I32, I32], &[I32]),
        ("msw_is_up", &[I32, I32], &[I32]),
        ("msw_new", &[I32, I32, I32], &[I32]),
        ("msw_read", &[I32, I32, I32, I32, I32], &[I32]),
        ("msw_retain", &[I32, I32], &[I32]),
        ("msw_release", &[I32, I32], &[I32]),
        ("msw_remark", &[I32, I32, I32, I32, I32, I64], &[]),
        ("msw_log", &[I32, I32, I32], &[]),
        ("msw_port_index", &[I32, I32, I32], &[I32]),
    ]
};

const DESCRIPTION: &str = r#"{"name": "generated", "summary": "", "timer": 1, "retain": 3, "state": 256,
    "params": [{"name": "n", "type": "number", "default": 5, "help": ""}], "counters": [{"name": "c", "help": ""}],
    "tables": [{"name": "t", "capacity": 16, "key": [["k", "u64"]], "value": [["port", "port"], ["at", "seconds"]]}],
    "commands": [{"name": "do", "help": ""}]}"#;

/// Where the description lies.
const TEXT: u32 = 16;
const PAGE: u32 = 64 << 10;

/// A number that may mean something: small, an offset in the window, at the edge of the memory, or anything.
fn number(rng: &mut Rng) -> i32 {
    match rng.u8(0..8) {
        0..=3 => rng.i32(0..20),
        4 => rng.i32(0..60_000),
        5 => rng.i32(0..4_000_000),
        6 => *rng.choice(&[-1, i32::MIN, i32::MAX, 65_535, 65_536, 0x0fff_fff0, 512, 576]).unwrap(),
        _ => rng.i32(..),
    }
}

/// Pushes the window's address, or one that is near something in it, or any.
fn address(rng: &mut Rng, code: &mut InstructionSink<'_>) {
    match rng.u8(0..16) {
        0 => code.i32_const(number(rng)),
        // The batch's head, the list of packets, or what follows that.
        1..=5 => code.local_get(0).i32_const(rng.i32(0..200) & !3).i32_add(),
        6..=10 => code.local_get(0).i32_const(192 + rng.i32(0..256)).i32_add(),
        11..=13 => {
            code.local_get(0).i32_load(word(12)).local_get(0).i32_add().i32_const(rng.i32(0..128)).i32_add()
        }
        _ => code.local_get(0).i32_const(rng.i32(0..3_000_000)).i32_add(),
    };
}

fn word(offset: u64) -> MemArg {
    MemArg { offset, align: 0, memory_index: 0 }
}

fn statement(rng: &mut Rng, code: &mut InstructionSink<'_>) {
    match rng.u8(0..40) {
        0..=9 => {
            address(rng, code);
            code.i32_const(number(rng)).i32_store(word(0));
        }
        10..=13 => {
            address(rng, code);
            code.i64_const(rng.i64(..)).i64_store(word(0));
        }
        // An output, as it should be.
        14..=19 => {
            let (slot, packet, port, verb) = (rng.i32(0..6), rng.i64(0..8), rng.i64(0..4), rng.i64(0..8));
            code.local_get(0).local_get(0).i32_load(word(12)).i32_add().i32_const(slot * 8).i32_add();
            code.i64_const(packet | port << 16 | verb << 32).i64_store(word(0));
        }
        20..=34 => {
            let import = rng.usize(..IMPORTS.len());
            let (_, takes, gives) = IMPORTS[import];
            code.local_get(0);
            for kind in &takes[1..] {
                match kind {
                    ValType::I64 => _ = code.i64_const(rng.i64(..)),
                    _ if rng.u8(0..4) == 0 => address(rng, code),
                    _ => _ = code.i32_const(number(rng)),
                }
            }
            code.call(import as u32);
            if !gives.is_empty() {
                code.drop();
            }
        }
        35 => {
            address(rng, code);
            code.i32_const(rng.i32(0..256)).i32_const(number(rng)).memory_fill(0);
        }
        36 => {
            code.i32_const(number(rng)).memory_grow(0).drop();
        }
        37 if rng.u8(0..40) == 0 => {
            code.loop_(BlockType::Empty).br(0).end();
        }
        38 if rng.u8(0..10) == 0 => {
            code.unreachable();
        }
        _ => {
            code.i32_const(0)
                .i32_const(rng.i32(0..PAGE as i32))
                .i32_const(rng.i32(0..PAGE as i32))
                .memory_copy(0, 0);
        }
    }
}

/// A function of so many parameters that does something and returns a number.
fn body(rng: &mut Rng, returns: i32) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for _ in 0..rng.usize(0..24) {
        statement(rng, &mut code);
    }
    code.i32_const(returns).end();
    function
}

fn module(rng: &mut Rng) -> Vec<u8> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    for (_, takes, gives) in IMPORTS {
        types.ty().function(takes.iter().copied(), gives.iter().copied());
    }
    let own = [0, 0, 1, 1, 1, 2].map(|count| {
        types.ty().function(std::iter::repeat_n(ValType::I32, count), [ValType::I32]);
        types.len() - 1
    });
    let mut imports = ImportSection::new();
    for (i, (name, ..)) in (0..).zip(IMPORTS) {
        imports.import("mswitch", name, EntityType::Function(i));
    }
    let (mut functions, mut exports, mut code) =
        (FunctionSection::new(), ExportSection::new(), CodeSection::new());
    let names = ["msw_abi", "msw_describe", "msw_start", "msw_forward", "msw_timer", "msw_command"];
    for ((i, name), kind) in (0..).zip(names).zip(own) {
        functions.function(kind);
        exports.export(name, ExportKind::Func, IMPORTS.len() as u32 + i);
    }
    exports.export("memory", ExportKind::Memory, 0);
    for constant in [1, TEXT as i32] {
        let mut function = Function::new([]);
        function.instructions().i32_const(constant).end();
        code.function(&function);
    }
    // Most of them start, and return what can be true.
    let start = if rng.u8(0..20) == 0 { number(rng) } else { 0 };
    let mut outputs = || if rng.u8(0..8) == 0 { number(rng) } else { rng.i32(0..7) };
    let (forward, timer, command) = (outputs(), outputs(), outputs());
    let mut startup = Function::new([]);
    startup.instructions().i32_const(start).end();
    code.function(&if rng.u8(0..4) == 0 { body(rng, start) } else { startup });
    for returns in [forward, timer, command] {
        code.function(&body(rng, returns));
    }
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let mut data = DataSection::new();
    data.active(0, &ConstExpr::i32_const(TEXT as i32), [DESCRIPTION.as_bytes(), &[0]].concat());
    module.section(&types).section(&imports).section(&functions).section(&memories).section(&exports);
    module.section(&code).section(&data);
    let mut bytes = module.finish();
    // Some are damaged.
    for _ in 0..if rng.u8(0..10) == 0 { rng.usize(1..4) } else { 0 } {
        let at = rng.usize(8..bytes.len());
        bytes[at] = rng.u8(..);
    }
    bytes
}

fn frames(rng: &mut Rng) -> Vec<Vec<u8>> {
    let frame = |rng: &mut Rng| {
        let mut frame = vec![2, 0, 0, 0, 0, rng.u8(0..4), 2, 0, 0, 0, 0, rng.u8(0..4)];
        if rng.u8(0..4) == 0 {
            frame.extend([0x81, 0, 0, rng.u8(0..4)]);
        }
        frame.extend([0x08, 0x00]);
        let len = rng.usize(46..900);
        frame.extend(std::iter::repeat_with(|| rng.u8(..)).take(len));
        frame
    };
    (0..rng.usize(1..20)).map(|_| frame(rng)).collect()
}

struct Neighbours {
    rig: Rig,
    evil: [Client; 3],
    good: [Client; 2],
}

impl Neighbours {
    fn new(rng: &mut Rng) -> Self {
        let rig = Rig::new(1, make("dummy", &[]));
        let access = |vid: u16| VlanMode::Access(packet::Vid::new(vid).unwrap());
        let vlans = rng.bool();
        let mode = |vid| if vlans { access(vid) } else { VlanMode::Transparent };
        let evil = [rig.port("e0", mode(1)), rig.port("e1", mode(1)), rig.port("e2", VlanMode::Transparent)];
        let other = rig.switch.add_bridge("br1", make("static", &[])).unwrap();
        let good = ["g0", "g1"].map(|name| rig.port_of(other, name, VlanMode::Transparent));
        Self { rig, evil, good }
    }

    /// Lets a module have its way. Returns whether it had it: some are refused.
    fn meet(&self, rng: &mut Rng, file: &Path) -> bool {
        let Ok(logic) = (modules::WASM.build)(file.to_str().unwrap(), &[]) else { return false };
        if self.rig.switch.set_logic(self.rig.bridge, logic.clone()).is_err() {
            return false;
        }
        for _ in 0..rng.usize(1..5) {
            let (theirs, ours) = (frames(rng), frames(rng));
            let from = rng.usize(..self.evil.len());
            self.evil[from].send(theirs.clone());
            self.good[0].send_and_settle(ours.clone());
            self.evil[from].settle();
            assert_eq!(self.good[1].take_all(ours.len()), ours, "the neighbour's packets");
            for sent in self.evil.iter().flat_map(Client::take) {
                assert!((14..=65_535).contains(&sent.len()), "a packet of {} bytes", sent.len());
            }
        }
        let _ = logic.call(&["do".into()]);
        let _ = self.rig.switch.trace(self.evil[0].at, &frames(rng)[0], packet::Offload::NONE);
        logic.tables();
        logic.counters();
        true
    }
}

#[test]
fn modules_that_nobody_wrote_harm_nobody() {
    let number_of = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    // The usual run is the same each time; the long one looks for what nobody has met yet.
    let long = number_of("MSWITCH_GENERATED");
    let time = Duration::from_secs(long.unwrap_or(5));
    let seed =
        number_of("MSWITCH_SEED").unwrap_or_else(|| if long.is_some() { Rng::new().u64(..) } else { 1 });
    let (folder, mut rng) = (tempfile::tempdir().unwrap(), Rng::with_seed(seed));
    // SAFETY: this is the only test here, and no other thread of it looks at the environment yet.
    unsafe { std::env::set_var("CACHE_DIRECTORY", folder.path().join("cache")) };
    let (start, mut count, mut ran) = (Instant::now(), 0, 0);
    let neighbours = Neighbours::new(&mut rng);
    while start.elapsed() < time {
        let file = folder.path().join(format!("{count}.wasm"));
        std::fs::write(&file, module(&mut rng)).unwrap();
        let met = catch_unwind(AssertUnwindSafe(|| neighbours.meet(&mut rng, &file)));
        ran += u32::from(met.unwrap_or_else(|_| panic!("MSWITCH_SEED={seed}, module {count}")));
        std::fs::remove_file(&file).unwrap();
        count += 1;
    }
    println!("{ran} of {count} modules ran, MSWITCH_SEED={seed}");
    assert!(ran * 2 > count, "{ran} of {count} modules ran");
}
