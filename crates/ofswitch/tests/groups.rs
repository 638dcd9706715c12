//! Groups: what may refer to what, and what is told of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::action::{Action, Output};
use openflow::message::{Body, Bucket, BucketProperty, GroupKind, GroupMod, GroupModCommand};
use openflow::property::Padded16;
use openflow::{PortNo, Version, version};
use support::World;

/// A bucket that outputs to a port and watches a group, if it is to.
fn bucket(id: u32, port: u32, watch_group: u32) -> Bucket {
    Bucket {
        id,
        actions: vec![Action::Output(Output { port: PortNo(port), max_len: 0 })],
        properties: vec![
            BucketProperty::Weight(Padded16::new(0)),
            BucketProperty::WatchPort(PortNo::ANY),
            BucketProperty::WatchGroup(watch_group),
        ],
    }
}

fn group(command: GroupModCommand, kind: GroupKind, group: u32, buckets: Vec<Bucket>) -> Body {
    Body::GroupMod(GroupMod { command, kind, group, buckets, ..Default::default() })
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
    assert_eq!(world.packet(1, &support::udp()), [""; 0]);
}
