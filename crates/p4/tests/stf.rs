//! Cases on a program in the pipeline's text form: what commands do, and what a report says.

#![allow(clippy::panic)]

use mswitch_p4::stf::{Case, Options, Report, run};
use pipeline::{Checked, text};

/// A header of two bytes chooses what is done by its second byte; the first byte is the key, the index or the result.
const PROGRAM: &str = "program p {
    header h_t { v: bit<8>; op: bit<8>; }
    instance h: h_t;
    header x_t { a: bit<16>; }
    instance x: x_t;
    var port: bit<32> = env ingress_port;
    var to: bit<32> = env egress_port;
    var replica: bit<8> = env replica;
    var now: bit<64> = env stage_time;
    var color: bit<8>;
    var word: bit<16>;
    reason none;
    replicas multicast;
    replicas clone;
    value_set `prs.set`[4]: (bit<8>);
    digest `ingress.news`: (bit<8>, bit<16>);
    counter `ingress.cells`[4]: both;
    meter `ingress.rates`[4]: packets;
    register `ingress.words`[4]: bit<16>;
    profile `ingress.shared`[8] { actions `ingress.set`; select crc32 { h.v }; }
    parser prs {
        state start { extract h; select(h.v) { (in `prs.set`): state more; (_): accept; } }
        state more { extract x; goto accept; }
    }
    action `ingress.set`(v: bit<8>) { h.v = $v; }
    action `ingress.drop`() { drop none; }
    table `ingress.exact` {
        key `hdr.h.v`: exact = h.v; key `hdr.x.$valid$`: exact = valid(x);
        actions `ingress.set`, `ingress.drop`; default `ingress.drop`(); size 8; count both;
    }
    table `ingress.lpm` { key `hdr.h.v`: lpm = h.v; actions `ingress.set`; size 8; }
    table `ingress.any` {
        key `hdr.h.v`: ternary = h.v; key `meta.port`: range = port; key `hdr.x.a`: optional = x.a;
        actions `ingress.set`; size 8;
    }
    table `ingress.members` { key `hdr.h.v`: exact = h.v; actions `ingress.set`; profile `ingress.shared`; size 8; }
    block ingress {
        switch h.op {
            case 8w1 { apply `ingress.exact`; }
            case 8w2 { apply `ingress.lpm`; }
            case 8w3 { apply `ingress.any`; }
            case 8w4 { apply `ingress.members`; }
            case 8w5 { count `ingress.cells`[h.v]; }
            case 8w6 { meter color = `ingress.rates`[h.v]; h.v = color; }
            case 8w7 {
                read word = `ingress.words`[h.v]; h.v = word[7:0]; write `ingress.words`[8w2] = (word + 16w1);
            }
            case 8w8 { digest `ingress.news`(h.v, 16w256); }
            case 8w9 { send current replicas multicast[h.v]; drop none; }
            case 8w10 { send original replicas clone[h.v] direct; }
            case 8w11 { h.v = now[37:30]; }
            default { }
        }
        send current port port;
    }
    block egress { if (h.op == 8w9) { h.v = replica; } send current port to; }
    block deparse { emit h; emit x; }
    stage ingress { parser prs; control ingress; deparser deparse; next egress; }
    stage egress { parser prs; control egress; deparser deparse; }
}";

fn report(case: &str, options: &Options) -> Report {
    let program = text::parse(PROGRAM).unwrap_or_else(|error| panic!("{error}"));
    let program = Checked::new(program).unwrap_or_else(|errors| panic!("{errors:?}"));
    let case = Case::parse(case).unwrap_or_else(|problems| panic!("{problems:?}"));
    run(&program, &case, options)
}

fn check(case: &str) -> Report {
    let report = report(case, &Options::default());
    assert_eq!(report.text("case.stf"), "");
    assert!(report.passes());
    report
}

fn text(case: &str) -> String {
    report(case, &Options::default()).text("case.stf")
}

#[test]
fn entries_of_all_kinds() {
    check(
        "packet 1 0501
         add exact h.v:5 set(v:0x55)
         packet 1 0501
         expect 1 5501 $
         add exact h.v:5 x.valid:1 set(v:6)
         value_set set 5
         packet 1 0501 abcd
         expect 1 0601 abcd$
         setdefault exact set(v:7)
         packet 1 0701
         expect 1 0701
         add lpm h.v:0xa* set(v:1)
         add lpm h.v:0xa8/5 set(v:2)
         packet 2 a702
         packet 2 af02
         packet 2 b002
         expect 2 0102
         expect 2 0202
         expect 2 b002
         add any 10 h.v:0b1*****1* set(v:1)
         add any 20 h.v:0xf0&&&0xf0 port:2..3 set(v:2)
         add any 30 x.a:0x1234 set(v:3)
         packet 3 8203
         expect 3 0103
         packet 3 f203
         expect 3 0203
         packet 4 f203
         expect 4 0103
         value_set set 0xf0&&&0xff
         packet 3 f003 1234
         expect 3 0303 1234
         packet 3 f003 1235
         expect 3 0203 1235",
    );
}

