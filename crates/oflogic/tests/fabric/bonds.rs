//! Bonds: several ports that are one for `NORMAL`. Ports 2 and 3 are the bond of each test.

use std::sync::{Arc, Mutex};

use bond::lacp::pdu::{Info, Pdu};
use bond::view::{Admission, MemberView, Output, View};
use bond::{BUCKETS, hash};
use oflogic::PortFacts;
use openflow::message::PortState;
use openflow::multipart::{Reply, Request};
use packet::MacAddr;

use crate::frames::{frame, plain, tagged};
use crate::rig::{ALL, By, Rig, facts, wait_for};

const CLOSED: Admission = Admission { stations: false, groups: false, unless_moved: false };
const OPEN: Admission = Admission { stations: true, groups: true, unless_moved: false };

fn rig(by: By) -> Rig {
    let rig = Rig::new(by);
    let bonded = |number: usize| {
        let facts = facts(rig.at(number).at.port, true);
        PortFacts { bond: Some("b".into()), ..facts }
    };
    rig.logic.set_ports(&[bonded(2), bonded(3)]);
    rig.messages();
    rig
}

fn view(output: Output, admits: [Admission; 2]) -> View {
    let member = |(name, admits): (&str, Admission)| MemberView { name: name.into(), is_live: true, admits };
    let members = ["p2", "p3"].into_iter().zip(admits).map(member).collect();
    View { name: "b".into(), members, output, takes_pdus: false, loads: Arc::default() }
}

/// Numbers of the frames that each port got.
fn numbers(got: Vec<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    got.iter().map(|frames| frames.iter().map(|frame| frame[14]).collect()).collect()
}

#[test]
fn without_its_view_a_bond_carries_nothing() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    assert_eq!(numbers(rig.run(1, [plain(0xff, 1, 7)])), [vec![], vec![], vec![], vec![7]]);
    assert_eq!(numbers(rig.run(2, [plain(0xff, 9, 7)])), vec![vec![]; 4]);
    // Its members are ports of their own for all other actions.
    rig.add(&["priority=40000,dl_dst=02:00:00:00:00:05,actions=output:3"]);
    assert_eq!(numbers(rig.run(2, [plain(5, 9, 7)])), [vec![], vec![], vec![7], vec![]]);
}

#[test]
fn the_active_member_sends_and_receives() {
    for by in ALL {
        let rig = rig(by);
        rig.add(&["actions=NORMAL"]);
        rig.logic.set_bonds(vec![view(Output::Member(0), [OPEN, CLOSED])]);
        assert_eq!(numbers(rig.run(1, [plain(0xff, 1, 1)])), [vec![], vec![1], vec![], vec![1]], "{by:?}");
        // A backup's packets are dropped and teach nothing.
        assert_eq!(numbers(rig.run(3, [plain(1, 9, 2), plain(0xff, 9, 3)])), vec![vec![]; 4], "{by:?}");
        assert_eq!(
            numbers(rig.run(2, [plain(1, 9, 4), plain(0xff, 9, 5)])),
            [vec![4, 5], vec![], vec![], vec![5]]
        );
        assert_eq!(numbers(rig.run(4, [plain(9, 4, 6)])), [vec![], vec![6], vec![], vec![]], "{by:?}");
        // What was learned at one member holds for the other.
        rig.logic.set_bonds(vec![view(Output::Member(1), [CLOSED, OPEN])]);
        assert_eq!(numbers(rig.run(4, [plain(9, 4, 7)])), [vec![], vec![], vec![7], vec![]], "{by:?}");
        assert_eq!(rig.counter("dropped_bond"), 2);
    }
}

#[test]
fn nothing_goes_back_to_the_bond_that_it_came_from() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    rig.logic.set_bonds(vec![view(Output::Member(1), [OPEN, OPEN])]);
    rig.run(2, [plain(0xff, 9, 1)]);
    assert_eq!(numbers(rig.run(2, [plain(9, 8, 2), plain(0xff, 8, 3)])), [vec![3], vec![], vec![], vec![3]]);
}

#[test]
fn load_is_spread_by_source_and_counted() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    let bucket = |n: u8| hash::source(MacAddr([2, 0, 0, 0, 0, n]), 0, 0);
    let mut members = Box::new([Some(0); BUCKETS]);
    members[bucket(5)] = Some(1);
    let view = view(Output::BySource(0, members), [OPEN, OPEN]);
    rig.logic.set_bonds(vec![view]);
    assert_ne!(bucket(5), bucket(6));
    let got = rig.run(1, [plain(0xff, 5, 1), plain(0xff, 6, 2), plain(0xff, 5, 3)]);
    assert_eq!(numbers(got), [vec![], vec![2], vec![1, 3], vec![1, 2, 3]]);
}

