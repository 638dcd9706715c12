//! A trace predicts exactly what happens, whatever the ports' settings, and tracing itself changes nothing.

use std::sync::Arc;

use fabric::clock;
use fabric::port::VidSet;
use fabric::protection::{Limit, Source, Unit};
use fabric::{DropReason, Interest, Mirror, PortIndex, PortSettings, Traced, VlanMode};
use logic::fdb::Key;
use logic::{Foresight, Logic};
use packet::{MacAddr, Offload, Vid, VlanTag};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::frames::{build, mac, plain};
use crate::rig::{Client, Rig, learning, make, stations};

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
            "its source, 52:54:00:00:00:01, is new, and learned at p0",
            "its destination, 52:54:00:00:00:02, is not known",
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
            "dropped (same-port): The destination is the port it came from."
        ]
    );
    assert_eq!(own.drops, [DropReason::SamePort]);
    assert_eq!(trace(&rig, &clients[0], &[0; 13]).drops, [DropReason::Runt]);
    assert!(rig.switch.trace(clients[0].at, &[0; 70_000], Offload::NONE).is_err());
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
    let Foresight::Learned(Some(oldest)) = fdb.foresee(source, clients[0].at.port, clock::seconds()) else {
        panic!("no station makes room in a full table");
    };
    let packet = build(oldest.mac(), mac(1), None, 0, 46);
    let traced = trace(&rig, &clients[0], &packet);
    assert!(sentences(&traced)[0].ends_with(&format!("{} makes room for it", oldest.mac())));
    assert_eq!(fdb.lookup(oldest), Some(clients[1].at.port));
    let ports: Vec<_> = traced.outputs.iter().map(|output| output.port).collect();
    assert_eq!(ports, [clients[1].at.port, clients[2].at.port], "it is flooded");
    clients[0].send_and_settle([packet.clone()]);
    assert_eq!(clients[2].take(), [packet]);
    assert_eq!(fdb.lookup(oldest), None);
}

#[test]
fn explains_a_wire() {
    let rig = Rig::new(1, make("static", &[]));
    let clients = rig.plain_ports::<3>();
    assert_eq!(sentences(&trace(&rig, &clients[0], &plain(2, 1, 0))), ["p0 is wired to p1"]);
    let lonely = trace(&rig, &clients[2], &plain(2, 1, 0));
    assert_eq!(sentences(&lonely)[0], "p2 is wired to no port");
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
        1 => Just(VlanMode::Trunk { native: Some(vid(2)), allowed }),
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
    ) -> PortSettings {
        let mut settings = PortSettings { vlan, isolated, admin_up, mtu, ..PortSettings::new("") };
        (settings.police, settings.storm.broadcast, settings.storm.multicast, settings.storm.unknown) = limits;
        settings.security.max_stations = max_stations;
        settings.security.sticky = sticky;
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
