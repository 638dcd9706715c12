//! What flows do to packets, construct by construct.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use openflow::action::{self, Action};
use openflow::message::{
    Body, Bucket, BucketProperty, FlowModCommand, GroupKind, GroupMod, GroupModCommand, PacketIn2,
    PacketProperty,
};
use openflow::property::Padded16;
use openflow::{PortNo, Version};
use support::{SECOND, World, checksums_hold, hex, udp, unhex};

/// Adds flows and sends one packet from port 1.
fn run(flows: &[&str], packet: &[u8]) -> Vec<String> {
    let mut world = World::new(Version::V1_3);
    flows.iter().for_each(|flow| world.add(flow));
    world.packet(1, packet)
}

/// Ports that the packet leaves through, unchanged or not.
fn ports(flows: &[&str]) -> Vec<String> {
    run(flows, &udp())
        .into_iter()
        .map(|line| line.split(": ").next().unwrap_or_default().to_owned())
        .collect()
}

fn out(port: u32, text: &str) -> Vec<String> {
    vec![format!("{port}: {}", hex(&unhex(text)))]
}

#[test]
fn the_packet_to_test_with_has_right_checksums() {
    assert!(checksums_hold(&udp()));
}

#[test]
fn tables_metadata_and_the_action_set() {
    let flows = [
        "in_port=1,actions=write_metadata:0x5/0xff,goto_table:3",
        "table=3,metadata=0x5/0xf,actions=write_actions(set_field:00:00:00:00:00:07->eth_dst,output:2),goto_table:4",
        "table=4,actions=write_actions(output:3)",
    ];
    let mut packet = udp();
    packet[..6].copy_from_slice(&[0, 0, 0, 0, 0, 7]);
    assert_eq!(run(&flows, &udp()), out(3, &hex(&packet)));
    let cleared = [flows[0], flows[1], "table=4,actions=clear_actions,write_actions(output:4)"];
    assert_eq!(run(&cleared, &udp()), out(4, &hex(&udp())));
    assert_eq!(run(&[flows[0]], &udp()), ["drop: no flow matches"]);
    assert_eq!(run(&["actions=drop"], &udp()), ["drop: no destination"]);
}

#[test]
fn priorities_and_masks() {
    let flows = ["priority=1,actions=output:2", "priority=9,ip,nw_src=10.0.0.0/255.0.0.1,actions=output:3"];
    // The last bit of the address is set.
    assert_eq!(ports(&flows), ["2"]);
    assert_eq!(ports(&[flows[0], "priority=9,udp,tp_dst=0x7c0/0xfff0,actions=output:3"]), ["2"]);
    assert_eq!(ports(&[flows[0], "priority=9,udp,tp_dst=0x7d0/0xfff0,actions=output:3"]), ["3"]);
}

#[test]
fn every_checksum_follows_its_fields() {
    for set in [
        "set_field:1.2.3.4->ip_src",
        "set_field:9.8.7.6->ip_dst",
        "set_field:77->udp_src",
        "set_field:0xffff->udp_dst",
        "set_field:17->ip_dscp",
        "set_field:3->nw_ecn",
        "dec_ttl",
        "set_field:6->ip_proto",
        "load:0x5->NXM_OF_IP_SRC[3..9]",
        "move:NXM_OF_UDP_SRC[0..7]->NXM_OF_IP_DST[4..11]",
    ] {
        let mut world = World::new(Version::V1_3);
        world.add(&format!("udp,actions={set},output:2"));
        let effects = world.switch.packet(openflow::PortNo(1), &udp(), 0);
        let [ofswitch::Effect::Output { packet, .. }] = effects.as_slice() else {
            panic!("{set}: {effects:?}")
        };
        assert!(*packet != udp() && checksums_hold(packet), "{set}: {}", hex(packet));
    }
}

#[test]
fn vlan_tags_are_pushed_changed_and_popped() {
    let tagged = "020000000002020000000001 8100 a007 0800 4500";
    let pushed = run(
        &["actions=push_vlan:0x8100,set_field:4103->vlan_vid,set_field:5->vlan_pcp,output:2"],
        &unhex("020000000002020000000001 0800 4500"),
    );
    assert_eq!(pushed, out(2, tagged));
    assert_eq!(
        run(&["dl_vlan=7,dl_vlan_pcp=5,actions=pop_vlan,output:2"], &unhex(tagged)),
        out(2, "020000000002020000000001 0800 4500")
    );
    // The type behind all tags is matched.
    let double = "020000000002020000000001 88a8 0001 8100 0002 0800 4500";
    assert_eq!(run(&["ip,dl_vlan=1,actions=output:2"], &unhex(double)), out(2, double));
    assert_eq!(run(&["vlan_tci=0,actions=output:2"], &unhex(tagged)), ["drop: no flow matches"]);
}

