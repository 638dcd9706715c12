//! Remembered ways: packets that follow another one's way through several tables without code, and packets that must
//! not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Effect, Exit, Limits, Received};
use pipeline::ir::TableId;
use pipeline::state::Update;
use pipeline::{Checked, text};
use support::Pair;

/// Two tables by the first and the second byte; the second table's entries are more than a list has.
fn pair(actions: &str, control: &str) -> Pair {
    let stages = format!(
        "block control {{ apply t; {control} apply u; }}
         stage s {{ parser p; control control; }}"
    );
    pair_of(actions, &stages)
}

/// The same tables in stages of their own.
fn pair_of_two(finish: &str, egress: &str) -> Pair {
    let actions = "replicas lists; var out: bit<32> = env egress_port; var spec: bit<32>;
        action act(port: bit<32>) { spec = $port; }";
    let stages = format!(
        "block control {{ apply t; spec = bit<32>(mark); }}
         block finish {{ {finish} }}
         block egress {{ apply u; {egress} }}
         block leave {{ send current port (spec ^ out) direct; }}
         stage one {{ parser p; control control; finish finish; next two; }}
         stage two {{ control egress; finish leave; }}"
    );
    pair_of(actions, &stages)
}

fn pair_of(actions: &str, stages: &str) -> Pair {
    let source = format!(
        "program ways {{
          header h_t {{ a: bit<8>; b: bit<8>; c: bit<8>; }} instance h: h_t;
          var from: bit<32> = env ingress_port;
          var octets: bit<32> = env packet_length;
          var mark: bit<8>;
          var parsed: bit<8>;
          reason refused;
          {actions}
          action refuse() {{ drop refused; }}
          action mark_it(value: bit<8>) {{ mark = $value; }}
          table t {{ key a: ternary = h.a; actions mark_it, refuse; size 64; count both; timeouts; }}
          table u {{ key b: ternary = h.b; key mark: ternary = mark; actions act, refuse; size 64; count both; timeouts; }}
          parser p {{ state start {{ extract h; parsed = h.c; goto accept; }} }}
          {stages}
        }}"
    );
    let program = text::parse(&source).unwrap_or_else(|error| panic!("{error}"));
    let mut pair = Pair::new(&Checked::new(program).unwrap(), Limits::default());
    insert(&mut pair, 0, "entry priority 5 { a: 8w1 &&& 8w0xff; } -> mark_it(8w7);");
    insert(&mut pair, 0, "entry priority 5 { a: 8w2 &&& 8w0xff; } -> mark_it(8w8);");
    insert(&mut pair, 0, "entry priority 5 { a: 8w3 &&& 8w0xff; } -> refuse();");
    for b in 0..16 {
        let text = format!("entry priority 5 {{ b: 8w{b} &&& 8w0xff; }} -> act(32w{});", 100 + b);
        insert(&mut pair, 1, &text);
    }
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    pair
}

fn insert(pair: &mut Pair, table: u32, text: &str) {
    let entry = entry(pair, table, text);
    assert!(pair.apply(vec![Update::Insert(TableId(table), entry)]), "{text}");
}

fn entry(pair: &Pair, table: u32, text: &str) -> pipeline::ir::Entry {
    text::parse_entry(pair.compiled.program(), TableId(table), text, &|_| None).unwrap()
}

/// Ports of what leaves, and how many packets followed another one's way. The interpreter's effects and counts are the
/// same, those of all entries on the way included.
fn leave(pair: &mut Pair, packets: &[(&[u8], u32)]) -> (Vec<u32>, u64) {
    let before = pair.remembered();
    pair.advance(1000);
    let batch: Vec<_> = packets.iter().map(|(bytes, port)| Received::whole(bytes, *port)).collect();
    let effects = pair.check_batch(&batch);
    pair.check_state();
    let port = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), .. } => Some(*port),
        _ => None,
    };
    (effects.iter().filter_map(port).collect(), pair.remembered() - before)
}

