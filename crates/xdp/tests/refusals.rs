//! Programs and entries that do not fit into the kernel: errors name them, and nothing else breaks. Runs as root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write;

use pipeline::bits::Bits;
use pipeline::interp::{self, Limits, Received};
use pipeline::ir::{ActionCall, ActionId, Constant, Entry, EntryResult, KeyMatch, Match, TableId};
use pipeline::state::{State, Update};
use pipeline::{Checked, fuzzing::World, text};
use xdp::{Card, CardError, EntryError, Setting, Verdict, lower, reference};

const HEADERS: &str = "header eth { dst: bit<48>; src: bit<48>; kind: bit<16>; } instance h: eth;
    parser prs { state start { extract h; goto accept; } }
    var port: bit<16>;
    action to(port: bit<16>) { port = $port; }";

fn program(text: &str) -> Checked {
    Checked::new(text::parse(&format!("program p {{ {HEADERS} {text} }}")).unwrap()).unwrap()
}

/// A program with this table, whose packets go to the port that it chooses, or to 9.
fn with_table(table: &str) -> Checked {
    program(&format!(
        "table t {{ {table} actions to; default to(16w9); size 1024; }}
         block out {{ apply t; send current port port; }} stage s {{ parser prs; control out; }}"
    ))
}

fn entry(is: KeyMatch, priority: u32, port: u64) -> Entry {
    let call = ActionCall { action: ActionId(0), args: [Constant::bit(16, port)].into() };
    let matches = vec![Match { key: 0, is }];
    Entry {
        matches: matches.into(),
        priority,
        result: EntryResult::Action(call),
        idle: 0,
        hard: 0,
        cookie: 0,
    }
}

fn card(program: &Checked) -> (State, Card) {
    let state = State::new(program.clone());
    let card = Card::new(lower(program, Setting::Test).unwrap(), &state).unwrap();
    (state, card)
}

/// The port that a packet with this type goes to, in both.
fn port(state: &State, card: &mut Card, kind: u16) -> u32 {
    let mut bytes = [1_u8; 60];
    bytes[12..14].copy_from_slice(&kind.to_be_bytes());
    let found = card.run(0, &bytes).unwrap();
    let received = Received::whole(&bytes, 0);
    let outcome = interp::run(state, &mut World { now: 0, seed: 1 }, &received, &Limits::default(), false);
    assert!(
        reference::is_right(state.program(), &outcome.effects, &received, &found),
        "{found:?} {outcome:?}"
    );
    let Verdict::Sent(port) = found.verdict else { panic!("{found:?}") };
    port
}

fn bits(value: u64) -> Bits {
    Bits::from_u64(16, value)
}

#[test]
fn more_masks_than_a_card_has_are_refused_and_the_others_stay() {
    let program = with_table("key k: ternary = h.kind;");
    let (mut state, mut card) = card(&program);
    let insert =
        |number: u64| Update::Insert(TableId(0), entry(KeyMatch::Mask(bits(0), bits(number)), 1, number));
    for number in 1..=128 {
        let bundle = state.apply(vec![insert(number)], 0).unwrap();
        card.follow(&state, &bundle).unwrap();
    }
    assert_eq!(port(&state, &mut card, 0xfffe), 1);
    assert_eq!(port(&state, &mut card, 0xff00), 1);
    assert_eq!(port(&state, &mut card, 0xffff), 9);
    let bundle = state.apply(vec![insert(129)], 0).unwrap();
    let error = card.follow(&state, &bundle).unwrap_err();
    assert!(matches!(&error, CardError::Entries(EntryError::Masks(table, 128)) if table == "t"), "{error}");
    assert_eq!(error.to_string(), "table t: entries with more than 128 different masks");

    // One mask less, and another one has its place.
    let gone = [1, 129].map(|number| {
        Update::DeleteMatch(TableId(0), entry(KeyMatch::Mask(bits(0), bits(number)), 1, 0).matches, 1)
    });
    for update in gone {
        let bundle = state.apply(vec![update], 0).unwrap();
        card.follow(&state, &bundle).unwrap();
    }
    let bundle = state.apply(vec![insert(129)], 0).unwrap();
    card.follow(&state, &bundle).unwrap();
    assert_eq!(port(&state, &mut card, 0xfffe), 9);
    // Of equal priorities, the older entry is hit: that of mask 128, then that of 129.
    assert_eq!(port(&state, &mut card, 0xff7e), 128);
    let update = Update::DeleteMatch(TableId(0), entry(KeyMatch::Mask(bits(0), bits(128)), 1, 0).matches, 1);
    let bundle = state.apply(vec![update], 0).unwrap();
    card.follow(&state, &bundle).unwrap();
    assert_eq!(port(&state, &mut card, 0xff7e), 129);
}

