//! Match-action programs as machine code, against the interpreter: made from choices, with entries and a packet.
//!
//! Invariants:
//! - Effects and what packets change are those of the interpreter, before and after entries are removed.
//! - What is not compiled has a reason: stack or code above the limits, nothing else.
#![no_main]

use codegen::{Effects, Engine, Options, Unsupported, Worker};
use libfuzzer_sys::fuzz_target;
use pipeline::Checked;
use pipeline::fuzzing::{self, Source, World};
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{CounterId, RegisterId, TableId};
use pipeline::state::{State, Update};

const LIMITS: Limits = Limits {
    // Statements on values of 2,048 bits are slow.
    steps: 400,
    depth: 100,
    parser_states: 64,
    window: 512,
    headers: 576,
    passes: 32,
    rounds: 8,
    effects: 64,
};

/// The first byte is the length of the packet; the same form as the choices of target `pipeline`, without its first.
fn run(data: &[u8]) {
    let Some((len, data)) = data.split_first() else { return };
    let (packet, choices) = data.split_at(usize::from(*len).min(data.len()));
    let mut source = Source::new(choices);
    let program = fuzzing::program(&mut source);
    let checked = Checked::new(program).unwrap_or_else(|errors| panic!("{errors:?}"));
    let mut pair = [State::new(checked.clone()), State::new(checked)];
    let options = Options { limits: LIMITS, code: 8 << 20, stack: 4 << 20 };
    let [_, compiled] = &pair;
    let mut engine = match Engine::new(compiled, options) {
        Ok(engine) => engine,
        Err(Unsupported::Stack { .. } | Unsupported::Code { .. }) => return,
        Err(other) => panic!("{other}"),
    };
    let mut worker = Worker::new();
    let updates = fuzzing::updates(&pair[0], &mut source);
    for update in updates {
        apply(&mut pair, &mut engine, vec![update]);
    }
    check(&pair, &engine, &mut worker, packet);
    engine.improve();
    check(&pair, &engine, &mut worker, packet);
    let tables = (0..pair[0].program().tables.len()).map(TableId::at);
    let entries = tables.flat_map(|id| {
        pair[0]
            .table(id)
            .into_iter()
            .flat_map(move |table| table.entries().map(move |entry| Update::Delete(id, entry.id)))
    });
    let entries = entries.collect();
    apply(&mut pair, &mut engine, entries);
    check(&pair, &engine, &mut worker, packet);
    engine.improve();
    check(&pair, &engine, &mut worker, packet);
}

fn apply(pair: &mut [State; 2], engine: &mut Engine, updates: Vec<Update>) {
    let [interpreted, compiled] = pair;
    let _: Result<_, _> = interpreted.apply(updates.clone(), 0);
    if let Ok(bundle) = compiled.apply(updates, 0) {
        engine.follow(compiled, &bundle).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn check(pair: &[State; 2], engine: &Engine, worker: &mut Worker, packet: &[u8]) {
    let views = engine.views();
    for port in 0..2 {
        let received = Received { len: packet.len() as u32 + 100, ..Received::whole(packet, port) };
        let world = || World { now: 1_000_000, seed: 7 };
        let expected = interp::run(&pair[0], &mut world(), &received, &LIMITS, false).effects;
        let mut effects = Effects::default();
        worker.run(&views.load(), &mut world(), &received, &mut effects);
        let canonical = |effects: Vec<interp::Effect>| -> Vec<_> {
            effects.into_iter().map(|effect| effect.canonical(&received)).collect()
        };
        assert_eq!(canonical(effects.to_interp()), canonical(expected));
        assert_eq!(counts(&pair[0]), counts(&pair[1]));
    }
}

fn counts(state: &State) -> Vec<String> {
    let (program, arrays) = (state.program(), state.arrays());
    let guard = arrays.lock();
    let counters = program.counters.iter().enumerate().flat_map(|(i, counter)| {
        (0..counter.size).map(move |cell| format!("{:?}", arrays.counter(CounterId::at(i), cell.into())))
    });
    let registers = program.registers.iter().enumerate().flat_map(|(i, register)| {
        let guard = &guard;
        (0..register.size)
            .map(move |cell| format!("{:?}", arrays.read(guard, RegisterId::at(i), cell.into())))
    });
    let tables = (0..program.tables.len()).filter_map(|i| state.table(TableId::at(i)));
    let entries = tables.map(|table| {
        let hits: Vec<_> = table.entries().map(|entry| entry.stats.hits()).collect();
        format!("{:?} {hits:?}", table.lookups())
    });
    counters.chain(registers).chain(entries).collect()
}

fuzz_target!(|data: &[u8]| run(data));
