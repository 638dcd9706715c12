//! A trace predicts exactly what happens, whatever the ports' settings, and tracing itself changes nothing.

use std::sync::Arc;

use fabric::clock;
use fabric::port::VidSet;
use fabric::protection::{Claim, Limit, Source, Unit};
use fabric::{DropReason, Interest, Mirror, PortIndex, PortSettings, Traced, VlanMode};
use logic::fdb::Key;
use logic::{Foresight, Logic, MacTable};
use packet::{MacAddr, Offload, Vid, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frames::{build, mac, plain, tagged};
use crate::rig::{Client, Rig, groups, learning, make, stations, wait_for};

const PORTS: usize = 5;

fn trace(rig: &Rig, client: &Client, packet: &[u8]) -> Traced {
    rig.switch.trace(client.at, packet, Offload::NONE).unwrap()
}

fn sentences(traced: &Traced) -> Vec<String> {
    traced.remarks.iter().map(|remark| remark.sentence(|port| format!("p{}", port.0))).collect()
}

/// Returns all state that traffic would change.
fn everything(rig: &Rig, clients: &[Client], logic: &Arc<dyn Logic>) -> String {
    let mut stations = logic.views().stations.map(|table| table.entries()).unwrap_or_default();
    stations.sort_by_key(|entry| (entry.vid, entry.mac));
    stations.iter_mut().for_each(|entry| entry.age_seconds = 0);
    let mut groups = logic.views().groups.map(|table| table.entries()).unwrap_or_default();
    groups.iter_mut().for_each(|entry| entry.expires_seconds = 0);
    let counters: Vec<_> = clients.iter().map(|client| rig.switch.counters(client.at).unwrap()).collect();
    let fdb = logic.views().stations.map(|table| table.stats());
    format!("{stations:?} {groups:?} {fdb:?} {counters:?} {:?}", rig.switch.mirrors(rig.bridge).unwrap())
}

#[test]
fn explains_the_findings_and_decisions_of_a_learning_bridge() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let clients = rig.plain_ports::<3>();
    let first = trace(&rig, &clients[0], &plain(2, 1, 0));
    assert_eq!(
        sentences(&first),
        [
            "its source, 52:54:00:00:00:01, is new, and would be learned at p0",
            "its destination, 52:54:00:00:00:02, is unknown",
            "it is flooded"
        ]
    );
    assert_eq!(first.outputs.iter().map(|output| output.port.0).collect::<Vec<_>>(), [1, 2]);
    assert!(stations(&logic).is_empty());
    clients[1].send_and_settle([plain(1, 2, 0)]);
    let known = trace(&rig, &clients[0], &plain(2, 1, 0));
    assert_eq!(sentences(&known)[1], "its destination, 52:54:00:00:00:02, is at p1");
    let own = trace(&rig, &clients[0], &plain(1, 1, 0));
    assert_eq!(
        sentences(&own)[1..],
        [
            "its destination, 52:54:00:00:00:01, is at p0",
            "dropped (same-port): Its destination is at the port where it came in."
        ]
    );
    assert_eq!(own.drops, [DropReason::SamePort]);
    assert_eq!(trace(&rig, &clients[0], &[0; 13]).drops, [DropReason::Runt]);
    assert!(rig.switch.trace(clients[0].at, &[0; 70_000], Offload::NONE).is_err());
}

#[test]
fn a_station_of_another_vlan_is_named() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let client = rig.port("a", VlanMode::Access(vid(10)));
    let other = rig.port("b", VlanMode::Transparent);
    let destination = |vlan, at: &Client, from: &Client, packet: &[u8]| {
        logic.fdb().flush(None, false);
        logic.fdb().add_static(vlan, mac(2), at.at.port).unwrap();
        sentences(&trace(&rig, from, packet))
            .into_iter()
            .find(|step| step.contains("its destination"))
            .unwrap()
    };
    let unknown = "its destination, 52:54:00:00:00:02, is unknown";
    assert_eq!(
        destination(20, &other, &client, &plain(2, 1, 0)),
        format!("{unknown} in VLAN 10; it is at p1 in VLAN 20")
    );
    assert_eq!(
        destination(0, &other, &client, &plain(2, 1, 0)),
        format!("{unknown} in VLAN 10; it is at p1 without a VLAN")
    );
    assert_eq!(
        destination(10, &client, &other, &plain(2, 1, 0)),
        format!("{unknown} without a VLAN; it is at p0 in VLAN 10")
    );
}