#[test]
fn a_table_of_the_cpu_has_no_map() {
    let program = program(
        "table t { key k: ternary = h.kind; actions to; default to(16w9); size 1024; count packets; cpu; }
         table u { key k: exact = h.kind; actions to; size 1024; }
         block out { apply u { miss { apply t; } }; send current port port; }
         stage s { parser prs; control out; }",
    );
    let (mut state, mut card) = card(&program);
    let to_cpu: Vec<_> = card.lowered().to_cpu().iter().map(ToString::to_string).collect();
    assert_eq!(to_cpu, ["table t: the mark @cpu"]);
    // With more masks than a card holds of a table.
    for number in 1..=200 {
        let rule = entry(KeyMatch::Mask(bits(0), bits(number)), 1, number);
        let bundle = state.apply(vec![Update::Insert(TableId(0), rule)], 0).unwrap();
        card.follow(&state, &bundle).unwrap();
    }
    let cached = entry(KeyMatch::Exact(bits(0x0101)), 0, 5);
    let bundle = state.apply(vec![Update::Insert(TableId(1), cached)], 0).unwrap();
    card.follow(&state, &bundle).unwrap();
    assert_eq!(port(&state, &mut card, 0x0101), 5);
    let mut other = [1; 60];
    other[12] = 2;
    assert_eq!(card.run(0, &other).unwrap().verdict, Verdict::Cpu);
}

#[test]
fn the_best_of_entries_alike_is_hit_and_the_next_one_behind_it() {
    let program = with_table("key k: ternary = h.kind;");
    let (mut state, mut card) = card(&program);
    let mask = || KeyMatch::Mask(bits(0x0800), bits(0xff00));
    for (priority, number) in [(5, 1), (7, 2), (6, 3)] {
        let bundle =
            state.apply(vec![Update::Insert(TableId(0), entry(mask(), priority, number))], 0).unwrap();
        card.follow(&state, &bundle).unwrap();
    }
    for (expected, priority) in [(2, 7), (3, 6), (1, 5)] {
        assert_eq!(port(&state, &mut card, 0x0806), expected);
        let update = Update::DeleteMatch(TableId(0), entry(mask(), 0, 0).matches, priority);
        let bundle = state.apply(vec![update], 0).unwrap();
        card.follow(&state, &bundle).unwrap();
    }
    assert_eq!(port(&state, &mut card, 0x0806), 9);
    assert_eq!(reference::counts(&card, &state, 8).unwrap(), None);
}

#[test]
fn ranges_that_are_too_many_prefixes_are_refused() {
    let keys: String = (0..4).map(|i| format!("key k{i}: range = h.kind;")).collect();
    let program = with_table(&keys);
    let (mut state, mut card) = card(&program);
    let matches = (0..4).map(|key| Match { key, is: KeyMatch::Range(bits(1), bits(0xfffe)) }).collect();
    let wide = Entry { matches, ..entry(KeyMatch::Range(bits(0), bits(0)), 1, 1) };
    let bundle = state.apply(vec![Update::Insert(TableId(0), wide)], 0).unwrap();
    let error = card.follow(&state, &bundle).unwrap_err();
    assert_eq!(error.to_string(), "table t: an entry's ranges become more than 1024 prefixes");
}

#[test]
fn a_program_that_is_too_much_for_the_verifier_is_refused_with_its_words() {
    let body: String = (0..8200).map(|i| format!("if (h.kind == 16w{i}) {{ port = 16w{i}; }}")).collect();
    let program = program(&format!(
        "block out {{ {body} send current port port; }} stage s {{ parser prs; control out; }}"
    ));
    let (_, mut card) = card(&program);
    let error = card.run(0, &[0; 60]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, CardError::Verifier { part, .. } if part == "block out"), "{text}");
    assert!(text.contains("The sequence of 8193 jumps is too complex"), "{text}");
    assert!(text.lines().count() < 16, "{text}");
}

