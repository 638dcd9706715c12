//! Isolation, policing and storm control: they hold back the right traffic, and no other.

use fabric::protection::{Limit, Source, Unit};
use fabric::{DropReason, PortSettings, VlanMode};
use logic::{FdbChange, Fixed, Key, Logic, MacTable};
use packet::{MacAddr, Vid};
use std::net::Ipv4Addr;

use crate::frames::{build, mac, number, plain};
use crate::rig::{Client, Rig, learning, make};

const NOTHING: Vec<Vec<u8>> = Vec::new();

/// A limit that refills nothing while a test runs: only the burst passes.
fn burst(unit: Unit, burst: u64) -> Option<Limit> {
    let rate = if unit == Unit::Bits { 1000 } else { 1 };
    Some(Limit { unit, rate, burst: Some(burst) })
}

fn isolate(settings: &mut PortSettings) {
    settings.isolated = true;
}

fn numbers(client: &Client) -> Vec<u32> {
    client.take().iter().map(|frame| number(frame)).collect()
}

fn multicast(n: u32) -> Vec<u8> {
    build(MacAddr([1, 0, 0x5e, 1, 2, 3]), mac(1), None, n, 46)
}

#[test]
fn isolated_ports_reach_only_other_ports() {
    let rig = Rig::new(1, make("learning", &[]));
    let [a, b] = ["a", "b"].map(|name| rig.protected(name, isolate));
    let up = rig.port("up", VlanMode::Transparent);
    // Floods, known stations, unknown ones.
    a.send_and_settle([plain(0, 1, 0), plain(9, 1, 1)]);
    b.send_and_settle([plain(0, 2, 2), plain(1, 2, 3)]);
    assert_eq!((a.take(), b.take()), (NOTHING, NOTHING));
    assert_eq!(numbers(&up), [0, 1, 2]);
    assert_eq!(rig.drops(&b, DropReason::Isolated), 1);
    assert_eq!(rig.drops(&a, DropReason::Isolated), 0);
    up.send_and_settle([plain(1, 3, 4), plain(2, 3, 5), plain(0, 3, 6)]);
    assert_eq!((numbers(&a), numbers(&b)), (vec![4, 6], vec![5, 6]));
    a.send_and_settle([plain(3, 1, 7)]);
    assert_eq!(numbers(&up), [7]);

    // While the switch runs, both ways.
    rig.set(&b, |settings| settings.isolated = false);
    a.send_and_settle([plain(0, 1, 8), plain(2, 1, 9)]);
    assert_eq!(numbers(&b), [8, 9]);
    rig.set(&b, isolate);
    a.send_and_settle([plain(0, 1, 10), plain(2, 1, 11)]);
    assert_eq!(b.take(), NOTHING);
}

#[test]
fn isolation_holds_within_vlans_and_on_wires() {
    let rig = Rig::new(1, make("learning", &[]));
    let access = VlanMode::Access(Vid::new(10).unwrap());
    let member = |settings: &mut PortSettings| settings.vlan = access.clone();
    let a = rig.protected("a", |settings| (isolate(settings), member(settings)).0);
    let b = rig.protected("b", |settings| (isolate(settings), member(settings)).0);
    let c = rig.protected("c", member);
    b.send_and_settle([plain(0, 2, 0)]);
    a.send_and_settle([plain(0, 1, 1), plain(2, 1, 2)]);
    assert_eq!((b.take(), numbers(&c)), (NOTHING, vec![0, 1]));
    assert_eq!(rig.drops(&a, DropReason::Isolated), 1);

    let rig = Rig::new(1, make("static", &[]));
    let [a, b] = ["a", "b"].map(|name| rig.protected(name, isolate));
    a.send_and_settle([plain(2, 1, 0)]);
    assert_eq!((b.take(), rig.drops(&a, DropReason::Isolated)), (NOTHING, 1));
}

#[test]
fn a_port_that_is_down_is_down_for_isolated_ports_too() {
    let rig = Rig::new(1, make("static", &[]));
    let [a, b] = ["a", "b"].map(|name| rig.protected(name, isolate));
    rig.set(&b, |settings| settings.admin_up = false);
    a.send_and_settle([plain(2, 1, 0)]);
    assert_eq!((rig.drops(&a, DropReason::PortDown), rig.drops(&a, DropReason::Isolated)), (1, 0));
}