/// A full table, and a packet whose source replaces its destination.
#[test]
fn names_the_station_that_makes_room() {
    let logic = learning(&[("max-stations", "4096"), ("port-share", "100")]);
    let rig = Rig::new(1, logic.clone());
    let clients = rig.plain_ports::<3>();
    let fdb = logic.fdb();
    (0..4096).for_each(|n| _ = fdb.learn(Key::new(0, mac(100 + n)), clients[1].at.port, 0));
    let source = Key::new(0, mac(1));
    let foreseen = fdb.foresee(source, clients[0].at.port, clock::seconds(), Claim::Nobody);
    let Foresight::Learned(Some(oldest)) = foreseen else {
        panic!("no station makes room in a full table");
    };
    let packet = build(oldest.mac(), mac(1), None, 0, 46);
    let traced = trace(&rig, &clients[0], &packet);
    assert!(sentences(&traced)[0].ends_with(&format!("{} would make room for it", oldest.mac())));
    assert_eq!(fdb.lookup(oldest), Some(clients[1].at.port));
    let ports: Vec<_> = traced.outputs.iter().map(|output| output.port).collect();
    assert_eq!(ports, [clients[1].at.port, clients[2].at.port], "it is flooded");
    clients[0].send_and_settle([packet.clone()]);
    assert_eq!(clients[2].take(), [packet]);
    assert_eq!(fdb.lookup(oldest), None);
}

/// The remarks on a packet, and the reasons for which it is dropped.
fn told(rig: &Rig, client: &Client, packet: &[u8]) -> (Vec<String>, Vec<&'static str>) {
    let traced = trace(rig, client, packet);
    (sentences(&traced), traced.drops.iter().map(|reason| reason.name()).collect())
}

const NOWHERE: &str = "dropped (no-destination): It had nowhere to go: no other port of its VLAN was up, or the logic \
                       left it undecided.";
const VLAN: &str = "dropped (vlan): The VLAN setting of the port where it came in, or was to leave, does not allow its VLAN.";

fn vid(n: u16) -> Vid {
    Vid::new(n).unwrap()
}

fn carries(vids: impl IntoIterator<Item = u16>) -> VidSet {
    let mut allowed = VidSet::empty();
    vids.into_iter().for_each(|n| allowed.insert(n));
    allowed
}

#[test]
fn says_why_a_vlan_is_a_dead_end() {
    let hub = || Rig::new(1, make("hub", &[]));
    let rig = hub();
    let a = rig.port("a", VlanMode::Access(vid(10)));
    let (steps, drops) = told(&rig, &a, &plain(2, 1, 0));
    assert_eq!(steps, ["it goes to every other port of VLAN 10", "the bridge has no other port", NOWHERE]);
    assert_eq!(drops, ["no-destination"]);

    let _t = rig.port("t", VlanMode::Access(vid(20)));
    let (steps, drops) = told(&rig, &a, &plain(2, 1, 0));
    assert_eq!(steps[1..], ["VLAN 10 has no other port here; p1 is access:20", NOWHERE]);
    assert_eq!(drops, ["no-destination"]);
    let _u = rig.port("u", VlanMode::Trunk { native: Some(vid(7)), allowed: carries([7, 20, 21, 22]) });
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    let expected =
        ["VLAN 10 has no other port here; p1 is access:20", "p2 is trunk:7,20-22,native:7", NOWHERE];
    assert_eq!(steps[1..], expected);

    // Members that take nothing are the reason then.
    rig.set(&a, |settings| settings.vlan = VlanMode::Access(vid(20)));
    for port in [&_t, &_u] {
        rig.set(port, |settings| settings.admin_up = false);
    }
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    let expected = [
        "no other port of VLAN 20 can take it; p1 is administratively down",
        "p2 is administratively down",
        NOWHERE,
    ];
    assert_eq!(steps[1..], expected);

    // Without VLANs, and for packets of none.
    let rig = hub();
    let a = rig.protected("a", |settings| settings.isolated = true);
    let b = rig.protected("b", |settings| settings.isolated = true);
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    let isolated = "no other port can take it; p1 is isolated, and so is the port where the packet came in";
    assert_eq!(steps[1..], [isolated, NOWHERE]);
    rig.switch.detach(b.at).unwrap();
    rig.set(&b, |settings| settings.isolated = false);
    assert_eq!(
        told(&rig, &a, &plain(2, 1, 0)).0[1..],
        ["no other port can take it; p1 has no client", NOWHERE]
    );
    rig.set(&b, |settings| settings.vlan = VlanMode::Access(vid(20)));
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    assert_eq!(steps[1..], ["no other port takes packets of no VLAN; p1 is access:20", NOWHERE]);

    // Long lists end.
    let rig = hub();
    let ports: Vec<_> = (1..12).map(|n| rig.port(&format!("p{n}"), VlanMode::Access(vid(n)))).collect();
    let steps = told(&rig, &ports[0], &plain(2, 1, 0)).0;
    assert_eq!(steps[1], "VLAN 1 has no other port here; p1 is access:2");
    assert_eq!(steps[8..], ["p8 is access:9", "the same holds for 2 more ports", NOWHERE]);
}

