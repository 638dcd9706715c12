//! Conjunctive flows: limits, and what becomes of a switch that refuses a change beyond them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ofswitch::Limits;
use openflow::message::{Body, FlowModCommand, TableConfig, TableMod};
use openflow::multipart::{FlowStatsRequest, Multipart, Reply, Request};
use openflow::{PortNo, Version, version};
use support::{SECOND, World, udp};

/// A switch that permits few combinations.
fn small() -> World {
    World::with(Version::V1_3, Limits { conjunctions: 8, ..Limits::default() })
}

/// Adds flows of each of two clauses of conjunction 1.
fn add_clauses(world: &mut World, number: u32) {
    for n in 1..=number {
        world.add(&format!("priority=10,ip,nw_src=10.0.0.{n},actions=conjunction(1,1/2)"));
        world.add(&format!("priority=10,udp,tp_dst={n},actions=conjunction(1,2/2)"));
    }
}

#[test]
fn a_conjunction_that_does_not_fit_is_refused_with_its_result() {
    let mut world = small();
    add_clauses(&mut world, 3);
    world.flow_mod(FlowModCommand::Add, "priority=10,conj_id=1,actions=output:3");
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    assert!(world.switch.is_consistent());
    assert_eq!(world.switch.flow_count(), 6);
    world.add("actions=output:2");
    world.flow_mod(FlowModCommand::Delete, "");
    assert_eq!(world.errors(), [""; 0]);
    assert_eq!(world.switch.flow_count(), 0);
    assert!(world.packet(1, &udp())[0].starts_with("drop: "));
}

#[test]
fn a_deletion_that_completes_a_conjunction_beyond_the_limit_is_refused() {
    let mut world = small();
    // A flow that says that there are three clauses keeps the conjunction incomplete.
    let third = "priority=10,tcp,actions=conjunction(1,1/3)";
    world.add(&format!("hard_timeout=5,{third}"));
    add_clauses(&mut world, 3);
    world.add("priority=10,conj_id=1,actions=output:3");
    world.flow_mod(FlowModCommand::DeleteStrict, "priority=10,tcp");
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    world.switch.tick(9 * SECOND);
    assert!(world.switch.is_consistent());
}

#[test]
fn the_only_combination_comes_back_when_an_ordinary_flow_goes() {
    let mut world = World::new(Version::V1_3);
    world.add("priority=10,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)");
    world.add("priority=10,udp,tp_dst=2000,actions=conjunction(1,2/2)");
    world.add("priority=10,conj_id=1,actions=output:4");
    let ordinary = "priority=10,udp,nw_src=10.0.0.1,tp_dst=2000";
    world.add(&format!("{ordinary},actions=output:3"));
    assert!(world.packet(1, &udp())[0].starts_with("3: "));
    world.flow_mod(FlowModCommand::DeleteStrict, ordinary);
    assert_eq!(world.errors(), [""; 0]);
    assert!(world.packet(1, &udp())[0].starts_with("4: "));
}

#[test]
fn an_addition_of_the_first_version_that_evicts_and_fails_evicts_nothing() {
    let mut world = World::with(Version::V1_4, Limits { flows_per_table: 1, ..Limits::default() });
    let evicts = TableMod { table_id: 0, config: TableConfig::EVICTION, properties: vec![] };
    world.send(Body::TableMod(evicts));
    world.add("in_port=1,actions=output:2");
    world.connection = support::connect(&mut world.switch, Version::V1_0);
    world.version = Version::V1_0;
    // That there is no such table is found out only when room has been made.
    world.flow_mod(FlowModCommand::Add, "in_port=2,actions=resubmit(,254)");
    assert_eq!(world.errors().len(), 1);
    assert!(world.switch.is_consistent());
    assert_eq!(world.switch.flow_count(), 1);
}

#[test]
fn attempts_to_combine_flows_are_limited() {
    let mut world = small();
    // Flows that contradict each other: no combination, however many are tried.
    for n in 1..=12 {
        world.add(&format!("priority=10,ip,nw_src=10.0.0.{n},actions=conjunction(1,1/2)"));
        world.add(&format!("priority=10,arp,arp_spa=10.0.0.{n},actions=conjunction(1,2/2)"));
    }
    world.flow_mod(FlowModCommand::Add, "priority=10,conj_id=1,actions=output:3");
    assert_eq!(world.errors(), ["OFPFMFC_TABLE_FULL"]);
    assert!(world.switch.is_consistent());
}

#[test]
fn packets_are_counted_at_the_flow_of_the_conjunction() {
    let mut world = World::new(Version::V1_3);
    world.add("priority=10,cookie=1,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2)");
    world.add("priority=10,cookie=2,actions=conjunction(1,2/2)");
    world.add("priority=10,cookie=3,conj_id=1,actions=output:4");
    let counts = |world: &mut World| -> Vec<(u64, Option<u64>)> {
        let request = FlowStatsRequest {
            table_id: version::table::ALL,
            out_port: PortNo::ANY,
            out_group: version::group::ANY,
            ..FlowStatsRequest::default()
        };
        world.send(Body::MultipartRequest(Multipart { more: false, content: Request::Flow(request) }));
        let flows = world.messages().into_iter().filter_map(|message| match message.body {
            Body::MultipartReply(Multipart { content: Reply::Flow(flows), .. }) => Some(flows),
            _ => None,
        });
        flows.flatten().map(|flow| (flow.cookie, flow.stats.packets())).collect()
    };
    world.packet(1, &udp());
    assert_eq!(counts(&mut world), [(1, Some(0)), (2, Some(0)), (3, Some(1))]);
    // Another clause makes other entries.
    world.add("priority=10,cookie=4,ip,nw_src=10.0.0.2,actions=conjunction(1,1/2)");
    world.packet(1, &udp());
    assert_eq!(counts(&mut world), [(1, Some(0)), (2, Some(0)), (3, Some(2)), (4, Some(0))]);
}