#[test]
fn ways_lead_through_both_stages() {
    let mut pair = pair_of_two("send current port spec;", "");
    let first = leave(&mut pair, &SOME);
    assert_eq!(first, (vec![104 ^ 7, 105 ^ 7, 104 ^ 8], 0));
    assert_eq!(leave(&mut pair, &SOME), (first.0.clone(), 4));
    // A change of the second stage's table holds for the next packet.
    let changed = entry(&pair, 1, "entry priority 5 { b: 8w4 &&& 8w0xff; } -> act(32w200);");
    assert!(pair.apply(vec![Update::Modify(TableId(1), changed)]));
    assert_eq!(leave(&mut pair, &SOME).0, [200 ^ 7, 105 ^ 7, 200 ^ 8]);
}

#[test]
fn packets_with_copies_go_no_remembered_ways() {
    let finish = "if (h.c == 8w9) { send original port 32w50 via two instance 1; } send current port spec;";
    let mut pair = pair_of_two(finish, "");
    let first = leave(&mut pair, &SOME);
    // The copy has the number 0 in the place of the first table's mark.
    assert_eq!(first, (vec![104 ^ 7, 105 ^ 7, 104 ^ 50, 104 ^ 8], 0));
    // The packet with a copy runs again.
    assert_eq!(leave(&mut pair, &SOME), (first.0, 3));
}

const SEND: &str = "action act(port: bit<32>) { send current port $port; }";
const SOME: [(&[u8], u32); 4] = [(&[1, 4, 0], 7), (&[1, 5, 0], 7), (&[2, 4, 9], 7), (&[3, 5, 9], 8)];

#[test]
fn all_entries_on_the_way_are_counted() {
    let mut pair = pair(SEND, "");
    assert_eq!(leave(&mut pair, &SOME), (vec![104, 105, 104], 0));
    // What was dropped in the first table is remembered, too.
    assert_eq!(leave(&mut pair, &SOME), (vec![104, 105, 104], 4));
    // Nothing looks at the third byte.
    assert_eq!(leave(&mut pair, &[(&[1, 4, 99], 7), (&[9, 200, 1], 7)]), (vec![104], 1));
    assert_eq!(leave(&mut pair, &[(&[1, 4, 98, 7, 7, 7], 7), (&[9, 200, 2], 7)]), (vec![104], 2));
}

#[test]
fn packets_of_a_batch_follow_the_first() {
    let mut pair = pair(SEND, "");
    let packets = vec![(&[1, 4, 0][..], 7); 150];
    assert_eq!(leave(&mut pair, &packets), (vec![104; 150], 149));
}

#[test]
fn a_change_in_place_is_met_by_the_next_batch() {
    let mut pair = pair(SEND, "");
    let packets: [(&[u8], u32); 2] = [(&[1, 4, 0], 7), (&[1, 5, 0], 7)];
    leave(&mut pair, &packets);
    assert_eq!(leave(&mut pair, &packets), (vec![104, 105], 2));
    let changed = entry(&pair, 1, "entry priority 5 { b: 8w4 &&& 8w0xff; } -> act(32w9);");
    assert!(pair.apply(vec![Update::Modify(TableId(1), changed)]));
    assert_eq!(leave(&mut pair, &packets), (vec![9, 105], 0));
    assert_eq!(leave(&mut pair, &packets), (vec![9, 105], 2));
    insert(&mut pair, 1, "entry priority 9 { b: 8w5 &&& 8w0xff; mark: 8w7 &&& 8w0xff; } -> act(32w8);");
    pair.engine.improve();
    assert_eq!(leave(&mut pair, &packets), (vec![9, 8], 0));
    assert_eq!(leave(&mut pair, &packets), (vec![9, 8], 2));
    let entries = pair.compiled.table(TableId(1)).unwrap().entries();
    let ids: Vec<_> = entries.filter(|entry| entry.entry.priority == 9).map(|entry| entry.id).collect();
    for id in ids {
        assert!(pair.apply(vec![Update::Delete(TableId(1), id)]));
    }
    assert_eq!(leave(&mut pair, &packets), (vec![9, 105], 0));
}

#[test]
fn a_change_of_the_first_table_of_few_entries_is_met_by_the_next_batch() {
    let mut pair = pair(SEND, "");
    let packets: [(&[u8], u32); 2] = [(&[1, 4, 0], 7), (&[6, 5, 0], 7)];
    leave(&mut pair, &packets);
    assert_eq!(leave(&mut pair, &packets), (vec![104, 105], 2));
    // An entry of higher priority for what missed, and one for what hit.
    insert(&mut pair, 0, "entry priority 9 { a: 8w6 &&& 8w0xff; } -> refuse();");
    insert(&mut pair, 0, "entry priority 9 { a: 8w1 &&& 8w0xff; } -> refuse();");
    assert_eq!(leave(&mut pair, &packets), (vec![], 0));
    assert_eq!(leave(&mut pair, &packets), (vec![], 2));
}