#[test]
fn says_which_ports_a_flood_leaves_out() {
    let rig = Rig::new(1, make("learning", &[]));
    let a =
        rig.protected("a", |settings| (settings.isolated, settings.vlan) = (true, VlanMode::Access(vid(10))));
    let member = |name: &str| rig.port(name, VlanMode::Access(vid(10)));
    let (_taker, down, gone, target) = (member("b"), member("c"), member("d"), member("e"));
    let isolated = rig.protected("f", |settings| {
        (settings.isolated, settings.vlan) = (true, VlanMode::Access(vid(10)));
    });
    rig.set(&down, |settings| settings.admin_up = false);
    rig.switch.detach(gone.at).unwrap();
    let mirror = Mirror {
        name: "m7".into(),
        from: vec!["b".into()],
        what: Interest { received: true, sent: true, explained: false },
        to: "e".into(),
        ..Mirror::default()
    };
    rig.switch.set_mirrors(rig.bridge, vec![mirror]).unwrap();
    let skipped = || told(&rig, &a, &plain(2, 1, 0)).0.split_off(4);
    let silent = [
        "not to p2, which is administratively down",
        "not to p3, which has no client",
        "not to p4, which belongs to the mirror m7",
        "not to p5, which is isolated, and so is the port where the packet came in",
    ];
    assert_eq!(skipped(), silent);
    let _outside: Vec<_> = [
        "not to p6: it does not carry VLAN 10",
        "not to p6 and p7: they do not carry VLAN 10",
        "not to p6, p7 and p8: they do not carry VLAN 10",
        "not to p6, p7 and 2 more ports: they do not carry VLAN 10",
    ]
    .into_iter()
    .map(|text| {
        let client = rig.port(text, VlanMode::Access(vid(20)));
        assert_eq!(skipped()[4..], [text]);
        client
    })
    .collect();
    // A packet to the mirror's port, and from it.
    let own = told(&rig, &target, &plain(2, 1, 0)).0;
    assert_eq!(own[0], "p4 belongs to the mirror m7");
    drop(isolated);
}

#[test]
fn says_which_vlan_setting_forbids_it() {
    let rig = Rig::new(1, make("static", &[]));
    let a = rig.port("a", VlanMode::Access(vid(10)));
    let b = rig.port("b", VlanMode::Trunk { native: None, allowed: carries(20..30) });
    let packet = |vid| tagged(2, 1, VlanTag { pcp: 0, dei: false, vid }, 0);
    for (from, packet, reason) in [
        (&a, packet(30), "p0 is access:10: tagged packets, here of VLAN 30, may not enter"),
        (&b, packet(30), "p1 is trunk:20-29: packets of VLAN 30 may not enter"),
        (&b, plain(2, 1, 0), "p1 is trunk:20-29: without a native VLAN, untagged packets may not enter"),
    ] {
        assert_eq!(told(&rig, from, &packet), (vec![reason.into(), VLAN.into()], vec!["vlan"]));
    }
    let (steps, drops) = told(&rig, &a, &plain(2, 1, 0));
    assert_eq!(steps[1..], ["VLAN 10 may not leave p1, which is trunk:20-29", VLAN]);
    assert_eq!(drops, ["vlan"]);
    rig.set(&a, |settings| settings.vlan = VlanMode::Transparent);
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    assert_eq!(steps[1..], ["p1 is trunk:20-29: packets of no VLAN may not leave there", VLAN]);
}

