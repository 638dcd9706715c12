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
use pipeline::ir::{
    BinOp, BlockId, Dest, Expr, LValue, Packet, Program, Send, Slot, Stage, StageId, Stmt, Type, VarId, Via,
};
use support::{Pair, with_stack};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What is made of a random program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// It stays as it is.
    Any,
    /// One stage that specialised code is for.
    Simple,
    /// Two such stages, the second of which has no parser.
    Chain,
    /// The same with packets that enter the stages in passes of their own.
    Copies,
}

/// Runs a program; returns the kinds of effects that occurred.
fn case(seed: u64, shape: Shape) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    let mut random = World { now: 0, seed };
    let choices: Vec<u8> = (0..3000).map(|_| random.random() as u8).collect();
    let mut source = Source::new(&choices);
    let mut program = program(&mut source);
    match shape {
        Shape::Any => {}
        Shape::Simple => simplify(&mut program),
        Shape::Chain => chain(&mut program, seed),
        Shape::Copies => {
            chain(&mut program, seed);
            copies(&mut program, seed);
        }
    }
    let program = Checked::new(program).unwrap();
    let limits = match shape {
        // No packet of specialised code may exceed the steps, whatever it leads to.
        Shape::Copies => Limits { steps: 1_000_000, passes: 4 + seed as u32 % 24, ..Limits::default() },
        _ => Limits { steps: 3000, ..Limits::default() },
    };
    let mut pair = Pair::new(&program, limits);
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
        kinds.insert(format!("specialised: {shape:?}"));
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

/// Makes two stages of a program: the second one runs another of its blocks, and sends packets to the port that the
/// first has chosen. `choice` chooses what they do besides.
fn chain(program: &mut Program, choice: u64) {
    fn keep(body: &mut Vec<Stmt>, sends: bool) {
        body.retain_mut(|stmt| match stmt {
            Stmt::Controller(..) => false,
            Stmt::Send(_) => sends,
            Stmt::If(_, yes, no) => {
                keep(yes, sends);
                keep(no, sends);
                true
            }
            Stmt::Switch(_, cases, default) => {
                cases.iter_mut().for_each(|(_, body)| keep(body, sends));
                keep(default, sends);
                true
            }
            Stmt::Apply(_, applied) => {
                applied.actions.iter_mut().for_each(|(_, body)| keep(body, sends));
                [&mut applied.hit, &mut applied.miss, &mut applied.other]
                    .into_iter()
                    .for_each(|body| keep(body, sends));
                true
            }
            _ => true,
        });
    }
    simplify(program);
    let Some(first) = program.stages.first().cloned() else { return };
    let of_first: Vec<_> = [Some(first.control), first.finish].into_iter().flatten().collect();
    for (i, (_, body)) in program.blocks.iter_mut().enumerate() {
        keep(body, !of_first.contains(&BlockId::at(i)) && choice.is_multiple_of(3));
    }
    program.actions.iter_mut().for_each(|action| keep(&mut action.body, false));
    let number = |at: usize| Expr::Var(VarId::at(at)).cast(Type::Bit(32)).op(BinOp::And, Expr::bit(32, 7));
    let numbers: Vec<_> = program.vars.iter().map(|var| matches!(var.ty, Type::Bit(_))).collect();
    let mut numbers =
        (0..numbers.len()).filter(|at| numbers[*at]).map(number).cycle().skip(choice as usize % 5);
    let mut next = || numbers.next().unwrap_or_else(|| Expr::bit(32, 3));
    let send = Send {
        class: choice.is_multiple_of(2).then(&mut next),
        queue: choice.is_multiple_of(5).then(&mut next),
        limit: choice.is_multiple_of(7).then(|| Expr::bit(32, 20)),
        ..Send::current(Dest::Port(next()))
    };
    let condition = next().op(BinOp::Ne, Expr::bit(32, 5));
    let mut end =
        first.finish.and_then(|id| program.blocks.get(id.index())).map_or(vec![], |(_, body)| body.clone());
    end.push(Stmt::If(condition, vec![send.into()], vec![]));
    let out = program.add_slot("egress port", 32, Slot::EgressPort);
    let last = program.add_var("egress port of all", Type::Bit(32));
    let mut leave = vec![Stmt::Set(LValue::Var(last), Expr::Var(out))];
    leave.push(Send { via: Via::Direct, ..Send::current(Dest::Port(Expr::Var(last))) }.into());
    let finish = program.declare_block("end of the first");
    program.define_block(finish, end);
    let leaves = program.declare_block("leave");
    program.define_block(leaves, leave);
    let others = (0..program.blocks.len()).map(BlockId::at);
    let second = others
        .into_iter()
        .find(|id| *id != finish && *id != leaves && Some(*id) != first.deparser && !of_first.contains(id));
    let control = second.unwrap_or(leaves);
    let deparser = first.deparser;
    program.stages = vec![
        Stage { finish: Some(finish), deparser: None, next: Some(StageId(1)), ..first },
        Stage { name: "second".into(), parser: None, control, finish: Some(leaves), deparser, next: None },
    ];
}

