//! Each construct against results computed by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::bits::Bits;
use pipeline::interp::{self, Dropped, Effect, Exit, Form, Limit, Limits, Received};
use pipeline::ir::{
    ActionCall, ActionId, Constant, CounterId, DigestId, KeyMatch, MeterId, ProfileId, RegisterId,
    ReplicasId, TableId, ValueSetId,
};
use pipeline::state::{Choice, Color, Rates, Replica, Replication, State, Update};
use pipeline::{Checked, text};
use support::{World, entry, outcome, outputs, run, state};

/// Runs statements over variables `a` to `d` and one header; returns the header's bytes.
fn computed(declarations: &str, statements: &str, packet: &[u8]) -> Vec<u8> {
    let state = state(&format!(
        "program p {{
            header h_t {{ a: bit<8>; b: bit<16>; c: bit<4>; d: int<12>; }}
            header o_t {{ n: bit<8>; rest: varbit<64>; }}
            instance h: h_t;
            stack s: h_t[3];
            union u {{ x: h_t; y: o_t; }}
            var b8: bit<8>; var b16: bit<16>; var i8: int<8>; var wide: bit<136>; var flag: bool;
            {declarations}
            parser in {{ state start {{ extract h; goto accept; }} }}
            block main {{ {statements} send current port 9w1; }}
            stage s1 {{ parser in; control main; }}
        }}"
    ));
    let mut out = outputs(&state, packet, 1);
    assert_eq!(out.len(), 1);
    out.remove(0).1
}

const PACKET: [u8; 5] = [0x12, 0x34, 0x56, 0x78, 0x9a];

#[track_caller]
fn gives(statements: &str, expected: [u8; 5]) {
    assert_eq!(computed("", statements, &PACKET), expected, "{statements}");
}

