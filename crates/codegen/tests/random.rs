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
use pipeline::ir::{Dest, Program, Stmt, Via};
use support::{Pair, with_stack};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs a program; returns the kinds of effects that occurred.
fn case(seed: u64, simple: bool) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    let mut random = World { now: 0, seed };
    let choices: Vec<u8> = (0..3000).map(|_| random.random() as u8).collect();
    let mut source = Source::new(&choices);
    let mut program = program(&mut source);
    if simple {
        simplify(&mut program);
    }
    let program = Checked::new(program).unwrap();
    let mut pair = Pair::new(&program, Limits { steps: 3000, ..Limits::default() });
    for update in updates(&pair.interpreted, &mut source) {
        // Entries may collide.
        pair.apply(vec![update]);
    }
    let mut seen = Vec::new();
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
        seen.push((bytes, port));
    }
    // Again, so that packets may follow each other's ways.
    let batch: Vec<_> = seen.iter().map(|(bytes, port)| Received::whole(bytes, *port)).collect();
    for _ in 0..3 {
        pair.check_batch(&batch);
        pair.advance(1000);
    }
    // Others that differ from them in few bytes or in length, some of them twice.
    let mut others = Vec::new();
    for (bytes, port) in seen.iter().cycle().take(32) {
        let mut bytes = bytes.clone();
        for _ in 0..random.random() % 3 {
            let at = random.random() as usize % bytes.len().max(1);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (random.random() % 8));
        }
        if random.random().is_multiple_of(4) {
            bytes.truncate(random.random() as usize % (bytes.len() + 1));
        }
        others.push((bytes, *port));
    }
    let batch: Vec<_> = others.iter().map(|(bytes, port)| Received::whole(bytes, *port)).collect();
    for _ in 0..2 {
        pair.check_batch(&batch);
        pair.advance(1000);
    }
    pair.check_state();
    if pair.engine.is_specialised() {
        kinds.insert("specialised".into());
    }
    kinds
}

/// Leaves one stage of a program, and of its blocks what specialised code may have.
fn simplify(program: &mut Program) {
    fn keep(body: &mut Vec<Stmt>) {
        body.retain_mut(|stmt| match stmt {
            Stmt::Group(..) | Stmt::Reparse | Stmt::Call(_) | Stmt::Goto(_) => false,
            Stmt::Send(send) => {
                send.via = Via::Direct;
                // Without another stage there is no way back.
                send.to != Dest::Same
            }
            Stmt::If(_, yes, no) => {
                keep(yes);
                keep(no);
                true
            }
            Stmt::Switch(_, cases, default) => {
                cases.iter_mut().for_each(|(_, body)| keep(body));
                keep(default);
                true
            }
            Stmt::Apply(_, applied) => {
                applied.actions.iter_mut().for_each(|(_, body)| keep(body));
                [&mut applied.hit, &mut applied.miss, &mut applied.other].into_iter().for_each(keep);
                true
            }
            _ => true,
        });
    }
    program.stages.truncate(1);
    program.stages.iter_mut().for_each(|stage| stage.next = None);
    program.blocks.iter_mut().for_each(|(_, body)| keep(body));
    program.actions.iter_mut().for_each(|action| keep(&mut action.body));
    for table in &mut program.tables {
        table.profile = None;
        table.entries.clear();
    }
}

#[test]
fn random_programs_agree() {
    with_stack(|| {
        let mut kinds = BTreeSet::new();
        let (first, cases) = (number("MSWITCH_CODEGEN_SEED", 1), number("MSWITCH_CODEGEN_CASES", 60));
        for (seed, simple) in (first..first + cases).flat_map(|seed| [(seed, false), (seed, true)]) {
            match std::panic::catch_unwind(|| case(seed, simple)) {
                Ok(found) => kinds.extend(found),
                Err(panic) => {
                    eprintln!("seed {seed}, simple: {simple}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        // The comparison is worth something only if packets get this far.
        for kind in [
            "port",
            "Flood",
            "All",
            "controller",
            "digest",
            "drop",
            "drop: no extern",
            "NoDestination",
            "specialised",
        ] {
            assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
        }
    });
}
