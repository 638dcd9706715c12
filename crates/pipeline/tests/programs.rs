//! Two worked programs: a router, and five tables in the manner of a flow switch.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use pipeline::ir::{GroupTableId, TableId};
use pipeline::state::{Bucket, Color, Group, GroupKind, Rates, State, Update};
use pipeline::text;
use support::{World, entry, outputs, run, state};

const ROUTER: &str = include_str!("programs/router.txt");
const FIVE_TABLES: &str = include_str!("programs/five_tables.txt");

fn insert(state: &mut State, table: u32, entries: &[&str]) {
    let updates =
        entries.iter().map(|text| Update::Insert(TableId(table), entry(state, table, text))).collect();
    state.apply(updates, 0).unwrap();
}

/// A frame to the router's address: IPv4, TTL 64, UDP to port 53, with a correct header checksum.
fn frame(dst: [u8; 6], ip: [u8; 4], dport: u16) -> Vec<u8> {
    let mut bytes = [&dst[..], &[2, 0, 0, 0, 0, 9], &[8, 0]].concat();
    let mut header = [&[0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1][..], &ip].concat();
    let sum = packet::checksum::Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend([4, 0]);
    bytes.extend(dport.to_be_bytes());
    bytes.extend([0, 12, 0, 0, 0xca, 0xfe, 0xf0, 0x0d]);
    bytes
}

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn router() -> State {
    let mut state = state(ROUTER);
    insert(
        &mut state,
        0,
        &[
            "entry priority 10 { dst4: 32w0x0a010000 &&& 32w0xffff0000; protocol: 8w17 &&& 8w255; dport: 16w53..16w53; } -> deny(8w3);",
            "entry priority 20 { port: 16w5; } -> permit();",
        ],
    );
    insert(&mut state, 1, &["entry { dst: 48w0x020000000001; } -> permit();"]);
    insert(
        &mut state,
        2,
        &[
            "entry { dst: 32w0x0a000000/8; } -> route(16w1);",
            "entry { dst: 32w0x0a020000/16; } -> route(16w2);",
        ],
    );
    insert(
        &mut state,
        4,
        &[
            "entry { hop: 16w1; } -> hop(48w0x0200000000aa, 48w0x020000000001, 12w0, 16w7);",
            "entry { hop: 16w2; } -> hop(48w0x0200000000bb, 48w0x020000000001, 12w100, 16w8);",
        ],
    );
    insert(&mut state, 5, &["entry { vid: 12w0; dst: 48w0x0200000000cc; } -> deliver(16w4) idle 300;"]);
    state
}

#[test]
fn a_routed_packet_is_rewritten() {
    let state = router();
    let received = frame(OWN, [10, 9, 9, 9], 80);
    let out = outputs(&state, &received, 1);
    let mut expected = received.clone();
    expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 1]);
    expected[22] = 63;
    // The checksum covers the new header: computed anew, it is the one that was updated.
    expected[24..26].copy_from_slice(&[0, 0]);
    let sum = packet::checksum::Sum::of(&expected[14..34]).finish();
    expected[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(out, [(7, expected)]);
}

#[test]
fn the_longest_prefix_wins_and_a_tag_is_pushed() {
    let state = router();
    let out = outputs(&state, &frame(OWN, [10, 2, 0, 1], 80), 1);
    assert_eq!(out.len(), 1);
    let (port, bytes) = &out[0];
    assert_eq!(*port, 8);
    assert_eq!(bytes[..20], [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 100, 8, 0, 0x45, 0]);
    assert_eq!(bytes.len(), frame(OWN, [10, 2, 0, 1], 80).len() + 4);
}

#[test]
fn the_access_list_drops_and_counts_unless_a_higher_priority_permits() {
    let state = router();
    let received = frame(OWN, [10, 1, 0, 1], 53);
    assert_eq!(run(&state, &received, 1), ["drop: acl"]);
    let counter = state.arrays().counter(pipeline::ir::CounterId(0), 3).unwrap();
    assert_eq!(counter.get(), (1, received.len() as u64));
    assert_eq!(run(&state, &frame(OWN, [10, 1, 0, 1], 54), 1), ["output to port 7, 46 bytes"]);
    assert_eq!(run(&state, &received, 5), ["output to port 7, 46 bytes"]);
}

