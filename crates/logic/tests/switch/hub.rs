//! `hub`.

use fabric::{DropReason, VlanMode};
use packet::{MacAddr, Vid, VlanTag};

use crate::frames::{build, mac, plain, tagged};
use crate::rig::{Rig, make};

#[test]
fn everything_goes_everywhere_else() {
    let rig = Rig::new(1, make("hub", &[]));
    let [a, b, c] = rig.plain_ports();
    // Known stations, broadcasts, and frames addressed to bridges.
    let lldp = build(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]), mac(1), None, 0, 46);
    let sent = [plain(2, 1, 0), plain(0, 1, 1), lldp, plain(1, 2, 3), plain(2, 1, 4)];
    a.send_and_settle(sent.clone());
    assert_eq!((b.take(), c.take(), a.take()), (sent.to_vec(), sent.to_vec(), vec![]));
    b.send_and_settle([plain(1, 2, 5)]);
    assert_eq!((a.take(), c.take(), b.take()), (vec![plain(1, 2, 5)], vec![plain(1, 2, 5)], vec![]));
}

#[test]
fn a_hub_with_one_port_has_no_destination() {
    let rig = Rig::new(1, make("hub", &[]));
    let [a] = rig.plain_ports();
    a.send_and_settle([plain(2, 1, 0)]);
    assert_eq!(rig.drops(&a, DropReason::NoDestination), 1);
}

#[test]
fn vlans_are_hubs_of_their_own() {
    let rig = Rig::new(1, make("hub", &[]));
    let vid = |id| Vid::new(id).unwrap();
    let [a, b, other] =
        [("a", 10), ("b", 10), ("other", 20)].map(|(name, id)| rig.port(name, VlanMode::Access(vid(id))));
    let x = rig.port("x", VlanMode::Transparent);
    let tag = VlanTag::new(vid(10));
    a.send_and_settle([plain(2, 1, 0), tagged(2, 1, tag, 1)]);
    assert_eq!(
        (b.take(), x.take(), other.take()),
        (vec![plain(2, 1, 0)], vec![tagged(2, 1, tag, 0)], vec![])
    );
    assert_eq!(rig.drops(&a, DropReason::Vlan), 1);
}

#[test]
fn refused_stations_are_not_repeated() {
    let rig = Rig::new(1, make("hub", &[]));
    let a = rig.protected("a", |settings| settings.security.stations = vec![mac(1)]);
    let b = rig.port("b", VlanMode::Transparent);
    a.send_and_settle([plain(0, 7, 0), plain(0, 1, 1)]);
    assert_eq!(b.take(), [plain(0, 1, 1)]);
    assert_eq!(rig.drops(&a, DropReason::StationLimit), 1);
}
