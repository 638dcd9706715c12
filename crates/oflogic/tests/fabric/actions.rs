//! What flows do with packets, with both kinds of machine code and with the interpreter.

use fabric::DropReason;
use openflow::action::{Action, Output};
use openflow::message::{
    Band, BandKind, Body, Bucket, BucketProperty, GroupKind, GroupMod, GroupModCommand, MeterFlags, MeterMod,
    MeterModCommand,
};
use openflow::multipart::{FlowStatsRequest, Reply, Request};
use openflow::property::Padded16;
use openflow::{PortNo, version};

use crate::frames::{checksums_hold, frame, plain, tagged, udp};
use crate::rig::{ALL, By, Rig, wait_for};

/// What ports 1 to 4 get of a frame from port 1.
fn run(by: By, flows: &[&str], sent: Vec<u8>) -> Vec<Vec<Vec<u8>>> {
    let rig = Rig::new(by);
    rig.add(flows);
    rig.run(1, [sent])
}

/// Numbers of the ports that get a frame from port 1, which is not changed on its way.
fn ports(by: By, flows: &[&str], sent: &[u8]) -> Vec<usize> {
    let got = run(by, flows, sent.to_vec());
    assert!(got.iter().flatten().all(|frame| frame == sent), "{got:02x?}");
    (1..).zip(&got).flat_map(|(number, frames)| frames.iter().map(move |_| number)).collect()
}

#[test]
fn packets_that_no_flow_matches_are_dropped() {
    let rig = Rig::new(By::Code);
    rig.at(1).send([udp(), plain(2, 1, 0)]);
    rig.at(1).settle();
    assert_eq!(rig.drops(1, DropReason::NoDestination), 2);
    assert_eq!(rig.counter("dropped_no_flow_matches"), 2);
    let rig = Rig::new(By::Interpreter);
    assert_eq!(rig.run(1, [udp()]).concat().len(), 0);
}

#[test]
fn outputs_reach_their_ports() {
    for by in ALL {
        assert_eq!(ports(by, &["in_port=1,actions=output:2", "actions=output:3"], &udp()), [2]);
        assert_eq!(ports(by, &["in_port=2,actions=output:2", "actions=output:3"], &udp()), [3]);
        assert_eq!(ports(by, &["actions=output:2,output:4,output:2"], &udp()), [2, 2, 4]);
        assert_eq!(ports(by, &["actions=output:1"], &udp()), [0; 0]);
        assert_eq!(ports(by, &["actions=IN_PORT"], &udp()), [1]);
        assert_eq!(ports(by, &["actions=FLOOD"], &udp()), [2, 3, 4]);
        assert_eq!(ports(by, &["actions=output:77"], &udp()), [0; 0]);
        assert_eq!(ports(by, &["udp,tp_dst=2000,nw_src=10.0.0.0/24,actions=output:2"], &udp()), [2]);
        assert_eq!(ports(by, &["udp,tp_dst=2001,actions=output:2"], &udp()), [0; 0]);
        let tables = ["actions=goto_table:5", "table=5,ip,actions=write_actions(output:3)"];
        assert_eq!(ports(by, &tables, &udp()), [3]);
    }
}

#[test]
fn a_packet_that_exceeds_a_limit_leaves_nowhere() {
    for by in ALL {
        assert_eq!(ports(by, &["actions=output:2,resubmit(,0),output:3"], &udp()), [0; 0]);
        let doubling =
            (0..12).map(|n| format!("table={n},actions=output:2,resubmit(,{0}),resubmit(,{0})", n + 1));
        let flows: Vec<_> = doubling.chain(["table=12,actions=output:3".to_owned()]).collect();
        assert_eq!(ports(by, &flows.iter().map(String::as_str).collect::<Vec<_>>(), &udp()), [0; 0]);
    }
    let rig = Rig::new(By::Code);
    rig.add(&["actions=output:2,resubmit(,0)"]);
    rig.run(1, [udp(), udp()]);
    assert_eq!(rig.counter("dropped_recursion_too_deep"), 2);
    // The log tells of one packet in a while.
    assert_eq!(rig.counter("upcalls"), 1);
}

