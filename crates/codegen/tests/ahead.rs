//! Batches whose first lookups are done together, each packet in a frame of its own: what it was parsed to is there when
//! it goes on, and nothing of another packet. Packets leave with the headers that a deparser writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Effect, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::Update;
use pipeline::{Checked, text};
use support::Pair;

/// Packets of a batch: more than there are frames.
const PACKETS: u32 = 100;

/// A header with options of up to 12 bytes, then labels in a stack of three up to one that is the last, or one of two
/// headers, by the first bits; the table finds the port by these bits, as `control` has them, and counts hits if told so.
fn pair(control: &str, counts: &str) -> Pair {
    let source = format!(
        "program ahead {{
          header head_t {{ kind: bit<4>; words: bit<4>; number: bit<8>; options: varbit<96>; count: bit<8>; }}
          instance head: head_t;
          header label_t {{ value: bit<15>; last: bit<1>; }} stack label: label_t[3];
          header short_t {{ x: bit<8>; }} header long_t {{ x: bit<40>; y: bit<16>; }}
          union either {{ short: short_t; long: long_t; }}
          var kind: bit<8>; var twice: bool;
          var error: bit<8> = env parser_error; var len: bit<32> = env packet_length;
          action to(port: bit<32>) {{ head.count = (head.count + 8w1); send current port $port; }}
          action relabel(value: bit<15>) {{ valid label[2]; label[2].value = $value; send current port 32w9; }}
          table t {{ key kind: exact = kind; actions to, relabel; size 64; {counts} }}
          parser p {{
            state start {{
              extract head (bit<32>(lookahead(bit<4>, 4)) * 32w32);
              select (head.kind) {{ (4w1): state labels; (4w2): state short; (4w3): state long; (_): accept; }}
            }}
            state labels {{ extract label.next; select (label.last.last) {{ (1w1): accept; (_): state labels; }} }}
            state short {{ extract either.short; goto accept; }}
            state long {{ extract either.long; goto accept; }}
          }}
          block control {{ {control} }}
          block rest {{ kind = 8w4; apply t; }}
          block behind {{ kind = bit<8>((remaining & 32w3)); apply t; }}
          block out {{ emit label[1]; emit head; if twice {{ emit head; }} emit label; emit either; }}
          stage s {{ parser p; control control; deparser out; }}
        }}"
    );
    let program = text::parse(&source).unwrap_or_else(|error| panic!("{error}"));
    let program = Checked::new(program).unwrap_or_else(|error| panic!("{error:?}"));
    let mut pair = Pair::new(&program, Limits::default());
    for (kind, call) in
        [(0, "to(32w3)"), (1, "to(32w4)"), (2, "to(32w5)"), (3, "to(32w6)"), (4, "relabel(15w77)")]
    {
        let entry = format!("entry {{ kind: 8w{kind}; }} -> {call};");
        let entry = text::parse_entry(&program, TableId(0), &entry, &|_| None).unwrap();
        assert!(pair.apply(vec![Update::Insert(TableId(0), entry)]));
    }
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    pair.remember_nothing();
    pair
}

/// Packets of up to 30 bytes; most bits are what a generator of random numbers makes of the seed.
fn packets(mut seed: u32) -> Vec<Vec<u8>> {
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed >> 8
    };
    let packet = |_| {
        let len = random() % 30 + 1;
        let mut packet: Vec<_> = (0..len).map(|_| random() as u8).collect();
        packet[0] = (random() % 6 * 16 + random() % 3) as u8;
        packet
    };
    (0..PACKETS).map(packet).collect()
}

#[test]
fn packets_go_on_as_they_were_parsed() {
    for (control, resumes) in [
        ("kind = bit<8>(head.kind); apply t;", true),
        ("kind = bit<8>(head.kind); twice = (head.number < 8w99); apply t;", true),
        ("kind = bit<8>(head.kind); if (len > 32w20) { kind = 8w1; twice = (error == 8w0); } apply t;", true),
        // What is behind the headers precedes the lookup.
        ("kind = bit<8>((remaining & 32w3)); apply t;", true),
        // Another block takes the place of this one.
        ("kind = bit<8>(head.kind); if (head.number < 8w99) { goto rest; } apply t;", true),
        ("kind = bit<8>(head.kind); goto behind;", true),
        // What precedes the lookup would be done twice.
        ("kind = (kind + 8w1); kind = (kind ^ bit<8>(head.kind)); apply t;", false),
        ("head.number = (head.number + 8w1); kind = (bit<8>(head.kind) & head.number); apply t;", false),
        // It is not prepared.
        ("kind = bit<8>(head.kind); if (head.number < 8w99) { invalid head; } apply t;", true),
    ] {
        let counts = ["count both;", ""];
        let pairs = counts.map(|counts| pair(control, counts));
        for (mut pair, seed) in pairs.into_iter().zip([0, 20]) {
            check(&mut pair, control, seed);
            pair.check_state();
            assert_eq!(pair.resumed() > 0, resumes, "{control}");
        }
    }
}

/// Batches of random packets, which leave as the interpreter says; many of them have new headers then.
fn check(pair: &mut Pair, control: &str, first: u32) {
    for seed in first..first + 20 {
        let packets = packets(seed);
        let port = |i: usize| if i.is_multiple_of(7) { 2 } else { 1 };
        let batch: Vec<_> =
            packets.iter().enumerate().map(|(i, bytes)| Received::whole(bytes, port(i))).collect();
        let effects = pair.check_batch(&batch);
        let is_written =
            |effect: &&Effect| matches!(effect, Effect::Output { packet, .. } if !packet.head.is_empty());
        let written = effects.iter().filter(is_written).count();
        assert!(written > PACKETS as usize / 4, "{control}: {written} packets left with new headers");
    }
}
