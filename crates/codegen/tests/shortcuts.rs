//! Shortcuts: packets that follow another one's way without code, and packets that must not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Effect, Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::Update;
use pipeline::{Checked, text};
use support::Pair;

/// A table by the first byte, whose actions send packets in ways that follow from more or less.
fn program(actions: &str) -> Checked {
    let source = format!(
        "program shortcuts {{
          header h_t {{ a: bit<8>; b: bit<8>; }} instance h: h_t;
          var from: bit<32> = env ingress_port;
          var octets: bit<32> = env packet_length;
          var mark: bit<8>;
          {actions}
          parser p {{ state start {{ extract h; goto accept; }} }}
          stage s {{ parser p; control control; }}
        }}"
    );
    Checked::new(text::parse(&source).unwrap_or_else(|error| panic!("{error}"))).unwrap()
}

/// A table with one kind of action; entries for 1 and 2 lead to ports 3 and 4.
fn pair(body: &str) -> Pair {
    let actions = format!(
        "action act(port: bit<32>) {{ {body} }}
         table t {{ key a: exact = h.a; actions act; size 8; }}
         block control {{ apply t; }}"
    );
    let program = program(&actions);
    let mut pair = Pair::new(&program, Limits::default());
    for text in ["entry { a: 8w1; } -> act(32w3);", "entry { a: 8w2; } -> act(32w4);"] {
        assert!(pair.apply(vec![insert(&program, 0, text)]));
    }
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    pair
}

fn insert(program: &Checked, table: u32, text: &str) -> Update {
    Update::Insert(TableId(table), text::parse_entry(program, TableId(table), text, &|_| None).unwrap())
}

/// Ports and lengths of what leaves, of a batch that repeats packets so that the later ones may take shortcuts; the
/// interpreter's are the same.
fn leave(pair: &mut Pair, packets: &[(&[u8], u32)]) -> Vec<(u32, u32)> {
    let batch: Vec<_> = packets.iter().map(|(bytes, port)| Received::whole(bytes, *port)).collect();
    let effects = pair.check_batch(&batch);
    pair.check_state();
    let leaves = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), packet, .. } => Some((*port, packet.len())),
        _ => None,
    };
    effects.iter().filter_map(leaves).collect()
}

const NOT_BACK: &str = "if (from != $port) { send current port $port; }";

#[test]
fn packets_of_all_ports_but_the_egress_port_leave() {
    let mut pair = pair(NOT_BACK);
    let packets: [(&[u8], u32); 6] =
        [(&[1, 0], 7), (&[1, 9], 7), (&[1, 0, 5], 8), (&[1, 0], 3), (&[2, 0], 3), (&[2, 0], 4)];
    assert_eq!(leave(&mut pair, &packets), [(3, 2), (3, 2), (3, 3), (4, 2)]);
    assert_eq!(leave(&mut pair, &packets), [(3, 2), (3, 2), (3, 3), (4, 2)]);
}

#[test]
fn a_packet_that_is_not_sent_back_shows_no_way() {
    let mut pair =
        pair("if (from != 32w9) { send current port 32w9; } if (from != $port) { send current port $port; }");
    assert_eq!(
        leave(&mut pair, &[(&[1, 0], 9), (&[1, 0], 9), (&[1, 0], 7)]),
        [(3, 2), (3, 2), (9, 2), (3, 2)]
    );
}

#[test]
fn a_way_that_follows_from_the_ingress_port_is_for_that_port() {
    let mut pair = pair("if (from == 32w7) { send current port 32w9; } else { send current port $port; }");
    let packets: [(&[u8], u32); 4] = [(&[1, 0], 7), (&[1, 0], 7), (&[1, 0], 8), (&[1, 0], 7)];
    assert_eq!(leave(&mut pair, &packets), [(9, 2), (9, 2), (3, 2), (9, 2)]);
}

#[test]
fn a_way_that_follows_from_the_packet_is_nobody_elses() {
    for body in [
        "if (h.b == 8w0) { send current port $port; } else { send current port 32w9; }",
        "mark = h.b; if (mark == 8w0) { send current port $port; } else { send current port 32w9; }",
        "switch h.b { case 8w0 { send current port $port; } default { send current port 32w9; } }",
        "if (h.b == 8w0) { mark = 8w1; } if (mark == 8w1) { send current port $port; } else { send current port 32w9; }",
    ] {
        let mut pair = pair(body);
        let packets: [(&[u8], u32); 4] = [(&[1, 0], 7), (&[1, 0], 7), (&[1, 1], 7), (&[1, 0], 7)];
        assert_eq!(leave(&mut pair, &packets), [(3, 2), (3, 2), (9, 2), (3, 2)], "{body}");
    }
}

#[test]
fn lengths_are_each_packets_own() {
    let mut cut = pair("send current port $port limit 16w3;");
    assert_eq!(leave(&mut cut, &[(&[1, 0], 7), (&[1, 0], 7), (&[1, 0, 0, 0], 7)]), [(3, 2), (3, 2), (3, 3)]);
    let mut short = pair("if (octets == 32w2) { send current port $port; }");
    assert_eq!(leave(&mut short, &[(&[1, 0], 7), (&[1, 0], 7), (&[1, 0, 0, 0], 7)]), [(3, 2), (3, 2)]);
}

