//! Packets that pause at controllers and are resumed; flows that shorten their timeouts; what a packet's way depends
//! on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::message::{Body, FlowModCommand, GroupModCommand, PacketIn2, PacketProperty};
use openflow::property::{Bytes, Fields};
use openflow::{PortNo, Version, text};
use support::{SECOND, World, hex, udp, unhex};

fn world(flows: &[&str]) -> World {
    let mut world = World::new(Version::V1_3);
    world.send(Body::SetPacketInFormat(2));
    flows.iter().for_each(|flow| world.add(flow));
    world
}

/// The packet-ins that wait.
fn packet_ins(world: &mut World) -> Vec<Vec<PacketProperty>> {
    let properties = |message: openflow::Message| match message.body {
        Body::PacketIn2(PacketIn2(properties)) => Some(properties),
        _ => None,
    };
    world.messages().into_iter().filter_map(properties).collect()
}

/// Resumes a packet; returns what leaves.
fn resume(world: &mut World, properties: Vec<PacketProperty>) -> Vec<String> {
    world.send(Body::Resume(PacketIn2(properties)));
    world.switch.take_effects().iter().map(support::show).collect()
}

fn ports(effects: &[String]) -> Vec<&str> {
    effects.iter().map(|effect| effect.split(':').next().unwrap()).collect()
}

#[test]
fn packets_continue_where_they_paused() {
    let mut world = world(&[
        "table=0,actions=output:2,controller(pause),resubmit(,1),output:4,controller(pause),goto_table:2",
        "table=1,actions=load:7->NXM_NX_REG1[],controller(pause),output:3",
        "table=2,reg1=7,actions=write_actions(output:2),controller(pause,userdata=01.02)",
    ]);
    let mut left = world.packet(1, &udp());
    for pause in 0..4 {
        let mut waiting = packet_ins(&mut world);
        let properties = waiting.pop().unwrap();
        assert!(waiting.is_empty());
        let has_data = properties.contains(&PacketProperty::UserData(Bytes(vec![1, 2])));
        assert_eq!(has_data, pause == 3);
        left.extend(resume(&mut world, properties));
    }
    assert_eq!(ports(&left), ["2", "3", "4", "2"], "each output once, the action set last");
    assert_eq!(packet_ins(&mut world), [] as [Vec<PacketProperty>; 0]);
    assert_eq!(world.errors(), [""; 0]);
}

#[test]
fn controllers_change_packets_and_registers() {
    let mut world = world(&[
        "table=0,actions=load:1->NXM_NX_REG1[],controller(pause),resubmit(,1)",
        "table=1,reg1=5,udp,tp_dst=53,actions=dec_ttl,output:3",
    ]);
    world.packet(1, &udp());
    let mut properties = packet_ins(&mut world).pop().unwrap();
    let mut packet = udp();
    packet[36..38].copy_from_slice(&[0, 53]);
    packet.extend([0xaa; 900]);
    for property in &mut properties {
        match property {
            PacketProperty::Packet(bytes) => bytes.0.clone_from(&packet),
            PacketProperty::Metadata(Fields(fields)) => {
                let reg = openflow::field::FieldId::reg(1).unwrap();
                fields.retain(|oxm| oxm.field().unwrap().id != reg);
                fields.push(openflow::oxm::Oxm::number(reg, Version::V1_3, 5));
            }
            _ => {}
        }
    }
    packet[22] -= 1;
    let sum = u16::from_be_bytes([packet[24], packet[25]]) + 0x0100;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(resume(&mut world, properties), [format!("3: {}", hex(&packet))]);
}

#[test]
fn only_the_copy_that_paused_continues() {
    let mut world = world(&[
        "table=0,actions=clone(controller(pause),output:2),output:3,clone(controller(pause),output:4),output:2",
    ]);
    assert_eq!(ports(&world.packet(1, &udp())), ["3", "2"]);
    let [first, second] = packet_ins(&mut world).try_into().unwrap();
    assert_eq!(ports(&resume(&mut world, second)), ["4"]);
    assert_eq!(ports(&resume(&mut world, first)), ["2"]);
}

#[test]
fn a_packet_is_resumed_once_and_by_its_number_only() {
    let mut world = world(&["table=0,actions=controller(pause),output:2"]);
    world.packet(1, &udp());
    let properties = packet_ins(&mut world).pop().unwrap();
    let without = |wanted: fn(&PacketProperty) -> bool| {
        properties.iter().filter(|property| !wanted(property)).cloned().collect::<Vec<_>>()
    };
    let strange = without(|property| matches!(property, PacketProperty::Continuation(_)));
    assert_eq!(resume(&mut world, strange), [""; 0]);
    assert_eq!(world.errors(), ["NXR_STALE"]);
    assert_eq!(
        resume(&mut world, without(|property| matches!(property, PacketProperty::Packet(_)))),
        [""; 0]
    );
    assert_eq!(world.errors(), ["OFPBRC_BAD_PACKET"]);
    assert_eq!(ports(&resume(&mut world, properties.clone())), ["2"]);
    assert_eq!(resume(&mut world, properties), [""; 0]);
    assert_eq!(world.errors(), ["NXR_STALE"]);
}

