//! Specialised code: the parts of a program that an analysis must not overlook.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::interp::{Dropped, Effect, Exit, Limit, Limits, Received};
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

/// What leaves of a packet in specialised code of two stages, as in the interpreter: ports and lengths.
fn chained(body: [&str; 4], byte: u8) -> Vec<(u32, u32)> {
    let [vars, control, finish, second] = body;
    let source = format!(
        "program chain {{
          header h_t {{ a: bit<8>; b: bit<8>; }} instance h: h_t; instance g: h_t;
          var spec: bit<9>;
          var out: bit<9> = env egress_port;
          {vars}
          parser p {{ state start {{ extract h; goto accept; }} }}
          block control {{ {control} }}
          block finish {{ {finish} }}
          block egress {{ {second} }}
          block leave {{ if (h.a != 8w99) {{ send current port out direct; }} }}
          block deparse {{ emit g; emit h; }}
          stage one {{ parser p; control control; finish finish; next two; }}
          stage two {{ control egress; finish leave; deparser deparse; }}
        }}"
    );
    let program = text::parse(&source).unwrap_or_else(|error| panic!("{error}"));
    let mut pair = Pair::new(&Checked::new(program).unwrap(), Limits::default());
    assert!(pair.engine.is_specialised());
    let effects = pair.check(&Received::whole(&[byte, 7, 8], 1));
    pair.check_state();
    let effect = |effect: &Effect| match effect {
        Effect::Output { to: Exit::Port(port), packet, .. } => Some((*port, packet.len())),
        _ => None,
    };
    effects.iter().filter_map(effect).collect()
}

#[test]
fn a_second_stage_goes_on_with_headers_and_variables() {
    let body = [
        "",
        "h.b = 8w1; spec = 9w5;",
        "send current port spec;",
        "if (h.b == 8w1) { h.b = 8w2; } spec = 9w0;",
    ];
    assert_eq!(chained(body, 1), [(5, 3)]);
    let body = ["", "spec = bit<9>(h.a);", "if (spec == 9w1) { exit; } else { send current port spec; }", ""];
    assert_eq!((chained(body, 1), chained(body, 2)), (vec![], vec![(2, 3)]));
    let body = ["", "valid g;", "send current port 9w5;", "if (out == 9w5) { invalid h; exit; }"];
    assert_eq!(chained(body, 1), [(5, 3)]);
}

#[test]
fn a_second_stage_counts_the_bytes_that_enter_it() {
    let vars = "var octets: bit<32> = env packet_length; counter c[8]: both;";
    for control in ["valid g;", "invalid h;", "insert { 8w1 };", "truncate 32w1;", ""] {
        let body = [vars, control, "send current port 9w5;", "count c[octets];"];
        assert_eq!(chained(body, 1).len(), 1, "{control}");
        let body = [vars, control, "send current port 9w5;", "if (octets == 32w5) { invalid g; }"];
        assert_eq!(chained(body, 1).len(), 1, "{control}");
    }
}

#[test]
fn a_second_stage_finds_its_own_metadata() {
    let vars = "var from: bit<9> = env ingress_port; var kind: bit<32> = env instance; var class: bit<8> = env class;";
    let body = [
        vars,
        "from = 9w9; kind = 32w9; class = 8w9;",
        "send current port 9w5 class h.a;",
        "if (((from == 9w1) && (kind == 32w0)) && (class == h.a)) { h.b = 8w1; } else { invalid h; }",
    ];
    assert_eq!(chained(body, 3), [(5, 3)]);
    let body = [
        "",
        "spec = out;",
        "send current port 9w511;",
        "if ((spec != 9w0) || (out != 9w511)) { invalid h; }",
    ];
    assert_eq!(chained(body, 3), [(511, 3)]);
    // The variable has the low bits of a wider number, and all ones for one that no port can have.
    assert_eq!(chained(["", "", "send current port 32w600;", ""], 3), [(88, 3)]);
    assert_eq!(chained(["", "", "send current port 64w4294967296;", ""], 3), [(511, 3)]);
}