#[test]
fn policing_lets_the_burst_pass_in_order() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.protected("a", |settings| settings.police = burst(Unit::Packets, 100));
    let b = rig.port("b", VlanMode::Transparent);
    a.send_and_settle((0..1000).map(|i| plain(0, 1, i)));
    assert_eq!(numbers(&b), Vec::from_iter(0..100));
    assert_eq!(rig.drops(&a, DropReason::Policed), 900);
    // The port's own traffic is policed, not the traffic to it.
    b.send_and_settle((0..500).map(|i| plain(1, 2, i)));
    assert_eq!(numbers(&a), Vec::from_iter(0..500));
}

#[test]
fn policing_counts_bytes_and_small_packets_pass_between_large_ones() {
    let rig = Rig::new(1, make("static", &[]));
    let a = rig.protected("a", |settings| settings.police = burst(Unit::Bits, 10_000));
    let b = rig.port("b", VlanMode::Transparent);
    let sized = |len: usize, n| build(mac(2), mac(1), None, n, len - 14);
    // 6,000 and 3,000 bytes fit; 3,000 more do not, 900 do.
    a.send_and_settle([sized(6000, 0), sized(3000, 1), sized(3000, 2), sized(900, 3), sized(200, 4)]);
    assert_eq!(b.take(), [sized(6000, 0), sized(3000, 1), sized(900, 3)]);
    assert_eq!(rig.drops(&a, DropReason::Policed), 2);
}

#[test]
fn limits_change_while_running_and_other_changes_fill_no_bucket() {
    let rig = Rig::new(1, make("static", &[]));
    let a = rig.protected("a", |settings| settings.police = burst(Unit::Packets, 10));
    let b = rig.port("b", VlanMode::Transparent);
    let send = |n: u32| {
        a.send_and_settle((0..n).map(|i| plain(2, 1, i)));
        b.take().len()
    };
    assert_eq!(send(20), 10);
    rig.set(&a, |settings| settings.mtu = 1500);
    assert_eq!(send(20), 0);
    rig.set(&a, |settings| settings.police = burst(Unit::Packets, 11));
    assert_eq!(send(20), 11);
    rig.set(&a, |settings| settings.police = None);
    assert_eq!(send(2000), 2000);
}

#[test]
fn storms_are_held_by_kind() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.protected("a", |settings| {
        settings.storm.broadcast = burst(Unit::Packets, 3);
        settings.storm.multicast = burst(Unit::Packets, 4);
        settings.storm.unknown = burst(Unit::Packets, 5);
    });
    let b = rig.port("b", VlanMode::Transparent);
    b.send_and_settle([plain(0, 2, 0)]);
    a.take();
    // Of each ten frames: a broadcast, a multicast, one to an unknown station, the rest to a known one.
    let mixed = |i: u32| match i % 10 {
        0 => plain(0, 1, i),
        1 => multicast(i),
        2 => plain(9, 1, i),
        _ => plain(2, 1, i),
    };
    a.send_and_settle((0..1000).map(mixed));
    let expected = (0..1000).filter(|i| match i % 10 {
        0 => *i < 30,
        1 => *i < 40,
        2 => *i < 50,
        _ => true,
    });
    assert_eq!(numbers(&b), Vec::from_iter(expected));
    assert_eq!(rig.drops(&a, DropReason::StormControl), 97 + 96 + 95);
    // Other ports have no limit.
    b.send_and_settle((0..100).map(|i| plain(0, 2, i)));
    assert_eq!(numbers(&a), Vec::from_iter(0..100));
}

#[test]
fn packets_dropped_by_storm_control_use_no_policing_rate() {
    let rig = Rig::new(1, make("learning", &[]));
    let a = rig.protected("a", |settings| {
        settings.storm.broadcast = burst(Unit::Packets, 1);
        settings.police = burst(Unit::Packets, 10);
    });
    let b = rig.port("b", VlanMode::Transparent);
    b.send_and_settle([plain(0, 2, 0)]);
    a.send_and_settle((0..64).map(|i| plain(0, 1, i)).chain((64..80).map(|i| plain(2, 1, i))));
    assert_eq!(numbers(&b), [vec![0], Vec::from_iter(64..73)].concat());
    assert_eq!((rig.drops(&a, DropReason::StormControl), rig.drops(&a, DropReason::Policed)), (63, 7));
}