#[test]
fn mpls_labels_are_pushed_and_popped() {
    let packet = udp();
    let (ethernet, rest) = packet.split_at(12);
    let pushed = format!("{} 8847 0006 4140 {}", hex(ethernet), hex(&rest[2..]));
    assert_eq!(
        run(&["ip,actions=push_mpls:0x8847,set_field:100->mpls_label,output:2"], &packet),
        out(2, &pushed)
    );
    assert_eq!(
        run(
            &[
                "mpls,mpls_label=100,mpls_bos=1,actions=pop_mpls:0x0800,goto_table:1",
                "table=1,udp,tp_src=1000,actions=output:3"
            ],
            &unhex(&pushed)
        ),
        out(3, &hex(&packet))
    );
}

#[test]
fn labels_on_packets_without_a_ttl_have_none() {
    let addresses = "020000000002020000000001";
    assert_eq!(
        run(
            &["arp,actions=push_mpls:0x8847,push_mpls:0x8847,output:2"],
            &unhex(&format!("{addresses} 0806 00010800"))
        ),
        out(2, &format!("{addresses} 8847 00000000 00000100 00010800"))
    );
}

#[test]
fn fields_that_tell_headers_apart_are_set() {
    // The type behind all tags; in the SNAP header; frames without a type keep their length.
    let typed = |kind: &str| format!("020000000002 020000000001 8100 0007 {kind} 4500");
    let set = ["actions=set_field:0x8848->eth_type,goto_table:1", "table=1,dl_type=0x8848,actions=output:2"];
    assert_eq!(run(&set, &unhex(&typed("0800"))), out(2, &typed("8848")));
    let snap = |kind: &str| format!("020000000002 020000000001 000a aaaa03 000000 {kind} 4500");
    assert_eq!(run(&set, &unhex(&snap("0800"))), out(2, &snap("8848")));
    let short = "020000000002 020000000001 0003 424203";
    assert_eq!(run(&[set[0], "table=1,actions=output:2"], &unhex(short)), out(2, short));
    // The bottom of the label stack.
    let label = |bottom: &str| format!("020000000002 020000000001 8847 0006 4{bottom}40 4500");
    let set = ["mpls,actions=set_field:0->mpls_bos,goto_table:1", "table=1,mpls,mpls_bos=0,actions=output:2"];
    assert_eq!(run(&set, &unhex(&label("1"))), out(2, &label("0")));
    // The protocol: IPv4's own, and in IPv6 the last header's; pseudo-headers have it.
    let set = ["ip,actions=set_field:6->ip_proto,goto_table:1", "table=1,ip,nw_proto=6,actions=output:2"];
    assert!(run(&set, &udp())[0].starts_with("2: "));
    let chained = |proto: &str, sum: &str| {
        let addresses = "20010db8000000000000000000000001 20010db8000000000000000000000002";
        let hops = format!("{proto} 00 0104 00000000");
        format!("020000000002 020000000001 86dd 60000000 0010 00 40 {addresses} {hops} 03e8 07d0 0008 {sum}")
    };
    let set = ["udp6,actions=set_field:6->ip_proto,goto_table:1", "table=1,ipv6,nw_proto=6,actions=output:2"];
    assert_eq!(run(&set, &unhex(&chained("11", "1234"))), out(2, &chained("06", "123f")));
    // Nicira's actions may not.
    let mut world = World::new(Version::V1_3);
    world.flow_mod(FlowModCommand::Add, "ip,actions=load:6->NXM_OF_IP_PROTO[],output:2");
    assert_eq!(world.errors(), ["OFPBAC_BAD_SET_ARGUMENT"]);
}

#[test]
fn backbone_headers_are_pushed_and_popped() {
    let packet = udp();
    let mut world = World::new(Version::V1_3);
    world.add("in_port=1,actions=push_pbb:0x88e7,set_field:0x30->pbb_isid,output:2");
    world.add("in_port=2,actions=pop_pbb,output:1");
    let pushed = world.packet(1, &packet);
    let wanted = format!("2: {}88e700000030{}", hex(&packet[..12]), hex(&packet));
    assert_eq!(pushed, std::slice::from_ref(&wanted));
    assert_eq!(world.packet(2, &unhex(&wanted[3..])), out(1, &hex(&packet)));
}

