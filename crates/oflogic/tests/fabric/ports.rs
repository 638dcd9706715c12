//! Ports: numbers, configuration, statistics.

use std::sync::Arc;

use fabric::protection::{EgressLimits, QueueLimits};
use fabric::{DropReason, PortIndex, PortSettings};
use openflow::PortNo;
use openflow::message::{Body, PortConfig, PortReason, PortState};
use openflow::multipart::{PortRequest, Reply, Request};

use crate::frames::{plain, tagged};
use crate::normal::configure;
use crate::rig::{ALL, By, PORTS, Rig, facts, wait_for};

fn numbers(rig: &Rig) -> Vec<(u16, u32)> {
    rig.logic.ports().iter().map(|port| (port.index.0, port.number.0)).collect()
}

#[test]
fn ports_come_go_and_come_back() {
    let mut rig = Rig::new(By::Code);
    assert_eq!(numbers(&rig), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    let gone = rig.clients.remove(1);
    rig.switch.remove_port(gone.at).unwrap();
    assert_eq!(numbers(&rig), [(0, 1), (2, 3), (3, 4)]);
    // The thread tells controllers.
    let told = wait_for("a port status", || {
        rig.messages().into_iter().find_map(|body| match body {
            Body::PortStatus(status) if status.reason == PortReason::Delete => Some(status.port.number),
            _ => None,
        })
    });
    assert_eq!(told, PortNo(2));
    rig.add_port(PortSettings::new("other"));
    rig.add_port(PortSettings::new("p2"));
    assert_eq!(numbers(&rig), [(0, 1), (1, 5), (2, 3), (3, 4), (4, 2)]);
    assert_eq!(rig.logic.port(PortNo(5)), Some(PortIndex(1)));
    let Reply::PortDesc(ports) = rig.statistics(Request::PortDesc(Default::default())) else { panic!() };
    let names: Vec<_> = ports
        .iter()
        .map(|port| (port.number.0, String::from_utf8_lossy(&port.name.0).into_owned()))
        .collect();
    let expected = [(1, "p1"), (2, "p2"), (3, "p3"), (4, "p4"), (5, "other")];
    assert_eq!(names, expected.map(|(number, name)| (number, name.to_owned())));
}

#[test]
fn links_are_told() {
    let rig = Rig::new(By::Code);
    rig.switch.set_link(rig.at(2).at, false).unwrap();
    let state = wait_for("a port status", || {
        rig.messages().into_iter().find_map(|body| match body {
            Body::PortStatus(status) => Some(status.port.state),
            _ => None,
        })
    });
    assert!(state.contains(PortState::LINK_DOWN));
    rig.switch.set_link(rig.at(2).at, true).unwrap();
    rig.logic.set_ports(&[facts(rig.at(2).at.port, true)]);
    let [Body::PortStatus(status)] = &rig.messages()[..] else { panic!() };
    assert!(!status.port.state.contains(PortState::LINK_DOWN));
}

#[test]
fn packets_on_remembered_ways_heed_what_becomes_of_ports() {
    let mut rig = Rig::new(By::Code);
    rig.add(&["dl_dst=02:00:00:00:00:02,actions=output:2", "dl_dst=02:00:00:00:00:03,actions=output:3"]);
    rig.specialise();
    let run = |rig: &Rig| {
        let delivered = || [1, 2, 3].map(|number| rig.at(number).delivered());
        let before = delivered();
        rig.at(1).send([2, 3, 2].map(|to| plain(to, 9, 0)));
        rig.at(1).settle();
        let after = delivered();
        [0, 1, 2].map(|i| after[i] - before[i])
    };
    // The ways are found out, then the fronts, then all packets find their ways.
    for _ in 0..4 {
        assert_eq!(run(&rig), [0, 2, 1]);
    }
    configure(&rig, 3, PortConfig::PORT_DOWN);
    assert_eq!(run(&rig), [0, 2, 0]);
    assert_eq!(rig.counter("dropped_port_configuration"), 1);
    configure(&rig, 3, PortConfig::empty());
    assert_eq!(run(&rig), [0, 2, 1]);
    configure(&rig, 1, PortConfig::NO_RECV);
    assert_eq!(run(&rig), [0; 3]);
    configure(&rig, 1, PortConfig::empty());
    let gone = rig.clients.remove(1);
    rig.switch.remove_port(gone.at).unwrap();
    rig.at(1).send([plain(2, 9, 0), plain(2, 9, 0)]);
    rig.at(1).settle();
    assert_eq!(rig.drops(1, DropReason::NoPort), 2);
}

#[test]
fn configured_ports_receive_and_send_nothing() {
    let rig = Rig::new(By::Code);
    rig.add(&["in_port=1,actions=output:2", "in_port=3,actions=output:4"]);
    configure(&rig, 1, PortConfig::NO_RECV);
    configure(&rig, 4, PortConfig::PORT_DOWN);
    for from in [1, 3] {
        rig.at(from).send([plain(2, 1, 0)]);
        rig.at(from).settle();
        assert_eq!(rig.drops(from, DropReason::Logic), 1);
    }
    assert_eq!((rig.at(2).delivered(), rig.at(4).delivered()), (0, 0));
    assert_eq!(rig.counter("dropped_port_configuration"), 2);
    configure(&rig, 1, PortConfig::empty());
    rig.at(1).send([plain(2, 1, 1)]);
    assert_eq!(rig.at(2).take(1), [plain(2, 1, 1)]);
}

#[test]
fn statistics_are_the_fabrics() {
    let rig = Rig::new(By::Code);
    rig.add(&["in_port=1,dl_type=0x88b5,actions=output:2"]);
    let mut odd = plain(2, 1, 2);
    odd[13] = 0xb6;
    rig.at(1).send([plain(2, 1, 0), plain(2, 1, 1), odd]);
    rig.at(1).settle();
    let Reply::PortStats(ports) = rig.statistics(Request::PortStats(PortRequest(PortNo::ANY))) else {
        panic!()
    };
    let of = |number: u32| ports.iter().find(|port| port.port.0 == number).unwrap();
    assert_eq!((of(1).rx_packets, of(1).rx_bytes, of(1).rx_dropped), (3, 180, 1));
    assert_eq!((of(2).tx_packets, of(2).tx_bytes), (2, 120));
}

#[test]
fn ports_without_facts_take_no_part() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=FLOOD"]);
    let at = rig.switch.add_port(rig.bridge, PortSettings::new("unknown")).unwrap();
    assert_eq!(numbers(&rig).len(), 4);
    rig.switch.remove_port(at).unwrap();
}