#[test]
fn what_is_handed_over_in_another_stage_is_not_counted() {
    // Counted at 60 bytes; in the second stage, the packet has another header, and 14 bytes more.
    let program = program(
        "instance o: eth; counter seen[4]: both; digest d: (bit<16>);
         block ingress { count seen[2w1]; valid o; send current port 16w5; }
         block egress { if (h.kind == 16w7) { count seen[2w2]; digest d(h.kind); } send current port 16w5 direct; }
         stage first { parser prs; control ingress; next second; } stage second { control egress; }",
    );
    let state = State::new(program.clone());
    let lowered = lower(&program, Setting::Test).unwrap();
    assert_eq!(
        lowered.to_cpu().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["block egress: a digest"]
    );
    let mut card = Card::new(lowered, &state).unwrap();
    let run = |card: &mut Card, kind: u8| {
        let mut bytes = [0_u8; 60];
        bytes[13] = kind;
        card.run(0, &bytes).unwrap().verdict
    };
    assert_eq!(run(&mut card, 1), Verdict::Sent(5));
    assert_eq!(run(&mut card, 7), Verdict::Cpu);
    let counted = [1, 2].map(|cell| card.counter(pipeline::ir::CounterId(0), cell).unwrap());
    assert_eq!(counted, [(1, 60), (0, 0)]);
}

#[test]
fn arrays_have_so_much_memory_and_no_more() {
    let program = program(
        "counter small[1000000]: both; counter more[50000]: both;
         block out { count small[h.kind]; if (h.kind == 16w7) { count more[h.kind]; } send current port 16w5; }
         stage s { parser prs; control out; }",
    );
    let (state, mut card) = card(&program);
    let to_cpu: Vec<_> = card.lowered().to_cpu().iter().map(ToString::to_string).collect();
    assert_eq!(to_cpu, ["block out: more than 1,048,576 cells of counters and registers"]);
    assert_eq!(card.run(0, &[0; 60]).unwrap().verdict, Verdict::Sent(5));
    let mut seven = [0; 60];
    seven[13] = 7;
    assert_eq!(card.run(0, &seven).unwrap().verdict, Verdict::Cpu);
    card.collect(&state).unwrap();
    let counted = [0, 7].map(|cell| state.arrays().counter(pipeline::ir::CounterId(0), cell).unwrap().get());
    assert_eq!(counted, [(1, 60), (0, 0)]);
}

#[test]
fn many_searches_leave_fewer_masks_for_each() {
    let applies = "apply t;".repeat(20);
    let program = program(&format!(
        "table t {{ key k: ternary = h.kind; actions to; default to(16w9); size 1024; }}
         block out {{ {applies} send current port port; }} stage s {{ parser prs; control out; }}"
    ));
    let (mut state, mut card) = card(&program);
    assert_eq!(port(&state, &mut card, 1), 9);
    for number in 1..=61 {
        let wanted = entry(KeyMatch::Mask(bits(0), bits(number)), 1, number);
        let bundle = state.apply(vec![Update::Insert(TableId(0), wanted)], 0).unwrap();
        let result = card.follow(&state, &bundle).map_err(|error| error.to_string());
        let refused = "table t: entries with more than 60 different masks".to_owned();
        assert_eq!(result, if number <= 60 { Ok(()) } else { Err(refused) });
    }
}

#[test]
fn programs_that_are_too_large_are_not_lowered() {
    let refused = |program: &Checked| {
        let refusals = lower(program, Setting::Test).unwrap_err();
        refusals.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let body = "port = 16w7;".repeat(20_000);
    let long = program(&format!(
        "block out {{ if (h.kind == 16w1) {{ {body} }} send current port port; }} stage s {{ parser prs; control out; }}"
    ));
    assert_eq!(refused(&long), ["the program: a jump over more than 32,767 instructions"]);

    let (mut tables, mut applies) = (String::new(), String::new());
    for i in 0..70 {
        let _ = write!(tables, "table t{i} {{ key k: exact = h.kind; actions to; size 64; }}");
        let _ = write!(applies, "apply t{i};");
    }
    let wide = program(&format!(
        "{tables} block out {{ {applies} send current port port; }} stage s {{ parser prs; control out; }}"
    ));
    assert_eq!(
        refused(&wide),
        ["the program: 73 maps for tables, counters and registers, of which there may be 64"]
    );
}