#[test]
fn a_packet_whose_flows_have_changed_is_not_resumed() {
    let mut world = world(&["table=0,actions=controller(pause),output:2", "table=9,actions=output:4"]);
    world.packet(1, &udp());
    world.packet(1, &udp());
    let [first, second] = packet_ins(&mut world).try_into().unwrap();
    // A flow that it did not meet does not matter.
    world.flow_mod(FlowModCommand::Modify, "table=9,actions=output:2");
    assert_eq!(ports(&resume(&mut world, first)), ["2"]);
    world.flow_mod(FlowModCommand::Modify, "table=0,actions=controller(pause),output:3");
    assert_eq!(resume(&mut world, second), [""; 0]);
    assert_eq!(world.errors(), ["NXR_STALE"]);
}

#[test]
fn flows_count_what_they_meet_once() {
    let mut world = world(&["table=0,actions=controller(pause),resubmit(,1)", "table=1,actions=output:2"]);
    world.packet(1, &udp());
    let properties = packet_ins(&mut world).pop().unwrap();
    resume(&mut world, properties);
    let lookups: Vec<_> =
        world.switch.table_summaries().iter().map(|table| (table.number, table.hits)).collect();
    assert_eq!(lookups, [(0, 1), (1, 1)]);
}

#[test]
fn buckets_tell_the_flow_that_runs_their_group() {
    let mut world = world(&[]);
    let group = text::parse_group(
        "group_id=1,type=all,bucket=actions=controller",
        GroupModCommand::Add,
        Version::V1_3,
    );
    world.send(Body::GroupMod(group.unwrap()));
    world.add("table=0,actions=goto_table:2");
    world.add("table=2,cookie=7,actions=group:1");
    world.packet(1, &udp());
    let properties = packet_ins(&mut world).pop().unwrap();
    assert!(properties.contains(&PacketProperty::TableId(2)));
    assert!(properties.contains(&PacketProperty::Cookie(openflow::property::Aligned64(7))));
}

/// A segment of TCP from 10.0.0.1:1000 to 10.0.0.2:2000.
fn tcp(flags: u8) -> Vec<u8> {
    let head = "020000000002 020000000001 0800 45000028 00000000 40 06 0000 0a000001 0a000002";
    unhex(&format!("{head} 03e8 07d0 00000000 00000000 50{flags:02x} 0000 0000 0000"))
}

#[test]
fn the_end_of_a_connection_shortens_timeouts() {
    let mut world =
        world(&["tcp,idle_timeout=60,actions=fin_timeout(idle_timeout=5,hard_timeout=9),output:2"]);
    assert_eq!(ports(&world.packet(1, &tcp(0x10))), ["2"]);
    world.now = 30 * SECOND;
    world.switch.tick(world.now);
    assert_eq!(world.switch.flow_count(), 1);
    assert_eq!(ports(&world.packet(1, &tcp(0x11))), ["2"]);
    world.now = 36 * SECOND;
    world.switch.tick(world.now);
    assert_eq!(world.switch.flow_count(), 0);
}

#[test]
fn fin_timeouts_of_buckets_and_conjunctive_matches_shorten_nothing() {
    let fin = "fin_timeout(idle_timeout=5,hard_timeout=5)";
    let mut world = world(&[
        "table=1,priority=2,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
        "table=1,priority=2,ip,nw_dst=10.0.0.2,actions=conjunction(7,2/2)",
        &format!("table=1,conj_id=7,tcp,hard_timeout=60,actions={fin},output:3"),
    ]);
    let group = format!("group_id=1,type=all,bucket=actions={fin},output:2");
    world.send(Body::GroupMod(text::parse_group(&group, GroupModCommand::Add, Version::V1_3).unwrap()));
    assert_eq!(world.errors(), [""; 0]);
    world.add("table=0,tcp,hard_timeout=60,actions=group:1,resubmit(,1)");
    let count = world.switch.flow_count();
    assert_eq!(ports(&world.packet(1, &tcp(0x11))), ["2", "3"]);
    assert!(world.switch.is_consistent());
    world.now = 59 * SECOND;
    world.switch.tick(world.now);
    assert_eq!(world.switch.flow_count(), count);
}

/// What the way of a packet from port 1 depends on.
fn depends(flows: &[&str], packet: &[u8]) -> Vec<(&'static str, u128)> {
    depends_in(&world(flows), packet)
}

fn depends_in(world: &World, packet: &[u8]) -> Vec<(&'static str, u128)> {
    let parts = world.switch.dependencies(PortNo(1), packet, 0);
    parts
        .into_iter()
        .map(|part| (part.key, part.mask))
        .filter(|(key, _)| !["eth_type", "ip_frag"].contains(key))
        .collect()
}