#[test]
fn fields_are_set_with_their_checksums() {
    for by in ALL {
        let flow = "udp,actions=set_field:02:00:00:00:00:09->eth_dst,set_field:192.0.2.7->ip_dst,set_field:53->udp_dst,dec_ttl,output:2";
        let got = run(by, &[flow], udp());
        let [changed] = &got[1][..] else { panic!("{got:02x?}") };
        let mut expected = udp();
        expected[5] = 9;
        expected[30..34].copy_from_slice(&[192, 0, 2, 7]);
        expected[36..38].copy_from_slice(&53u16.to_be_bytes());
        expected[22] = 63;
        // Checksums are checked apart.
        for at in [24, 25, 40, 41] {
            expected[at] = changed[at];
        }
        assert_eq!((changed, checksums_hold(changed)), (&expected, true), "{by:?}");
    }
}

#[test]
fn every_output_has_the_form_of_its_time() {
    for by in ALL {
        let actions = "actions=output:2,push_vlan:0x8100,set_field:4103->vlan_vid,output:3,set_field:02:00:00:00:00:09->eth_dst,output:4,pop_vlan,output:2";
        let got = run(by, &[actions], udp());
        let mut moved = tagged(&udp(), 7);
        moved[5] = 9;
        let mut last = udp();
        last[5] = 9;
        assert_eq!(got, [vec![], vec![udp(), last], vec![tagged(&udp(), 7)], vec![moved]], "{by:?}");
        let popped = run(by, &["dl_vlan=7,actions=pop_vlan,output:2"], tagged(&udp(), 7));
        assert_eq!(popped[1], [udp()]);
    }
}

#[test]
fn long_packets_keep_their_ends() {
    for by in ALL {
        let long = frame(2, 1, [0x88, 0xb5], 5, 1500);
        let got =
            run(by, &["actions=output:2,push_vlan:0x8100,set_field:4103->vlan_vid,output:3"], long.clone());
        assert_eq!(got, [vec![], vec![long.clone()], vec![tagged(&long, 7)], vec![]]);
    }
}

#[test]
fn headers_beyond_the_usual_front_are_seen() {
    // IPv6, destination options of 160 bytes, UDP: the ports are behind the 128 bytes that are always there.
    let mut packet = frame(2, 1, [0x86, 0xdd], 0x60, 54 + 160 + 8 + 40);
    packet[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 208, 60, 64]);
    packet[54..56].copy_from_slice(&[17, 19]);
    packet[214..218].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0]);
    for by in ALL {
        assert_eq!(ports(by, &["udp6,tp_dst=2000,actions=output:2", "actions=output:3"], &packet), [2]);
    }
}

fn bucket(weight: u16, watch: u32, actions: &[u32]) -> Bucket {
    let output = |port: &u32| Action::Output(Output { port: PortNo(*port), max_len: 0 });
    Bucket {
        id: 0,
        actions: actions.iter().map(output).collect(),
        properties: vec![
            BucketProperty::Weight(Padded16::new(weight)),
            BucketProperty::WatchPort(PortNo(watch)),
            BucketProperty::WatchGroup(version::group::ANY),
        ],
    }
}

fn add_group(rig: &Rig, kind: GroupKind, buckets: Vec<Bucket>) {
    let command_bucket = openflow::message::bucket::ALL;
    let group = GroupMod {
        command: GroupModCommand::Add,
        kind,
        group: 1,
        buckets,
        command_bucket,
        ..GroupMod::default()
    };
    rig.ask(Body::GroupMod(group));
    rig.add(&["actions=group:1"]);
}

