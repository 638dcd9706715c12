//! Entries change while another thread tidies up.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use codegen::{Effect, Effects, Worker};
use match_action::{Compiled, Subject};
use pipeline::fuzzing::World;
use pipeline::interp::{Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::{State, Update};
use pipeline::{Checked, text};

const TABLE: TableId = TableId(0);
/// Entries that the table is built of at first, and those with which it has outgrown that.
const BUILT: u32 = 1200;
const GROWN: u32 = 4 * BUILT + 100;
/// Times that each seventh entry changes, not too often for a table to be built anew meanwhile.
const ROUNDS: u32 = 10;

const PROGRAM: &str = "program ternary {
  header h_t { a: bit<32>; } instance h: h_t;
  action to(port: bit<32>) { send current port $port; }
  table t { key a: ternary = h.a; actions to; size 100000; }
  parser p { state start { extract h; goto accept; } }
  block control { apply t; }
  stage s { parser p; control control; }
}";

fn subject() -> Subject {
    Subject {
        name: "entries",
        limits: Limits::default(),
        compile: |state, options| codegen::compile(state.program(), options).map(Arc::new),
    }
}

/// The entry for the `n`th key, or for it and another one.
fn entry(state: &State, n: u32, port: u32) -> pipeline::ir::Entry {
    let mask = if n.is_multiple_of(2) { u32::MAX } else { u32::MAX - 1 };
    let text = format!("entry priority 1 {{ a: 32w{} &&& 32w{mask}; }} -> to(32w{port});", n * 2);
    text::parse_entry(state.program(), TABLE, &text, &|_| None).unwrap()
}

#[test]
fn changes_of_entries_are_followed_while_their_table_is_built_anew() {
    let program = text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"));
    let mut state = State::new(Checked::new(program).unwrap());
    let first = (0..BUILT).map(|n| Update::Insert(TABLE, entry(&state, n, n))).collect();
    state.apply(first, 0).unwrap();
    let compiled = Compiled::untended(subject());
    compiled.start(&state);
    let mut apply = |change: fn(TableId, pipeline::ir::Entry) -> Update, n, port| {
        let bundle = state.apply(vec![change(TABLE, entry(&state, n, port))], 0).unwrap();
        compiled.applied(&state, &bundle);
    };
    let (ends, tidied) = (AtomicBool::new(false), AtomicU32::new(0));
    (BUILT..GROWN).for_each(|n| apply(Update::Insert, n, n));
    let table = || compiled.tables([TABLE].into_iter())[0].unwrap();
    assert!(table().is_stale);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(SeqCst) {
                compiled.tidy();
                tidied.fetch_add(1, SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            (0..GROWN).step_by(7).for_each(|n| apply(Update::Modify, n, n + round * GROWN));
        }
        // The table is built in the first time.
        while tidied.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        ends.store(true, SeqCst);
    });
    assert!(!table().is_stale, "it was built anew");
    let view = compiled.views().load_full().unwrap().load();
    let (mut worker, mut world) = (Worker::new(), World { now: 0, seed: 1 });
    for n in 0..GROWN {
        let mut effects = Effects::default();
        worker.run(&view, &mut world, &Received::whole(&(n * 2).to_be_bytes(), 1), &mut effects);
        let expected = if n.is_multiple_of(7) { n + ROUNDS * GROWN } else { n };
        assert!(
            matches!(effects.list(), [Effect::Output { to: Exit::Port(port), .. }] if *port == expected),
            "{n}: {:?} instead of {expected}",
            effects.list()
        );
    }
}