#[test]
fn says_what_keeps_a_port_from_taking_it() {
    let rig = Rig::new(1, make("static", &[("a", "b")]));
    let [a, b] = ["a", "b"].map(|name| rig.port(name, VlanMode::Transparent));
    let last = |packet: &[u8]| {
        let (steps, drops) = told(&rig, &a, packet);
        (steps[1].clone(), drops)
    };
    rig.set(&b, |settings| settings.mtu = 64);
    let long = build(mac(2), mac(1), None, 0, 100);
    assert_eq!(last(&long), ("p1 takes frames of at most 86 bytes; this one has 114".into(), vec![]));
    rig.set(&b, |settings| settings.admin_up = false);
    assert_eq!(last(&plain(2, 1, 0)), ("p1 is administratively down".into(), vec!["port-down"]));
    let own = told(&rig, &b, &plain(2, 1, 0));
    assert_eq!((own.0[0].as_str(), own.1), ("p1 is administratively down", vec!["port-down"]));
    rig.switch.remove_port(b.at).unwrap();
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    assert_eq!(steps, ["p0 is wired to `b`, which is not a port of this bridge", NOWHERE]);
    rig.switch.set_logic(rig.bridge, make("static", &[("x", "y")])).unwrap();
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    assert_eq!(steps, ["p0 is wired to no port: no parameter of the logic names it", NOWHERE]);
    rig.switch.set_logic(rig.bridge, make("dummy", &[])).unwrap();
    let steps = told(&rig, &a, &plain(2, 1, 0)).0;
    assert_eq!(steps[..2], ["the other port of its pair is p1", "p1 is not a port of this bridge"]);
}

#[test]
fn says_what_port_security_does_not_allow() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.protected("a", |settings| settings.security.max_stations = Some(1));
    let _b = rig.port("b", VlanMode::Transparent);
    let first = |packet: &[u8]| told(&rig, &a, packet).0.swap_remove(0);
    a.send_and_settle([plain(9, 1, 0)]);
    assert_eq!(
        first(&plain(9, 2, 0)),
        "its source, 52:54:00:00:00:02, is new, and p0 has its `max-stations`, 1"
    );
    rig.set(&a, |settings| settings.security.stations = vec![mac(1)]);
    assert_eq!(first(&plain(9, 2, 0)), "its source, 52:54:00:00:00:02, is not among the `stations` of p0");
    let group = build(mac(9), MacAddr([1, 0, 0x5e, 0, 0, 1]), None, 0, 46);
    assert_eq!(
        first(&group),
        "its source, 01:00:5e:00:00:01, is a group address, which p0 takes from nobody"
    );
    rig.set(&a, |settings| {
        settings.security.sources = vec![Source { address: [10, 0, 0, 0].into(), prefix: 8, mac: None }];
    });
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac(1).0, &[192, 0, 2, 7], &[0; 10]].concat();
    let arp = [&[0xff; 6][..], &mac(1).0, &[8, 6], &arp].concat();
    let (steps, drops) = told(&rig, &a, &arp);
    assert_eq!(
        steps,
        [
            "ARP sender 192.0.2.7 from 52:54:00:00:00:01 is not among the `sources` of p0",
            "dropped (source-guard): Source guard does not allow its IP, ARP or neighbour discovery address at the \
             port where it came in."
        ]
    );
    assert_eq!(drops, ["source-guard"]);
}

