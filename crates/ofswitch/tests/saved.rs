//! Flows, groups and meters that outlive their switch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use ofswitch::{Limits, Saved, Settings, Switch};
use openflow::message::{Body, FlowModCommand, GroupModCommand, MeterModCommand, TableConfig, TableMod};
use openflow::message::{TlvMap, TlvTableCommand, TlvTableMod};
use openflow::multipart::{FlowEntry, FlowStatsRequest, GroupDescRequest, Multipart, Reply, Request};
use openflow::{Message, PortNo, Version, text, version};
use support::{SECOND, World, connect, udp};

/// A time after which ages of hours are times after zero.
const START: u64 = 100_000 * SECOND;

fn saved(world: &World) -> Vec<Saved> {
    world.switch.snapshot(world.now).messages().collect()
}

/// Another switch with the same content.
fn restored(world: &World) -> World {
    let mut other = World::new(world.version);
    other.now = world.now;
    let flows = other.switch.restore(&saved(world), world.now).unwrap();
    assert_eq!(flows, world.switch.flow_count());
    assert!(other.switch.is_consistent());
    other
}

fn list(world: &mut World, request: Request) -> Vec<Reply> {
    world.send(Body::MultipartRequest(Multipart { more: false, content: request }));
    let reply = |message: Message| match message.body {
        Body::MultipartReply(reply) => Some(reply.content),
        _ => None,
    };
    world.messages().into_iter().filter_map(reply).collect()
}