#[test]
fn a_batch_that_is_thinned_out_can_still_be_edited() {
    // Tags are pushed into versions after those received, of which some are gone.
    let rig = Rig::new(1, make("learning", &[]));
    let vid = Vid::new(10).unwrap();
    let a = rig.protected("a", |settings| {
        settings.vlan = VlanMode::Access(vid);
        settings.storm.broadcast = burst(Unit::Packets, 2);
    });
    let mut allowed = fabric::port::VidSet::empty();
    allowed.insert(10);
    let trunk = rig.port("t", VlanMode::Trunk { native: None, allowed });
    let b = rig.port("b", VlanMode::Access(vid));
    let frames = (0..60).map(|i| if i % 3 == 0 { plain(0, 1, i) } else { plain(9, 1, i) });
    a.send_and_settle(frames);
    let passed: Vec<u32> = (0..60).filter(|i| i % 3 != 0 || *i < 6).collect();
    assert_eq!(numbers(&b), passed);
    let tagged: Vec<u32> = trunk
        .take()
        .iter()
        .map(|frame| {
            assert_eq!(frame[12..16], [0x81, 0, 0, 10]);
            u32::from_be_bytes(frame[18..22].try_into().unwrap())
        })
        .collect();
    assert_eq!(tagged, passed);
}

#[test]
fn a_full_port_refuses_further_stations_and_changes_nothing() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let a = rig.protected("a", |settings| settings.security.max_stations = Some(2));
    let [b, c] = ["b", "c"].map(|name| rig.port(name, VlanMode::Transparent));
    b.send_and_settle([plain(0, 9, 0)]);
    a.take();
    c.take();
    // Two stations of its own; a third, one of another port, and a group: interleaved, in one batch.
    let from = |src: u64, n| plain(0, src, n);
    let group = build(mac(0), MacAddr([3, 0, 0, 0, 0, 1]), None, 7, 46);
    a.send_and_settle([
        from(1, 0),
        from(3, 1),
        from(2, 2),
        from(3, 3),
        from(4, 4),
        from(9, 5),
        from(1, 6),
        group,
    ]);
    // 3 is the second station; 2, 4, 9 and the group are refused.
    assert_eq!(numbers(&c), [0, 1, 3, 6]);
    assert_eq!(rig.drops(&a, DropReason::StationLimit), 4);
    let stations = |client: &Client| logic.fdb().stations_at(client.at.port);
    assert_eq!((stations(&a), stations(&b)), (2, 1));
    b.take();
    c.send_and_settle([plain(9, 8, 10), plain(3, 8, 11), plain(2, 8, 12)]);
    assert_eq!((numbers(&b), numbers(&a)), (vec![10, 12], vec![11, 12]));

    // A larger limit applies from the next batch on; under a smaller one, the surplus leaves.
    rig.set(&a, |settings| settings.security.max_stations = Some(3));
    a.send_and_settle([from(2, 0)]);
    assert_eq!((numbers(&c), stations(&a)), (vec![0], 3));
    rig.set(&a, |settings| settings.security.max_stations = Some(1));
    a.send_and_settle([from(1, 0), from(2, 1), from(3, 2)]);
    assert_eq!((numbers(&c), stations(&a)), (vec![2], 1));
    rig.set(&a, |settings| settings.security.max_stations = None);
    a.send_and_settle((20..40).map(|src| from(src, 0)));
    assert_eq!((c.take().len(), stations(&a)), (20, 21));
}

#[test]
fn only_named_stations_may_send() {
    for logic in ["learning", "static"] {
        let rig = Rig::new(1, make(logic, &[]));
        let a = rig.protected("a", |settings| settings.security.stations = vec![mac(1), mac(3)]);
        let b = rig.port("b", VlanMode::Transparent);
        a.send_and_settle((0..5).map(|src| build(mac(0), mac(src), None, src as u32, 46)));
        assert_eq!(numbers(&b), [1, 3], "{logic}");
        assert_eq!(rig.drops(&a, DropReason::StationLimit), 3);
    }
}

