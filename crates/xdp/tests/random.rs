//! Random programs, entries and packets: a card against the interpreter.
//!
//! `MSWITCH_XDP_CASES` sets the number of programs, `MSWITCH_XDP_SEED` the first one's seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use pipeline::Checked;
use pipeline::env::Env;
use pipeline::fuzzing::{Source, World, program, updates};
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{
    BinOp, Constant, Dest, Digest, DigestId, Expr, FieldType, HashKind, HeaderId, HeaderRef, Item, Keyset,
    LValue, ParserOp, Program, Register, RegisterId, Send, Stmt, Transition, Type, VarId, Via,
};
use pipeline::state::{Bundle, State, Update};
use xdp::{Card, CardError, Lowered, Setting, Verdict, reference};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Leaves what a card does, or most of it: with `all`, what it hands over stays in, too.
fn keep(body: &mut Vec<Stmt>, all: bool) {
    body.retain_mut(|stmt| match stmt {
        Stmt::Send(_) | Stmt::Group(..) | Stmt::Reparse | Stmt::Call(_) | Stmt::Goto(_) => false,
        Stmt::RegisterRead(..) | Stmt::RegisterWrite(..) => !all,
        Stmt::Controller(..) | Stmt::Digest(..) | Stmt::MeterEntry(..) => all,
        Stmt::Meter(..) => !all,
        Stmt::Atomic(body) if !all => {
            keep(body, all);
            true
        }
        Stmt::Random(..) | Stmt::Truncate(_) | Stmt::Insert(_) | Stmt::Remove(_) | Stmt::Extern(..) => all,
        Stmt::Hash(_, kind, items) => {
            all || (*kind != HashKind::Toeplitz && items.iter().all(|item| *item != Item::Payload))
        }
        Stmt::Atomic(_) => false,
        Stmt::If(_, yes, no) => {
            keep(yes, all);
            keep(no, all);
            true
        }
        Stmt::Switch(_, cases, default) => {
            cases.iter_mut().for_each(|(_, body)| keep(body, all));
            keep(default, all);
            true
        }
        Stmt::Apply(_, applied) => {
            applied.actions.iter_mut().for_each(|(_, body)| keep(body, all));
            [&mut applied.hit, &mut applied.miss, &mut applied.other]
                .into_iter()
                .for_each(|body| keep(body, all));
            true
        }
        _ => true,
    });
}

/// Makes a program one that a card may run: a stage whose end sends the packet to the port in a variable.
fn simplify(program: &mut Program, all: bool) {
    program.stages.truncate(1);
    program.blocks.iter_mut().for_each(|(_, body)| keep(body, all));
    program.actions.iter_mut().for_each(|action| keep(&mut action.body, all));
    for table in &mut program.tables {
        (table.profile, table.open, table.timeouts) = (None, false, false);
        table.meter = table.meter.filter(|_| all);
        table.entries.clear();
    }
    let states = program.parsers.iter_mut().flat_map(|parser| &mut parser.states);
    for state in states.filter(|_| !all) {
        for op in &mut state.ops {
            match op {
                ParserOp::Do(stmt) => {
                    let mut body = vec![stmt.clone()];
                    keep(&mut body, all);
                    *stmt =
                        body.pop().unwrap_or(Stmt::If(Expr::Const(Constant::bool(false)), vec![], vec![]));
                }
                ParserOp::Extract(_, length @ Some(_)) => *length = Some(Expr::bit(32, 8)),
                _ => {}
            }
        }
        if let Transition::Select(select) = &mut state.next {
            for case in &mut select.cases {
                if case.sets.iter().any(|set| matches!(set, Keyset::Set(_))) {
                    case.sets = vec![Keyset::Any; select.on.len()];
                }
            }
        }
    }
    // All that the program has computed decides on the port.
    let mut all_values: Vec<Expr> = (0..program.vars.len()).map(|i| Expr::Var(VarId::at(i))).collect();
    for id in (0..program.headers.len()).map(HeaderId::at) {
        all_values.push(Expr::Valid(HeaderRef::Header(id)).cast(Type::Bit(1)));
        let fields = program.header_type(id).map_or(&[][..], |ty| &ty.fields);
        let scalar = fields.iter().enumerate().filter(|(_, field)| matches!(field.ty, FieldType::Scalar(_)));
        all_values.extend(scalar.map(|(i, _)| Expr::field(id, i as u16)));
    }
    let narrow =
        |value: &Expr| pipeline::validate::expr_type(program, value).is_some_and(|ty| ty.width() <= 256);
    all_values.retain(narrow);
    let sum = program.add_var("sum", Type::Bit(32));
    let items = all_values.into_iter().map(Item::Value).collect();
    let hash = Stmt::Hash(LValue::Var(sum), HashKind::Crc32, items);
    let send = Send { via: Via::Direct, ..Send::current(Dest::Port(Expr::Var(sum))) };
    let mut body = vec![hash];
    if !all {
        body.extend(remember(program, sum));
    }
    body.push(send.into());
    let end = program.declare_block("end");
    program.define_block(end, body);
    for stage in &mut program.stages {
        (stage.next, stage.finish) = (None, Some(end));
    }
}

