//! What Open vSwitch's own tests expect of a switch, where the standard leaves it open.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use ofswitch::{Limits, Settings, TableLimit};
use openflow::message::{
    Body, BundleControl, BundleControlKind, BundleFlags, FlowModCommand, PortConfig, PortMod, PortState,
};
use openflow::multipart::{FlowStatsRequest, Multipart, QueueRequest, Reply, Request};
use openflow::{Message, PortNo, Version, text, version};

use support::World;

const SECOND: u64 = 1_000_000_000;

fn settings(limit: TableLimit) -> Settings {
    Settings { table_limits: BTreeMap::from([(0, limit)]), ..Settings::default() }
}

/// The flows as `ovs-ofctl dump-flows` shows them.
fn flows(world: &mut World) -> Vec<String> {
    let request = FlowStatsRequest {
        table_id: version::table::ALL,
        out_port: PortNo::ANY,
        out_group: version::group::ANY,
        ..FlowStatsRequest::default()
    };
    let content = Request::Flow(request);
    world.send(Body::MultipartRequest(Multipart { more: false, content }));
    let mut found = Vec::new();
    for message in world.messages() {
        let Body::MultipartReply(Multipart { content: Reply::Flow(entries), .. }) = message.body else {
            panic!("{message:?}")
        };
        found.extend(entries.iter().map(|flow| text::flow_entry_text(flow, world.version).unwrap()));
    }
    found
}

#[test]
fn a_full_table_evicts_from_the_largest_group_and_shrinks() {
    let mut world = World::new(Version::V1_0);
    let limit = TableLimit { flows: Some(4), evicts: true, groups: vec!["NXM_OF_IN_PORT[]".into()] };
    world.switch.configure(settings(limit.clone()), 0);
    for (timeout, port, src) in [(10, 2, 1), (20, 1, 2), (30, 1, 3), (40, 1, 4)] {
        world
            .add(&format!("idle_timeout={timeout},in_port={port},dl_src=00:00:00:00:00:0{src},actions=drop"));
    }
    world.add("in_port=2,dl_src=00:00:00:00:00:05,actions=drop");
    assert_eq!(world.errors(), [""; 0]);
    // The last digit of each flow's source address.
    let sources = |world: &mut World| {
        let digit = |text: &String| text.split("dl_src=00:00:00:00:00:0").nth(1)?.chars().next();
        let mut digits: Vec<char> = flows(world).iter().filter_map(digit).collect();
        digits.sort_unstable();
        digits
    };
    let found = sources(&mut world);
    assert_eq!(found, ['1', '3', '4', '5'], "the one that ends first of the group with three");
    // Without groups, what ends first goes; flows without a timeout stay.
    world.switch.configure(settings(TableLimit { flows: Some(2), groups: vec![], ..limit }), 0);
    assert_eq!(sources(&mut world), ['4', '5']);
    assert!(world.switch.is_consistent());
}

#[test]
fn a_bundle_that_is_not_used_is_discarded_and_told_of() {
    let mut world = World::new(Version::V1_4);
    world.switch.configure(Settings { bundle_idle: Duration::from_secs(4), ..Settings::default() }, 0);
    let control = |kind| {
        Body::BundleControl(BundleControl { bundle: 1, kind, flags: BundleFlags::ATOMIC, properties: vec![] })
    };
    world.send(control(BundleControlKind::OpenRequest));
    let opened = world.messages();
    let [Message { body: Body::BundleControl(reply), .. }] = &opened[..] else { panic!("{opened:?}") };
    assert_eq!((reply.kind, reply.flags), (BundleControlKind::OpenReply, BundleFlags::empty()));
    world.switch.tick(3 * SECOND);
    assert_eq!(world.errors(), [""; 0]);
    world.switch.tick(4 * SECOND);
    assert_eq!(world.errors(), ["OFPBFC_TIMEOUT"]);
    world.send(control(BundleControlKind::CommitRequest));
    assert_eq!(world.errors(), ["OFPBFC_BAD_ID"]);
}

#[test]
fn a_port_that_is_set_down_loses_its_link_afterwards() {
    let mut world = World::new(Version::V1_4);
    let port = PortMod {
        number: PortNo(1),
        address: openflow::Mac([2, 0, 0, 0, 0, 1]),
        config: PortConfig::PORT_DOWN,
        mask: PortConfig::PORT_DOWN,
        ..PortMod::default()
    };
    world.send(Body::PortMod(port));
    let told = world.messages();
    let states: Vec<_> = told
        .iter()
        .filter_map(|message| match &message.body {
            Body::PortStatus(status) => Some((status.port.config, status.port.state)),
            _ => None,
        })
        .collect();
    let down = PortConfig::PORT_DOWN;
    assert_eq!(states, [(down, PortState::empty()), (down, PortState::LINK_DOWN)], "{told:?}");
}

#[test]
fn a_new_port_is_live_in_a_second_message() {
    let mut world = World::new(Version::V1_3);
    let info = ofswitch::PortInfo {
        is_dummy: true,
        queues: vec![0],
        ..ofswitch::PortInfo::new(PortNo(9), "p9", [2; 6])
    };
    world.switch.set_port(info, 0).unwrap();
    let told = world.messages();
    let states: Vec<_> = told
        .iter()
        .filter_map(|message| match &message.body {
            Body::PortStatus(status) => Some(status.port.state),
            _ => None,
        })
        .collect();
    assert_eq!(states, [PortState::empty(), PortState::LIVE], "{told:?}");

    // It has a queue, and neither counts errors nor what leaves by the queue.
    let request = |queue| {
        let content = Request::Queue(QueueRequest { port: PortNo(9), queue });
        Body::MultipartRequest(Multipart { more: false, content })
    };
    world.send(request(version::ALL_QUEUES));
    let told = world.messages();
    let [Message { body: Body::MultipartReply(Multipart { content: Reply::Queue(queues), .. }), .. }] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((queues.len(), queues[0].queue, queues[0].tx_packets), (1, 0, u64::MAX));
    world.send(request(7));
    assert_eq!(world.errors(), ["OFPQOFC_BAD_QUEUE"]);
}

#[test]
fn flags_of_additions_are_shown() {
    let mut world = World::new(Version::V1_3);
    world.flow_mod(FlowModCommand::Add, "check_overlap,reset_counts,in_port=1,actions=drop");
    assert_eq!(world.errors(), [""; 0]);
    let found = flows(&mut world);
    assert!(found[0].contains("check_overlap reset_counts"), "{found:?}");
}

#[test]
fn requests_are_forwarded_in_the_version_of_the_other() {
    let mut world = World::with(Version::V1_4, Limits::default());
    let other = support::connect(&mut world.switch, Version::V1_5);
    // Only group-mods and meter-mods.
    let masks = openflow::message::AsyncProperties(vec![openflow::message::AsyncProperty::RequestForward(3)]);
    let set = Message::new(Version::V1_5, 1, Body::SetAsync2(masks)).encode().unwrap();
    world.switch.receive(other, &set, 0);
    while world.switch.next_message(other).is_some() {}
    let group = openflow::text::parse_group(
        "group_id=1,type=all,bucket=actions=output:2",
        openflow::message::GroupModCommand::Add,
        Version::V1_4,
    );
    world.send(Body::GroupMod(group.unwrap()));
    assert_eq!(world.errors(), [""; 0]);
    let forwarded = world.switch.next_message(other).unwrap();
    let Body::RequestForward(forwarded) = Message::decode(&forwarded).unwrap().body else { panic!() };
    let inner = forwarded.inner().unwrap();
    assert_eq!(inner.version, Version::V1_5);
    inner.check().unwrap();
}
