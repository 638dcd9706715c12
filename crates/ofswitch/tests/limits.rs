//! Limits of what controllers may cost: where they are, with which error, and how they are shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ofswitch::{Limits, PerWhat};
use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowModCommand, GroupModCommand,
    MeterModCommand,
};
use openflow::multipart::{FlowStatsRequest, Multipart, Request};
use openflow::{Message, PortNo, Version, text, version};
use support::{World, connect, udp};

/// Use of a limit.
fn used(world: &World, name: &str, per: PerWhat) -> u64 {
    let limits = world.switch.limits();
    let found: Vec<_> = limits.iter().filter(|limit| limit.name == name && limit.per == per).collect();
    assert_eq!(found.len(), 1, "{name} per {per:?}");
    found[0].used
}

fn group(world: &mut World, command: GroupModCommand, group: &str) -> Vec<&'static str> {
    let group = text::parse_group(group, command, world.version).unwrap();
    world.send(Body::GroupMod(group));
    let errors = world.errors();
    assert!(world.switch.is_consistent());
    errors
}

#[test]
fn buckets_of_all_groups_are_limited() {
    let mut world = World::with(Version::V1_5, Limits { all_buckets: 5, ..Limits::default() });
    let two = "bucket=actions=output:1,bucket=actions=output:2";
    for id in 1..=2 {
        assert_eq!(
            group(&mut world, GroupModCommand::Add, &format!("group_id={id},type=all,{two}")),
            [""; 0]
        );
    }
    let three = format!("group_id=3,type=all,{two}");
    assert_eq!(group(&mut world, GroupModCommand::Add, &three), ["OFPGMFC_OUT_OF_BUCKETS"]);
    assert_eq!(
        group(&mut world, GroupModCommand::Add, "group_id=3,type=all,bucket=actions=output:1"),
        [""; 0]
    );
    let more = "group_id=1,command_bucket_id=last,bucket=bucket_id:9,actions=output:3";
    assert_eq!(group(&mut world, GroupModCommand::InsertBucket, more), ["OFPGMFC_OUT_OF_BUCKETS"]);
    assert_eq!((used(&world, "buckets", PerWhat::Bridge), used(&world, "buckets", PerWhat::Group)), (5, 2));
    // A changed group gives its buckets back, and so does one that goes.
    assert_eq!(group(&mut world, GroupModCommand::Modify, &format!("group_id=1,type=all,{two}")), [""; 0]);
    assert_eq!(group(&mut world, GroupModCommand::Delete, "group_id=2"), [""; 0]);
    assert_eq!(group(&mut world, GroupModCommand::InsertBucket, more), [""; 0]);
    assert_eq!((used(&world, "buckets", PerWhat::Bridge), used(&world, "groups", PerWhat::Bridge)), (4, 2));
}

#[test]
fn bytes_of_flows_and_groups_are_limited() {
    let mut world = World::with(Version::V1_4, Limits { bytes: 2000, ..Limits::default() });
    let bytes = |world: &World| used(world, "flows and groups", PerWhat::Bridge);
    let long = |port: u32| format!("in_port={port},actions={}", ["output:2"; 50].join(","));
    world.add(&long(1));
    let one = bytes(&world);
    assert!((800..1000).contains(&one), "{one}");
    world.add(&long(2));
    world.flow_mod(FlowModCommand::Add, &long(3));
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    let buckets = format!("bucket=actions={}", ["output:2"; 30].join(","));
    let large = format!("group_id=1,type=all,{buckets}");
    assert_eq!(group(&mut world, GroupModCommand::Add, &large), ["OFPGMFC_OUT_OF_BUCKETS"]);
    assert_eq!((world.switch.flow_count(), bytes(&world)), (2, 2 * one));
    // What takes no more than before is possible, and small flows make room.
    world.add(&long(1));
    world.add("in_port=2,actions=output:1");
    assert_eq!(group(&mut world, GroupModCommand::Add, &large), [""; 0]);
    // Of many flows that a message changes, all are changed or none.
    world.add("in_port=3,actions=output:1");
    let before = bytes(&world);
    world.flow_mod(FlowModCommand::Modify, &format!("actions={}", ["output:3"; 50].join(",")));
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    assert!(bytes(&world) == before && world.switch.is_consistent());
    world.flow_mod(FlowModCommand::Delete, "");
    world.send(Body::GroupMod(
        text::parse_group("group_id=1", GroupModCommand::Delete, world.version).unwrap(),
    ));
    assert_eq!((world.errors(), bytes(&world)), (vec![], 0));
}