#[test]
fn what_cannot_be_routed_has_a_reason() {
    let state = router();
    let mut expired = frame(OWN, [10, 9, 9, 9], 80);
    expired[22] = 1;
    assert_eq!(run(&state, &expired, 1), ["drop: bad_header"], "the checksum is for another TTL");
    expired[24..26].copy_from_slice(&[0, 0]);
    let sum = packet::checksum::Sum::of(&expired[14..34]).finish();
    expired[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(run(&state, &expired, 1), ["drop: ttl_exceeded"]);
    assert_eq!(run(&state, &frame(OWN, [11, 0, 0, 1], 80), 1), ["drop: no_route"]);
    let mut version = frame(OWN, [10, 9, 9, 9], 80);
    version[14] = 0x55;
    assert_eq!(run(&state, &version, 1), ["drop: bad_header"]);
    version[14] = 0x44;
    assert_eq!(run(&state, &version, 1), ["drop: bad_header"]);
}

#[test]
fn other_frames_are_switched() {
    let state = router();
    assert_eq!(
        run(&state, &frame([2, 0, 0, 0, 0, 0xcc], [10, 9, 9, 9], 80), 1),
        ["output to port 4, 46 bytes"]
    );
    assert_eq!(run(&state, &frame([0xff; 6], [10, 9, 9, 9], 80), 1), ["output to flooded ports, 46 bytes"]);
    // Two tags, no third: the frame is short, but the headers that it has suffice.
    let tagged =
        [&[2, 0, 0, 0, 0, 0xcc, 2, 0, 0, 0, 0, 9, 0x88, 0xa8, 0, 0, 0x81, 0, 0, 1, 0x12, 0x34][..]].concat();
    assert_eq!(outputs(&state, &tagged, 1), [(4, tagged)]);
}

fn five_tables() -> State {
    let mut state = state(FIVE_TABLES);
    for action in [
        // Shapes: what differs between flows is a parameter.
        "action classify(metadata: bit<64>, mask: bit<64>) {
            metadata = ((metadata & ~($mask)) | ($metadata & $mask)); goto table1;
        }",
        "action keep_push_vid(vid: bit<12>) { kept_push = true; kept_set_vid = true; kept_vid = $vid; goto table2; }",
        "action tagged() { goto table2; }",
        "action keep_output(port: bit<32>) { kept_output = true; kept_port = $port; goto table3; }",
        "action keep_group(id: bit<32>) { kept_group = true; kept_group_id = $id; goto table3; }",
        "action metered(id: bit<8>) {
            meter color = rates[$id];
            if (color == 2w2) { drop meter; }
            goto table4;
        }",
        "action clear() { kept_push = false; kept_group = false; kept_output = false; }",
        "action end() { }",
        "action output2(a: bit<32>, vid: bit<12>, b: bit<32>) {
            send current port $a; call push_vlan; vlan[0].vid = $vid; send current port $b;
        }",
    ] {
        let action = text::parse_action(state.program(), action).unwrap();
        state.define(action).unwrap();
    }
    insert(
        &mut state,
        0,
        &[
            "entry priority 2 { in_port: 32w1 &&& 32w0xffffffff; } -> classify(64w0x10, 64w0xff);",
            "entry priority 1 { eth_type: 16w0x0806 &&& 16w0xffff; } -> output2(32w3, 12w7, 32w4);",
        ],
    );
    insert(
        &mut state,
        1,
        &[
            "entry priority 1 { vlan: 13w0x1000 &&& 13w0x1000; } -> tagged();",
            "entry { } -> keep_push_vid(12w5);",
        ],
    );
    insert(
        &mut state,
        2,
        &[
            "entry priority 1 { eth_dst: 48w0x010000000000 &&& 48w0x010000000000; } -> keep_group(32w1);",
            "entry { metadata: 64w0x10 &&& 64w0xf0; } -> keep_output(32w9);",
        ],
    );
    insert(
        &mut state,
        3,
        &[
            "entry priority 1 { ipv4_dst: 32w0x0a000001 &&& 32w0xffffffff; } -> metered(8w1);",
            "entry { } -> end();",
        ],
    );
    insert(&mut state, 4, &["entry { metadata: 64w0xff &&& 64w0xff; } -> clear();"]);
    state
}

fn ip_frame(multicast: u8, last: u8) -> Vec<u8> {
    frame([multicast, 0, 0, 0, 0, 0xcc], [10, 0, 0, last], 1)
}

#[test]
fn actions_are_kept_for_the_end() {
    let state = five_tables();
    let received = ip_frame(2, 2);
    let expected = [&received[..12], &[0x81, 0, 0, 5, 8, 0], &received[14..]].concat();
    assert_eq!(outputs(&state, &received, 1), [(9, expected)]);
    assert_eq!(run(&state, &received, 2), ["drop: table_miss"]);
}

#[test]
fn actions_at_once_see_the_packet_as_it_is_then() {
    let state = five_tables();
    let mut arp = ip_frame(2, 2);
    arp[12..14].copy_from_slice(&[8, 6]);
    let tagged = [&arp[..12], &[0x81, 0, 0, 7, 8, 6], &arp[14..]].concat();
    assert_eq!(outputs(&state, &arp, 8), [(3, arp), (4, tagged)]);
}

