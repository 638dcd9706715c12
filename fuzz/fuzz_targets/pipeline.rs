//! Match-action programs: as text, and made from choices.
//!
//! Invariants:
//! - No panic, for any text, program, entries and packet; the interpreter stays within its limits.
//! - What parses prints as a text that parses to the same program, valid or not.
//! - A program made from choices is valid.
//! - A refused bundle leaves the tables as they were.
//! - Equal states, environments and packets have equal outcomes, traced or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipeline::fuzzing::{self, Source, World};
use pipeline::interp::{self, Limits, Outcome, Received};
use pipeline::ir::{Program, TableId};
use pipeline::state::{State, Update};
use pipeline::{Checked, text};

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

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    if kind % 2 == 0 {
        from_text(data);
    } else {
        from_choices(data);
    }
});

/// The text ends at the first zero byte; the packet follows.
fn from_text(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let Ok(program) = text::parse(text) else { return };
    // Names that no text can have do not come from a text.
    assert_eq!(text::parse(&text::print(&program)).as_ref(), Ok(&program));
    let Ok(checked) = Checked::new(program) else { return };
    if is_large(&checked) {
        return;
    }
    let state = State::new(checked);
    check(&state, &state, data.get(end + 1..).unwrap_or_default());
}

/// Programs whose arrays take long to allocate.
fn is_large(program: &Program) -> bool {
    let sizes = program.counters.iter().map(|x| x.size).chain(program.meters.iter().map(|x| x.size));
    sizes.chain(program.registers.iter().map(|x| x.size)).any(|size| size > 10_000)
}

/// The first byte is the length of the packet.
fn from_choices(data: &[u8]) {
    let Some((len, data)) = data.split_first() else { return };
    let (packet, choices) = data.split_at(usize::from(*len).min(data.len()));
    let mut source = Source::new(choices);
    let program = fuzzing::program(&mut source);
    let checked = Checked::new(program).unwrap_or_else(|errors| panic!("{errors:?}"));
    let (mut one, mut other) = (State::new(checked.clone()), State::new(checked));
    let updates = fuzzing::updates(&one, &mut source);
    // As one bundle, which may be refused as a whole; then those that succeed alone.
    let before = entries(&one);
    if one.apply(updates.clone(), 0).is_err() {
        assert_eq!(entries(&one), before);
        for update in updates.clone() {
            let _ = one.apply(vec![update], 0);
        }
    }
    for update in updates {
        let _: Result<_, _> = other.apply(vec![update], 0);
    }
    check(&one, &other, packet);
    let deletes = |state: &State| -> Vec<Update> {
        let tables = (0..state.program().tables.len()).map(TableId::at);
        let of = |id: TableId| {
            state.table(id).into_iter().flat_map(move |t| t.entries().map(move |e| Update::Delete(id, e.id)))
        };
        tables.flat_map(of).collect()
    };
    one.apply(deletes(&one), 0).unwrap_or_else(|error| panic!("{error}"));
    assert!(entries(&one).is_empty());
}

fn entries(state: &State) -> Vec<String> {
    let tables = (0..state.program().tables.len()).filter_map(|i| state.table(TableId::at(i)));
    tables
        .flat_map(|table| table.entries().map(|entry| format!("{:?}", entry.entry)).collect::<Vec<_>>())
        .collect()
}

fn check(one: &State, other: &State, packet: &[u8]) {
    // Meters and registers keep what earlier packets did: equal states stay equal only if both see the same packets.
    let shared = std::ptr::eq(one, other);
    for port in 0..2 {
        let first = run(one, packet, port, false);
        assert!(!first.effects.is_empty());
        assert!(first.steps <= LIMITS.steps + LIMITS.depth * 4);
        if !shared {
            let second = run(other, packet, port, true);
            assert_eq!(first.effects, second.effects);
            second.trace.iter().for_each(|event| drop(event.text(other)));
        }
    }
}

fn run(state: &State, packet: &[u8], port: u32, trace: bool) -> Outcome {
    let received = Received { len: packet.len() as u32 + 100, ..Received::whole(packet, port) };
    interp::run(state, &mut World { now: 1_000_000, seed: 7 }, &received, &LIMITS, trace)
}