#[test]
fn a_second_stage_that_sends_nothing_drops_a_packet_of_which_the_first_has_sent_a_copy() {
    let body = ["", "", "send current port 9w3; send current port 9w5;", ""];
    let mut both = chained(body, 1);
    both.sort_unstable();
    assert_eq!((both, chained(body, 99)), (vec![(3, 3), (5, 3)], vec![]));
}

#[test]
fn limits_of_both_stages_hold() {
    let body = ["", "", "send current port 9w5 limit 32w2;", "truncate 32w9;"];
    assert_eq!(chained(body, 1), [(5, 2)]);
}

#[test]
fn programs_whose_lists_may_exceed_the_limit_of_steps_are_not_specialised() {
    let list = "32w7, ".repeat(100);
    let hash = format!("hash v = crc32 {{ {list} 8w0 }};");
    let program = |parser: &str, control: &str| {
        let source = format!(
            "program p {{ var v: bit<32>; var error: bit<8> = env parser_error;
              parser in {{ state start {{ {parser} goto accept; }} }}
              block b {{ {control} send current port error; }}
              stage s {{ parser in; control b; }} }}"
        );
        Checked::new(text::parse(&source).unwrap_or_else(|error| panic!("{error}"))).unwrap()
    };
    // Each hash counts as 405 steps.
    let limits = Limits { steps: 3000, ..Limits::default() };
    for (parser, control) in [(0, 10), (10, 0), (5, 5)] {
        let program = program(&hash.repeat(parser), &hash.repeat(control));
        let mut pair = Pair::new(&program, limits);
        assert!(!pair.engine.is_specialised(), "{parser}, {control}");
        let effects = pair.check(&Received::whole(&[1], 1));
        assert_eq!(effects, [Effect::Drop(Dropped::Limit(Limit::Steps))], "{parser}, {control}");
    }
    let mut pair = Pair::new(&program(&hash, &hash), limits);
    assert!(pair.engine.is_specialised());
    pair.check(&Received::whole(&[1], 1));
}

#[test]
fn headers_that_are_left_to_the_payload_leave_as_they_came() {
    for control in [
        "net.life = (net.life - 8w1);",
        "link.kind = 8w9;",
        "link.kind = tail;",
        "if (port.to == 8w3) { link.kind = 8w9; }",
        "valid net;",
        "invalid net;",
        "push tag 1; valid tag[0]; tag[0].kind = 7w5;",
        "pop tag 1;",
    ] {
        let source = format!(
            "program p {{
              header link_t {{ kind: bit<8>; }} instance link: link_t;
              header tag_t {{ kind: bit<7>; last: bit<1>; }} stack tag: tag_t[2];
              header net_t {{ life: bit<8>; kind: bit<8>; }} instance net: net_t;
              header port_t {{ from: bit<8>; to: bit<8>; }} instance port: port_t;
              var tail: bit<8>;
              parser in {{
                state start {{ extract link; select (link.kind) {{ (8w1): state net; (8w2): state tags; (_): accept; }} }}
                state tags {{ extract tag.next; select (tag.last.last) {{ (1w1): state net; (_): state tags; }} }}
                state net {{ extract net; select (net.kind) {{ (8w6): state port; (_): accept; }} }}
                state port {{ tail = 8w1; extract port; goto accept; }}
              }}
              block control {{ {control} send current port 8w2; }}
              block out {{ emit link; emit tag; emit net; emit port; }}
              stage s {{ parser in; control control; deparser out; }}
            }}"
        );
        let program = text::parse(&source).unwrap_or_else(|error| panic!("{error}"));
        let mut pair = Pair::new(&Checked::new(program).unwrap(), Limits::default());
        assert!(pair.engine.is_specialised());
        for whole in [
            &[1, 64, 6, 1, 3, 7][..],
            &[1, 64, 7, 1, 3],
            &[2, 1, 64, 6, 1, 3, 7],
            &[2, 0, 0, 0, 64, 6],
            &[9, 8],
        ] {
            for len in 1..=whole.len() {
                pair.check(&Received::whole(&whole[..len], 1));
            }
        }
    }
}
