//! What comes back: a table that an action applies again, a worker after a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};

use codegen::{Effects, Engine, Options, Worker};
use pipeline::fuzzing::World;
use pipeline::interp::{Effect, Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::{State, Update};
use pipeline::{Checked, text};
use support::Pair;

/// The first lookup hits; its action changes the key and applies the table again, which misses.
const AGAIN: &str = "program again {
  header h_t { a: bit<8>; } instance h: h_t;
  action next() { h.a = 8w9; call once_more; }
  table t { key a: exact = h.a; actions next; size 8; }
  parser p { state start { extract h; goto accept; } }
  block once_more { apply t { miss { send current port 9w2; } }; }
  block control { apply t { hit { send current port 9w3; } miss { send current port 9w4; } }; }
  stage s { parser p; control control; }
}";

fn program() -> Checked {
    Checked::new(text::parse(AGAIN).unwrap_or_else(|error| panic!("{error}"))).unwrap()
}

fn insert(program: &Checked) -> Update {
    let entry = text::parse_entry(program, TableId(0), "entry { a: 8w1; } -> next();", &|_| None).unwrap();
    Update::Insert(TableId(0), entry)
}

fn ports(effects: &[Effect]) -> Vec<u32> {
    let port = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), .. } => Some(*port),
        _ => None,
    };
    effects.iter().filter_map(port).collect()
}

#[test]
fn an_action_that_applies_its_table_again_does_not_change_the_outcome_of_the_first_lookup() {
    let program = program();
    let mut pair = Pair::new(&program, Limits::default());
    assert!(pair.apply(vec![insert(&program)]));
    assert_eq!(ports(&pair.check(&Received::whole(&[1], 1))), [2, 3]);
    assert_eq!(ports(&pair.check(&Received::whole(&[5], 1))), [4]);
}

#[test]
fn a_worker_forgets_what_a_panic_interrupted() {
    let program = program();
    let mut state = State::new(program.clone());
    let bundle = state.apply(vec![insert(&program)], 0).unwrap();
    let mut engine = Engine::new(&state, Options::default()).unwrap();
    engine.follow(&state, &bundle).unwrap();
    let views = engine.views();
    let (mut worker, mut world) = (Worker::new(), World { now: 1, seed: 1 });
    let interrupted = catch_unwind(AssertUnwindSafe(|| {
        let packets =
            (0..4).map(|i| if i < 3 { Received::whole(&[1], 1) } else { panic!("the source fails") });
        worker.run_batch(&views.load(), &mut world, packets, &mut Effects::default(), &mut Vec::new());
    }));
    assert!(interrupted.is_err());
    let lookups = || state.table(TableId(0)).unwrap().lookups().0;
    let mut effects = Effects::default();
    worker.run(&views.load(), &mut world, &Received::whole(&[1], 1), &mut effects);
    assert_eq!(ports(&effects.to_interp()), [2, 3]);
    assert_eq!(lookups(), 2, "those of the last packet alone");
}

/// A table of prefixes, which also has an entry without a condition and one of a prefix of no bits.
const PREFIXES: &str = "program prefixes {
  header h_t { a: bit<32>; } instance h: h_t;
  action to(port: bit<32>) { send current port $port; }
  table t { key a: lpm = h.a; actions to; size 100; }
  parser p { state start { extract h; goto accept; } }
  block control { apply t; }
  stage s { parser p; control control; }
}";

#[test]
fn of_two_entries_for_everything_the_older_wins() {
    let program = Checked::new(text::parse(PREFIXES).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    let entry = |text: &str| {
        Update::Insert(TableId(0), text::parse_entry(&program, TableId(0), text, &|_| None).unwrap())
    };
    let mut install = |update| assert!(pair.apply(vec![update]));
    for i in 0..12 {
        let (address, bits) = (i << 24, 8 + i);
        install(entry(&format!("entry {{ a: 32w{address} / {bits}; }} -> to(32w{});", 10 + i)));
    }
    install(entry("entry { } -> to(32w1);"));
    install(entry("entry { a: 32w0 / 0; } -> to(32w2);"));
    assert_eq!(ports(&pair.check(&Received::whole(&[0xff, 0, 0, 0], 1))), [1]);
    assert_eq!(ports(&pair.check(&Received::whole(&[3, 0, 0, 0], 1))), [13]);
}