#[test]
fn says_why_a_station_stays_at_its_port() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b] = ["a", "b"].map(|name| rig.port(name, VlanMode::Transparent));
    let steps = |from: &Client, packet: &[u8]| told(&rig, from, packet).0;
    logic.fdb().add_static(0, mac(1), b.at.port).unwrap();
    let to = steps(&a, &plain(1, 1, 0));
    assert_eq!(
        to,
        [
            "its source, 52:54:00:00:00:01, is a static entry at p1 and may not move to p0",
            "its destination, 52:54:00:00:00:01, is a static entry at p1"
        ]
    );
    rig.set(&b, |settings| (settings.security.max_stations, settings.security.sticky) = (Some(9), true));
    b.send_and_settle([plain(9, 2, 0)]);
    assert_eq!(
        steps(&a, &plain(2, 2, 0)),
        [
            "its source, 52:54:00:00:00:02, is sticky at p1 and may not move to p0",
            "its destination, 52:54:00:00:00:02, is sticky at p1"
        ]
    );
    a.send_and_settle([plain(9, 3, 0)]);
    assert_eq!(
        steps(&b, &plain(9, 3, 0))[0],
        "its source, 52:54:00:00:00:03, is at p0 and may not move to p1, which restricts its stations"
    );
    rig.set(&b, |settings| settings.security.stations = vec![mac(4)]);
    assert_eq!(
        steps(&a, &plain(9, 4, 0))[0],
        "its source, 52:54:00:00:00:04, belongs to p1, which lists it in `stations`, not to p0"
    );
}

#[test]
fn says_what_a_packet_would_change() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b] = ["a", "b"].map(|name| rig.port(name, VlanMode::Transparent));
    b.send_and_settle([plain(9, 1, 0), plain(9, 2, 0)]);
    let first = |from: &Client, packet: &[u8]| told(&rig, from, packet).0.swap_remove(0);
    assert_eq!(first(&a, &plain(9, 1, 0)), "its source, 52:54:00:00:00:01, would move from p1 to p0");
    rig.set(&b, |settings| settings.security.max_stations = Some(1));
    assert_eq!(
        first(&b, &plain(9, 1, 0)),
        "its source, 52:54:00:00:00:01, exceeds the `max-stations` of p1 and would be forgotten"
    );
}

#[test]
fn says_that_nobody_wants_a_group() {
    let logic = make("learning", &[("snooping", "on"), ("unregistered", "routers")]);
    let rig = Rig::new(1, logic.clone());
    let [a, router] = rig.plain_ports();
    let all_hosts = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    let mut query = [&all_hosts.0[..], &mac(1).0, &[8, 0], &ip(all_hosts, Some(igmp(0, 0)), true)].concat();
    query.resize(60, 0);
    router.send_and_settle([query]);
    // Queries take effect after they were forwarded.
    wait_for("the router", || !groups(&logic).is_empty());
    let group = build(MacAddr([1, 0, 0x5e, 1, 1, 1]), mac(1), None, 0, 46);
    let (steps, drops) = told(&rig, &router, &group);
    let expected = ["no other port has a member of the group or a router behind it", NOWHERE];
    assert_eq!((&steps[2..], drops), (&expected.map(String::from)[..], vec!["no-destination"]));
    assert_eq!(
        told(&rig, &a, &group).0[2..],
        ["one other port has a member of the group or a router behind it"]
    );
}

#[test]
fn explains_a_wire() {
    let rig = Rig::new(1, make("static", &[]));
    let clients = rig.plain_ports::<3>();
    assert_eq!(sentences(&trace(&rig, &clients[0], &plain(2, 1, 0))), ["p0 is wired to p1"]);
    let lonely = trace(&rig, &clients[2], &plain(2, 1, 0));
    assert_eq!(sentences(&lonely)[0], "p2 is wired to the port of index 3, which does not exist");
    assert_eq!(lonely.drops, [DropReason::NoDestination]);
}

fn vlan_mode() -> impl Strategy<Value = VlanMode> {
    let vid = |n| Vid::new(n).unwrap();
    let mut allowed = VidSet::empty();
    [1, 2, 3].into_iter().for_each(|n| allowed.insert(n));
    prop_oneof![
        3 => Just(VlanMode::Transparent),
        1 => (1u16..4).prop_map(move |n| VlanMode::Access(vid(n))),
        1 => Just(VlanMode::Trunk { native: None, allowed: allowed.clone() }),
        1 => Just(VlanMode::Trunk { native: Some(vid(2)), allowed: allowed.clone() }),
        1 => Just(VlanMode::NativeTagged { native: vid(2), allowed }),
        1 => Just(VlanMode::Tunnel(vid(1))),
    ]
}