/// Makes the stages of a chain send copies to each other.
fn copies(program: &mut Program, choice: u64) {
    let is_received = || {
        let kind = program.vars.iter().position(|var| var.slot == Some(Slot::Instance));
        kind.map(|kind| Expr::Var(VarId::at(kind)))
    };
    let kind = match is_received() {
        Some(kind) => kind.cast(Type::Bit(32)),
        None => Expr::Var(program.add_slot("kind", 32, Slot::Instance)),
    };
    let first = kind.clone().equals(Expr::bit(32, 0));
    let carry: Vec<_> = (0..program.vars.len()).map(VarId::at).skip(choice as usize % 4).step_by(2).collect();
    let port = |n: u64| Dest::Port(Expr::bit(32, n));
    let clone = Send {
        packet: Packet::Original,
        via: Via::Stage(StageId(1)),
        instance: 1,
        carry: carry.clone(),
        limit: choice.is_multiple_of(5).then(|| Expr::bit(32, 30)),
        ..Send::current(port(6))
    };
    let copy = Send { instance: 5, ..Send::current(port(7)) };
    let resubmit = Send {
        packet: Packet::Original,
        via: Via::Stage(StageId(0)),
        instance: 6,
        carry: carry.clone(),
        ..Send::current(Dest::Same)
    };
    let egress = Send { via: Via::Stage(StageId(1)), instance: 2, ..Send::current(port(8)) };
    let again = Send { via: Via::Stage(StageId(0)), instance: 4, carry, ..Send::current(Dest::Same) };
    let [one, two] = [0, 1].map(|i| program.stages[i].finish.unwrap());
    let some = |i: u64, send: Send| (choice >> i & 1 == 1).then(|| Stmt::from(send));
    let of_first = [some(0, clone), some(1, copy), some(2, resubmit).filter(|_| choice.is_multiple_of(4))];
    let of_second = [some(3, egress), some(4, again).filter(|_| choice.is_multiple_of(4))];
    for (block, sends) in [(one, of_first.to_vec()), (two, of_second.to_vec())] {
        let sends = sends.into_iter().flatten().collect();
        program.blocks[block.index()].1.insert(0, Stmt::If(first.clone(), sends, vec![]));
    }
}

#[test]
fn random_programs_agree() {
    with_stack(|| {
        let mut kinds = BTreeSet::new();
        let (first, cases) = (number("MSWITCH_CODEGEN_SEED", 1), number("MSWITCH_CODEGEN_CASES", 40));
        let shapes = [Shape::Any, Shape::Simple, Shape::Chain, Shape::Copies];
        for (seed, shape) in (first..first + cases).flat_map(|seed| shapes.map(|shape| (seed, shape))) {
            match std::panic::catch_unwind(|| case(seed, shape)) {
                Ok(found) => kinds.extend(found),
                Err(panic) => {
                    eprintln!("seed {seed}, {shape:?}");
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
            "specialised: Simple",
            "specialised: Chain",
            "specialised: Copies",
        ] {
            assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
        }
    });
}