#[test]
fn groups_choose_among_buckets() {
    let any = PortNo::ANY.0;
    for by in ALL {
        let rig = Rig::new(by);
        // A bucket is an action set: of several outputs the last one counts.
        add_group(&rig, GroupKind::All, vec![bucket(0, any, &[2]), bucket(0, any, &[4, 3])]);
        let got = rig.run(1, [udp()]);
        assert_eq!(got, [vec![], vec![udp()], vec![udp()], vec![]], "{by:?}");

        let rig = Rig::new(by);
        add_group(&rig, GroupKind::Select, vec![bucket(1, any, &[2]), bucket(1, any, &[3])]);
        let frames: Vec<_> = (0..40).map(|n| plain(2, n, n)).collect();
        let got = rig.run(1, frames);
        let counts: Vec<usize> = got.iter().map(Vec::len).collect();
        assert_eq!(counts.iter().sum::<usize>(), 40);
        assert!(counts[1] > 5 && counts[2] > 5, "{counts:?}");
    }
}

#[test]
fn failover_follows_links() {
    for by in ALL {
        let rig = Rig::new(by);
        add_group(&rig, GroupKind::FastFailover, vec![bucket(0, 2, &[2]), bucket(0, 3, &[3])]);
        assert_eq!(rig.run(1, [udp()])[1], [udp()]);
        rig.switch.set_link(rig.at(2).at, false).unwrap();
        rig.logic.set_ports(&[]);
        // The port takes no marker either.
        rig.at(1).send([udp()]);
        assert_eq!(rig.at(3).take(1), [udp()], "{by:?}");
        assert_eq!(rig.at(2).delivered(), 0);
    }
}

#[test]
fn meters_drop_what_exceeds_their_rate() {
    for by in ALL {
        let rig = Rig::new(by);
        let bands = vec![Band { rate: 1, burst: 5, kind: BandKind::Drop }];
        let flags = MeterFlags::PKTPS | MeterFlags::BURST;
        rig.ask(Body::MeterMod(MeterMod { command: MeterModCommand::Add, flags, meter: 1, bands }));
        rig.add(&["actions=meter:1,output:2"]);
        let got = rig.run(1, (0..50).map(|n| plain(2, 1, n)))[1].len();
        // One more for each second that this takes.
        assert!((5..20).contains(&got), "{got} of 50 packets, {by:?}");
    }
}

#[test]
fn learned_flows_apply_to_later_packets() {
    for by in ALL {
        let rig = Rig::new(by);
        rig.add(&[
            "table=0,actions=learn(table=1,priority=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
            "table=1,priority=0,actions=FLOOD",
        ]);
        assert_eq!(rig.run(1, [plain(2, 1, 0)]).concat().len(), 3);
        let flows = || rig.logic.switch().with(|switch, _| switch.flow_count());
        // Two flows, the marker's, and the learned one.
        wait_for("a learned flow", || (flows() == 4).then_some(()));
        let back = plain(1, 2, 1);
        assert_eq!(rig.run(3, [back.clone()]), [vec![back], vec![], vec![], vec![]], "{by:?}");
    }
}

#[test]
fn code_and_interpreter_count_alike() {
    let flow = |by| {
        let rig = Rig::new(by);
        rig.add(&["priority=7,udp,actions=output:2", "priority=1,actions=output:3"]);
        rig.run(1, [udp(), plain(2, 1, 0), udp()]);
        let request = FlowStatsRequest {
            table_id: version::table::ALL,
            out_port: PortNo::ANY,
            out_group: version::group::ANY,
            ..FlowStatsRequest::default()
        };
        let Reply::Flow(flows) = rig.statistics(Request::Flow(request)) else { panic!("no flows") };
        let mut counts: Vec<_> =
            flows.iter().map(|flow| (flow.priority, flow.stats.packets(), flow.stats.bytes())).collect();
        counts.sort_unstable();
        let tables = rig.logic.switch().with(|switch, _| switch.table_summaries());
        (counts, tables[0].lookups, tables[0].hits)
    };
    let expected = vec![(1, Some(1), Some(60)), (7, Some(2), Some(92)), (65535, Some(1), Some(60))];
    assert_eq!(flow(By::Code), (expected, 4, 4));
    assert_eq!(flow(By::Specialised), flow(By::Code));
    assert_eq!(flow(By::Interpreter), flow(By::Code));
}
