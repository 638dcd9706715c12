//! Programs that controllers send, packets and messages for controllers, and what outlives a program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::atomic::Ordering::Relaxed;

use p4::preprocess::Options;
use p4runtime_proto::v1::update::Type::{Insert, Modify};
use p4runtime_proto::v1::{
    DigestEntry, DigestListAck, ForwardingPipelineConfig, P4Data, PacketMetadata, PacketOut, digest_entry,
    entity::Entity as Kind, p4_data::Data,
};
use p4switch::{Code, Program, Switch};
use pipeline::ir::{Constant, DigestId};
use support::{SOURCE, entries, lines, program, put, switch, update, write};

fn config(bytes: impl Into<Vec<u8>>) -> ForwardingPipelineConfig {
    ForwardingPipelineConfig { p4_device_config: bytes.into(), ..Default::default() }
}

fn refusal(config: &ForwardingPipelineConfig) -> String {
    let failure = Program::from_config(config).expect_err("it is refused");
    assert_eq!(failure.code, Code::InvalidArgument);
    failure.message
}

#[test]
fn a_device_config_is_text_or_a_bundle_wrapped_or_not() {
    let own = program(SOURCE);
    let bundle = own.bundle().to_vec();
    let mut wrapped = vec![0x08, 1, 0x1a];
    prost::encoding::encode_varint(bundle.len() as u64, &mut wrapped);
    wrapped.extend(&bundle);
    for bytes in [SOURCE.as_bytes().to_vec(), bundle.clone(), wrapped] {
        let config = ForwardingPipelineConfig { p4info: Some((*own.info).clone()), ..config(bytes) };
        let program = Program::from_config(&config).unwrap();
        assert_eq!((&program.info, &program.checked.tables), (&own.info, &own.checked.tables));
    }
    assert!(bundle.starts_with(b"{\n"));
    assert!(!bundle.windows(8).any(|window| window == b"#include"));
}