#[test]
fn members_and_groups() {
    check(
        "member shared 1 set(v:0x11)
         member shared 2 set(v:0x22)
         group shared 1 2*3
         add members h.v:1 member(id:1)
         add members h.v:2 group(id:1)
         packet 0 0104
         packet 0 0204
         packet 0 0304
         expect 0 1104
         expect 0 2204
         expect 0 0304",
    );
}

#[test]
fn counters_registers_and_digests() {
    let report = check(
        "add exact h.v:1 set(v:1) = A
         packet 0 0101
         packet 0 0101 00
         expect 0 0101
         expect 0 0101 00 $
         check_counter exact($A) packets == 2
         check_counter exact($A) bytes >= 5
         packet 0 0205
         expect 0 0205
         check_counter cells(2) packets == 1
         counter_write cells 2 7 70
         packet 0 0205
         expect 0
         counter_read ingress.cells 2
         register_write words 1 0x1ff
         packet 0 0107
         expect 0 ff07
         check_register words 2 512
         register_read words 2
         register_reset words
         check_register words 2 0
         packet 0 0908
         expect 0
         expect_digest news 9 0x100
         remove $A
         packet 0 0101",
    );
    let notes = [(14, "counter ingress.cells[2]: 8 packets, 72 bytes"), (19, "register words[2]: 0x200")];
    assert_eq!(report.notes, notes.map(|(line, note)| (line, note.to_owned())));
    assert_eq!(report.packets, 7);
}

#[test]
fn replication() {
    check(
        "mc_mgrp_create 3
         mc_node_create 7 1 2
         mc_node_create 8 2
         mc_node_associate 3 0
         mc_node_associate 3 1
         packet 0 0309
         expect 1 0709
         expect 2 0709
         expect 2 0809
         mirroring_add 4 5
         packet 0 040a
         expect 5 040a $
         expect 0 040a $
         mirroring_add_mc 4 3
         mc_node_update 1 6
         packet 0 040a
         expect 0 040a
         expect 1 040a
         expect 2 040a
         expect 6 040a
         mirroring_delete 4
         packet 0 040a
         expect 0 040a
         no_packet",
    );
}

#[test]
fn time_passes_with_commands() {
    // The program shows the bits of the clock's nanoseconds from the 30th on: about seconds.
    check(
        "packet 0 000b
         packet 0 000b
         expect 0 000b
         expect 0 000b
         wait
         packet 0 000b
         expect 0 010b
         meter_array_set_rates rates 0.000001:1
         packet 0 0106
         packet 0 0106
         packet 0 0206
         wait
         packet 0 0106
         expect 0 0006
         expect 0 0206
         expect 0 0006
         expect 0 0006",
    );
}

#[test]
fn reports_say_what_differs() {
    let differs = text("add exact h.v:1 set(v:1)\npacket 0 0101\nexpect 0 01*2");
    let expected = "case.stf:3: port 0, packet 0 (sent in line 2) differs in byte 1
  expected 01*2
  found    0101
              ^
";
    assert_eq!(differs, expected);
    let commands = text(
        "add exact h.v:256 drop()
         add exact h.v:1 drop()
         add exact h.v:1 drop()
         add any h.v:1 set(v:1)
         add lpm h.v:1 drop()
         add lpm h.w:1 set(v:1)
         add lpm h.v:1 set(w:1)
         add lpm h.v:1 set()
         add members h.v:1 set(v:1)
         check_counter cells(0) packets > 0
         check_counter cells($B)
         register_read words 4
         mc_node_associate 1 0
         expect_digest news 1 2",
    );
    let expected = [
        "1: key h.v: 256 does not fit in 8 bits",
        "3: an entry with the same conditions and priority exists",
        "4: an entry of table ingress.any needs a priority",
        "5: unknown action drop (known: ingress.set)",
        "6: unknown key h.w (known: hdr.h.v)",
        "7: action ingress.set has no parameter w (known: v)",
        "8: action ingress.set needs an argument for v",
        "9: expected member(id:n) or group(id:n), found set",
        "10: counter cells: expected packets > 0, found 0",
        "11: no entry was added as B",
        "12: words has 4 cells, found index 4",
        "13: node 0 does not exist (0 were created)",
        "14: digest news: expected, and none found",
    ];
    let lines: Vec<_> = commands.lines().map(|line| line.strip_prefix("case.stf:").unwrap_or(line)).collect();
    assert_eq!(lines, expected);
    let unexpected = "case.stf:1: port 0, packet 0: none expected, found 0000\n";
    assert_eq!(text("packet 0 0000"), unexpected);
    assert_eq!(text("expect 9 00"), "case.stf:1: port 9, packet 0: expected, and no packet found\n");
}

#[test]
fn traces_follow_the_packets_that_differ() {
    let options = Options { trace: true, ..Options::default() };
    let report = report("packet 0 0001\npacket 1 0000\nexpect 1 01", &options);
    let text = report.text("case.stf");
    assert!(
        text.contains("  trace of the packet in line 2:\n    stage ingress\n    parser state start\n"),
        "{text}"
    );
    assert!(!text.contains("trace of the packet in line 1:"), "{text}");
}