#[test]
fn ttl_expires() {
    let mut packet = udp();
    packet[22] = 1;
    assert_eq!(run(&["ip,actions=dec_ttl,output:2"], &packet), ["drop: TTL expired"]);
}

#[test]
fn resubmissions_return() {
    assert_eq!(ports(&["actions=resubmit(,1),output:4", "table=1,actions=output:2"]), ["2", "4"]);
    // A miss has no consequence, and a pretended port is one for the lookup only.
    assert_eq!(ports(&["actions=resubmit(,9),output:4"]), ["4"]);
    assert_eq!(
        ports(&["in_port=1,actions=resubmit(3,1)", "table=1,in_port=3,actions=in_port,output:3"]),
        ["1", "3"]
    );
    assert_eq!(ports(&["actions=resubmit(,1),output:4", "table=1,actions=output:2,exit"]), ["2"]);
    let storm = ports(&["actions=resubmit(,0),resubmit(,0)"]);
    assert!(storm.iter().all(|line| line == "drop"), "{storm:?}");
}

/// Flows of tables 66 to 2 that resubmit to the table before each.
fn backwards() -> Vec<String> {
    (2..=66).map(|table| format!("table={table},actions=resubmit(,{})", table - 1)).collect()
}

#[test]
fn resubmissions_have_a_depth_and_a_packet_beyond_it_leaves_nowhere() {
    let chain = backwards();
    let ports_from = |first: &str| {
        let flows =
            [&[first, "table=1,actions=output:2"], &chain.iter().map(String::as_str).collect::<Vec<_>>()[..]];
        ports(&flows.concat())
    };
    assert_eq!(ports_from("actions=output:3,resubmit(,65),output:4"), ["3", "2", "4"]);
    assert_eq!(ports_from("actions=output:3,resubmit(,66),output:4"), ["drop"]);
    // In a group's bucket, too, and what was said to controllers stays said.
    let mut world = World::new(Version::V1_3);
    world.add("actions=output:3,CONTROLLER,clone(resubmit(,66)),output:4");
    chain.iter().for_each(|flow| world.add(flow));
    assert_eq!(world.packet(1, &udp()), ["drop: recursion too deep"]);
    assert!(world.messages().iter().any(|message| matches!(message.body, Body::PacketIn(_))));
    let found = world.switch.foresee_failure(PortNo(1), &udp(), world.now).unwrap();
    assert_eq!(
        (found.to_string(), found.limit()),
        ("Recursion too deep".into(), "over max translation depth 64".into())
    );
    assert_eq!(world.switch.foresee(PortNo(1), &udp(), world.now).1, []);
}