/// Limits whose buckets are soon empty and refill only long after the test.
fn limit() -> impl Strategy<Value = Option<Limit>> {
    let limit = |burst| Some(Limit { unit: Unit::Packets, rate: 1, burst: Some(burst) });
    prop_oneof![4 => Just(None), 1 => (3u64..30).prop_map(limit)]
}

prop_compose! {
    fn settings()(
        vlan in vlan_mode(),
        limits in (limit(), limit(), limit(), limit()),
        isolated in prop::bool::weighted(0.2),
        admin_up in prop::bool::weighted(0.95),
        mtu in prop_oneof![4 => Just(0u32), 1 => Just(500u32)],
        max_stations in prop_oneof![3 => Just(None), 1 => (1u32..4).prop_map(Some)],
        sticky in prop::bool::weighted(0.1),
        guarded in prop::bool::weighted(0.1),
        listed in prop::bool::weighted(0.1),
    ) -> PortSettings {
        let mut settings = PortSettings { vlan, isolated, admin_up, mtu, ..PortSettings::new("") };
        (settings.police, settings.storm.broadcast, settings.storm.multicast, settings.storm.unknown) = limits;
        settings.security.max_stations = max_stations;
        settings.security.sticky = sticky;
        if listed {
            settings.security.stations = vec![mac(1), mac(2), mac(3)];
        }
        if guarded {
            settings.security.sources = vec![Source { address: [10, 0, 0, 0].into(), prefix: 8, mac: None }];
        }
        settings
    }
}

fn mirror() -> impl Strategy<Value = Option<Mirror>> {
    let ports = vec(0..PORTS, 0..3);
    let some = (ports, any::<bool>(), any::<bool>(), 0..PORTS, any::<bool>()).prop_map(
        |(from, received, sent, to, tag)| {
            Some(Mirror {
                name: "m".into(),
                from: from.iter().map(|i| format!("p{i}")).collect(),
                what: Interest { received, sent, explained: false },
                to: format!("p{to}"),
                vlan: tag.then(|| Vid::new(99).unwrap()),
                ..Mirror::default()
            })
        },
    );
    prop_oneof![2 => Just(None), 1 => some]
}

fn address() -> impl Strategy<Value = MacAddr> {
    prop_oneof![
        12 => (1u64..7).prop_map(mac),
        2 => Just(MacAddr::BROADCAST),
        1 => (0u8..3).prop_map(|n| MacAddr([1, 0, 0x5e, 1, 1, n])),
        1 => Just(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e])),
    ]
}

fn ip(destination: MacAddr, igmp: Option<[u8; 8]>, inside: bool) -> Vec<u8> {
    let group = if destination.is_multicast() { [224 + 1, 1, 1, destination.0[5]] } else { [10, 0, 0, 9] };
    let source = if inside { [10, 0, 0, 1] } else { [192, 0, 2, 1] };
    let protocol = if igmp.is_some() { 2 } else { 17 };
    let body = igmp.map_or(vec![0; 16], |igmp| igmp.to_vec());
    let mut header = vec![0x45, 0, 0, (20 + body.len()) as u8, 0, 0, 0, 0, 1, protocol, 0, 0];
    header.extend([source, group].concat());
    let checksum = !sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [header, body].concat()
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    (sum & 0xffff) as u16 + (sum >> 16) as u16
}