#[test]
fn sticky_stations_do_not_age_or_move_while_the_port_is_sticky() {
    let logic = learning(&[("ageing", "10")]);
    let rig = Rig::new(1, logic.clone());
    let sticky = |settings: &mut PortSettings| {
        settings.security.sticky = true;
        settings.security.max_stations = Some(1);
    };
    let a = rig.protected("a", sticky);
    let [b, c] = ["b", "c"].map(|name| rig.port(name, VlanMode::Transparent));
    a.send_and_settle([plain(0, 1, 0)]);
    logic.tick(fabric::clock::seconds() + 1000);
    a.send_and_settle([plain(0, 2, 1)]);
    assert_eq!((numbers(&c), rig.drops(&a, DropReason::StationLimit)), (vec![0], 1));
    // Station 1 stays at its port while that is closed, and cannot appear at another.
    rig.set(&a, |settings| settings.admin_up = false);
    rig.set(&a, |settings| settings.admin_up = true);
    b.send_and_settle([plain(0, 1, 2)]);
    c.take();
    c.send_and_settle([plain(1, 3, 3)]);
    assert_eq!(numbers(&a), [2, 3]);
    rig.set(&a, |settings| settings.security.sticky = false);
    assert_eq!(logic.fdb().stations_at(a.at.port), 0);
    a.send_and_settle([plain(0, 2, 4)]);
    assert_eq!(numbers(&c), [4]);
}

#[test]
fn source_guard_works_in_both_logics() {
    let packet = |from: [u8; 4], n: u32| {
        let mut frame = build(mac(0), mac(1), None, n, 60);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[26..30].copy_from_slice(&from);
        frame
    };
    for logic in ["learning", "static"] {
        let rig = Rig::new(1, make(logic, &[]));
        let address = Ipv4Addr::new(10, 0, 0, 5).into();
        let a = rig.protected("a", |settings| {
            settings.security.sources = vec![Source { address, prefix: 32, mac: None }];
        });
        let b = rig.port("b", VlanMode::Transparent);
        a.send_and_settle([packet([10, 0, 0, 5], 0), packet([10, 0, 0, 6], 1), plain(0, 1, 2)]);
        assert_eq!(b.take(), [packet([10, 0, 0, 5], 0), plain(0, 1, 2)], "{logic}");
        assert_eq!(rig.drops(&a, DropReason::SourceGuard), 1);
        rig.set(&a, |settings| settings.security.sources.clear());
        a.send_and_settle([packet([10, 0, 0, 6], 3)]);
        assert_eq!(b.take().len(), 1);
    }
}

#[test]
fn a_listed_station_belongs_to_its_port() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let fdb = logic.fdb();
    let up = rig.port("up", VlanMode::Transparent);
    let other = rig.port("other", VlanMode::Transparent);
    // Known elsewhere before the port lists it.
    up.send_and_settle([plain(0, 1, 0)]);
    let vm = rig.protected("vm", |settings| settings.security.stations = vec![mac(1)]);
    let at = |n| fdb.lookup(Key::new(0, mac(n)));
    assert_eq!(at(1), None, "it does not stay where it may not be");
    fdb.watch(true);
    // Forged before the station is heard, and after.
    up.send_and_settle([plain(0, 1, 1)]);
    assert_eq!(at(1), None);
    vm.send_and_settle([plain(0, 1, 2)]);
    assert_eq!(at(1), Some(vm.at.port));
    up.send_and_settle([plain(0, 1, 3), plain(0, 2, 4)]);
    assert_eq!((at(1), at(2)), (Some(vm.at.port), Some(up.at.port)));
    vm.send_and_settle([plain(2, 1, 5)]);
    assert_eq!(rig.drops(&vm, DropReason::StationLimit), 0);
    assert_eq!(numbers(&up).last(), Some(&5));
    assert_eq!(numbers(&other), [0, 1, 2, 3, 4], "a forged packet passes an unguarded port");
    assert_eq!(fdb.stats().conflicts, 2);
    let events = fdb.drain_events().0;
    let conflicts = events.iter().filter(|event| event.change == FdbChange::Conflict(Fixed::Listed));
    let conflicts = conflicts.map(|event| (event.key, event.port, event.other));
    // One event a port until the next tick.
    assert_eq!(Vec::from_iter(conflicts), [(Key::new(0, mac(1)), up.at.port, Some(vm.at.port))]);
    logic.tick(fabric::clock::seconds());
    up.send_and_settle([plain(0, 1, 6)]);
    assert_eq!(fdb.drain_events().0.len(), 1);

    // A guarded port drops what belongs to another.
    rig.set(&other, |settings| settings.security.max_stations = Some(9));
    other.send_and_settle([plain(0, 1, 7)]);
    assert_eq!((rig.drops(&other, DropReason::StationLimit), at(1)), (1, Some(vm.at.port)));
    // Either of two ports that list a station may have it.
    rig.set(&other, |settings| settings.security.stations = vec![mac(1)]);
    other.send_and_settle([plain(0, 1, 8)]);
    assert_eq!(at(1), Some(other.at.port));
    vm.send_and_settle([plain(0, 1, 9)]);
    assert_eq!(at(1), Some(vm.at.port));
    // A static entry is the operator's word.
    fdb.add_static(0, mac(1), up.at.port).unwrap();
    vm.send_and_settle([plain(0, 1, 10)]);
    assert_eq!((rig.drops(&vm, DropReason::StationLimit), at(1)), (1, Some(up.at.port)));
}