#[test]
fn resubmissions_have_a_number() {
    let doubling = |levels: u8| {
        let twice = |table: u8| format!("table={table},actions=resubmit(,{0}),resubmit(,{0})", table + 1);
        let mut flows: Vec<_> = (0..levels).map(twice).collect();
        flows.push(format!("table={levels},actions=output:2"));
        ports(&flows.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (all, none) = (doubling(11), doubling(12));
    assert!(all.len() == 2048 && all.iter().all(|port| port == "2"), "{}", all.len());
    assert_eq!(none, ["drop"]);
}

#[test]
fn registers_stack_and_computed_outputs() {
    assert_eq!(ports(&["actions=load:3->NXM_NX_REG0[],output:NXM_NX_REG0[]"]), ["3"]);
    assert_eq!(
        ports(&[
            "actions=load:2->NXM_NX_REG5[4..19],push:NXM_NX_REG5[4..19],load:0->NXM_NX_REG5[],pop:NXM_NX_REG6[0..15],output:NXM_NX_REG6[]"
        ]),
        ["2"]
    );
    assert_eq!(ports(&["actions=pop:NXM_NX_REG6[],output:2"]), ["2"]);
    assert_eq!(
        ports(&[
            "actions=set_field:0x0000000400000003->xreg0,goto_table:1",
            "table=1,reg0=4,reg1=3,actions=output:NXM_NX_REG1[]"
        ]),
        ["3"]
    );
    assert_eq!(
        ports(&[
            "actions=check_pkt_larger(45)->NXM_NX_REG0[0],goto_table:1",
            "table=1,reg0=1,actions=output:2",
            "table=1,reg0=0,actions=output:3"
        ]),
        ["2"]
    );
    assert_eq!(
        ports(&[
            "actions=check_pkt_larger(46)->NXM_NX_REG0[0],goto_table:1",
            "table=1,reg0=1,actions=output:2",
            "table=1,reg0=0,actions=output:3"
        ]),
        ["3"]
    );
}

#[test]
fn copies_and_queues() {
    let flow = "actions=clone(set_field:00:00:00:00:00:09->eth_dst,output:2),output:3";
    let effects = run(&[flow], &udp());
    assert!(
        effects[0].starts_with("2: 000000000009") && effects[1].starts_with("3: 020000000002"),
        "{effects:?}"
    );
    assert_eq!(ports(&["actions=set_queue:7,output:2,pop_queue,output:3"]), ["2.7", "3"]);
    assert_eq!(ports(&["actions=note:01.02.03,output:2"]), ["2"]);
}

#[test]
fn reserved_ports() {
    assert_eq!(ports(&["actions=all"]), ["2", "3", "4"]);
    assert_eq!(ports(&["actions=flood"]), ["2", "3", "4"]);
    assert_eq!(ports(&["actions=in_port"]), ["1"]);
    assert_eq!(ports(&["actions=output:1,output:2"]), ["2"]);
    assert_eq!(ports(&["actions=normal"]), ["normal"]);
    assert_eq!(run(&["actions=local"], &udp()), ["drop: no such port"]);
}

#[test]
fn what_is_only_stored_drops_with_its_reason() {
    assert_eq!(run(&["ip,actions=ct(commit)"], &udp()), ["drop: connection tracking is not supported"]);
}

#[test]
fn fields_of_tunnels_stay_with_a_packet() {
    let flows = [
        "actions=set_field:1.2.3.4->tun_dst,set_field:5->tun_gbp_id,resubmit(,1)",
        "table=1,tun_dst=1.2.3.4,tun_src=0.0.0.0,tun_gbp_id=5,actions=output:2",
    ];
    assert_eq!(ports(&flows), ["2"]);
}

#[test]
fn options_of_tunnels_can_be_set_once_they_have_a_map() {
    use openflow::message::{TlvMap, TlvTableCommand, TlvTableMod};
    let mut world = World::new(Version::V1_3);
    let add = |world: &mut World, flow: &str| {
        world.flow_mod(FlowModCommand::Add, flow);
        world.errors()
    };
    let set = "actions=move:NXM_OF_ETH_DST[0..31]->tun_metadata1[0..31],output:tun_metadata1[0..15]";
    assert_eq!(add(&mut world, set), ["NXFMFC_INVALID_TLV_FIELD"]);
    let map = |kind, index| TlvMap { class: 0xffff, kind, length: 4, index };
    let maps = vec![map(1, 0), map(2, 1)];
    world.send(Body::TlvTableMod(TlvTableMod { command: TlvTableCommand::Add, maps }));
    assert_eq!(add(&mut world, set), [""; 0]);
    assert_eq!(add(&mut world, "actions=load:1->tun_metadata1[32..63]"), ["OFPBAC_BAD_SET_LEN"]);
    assert_eq!(add(&mut world, "ip,actions=ct(zone=tun_metadata2[0..15])"), ["NXFMFC_INVALID_TLV_FIELD"]);
    assert!(world.packet(1, &udp())[0].starts_with("2: "));
}

#[test]
fn controllers_get_the_fields_of_tunnels() {
    let mut world = World::new(Version::V1_3);
    world.add("actions=set_field:1.2.3.4->tun_dst,set_field:0x17->tun_id,controller");
    world.packet(1, &udp());
    let messages = world.messages();
    let [openflow::Message { body: Body::PacketIn(packet), .. }] = messages.as_slice() else {
        panic!("{messages:?}")
    };
    assert_eq!(openflow::text::match_text(&packet.fields), "tun_id=0x17,tun_dst=1.2.3.4,in_port=1");
}

#[test]
fn bundles_choose_live_ports() {
    let mut world = World::new(Version::V1_3);
    world.add("actions=bundle(eth_src,0,active_backup,ofport,members:2,3)");
    assert!(world.packet(1, &udp())[0].starts_with("2: "));
    let down = ofswitch::PortInfo {
        is_up: false,
        ..ofswitch::PortInfo::new(openflow::PortNo(2), "p2", [2, 0, 0, 0, 0, 2])
    };
    world.switch.set_port(down, 0).unwrap();
    assert!(world.packet(1, &udp())[0].starts_with("3: "));
    assert_eq!(
        ports(&[
            "ip,actions=multipath(symmetric_l4,50,modulo_n,1,0,NXM_NX_REG0[]),load:2->NXM_NX_REG0[],output:NXM_NX_REG0[]"
        ]),
        ["2"]
    );
}

#[test]
fn learned_flows_are_there_for_the_next_packet() {
    let mut world = World::new(Version::V1_3);
    world.add("table=0,actions=learn(table=1,hard_timeout=10,priority=5,cookie=0x9,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)");
    assert_eq!(world.packet(3, &udp()), ["drop: no destination"]);
    let mut back = udp();
    back.rotate_left(6);
    back[6..12].copy_from_slice(&udp()[..6]);
    back[..6].copy_from_slice(&udp()[6..12]);
    back[12..].copy_from_slice(&udp()[12..]);
    assert!(world.packet(1, &back)[0].starts_with("3: "));
    assert_eq!(world.switch.flow_count(), 3);
    world.switch.tick(20 * SECOND);
    assert_eq!(world.switch.flow_count(), 1);
}

#[test]
fn conjunctions_need_all_clauses() {
    let flows = [
        "priority=10,ip,nw_src=10.0.0.1,actions=conjunction(7,1/2)",
        "priority=10,ip,nw_src=10.0.0.5,actions=conjunction(7,1/2)",
        "priority=10,udp,tp_dst=2000,actions=conjunction(7,2/2)",
        "priority=10,conj_id=7,ip,actions=output:4",
        "priority=1,actions=output:2",
    ];
    assert_eq!(ports(&flows), ["4"]);
    assert_eq!(ports(&[flows[1], flows[2], flows[3], flows[4]]), ["2"]);
    let mut world = World::new(Version::V1_3);
    flows.iter().for_each(|flow| world.add(flow));
    world.flow_mod(openflow::message::FlowModCommand::Delete, "udp");
    assert!(world.packet(1, &udp())[0].starts_with("2: "));
    // An ordinary flow takes the place of a combination, and gives it back.
    world.add(flows[2]);
    world.add("priority=10,udp,nw_src=10.0.0.1,tp_dst=2000,actions=output:3");
    assert!(world.packet(1, &udp())[0].starts_with("3: "));
    world.flow_mod(
        openflow::message::FlowModCommand::DeleteStrict,
        "priority=10,udp,nw_src=10.0.0.1,tp_dst=2000",
    );
    assert_eq!(world.errors(), [""; 0]);
    assert!(world.packet(1, &udp())[0].starts_with("4: "));
}

/// A bucket that outputs to a port, with its weight and the port that it watches.
fn bucket(port: u32, weight: u16, watched: PortNo) -> Bucket {
    Bucket {
        id: 0,
        actions: vec![Action::Output(action::Output { port: PortNo(port), max_len: 0 })],
        properties: vec![
            BucketProperty::Weight(Padded16::new(weight)),
            BucketProperty::WatchPort(watched),
            BucketProperty::WatchGroup(openflow::version::group::ANY),
        ],
    }
}

#[test]
fn failover_groups_follow_ports() {
    let mut world = World::new(Version::V1_3);
    world.send(Body::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        kind: GroupKind::FastFailover,
        group: 5,
        buckets: vec![bucket(2, 0, PortNo(2)), bucket(3, 0, PortNo(3))],
        ..Default::default()
    }));
    world.add("actions=group:5");
    assert!(world.packet(1, &udp())[0].starts_with("2: "));
    world.switch.remove_port(openflow::PortNo(2));
    assert!(world.packet(1, &udp())[0].starts_with("3: "));
}

