//! Packets to and from controllers.

use fabric::DropReason;
use openflow::action::{Action, Output};
use openflow::message::{Body, PacketOut};
use openflow::{PortNo, version};

use crate::frames::{frame, plain, tagged, udp};
use crate::rig::{ALL, By, Rig, wait_for};

fn packet_out(rig: &Rig, in_port: PortNo, to: PortNo, data: Vec<u8>) {
    let actions = vec![Action::Output(Output { port: to, max_len: 0 })];
    let body = PacketOut { buffer_id: version::NO_BUFFER, in_port, fields: vec![], actions, data };
    rig.ask(Body::PacketOut(body));
}

#[test]
fn controllers_get_packets_as_actions_made_them() {
    for by in ALL {
        let rig = Rig::new(by);
        rig.add(&["actions=push_vlan:0x8100,set_field:4103->vlan_vid,CONTROLLER:65535,output:2"]);
        let long = frame(2, 1, [0x88, 0xb5], 5, 1500);
        rig.at(1).send([long.clone()]);
        let [packet] = rig.packet_ins();
        assert_eq!(packet.data, tagged(&long, 7), "{by:?}");
        assert_eq!((packet.reason, packet.table_id, packet.buffer_id), (1, 0, version::NO_BUFFER));
        assert_eq!(rig.at(2).take(1), [tagged(&long, 7)]);
    }
}

#[test]
fn misses_go_to_controllers_that_ask_for_them() {
    for by in ALL {
        let rig = Rig::new(by);
        rig.add(&["priority=0,actions=CONTROLLER:60"]);
        let long = frame(2, 1, [0x88, 0xb5], 5, 500);
        rig.at(3).send([long.clone()]);
        let [packet] = rig.packet_ins();
        assert_eq!((packet.data, packet.total_len, packet.reason), (long[..60].to_vec(), 500, 0), "{by:?}");
        // The buffer's number brings the rest back.
        let actions = vec![Action::Output(Output { port: PortNo(2), max_len: 0 })];
        let (buffer_id, in_port) = (packet.buffer_id, PortNo(3));
        rig.ask(Body::PacketOut(PacketOut { buffer_id, in_port, fields: vec![], actions, data: vec![] }));
        assert_eq!(rig.at(2).take(1), [long]);
    }
}

#[test]
fn controllers_send_packets() {
    let rig = Rig::new(By::Code);
    packet_out(&rig, PortNo::CONTROLLER, PortNo(2), udp());
    assert_eq!(rig.at(2).take(1), [udp()]);
    packet_out(&rig, PortNo(1), PortNo::FLOOD, plain(2, 1, 0));
    for number in 2..=4 {
        assert_eq!(rig.at(number).take(1), [plain(2, 1, 0)]);
    }
    assert_eq!(rig.at(1).delivered(), 0);
    packet_out(&rig, PortNo(1), PortNo::IN_PORT, plain(2, 1, 1));
    assert_eq!(rig.at(1).take(1), [plain(2, 1, 1)]);
    rig.add(&["in_port=3,actions=output:4"]);
    packet_out(&rig, PortNo(3), PortNo::TABLE, plain(2, 1, 2));
    assert_eq!(rig.at(4).take(1), [plain(2, 1, 2)]);
    wait_for("counts", || (rig.counter("injected") == 4).then_some(()));
}

#[test]
fn controllers_send_packets_like_a_learning_bridge() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=NORMAL"]);
    rig.run(2, [plain(9, 2, 0)]);
    // From a port: its source is learned.
    packet_out(&rig, PortNo(3), PortNo::NORMAL, plain(2, 3, 1));
    assert_eq!(rig.at(2).take(1), [plain(2, 3, 1)]);
    packet_out(&rig, PortNo(1), PortNo::NORMAL, plain(3, 1, 2));
    assert_eq!(rig.at(3).take(1), [plain(3, 1, 2)]);
    // From nowhere.
    packet_out(&rig, PortNo::CONTROLLER, PortNo::NORMAL, plain(3, 7, 3));
    assert_eq!(rig.at(3).take(1), [plain(3, 7, 3)]);
    packet_out(&rig, PortNo::CONTROLLER, PortNo::NORMAL, plain(8, 7, 4));
    for number in 1..=4 {
        assert_eq!(rig.at(number).take(1), [plain(8, 7, 4)]);
    }
}

#[test]
fn packets_that_controllers_cannot_take_are_counted() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=CONTROLLER:100,output:2"]);
    let sent = 1000;
    // The switch is busy meanwhile: the thread waits for it, and workers do not.
    rig.logic.switch().with(|_, _| {
        rig.at(1).send((0..sent).map(|n| plain(2, 1, n as u8)));
        rig.at(1).settle();
    });
    assert_eq!(rig.at(2).take(sent).len(), sent);
    let lost = rig.drops(1, DropReason::ControllerQueue);
    assert!(lost > 0 && rig.counter("upcalls_lost") == lost, "{lost} lost");
    assert_eq!(rig.counter("upcalls"), sent as u64 - lost);
    let mut got = 0;
    wait_for("packets that found room", || {
        got += rig.messages().iter().filter(|body| matches!(body, Body::PacketIn(_))).count() as u64;
        (got == sent as u64 - lost).then_some(())
    });
}