#[test]
fn arithmetic_wraps_or_saturates() {
    gives("h.a = (h.a + 8w0xf0);", [0x02, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.a = (h.a - 8w0x13);", [0xff, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.a = (h.a |+| 8w0xf0);", [0xff, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.a = (h.a |-| 8w0x13);", [0, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.b = (h.b * 16w3);", [0x12, 0x9d, 0x02, 0x78, 0x9a]);
    gives("h.a = (h.a / 8w5); h.b = (h.b % 16w0x100);", [3, 0, 0x56, 0x78, 0x9a]);
    gives("h.a = (h.a / 8w0); h.b = (h.b % 16w0);", [0xff, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.b = (h.b +1c 16w0xcbaa);", [0x12, 0, 1, 0x78, 0x9a]);
    gives("h.a = -(h.a);", [0xee, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.a = ~(h.a);", [0xed, 0x34, 0x56, 0x78, 0x9a]);
    // 12-bit signed: 0x89a is -1894.
    gives("h.d = (h.d |-| 12s0x7ff);", [0x12, 0x34, 0x56, 0x78, 0]);
    gives("h.d = (h.d |+| 12s0xfff);", [0x12, 0x34, 0x56, 0x78, 0x99]);
}

#[test]
fn bits_are_shifted_sliced_and_joined() {
    gives("h.a = (h.a << 3w4); h.b = (h.b >> 8w4);", [0x20, 0x03, 0x45, 0x78, 0x9a]);
    gives("h.a = (h.a << 8w8);", [0, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.d = (h.d >> 8w4);", [0x12, 0x34, 0x56, 0x7f, 0x89]);
    gives("h.a = h.b[11:4];", [0x45, 0x34, 0x56, 0x78, 0x9a]);
    gives("h.b[11:4] = h.a;", [0x12, 0x31, 0x26, 0x78, 0x9a]);
    gives("h.b[11:4][3:0] = 4w0xf;", [0x12, 0x34, 0xf6, 0x78, 0x9a]);
    gives("h.b = (h.c ++ bit<12>(h.d));", [0x12, 0x78, 0x9a, 0x78, 0x9a]);
    gives("wide = ((h.a ++ 120w1) ++ 8w2); h.a = wide[135:128]; h.b = wide[15:0];", [0x12, 1, 2, 0x78, 0x9a]);
    gives("h.a = ((h.a & 8w0xf0) | (h.a ^ 8w0xff));", [0xfd, 0x34, 0x56, 0x78, 0x9a]);
}

#[test]
fn conversions_are_explicit() {
    gives("h.b = bit<16>(h.a);", [0x12, 0, 0x12, 0x78, 0x9a]);
    gives("h.a = bit<8>(h.b);", [0x56, 0x34, 0x56, 0x78, 0x9a]);
    gives("i8 = int<8>(8w0xfe); h.d = int<12>(i8);", [0x12, 0x34, 0x56, 0x7f, 0xfe]);
    gives("h.b = bit<16>(bit<1>((h.a == 8w0x12)));", [0x12, 0, 1, 0x78, 0x9a]);
    gives("flag = bool(h.a[1:1]); h.a = (flag ? 8w1 : 8w2);", [1, 0x34, 0x56, 0x78, 0x9a]);
}

#[test]
fn comparisons_follow_the_sign() {
    gives("if (h.d < 12s0) { h.a = 8w1; }", [1, 0x34, 0x56, 0x78, 0x9a]);
    gives("if (bit<12>(h.d) < 12w0) { h.a = 8w1; } else { h.a = 8w2; }", [2, 0x34, 0x56, 0x78, 0x9a]);
    gives("if ((h.a >= 8w0x12) && !((h.a > 8w0x12))) { h.a = 8w3; }", [3, 0x34, 0x56, 0x78, 0x9a]);
    gives("if ((h.a != h.a) || (h.a <= 8w0x12)) { h.a = 8w4; }", [4, 0x34, 0x56, 0x78, 0x9a]);
    gives(
        "switch h.c { case 4w1, 4w2 { h.a = 8w1; } case 4w7 { h.a = 8w7; } default { h.a = 8w0; } }",
        [7, 0x34, 0x56, 0x78, 0x9a],
    );
}

#[test]
fn headers_stacks_and_unions() {
    let all = |statements| computed("", statements, &PACKET);
    assert_eq!(all("invalid h;"), []);
    // Content outlives validity.
    assert_eq!(all("invalid h; h.a = 8w9; valid h;"), [9, 0x34, 0x56, 0x78, 0x9a]);
    assert_eq!(all("copy s[1] = h; s[1].a = 8w1; invalid h;"), [1, 0x34, 0x56, 0x78, 0x9a]);
    assert_eq!(all("copy s[0] = h; s[0].a = 8w1; push s 1; copy s[0] = h; invalid h;")[5..6], [1]);
    assert_eq!(
        all("copy s[0] = h; copy s[1] = h; s[1].a = 8w2; pop s 1; invalid h;"),
        [2, 0x34, 0x56, 0x78, 0x9a]
    );
    assert_eq!(all("copy s[2] = h; push s 3; invalid h;"), []);
    // An index that is known only at run time, within and beyond.
    assert_eq!(
        all("s[h.c[1:0]].a = 8w5; b8 = 8w2; s[b8].a = 8w6; s[8w0].a = s[b8].a; valid s[0]; invalid h;"),
        [6, 0, 0, 0, 0]
    );
    assert_eq!(all("h.a = s[8w3].a; if valid(s[8w3]) { h.a = 8w1; }"), [0, 0x34, 0x56, 0x78, 0x9a]);
    // At most one member is valid.
    assert_eq!(all("copy u.x = h; valid u.y; u.y.n = 8w7; invalid h;"), [7]);
    assert_eq!(all("valid u.y; copy u.x = h; invalid h;"), PACKET);
}

#[test]
fn parsers_extract_all_kinds_of_headers() {
    let state = state(
        "program p {
            header fixed { kind: bit<4>; len: bit<4>; }
            header options { n: bit<8>; data: varbit<32>; tail: bit<8>; }
            header result { error: bit<8>; length: bit<32>; last: bit<32>; rest: bit<32>; }
            stack f: fixed[2];
            instance o: options;
            instance r: result;
            var error: bit<8> = env parser_error;
            error Own;
            value_set special[4]: (bit<4>, bit<4>);
            parser in {
                state start {
                    extract f.next;
                    r.rest = remaining;
                    select (f.last.kind, f.last.len) {
                        (in special): state skip;
                        (4w1, _): state start;
                        (4w2, 4w1..4w6): state var;
                        (4w8 &&& 4w12, _): state look;
                    }
                }
                state var { extract o (bit<32>(f.last.len) << 2w3); goto accept; }
                state look { verify (lookahead(bit<4>, 4) == 4w1) Own; advance 32w8; goto reject; }
                state skip { advance bit<32>(f.last.len); goto accept; }
            }
            block main {
                r.error = error;
                r.length = length(o.data);
                r.last = last_index(f);
                valid r;
                send current port 8w1;
            }
            block out { emit r; emit o; }
            stage s { parser in; control main; deparser out; }
        }",
    );
    // Error, length of the variable field, index of the last element, bytes behind the first extraction; then the rest.
    let result = |packet: &[u8]| {
        let mut out = outputs(&state, packet, 0);
        let bytes = out.remove(0).1;
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (bytes[0], number(1), number(5), number(9), bytes[13..].to_vec())
    };
    assert_eq!(result(&[0x22, 5, 1, 2, 9, 0xaa]), (0, 16, 0, 5, vec![5, 1, 2, 9, 0xaa]));
    assert_eq!(result(&[0x10, 0x21, 5, 1, 9]), (0, 8, 1, 3, vec![5, 1, 9]));
    assert_eq!(result(&[0x10, 0x10, 0x10]), (3, 0, 1, 1, vec![0x10]), "the stack is full");
    assert_eq!(result(&[]), (1, 0, u32::MAX, 0, vec![]), "too short");
    assert_eq!(
        result(&[0x24, 5, 1, 2, 3]),
        (1, 0, 0, 4, vec![5, 1, 2, 3]),
        "too short for the variable field"
    );
    assert_eq!(
        result(&[0x25, 5, 1, 2, 3, 4, 5, 6]),
        (4, 0, 0, 7, vec![5, 1, 2, 3, 4, 5, 6]),
        "longer than its type"
    );
    assert_eq!(result(&[0x27, 5]), (2, 0, 0, 1, vec![5]), "no case");
    assert_eq!(result(&[0x90, 0x71, 6]), (0, 0, 0, 2, vec![6]), "advanced and rejected without an error");
    assert_eq!(result(&[0xb0, 0x72, 6]), (7, 0, 0, 2, vec![0x72, 6]), "verification failed");
    let mut state = state;
    let exact = |n| Some(KeyMatch::Exact(Bits::from_u64(4, n)));
    let values = vec![vec![exact(1), exact(8)], vec![None, exact(15)]];
    state.apply(vec![Update::Values(ValueSetId(0), values)], 0).unwrap();
    let errors = |packet: &[u8]| outputs(&state, packet, 0).remove(0).1[0];
    assert_eq!(errors(&[0x18, 1, 2]), 0, "skipped 8 bits");
    assert_eq!(errors(&[0x3f, 1, 2]), 6, "15 bits are no bytes");
}

#[test]
fn hashes_and_checksums() {
    // RFC 1624 §4: HC 0xdd2f, a field changes from 0x5555 to 0x3285; the result is 0.
    assert_eq!(
        computed("", "h.b = 16w0xdd2f; checksum h.b { 16w0x5555 } { 16w0x3285 };", &PACKET)[1..3],
        [0, 0]
    );
    // 0x1234 + 0x5678 + 0x9a00 = 0x102ac: 0x02ad with the carry, complemented.
    assert_eq!(computed("", "hash h.b = csum16 { h.a, h.b, h.c, h.d, 8w0 };", &PACKET)[1..3], [0xfd, 0x52]);
    assert_eq!(computed("", "hash h.a = identity { h.b };", &PACKET)[0], 0x56);
    assert_eq!(
        computed("", "hash h.b = xor16 { h.a, payload };", &[1, 2, 3, 4, 5, 0x10, 0x20])[1..3],
        [0x21, 0x10]
    );
}

#[test]
fn payload_is_edited() {
    let all = |statements| computed("", statements, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(all("remove 32w2;"), [1, 2, 3, 4, 5, 8]);
    assert_eq!(all("remove 32w20;"), [1, 2, 3, 4, 5]);
    assert_eq!(all("insert { 16w0xabcd };"), [1, 2, 3, 4, 5, 0xab, 0xcd, 6, 7, 8]);
    assert_eq!(all("insert { 16w0xabcd }; remove 32w3;"), [1, 2, 3, 4, 5, 7, 8]);
    assert_eq!(all("truncate 32w6;"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(all("truncate 32w2; truncate 32w6;"), [1, 2]);
    // What was payload becomes a header.
    assert_eq!(
        all("invalid h; insert { 40w0x1112131415 }; reparse; h.a = 8w0;"),
        [0, 0x12, 0x13, 0x14, 0x15, 6, 7, 8]
    );
}

#[test]
fn a_long_packet_keeps_its_end() {
    let state = state(
        "program p { header h_t { a: bit<32>; } instance h: h_t;
            parser in { state start { extract h; goto accept; } }
            block main { remove 32w2; insert { 8w0xee }; send current port 8w1; send current port 8w2 limit 16w7; }
            stage s { parser in; control main; } }",
    );
    let received = Received { len: 60_000, ..Received::whole(&[1, 2, 3, 4, 5, 6, 7, 8], 0) };
    let outcome = interp::run(&state, &mut World::default(), &received, &Limits::default(), false);
    let Effect::Output { packet, .. } = &outcome.effects[0] else { panic!() };
    assert_eq!(*packet, Form { head: vec![1, 2, 3, 4, 0xee], from: 6, to: 60_000 });
    let Effect::Output { packet, .. } = &outcome.effects[1] else { panic!() };
    assert_eq!(*packet, Form { head: vec![1, 2, 3, 4, 0xee], from: 6, to: 8 });
}

#[test]
fn registers_counters_meters_and_random_numbers() {
    let declarations = "register r[4]: bit<136>; counter c[2]: both; meter m[2]: bytes;";
    let state = state(&format!(
        "program p {{ {declarations}
            header h_t {{ a: bit<8>; b: bit<8>; }} instance h: h_t;
            var wide: bit<136>; var color: bit<2>;
            parser in {{ state start {{ extract h; goto accept; }} }}
            block main {{
                atomic {{ read wide = r[h.a]; wide = (wide + 136w0x100000000000000000000000000000001); write r[h.a] = wide; }}
                read wide = r[h.a];
                h.b = wide[7:0];
                count c[h.a];
                meter color = m[8w1];
                meter color = m[8w1] color 2w2;
                random h.a = 8w10..8w12;
                send current port color;
            }}
            stage s {{ parser in; control main; }} }}"
    ));
    for i in 1..=3 {
        let out = outputs(&state, &[1, 0, 0, 0], 0);
        assert_eq!(out[0].0, 0, "an unconfigured meter is green");
        assert!((10..=12).contains(&out[0].1[0]));
        assert_eq!(out[0].1[1], i);
    }
    let arrays = state.arrays();
    let value = arrays.read(&arrays.lock(), RegisterId(0), 1).unwrap();
    assert_eq!(value.to_string(), "0x300000000000000000000000000000003");
    assert_eq!(arrays.counter(CounterId(0), 1).unwrap().get(), (3, 12));
    assert!(arrays.counter(CounterId(0), 2).is_none());
    // Beyond the arrays: zero is read, nothing is written or counted.
    assert_eq!(outputs(&state, &[4, 7], 0)[0].1[1], 0);
    let mut state = state;
    let rates = Rates::Two { rate: 1000, burst: 4, peak_rate: 2000, peak_burst: 8 };
    state.apply(vec![Update::Meter(MeterId(0), 1, Some(rates))], 0).unwrap();
    let cell = state.arrays().meter(MeterId(0), 1).unwrap();
    let colors =
        [(4, 0), (4, 0), (4, 0), (2, 1_000_000), (1, 1_000_000)].map(|(n, t)| cell.color(n, Color::Green, t));
    assert_eq!(colors, [Color::Green, Color::Yellow, Color::Red, Color::Yellow, Color::Red]);
    let out = outputs(&state, &[1, 0, 0, 0], 0);
    assert_eq!(out[0].0, 2, "a packet that is red stays red");
}

#[test]
fn a_single_rate_meter_has_two_buckets() {
    let mut state = state("program p { meter m[1]: packets; block b { } stage s { control b; } }");
    let rates = Rates::Single { rate: 10, burst: 1, excess: 1 };
    state.apply(vec![Update::Meter(MeterId(0), 0, Some(rates))], 0).unwrap();
    let cell = state.arrays().meter(MeterId(0), 0).unwrap();
    let at = |t: u64| cell.color(1, Color::Green, t);
    assert_eq!([at(0), at(0), at(0)], [Color::Green, Color::Yellow, Color::Red]);
    // A tenth of a second refills the first bucket; what it cannot hold goes to the second.
    assert_eq!([at(100_000_000), at(100_000_000)], [Color::Green, Color::Red]);
    assert_eq!(
        [at(300_000_000), at(300_000_000), at(300_000_000)],
        [Color::Green, Color::Yellow, Color::Red]
    );
    assert_eq!(cell.color(1, Color::Yellow, 400_000_000), Color::Red);
}

#[test]
fn a_rehearsal_foresees_the_next_packet_and_changes_nothing() {
    let mut state = state(
        "program p {
            register r[1]: bit<8>; counter c[1]: both; meter m[1]: packets;
            header h_t { a: bit<8>; b: bit<8>; } instance h: h_t; var color: bit<2>;
            action to(port: bit<9>) { send current port $port; }
            table t { key a: exact = h.a; actions to; default to(9w2); size 8; count both; timeouts; }
            parser in { state start { extract h; goto accept; } }
            block main {
                atomic { read h.b = r[8w0]; write r[8w0] = (h.b + 8w1); }
                count c[8w0];
                meter color = m[8w0];
                apply t;
                send current port color;
            }
            stage s { parser in; control main; }
        }",
    );
    add(&mut state, 0, "entry { a: 8w1; } -> to(9w1);").unwrap();
    let rates = Rates::Single { rate: 1, burst: 1, excess: 0 };
    state.apply(vec![Update::Meter(MeterId(0), 0, Some(rates))], 0).unwrap();
    let packet = Received::whole(&[1, 0, 7], 0);
    let figures = |state: &State| {
        let table = state.table(TableId(0)).unwrap();
        let stats = &table.entries().next().unwrap().stats;
        let last = stats.last_hit.load(std::sync::atomic::Ordering::Relaxed);
        let arrays = state.arrays();
        let register = arrays.read(&arrays.lock(), RegisterId(0), 0).unwrap().low_u64();
        (table.lookups(), stats.hits(), last, arrays.counter(CounterId(0), 0).unwrap().get(), register)
    };
    for seen in 0..3 {
        let mut world = World { now: 1000 + seen, ..World::default() };
        let before = figures(&state);
        let rehearsed = interp::rehearse(&state, &mut world, &packet, &Limits::default());
        assert_eq!(interp::rehearse(&state, &mut world, &packet, &Limits::default()), rehearsed);
        assert_eq!(figures(&state), before);
        assert_eq!(interp::run(&state, &mut world, &packet, &Limits::default(), true), rehearsed);
        assert_eq!(
            figures(&state),
            (
                (seen + 1, seen + 1),
                (seen + 1, 3 * (seen + 1)),
                1000 + seen,
                (seen + 1, 3 * (seen + 1)),
                seen + 1
            )
        );
        // Green once, then red.
        let color = Effect::Output {
            to: Exit::Port(if seen == 0 { 0 } else { 2 }),
            packet: Form { head: vec![1, seen as u8], from: 2, to: 3 },
            class: None,
            queue: None,
        };
        assert_eq!(rehearsed.effects[1], color);
    }
}

const LOOKUPS: &str = "program p {
    header h_t { a: bit<8>; b: bit<8>; c: bit<8>; d: bit<8>; } instance h: h_t;
    action to(port: bit<9>) { send current port $port; }
    action other() { send current port 9w500; }
    table exact { key a: exact = h.a; key b: exact = h.b; actions to, other; default other(); size 3; }
    table prefix { key a: exact = h.a; key b: lpm = h.b; actions to; default to(9w99); size 8; }
    table mixed {
        key a: ternary = h.a; key b: range = h.b; key c: optional = h.c; key d: lpm = h.d;
        actions to; default_only other; default other(); size 8; count both; meter packets; timeouts;
    }
    table fixed { key a: exact = h.a; actions to; const default to(9w2); size 1; const_entries; entry { a: 8w1; } -> to(9w1); }
    parser in { state start { extract h; goto accept; } }
    block one { apply exact { hit { send current port 9w300; } miss { send current port 9w301; } action to { exit; } other { } }; }
    block two { apply prefix; }
    block three { apply mixed; }
    block four { apply fixed; }
    block main { switch h.d { case 8w1 { goto one; } case 8w2 { goto two; } case 8w4 { goto four; } default { call three; return; } } send current port 9w511; }
    stage s { parser in; control main; }
}";

fn ports(state: &State, packet: &[u8]) -> Vec<u32> {
    outputs(state, packet, 0).into_iter().map(|(port, _)| port).collect()
}

fn add(state: &mut State, table: u32, text: &str) -> Result<u64, String> {
    let update = Update::Insert(TableId(table), entry(state, table, text));
    state.apply(vec![update], 0).map(|bundle| bundle.generation).map_err(|error| error.to_string())
}

#[test]
fn every_kind_of_match() {
    let mut state = state(LOOKUPS);
    assert_eq!(ports(&state, &[1, 2, 0, 1]), [500, 301]);
    add(&mut state, 0, "entry { a: 8w1; b: 8w2; } -> to(9w5);").unwrap();
    assert_eq!(ports(&state, &[1, 2, 0, 1]), [5, 300]);
    assert_eq!(ports(&state, &[2, 1, 0, 1]), [500, 301]);

    add(&mut state, 1, "entry { a: 8w1; b: 8w0x80/1; } -> to(9w1);").unwrap();
    add(&mut state, 1, "entry { a: 8w1; b: 8w0xc0/3; } -> to(9w3);").unwrap();
    add(&mut state, 1, "entry { a: 8w1; b: 8w0/0; } -> to(9w4);").unwrap();
    assert_eq!([0x90, 0xdf, 0xe0, 0x7f].map(|b| ports(&state, &[1, b, 0, 2])[0]), [1, 3, 1, 4]);
    assert_eq!(ports(&state, &[2, 0x90, 0, 2]), [99]);

    add(&mut state, 2, "entry priority 1 { a: 8w0x10 &&& 8w0xf0; } -> to(9w10);").unwrap();
    add(&mut state, 2, "entry priority 3 { b: 8w5..8w7; c: 8w9; } -> to(9w11);").unwrap();
    add(&mut state, 2, "entry priority 3 { b: 8w6..8w6; d: 8w0xf0/4; } -> to(9w12);").unwrap();
    assert_eq!(ports(&state, &[0x1f, 6, 9, 0]), [10 + 1]);
    assert_eq!(ports(&state, &[0x1f, 6, 9, 0xff]), [12], "of equal priorities, the longer prefix");
    assert_eq!(ports(&state, &[0x1f, 8, 9, 0xff]), [10]);
    assert_eq!(ports(&state, &[0x2f, 8, 9, 0xff]), [500]);
    assert_eq!(ports(&state, &[1, 0, 0, 4]), [1]);
    assert_eq!(ports(&state, &[2, 0, 0, 4]), [2]);

    let table = state.table(TableId(2)).unwrap();
    let hits: Vec<_> = table.entries().map(|entry| entry.stats.hits()).collect();
    assert_eq!(hits, [(1, 4), (1, 4), (1, 4)]);
    assert_eq!(table.lookups(), (4, 3));
}

#[test]
fn entries_that_do_not_fit_are_refused_with_a_reason() {
    let mut state = state(LOOKUPS);
    let mut refused = |table, text: &str| add(&mut state, table, text).unwrap_err();
    assert_eq!(
        refused(0, "entry { a: 8w1; } -> to(9w1);"),
        "update 0: key b is matched exactly and has no condition"
    );
    assert_eq!(
        refused(0, "entry { b: 8w1; a: 8w1; } -> to(9w1);"),
        "update 0: key 0 does not exist or is out of order"
    );
    assert_eq!(
        refused(0, "entry { a: 9w1; b: 8w1; } -> to(9w1);"),
        "update 0: key a has 8 bits, and the condition 9"
    );
    assert_eq!(
        refused(0, "entry { a: 8w1/3; b: 8w1; } -> to(9w1);"),
        "update 0: key a is matched exact, which the condition does not fit"
    );
    assert_eq!(
        refused(1, "entry { a: 8w1; b: 8w1/3; } -> to(9w1);"),
        "update 0: the condition on key b is not in normal form"
    );
    assert_eq!(
        refused(2, "entry { b: 8w7..8w5; } -> to(9w1);"),
        "update 0: the condition on key b is not in normal form"
    );
    assert_eq!(
        refused(0, "entry priority 1 { a: 8w1; b: 8w1; } -> to(9w1);"),
        "update 0: the table's entries have no priorities, found 1"
    );
    assert_eq!(
        refused(0, "entry { a: 8w1; b: 8w1; } -> to(9w1) idle 3;"),
        "update 0: the table's entries have no timeouts"
    );
    assert_eq!(
        refused(0, "entry { a: 8w1; b: 8w1; } -> to();"),
        "update 0: action to takes 1 arguments, not 0"
    );
    assert_eq!(
        refused(0, "entry { a: 8w1; b: 8w1; } -> to(8w1);"),
        "update 0: argument 0 of action to has the wrong type"
    );
    assert_eq!(
        refused(2, "entry { } -> other();"),
        "update 0: action 1 does not exist or is not permitted here"
    );
    assert_eq!(
        refused(0, "entry { a: 8w1; b: 8w1; } -> member 3;"),
        "update 0: entries of this table have actions of their own"
    );
    assert_eq!(refused(3, "entry { a: 8w2; } -> to(9w1);"), "update 0: the program fixes it");
}

#[test]
fn a_bundle_is_applied_whole_or_not_at_all() {
    let mut state = state(LOOKUPS);
    let insert = |state: &State, text| Update::Insert(TableId(0), entry(state, 0, text));
    let first = insert(&state, "entry { a: 8w1; b: 8w1; } -> to(9w1);");
    let bundle = state.apply(vec![first.clone()], 5).unwrap();
    assert_eq!((bundle.generation, bundle.changes.len()), (1, 1));
    let kept = state.table(TableId(0)).unwrap().entries().next().unwrap().clone();
    let Update::Insert(_, same) = first.clone() else { unreachable!() };
    let changed = pipeline::ir::Entry { cookie: 7, ..same.clone() };

    // Everything in it succeeds but the last: the fourth entry of a table of three.
    let updates = vec![
        Update::Modify(TableId(0), changed.clone()),
        Update::Delete(TableId(0), kept.id),
        insert(&state, "entry { a: 8w1; b: 8w1; } -> to(9w2);"),
        insert(&state, "entry { a: 8w2; b: 8w1; } -> to(9w2);"),
        insert(&state, "entry { a: 8w3; b: 8w1; } -> to(9w2);"),
        Update::Default(
            TableId(0),
            Some(ActionCall { action: ActionId(0), args: [Constant::bit(9, 77)].into() }),
        ),
        insert(&state, "entry { a: 8w4; b: 8w1; } -> to(9w2);"),
    ];
    let error = state.apply(updates.clone(), 6).unwrap_err();
    assert_eq!(error.to_string(), "update 6: full: its size is 3");
    let table = state.table(TableId(0)).unwrap();
    assert_eq!(table.len(), 1);
    assert_eq!(table.find(&same.matches, 0).unwrap().entry, same);
    assert_eq!((state.generation(), ports(&state, &[9, 9, 0, 1])), (1, vec![500, 301]));
    assert_eq!(
        state.apply(vec![first], 7).unwrap_err().to_string(),
        "update 0: an entry with the same conditions and priority exists"
    );

    let bundle = state.apply(updates[..6].to_vec(), 8).unwrap();
    assert_eq!((bundle.generation, bundle.changes.len()), (2, 6));
    assert_eq!(ports(&state, &[1, 1, 0, 1]), [2, 300]);
    assert_eq!(ports(&state, &[9, 9, 0, 1]), [77, 301]);
    let numbers: Vec<_> =
        state.table(TableId(0)).unwrap().entries().map(|entry| entry.id.0 - kept.id.0).collect();
    assert_eq!(numbers, [1, 2, 3], "the refused bundle used no numbers");
    let delete = Update::DeleteMatch(TableId(0), same.matches, 0);
    state.apply(vec![delete.clone(), Update::Default(TableId(0), None)], 9).unwrap();
    assert_eq!(ports(&state, &[1, 1, 0, 1]), [500, 301]);
    assert_eq!(state.apply(vec![delete], 9).unwrap_err().to_string(), "update 0: it does not exist");
}

#[test]
fn a_modification_keeps_counts_and_timeouts_run() {
    let mut state = state(LOOKUPS);
    add(&mut state, 2, "entry { a: 8w1 &&& 8w255; } -> to(9w1) idle 10 hard 60;").unwrap();
    let mut world = World { now: 5_000_000_000, ..World::default() };
    let packet = Received::whole(&[1, 0, 0, 0], 0);
    interp::run(&state, &mut world, &packet, &Limits::default(), false);
    let modified = entry(&state, 2, "entry { a: 8w1 &&& 8w255; } -> to(9w2) idle 10 hard 20;");
    state.apply(vec![Update::Modify(TableId(2), modified)], 6_000_000_000).unwrap();
    assert_eq!(ports(&state, &[1, 0, 0, 0]), [2]);
    interp::run(&state, &mut world, &packet, &Limits::default(), false);
    let hits = state.table(TableId(2)).unwrap().entries().next().unwrap().stats.hits();
    assert_eq!(hits, (3, 12));
    assert_eq!(state.expired(14_999_999_999), []);
    assert_eq!(state.expired(15_000_000_000)[0].2, pipeline::state::Expiry::Idle);
    assert_eq!(state.expired(20_000_000_000)[0].2, pipeline::state::Expiry::Hard);
}

#[test]
fn equal_actions_share_a_number() {
    let mut state = state(
        "program p { var v: bit<8>; table t { open; size 9; } block b { apply t; } stage s { control b; } }",
    );
    let define = |state: &mut State, text: &str| {
        let action = text::parse_action(state.program(), text).unwrap();
        state.define(action).map_err(|errors| errors[0].to_string())
    };
    let one = define(&mut state, "action one(p: bit<8>) { send current port $p; }").unwrap();
    assert_eq!(define(&mut state, "action two(p: bit<8>) { send current port $p; }"), Ok(one));
    let other = define(&mut state, "action three(p: bit<9>) { send current port $p; }").unwrap();
    assert_ne!(one, other);
    let error = define(&mut state, "action bad() { v = 9w1; }").unwrap_err();
    assert_eq!(error, "action bad, statement 1: a value of bit<9> is assigned to a place of bit<8>");
    let error = define(&mut state, "action bad() { apply t; }").unwrap_err();
    assert_eq!(error, "action bad, statement 1: `apply` may not stand in an action");
    add(&mut state, 0, "entry { } -> three(9w44);").unwrap();
    assert_eq!(ports(&state, &[1]), [44]);
    assert_eq!(state.forget_unused(), [one]);
    assert!(state.action(one).is_none() && state.action(other).is_some());
    assert_ne!(
        define(&mut state, "action one(p: bit<8>) { send current port $p; }").unwrap(),
        one,
        "never reused"
    );
}

#[test]
fn profiles_choose_members() {
    let mut state = state(
        "program p {
            var flow: bit<32> = env flow_hash;
            action to(port: bit<9>) { send current port $port; }
            profile ecmp[8] { actions to; select identity { flow }; }
            table t { actions to; profile ecmp; default to(9w0); size 2; }
            block b { apply t; } stage s { control b; }
        }",
    );
    let call = |port| Some(ActionCall { action: ActionId(0), args: [Constant::bit(9, port)].into() });
    let choice = |member, weight, watch| Choice { member, weight, watch };
    let choices = vec![choice(1, 1, None), choice(2, 2, None), choice(3, 5, Some(99)), choice(4, 0, None)];
    let id = ProfileId(0);
    state
        .apply(
            vec![
                Update::Member(id, 1, call(11)),
                Update::Member(id, 2, call(12)),
                Update::Member(id, 3, call(13)),
                Update::Selection(id, 1, Some(choices)),
            ],
            0,
        )
        .unwrap();
    assert_eq!(ports(&state, &[1]), [0]);
    add(&mut state, 0, "entry { } -> group 1;").unwrap();
    let port = |state: &State, hash| {
        let packet = Received { flow_hash: hash, ..Received::whole(&[1], 0) };
        let outcome = interp::run(state, &mut World::default(), &packet, &Limits::default(), false);
        outcome.effects[0].text(state)
    };
    // Weights 1 and 2; port 99 is down, so member 3 has no share.
    let chosen: Vec<_> = (0..4).map(|hash| port(&state, hash)).collect();
    assert_eq!(chosen, ["11", "12", "12", "11"].map(|port| format!("output to port {port}, 1 bytes")));
    let member = entry(&state, 0, "entry { } -> member 3;");
    state.apply(vec![Update::Modify(TableId(0), member)], 0).unwrap();
    assert_eq!(ports(&state, &[1]), [13]);
    state.apply(vec![Update::Member(id, 3, None)], 0).unwrap();
    assert_eq!(run(&state, &[1], 0), ["drop: no destination"], "a dangling member does nothing");
    let error = state.apply((10..20).map(|i| Update::Member(id, i, call(1))).collect(), 0).unwrap_err();
    assert_eq!(error.to_string(), "update 6: full: its size is 8", "groups do not count");
}

/// Two stages: the first chooses by the first byte, the second writes where the packet came from and goes to its port.
const STAGES: &str = "program p {
    header h_t { kind: bit<8>; a: bit<8>; b: bit<8>; c: bit<8>; } instance h: h_t;
    var ingress: bit<8> = env ingress_port;
    var egress: bit<8> = env egress_port;
    var instance: bit<8> = env instance;
    var replica: bit<8> = env replica;
    var class: bit<8> = env class;
    var note: bit<8>;
    replicas multicast; replicas mirrors;
    digest seen: (bit<8>, bool);
    reason wanted;
    extern twice(in bit<8>, out bit<8>);
    extern missing(in bit<8>);
    parser in { state start { extract h; goto accept; } }
    block ingress {
        note = (note + 8w1);
        switch h.kind {
            case 8w1 { send current replicas multicast[8w5]; }
            case 8w2 { h.a = 8w0xaa; send original replicas mirrors[8w1] instance 2 carry note; send current port 8w7 class 8w3; }
            case 8w3 { if (instance == 8w0) { h.a = 8w9; send original same via s1 instance 4 carry note; } else { h.b = note; send current port 8w7; } }
            case 8w4 { h.a = (h.a + 8w1); send current same via s1 instance 5; }
            case 8w5 { send current flood; }
            case 8w6 { digest seen(h.a, valid(h)); drop wanted; }
            case 8w7 { extern twice(in h.a, out h.a); send current port 8w1; extern missing(in h.a); }
            case 8w8 { send current fallback direct; send current all direct; send current flood direct; }
            case 8w9 { call ingress; }
            case 8w10 { goto ingress; }
            case 8w11 { exit; }
            case 8w12 { controller 8w3 limit 16w2 { h.a, 4w1 }; }
            default { }
        }
    }
    block finish { if (h.kind == 8w11) { send current port 8w2; } }
    block egress { h.b = (note | (instance << 8w4)); h.c = (replica | (class << 8w4)); send current port egress; }
    block out { emit h; }
    stage s1 { parser in; control ingress; finish finish; deparser out; next s2; }
    stage s2 { control egress; deparser out; }
}";

#[test]
fn packets_pass_through_stages() {
    let mut state = state(STAGES);
    let replica = |port, instance| Replica { port, instance };
    let list = |replicas, class, limit| Some(Replication { replicas, class, limit });
    state
        .apply(
            vec![
                Update::Replication(
                    ReplicasId(0),
                    5,
                    list(vec![replica(2, 1), replica(3, 1), replica(3, 2)], None, None),
                ),
                Update::Replication(ReplicasId(1), 1, list(vec![replica(8, 0)], Some(6), Some(3))),
            ],
            0,
        )
        .unwrap();
    // Headers and variables as they are: `note` is 1.
    let multicast = outputs(&state, &[1, 0, 0, 0, 0xff], 1);
    assert_eq!(
        multicast,
        [(2, vec![1, 0, 1, 1, 0xff]), (3, vec![1, 0, 1, 1, 0xff]), (3, vec![1, 0, 1, 2, 0xff])]
    );
    // The mirrored packet is the original, cut to 3 bytes when it leaves.
    assert_eq!(outputs(&state, &[2, 0, 0, 0], 1), [(8, vec![2, 0, 0x21]), (7, vec![2, 0xaa, 1, 0x30])]);
    // Submitted again, with `note` carried.
    assert_eq!(outputs(&state, &[3, 1, 0, 0], 1), [(7, vec![3, 1, 2, 0])]);
    assert_eq!(outputs(&state, &[5, 0, 0, 0], 2), [(1, vec![5, 0, 1, 0]), (3, vec![5, 0, 1, 0])]);
}

#[test]
fn packets_end_in_other_ways() {
    let state = state(STAGES);
    assert_eq!(run(&state, &[1, 0, 0, 0], 1), ["drop: no destination"], "no such list");
    assert_eq!(run(&state, &[6, 5, 0, 0], 1), ["digest seen(8w5, true)", "drop: wanted"]);
    let effects = outcome(&state, &[6, 5, 0, 0], 1).effects;
    assert_eq!(
        effects[0],
        Effect::Digest { digest: DigestId(0), values: vec![Constant::bit(8, 5), Constant::bool(true)] }
    );
    assert_eq!(run(&state, &[7, 5, 0, 0], 1), ["drop: no function missing", "output to port 1, 4 bytes"]);
    let outs: Vec<_> = outcome(&state, &[7, 5, 0, 0], 1).effects;
    assert!(matches!(&outs[1], Effect::Output { packet, .. } if packet.head[1] == 10));
    let to: Vec<_> = outcome(&state, &[8, 0, 0, 0], 1).effects;
    let to: Vec<_> =
        to.iter().map(|effect| if let Effect::Output { to, .. } = effect { *to } else { panic!() }).collect();
    assert_eq!(to, [Exit::Fallback, Exit::All, Exit::Flood]);
    assert_eq!(outputs(&state, &[11, 0, 0, 0], 1)[0].0, 2, "finish runs after exit");
    let effects = outcome(&state, &[12, 0xbc, 0, 0], 1).effects;
    let Effect::Controller { reason: 3, limit: Some(2), data, origin: None, packet } = &effects[0] else {
        panic!()
    };
    assert_eq!((&data[..], packet.len()), (&[0xbc, 0x10][..], 4));
    assert_eq!(run(&state, &[99, 0, 0, 0], 1), ["drop: no destination"]);
}

#[test]
fn everything_is_bounded() {
    let state = state(STAGES);
    let limit = |packet: &[u8], limits: &Limits| {
        let effects =
            interp::run(&state, &mut World::default(), &Received::whole(packet, 1), limits, true).effects;
        match effects.last() {
            Some(Effect::Drop(Dropped::Limit(limit))) => (*limit, effects.len()),
            other => panic!("{other:?}"),
        }
    };
    let limits = Limits::default();
    assert_eq!(limit(&[9, 0, 0, 0], &limits), (Limit::Depth, 1));
    assert_eq!(limit(&[10, 0, 0, 0], &limits), (Limit::Steps, 1));
    assert_eq!(limit(&[4, 0, 0, 0], &limits), (Limit::Rounds, 1));
    assert_eq!(limit(&[4, 0, 0, 0], &Limits { passes: 3, ..limits }), (Limit::Passes, 1));
    assert_eq!(limit(&[8, 0, 0, 0], &Limits { effects: 2, ..limits }).0, Limit::Effects);
    assert_eq!(limit(&[5, 0, 0, 0], &Limits { headers: 3, ..limits }).0, Limit::Headers);
}

#[test]
fn values_of_lists_count_as_steps() {
    let list = "32w7, ".repeat(100);
    for statement in [format!("hash v = crc32 {{ {list} 8w0 }};"), format!("insert {{ {list} 8w0 }};")] {
        let state = state(&format!(
            "program p {{ var v: bit<32>; block b {{ {statement} }} stage s {{ control b; }} }}"
        ));
        let effects = |steps| {
            let limits = Limits { steps, ..Limits::default() };
            interp::run(&state, &mut World::default(), &Received::whole(&[1], 0), &limits, true).effects
        };
        assert!(matches!(effects(1000)[..], [Effect::Drop(Dropped::NoDestination)]), "{statement}");
        assert!(matches!(effects(400)[..], [Effect::Drop(Dropped::Limit(Limit::Steps))]), "{statement}");
    }
}

#[test]
fn values_of_lists_count_as_steps_of_parsers() {
    let list = "32w7, ".repeat(100);
    let state = state(&format!(
        "program p {{ var error: bit<8> = env parser_error; var v: bit<32>;
            parser in {{ state start {{ hash v = crc32 {{ {list} 8w0 }}; goto accept; }} }}
            block b {{ send current port error; }} stage s {{ parser in; control b; }} }}"
    ));
    let ran = interp::run(&state, &mut World::default(), &Received::whole(&[1], 0), &Limits::default(), true);
    assert!((404..420).contains(&ran.steps), "{} steps", ran.steps);
}

#[test]
fn a_parser_without_end_times_out() {
    let state = state(
        "program p { var error: bit<8> = env parser_error; var n: bit<32>;
            parser in { state start { advance n; goto state start; } }
            block b { send current port error; } stage s { parser in; control b; } }",
    );
    assert_eq!(outputs(&state, &[0; 64], 0), [(5, vec![0; 64])]);
}