#[test]
fn a_way_that_follows_from_the_ingress_port_is_for_that_port() {
    let mut pair = pair("action act(port: bit<32>) { if (from != $port) { send current port $port; } }", "");
    let packets: [(&[u8], u32); 3] = [(&[1, 4, 0], 7), (&[1, 4, 0], 104), (&[1, 4, 0], 8)];
    assert_eq!(leave(&mut pair, &packets), (vec![104, 104], 0));
    assert_eq!(leave(&mut pair, &packets), (vec![104, 104], 3));
}

#[test]
fn what_follows_from_more_is_nobody_elses() {
    let send_if = |condition: &str| {
        format!("action act(port: bit<32>) {{ if ({condition}) {{ send current port $port; }} }}")
    };
    for actions in [
        send_if("octets == 32w3"),
        send_if("h.c == 8w0"),
        send_if("parsed == 8w0"),
        "action act(port: bit<32>) { send current port $port limit 16w2; }".into(),
        "action act(port: bit<32>) { h.c = 8w5; send current port $port; }".into(),
        "action act(port: bit<32>) { random mark = 8w0 .. 8w1; if (mark == 8w0) { send current port $port; } }".into(),
    ] {
        let mut pair = pair(&actions, "");
        for _ in 0..3 {
            leave(&mut pair, &[(&[1, 4, 0], 7), (&[1, 4, 0, 6], 7), (&[1, 4, 9], 7), (&[1, 4, 0], 7)]);
        }
    }
}

#[test]
fn a_variable_of_the_parser_that_is_set_later_may_have_either_value() {
    // Sums of what was parsed are equal, but the sum is of other values when it is looked at.
    let mut pair = pair(
        "action act(port: bit<32>) { if ((parsed + h.c) == 8w9) { send current port $port; } }",
        "if (h.a == 8w1) { parsed = 8w4; }",
    );
    let packets: [(&[u8], u32); 4] = [(&[1, 4, 5], 7), (&[1, 4, 5], 7), (&[1, 4, 133], 7), (&[2, 4, 133], 7)];
    for _ in 0..3 {
        assert_eq!(leave(&mut pair, &packets).0, [104, 104]);
    }
}

#[test]
fn keys_that_follow_from_what_is_set_are_looked_up() {
    let mut pair = pair(SEND, "mark = (mark ^ h.c);");
    insert(&mut pair, 1, "entry priority 9 { b: 8w4 &&& 8w0xff; mark: 8w7 &&& 8w0xff; } -> act(32w8);");
    pair.engine.improve();
    let packets: [(&[u8], u32); 3] = [(&[1, 4, 0], 7), (&[1, 4, 1], 7), (&[2, 4, 15], 7)];
    assert_eq!(leave(&mut pair, &packets), (vec![8, 104, 8], 0));
    assert_eq!(leave(&mut pair, &packets), (vec![8, 104, 8], 3));
}

#[test]
fn short_packets_have_ways_of_their_own() {
    let mut pair = pair("action act(port: bit<32>) { if valid(h) { send current port $port; } }", "");
    // Headers that were not parsed read as zero.
    let packets: [(&[u8], u32); 3] = [(&[0, 0, 0], 7), (&[], 7), (&[0], 7)];
    for _ in 0..2 {
        assert_eq!(leave(&mut pair, &packets).0, [100]);
    }
}

#[test]
fn packets_that_the_code_is_not_for_run_among_others() {
    let mut pair = pair(SEND, "");
    let of = |flags, bytes| Received { flags, ..Received::whole(bytes, 7) };
    for first in 0..2 {
        let batch = [of(first, &[1, 4, 0]), of(1, &[1, 5, 0]), of(0, &[2, 4, 0]), of(1, &[2, 4, 0])];
        for _ in 0..2 {
            pair.check_batch(&batch);
        }
        pair.check_state();
    }
    assert_eq!(pair.remembered(), 4);
}