#[test]
fn ways_depend_on_the_hash_that_chooses_a_bucket() {
    let of = |method: &str| {
        let mut world = World::new(Version::V1_5);
        let group =
            format!("group_id=1,type=select,{method}bucket=bucket_id:1,output:2,bucket=bucket_id:2,output:3");
        world.send(Body::GroupMod(text::parse_group(&group, GroupModCommand::Add, Version::V1_5).unwrap()));
        world.add("actions=group:1");
        assert_eq!(world.errors(), [""; 0], "{method}");
        depends_in(&world, &udp())
    };
    assert_eq!(of("selection_method=hash,fields(ip_src),"), [("ip_src", 0xffff_ffff)]);
    // The default hash covers addresses and ports.
    let all = of("");
    assert!(all.contains(&("eth_src", 0xffff_ffff_ffff)) && all.contains(&("tp_dst", 0xffff)), "{all:?}");
    assert_eq!(of("selection_method=dp_hash,"), all);
}

#[test]
fn ways_depend_on_what_lookups_compare() {
    let all = 0xffff_ffff;
    assert_eq!(depends(&["actions=output:2"], &udp()), []);
    // The packet is 10.0.0.1:1000 to 10.0.0.2:2000: a few bits tell it from others.
    assert_eq!(depends(&["ip,nw_dst=10.0.0.8,actions=output:2"], &udp()), [("ip_dst", 0xffff_fff8)]);
    assert_eq!(depends(&["ip,nw_dst=10.0.0.2,actions=output:2"], &udp()), [("ip_dst", all)]);
    assert_eq!(
        depends(&["udp,tp_dst=2001,actions=output:2"], &udp()),
        [("nw_proto", 0xff), ("tp_dst", 0xffff)]
    );
    // Where the link layer differs, what is above does not matter; nor do flows of less priority than one that matches.
    let flows = ["priority=9,dl_src=00:00:00:00:00:09,nw_src=9.9.9.9,ip,actions=drop"];
    assert_eq!(depends(&flows, &udp()), [("eth_src", 0xffff_ffff_ffff)]);
    let flows = ["priority=9,udp,actions=output:2", "priority=8,dl_dst=00:00:00:00:00:09,actions=drop"];
    assert_eq!(depends(&flows, &udp()), [("nw_proto", 0xff)]);
}

#[test]
fn ways_depend_on_what_actions_read() {
    let flows = [
        "ip,actions=move:NXM_OF_ETH_SRC[0..7]->NXM_NX_REG0[0..7],resubmit(,1)",
        "table=1,ip,actions=dec_ttl",
    ];
    assert_eq!(depends(&flows, &udp()), [("eth_src", 0xff), ("nw_ttl", 0xff)]);
    // Checksums depend on the protocol.
    let rewritten = [("ip_src", 0xffff_ffff), ("nw_proto", 0xff)];
    assert_eq!(depends(&["ip,actions=set_field:1.2.3.4->ip_src,output:2"], &udp()), rewritten);
    let cleared =
        ["ip,actions=write_actions(set_field:1.2.3.4->ip_src),goto_table:1", "table=1,actions=clear_actions"];
    assert_eq!(depends(&cleared, &udp()), []);
}

#[test]
fn lookups_of_a_packet_look_at_10_000_flows_together() {
    let mut world =
        world(&["table=0,actions=resubmit(,1),resubmit(,2)", "table=2,udp,tp_dst=9,actions=drop"]);
    let flow = |number: u32| format!("table=1,ip,nw_dst=11.{}.{}.0,actions=drop", number >> 8, number & 255);
    (0..9_998).for_each(|number| world.add(&flow(number)));
    let few = [("ip_dst", 0xff00_0000), ("nw_proto", 0xff), ("tp_dst", 0xfc00)];
    assert_eq!(depends_in(&world, &udp()), few);
    // With one more, it is all that tables compare.
    world.add(&flow(9_998));
    let found = depends_in(&world, &udp());
    for part in
        [("ip_src", 0xffff_ffff), ("ip_dst", 0xffff_ffff), ("tp_dst", 0xffff), ("eth_src", 0xffff_ffff_ffff)]
    {
        assert!(found.contains(&part), "{part:?} of {found:x?}");
    }
    // Where its lookups meet few flows, the others do not matter.
    world.add("table=0,priority=0xfff0,udp,actions=resubmit(,2)");
    assert_eq!(depends_in(&world, &udp()), few[1..]);
}

#[test]
fn traces_of_many_masks_and_prefixes_find_what_matters() {
    let mut world = world(&[]);
    // Each has a mask of its own.
    for len in 1..=32_u32 {
        for bits in 1..=16_u32 {
            let mask = (1_u32 << bits) - 1;
            world.add(&format!("ip,nw_dst=192.0.0.0/{len},metadata=0/{mask},actions=drop"));
        }
    }
    world.add("priority=1,actions=output:2");
    // 10.0.0.2 and 192.0.0.0 differ in their first bit.
    assert_eq!(depends_in(&world, &udp()), [("ip_dst", 0x8000_0000)]);
    // Another is as the address up to its eighth bit.
    world.add("ip,nw_dst=10.0.0.0/8,metadata=0/1,actions=drop");
    assert_eq!(depends_in(&world, &udp()), [("ip_dst", 0xff00_0000)]);
}