#[test]
fn programs_that_may_not_run_are_refused_with_the_place() {
    let errors = |text: &str| -> Vec<String> {
        let program = text::parse(text).unwrap();
        Checked::new(program).err().unwrap_or_default().iter().map(ToString::to_string).collect()
    };
    let in_block = |statement: &str| {
        errors(&format!(
            "program p {{
                header h_t {{ a: bit<8>; o: varbit<16>; }} header g_t {{ a: bit<8>; }}
                instance h: h_t; instance g: g_t; stack s: g_t[2]; var v: bit<8>; var i: int<8>; var f: bool;
                register r[2]: bit<8>; reason x; action act(p: bit<8>) {{ }}
                block b {{ {statement} }} stage s {{ control b; }}
            }}"
        ))
    };
    let one = |statement: &str| {
        let mut errors = in_block(statement);
        assert_eq!(errors.len(), 1, "{statement}: {errors:?}");
        errors.remove(0)
    };
    assert_eq!(in_block("v = 8w1; i = 8s1; f = (i < 8s0); do act(v);"), [""; 0]);
    assert_eq!(
        one("v = 8w1; v = i;"),
        "block b, statement 2: a value of int<8> is assigned to a place of bit<8>"
    );
    assert_eq!(one("v = (v + 9w1);"), "block b, statement 1: Add does not apply to bit<8> and bit<9>");
    assert_eq!(one("v = (i / i);"), "block b, statement 1: Div does not apply to int<8> and int<8>");
    assert_eq!(one("v = v[8:1][7:0];"), "block b, statement 1: bit<8> has no bits 8 to 1");
    assert_eq!(one("if v { }"), "block b, statement 1: expected bool, found bit<8>");
    assert_eq!(
        one("if f { if f { v = h.o; } }"),
        "block b, statement 1, statement 1, statement 1: a variable field has no value in an expression"
    );
    assert_eq!(
        one("i = int<8>(16w1);"),
        "block b, statement 1: bit<16> does not convert to int<8> in one step"
    );
    assert_eq!(
        one("v = s.next.a;"),
        "block b, statement 1: the next or last element of a stack exists only in parsers"
    );
    assert_eq!(one("v = lookahead(bit<8>, 0);"), "block b, statement 1: lookahead exists only in parsers");
    assert_eq!(one("copy h = g;"), "block b, statement 1: a header of type g_t is copied to one of h_t");
    assert_eq!(one("emit h;"), "block b, statement 1: `emit` may not stand in a block");
    assert_eq!(
        one("atomic { drop x; }"),
        "block b, statement 1, statement 1: `drop` may not stand in an atomic statement"
    );
    assert_eq!(one("do act();"), "block b, statement 1: expected 1 values, found 0");
    assert_eq!(one("checksum v { } { };"), "block b, statement 1: expected a place of bit<16>, found bit<8>");
}

