//! `NORMAL`, and a bridge that stands alone.

use fabric::port::VidSet;
use fabric::{DropReason, VlanMode};
use openflow::Mac;
use openflow::PortNo;
use openflow::message::{Body, PortConfig, PortMod};
use packet::Vid;

use crate::frames::{plain, tagged};
use crate::rig::{By, Rig};

/// A controller's configuration of a port.
pub fn configure(rig: &Rig, number: u32, config: PortConfig) {
    let address = Mac([2, 0, 0, 0, 1, number as u8 - 1]);
    let body =
        PortMod { number: PortNo(number), address, config, mask: PortConfig::all(), properties: vec![] };
    rig.ask(Body::PortMod(body));
}

#[test]
fn normal_learns_and_forwards() {
    let rig = Rig::new(By::Code);
    rig.add(&["actions=NORMAL"]);
    assert_eq!(
        rig.run(1, [plain(2, 1, 0)]),
        [vec![], vec![plain(2, 1, 0)], vec![plain(2, 1, 0)], vec![plain(2, 1, 0)]]
    );
    assert_eq!(rig.run(2, [plain(1, 2, 1)]), [vec![plain(1, 2, 1)], vec![], vec![], vec![]]);
    assert_eq!(rig.run(1, [plain(2, 1, 2)]), [vec![], vec![plain(2, 1, 2)], vec![], vec![]]);
    let stations = logic::Logic::views(&*rig.logic).stations.unwrap().entries();
    // The marker's source is one, too: its flow is no `NORMAL`, so it is not learned.
    assert_eq!(stations.len(), 2);
}

#[test]
fn normal_sees_what_actions_before_it_have_made() {
    let rig = Rig::new(By::Code);
    rig.add(&["priority=2,dl_vlan=7,actions=pop_vlan,NORMAL", "priority=1,actions=output:4,NORMAL"]);
    assert_eq!(rig.run(2, [plain(9, 2, 0)]).iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1, 2]);
    assert_eq!(rig.run(1, [tagged(&plain(2, 1, 1), 7)]), [vec![], vec![plain(2, 1, 1)], vec![], vec![]]);
    assert_eq!(rig.run(3, [plain(2, 3, 2)]), [vec![], vec![plain(2, 3, 2)], vec![], vec![plain(2, 3, 2)]]);
}

#[test]
fn each_port_gets_a_flooded_packet_in_the_form_it_takes() {
    let vid = Vid::new(7).unwrap();
    let mut allowed = VidSet::empty();
    allowed.insert(7);
    for trunk in [2, 3] {
        let rig = Rig::new(By::Code);
        rig.add(&["actions=NORMAL"]);
        // With a restricted port, `NORMAL` floods port by port.
        configure(&rig, 4, PortConfig::NO_FLOOD);
        for (number, client) in (1..).zip(&rig.clients) {
            let mut settings = rig.switch.settings(client.at).unwrap();
            settings.vlan = match number == trunk {
                true => VlanMode::Trunk { native: None, allowed: allowed.clone() },
                false => VlanMode::Access(vid),
            };
            rig.switch.set_port(client.at, settings).unwrap();
        }
        let frame = plain(9, 1, 0);
        rig.at(1).send([frame.clone()]);
        rig.at(1).settle();
        for number in 2..=3 {
            let expected = if number == trunk { tagged(&frame, 7) } else { frame.clone() };
            assert_eq!(rig.at(number).take(1), [expected], "port {number}, the trunk is {trunk}");
        }
        for number in 2..=4 {
            assert_eq!(rig.at(number).delivered(), 0, "port {number}, the trunk is {trunk}");
        }
    }
}

#[test]
fn packets_of_flows_and_of_normal_keep_their_order() {
    let rig = Rig::new(By::Code);
    rig.add(&["priority=1,actions=NORMAL", "priority=2,dl_type=0x88b6,actions=output:2"]);
    rig.run(2, [plain(9, 2, 0)]);
    let other = |n: u8| {
        let mut frame = plain(2, 1, n);
        frame[13] = 0xb6;
        frame
    };
    let sent: Vec<_> = (0..40).map(|n| if n % 3 == 0 { other(n) } else { plain(2, 1, n) }).collect();
    assert_eq!(rig.run(1, sent.clone())[1], sent);
}

#[test]
fn floods_and_normal_respect_configured_ports() {
    for actions in ["actions=NORMAL", "actions=FLOOD"] {
        let rig = Rig::new(By::Code);
        rig.add(&[actions]);
        configure(&rig, 3, PortConfig::NO_FLOOD);
        configure(&rig, 4, PortConfig::NO_FWD);
        rig.at(1).send([plain(9, 1, 0)]);
        assert_eq!(rig.at(2).take(1), [plain(9, 1, 0)]);
        rig.at(1).settle();
        assert_eq!((rig.at(3).delivered(), rig.at(4).delivered()), (0, 0), "{actions}");
    }
    // A known station is reached in spite of that.
    let rig = Rig::new(By::Code);
    rig.add(&["actions=NORMAL"]);
    configure(&rig, 3, PortConfig::NO_FLOOD);
    rig.at(3).send([plain(9, 3, 0)]);
    rig.at(3).settle();
    rig.at(1).send([plain(3, 1, 1)]);
    assert_eq!(rig.at(3).take(1), [plain(3, 1, 1)]);
}

#[test]
fn a_bridge_that_stands_alone_learns_past_its_flows() {
    let rig = Rig::new(By::Code);
    rig.at(1).send([plain(2, 1, 0)]);
    rig.at(1).settle();
    assert_eq!(rig.drops(1, DropReason::NoDestination), 1);
    rig.logic.set_standalone(true);
    rig.at(1).send([plain(2, 1, 0)]);
    assert_eq!(rig.at(2).take(1), [plain(2, 1, 0)]);
    rig.logic.set_standalone(false);
    rig.at(1).settle();
    rig.at(1).send([plain(2, 1, 0)]);
    rig.at(1).settle();
    assert_eq!(rig.drops(1, DropReason::NoDestination), 2);
}
