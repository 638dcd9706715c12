//! Specialised code: the parts of a program that an analysis must not overlook.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Effect, Limits, Received};
use pipeline::{Checked, text};
use support::Pair;

/// Lengths of what leaves when the packet is one byte, in specialised code as in the interpreter.
fn lengths(source: &str, byte: u8) -> Vec<u32> {
    let program = text::parse(source).unwrap_or_else(|error| panic!("{error}"));
    let mut pair = Pair::new(&Checked::new(program).unwrap(), Limits::default());
    assert!(pair.engine.is_specialised());
    let effects = pair.check(&Received::whole(&[byte], 1));
    let length = |effect: &Effect| match effect {
        Effect::Output { packet, .. } => packet.len(),
        other => panic!("{other:?}"),
    };
    effects.iter().map(length).collect()
}

#[test]
fn a_deparser_reads_what_nothing_else_does() {
    let source = "program reads {
      header h_t { a: bit<8>; } instance h: h_t;
      var twice: bool;
      parser p { state start { extract h; goto accept; } }
      block control { twice = (h.a == 8w1); send current port 8w2; }
      block out { emit h; if twice { emit h; } }
      stage s { parser p; control control; deparser out; }
    }";
    assert_eq!((lengths(source, 1), lengths(source, 2)), (vec![2], vec![1]));
}

#[test]
fn a_deparser_has_room_for_what_it_writes() {
    let source = "program writes {
      header h_t { a: bit<8>; } instance h: h_t;
      var noise: bit<64>;
      var twice: bool;
      parser p { state start { extract h; goto accept; } }
      block control { twice = (h.a == 8w1); send current port 8w2; }
      block out { random noise = 64w2 .. 64w2; emit h; if twice { emit h; } }
      stage s { parser p; control control; deparser out; }
    }";
    assert_eq!((lengths(source, 1), lengths(source, 2)), (vec![2], vec![1]));
}