/// The flows as text.
fn flows(world: &mut World) -> Vec<String> {
    let request = FlowStatsRequest {
        table_id: version::table::ALL,
        out_port: PortNo::ANY,
        out_group: version::group::ANY,
        ..FlowStatsRequest::default()
    };
    let version = world.version;
    // Idle ages and counters start anew.
    let show = |flow: FlowEntry| {
        let text = text::flow_entry_text(&FlowEntry { idle_age: 0, ..flow }, version).unwrap();
        text.split(' ')
            .filter(|word| !["idle_age=", "n_packets=", "n_bytes="].iter().any(|name| word.starts_with(name)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let part = |part| match part {
        Reply::Flow(flows) => flows.into_iter().map(show).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    list(world, Request::Flow(request)).into_iter().flat_map(part).collect()
}

const FLOWS: [&str; 9] = [
    "cookie=0x123456789abcdef0,priority=7,ip,nw_src=10.0.0.0/8,nw_tos=32,actions=mod_nw_dst:10.9.9.9,output:2",
    "priority=1,in_port=LOCAL,dl_vlan=5,dl_vlan_pcp=3,actions=strip_vlan,IN_PORT",
    "priority=20,in_port=2,udp,tp_src=1000/0xfff8,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
    "table=1,reg0=0x5/0xf,actions=load:0x7->NXM_NX_REG1[0..7],move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG1[0..47],output:NXM_NX_REG1[]",
    "priority=9,ipv6,ipv6_dst=fd00::/16,idle_timeout=60,send_flow_rem,actions=NORMAL",
    "arp,actions=clone(output:1),controller(userdata=01.02,pause)",
    "priority=3,udp,actions=conjunction(4,1/2)",
    "priority=3,nw_src=10.1.0.0/16,ip,actions=conjunction(4,2/2)",
    "priority=3,conj_id=4,ip,actions=output:3",
];

#[test]
fn flows_of_every_version_are_the_same_afterwards() {
    for version in Version::ALL {
        if version == Version::V1_1 || version == Version::V1_2 {
            continue;
        }
        let mut world = World::new(version);
        world.now = START;
        let mut count = 0;
        for flow in FLOWS {
            // Some versions lack some actions.
            let Ok(flow) = text::parse_flow(flow, FlowModCommand::Add, version) else { continue };
            world.now += SECOND;
            world.send(Body::FlowMod(Box::new(flow)));
            count += usize::from(world.errors().is_empty());
        }
        assert!(count >= 5, "{version}: {count}");
        // A learned flow has no version of its own.
        world.packet(2, &udp());
        world.now += 7 * SECOND;
        let mut other = restored(&world);
        assert_eq!(saved(&other), saved(&world), "{version}");
        assert_eq!(flows(&mut other), flows(&mut world), "{version}");
        assert_eq!(other.packet(2, &udp()), world.packet(2, &udp()), "{version}");
    }
}

#[test]
fn groups_meters_and_tables_are_the_same_afterwards() {
    let mut world = World::new(Version::V1_5);
    world.now = START;
    let group = |world: &mut World, text: &str| {
        let version = world.version;
        world.send(Body::GroupMod(text::parse_group(text, GroupModCommand::Add, version).unwrap()));
        assert_eq!(world.errors(), [""; 0], "{text}");
    };
    // A group may refer to one with a higher number.
    group(&mut world, "group_id=9,type=ff,bucket=watch_port:1,output:1,bucket=watch_port:2,output:2");
    group(&mut world, "group_id=5,type=indirect,bucket=group:9");
    group(
        &mut world,
        "group_id=1,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id:4,weight:3,group:5,bucket=bucket_id:8,output:3",
    );
    // One bucket has about 16 bytes of 65,535.
    let buckets: String =
        (0..4000).map(|id| format!(",bucket=bucket_id:{id},output:{}", id % 4 + 1)).collect();
    let (first, second) = buckets.split_at(buckets.find(",bucket=bucket_id:2000,").unwrap());
    group(&mut world, &format!("group_id=2,type=all{first}"));
    let insert = text::parse_group(
        &format!("group_id=2,command_bucket_id=last{second}"),
        GroupModCommand::InsertBucket,
        world.version,
    );
    world.send(Body::GroupMod(insert.unwrap()));
    let meter = text::parse_meter(
        "meter=7,kbps,burst,stats,bands=type=drop,rate=100,burst_size=9",
        MeterModCommand::Add,
    );
    world.send(Body::MeterMod(meter.unwrap()));
    let config = TableConfig::EVICTION;
    world.send(Body::TableMod(TableMod { table_id: 3, config, ..TableMod::default() }));
    let maps = vec![TlvMap { class: 0xffff, kind: 1, length: 16, index: 2 }];
    world.send(Body::TlvTableMod(TlvTableMod { command: TlvTableCommand::Add, maps }));
    assert_eq!(world.errors(), [""; 0]);
    world.add("tun_metadata2=0x5,actions=meter:7,group:1");
    let mut other = restored(&world);
    assert_eq!(saved(&other), saved(&world));
    let all = |world: &mut World| {
        let groups = list(world, Request::GroupDesc(GroupDescRequest(version::group::ALL)));
        (groups, list(world, Request::TableDesc), flows(world))
    };
    assert_eq!(all(&mut other), all(&mut world));
}

#[test]
fn hard_timeouts_go_on_and_idle_ones_start_anew() {
    let mut world = World::new(Version::V1_3);
    world.now = START;
    for flow in
        ["in_port=1,hard_timeout=10", "in_port=2,hard_timeout=3", "in_port=3,idle_timeout=10", "in_port=4"]
    {
        world.add(&format!("{flow},actions=drop"));
    }
    world.now += 6 * SECOND;
    let mut other = World::new(world.version);
    // The daemon was not there for a second.
    let mut saved = saved(&world);
    saved.iter_mut().for_each(|saved| saved.age += SECOND);
    other.now = START + 3 * SECOND;
    assert_eq!(other.switch.restore(&saved, other.now), Ok(3), "one ended meanwhile");
    let mut left = |seconds| {
        other.now += seconds * SECOND;
        // Just after that: at the very end of its time a flow is still there.
        other.switch.tick(other.now + 1);
        other.switch.flow_count()
    };
    assert_eq!([left(0), left(2), left(1), left(6), left(1), left(1000)], [3, 3, 2, 2, 1, 1]);
}

#[test]
fn what_does_not_fit_restores_nothing() {
    let mut world = World::new(Version::V1_3);
    world.now = START;
    (0..5).for_each(|vlan| world.add(&format!("dl_vlan={vlan},actions=output:1")));
    let limits = Limits { flows: 4, ..Limits::default() };
    let mut small = Switch::new(Settings { limits, ..Settings::default() });
    let error = small.restore(&saved(&world), START).unwrap_err();
    assert_eq!(error.to_string(), "message 5 of 5 is refused with OFPFMFC_TABLE_FULL");
    assert!(small.flow_count() == 0 && small.is_consistent());
    // Nor does something else than a change.
    let echo = Message::new(Version::V1_3, 0, Body::EchoRequest(vec![])).encode().unwrap();
    for message in [echo, vec![4, 14, 0, 9], Vec::new()] {
        let mut both = saved(&world);
        both.push(Saved { age: 0, message });
        let error = world_without_flows().restore(&both, START).unwrap_err();
        assert_eq!((error.number, error.count), (6, 6));
    }
}

fn world_without_flows() -> Switch {
    let mut switch = Switch::new(Settings::default());
    connect(&mut switch, Version::V1_3);
    switch
}

#[test]
fn changes_are_counted() {
    let mut world = World::new(Version::V1_3);
    let before = world.switch.changes();
    world.add("actions=output:1");
    let added = world.switch.changes();
    assert!(added > before);
    world.packet(1, &udp());
    world.switch.tick(SECOND);
    let _ = flows(&mut world);
    assert_eq!(world.switch.changes(), added);
}
