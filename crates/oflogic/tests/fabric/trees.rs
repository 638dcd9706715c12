//! Spanning trees: ports that do not forward. Ports 2 and 3 take part in the tree of each test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fabric::DropReason;
use oflogic::{PortFacts, PortState, Protocol, TreeView};
use openflow::PortNo;
use openflow::message::{Body, PacketOut, PortConfig, PortState as Shown};
use openflow::multipart::{Reply, Request};

use crate::frames::plain;
use crate::normal::configure;
use crate::rig::{ALL, By, Rig, facts, wait_for};

fn rig(by: By) -> Rig {
    let rig = Rig::new(by);
    let in_tree = |number: usize| {
        let facts = facts(rig.at(number).at.port, true);
        PortFacts { in_tree: true, ..facts }
    };
    rig.logic.set_ports(&[in_tree(2), in_tree(3)]);
    rig.messages();
    rig
}

fn set(rig: &Rig, states: [PortState; 2]) {
    let ports = ["p2", "p3"].map(str::to_owned).into_iter().zip(states);
    rig.logic.set_tree(Some(TreeView { protocol: Protocol::Rstp, ports: BTreeMap::from_iter(ports) }));
}

/// Waits until all frames that a port has sent have gone where they go, also those that the interpreter takes.
fn settle(rig: &Rig, from: usize) {
    rig.at(from).settle();
    wait_for("packets on their way", || rig.logic.is_settled().then_some(()));
}

/// Sends frames from a port; returns the numbers of those that each port got.
fn run<const N: usize>(rig: &Rig, from: usize, frames: [Vec<u8>; N]) -> Vec<Vec<u8>> {
    rig.at(from).send(frames);
    settle(rig, from);
    let of =
        |port: usize| rig.at(port).take(rig.at(port).delivered()).iter().map(|frame| frame[14]).collect();
    (1..=4).map(of).collect()
}

fn stations(rig: &Rig) -> Vec<(u8, u16)> {
    use logic::Logic;
    let entries = rig.logic.views().stations.unwrap().entries();
    let mut all: Vec<_> = entries.iter().map(|entry| (entry.mac.0[5], entry.port.0 + 1)).collect();
    all.sort_unstable();
    all
}

/// A frame to the bridges' group, with a length: a BPDU.
fn bpdu(number: u8) -> Vec<u8> {
    let mut frame = vec![1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 9, 0, 38];
    frame.extend([0x42, 0x42, 3, number]);
    frame.resize(60, 0);
    frame
}

#[test]
fn blocked_ports_neither_receive_nor_send() {
    for by in ALL {
        let rig = rig(by);
        rig.add(&["actions=NORMAL", "priority=40000,dl_dst=02:00:00:00:00:05,actions=output:3,output:4"]);
        set(&rig, [PortState::Forwarding, PortState::Blocking]);
        assert_eq!(run(&rig, 1, [plain(0xff, 1, 1)]), [vec![], vec![1], vec![], vec![1]], "{by:?}");
        assert_eq!(run(&rig, 2, [plain(0xff, 2, 2), plain(5, 2, 3)]), [vec![2], vec![], vec![], vec![2, 3]]);
        rig.at(3).send([plain(0xff, 3, 4), plain(5, 3, 5)]);
        settle(&rig, 3);
        assert_eq!(rig.drops(3, DropReason::Logic), 2, "{by:?}");
        assert_eq!(stations(&rig).iter().filter(|(station, _)| *station == 3).count(), 0, "{by:?}");
        set(&rig, [PortState::Forwarding, PortState::Forwarding]);
        assert_eq!(run(&rig, 3, [plain(0xff, 3, 6)]), [vec![6], vec![6], vec![], vec![6]], "{by:?}");
    }
}

#[test]
fn learning_ports_learn_and_forward_nothing() {
    for by in [By::Code, By::Specialised] {
        let rig = rig(by);
        rig.add(&["actions=NORMAL", "priority=40000,dl_dst=02:00:00:00:00:05,actions=output:4,CONTROLLER"]);
        set(&rig, [PortState::Forwarding, PortState::Learning]);
        rig.at(3).send([plain(0xff, 3, 1), plain(5, 6, 2)]);
        settle(&rig, 3);
        assert_eq!(rig.drops(3, DropReason::Logic), 2, "{by:?}");
        // Flows decide what NORMAL learns.
        assert_eq!(stations(&rig), [(3, 3)], "{by:?}");
        assert_eq!((rig.at(1).delivered(), rig.at(4).delivered()), (0, 0), "{by:?}");
        assert!(!rig.messages().iter().any(|body| matches!(body, Body::PacketIn(_))), "{by:?}");
        // Nothing is sent to the port.
        assert_eq!(run(&rig, 1, [plain(3, 1, 3)]), vec![vec![]; 4], "{by:?}");
    }
}

