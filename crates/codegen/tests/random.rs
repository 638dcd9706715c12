//! Random programs, entries and packets: code against the interpreter.
//!
//! `MSWITCH_CODEGEN_CASES` sets the number of programs, `MSWITCH_CODEGEN_SEED` the first one's seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;

use pipeline::Checked;
use pipeline::env::Env;
use pipeline::fuzzing::{Source, World, program, updates};
use pipeline::interp::{Dropped, Effect, Exit, Limits, Received};
use support::{Pair, with_stack};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a program; returns the kinds of effects that occurred.
fn case(seed: u64) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    let mut random = World { now: 0, seed };
    let choices: Vec<u8> = (0..3000).map(|_| random.random() as u8).collect();
    let mut source = Source::new(&choices);
    let program = Checked::new(program(&mut source)).unwrap();
    let mut pair = Pair::new(&program, Limits { steps: 3000, ..Limits::default() });
    for update in updates(&pair.interpreted, &mut source) {
        // Entries may collide.
        pair.apply(vec![update]);
    }
    for _ in 0..8 {
        let len = (random.random() % 200) as usize;
        let small = random.random().is_multiple_of(2);
        let bytes: Vec<u8> = (0..len).map(|_| random.random() as u8 & if small { 3 } else { 255 }).collect();
        let port = (random.random() % 5) as u32;
        let effects = pair.check(&Received {
            len: 300,
            flow_hash: random.random() as u32,
            ..Received::whole(&bytes, port)
        });
        kinds.extend(effects.iter().map(|effect| match effect {
            Effect::Drop(Dropped::Reason(_)) => "drop".into(),
            Effect::Drop(Dropped::NoExtern(_)) => "drop: no extern".into(),
            Effect::Drop(other) => format!("{other:?}"),
            Effect::Output { to: Exit::Port(_), .. } => "port".into(),
            Effect::Output { to, .. } => format!("{to:?}"),
            Effect::Controller { .. } => "controller".into(),
            Effect::Digest { .. } => "digest".into(),
        }));
        pair.advance(1000);
    }
    pair.check_state();
    kinds
}

#[test]
fn random_programs_agree() {
    with_stack(|| {
        let mut kinds = BTreeSet::new();
        let (first, cases) = (number("MSWITCH_CODEGEN_SEED", 1), number("MSWITCH_CODEGEN_CASES", 60));
        for seed in first..first + cases {
            match std::panic::catch_unwind(|| case(seed)) {
                Ok(found) => kinds.extend(found),
                Err(panic) => {
                    eprintln!("seed {seed}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        // The comparison is worth something only if packets get this far.
        for kind in
            ["port", "Flood", "All", "controller", "digest", "drop", "drop: no extern", "NoDestination"]
        {
            assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
        }
    });
}