#[test]
fn a_listed_station_belongs_to_its_port_in_its_vlans_only() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let access = |vid| VlanMode::Access(Vid::new(vid).unwrap());
    let vm = rig.protected("vm", |settings| {
        (settings.vlan, settings.security.stations) = (access(10), vec![mac(1)]);
    });
    let [same, other] = [10, 20].map(|vid| rig.port(&format!("p{vid}"), access(vid)));
    for client in [&same, &other, &vm] {
        client.send_and_settle([plain(0, 1, 0)]);
    }
    let at = |vid| logic.fdb().lookup(Key::new(vid, mac(1)));
    assert_eq!((at(10), at(20)), (Some(vm.at.port), Some(other.at.port)));
}

#[test]
fn stations_leave_with_the_vlan_of_their_port() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let access = |vid| VlanMode::Access(Vid::new(vid).unwrap());
    let [a, b] = ["a", "b"].map(|name| rig.port(name, access(20)));
    a.send_and_settle([plain(0, 1, 0)]);
    b.send_and_settle([plain(0, 2, 1)]);
    logic.fdb().add_static(20, mac(3), a.at.port).unwrap();
    let at = |n| logic.fdb().lookup(Key::new(20, mac(n)));
    rig.set(&a, |settings| settings.mtu = 1000);
    assert_eq!(at(1), Some(a.at.port), "other changes leave stations alone");
    rig.set(&a, |settings| settings.vlan = access(30));
    assert_eq!((at(1), at(2), at(3)), (None, Some(b.at.port), Some(a.at.port)));
    // Workers may learn with the old setting until after the first tick.
    for n in [4, 5] {
        logic.fdb().learn(Key::new(20, mac(n)), a.at.port, 1);
        logic.tick(1);
        assert_eq!(at(n), None);
    }
}

#[test]
fn sticky_stations_leave_with_the_setting_and_not_with_the_list_of_another_port() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let a = rig.protected("a", |settings| {
        (settings.security.sticky, settings.security.max_stations) = (true, Some(9));
    });
    let b = rig.port("b", VlanMode::Transparent);
    a.send_and_settle([plain(0, 1, 0)]);
    let at = |n| logic.fdb().lookup(Key::new(0, mac(n)));
    rig.set(&b, |settings| settings.security.stations = vec![mac(1)]);
    assert_eq!(at(1), Some(a.at.port));
    b.send_and_settle([plain(0, 1, 1)]);
    assert_eq!((at(1), rig.drops(&b, DropReason::StationLimit)), (Some(a.at.port), 1));
    rig.set(&a, |settings| settings.security.sticky = false);
    assert_eq!(at(1), None);
    for n in [2, 3] {
        logic.fdb().learn_within(Key::new(0, mac(n)), a.at.port, 1, 9, true);
        logic.tick(1);
        assert_eq!(at(n), None);
    }
}