/// Packets that left in each queue of a port.
fn by_queue(rig: &Rig, port: usize) -> Vec<(u16, u64)> {
    let counters = rig.switch.counters(rig.at(port).at).unwrap();
    counters.egress.iter().map(|it| (it.queue, it.packets)).collect()
}

#[test]
fn actions_choose_the_queues_of_a_ports_limits() {
    for by in ALL {
        let rig = Rig::new(by);
        for port in 2..=PORTS {
            let queues = [1, 2, 0xffff].map(|number| (number, QueueLimits::default()));
            let limits = EgressLimits { queues: queues.into(), ..EgressLimits::default() };
            let mut settings = rig.switch.settings(rig.at(port).at).unwrap();
            settings.egress = Some(Arc::new(limits));
            rig.switch.set_port(rig.at(port).at, settings).unwrap();
        }
        let outputs = "set_queue:1,output:2,set_queue:2,output:2,output:3,pop_queue,output:2,output:3";
        rig.add(&[
            &format!("priority=9,dl_vlan=1,actions={outputs}"),
            "priority=9,dl_vlan=2,actions=set_queue:2,normal",
            "priority=9,dl_vlan=3,actions=set_queue:1,pop_vlan,flood",
            // A number that is too large is no other queue's.
            "priority=9,dl_vlan=4,actions=set_queue:65537,output:2",
            "priority=9,dl_vlan=5,actions=write_actions(set_queue:1,output:4)",
            "priority=1,actions=output:2",
        ]);
        let untagged = plain(1, 2, 0);
        let got = rig.run(1, (1..=5).map(|vid| tagged(&untagged, vid)).chain([untagged.clone()]));
        assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [0, 7, 4, 3], "{by:?}");
        // The marker behind them is in queue 0.
        assert_eq!(by_queue(&rig, 2), [(0, 3), (1, 2), (2, 2), (0xffff, 1)], "{by:?}");
        assert_eq!(by_queue(&rig, 3), [(0, 2), (1, 1), (2, 2), (0xffff, 0)], "{by:?}");
        assert_eq!(by_queue(&rig, 4), [(0, 1), (1, 2), (2, 1), (0xffff, 0)], "{by:?}");
    }
}