#[test]
fn what_cannot_run_is_refused_with_the_reason() {
    assert!(refusal(&config("")).contains("send P4 source text or a bundle"));
    assert!(refusal(&config("{\"header_types\": []}")).contains("send the P4Info"));
    assert!(refusal(&config("{\"headers\": []}")).contains("mswitch p4 compile"));
    assert!(refusal(&config(&b"\xff\xfe"[..])).contains("is no text"));
    assert!(refusal(&config(r#"{"format": "mswitch P4 bundle", "version": 9}"#)).contains("another version"));
    assert!(refusal(&config(r#"{"format": "mswitch P4 bundle", "version": 1}"#)).contains("damaged"));
    let wrong = refusal(&config(SOURCE.replace("standard.egress_spec = port", "standard.egress_spec = prt")));
    assert!(wrong.contains("program.p4:") && wrong.contains("prt"), "{wrong}");
    let many = refusal(&config("nonsense; ".repeat(10_000)));
    assert!(many.len() < 5000, "{} bytes", many.len());
}

#[test]
fn the_p4info_must_be_the_programs_own() {
    let own = program(SOURCE);
    let with = |change: fn(&mut p4runtime_proto::P4Info)| {
        let mut info = (*own.info).clone();
        change(&mut info);
        ForwardingPipelineConfig { p4info: Some(info), ..config(SOURCE) }
    };
    let same = with(|info| {
        info.pkg_info = None;
        info.tables.reverse();
        info.tables[0].match_fields.reverse();
        info.actions[0].preamble.as_mut().unwrap().doc = Some(Default::default());
    });
    assert!(Program::from_config(&same).is_ok());
    let wrong = with(|info| info.tables[0].match_fields[0].bitwidth = 9);
    assert!(refusal(&wrong).contains("table ingress.exact_t differs"));
    let wrong = with(|info| drop(info.counters.pop()));
    assert!(refusal(&wrong).contains("counter ingress.never_seen with id"), "{}", refusal(&wrong));
    let wrong = with(|info| info.actions[0].preamble.as_mut().unwrap().id += 1);
    assert!(refusal(&wrong).contains("is not in the program"));
}

#[test]
fn packets_carry_their_metadata_in_front() {
    let switch = switch();
    let packet = switch.packet_in(&[0x01, 0xbf, 7, 8]);
    let values: Vec<_> = packet.metadata.iter().map(|item| (item.metadata_id, &item.value[..])).collect();
    assert_eq!(values, [(1, &[3][..]), (2, &[0]), (3, &[0x3f])]);
    assert_eq!(packet.payload, [7, 8]);
    let short = switch.packet_in(&[1]);
    assert_eq!((short.metadata.len(), short.payload), (0, vec![1]));

    let out = |metadata: &[(u32, &[u8])]| {
        let item = |(metadata_id, value): &(u32, &[u8])| PacketMetadata {
            metadata_id: *metadata_id,
            value: value.to_vec(),
        };
        let packet = PacketOut { payload: vec![9], metadata: metadata.iter().map(item).collect() };
        switch.packet_out(&packet).map_err(|failure| failure.code)
    };
    assert_eq!(out(&[(1, &[1, 0xfe])]), Ok(vec![0xff, 0, 9]));
    assert_eq!(out(&[(2, &[5]), (1, &[0, 0, 3])]), Ok(vec![1, 0x85, 9]));
    assert_eq!(out(&[]), Err(Code::InvalidArgument));
    assert_eq!(out(&[(1, &[1]), (1, &[1])]), Err(Code::InvalidArgument));
    assert_eq!(out(&[(1, &[1]), (4, &[1])]), Err(Code::InvalidArgument));
    assert_eq!(out(&[(1, &[2, 0])]), Err(Code::OutOfRange));
}

#[test]
fn digests_are_sent_once_enabled() {
    let mut switch = switch();
    let digest_id = switch.program().info.digests[0].preamble.as_ref().unwrap().id;
    let values = |mac| [Constant::bit(48, mac), Constant::bit(9, 3)];
    switch.digest(DigestId(0), &values(1), 0);
    assert_eq!(switch.due_digests(0), (vec![], None));
    let config = digest_entry::Config { max_timeout_ns: 100, max_list_size: 10, ack_timeout_ns: 1000 };
    let entry = DigestEntry { digest_id, config: Some(config) };
    write(&mut switch, update(Insert, Kind::DigestEntry(entry))).unwrap();
    switch.digest(DigestId(0), &values(1), 5);
    switch.digest(DigestId(0), &values(1), 6);
    assert_eq!(switch.due_digests(50), (vec![], Some(105)));
    let (lists, next) = switch.due_digests(105);
    let Some(Data::Struct(data)) = &lists[0].data[0].data else { panic!("a struct: {lists:?}") };
    let bits = |byte: u8| P4Data { data: Some(Data::Bitstring(vec![byte])) };
    assert_eq!((lists.len(), lists[0].data.len(), next), (1, 1, None));
    assert_eq!((lists[0].digest_id, &data.members[..]), (digest_id, &[bits(1), bits(3)][..]));
    switch.acknowledge(&DigestListAck { digest_id, list_id: lists[0].list_id }).unwrap();
    let unknown = switch.acknowledge(&DigestListAck { digest_id: 5, list_id: 1 }).unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
}

#[test]
fn idle_entries_are_told_once_until_hit_again() {
    let second = 1_000_000_000;
    let mut switch = switch();
    put(&mut switch, Insert, "exact_t a=1 wide=1 idle=5s metadata=0x07 => count()");
    put(&mut switch, Insert, "exact_t a=2 wide=1 => count()");
    assert_eq!(switch.idle(5 * second - 1), None);
    let told = switch.idle(5 * second).unwrap();
    assert_eq!((told.timestamp, told.table_entry.len()), (5_000_000_000, 1));
    let entry = &told.table_entry[0];
    assert_eq!((entry.idle_timeout_ns, &entry.metadata[..], &entry.action), (5_000_000_000, &[7][..], &None));
    assert_eq!(switch.idle(100 * second), None);
    let installed = switch.state().table(pipeline::ir::TableId(0)).unwrap().entries().next().unwrap().clone();
    installed.stats.last_hit.store(101 * second, Relaxed);
    assert_eq!(switch.idle(105 * second), None);
    assert!(switch.idle(106 * second).is_some());
    put(&mut switch, Modify, "exact_t a=1 wide=1 => count()");
    assert_eq!(switch.idle(1000 * second), None);
}

#[test]
fn what_keeps_its_shape_keeps_its_state() {
    let mut before = switch();
    for line in [
        "exact_t a=1 wide=1 cookie=0x7 metadata=0x01 packets=3 bytes=4 idle=5s => forward(port=3)",
        "exact_t a=2 wide=1 => set(mac=1, delta=2)",
        "lpm_t b=10.0.0.0/8 => drop()",
        "ternary_t kind=1 prio=7 cir=1 cburst=2 pir=3 pburst=4 => drop()",
        "group_t a=1 => forward(port=1) weight=2 | drop() weight=1",
        "member hops 3 => forward(port=1)",
        "member_t a=1 => member 3",
        "multicast 1 ports=1,2/3",
        "clone 2 ports=9",
        "initial_t a=8 => forward(port=1)",
    ] {
        put(&mut before, Insert, line);
    }
    for line in [
        "counter seen[3] packets=4 bytes=500",
        "register answer[2] value=7",
        "keyless_t default => forward(port=2)",
    ] {
        put(&mut before, Modify, line);
    }
    let initial = support::of_text(&before, p4runtime_proto::v1::update::Type::Delete, "initial_t a=7");
    write(&mut before, initial).unwrap();

    let mut same = switch();
    assert_eq!(same.take_over(&before, 0), [""; 0]);
    assert_eq!(support::all(&same), support::all(&before));

    let other = SOURCE
        .replace("hdr.data.b: lpm;", "hdr.data.c: lpm;")
        .replace("action set(bit<48> mac, int<8> delta)", "action set(bit<48> mac, int<8> step)")
        .replace("(bit<8>)delta", "(bit<8>)step")
        .replace("register<bit<20>>(4) answer", "register<bit<21>>(4) answer")
        .replace("action drop() {", "@id(0x01000007) action drop() {")
        .replace("@name(\"kind\")", "@name(\"kind\") @id(44)");
    let mut changed = Switch::new(program(&other));
    let lost = changed.take_over(&before, 0);
    let expected = [
        "register ingress.answer: its cells have another type now",
        "table ingress.exact_t: the new program has no such action with these parameters",
        "table ingress.lpm_t: its keys are other ones now: 1 entry is gone",
    ];
    assert_eq!(lost, expected);
    assert_eq!(entries(&changed, "exact_t").len(), 1);
    assert_eq!(entries(&changed, "ternary_t"), ["ternary_t kind=1 prio=7 => drop()"]);
    assert_eq!(entries(&changed, "initial_t"), ["initial_t a=8 => forward(port=1)"]);
    assert_eq!(entries(&changed, "group_t"), entries(&before, "group_t"));
    let counters = lines(&changed, Kind::CounterEntry(Default::default()));
    assert!(counters.contains(&"counter seen[3] packets=4 bytes=500".to_owned()));
}

#[test]
fn a_program_without_controller_headers_sends_plain_packets() {
    let plain = SOURCE
        .replace("@controller_header(\"packet_in\")", "")
        .replace("@controller_header(\"packet_out\")", "");
    let program = Program::text("plain.p4", &plain, &Options::default()).unwrap();
    let switch = Switch::new(program.into());
    assert_eq!(switch.packet_in(&[1, 2]).payload, [1, 2]);
    let mut packet = PacketOut { payload: vec![1], metadata: vec![] };
    assert_eq!(switch.packet_out(&packet), Ok(vec![1]));
    packet.metadata.push(PacketMetadata { metadata_id: 1, value: vec![1] });
    assert_eq!(switch.packet_out(&packet).unwrap_err().code, Code::InvalidArgument);
}