#[test]
fn declarations_are_checked() {
    let error = |items: &str| {
        let text = format!("program p {{ {items} block b {{ }} stage s {{ control b; }} }}");
        let errors = Checked::new(text::parse(&text).unwrap()).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].to_string()
    };
    assert_eq!(
        error("header h { a: bit<7>; }"),
        "header type h: its fixed fields have 7 bits, not whole bytes"
    );
    assert_eq!(
        error("header h { a: varbit<8>; b: varbit<8>; }"),
        "header type h: 2 variable fields, at most one is supported"
    );
    let stacks: String = (0..9).map(|i| format!("stack s{i}: h[256];")).collect();
    assert_eq!(
        error(&format!("header h {{ a: bit<8>; }} {stacks}")),
        "program: it has 2304 headers, at most 2048 are supported"
    );
    assert_eq!(error("var v: bit<2049>;"), "variable v: bit<2049> is no type: widths are 1 to 2048");
    assert_eq!(error("var v: int<8> = env class;"), "variable v: intrinsic metadata is unsigned");
    assert_eq!(
        error("var v: bool; var v: bool;"),
        "program: header, stack, union or variable v exists twice"
    );
    assert_eq!(
        error("register r[4000000000]: bit<64>;"),
        "register r: counters, meters and registers take 32000000000 bytes, at most 268435456 are supported"
    );
    assert_eq!(
        error("parser q { state a { goto state b; } state b { goto state a; } }"),
        "parser q, state a: it is in a cycle of states that consumes nothing"
    );
    let list = "32w0, ".repeat(2048);
    assert_eq!(
        error(&format!("var v: bit<32>; block c {{ hash v = crc32 {{ {list} 33w0 }}; }}")),
        "block c, statement 1: a list of 65569 bits; at most 65536 are supported"
    );
    // Soon, also where there are many.
    let chain: String = (0..50_000).map(|i| format!("state a{i} {{ goto state a{}; }}", i + 1)).collect();
    assert_eq!(
        error(&format!("parser q {{ {chain} state a50000 {{ goto state a49999; }} }}")),
        "parser q, state a49999: it is in a cycle of states that consumes nothing"
    );
    assert_eq!(
        error(&format!("parser q {{ {chain} state a50000 {{ goto accept; }} }} var v: bit<2049>;")),
        "variable v: bit<2049> is no type: widths are 1 to 2048"
    );
    assert_eq!(
        error("var v: int<8>; table t { key k: lpm = v; }"),
        "table t, key k: int<8> cannot be matched lpm"
    );
    assert_eq!(
        error("table t { size 0; entry { } -> x(); } action x() { }"),
        "table t: it has 1 entries and a size of 0"
    );
    assert_eq!(
        error("action x() { } table t { default x(); }"),
        "table t, default: the default action is not an action of the table"
    );
    assert_eq!(
        error(
            "var v: bit<8>; parser q { state a { extract x; goto accept; } } header h { o: varbit<8>; } instance x: h;"
        ),
        "parser q, state a, operation 1: header type h has a variable field, whose length is missing"
    );
}

#[test]
fn texts_that_are_no_programs_are_refused_with_the_place() {
    let error = |text: &str| text::parse(text).unwrap_err().to_string();
    assert_eq!(
        error("program p {\n  var x: bit<8>\n}"),
        "line 3, column 1: expected the rest of an item, found `}`"
    );
    assert_eq!(
        error("program p { block b { x = 8w1; } }"),
        "line 1, column 23: there is no variable, header, stack or union x"
    );
    assert_eq!(
        error("program p { var x: bit<8>; block b { x = 8w256; } }"),
        "line 1, column 42: expected a constant that fits its type, found `8w256`"
    );
    assert_eq!(
        error("program p { var x: bit<8>; block b { x = (x + x + x); } }"),
        "line 1, column 49: expected `)`, found `+`"
    );
    assert_eq!(error("program p { @ }"), "line 1, column 13: unexpected character '@'");
    let deep = format!("program p {{ var x: bit<8>; block b {{ x = {}; }} }}", "(".repeat(5000));
    assert_eq!(error(&deep), "line 1, column 241: nested too deeply");
}