/// Makes a query, or a report that joins a group.
fn igmp(kind: u8, group: u8) -> [u8; 8] {
    let mut message = match kind {
        0 => [0x11, 100, 0, 0, 0, 0, 0, 0],
        _ => [0x16, 0, 0, 0, 225, 1, 1, group],
    };
    let checksum = !sum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop_oneof![3 => Just(None), 1 => (0u8..8, 0u16..5).prop_map(|(pcp, vid)| Some(VlanTag { pcp, dei: false, vid }))];
    let plain = (address(), address(), tag, prop_oneof![Just(46usize), Just(46), 600usize..2000, Just(9100)])
        .prop_map(|(dst, src, tag, len)| build(dst, src, tag, 7, len));
    let talk = (0u8..2, 0u8..3, 1u64..7, any::<bool>(), any::<bool>()).prop_map(
        |(kind, group, src, inside, talks)| {
            let dst = if kind == 0 && talks {
                MacAddr([1, 0, 0x5e, 0, 0, 1])
            } else {
                MacAddr([1, 0, 0x5e, 1, 1, group])
            };
            let body = ip(dst, talks.then(|| igmp(kind, group)), inside);
            let mut frame = [&dst.0[..], &mac(src).0, &[8, 0], &body].concat();
            frame.resize(60.max(frame.len()), 0);
            frame
        },
    );
    prop_oneof![3 => plain, 1 => talk]
}

type Params = &'static [(&'static str, &'static str)];

fn logic() -> impl Strategy<Value = (&'static str, Params)> {
    prop_oneof![
        2 => Just(("learning", &[] as Params)),
        // A small table, so that stations make room for each other.
        1 => Just(("learning", &[("max-stations", "3")] as Params)),
        2 => Just(("learning", &[("snooping", "on")] as Params)),
        1 => Just(("learning", &[("snooping", "on"), ("unregistered", "routers")] as Params)),
        2 => Just(("static", &[] as Params)),
        1 => Just(("hub", &[] as Params)),
    ]
}

proptest! {
    // 60 bridges with 40 packets each, in addition to stored failures.
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn traces_come_true(
        (name, params) in logic(),
        settings in vec(settings(), PORTS..=PORTS),
        mirror in mirror(),
        packets in vec((0..PORTS, packet()), 40),
    ) {
        let logic = make(name, params);
        let rig = Rig::new(1, logic.clone());
        let named = |(i, settings): (usize, PortSettings)| {
            rig.protected(&format!("p{i}"), |own| *own = PortSettings { name: own.name.clone(), ..settings })
        };
        let clients: Vec<_> = settings.into_iter().enumerate().map(named).collect();
        rig.switch.set_mirrors(rig.bridge, mirror.into_iter().collect()).unwrap();
        for (from, packet) in packets {
            let before = everything(&rig, &clients, &logic);
            let traced = trace(&rig, &clients[from], &packet);
            prop_assert_eq!(&before, &everything(&rig, &clients, &logic), "tracing changed something");

            let drops = |client: &Client| {
                let counters = rig.switch.counters(client.at).unwrap();
                let drops = |queues: &[fabric::counters::QueueSnapshot]| {
                    DropReason::ALL.iter().map(|r| queues.iter().map(|q| q.drops[*r as usize]).sum()).collect::<Vec<u64>>()
                };
                (drops(&counters.rx), drops(&counters.tx))
            };
            let dropped_before: Vec<_> = clients.iter().map(drops).collect();
            clients[from].send_and_settle([packet.clone()]);
            for (i, client) in clients.iter().enumerate() {
                let here = PortIndex(i as u16);
                let predicted: Vec<_> = traced.outputs.iter().filter(|o| o.port == here).map(|o| o.packet.clone()).collect();
                prop_assert_eq!(client.take(), predicted, "port {}: {:?}", i, sentences(&traced));
                let (rx, tx) = drops(client);
                for (reason, at) in DropReason::ALL.iter().zip(0..) {
                    let count = |reasons: &mut dyn Iterator<Item = DropReason>| reasons.filter(|r| r == reason).count() as u64;
                    let at_ingress = if i == from { count(&mut traced.drops.iter().copied()) } else { 0 };
                    let refused = count(&mut traced.refusals.iter().filter(|(port, _)| *port == here).map(|(_, r)| *r));
                    let (rx_before, tx_before) = &dropped_before[i];
                    prop_assert_eq!(rx[at] - rx_before[at], at_ingress, "port {} in, {}: {:?}", i, reason.name(), sentences(&traced));
                    prop_assert_eq!(tx[at] - tx_before[at], refused, "port {} out, {}: {:?}", i, reason.name(), sentences(&traced));
                }
            }
        }
    }
}
