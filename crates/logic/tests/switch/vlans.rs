//! `learning` with VLANs: membership, tags pushed and popped, independent learning.

use fabric::port::VidSet;
use fabric::{DropReason, VlanMode};
use packet::{Vid, VlanTag};

use crate::frames::{plain, tagged};
use crate::rig::{Rig, make, stations};

fn vid(id: u16) -> Vid {
    Vid::new(id).unwrap()
}

fn access(id: u16) -> VlanMode {
    VlanMode::Access(vid(id))
}

fn trunk(native: Option<u16>, ids: &[u16]) -> VlanMode {
    let mut allowed = VidSet::empty();
    ids.iter().for_each(|id| allowed.insert(*id));
    VlanMode::Trunk { native: native.map(vid), allowed }
}

const NOTHING: Vec<Vec<u8>> = Vec::new();

#[test]
fn one_flood_leaves_in_both_forms() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.port("a", access(10));
    let b = rig.port("b", access(10));
    let other = rig.port("other", access(20));
    let t = rig.port("t", trunk(None, &[10, 20]));
    let n = rig.port("n", trunk(Some(10), &[10, 20]));
    let x = rig.port("x", VlanMode::Transparent);
    let tag = VlanTag::new(vid(10));

    a.send_and_settle([plain(0, 1, 0)]);
    assert_eq!((b.take(), n.take()), (vec![plain(0, 1, 0)], vec![plain(0, 1, 0)]));
    assert_eq!((t.take(), x.take()), (vec![tagged(0, 1, tag, 0)], vec![tagged(0, 1, tag, 0)]));

    let urgent = VlanTag { pcp: 5, dei: true, vid: 10 };
    t.send_and_settle([tagged(0, 2, urgent, 1)]);
    assert_eq!([a.take(), b.take(), n.take()], [const { NOTHING }; 3].map(|_| vec![plain(0, 2, 1)]));
    assert_eq!((t.take(), x.take()), (NOTHING, vec![tagged(0, 2, urgent, 1)]));

    // Unicast in either direction, now that both are known.
    a.send_and_settle([plain(2, 1, 2)]);
    t.send_and_settle([tagged(1, 2, urgent, 3)]);
    assert_eq!((t.take(), a.take()), (vec![tagged(2, 1, tag, 2)], vec![plain(1, 2, 3)]));
    assert_eq!([b.take(), n.take(), x.take(), other.take()], [const { NOTHING }; 4]);
}

#[test]
fn trunks_may_carry_frames_of_no_vlan() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.port("a", trunk(None, &[0]));
    let both = rig.port("both", trunk(None, &[0, 10]));
    let tagged_only = rig.port("tagged", trunk(None, &[10]));
    let native = rig.port("native", trunk(Some(10), &[10]));
    let x = rig.port("x", VlanMode::Transparent);
    a.send_and_settle([plain(0, 1, 0)]);
    assert_eq!([both.take(), x.take()], [const { NOTHING }; 2].map(|_| vec![plain(0, 1, 0)]));
    assert_eq!([tagged_only.take(), native.take()], [const { NOTHING }; 2]);
    let tag = VlanTag::new(vid(10));
    a.send_and_settle([tagged(0, 1, tag, 1)]);
    both.send_and_settle([tagged(0, 2, tag, 2)]);
    assert_eq!((a.take(), tagged_only.take()), (NOTHING, vec![tagged(0, 2, tag, 2)]));
    assert_eq!(native.take(), vec![plain(0, 2, 2)]);
}

#[test]
fn a_priority_tag_is_no_membership_but_keeps_its_priority() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.port("a", access(10));
    let b = rig.port("b", access(10));
    let t = rig.port("t", trunk(None, &[10]));
    let n = rig.port("n", trunk(Some(10), &[10]));
    let priority = VlanTag { pcp: 6, dei: false, vid: 0 };
    a.send_and_settle([tagged(0, 1, priority, 0)]);
    assert_eq!((b.take(), n.take()), (vec![plain(0, 1, 0)], vec![plain(0, 1, 0)]));
    assert_eq!(t.take(), [tagged(0, 1, VlanTag { vid: 10, ..priority }, 0)]);
    n.send_and_settle([tagged(1, 2, priority, 1)]);
    assert_eq!((a.take(), b.take(), t.take()), (vec![plain(1, 2, 1)], NOTHING, NOTHING));
}

#[test]
fn refuses_and_counts() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let a = rig.port("a", access(10));
    let t = rig.port("t", trunk(None, &[20]));
    let x = rig.port("x", VlanMode::Transparent);
    let tag = |id| VlanTag::new(vid(id));
    // Tagged into an access port, even with its own VLAN; untagged, or with another VLAN, into the trunk.
    a.send_and_settle([tagged(0, 1, tag(10), 0)]);
    t.send_and_settle([plain(0, 2, 1), tagged(0, 2, tag(10), 2)]);
    assert_eq!((rig.drops(&a, DropReason::Vlan), rig.drops(&t, DropReason::Vlan)), (1, 2));
    assert!(stations(&logic).is_empty());
    assert_eq!([a.take(), t.take(), x.take()], [const { NOTHING }; 3]);
    // A static entry may point out of the VLAN; the egress rule still holds.
    stations(&logic).add_static(10, crate::frames::mac(7), t.at.port).unwrap();
    a.send_and_settle([plain(7, 1, 3)]);
    assert_eq!((rig.drops(&a, DropReason::Vlan), t.take()), (2, NOTHING));
    // No other member: the flood has no destination.
    rig.switch.remove_port(x.at).unwrap();
    a.send_and_settle([plain(0, 1, 4)]);
    assert_eq!(rig.drops(&a, DropReason::NoDestination), 1);
}

#[test]
fn vlans_learn_independently() {
    let rig = Rig::new(1, make("learning", &[]));
    let t = rig.port("t", trunk(None, &[10, 20]));
    let a = rig.port("a", access(10));
    let b = rig.port("b", access(20));
    let spare = rig.port("spare", access(20));
    // Station 1 is at a in VLAN 10 and at b in VLAN 20.
    a.send_and_settle([plain(9, 1, 0)]);
    b.send_and_settle([plain(9, 1, 1)]);
    spare.take();
    t.send_and_settle([10, 20].map(|id| tagged(1, 9, VlanTag::new(vid(id)), id.into())));
    assert_eq!((a.take(), b.take(), spare.take()), (vec![plain(1, 9, 10)], vec![plain(1, 9, 20)], NOTHING));
}

#[test]
fn settings_change_while_running() {
    let rig = Rig::new(1, make("learning", &[]));
    let [a, b] = rig.plain_ports();
    let tag = VlanTag::new(vid(10));
    a.send_and_settle([tagged(0, 1, tag, 0)]);
    assert_eq!(b.take(), [tagged(0, 1, tag, 0)]);
    let mut settings = rig.switch.settings(b.at).unwrap();
    settings.vlan = access(10);
    rig.switch.set_port(b.at, settings).unwrap();
    a.send_and_settle([tagged(0, 1, tag, 1), plain(0, 1, 2)]);
    assert_eq!(b.take(), [plain(0, 1, 1)]);
}
