//! Ways that packets find by the bits at their fronts, without a parser, and packets that must not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Effect, Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::Update;
use pipeline::{Checked, text};
use support::Pair;

/// A link header whose type tells of labels, a stack of two, or of a body with options of up to 12 bytes; the table
/// looks at the class, and at a bit of the last label or of the body, which is behind the options.
const PROGRAM: &str = "program fronts {
  header link_t { to: bit<48>; from: bit<48>; kind: bit<16>; } instance link: link_t;
  header label_t { value: bit<15>; last: bit<1>; } stack label: label_t[2];
  header body_t { words: bit<4>; class: bit<4>; number: bit<8>; options: varbit<96>; } instance body: body_t;
  header tail_t { flag: bit<1>; rest: bit<31>; } instance tail: tail_t;
  var class: bit<8>;
  var flag: bit<1>;
  action act(port: bit<32>) { send current port $port; }
  table t { key class: ternary = class; key flag: ternary = flag;
            key tail: ternary = (valid(tail) ? tail.flag : 1w0); actions act; size 64; count both; }
  parser p {
    state start { extract link; select (link.kind) { (16w1): state labels; (16w2): state body; (_): accept; } }
    state labels { extract label.next; class = 8w100; flag = label.last.value[0:0];
                   select (label.last.last) { (1w1): accept; (_): state labels; } }
    state body { extract body (bit<32>(lookahead(bit<4>, 0)) * 32w32); class = bit<8>(body.class);
                 if (body.number > 8w200) { class = 8w99; }
                 select (body.number) { (8w0): accept; (_): state tail; } }
    state tail { extract tail; goto accept; }
  }
  block control { apply t; }
  stage s { parser p; control control; }
}";

fn pair() -> Pair {
    let program = text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"));
    let program = Checked::new(program).unwrap_or_else(|error| panic!("{error:?}"));
    let mut pair = Pair::new(&program, Limits::default());
    let mut number = 0;
    for class in [0, 3, 7, 99, 100] {
        for (flag, tail) in [(0, 0), (0, 1), (1, 0)] {
            number += 1;
            let text = format!(
                "entry priority 5 {{ class: 8w{class} &&& 8w255; flag: 1w{flag} &&& 1w1; tail: 1w{tail} &&& 1w1; }} -> act(32w{number});"
            );
            let entry = text::parse_entry(&program, TableId(0), &text, &|_| None).unwrap();
            assert!(pair.apply(vec![Update::Insert(TableId(0), entry)]), "{text}");
        }
    }
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    pair
}

fn link(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&[9; 12][..], &[0, kind], rest].concat()
}

/// Ports of what leaves, and how many packets found their way by their fronts.
fn leave(pair: &mut Pair, packets: &[Vec<u8>]) -> (Vec<u32>, u64) {
    let before = pair.unparsed();
    let batch: Vec<_> = packets.iter().map(|bytes| Received::whole(bytes, 7)).collect();
    let effects = pair.check_batch(&batch);
    pair.check_state();
    let port = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), .. } => Some(*port),
        _ => None,
    };
    (effects.iter().filter_map(port).collect(), pair.unparsed() - before)
}

#[test]
fn bits_that_nothing_looks_at_may_differ() {
    let mut pair = pair();
    // The first is learned from, the second keeps its way.
    let packet = link(2, &[0x07, 5, 0x80, 0, 0, 1]);
    for found in [0, 0, 1] {
        assert_eq!(leave(&mut pair, std::slice::from_ref(&packet)), (vec![8], found));
    }
    let mut other = packet.clone();
    other[..12].fill(1);
    other[19] = 77;
    assert_eq!(leave(&mut pair, &[other]), (vec![8], 1));
    // The class, a bit behind it, and what the class follows from.
    for (at, value, port) in [(14, 0x03, 5), (16, 0x00, 7), (15, 201, 11)] {
        let mut other = packet.clone();
        other[at] = value;
        assert_eq!(leave(&mut pair, &[other.clone()]), (vec![port], 0));
        leave(&mut pair, &[other.clone()]);
        assert_eq!(leave(&mut pair, &[other]), (vec![port], 1));
    }
}

#[test]
fn packets_that_are_parsed_otherwise_have_fronts_of_their_own() {
    let mut pair = pair();
    let packets = [
        link(2, &[0x07, 5, 0x80, 0, 0, 1]),
        // Options move the tail.
        link(2, &[0x17, 5, 0x00, 0, 0, 1, 0x80, 0, 0, 1]),
        link(2, &[0x37, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 1]),
        // None.
        link(2, &[0x07, 0, 0x80, 0, 0, 1]),
        // One label, two, too many.
        link(1, &[0, 1, 0, 0]),
        link(1, &[0, 2, 0, 3]),
        link(1, &[0, 2, 0, 2, 0, 1]),
        // Another type, and packets too short for what their types say.
        link(3, &[0x07, 5, 0x80, 0]),
        link(2, &[0x07, 5, 0x80, 0, 0]),
        link(2, &[0x17, 5, 0x80, 0, 0, 1]),
        link(1, &[0]),
        vec![9; 13],
        vec![],
    ];
    let first = leave(&mut pair, &packets);
    for _ in 0..3 {
        leave(&mut pair, &packets);
    }
    let (ports, found) = leave(&mut pair, &packets);
    assert_eq!(ports, first.0);
    // Those without an error.
    assert_eq!(found, 7);
}

#[test]
fn of_many_fronts_the_first_are_learned() {
    let mut pair = pair();
    let packet = |types: u8| link(3 + types, &[0x07, 5]);
    let packets: Vec<_> = (0..40).map(packet).collect();
    for _ in 0..3 {
        leave(&mut pair, &packets);
    }
    assert_eq!(leave(&mut pair, &packets).1, 7);
}