#[test]
fn batches_whose_packets_all_find_ways_follow_them_at_once() {
    let mut pair = pair(SEND, "");
    let all: Vec<[u8; 8]> = (0..100).map(|i| [1 + i % 2, i % 16, 0, 0, 0, 0, 0, 0]).collect();
    let packets: Vec<(&[u8], u32)> = all.iter().map(|bytes| (&bytes[..], 7)).collect();
    let mut at_once = |packets: &[(&[u8], u32)]| {
        let before = pair.at_once();
        leave(&mut pair, packets);
        pair.at_once() - before
    };
    assert_eq!(at_once(&packets), 0, "ways are not known");
    assert_eq!(at_once(&packets), 0, "fronts are not known");
    for batch in [&packets[..], &packets[..1], &packets[..64], &packets[..65]] {
        assert_eq!(at_once(batch), batch.len() as u64);
    }
    assert_eq!(
        at_once(&[&packets[..70], &[(&[3, 5, 9, 0, 0, 0, 0, 0], 7)], &packets[..9]].concat()),
        64,
        "one is dropped"
    );
    assert_eq!(at_once(&packets), 0, "of the batch before, not all left");
    assert_eq!(at_once(&packets), 100);
    let others: [(&[u8], u32); 3] = [(&[1, 4, 0, 0, 0, 0, 0, 0], 8); 3];
    assert_eq!(at_once(&others), 0, "packets of another port");
    assert_eq!(at_once(&others), 0);
    assert_eq!(at_once(&others), 3);
    assert_eq!(at_once(&[(&[1, 4], 8)]), 0, "a packet without the front");
    assert_eq!(at_once(&[]), 0);
    (0..2).for_each(|_| _ = at_once(&packets));
    let changed = entry(&pair, 1, "entry priority 5 { b: 8w4 &&& 8w0xff; } -> act(32w200);");
    assert!(pair.apply(vec![Update::Modify(TableId(1), changed)]));
    let before = pair.at_once();
    assert!(leave(&mut pair, &packets).0.contains(&200));
    assert_eq!(pair.at_once(), before, "the entry has changed");
}

/// A table by ingress port and one by nothing.
const PORTS: &str = "program ports {
  header h_t { a: bit<8>; } instance h: h_t;
  var from: bit<32> = env ingress_port;
  action next() {}
  action act(port: bit<32>) { send current port $port; }
  table t { key from: ternary = from; actions next; size 8; count both; }
  table u { actions act; size 8; count both; timeouts; }
  parser p { state start { extract h; goto accept; } }
  block control { apply t { hit { apply u; } }; }
  stage s { parser p; control control; }
}";

#[test]
fn all_packets_of_a_port_follow_their_way_as_a_whole() {
    let program = Checked::new(text::parse(PORTS).unwrap_or_else(|error| panic!("{error}"))).unwrap();
    let mut pair = Pair::new(&program, Limits::default());
    for port in [7, 8] {
        insert(
            &mut pair,
            0,
            &format!("entry priority 5 {{ from: 32w{port} &&& 32w0xffffffff; }} -> next();"),
        );
    }
    insert(&mut pair, 1, "entry { } -> act(32w3);");
    pair.engine.improve();
    assert!(pair.engine.is_specialised());
    let all = |pair: &mut Pair, port, flags| {
        let leaves = pair.follow_all(&[Received { flags, ..Received::whole(&[1], port) }; 3]);
        pair.check_state();
        leaves.map(|leaves| leaves.port)
    };
    assert_eq!(all(&mut pair, 7, 0), None, "no packet has shown the way");
    for port in [7, 8] {
        let packets: [(&[u8], u32); 3] = [(&[1], port), (&[2, 3], port), (&[], port)];
        assert_eq!(leave(&mut pair, &packets), (vec![3; 3], 2));
        assert_eq!(all(&mut pair, port, 0), Some(3));
        assert_eq!(all(&mut pair, 5, 0), None, "packets of another port");
        assert_eq!(all(&mut pair, port, 1), None, "packets that the code is not for");
    }
    let changed = entry(&pair, 1, "entry { } -> act(32w9);");
    assert!(pair.apply(vec![Update::Modify(TableId(1), changed)]));
    assert_eq!(all(&mut pair, 8, 0), None, "the entry has changed");
    assert_eq!(leave(&mut pair, &[(&[1], 8)]).0, [9]);
    assert_eq!(all(&mut pair, 8, 0), Some(9));
}