#[test]
fn a_port_whose_state_is_not_known_is_blocked() {
    let rig = rig(By::Code);
    rig.logic.set_standalone(true);
    rig.at(1).send([plain(0xff, 1, 1)]);
    assert_eq!(rig.at(4).take(1), [plain(0xff, 1, 1)]);
    rig.at(2).send([plain(0xff, 2, 2)]);
    settle(&rig, 2);
    assert_eq!((rig.at(2).delivered(), rig.at(3).delivered(), rig.drops(2, DropReason::Logic)), (0, 0, 1));
    // A bridge without a tree forwards.
    rig.logic.set_ports(&[2, 3].map(|number| facts(rig.at(number).at.port, true)));
    rig.at(2).send([plain(0xff, 2, 3)]);
    assert_eq!(rig.at(3).take(1), [plain(0xff, 2, 3)]);
}

#[test]
fn bpdus_are_for_the_control_side() {
    let rig = rig(By::Code);
    rig.add(&["actions=output:4"]);
    let got = Arc::new(Mutex::new(Vec::new()));
    let sink = got.clone();
    rig.logic.set_bpdu_sink(move |port, frame| sink.lock().unwrap().push((port.to_owned(), frame[17])));
    set(&rig, [PortState::Forwarding, PortState::Blocking]);
    rig.at(2).send([bpdu(1)]);
    rig.at(3).send([bpdu(2)]);
    // A port that takes no part.
    rig.at(1).send([bpdu(3)]);
    settle(&rig, 1);
    let both = wait_for("two BPDUs", || Some(got.lock().unwrap().clone()).filter(|got| got.len() == 2));
    assert!(both.contains(&("p2".into(), 1)) && both.contains(&("p3".into(), 2)), "{both:?}");
    assert_eq!((rig.drops(1, DropReason::ReservedGroup), rig.at(4).delivered()), (1, 0));
    // Controllers may have a port not hear them.
    configure(&rig, 2, PortConfig::NO_RECV_STP);
    rig.at(2).send([bpdu(4)]);
    settle(&rig, 2);
    assert_eq!(rig.drops(2, DropReason::ReservedGroup), 1);
    rig.logic.set_tree(None);
    rig.logic.set_ports(&[2, 3].map(|number| facts(rig.at(number).at.port, true)));
    rig.at(3).send([bpdu(5)]);
    assert_eq!(rig.at(4).take(1), [bpdu(5)], "without a tree, flows decide");
}

/// A neighbour that floods BPDUs takes neither the time of the control side nor the room of other ports.
#[test]
fn a_port_that_floods_bpdus_loses_its_own() {
    let rig = rig(By::Code);
    let got = Arc::new(Mutex::new(Vec::new()));
    let sink = got.clone();
    rig.logic.set_bpdu_sink(move |port, _| sink.lock().unwrap().push(port.to_owned()));
    set(&rig, [PortState::Forwarding, PortState::Forwarding]);
    // Within a second or two: the limit holds for each second.
    for _ in 0..50 {
        rig.at(2).send(std::array::from_fn::<_, 20, _>(|number| bpdu(number as u8)));
        settle(&rig, 2);
    }
    rig.at(3).send([bpdu(1)]);
    settle(&rig, 3);
    let got = got.lock().unwrap();
    let of = |name: &str| got.iter().filter(|port| *port == name).count() as u64;
    assert_eq!(of("p3"), 1);
    assert_eq!(of("p2") + rig.drops(2, DropReason::ControllerQueue), 1000);
    assert!((64..1000).contains(&of("p2")), "{}", of("p2"));
}

#[test]
fn controllers_are_told_of_blocked_ports() {
    let rig = rig(By::Code);
    let shown = || {
        let Reply::PortDesc(ports) = rig.statistics(Request::PortDesc(Default::default())) else { panic!() };
        let of = |number| ports.iter().find(|port| port.number.0 == number).unwrap().state;
        [of(1), of(2), of(3)]
    };
    set(&rig, [PortState::Forwarding, PortState::Learning]);
    assert_eq!(shown(), [Shown::LIVE, Shown::LIVE, Shown::BLOCKED]);
    rig.messages();
    set(&rig, [PortState::Blocking, PortState::Forwarding]);
    let told = rig.messages().into_iter().filter_map(|body| match body {
        Body::PortStatus(status) => Some((status.port.number.0, status.port.state)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(2, Shown::BLOCKED), (3, Shown::LIVE)]);
}

#[test]
fn controllers_cannot_send_through_blocked_ports() {
    let rig = rig(By::Code);
    set(&rig, [PortState::Forwarding, PortState::Blocking]);
    let send = |port: u32, frame: Vec<u8>| {
        let packet = PacketOut {
            buffer_id: openflow::version::NO_BUFFER,
            in_port: PortNo::CONTROLLER,
            actions: openflow::text::parse_actions(&format!("output:{port}"), openflow::Version::V1_5)
                .unwrap(),
            data: frame,
            fields: vec![],
        };
        rig.ask(Body::PacketOut(packet));
    };
    send(3, plain(9, 9, 1));
    send(2, plain(9, 9, 2));
    assert_eq!(rig.at(2).take(1), [plain(9, 9, 2)]);
    send(3, bpdu(3));
    assert_eq!(rig.at(3).take(1), [bpdu(3)], "but for BPDUs of their own");
}
