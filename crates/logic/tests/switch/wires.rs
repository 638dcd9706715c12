//! `static`.

use fabric::{DropReason, VlanMode};
use packet::{MacAddr, Vid, VlanTag};

use crate::frames::{build, mac, plain, tagged};
use crate::rig::{Rig, make};

#[test]
fn neighbours_are_wired() {
    let rig = Rig::new(1, make("static", &[]));
    let [a, b, c, d, lonely] = rig.plain_ports();
    let lldp = build(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]), mac(1), None, 0, 46);
    a.send_and_settle([plain(1, 2, 0), plain(0, 2, 1), lldp.clone()]);
    d.send_and_settle([plain(1, 2, 2)]);
    lonely.send_and_settle([plain(1, 2, 3)]);
    assert_eq!((b.take(), c.take()), (vec![plain(1, 2, 0), plain(0, 2, 1), lldp], vec![plain(1, 2, 2)]));
    assert!([a.take(), d.take()].concat().is_empty());
    assert_eq!(rig.drops(&lonely, DropReason::NoDestination), 1);
}

#[test]
fn names_are_resolved_as_ports_come_and_go() {
    let rig = Rig::new(1, make("static", &[("p2", "p0")]));
    let [a, b, c] = rig.plain_ports();
    a.send_and_settle([plain(1, 2, 0)]);
    c.send_and_settle([plain(1, 2, 1)]);
    b.send_and_settle([plain(1, 2, 2)]);
    assert_eq!((c.take(), a.take(), b.take()), (vec![plain(1, 2, 0)], vec![plain(1, 2, 1)], vec![]));
    assert_eq!(rig.drops(&b, DropReason::NoDestination), 1);
    rig.switch.remove_port(c.at).unwrap();
    a.send_and_settle([plain(1, 2, 3)]);
    assert_eq!(rig.drops(&a, DropReason::NoDestination), 1);
    let c = rig.port("p2", VlanMode::Transparent);
    a.send_and_settle([plain(1, 2, 4)]);
    assert_eq!(c.take(), [plain(1, 2, 4)]);
}

#[test]
fn vlan_settings_hold_on_a_wire() {
    let rig = Rig::new(1, make("static", &[]));
    let vid = Vid::new(10).unwrap();
    let a = rig.port("a", VlanMode::Access(vid));
    let x = rig.port("x", VlanMode::Transparent);
    let tag = VlanTag::new(vid);
    a.send_and_settle([plain(1, 2, 0), tagged(1, 2, tag, 1)]);
    assert_eq!(x.take(), [tagged(1, 2, tag, 0)]);
    assert_eq!(rig.drops(&a, DropReason::Vlan), 1);
    x.send_and_settle([tagged(2, 1, tag, 2), plain(2, 1, 3)]);
    assert_eq!(a.take(), [plain(2, 1, 2)]);
    assert_eq!(rig.drops(&x, DropReason::Vlan), 1);
}