#[test]
fn select_groups_spread_arp_by_its_addresses() {
    let mut world = World::new(Version::V1_3);
    world.send(Body::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        kind: GroupKind::Select,
        group: 1,
        buckets: vec![bucket(2, 1, PortNo::ANY), bucket(3, 1, PortNo::ANY)],
        ..GroupMod::default()
    }));
    world.add("arp,actions=group:1");
    let arp = |host: u8| {
        let head = "ffffffffffff 020000000001 0806 0001080006040001 020000000001 0a000001 000000000000";
        unhex(&format!("{head} 0a0000{host:02x}"))
    };
    let to_second = (0..100).filter(|host| world.packet(1, &arp(*host))[0].starts_with("2: ")).count();
    assert!((20..=80).contains(&to_second), "{to_second}");
}

#[test]
fn controllers_get_packets_with_what_accompanies_them() {
    let mut world = World::new(Version::V1_3);
    world.send(Body::SetPacketInFormat(2));
    world.add("cookie=0x77,table=0,actions=load:5->NXM_NX_REG2[],controller(max_len=20,reason=invalid_ttl,userdata=01.02.03)");
    world.add("priority=0,table=1,actions=controller");
    world.send(Body::SetAsync(openflow::message::AsyncMasks { packet_in: 7, ..Default::default() }));
    assert_eq!(world.packet(1, &udp()), [""; 0]);
    let messages = world.messages();
    let [message] = messages.as_slice() else { panic!("{messages:?}") };
    let Body::PacketIn2(PacketIn2(properties)) = &message.body else { panic!("{message:?}") };
    let has = |wanted: &PacketProperty| properties.contains(wanted);
    assert!(has(&PacketProperty::Packet(openflow::property::Bytes(udp()[..20].to_vec()))));
    assert!(
        has(&PacketProperty::Cookie(openflow::property::Aligned64(0x77))) && has(&PacketProperty::TableId(0))
    );
    assert!(has(&PacketProperty::Reason(2)) && has(&PacketProperty::FullLen(46)));
    assert!(has(&PacketProperty::UserData(openflow::property::Bytes(vec![1, 2, 3]))));
    // The buffered packet leaves where the controller says.
    let buffer = properties.iter().find_map(|property| match property {
        PacketProperty::BufferId(number) => Some(*number),
        _ => None,
    });
    let output =
        openflow::action::Action::Output(openflow::action::Output { port: openflow::PortNo(4), max_len: 0 });
    let packet = openflow::message::PacketOut {
        buffer_id: buffer.unwrap(),
        in_port: openflow::PortNo(1),
        actions: vec![output],
        ..Default::default()
    };
    world.send(Body::PacketOut(packet.clone()));
    let effects: Vec<_> = world.switch.take_effects().iter().map(support::show).collect();
    assert_eq!(effects, out(4, &hex(&udp())));
    world.send(Body::PacketOut(packet));
    assert_eq!(world.errors(), ["OFPBRC_BUFFER_UNKNOWN"]);
}