#[test]
fn packets_that_are_changed_go_through_code() {
    let mut pair = pair("h.b = 8w5; send current port $port;");
    let effects = pair.check_batch(&[Received::whole(&[1, 0], 7); 3]);
    assert_eq!(effects.len(), 3);
    pair.check_state();
}

#[test]
fn a_changed_entry_leads_elsewhere_at_once() {
    let mut pair = pair(NOT_BACK);
    let packets: [(&[u8], u32); 3] = [(&[1, 0], 7); 3];
    assert_eq!(leave(&mut pair, &packets), [(3, 2); 3]);
    let program = pair.compiled.program().clone();
    let entry =
        text::parse_entry(&program, TableId(0), "entry { a: 8w1; } -> act(32w5);", &|_| None).unwrap();
    assert!(pair.apply(vec![Update::Modify(TableId(0), entry)]));
    assert_eq!(leave(&mut pair, &packets), [(5, 2); 3]);
}

#[test]
fn a_way_through_two_tables_follows_from_both() {
    let actions = "action act(port: bit<32>) { send current port $port; }
      action next() { call second; }
      table t { key a: exact = h.a; actions next; size 8; }
      table u { key b: exact = h.b; actions act; size 8; }
      block second { apply u; }
      block control { apply t; }";
    let program = program(actions);
    let mut pair = Pair::new(&program, Limits::default());
    let updates = [
        (0, "entry { a: 8w1; } -> next();"),
        (1, "entry { b: 8w1; } -> act(32w3);"),
        (1, "entry { b: 8w2; } -> act(32w4);"),
    ];
    for (table, text) in updates {
        assert!(pair.apply(vec![insert(&program, table, text)]));
    }
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    let packets: [(&[u8], u32); 4] = [(&[1, 1], 7), (&[1, 1], 7), (&[1, 2], 7), (&[1, 1], 7)];
    assert_eq!(leave(&mut pair, &packets), [(3, 2), (3, 2), (4, 2), (3, 2)]);
}

#[test]
fn one_lookup_serves_a_batch_whose_key_is_the_ingress_port() {
    let actions = format!(
        "action act(port: bit<32>) {{ {NOT_BACK} }}
         table t {{ key from: exact = from; actions act; size 8; }}
         block control {{ apply t; }}"
    );
    let program = program(&actions);
    let mut pair = Pair::new(&program, Limits::default());
    assert!(pair.apply(vec![insert(&program, 0, "entry { from: 32w7; } -> act(32w3);")]));
    assert!(pair.apply(vec![insert(&program, 0, "entry { from: 32w8; } -> act(32w4);")]));
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    let packets: [(&[u8], u32); 6] =
        [(&[1, 1], 7), (&[2, 1], 7), (&[3, 2], 8), (&[4, 1], 7), (&[5, 1], 9), (&[6, 1], 8)];
    assert_eq!(leave(&mut pair, &packets), [(3, 2), (3, 2), (4, 2), (3, 2), (4, 2)]);
    let mixed = vec![(&[1_u8, 1][..], 7); 150];
    assert_eq!(leave(&mut pair, &mixed).len(), 150);
}

#[test]
fn an_empty_packet_shows_no_way_to_those_whose_header_is_taken() {
    let program = text::parse(
        "program strips {
          header h_t { a: bit<8>; } instance h: h_t;
          action act(port: bit<32>) { send current port $port; }
          table t { key a: exact = h.a; actions act; size 8; }
          parser p { state start { extract h; goto accept; } }
          block control { apply t; }
          block nothing { }
          stage s { parser p; control control; deparser nothing; }
        }",
    );
    let program = Checked::new(program.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    assert!(pair.apply(vec![insert(&program, 0, "entry { a: 8w0; } -> act(32w3);")]));
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    // Without its byte the header is invalid, and reads as zero.
    let packets: [(&[u8], u32); 4] = [(&[], 7), (&[], 7), (&[0, 1], 7), (&[0], 7)];
    assert_eq!(leave(&mut pair, &packets), [(3, 0), (3, 0), (3, 1), (3, 0)]);
}

#[test]
fn a_parser_that_counts_parses_once() {
    let program = text::parse(
        "program counts {
          header h_t { a: bit<8>; } instance h: h_t;
          counter parsed[1]: both;
          action act(port: bit<32>) { send current port $port; }
          table t { key a: exact = h.a; actions act; size 8; }
          parser p { state start { extract h; count parsed[32w0]; goto accept; } }
          block control { apply t; }
          stage s { parser p; control control; }
        }",
    );
    let program = Checked::new(program.unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    assert!(pair.apply(vec![insert(&program, 0, "entry { a: 8w0; } -> act(32w3);")]));
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    assert_eq!(leave(&mut pair, &[(&[0, 1], 7), (&[0, 1], 7)]), [(3, 2), (3, 2)]);
}