#[test]
fn a_bonds_own_packets_that_come_back_are_dropped() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    let slb = |groups| Admission { stations: true, groups, unless_moved: true };
    rig.logic
        .set_bonds(vec![view(Output::BySource(0, Box::new([Some(0); BUCKETS])), [slb(true), slb(false)])]);
    rig.run(1, [plain(0xff, 1, 1)]);
    // From station 1, which is at port 1, and for groups at the member that is not active.
    assert_eq!(numbers(rig.run(2, [plain(0xff, 1, 1)])), vec![vec![]; 4]);
    assert_eq!(numbers(rig.run(3, [plain(0xff, 9, 1)])), vec![vec![]; 4]);
    assert_eq!(numbers(rig.run(3, [plain(1, 9, 2)])), [vec![2], vec![], vec![], vec![]]);
    // It announces that it has moved.
    let mut arp = frame(0xff, 1, [8, 6], 0, 42);
    arp[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
    assert_eq!(rig.run(2, [arp.clone()])[0], [arp]);
    assert_eq!(numbers(rig.run(4, [plain(1, 4, 3)])), [vec![], vec![3], vec![], vec![]]);
}

#[test]
fn a_bridge_that_stands_alone_has_bonds_too() {
    let rig = rig(By::Code);
    rig.logic.set_bonds(vec![view(Output::Member(1), [CLOSED, OPEN])]);
    rig.logic.set_standalone(true);
    rig.at(1).send([plain(0xff, 1, 1)]);
    assert_eq!((rig.at(3).take(1), rig.at(4).take(1)), (vec![plain(0xff, 1, 1)], vec![plain(0xff, 1, 1)]));
    rig.at(1).settle();
    assert_eq!(rig.at(2).delivered(), 0);
}

#[test]
fn lacpdus_are_for_the_control_side() {
    for by in ALL {
        let rig = rig(by);
        rig.add(&["actions=output:1"]);
        let got = Arc::new(Mutex::new(Vec::new()));
        let to = got.clone();
        rig.logic.set_pdu_sink(move |port, frame| to.lock().unwrap().push((port.to_owned(), frame.to_vec())));
        let view = View { takes_pdus: true, ..view(Output::Nothing, [CLOSED; 2]) };
        rig.logic.set_bonds(vec![view]);
        let pdu = Pdu { actor: Info::default(), partner: Info::default() }.frame(MacAddr([2; 6]));
        // Before the tables, and between packets that meet them; a tagged one is none, nor is one of another port.
        assert_eq!(
            numbers(rig.run(2, [plain(5, 9, 1), pdu.clone(), plain(5, 9, 2)])),
            [vec![1, 2], vec![], vec![], vec![]]
        );
        assert_eq!(rig.run(2, [tagged(&pdu, 5)])[0], [tagged(&pdu, 5)]);
        assert_eq!(rig.run(4, [pdu.clone()])[0], std::slice::from_ref(&pdu));
        wait_for("LACPDUs", || rig.logic.is_settled().then_some(()));
        assert_eq!(*got.lock().unwrap(), [("p2".to_owned(), pdu.clone())], "{by:?}");
        // And back.
        assert!(rig.logic.send("p3", &pdu) && !rig.logic.send("p9", &pdu));
        assert_eq!(rig.at(3).take(1), [pdu]);
    }
}

#[test]
fn stations_outside_are_announced() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    rig.logic.set_bonds(vec![view(Output::Member(1), [CLOSED, OPEN])]);
    rig.run(1, [plain(0xff, 1, 1)]);
    rig.run(3, [plain(0xff, 9, 1)]);
    let frames = rig.logic.announcements("b");
    assert_eq!(
        (frames.len(), &*frames[0].0, &frames[0].1[6..14]),
        (1, "p3", &[2, 0, 0, 0, 0, 1, 0x80, 0x35][..])
    );
    assert_eq!(rig.logic.announcements("c"), []);
}

#[test]
fn stations_are_heard_again_when_a_port_joins_or_leaves() {
    let rig = rig(By::Code);
    rig.add(&["actions=NORMAL"]);
    rig.logic.set_bonds(vec![view(Output::Member(0), [OPEN, OPEN])]);
    rig.run(3, [plain(0xff, 9, 1)]);
    assert_eq!(numbers(rig.run(1, [plain(9, 1, 2)])), [vec![], vec![2], vec![], vec![]]);
    rig.logic.set_bonds(vec![]);
    let alone = |number: usize| facts(rig.at(number).at.port, true);
    rig.logic.set_ports(&[alone(2), alone(3)]);
    rig.messages();
    assert_eq!(numbers(rig.run(1, [plain(9, 1, 3)])), [vec![], vec![3], vec![3], vec![3]]);
}

#[test]
fn ports_of_a_bond_without_a_partner_are_not_live() {
    let rig = rig(By::Code);
    let state = || {
        let Reply::PortDesc(ports) = rig.statistics(Request::PortDesc(Default::default())) else { panic!() };
        ports.iter().map(|port| port.state.contains(PortState::LIVE)).collect::<Vec<_>>()
    };
    assert_eq!(state(), [true, false, false, true]);
    let mut view = view(Output::Nothing, [CLOSED; 2]);
    view.members[1].is_live = false;
    rig.logic.set_bonds(vec![view]);
    assert_eq!(state(), [true, true, false, true]);
}