#[test]
fn misses_go_to_controllers_of_old_versions_only() {
    for (version, wanted) in [(Version::V1_0, 1), (Version::V1_3, 0)] {
        let mut world = World::new(version);
        world.packet(1, &udp());
        let packets =
            world.messages().into_iter().filter(|message| matches!(message.body, Body::PacketIn(_))).count();
        assert_eq!(packets, wanted, "{version}");
    }
}

#[test]
fn ipv6_extension_headers_and_discovery() {
    let head = "020000000002020000000001 86dd 60000000 0020 3aff";
    let addresses = "fe800000000000000000000000000001 ff020000000000000000000000000001";
    let solicitation =
        format!("{head} {addresses} 8700 0000 00000000 fe800000000000000000000000000009 0101 0a0b0c0d0e0f");
    let flow =
        "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=fe80::9,nd_sll=0a:0b:0c:0d:0e:0f,actions=output:2";
    assert_eq!(run(&[flow], &unhex(&solicitation)), out(2, &solicitation));
    let fragment = format!(
        "020000000002020000000001 86dd 60000000 0010 2cff {addresses} 1100 0001 00000001 00010002 00080000"
    );
    assert_eq!(run(&["udp6,ip_frag=first,actions=output:2"], &unhex(&fragment)), out(2, &fragment));
    // The ports of fragments are hidden.
    assert_eq!(run(&["udp6,tp_src=1,actions=output:2"], &unhex(&fragment)), ["drop: no flow matches"]);
}

#[test]
fn outputs_to_all_ports_are_limited_together() {
    let mut world = World::new(Version::V1_3);
    for number in 5..=1000 {
        let name = format!("p{number}");
        let number = openflow::PortNo(number);
        let info = ofswitch::PortInfo::new(number, name, [2; 6]);
        world.switch.set_port(info, 0).unwrap();
    }
    world.add(&format!("actions={}", vec!["ALL"; 100].join(",")));
    let effects = world.packet(1, &udp());
    assert_eq!(effects.len(), 4097);
    assert_eq!(effects.last().unwrap(), "drop: the packet leaves too many times");
}

