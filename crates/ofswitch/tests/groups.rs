//! Groups: what may refer to what, and what is told of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::action::{Action, Output};
use openflow::message::{Body, Bucket, BucketProperty, GroupKind, GroupMod, GroupModCommand};
use openflow::multipart::{IdRequest, Multipart, Reply, Request};
use openflow::property::Padded16;
use openflow::{PortNo, Version, version};
use support::World;

/// A bucket that outputs to a port, and watches a group, or else the port.
fn bucket(id: u32, port: u32, watch_group: u32) -> Bucket {
    let watched = if watch_group == version::group::ANY { PortNo(port) } else { PortNo::ANY };
    Bucket {
        id,
        actions: vec![Action::Output(Output { port: PortNo(port), max_len: 0 })],
        properties: vec![
            BucketProperty::Weight(Padded16::new(0)),
            BucketProperty::WatchPort(watched),
            BucketProperty::WatchGroup(watch_group),
        ],
    }
}

fn group(command: GroupModCommand, kind: GroupKind, group: u32, buckets: Vec<Bucket>) -> Body {
    let command_bucket = openflow::message::bucket::ALL;
    Body::GroupMod(GroupMod { command, kind, group, buckets, command_bucket, ..Default::default() })
}

#[test]
fn groups_that_watch_each_other_in_a_circle_are_refused() {
    let mut world = World::new(Version::V1_3);
    let add = |id, watched| {
        group(GroupModCommand::Add, GroupKind::FastFailover, id, vec![bucket(0, 2, watched); 100])
    };
    world.send(add(1, 1));
    assert_eq!(world.errors(), ["OFPGMFC_LOOP"]);
    world.send(add(1, version::group::ANY));
    world.send(add(2, 1));
    assert_eq!(world.errors(), [""; 0]);
    world.send(group(GroupModCommand::Modify, GroupKind::FastFailover, 1, vec![bucket(0, 2, 2)]));
    assert_eq!(world.errors(), ["OFPGMFC_LOOP"]);
    // Long chains of many buckets take no longer than their groups are many.
    (2..20).for_each(|id| world.send(add(id + 1, id)));
    world.add("actions=group:20");
    assert_eq!(world.packet(1, &support::udp()).len(), 1);
    world.send(group(GroupModCommand::Modify, GroupKind::FastFailover, 1, vec![]));
    assert!(!world.packet(1, &support::udp())[0].starts_with("2: "));
}

/// What a controller is answered to a request for statistics.
fn statistics(world: &mut World, request: Request) -> Reply {
    world.send(Body::MultipartRequest(Multipart { more: false, content: request }));
    match world.messages().pop().unwrap().body {
        Body::MultipartReply(Multipart { content, .. }) => content,
        body => panic!("{body:?}"),
    }
}

#[test]
fn flows_and_groups_that_refer_to_a_group_or_meter_are_counted_once() {
    let mut world = World::new(Version::V1_3);
    let plain = || Bucket { properties: vec![], ..bucket(0, 2, version::group::ANY) };
    let to = |group: u32| Bucket { actions: vec![Action::Group(group)], ..plain() };
    world.send(group(GroupModCommand::Add, GroupKind::All, 1, vec![plain()]));
    world.send(group(GroupModCommand::Add, GroupKind::All, 2, vec![to(1), to(1)]));
    for meter in [1, 2] {
        let bands = vec![];
        let flags = openflow::message::MeterFlags::PKTPS;
        let command = openflow::message::MeterModCommand::Add;
        world.send(Body::MeterMod(openflow::message::MeterMod { command, flags, meter, bands }));
    }
    world.add("in_port=1,actions=group:1,clone(group:1)");
    world.add("in_port=2,actions=meter:1,group:2");
    world.add("in_port=3,actions=meter:1,output:2");
    let Reply::Group(groups) = statistics(&mut world, Request::Group(IdRequest(version::group::ALL))) else {
        panic!("no groups")
    };
    let references: Vec<_> = groups.iter().map(|stats| (stats.group, stats.references)).collect();
    assert_eq!(references, [(1, 2), (2, 1)]);
    let Reply::Meter(meters) = statistics(&mut world, Request::Meter(IdRequest(version::meter::ALL))) else {
        panic!("no meters")
    };
    let flows: Vec<_> = meters.iter().map(|stats| (stats.meter, stats.flows)).collect();
    assert_eq!(flows, [(1, 2), (2, 0)]);
    // All groups go with their flows, and so do all meters.
    let delete = |kind| group(GroupModCommand::Delete, kind, version::group::ALL, vec![]);
    world.send(delete(GroupKind::All));
    assert_eq!(world.switch.flow_count(), 1);
    world.send(Body::MeterMod(openflow::message::MeterMod {
        command: openflow::message::MeterModCommand::Delete,
        meter: version::meter::ALL,
        ..Default::default()
    }));
    assert_eq!((world.switch.flow_count(), world.errors()), (0, vec![]));
    assert!(world.switch.is_consistent());
}

#[test]
fn the_deletion_of_a_group_is_a_reason_since_version_1_1() {
    for (version, wanted) in [(Version::V1_0, 2), (Version::V1_1, 3), (Version::V1_3, 3), (Version::V1_4, 3)]
    {
        let mut world = World::new(Version::V1_3);
        let plain = Bucket { properties: vec![], ..bucket(0, 2, version::group::ANY) };
        world.send(group(GroupModCommand::Add, GroupKind::All, 1, vec![plain]));
        world.add("send_flow_rem,in_port=1,actions=group:1");
        let owner = world.connection;
        world.connection = support::connect(&mut world.switch, version);
        let other = std::mem::replace(&mut world.connection, owner);
        world.send(group(GroupModCommand::Delete, GroupKind::All, 1, vec![]));
        world.connection = other;
        let reasons: Vec<u8> = world
            .messages()
            .into_iter()
            .filter_map(|message| match message.body {
                Body::FlowRemoved(removed) => Some(removed.reason),
                _ => None,
            })
            .collect();
        assert_eq!(reasons, [wanted], "{version}");
    }
}

#[test]
fn inserted_buckets_follow_the_rules_of_the_group_that_is_there() {
    let mut world = World::new(Version::V1_5);
    let watching = |id, port| bucket(id, port, version::group::ANY);
    let plain = |id| Bucket { properties: vec![], ..watching(id, 2) };
    world.send(group(GroupModCommand::Add, GroupKind::Indirect, 1, vec![plain(0)]));
    world.send(group(GroupModCommand::Add, GroupKind::FastFailover, 2, vec![watching(0, 2)]));
    assert_eq!(world.errors(), [""; 0]);
    let insert = |id, buckets| {
        let command = GroupModCommand::InsertBucket;
        let command_bucket = openflow::message::bucket::LAST;
        let kind = GroupKind::All;
        Body::GroupMod(GroupMod { command, kind, group: id, buckets, command_bucket, ..Default::default() })
    };
    world.send(insert(1, vec![plain(1)]));
    assert_eq!(world.errors(), ["OFPGMFC_INVALID_GROUP"]);
    // As in Open vSwitch, a bucket that watches nothing may join those that do.
    world.send(insert(2, vec![plain(1)]));
    assert_eq!(world.errors(), [""; 0]);
}
