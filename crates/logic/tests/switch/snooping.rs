//! `learning` with IGMP and MLD snooping.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fabric::port::VidSet;
use fabric::{DropReason, VlanMode};
use logic::Logic;
use packet::checksum::{Sum, pseudo_header_v6};
use packet::{MacAddr, Vid, VlanTag};

use crate::frames::mac;
use crate::rig::{Client, Rig, groups, make};

const ALL: [u8; 4] = [0; 4];
const GROUP: [u8; 4] = [239, 1, 2, 3];
const QUERY: u8 = 0x11;
const JOIN: u8 = 0x16;
const LEAVE: u8 = 0x17;
const GROUP6: &str = "ff05::77";

fn v4_mac(group: [u8; 4]) -> MacAddr {
    MacAddr([1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]])
}

fn ethernet(dst: MacAddr, src: u64, ethertype: [u8; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = [&dst.0[..], &mac(src).0, &ethertype, payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(src: u64, from: Ipv4Addr, group: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let front = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 1, protocol, 0, 0];
    ethernet(v4_mac(group), src, [8, 0], &[&front[..], &from.octets(), &group, payload].concat())
}

/// IGMPv2 from station `src`.
fn igmp(src: u64, kind: u8, group: [u8; 4]) -> Vec<u8> {
    let mut message = [&[kind, 100, 0, 0][..], &group].concat();
    let sum = Sum::of(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let to = if kind == JOIN { group } else { [224, 0, 0, 1] };
    ipv4(src, Ipv4Addr::new(10, 0, 0, src as u8), to, 2, &message)
}

/// A datagram to a group.
fn data(src: u64, group: [u8; 4], number: u8) -> Vec<u8> {
    ipv4(src, Ipv4Addr::new(10, 0, 0, src as u8), group, 17, &[number; 12])
}

fn ipv6(src: u64, to: &str, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), to.parse().unwrap());
    let [.., a, b, c, d] = to.octets();
    let length = (payload.len() as u16).to_be_bytes();
    let front = [0x60, 0, 0, 0, length[0], length[1], next, hops];
    let packet = [&front[..], &from.octets(), &to.octets(), payload].concat();
    ethernet(MacAddr([0x33, 0x33, a, b, c, d]), src, [0x86, 0xdd], &packet)
}

/// MLDv1 from station `src`.
fn mld(src: u64, kind: u8, group: &str) -> Vec<u8> {
    let group: Ipv6Addr = group.parse().unwrap();
    let mut message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
    let (from, to): (Ipv6Addr, Ipv6Addr) = ("fe80::1".parse().unwrap(), "ff02::16".parse().unwrap());
    let mut sum = pseudo_header_v6(from.octets(), to.octets(), 58, 24);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    ipv6(src, "ff02::16", 58, 1, &message)
}

/// Sends messages about groups; when it returns, the bridge has applied them.
fn tell(logic: &Arc<dyn Logic>, client: &Client, packets: impl IntoIterator<Item = Vec<u8>>) {
    client.send_and_settle(packets);
    // Reading the table applies the waiting reports.
    groups(logic);
}

fn counts<const N: usize>(clients: [&Client; N]) -> [usize; N] {
    clients.map(|client| client.take().len())
}

#[test]
fn packets_go_to_members_and_routers() {
    let logic = make("learning", &[("snooping", "on")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, member, router, other] = rig.plain_ports();
    let all = [&sender, &member, &router, &other];
    // Without a querier everything goes everywhere, joined or not.
    tell(&logic, &member, [igmp(2, JOIN, GROUP)]);
    sender.send_and_settle([data(1, GROUP, 0)]);
    assert_eq!(counts(all), [1, 1, 2, 2]);

    // A query goes everywhere, reports go to routers, packets to both.
    tell(&logic, &router, [igmp(3, QUERY, ALL)]);
    assert_eq!(counts(all), [1, 1, 0, 1]);
    tell(&logic, &member, [igmp(2, JOIN, GROUP)]);
    assert_eq!(counts(all), [0, 0, 1, 0]);
    sender.send_and_settle([data(1, GROUP, 1), data(1, GROUP, 2)]);
    assert_eq!(counts(all), [0, 2, 2, 0]);
    // Groups of the link, groups without members, and frames to no IP group.
    sender.send_and_settle([data(1, [224, 0, 0, 251], 0), data(1, [239, 9, 9, 9], 0)]);
    assert_eq!(counts(all), [0, 2, 2, 2]);
    let odd = ethernet(MacAddr([1, 0, 0x0c, 1, 2, 3]), 1, [0x88, 0xb5], &[]);
    sender.send_and_settle([odd, ethernet(mac(0), 1, [0x88, 0xb5], &[])]);
    assert_eq!(counts(all), [0, 2, 2, 2]);
    // A member may send, and its packets do not come back to it.
    member.send_and_settle([data(2, GROUP, 3)]);
    assert_eq!(counts(all), [0, 0, 1, 0]);

    // Without its client a member is forgotten, and the port's index may become another's.
    rig.switch.remove_port(member.at).unwrap();
    let fresh = rig.port("fresh", VlanMode::Transparent);
    assert_eq!(fresh.at, member.at);
    tell(&logic, &sender, [igmp(1, JOIN, GROUP)]);
    counts([&sender, &router, &other, &fresh]);
    other.send_and_settle([data(4, GROUP, 4)]);
    assert_eq!(counts([&sender, &router, &other, &fresh]), [1, 1, 0, 0]);
}

#[test]
fn groups_without_members_go_to_routers_if_set_so() {
    let logic = make("learning", &[("snooping", "on"), ("unregistered", "routers")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, router, other] = rig.plain_ports();
    tell(&logic, &router, [igmp(3, QUERY, ALL)]);
    counts([&sender, &router, &other]);
    sender.send_and_settle([data(1, GROUP, 1)]);
    assert_eq!(counts([&sender, &router, &other]), [0, 1, 0]);
    // IPv6 has no querier: nothing is pruned there.
    sender.send_and_settle([ipv6(1, GROUP6, 17, 8, &[7; 20])]);
    assert_eq!(counts([&sender, &router, &other]), [0, 1, 1]);
    // A querier sends a packet itself, and no other port has a member.
    router.send_and_settle([data(3, GROUP, 2)]);
    assert_eq!(counts([&sender, &router, &other]), [0, 0, 0]);
    assert_eq!(rig.drops(&router, DropReason::NoDestination), 1);
}

/// Hosts need not be queried again when the logic is replaced.
#[test]
fn members_and_routers_are_handed_over() {
    let logic = make("learning", &[("snooping", "on")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, member, router, other] = rig.plain_ports();
    let all = [&sender, &member, &router, &other];
    tell(&logic, &router, [igmp(3, QUERY, ALL), mld(3, 130, "::")]);
    tell(&logic, &member, [igmp(2, JOIN, GROUP), mld(2, 131, GROUP6)]);
    let expires = |logic: &Arc<dyn Logic>| -> Vec<_> {
        groups(logic).into_iter().map(|entry| entry.expires_seconds).collect()
    };
    assert_eq!(expires(&logic).len(), 4);
    counts(all);
    let next = make("learning", &[("snooping", "on"), ("snooping-timeout", "30")]);
    logic::replace(&*logic, &*next, || rig.switch.set_logic(rig.bridge, next.clone())).unwrap();
    sender.send_and_settle([data(1, GROUP, 1), ipv6(1, GROUP6, 17, 8, &[7; 20])]);
    assert_eq!(counts(all), [0, 2, 2, 0]);
    assert!(expires(&next).iter().all(|seconds| *seconds <= 30), "longer than after a fresh report");
    // A logic without snooping hands over no members, so no port is mistaken for one without members.
    let deaf = make("learning", &[]);
    logic::replace(&*next, &*deaf, || rig.switch.set_logic(rig.bridge, deaf.clone())).unwrap();
    let last = make("learning", &[("snooping", "on")]);
    logic::replace(&*deaf, &*last, || rig.switch.set_logic(rig.bridge, last.clone())).unwrap();
    sender.send_and_settle([data(1, GROUP, 1)]);
    assert_eq!(counts(all), [0, 1, 1, 1]);
}

#[test]
fn members_leave_and_time_out() {
    let logic = make("learning", &[("snooping", "on"), ("snooping-timeout", "2")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, member, router, other] = rig.plain_ports();
    let all = [&sender, &member, &router, &other];
    let ask = |logic: &Arc<dyn Logic>| tell(logic, &router, [igmp(3, QUERY, ALL)]);
    ask(&logic);
    tell(&logic, &member, [igmp(2, JOIN, GROUP)]);
    tell(&logic, &other, [igmp(4, JOIN, [239, 9, 9, 9])]);
    counts(all);
    sender.send_and_settle([data(1, GROUP, 1)]);
    assert_eq!(counts(all), [0, 1, 1, 0]);
    let listed = groups(&logic);
    assert_eq!(listed.len(), 3);
    assert_eq!((listed[0].group, listed[0].port), (None, router.at.port));
    assert_eq!((listed[1].group, listed[1].port), (Some(v4_mac(GROUP)), member.at.port));
    // Time passes, the router repeats its query, and no host answers: a group without members goes everywhere.
    crate::rig::wait_for("the member to be forgotten", || {
        ask(&logic);
        groups(&logic).len() == 1
    });
    counts(all);
    sender.send_and_settle([data(1, GROUP, 2)]);
    assert_eq!(counts(all), [0, 1, 1, 1]);
    crate::rig::wait_for("the router to be forgotten", || groups(&logic).is_empty());

    // A leave shortens the membership.
    let logic = make("learning", &[("snooping", "on"), ("unregistered", "routers")]);
    rig.switch.set_logic(rig.bridge, logic.clone()).unwrap();
    ask(&logic);
    tell(&logic, &member, [igmp(2, JOIN, GROUP), igmp(2, LEAVE, GROUP)]);
    counts(all);
    let expires = |entries: Vec<logic::GroupEntry>| entries.last().unwrap().expires_seconds;
    assert!(expires(groups(&logic)) <= 3);
    // Another host behind the port still wants the group.
    tell(&logic, &member, [igmp(5, JOIN, GROUP)]);
    assert!(expires(groups(&logic)) > 200);
    tell(&logic, &member, [igmp(5, LEAVE, GROUP)]);
    crate::rig::wait_for("the member to leave", || groups(&logic).len() == 1);
    counts(all);
    sender.send_and_settle([data(1, GROUP, 3)]);
    assert_eq!(counts(all), [0, 0, 1, 0]);
}

#[test]
fn mld_works_like_igmp() {
    let logic = make("learning", &[("snooping", "on")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, member, router, other] = rig.plain_ports();
    let all = [&sender, &member, &router, &other];
    tell(&logic, &router, [mld(3, 130, "::")]);
    tell(&logic, &member, [mld(2, 131, GROUP6)]);
    assert_eq!(counts(all), [1, 1, 1, 1]);
    let datagram = ipv6(1, GROUP6, 17, 8, &[7; 20]);
    sender.send_and_settle([datagram.clone()]);
    assert_eq!(
        (member.take(), router.take(), other.take()),
        (vec![datagram.clone()], vec![datagram], vec![])
    );
    // ff02::1 goes to all ports.
    sender.send_and_settle([ipv6(1, "ff02::1", 17, 8, &[7; 20])]);
    assert_eq!(counts(all), [0, 1, 1, 1]);
}

#[test]
fn vlans_have_groups_of_their_own_and_isolation_holds() {
    let logic = make("learning", &[("snooping", "on")]);
    let rig = Rig::new(1, logic.clone());
    let vid = |id| Vid::new(id).unwrap();
    let mut both = VidSet::empty();
    [10, 20].iter().for_each(|id| both.insert(*id));
    let trunk = rig.port("trunk", VlanMode::Trunk { native: None, allowed: both });
    let ten = ["a", "b"].map(|name| rig.port(name, VlanMode::Access(vid(10))));
    let twenty = ["c", "d"].map(|name| rig.port(name, VlanMode::Access(vid(20))));
    let tagged = |frame: Vec<u8>, id| {
        let tag = VlanTag::new(vid(id)).to_tci().to_be_bytes();
        [&frame[..12], &[0x81, 0], &tag, &frame[12..]].concat()
    };
    // The router behind the trunk sends queries in VLAN 10 only.
    tell(&logic, &trunk, [tagged(igmp(3, QUERY, ALL), 10)]);
    tell(&logic, &ten[0], [igmp(1, JOIN, GROUP)]);
    tell(&logic, &twenty[0], [igmp(1, JOIN, GROUP)]);
    let all = [&trunk, &ten[0], &ten[1], &twenty[0], &twenty[1]];
    counts(all);
    trunk.send_and_settle([tagged(data(3, GROUP, 1), 10)]);
    assert_eq!(ten[0].take(), [data(3, GROUP, 1)]);
    assert_eq!(counts(all), [0; 5]);
    ten[1].send_and_settle([data(4, GROUP, 2)]);
    assert_eq!(trunk.take(), [tagged(data(4, GROUP, 2), 10)]);
    assert_eq!(counts(all), [0, 1, 0, 0, 0]);
    trunk.send_and_settle([tagged(data(3, GROUP, 1), 20)]);
    assert_eq!(counts(all), [0, 0, 0, 1, 1]);

    for client in &ten {
        rig.set(client, |settings| settings.isolated = true);
    }
    ten[1].send_and_settle([data(4, GROUP, 2)]);
    assert_eq!(counts(all), [1, 0, 0, 0, 0]);
    assert_eq!(
        rig.drops(&ten[1], DropReason::Isolated),
        0,
        "snooping sends it only to ports that it may reach"
    );
}

#[test]
fn a_full_table_prunes_nothing() {
    let logic = make("learning", &[("snooping", "on")]);
    let rig = Rig::new(1, logic.clone());
    let [sender, member, router, other] = rig.plain_ports();
    let all = [&sender, &member, &router, &other];
    tell(&logic, &router, [igmp(3, QUERY, ALL)]);
    tell(&logic, &member, [igmp(2, JOIN, GROUP)]);
    counts(all);
    sender.send_and_settle([data(1, GROUP, 1)]);
    assert_eq!(counts(all), [0, 1, 1, 0]);
    let flood = (0..4000u16).map(|n| {
        let [a, b] = n.to_be_bytes();
        igmp(4, JOIN, [239, 7, a, b])
    });
    tell(&logic, &other, flood);
    counts(all);
    sender.send_and_settle([data(1, GROUP, 2)]);
    assert_eq!(counts(all), [0, 1, 1, 1]);
}