/// Adds flows, sends packets from port 1, and returns reason, table and cookie of each packet-in.
fn packet_ins(flows: &[&str], packet: &[u8]) -> Vec<(u8, u8, u64)> {
    let mut world = World::new(Version::V1_3);
    world.send(Body::SetPacketInFormat(2));
    world.send(Body::SetAsync(openflow::message::AsyncMasks { packet_in: 0x3f, ..Default::default() }));
    flows.iter().for_each(|flow| world.add(flow));
    world.packet(1, packet);
    let mut found = vec![];
    for message in world.messages() {
        let Body::PacketIn2(PacketIn2(properties)) = message.body else { continue };
        let mut origin = (0xff, 0xff, 0);
        for property in properties {
            match property {
                PacketProperty::Reason(reason) => origin.0 = reason,
                PacketProperty::TableId(table) => origin.1 = table,
                PacketProperty::Cookie(cookie) => origin.2 = cookie.0,
                _ => {}
            }
        }
        found.push(origin);
    }
    found
}

#[test]
fn packets_for_controllers_state_reason_and_origin_as_open_vswitch_does() {
    let mut expired = udp();
    expired[22] = 1;
    // Versions before 1.4 do not tell the action set from other actions, whatever the form.
    assert_eq!(packet_ins(&["cookie=7,actions=write_actions(CONTROLLER)"], &udp()), [(1, 0, 7)]);
    assert_eq!(packet_ins(&["priority=0,cookie=7,actions=controller(userdata=01)"], &udp()), [(0, 0, 7)]);
    assert_eq!(
        packet_ins(&["priority=0,cookie=7,actions=controller(reason=invalid_ttl,max_len=99)"], &udp()),
        [(2, 0, 7)]
    );
    assert_eq!(packet_ins(&["ip,cookie=7,actions=write_actions(dec_ttl,output:2)"], &expired), [(2, 0, 7)]);
}

#[test]
fn an_action_set_without_an_output_does_nothing() {
    let mut expired = udp();
    expired[22] = 1;
    assert_eq!(packet_ins(&["ip,actions=write_actions(dec_ttl)"], &expired), []);
    assert_eq!(
        run(&["actions=write_actions(output:2),goto_table:1", "table=1,actions=exit"], &udp()),
        ["drop: no destination"]
    );
}

#[test]
fn action_sets_and_buckets_leave_ip_behind_labels_alone() {
    let packet = udp();
    let (ethernet, rest) = packet.split_at(12);
    let labelled = format!("{} 8847 0000 7109 {}", hex(ethernet), hex(&rest[2..]));
    let actions =
        "set_field:9.9.9.9->ip_dst,dec_ttl,push_mpls:0x8847,set_mpls_label:7,set_mpls_ttl:9,output:2";
    let flow = format!("ip,actions=write_actions({actions})");
    assert_eq!(run(&[&flow], &packet), out(2, &labelled));
    let mut world = World::new(Version::V1_3);
    let group = format!("group_id=1,type=indirect,bucket=actions={actions}");
    let group = openflow::text::parse_group(&group, GroupModCommand::Add, Version::V1_3).unwrap();
    world.send(Body::GroupMod(group));
    world.add("ip,actions=group:1");
    assert_eq!(world.packet(1, &packet), out(2, &labelled));
}

#[test]
fn later_fragments_of_ipv6_have_the_protocol_of_fragments() {
    let fragment = "020000000002020000000001 86dd 60000000 0010 2c40 fe800000000000000000000000000001 \
                    fe800000000000000000000000000002 1100 0009 00000001 00010002 00080000";
    assert_eq!(run(&["udp6,actions=output:2"], &unhex(fragment)), ["drop: no flow matches"]);
    assert_eq!(run(&["ipv6,nw_proto=44,ip_frag=later,actions=output:2"], &unhex(fragment)), out(2, fragment));
}

#[test]
fn the_type_of_service_has_no_ecn_bits() {
    let mut packet = udp();
    packet[15] = 0x2b;
    let mut sent = packet.clone();
    sent[11] = 0x28;
    assert_eq!(
        run(&["ip,actions=move:NXM_OF_IP_TOS[]->NXM_OF_ETH_SRC[0..7],output:2"], &packet),
        out(2, &hex(&sent))
    );
}
