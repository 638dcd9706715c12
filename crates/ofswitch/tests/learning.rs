//! Learned flows: their timeouts, their limit, and their deletion.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::Version;
use openflow::message::{Body, FlowModCommand};
use openflow::multipart::{FlowEvent, FlowUpdate, MonitorFlags, MonitorRequest, Multipart, Reply, Request};
use support::{SECOND, World, udp};

/// Reports of a monitor of all flows since the last call.
fn reported(world: &mut World) -> Vec<FlowEvent> {
    let updates = |message: openflow::Message| match message.body {
        Body::MultipartReply(Multipart { content: Reply::FlowMonitor(updates), .. }) => updates,
        body => panic!("{body:?}"),
    };
    let event = |update| match update {
        FlowUpdate::Full { event, .. } => event,
        update => panic!("{update:?}"),
    };
    world.messages().into_iter().flat_map(updates).map(event).collect()
}

#[test]
fn a_learned_flow_is_refreshed_without_being_replaced() {
    for timeout in ["idle_timeout=3", "hard_timeout=3"] {
        let mut world = World::new(Version::V1_4);
        world.add(&format!("actions=learn(table=1,{timeout},NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])"));
        let all = MonitorRequest {
            table_id: 0xff,
            out_port: openflow::PortNo::ANY,
            out_group: openflow::version::group::ANY,
            flags: MonitorFlags::ADD | MonitorFlags::MODIFY | MonitorFlags::REMOVED,
            ..MonitorRequest::default()
        };
        let request = Request::FlowMonitor(vec![all]);
        world.send(Body::MultipartRequest(Multipart { more: false, content: request }));
        world.messages();
        // Ten packets a second for five seconds.
        for n in 0..50 {
            world.now = n * SECOND / 10;
            world.packet(1, &udp());
            world.switch.tick(world.now);
        }
        let events = reported(&mut world);
        assert!(events.len() <= 5 && events[0] == FlowEvent::Added, "{timeout}: {events:?}");
        assert_eq!(world.switch.flow_count(), 2);
        world.switch.tick(9 * SECOND);
        assert_eq!(world.switch.flow_count(), 1, "{timeout}");
    }
}

#[test]
fn learned_flows_go_with_the_last_flow_that_teaches_them() {
    let mut world = World::new(Version::V1_3);
    let teach = "learn(table=1,cookie=0x7,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    world.add(&format!("in_port=1,actions={teach}"));
    world.add(&format!("in_port=2,actions={teach}"));
    world.add("table=1,cookie=0x8,in_port=4,actions=drop");
    world.add("table=2,cookie=0x7,in_port=4,actions=drop");
    world.packet(1, &udp());
    assert_eq!(world.switch.flow_count(), 5);
    world.flow_mod(FlowModCommand::Delete, "in_port=1");
    assert_eq!(world.switch.flow_count(), 4);
    // A modified flow that teaches them still keeps them.
    world.flow_mod(FlowModCommand::Modify, &format!("in_port=2,actions={teach},output:3"));
    assert_eq!(world.switch.flow_count(), 4);
    world.flow_mod(FlowModCommand::Modify, "in_port=2,actions=output:3");
    assert_eq!((world.switch.flow_count(), world.errors()), (3, vec![]));
    assert!(world.switch.is_consistent());
}