#[test]
fn buckets_of_a_group_change_copies() {
    let mut state = five_tables();
    for action in [
        "action bucket_vid(vid: bit<12>, port: bit<32>) { vlan[0].vid = $vid; send current port $port; }",
        "action bucket_pop(port: bit<32>) { call pop_vlan; send current port $port; }",
    ] {
        let action = text::parse_action(state.program(), action).unwrap();
        state.define(action).unwrap();
    }
    let bucket = |state: &State, call: &str| {
        let entry = entry(state, 1, &format!("entry {{ }} -> {call};"));
        let pipeline::ir::EntryResult::Action(call) = entry.result else { unreachable!() };
        Bucket { weight: 1, watch_port: None, watch_group: None, call }
    };
    let buckets = vec![
        bucket(&state, "bucket_vid(12w8, 32w20)"),
        bucket(&state, "bucket_pop(32w21)"),
        bucket(&state, "end()"),
    ];
    let set = |kind, buckets| vec![Update::Group(GroupTableId(0), 1, Some(Group { kind, buckets }))];
    state.apply(set(GroupKind::All, buckets.clone()), 0).unwrap();
    let received = ip_frame(3, 2);
    let tagged = [&received[..12], &[0x81, 0, 0, 8, 8, 0], &received[14..]].concat();
    assert_eq!(outputs(&state, &received, 1), [(20, tagged.clone()), (21, received.clone())]);
    let stats = |state: &State| {
        let group = state.group(GroupTableId(0), 1).unwrap();
        (group.stats.get().0, group.bucket_stats.iter().map(|stats| stats.get().0).collect::<Vec<_>>())
    };
    assert_eq!(stats(&state), (1, vec![1, 1, 1]));

    state.apply(set(GroupKind::Indirect, buckets.clone()), 0).unwrap();
    assert_eq!(outputs(&state, &received, 1), [(20, tagged.clone())]);

    let mut watched = buckets.clone();
    watched[0].watch_port = Some(99);
    state.apply(set(GroupKind::Failover, watched.clone()), 0).unwrap();
    assert_eq!(outputs(&state, &received, 1), [(21, received.clone())]);
    watched[1].watch_group = Some(1);
    watched[1].watch_port = Some(99);
    state.apply(set(GroupKind::Failover, watched[..2].to_vec()), 0).unwrap();
    assert_eq!(run(&state, &received, 1), ["drop: no destination"]);

    let mut weighted = buckets[..2].to_vec();
    weighted[0].weight = 3;
    state.apply(set(GroupKind::Select, weighted), 0).unwrap();
    let mut first = 0;
    for hash in 0..1000 {
        let mut world = World::default();
        let packet =
            pipeline::interp::Received { flow_hash: hash, ..pipeline::interp::Received::whole(&received, 1) };
        let outcome = pipeline::interp::run(&state, &mut world, &packet, &Default::default(), false);
        first += usize::from(outcome.effects[0].text(&state).starts_with("output to port 20"));
    }
    assert!((700..800).contains(&first), "{first} of 1000 went to the bucket of weight 3 of 4");
}

#[test]
fn meters_drop_and_misses_reach_the_controller() {
    let mut state = five_tables();
    let rates = Rates::Single { rate: 1, burst: 2, excess: 0 };
    state.apply(vec![Update::Meter(pipeline::ir::MeterId(0), 1, Some(rates))], 0).unwrap();
    let received = ip_frame(2, 1);
    let controller = ["to the controller, reason 0, 46 bytes", "output to port 9, 50 bytes"];
    assert_eq!(run(&state, &received, 1), controller);
    assert_eq!(run(&state, &received, 1), controller);
    assert_eq!(run(&state, &received, 1), ["drop: meter"]);
    let cell = state.arrays().meter(pipeline::ir::MeterId(0), 1).unwrap();
    assert_eq!(cell.color(1, Color::Green, 1_000_000_000), Color::Green);
}

#[test]
fn both_texts_round_trip() {
    for text in [ROUTER, FIVE_TABLES] {
        let program = text::parse(text).unwrap();
        let printed = text::print(&program);
        assert_eq!(text::parse(&printed).unwrap(), program);
        assert_eq!(text::print(&text::parse(&printed).unwrap()), printed);
    }
}

#[test]
fn a_trace_tells_the_packets_way() {
    let state = router();
    let received = frame(OWN, [10, 9, 9, 9], 80);
    let packet = pipeline::interp::Received::whole(&received, 1);
    let outcome = pipeline::interp::run(&state, &mut World::default(), &packet, &Default::default(), true);
    let lines: Vec<_> = outcome.trace.iter().map(|event| event.text(&state)).collect();
    let expected = [
        "stage ingress",
        "parser state start",
        "extract eth: 14 bytes at 0",
        "eth is valid",
        "parser state ipv4",
        "extract l3.v4: 20 bytes at 14",
        "l3.v4 is valid",
        "protocol = 0x11",
        "parser state ports",
        "extract l4: 4 bytes at 34",
        "l4 is valid",
        "block control",
        "table acl: port=16w1 src4=32w0xa000001 dst4=32w0xa090909 protocol=8w17 dport=16w80, miss",
        "action permit()",
        "table own_addresses: dst=48w0x20000000001, hit entry 3",
        "action permit()",
        "block routed",
        "sum = 0x0",
    ];
    assert_eq!(lines[..expected.len()], expected);
    assert_eq!(lines.last().unwrap(), "output to port 7, 46 bytes");
    assert!(lines.contains(&"next_hop = 0x1".to_owned()));
}