#[test]
fn bundles_of_all_connections_are_limited() {
    let limits = Limits { bundle_bytes: 1000, all_bundle_bytes: 1500, ..Limits::default() };
    let mut world = World::with(Version::V1_4, limits);
    let flags = BundleFlags::ATOMIC;
    let actions = ["output:2"; 20].join(",");
    let mut errors = vec![];
    for _ in 0..2 {
        world.connection = connect(&mut world.switch, Version::V1_4);
        let kind = BundleControlKind::OpenRequest;
        world.send(Body::BundleControl(BundleControl { bundle: 1, kind, flags, properties: vec![] }));
        for port in 0..3 {
            let flow = format!("in_port={port},actions={actions}");
            let flow = text::parse_flow(&flow, FlowModCommand::Add, world.version).unwrap();
            let message = Message::new(world.version, 77, Body::FlowMod(Box::new(flow))).encode().unwrap();
            assert!((380..400).contains(&message.len()), "{}", message.len());
            let add = BundleAdd { bundle: 1, flags, message, trailing: vec![] };
            let bytes = Message::new(world.version, 77, Body::BundleAdd(add)).encode().unwrap();
            world.switch.receive(world.connection, &bytes, 0);
            errors.push(world.errors());
        }
    }
    // The third message of the first connection is beyond its own limit; the second of the second beyond that of all.
    let full = vec!["OFPBFC_MSG_TOO_MANY"];
    assert_eq!(errors, [vec![], vec![], full.clone(), vec![], full.clone(), full]);
    let (one, all) = (used(&world, "bundles", PerWhat::Bridge), world.switch.limits());
    assert!((1100..1300).contains(&one), "{one}");
    let of_one = all
        .iter()
        .find(|limit| limit.is_bytes && limit.per == PerWhat::Connection && limit.name == "bundles");
    assert!((700..1000).contains(&of_one.unwrap().used));
    // A connection's end gives its share back.
    world.switch.disconnect(world.connection);
    assert!(used(&world, "bundles", PerWhat::Bridge) < 1000);
}

#[test]
fn statistics_are_refused_while_too_many_replies_wait() {
    for (spoken, error) in
        [(Version::V1_0, "OFPBRC_EPERM"), (Version::V1_3, "OFPBRC_MULTIPART_BUFFER_OVERFLOW")]
    {
        let mut world = World::with(spoken, Limits { replies: 4000, ..Limits::default() });
        (0..100).for_each(|vlan| world.add(&format!("dl_vlan={vlan},actions=output:1")));
        let dump = |world: &mut World| {
            let all = text::parse_flow("", FlowModCommand::Delete, spoken).unwrap();
            let request = FlowStatsRequest {
                table_id: 0xff,
                out_port: PortNo::ANY,
                out_group: version::group::ANY,
                matching: all.matching,
                ..FlowStatsRequest::default()
            };
            world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Flow(request) }));
        };
        let slow = world.connection;
        dump(&mut world);
        assert!(used(&world, "messages waiting", PerWhat::Bridge) > 4000, "{spoken}");
        world.connection = connect(&mut world.switch, spoken);
        dump(&mut world);
        assert_eq!(world.errors(), [error]);
        // What needs no memory is answered.
        world.send(Body::EchoRequest(vec![]));
        assert!(matches!(world.messages()[..], [Message { body: Body::EchoReply(_), .. }]));
        while world.switch.next_message(slow).is_some() {}
        dump(&mut world);
        assert!(world.errors().is_empty() && used(&world, "messages waiting", PerWhat::Bridge) == 0);
    }
}

#[test]
fn all_limits_show_their_use() {
    let mut world = World::new(Version::V1_3);
    let empty = world.switch.limits();
    assert!(empty.iter().all(|limit| limit.used <= limit.most && limit.most > 0), "{empty:?}");
    world.add("table=3,actions=output:1");
    world.add("table=3,conj_id=7,ip,actions=output:2");
    world.add("table=3,priority=9,tcp,actions=conjunction(7,1/2)");
    world.add("table=3,priority=9,ip,nw_dst=10.0.0.1,actions=conjunction(7,2/2)");
    world.add("table=4,actions=controller(max_len=20)");
    world.add("actions=goto_table:4");
    let meter = "meter=1,pktps,bands=type=drop,rate=1,type=drop,rate=2";
    world.send(Body::MeterMod(text::parse_meter(meter, MeterModCommand::Add).unwrap()));
    assert_eq!(world.errors(), [""; 0]);
    world.packet(1, &udp());
    let at = |name, per| used(&world, name, per);
    use PerWhat::{Bridge, Connection, Meter, Table};
    assert_eq!((at("flows", Bridge), at("flows", Table), at("tables", Bridge)), (6, 4, 3));
    assert_eq!(at("combinations of conjunctions", Table), 1);
    assert_eq!((at("meters", Bridge), at("bands", Bridge), at("bands", Meter)), (1, 2, 2));
    assert_eq!((at("ports", Bridge), at("connections", Bridge), at("buffered packets", Bridge)), (4, 1, 1));
    let waiting = at("messages waiting", Connection);
    assert!(waiting > 0 && waiting == at("messages waiting", Bridge));
    world.messages();
    assert_eq!(used(&world, "messages waiting", Connection), 0);
}