/// Statements that add a variable to a register, and make a digest of every other sum.
fn remember(program: &mut Program, sum: VarId) -> Vec<Stmt> {
    let [ty, wide] = [Type::Bit(32), Type::Bit(100)];
    let register = RegisterId::at(program.registers.len());
    program.registers.push(Register { name: "sums".into(), size: 4, ty });
    let digest = DigestId::at(program.digests.len());
    program.digests.push(Digest { name: "sums".into(), types: vec![wide, ty] });
    let before = program.add_var("before", ty);
    let index = || Expr::Var(sum).cast(Type::Bit(2));
    let after = || Expr::Var(before).op(BinOp::Add, Expr::Var(sum));
    let add = vec![
        Stmt::RegisterRead(LValue::Var(before), register, index()),
        Stmt::RegisterWrite(register, index(), after()),
    ];
    let is_odd = after().cast(Type::Bit(1)).equals(Expr::bit(1, 1));
    let values = vec![after().cast(wide), Expr::Var(before)];
    vec![Stmt::Atomic(add), Stmt::If(is_odd, vec![Stmt::Digest(digest, values)], vec![])]
}

/// The state after these updates, and a card that has followed each.
fn filled(program: &Checked, lowered: &Lowered, updates: &[Update]) -> Result<(State, Card), CardError> {
    let mut state = State::new(program.clone());
    let mut card = Card::new(lowered.clone(), &state)?;
    for update in updates {
        let bundle = state.apply(vec![update.clone()], 0).unwrap();
        follow(&mut card, &state, update, &bundle)?;
    }
    Ok((state, card))
}

fn follow(card: &mut Card, state: &State, update: &Update, bundle: &Bundle) -> Result<(), CardError> {
    card.follow(state, bundle)?;
    match update {
        Update::Register(register, index, value) if value.width() <= 64 => {
            card.set_register(*register, *index, value.low_u64())
        }
        Update::Meter(meter, index, rates) => card.set_meter(*meter, *index, *rates, 0),
        _ => Ok(()),
    }
}

/// Runs a program; counts what became of it.
fn case(seed: u64, all: bool, kinds: &mut BTreeMap<&'static str, usize>) {
    let mut random = World { now: 0, seed };
    let choices: Vec<u8> = (0..3000).map(|_| random.random() as u8).collect();
    let mut source = Source::new(&choices);
    let mut program = program(&mut source);
    simplify(&mut program, all);
    // What is left out may have been what a loop of the parser consumed, or a field that was used.
    let Ok(program) = Checked::new(program) else {
        *kinds.entry("invalid").or_default() += 1;
        return;
    };
    let lowered = match xdp::lower(&program, Setting::Test) {
        Ok(lowered) => lowered,
        Err(_) => {
            *kinds.entry("on the CPU").or_default() += 1;
            return;
        }
    };
    let (mut state, mut card) = filled(&program, &lowered, &[]).unwrap();
    let mut held = Vec::new();
    for update in updates(&state, &mut source) {
        // Entries may collide.
        let Ok(bundle) = state.apply(vec![update.clone()], 0) else { continue };
        held.push(update.clone());
        match follow(&mut card, &state, &update, &bundle) {
            Ok(()) => {}
            Err(CardError::Entries(_) | CardError::Update { .. }) => {
                *kinds.entry("entries that do not fit").or_default() += 1;
                held.pop();
                (state, card) = filled(&program, &lowered, &held).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    let limits = Limits { steps: 1_000_000, ..Limits::default() };
    for _ in 0..16 {
        let len = 14 + (random.random() % 186) as usize;
        let small = random.random().is_multiple_of(2);
        let bytes: Vec<u8> = (0..len).map(|_| random.random() as u8 & if small { 3 } else { 255 }).collect();
        let port = (random.random() % 2) as u32;
        random.now += 1000;
        card.set_time(random.now).unwrap();
        let found = card.run(port, &bytes).unwrap_or_else(|error| panic!("{error}"));
        let received = Received { time: random.now, ..Received::whole(&bytes, port) };
        let kind = match found.verdict {
            Verdict::Cpu => {
                assert_eq!(found.packet, bytes);
                *kinds.entry("handed over").or_default() += 1;
                continue;
            }
            Verdict::Sent(_) => "sent",
            Verdict::Dropped(_) => "dropped",
        };
        *kinds.entry(kind).or_default() += 1;
        *kinds.entry("finished for the CPU").or_default() += usize::from(found.finished.is_some());
        let outcome = interp::run(&state, &mut random.clone(), &received, &limits, true);
        if !reference::is_right(&program, &outcome.effects, &received, &found) {
            let trace: Vec<_> = outcome.trace.iter().map(|event| event.text(&state)).collect();
            panic!("{found:?} instead of {:?}\n{}", outcome.effects, trace.join("\n"));
        }
    }
    let difference = reference::counts(&card, &state, 64).unwrap();
    assert_eq!(difference, None);
}

#[test]
fn random_programs_agree() {
    // Programs may nest deeply.
    let run = std::thread::Builder::new().stack_size(256 << 20).spawn(programs_agree).unwrap();
    run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn programs_agree() {
    let (first, cases) = (number("MSWITCH_XDP_SEED", 1), number("MSWITCH_XDP_CASES", 40));
    let mut kinds = BTreeMap::new();
    for (seed, all) in (first..first + cases).flat_map(|seed| [false, true].map(|all| (seed, all))) {
        if let Err(panic) =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(seed, all, &mut kinds)))
        {
            eprintln!("seed {seed}, all: {all}");
            std::panic::resume_unwind(panic);
        }
    }
    // The comparison is worth something only if packets get this far.
    let common = |kind: &str, least: u64| kinds.get(kind).is_some_and(|count| *count as u64 >= least);
    assert!(
        common("sent", 4 * cases)
            && common("handed over", cases)
            && common("dropped", cases / 4)
            && common("finished for the CPU", cases),
        "{kinds:?}"
    );
    println!("{kinds:?}");
}
