//! Hand-over: a learning bridge takes over its predecessor's stations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fabric::{DropReason, PortIndex, PortSettings, SwitchError, SwitchLogic};
use logic::{FdbError, Key, Learning, Logic, MacTable, State, Station, replace};

use crate::changes::{numbers, stream};
use crate::frames::{mac, plain};
use crate::rig::{Rig, learning, make, stations};

/// Replaces the bridge's logic.
fn replace_logic(rig: &Rig, old: &mut Arc<dyn Logic>, new: Arc<dyn Logic>) {
    replace(&**old, &*new, || rig.switch.set_logic(rig.bridge, new.clone())).unwrap();
    *old = new;
}

/// Returns the known stations in the order of their keys.
fn known(logic: &dyn Logic) -> Vec<Station> {
    let mut stations: Vec<_> = Station::take_over(&logic.hand_over()).collect();
    stations.sort_by_key(|station| station.key);
    stations
}

#[test]
fn a_hundred_successors_lose_flood_and_forget_nothing() {
    let mut logic = make("learning", &[]);
    let rig = Rig::new(2, logic.clone());
    let [a, b, c] = rig.plain_ports();
    // 500 stations that stay silent from now on, and one static entry.
    c.send_and_settle((100..600).map(|n| plain(100, n, 0)));
    stations(&logic).add_static(0, mac(3), c.at.port).unwrap();
    b.send_and_settle([plain(3, 2, 0)]);
    a.send_and_settle([plain(2, 1, 0)]);
    for client in [&a, &b, &c] {
        client.take();
    }
    let before = known(&*logic);
    assert_eq!(before.len(), 503);

    let stop = AtomicBool::new(false);
    let (there, back) = std::thread::scope(|scope| {
        let there = scope.spawn(|| stream(&a, 1, |_| 2, &stop));
        let back = scope.spawn(|| stream(&b, 2, |_| 1, &stop));
        for i in 0..100 {
            let (ageing, stations) = ((60 + i).to_string(), (8192 >> (i % 3)).to_string());
            let params = [("ageing", ageing.as_str()), ("max-stations", &stations)];
            replace_logic(&rig, &mut logic, make("learning", &params));
        }
        stop.store(true, Relaxed);
        (there.join().unwrap(), back.join().unwrap())
    });
    assert!(there > 0 && back > 0);
    assert_eq!(numbers(&b.take_all(there as usize)), Vec::from_iter(0..there));
    assert_eq!(numbers(&a.take_all(back as usize)), Vec::from_iter(0..back));
    assert!(c.take().is_empty(), "frames between known stations were flooded");
    for client in [&a, &b] {
        assert_eq!(DropReason::ALL.iter().map(|reason| rig.drops(client, *reason)).sum::<u64>(), 0);
    }
    // Silent stations keep their last-heard times; those of the others may have changed.
    let silent = |stations: Vec<Station>| -> Vec<Station> {
        stations.into_iter().filter(|station| station.port == c.at.port).collect()
    };
    assert_eq!(known(&*logic).len(), before.len());
    assert_eq!(silent(known(&*logic)), silent(before));
}

/// Makes a learning bridge that knows of ports 0 to 3.
fn with_ports(params: &[(&str, &str)]) -> Arc<Learning> {
    let logic = learning(params);
    logic.ports_changed(&ports(&[]));
    logic
}

/// Returns ports 0 to 3, of which some are sticky.
fn ports(sticky: &[u16]) -> Vec<(PortIndex, Arc<PortSettings>)> {
    let port = |i| {
        let mut settings = PortSettings::new(format!("p{i}"));
        settings.security.sticky = sticky.contains(&i);
        (PortIndex(i), Arc::new(settings))
    };
    (0..4).map(port).collect()
}

fn key(n: u64) -> Key {
    Key::new(0, mac(n))
}

fn at(logic: &Learning, n: u64) -> Option<u16> {
    logic.fdb().lookup(key(n)).map(|port| port.0)
}

fn learn(logic: &Learning, n: u64, port: u16) {
    logic.fdb().learn(key(n), PortIndex(port), fabric::clock::seconds());
}

#[test]
fn the_port_where_a_station_was_heard_last_wins() {
    let old = with_ports(&[]);
    (1..=6).for_each(|n| learn(&old, n, 0));
    let new = learning(&[]);
    replace(&*old, &*new, || {
        // Until its last batch the old logic hears that 2, 3 and 6 move and that there is a station 7.
        [2, 3, 6, 7].into_iter().for_each(|n| learn(&old, n, 1));
        new.ports_changed(&ports(&[]));
        // The new one hears that 3 and 4 move, that 7 is elsewhere, and that there is a station 8.
        [3, 4, 7, 8].into_iter().for_each(|n| learn(&new, n, 2));
        new.fdb().remove(0, mac(5));
        // A static entry of the new one.
        new.fdb().add_static(0, mac(6), PortIndex(3))
    })
    .unwrap();
    let found: Vec<_> = (1..=8).map(|n| at(&new, n)).collect();
    assert_eq!(found, [Some(0), Some(1), Some(2), Some(2), Some(0), Some(3), Some(2), Some(2)]);
    assert_eq!(new.fdb().len(), 8);
    let stats = new.fdb().stats();
    assert_eq!((stats.learned, stats.moved), (2, 2), "inherited stations do not count as learned");
}

#[test]
fn a_failed_switch_leaves_the_old_logic_unchanged() {
    let (old, new) = (with_ports(&[]), learning(&[]));
    learn(&old, 1, 1);
    let gone = SwitchError::Gone("bridge");
    assert_eq!(replace(&*old, &*new, || Err(gone.clone())), Err(gone));
    assert_eq!(at(&old, 1), Some(1));
}

#[test]
fn the_last_heard_stations_find_room() {
    let old = with_ports(&[]);
    let now = fabric::clock::seconds();
    // With a clock that has just started, all would be equally old.
    let age = |n: u64| now.saturating_sub(100 - n as u32);
    let fdb = old.fdb();
    for n in 1..=40 {
        fdb.learn(key(n), PortIndex(0), age(n));
    }
    fdb.add_static(0, mac(50), PortIndex(1)).unwrap();
    fdb.learn_within(key(51), PortIndex(2), age(1), 9, true);
    let new = learning(&[("max-stations", "12"), ("port-share", "100")]);
    new.take_over(&old.hand_over());
    new.ports_changed(&ports(&[2]));
    new.take_over(&old.hand_over());
    let mut left: Vec<_> = known(&*new).into_iter().map(|station| station.key).collect();
    left.sort();
    let mut expected: Vec<_> = (31..=40).chain([50, 51]).map(key).collect();
    expected.sort();
    assert_eq!(left, expected);
    assert_eq!(known(&*new).iter().find(|station| station.key == key(35)).unwrap().seen, age(35));
    // A learned station makes room for a static one; static and sticky ones stay.
    assert_eq!(new.fdb().add_static(0, mac(60), PortIndex(0)), Ok(()));
    assert_eq!(at(&new, 50), Some(1));
    let full = learning(&[("max-stations", "1")]);
    full.take_over(&new.hand_over());
    assert_eq!(full.fdb().add_static(0, mac(70), PortIndex(0)), Err(FdbError::Full(1)));
}

#[test]
fn sticky_stations_stay_at_ports_that_are_sticky() {
    let old = with_ports(&[]);
    let fdb = old.fdb();
    fdb.learn_within(key(1), PortIndex(1), 0, 9, true);
    fdb.learn_within(key(2), PortIndex(2), 0, 9, true);
    let new = learning(&[("ageing", "1")]);
    new.take_over(&old.hand_over());
    new.ports_changed(&ports(&[1]));
    new.take_over(&old.hand_over());
    let entries = new.fdb().entries();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert!(entries[0].is_sticky && entries[0].mac == mac(1));
    new.tick(fabric::clock::seconds() + 1000);
    assert_eq!(at(&new, 1), Some(1), "sticky stations do not age");
}

#[test]
fn invalid_entries_are_not_taken_over() {
    let station = |n, port, flags: u16, seen: u32| {
        let mut entry = [&mac(n).0[..], &[0, 0]].concat();
        for number in [port, flags] {
            entry.extend(number.to_le_bytes());
        }
        entry.extend(seen.to_le_bytes());
        entry
    };
    let state = |name: &str, key_len, value_len, entries: Vec<Vec<u8>>| State {
        name: name.into(),
        key_len,
        value_len,
        entries: entries.concat(),
    };
    // Station 0 is the broadcast address.
    let entries = vec![
        station(1, 1, 0, u32::MAX),
        station(1, 2, 0, 0),
        station(2, 4, 0, 0),
        station(3, 4095, 1, 0),
        station(4, 4096, 2, 0),
        station(0, 1, 0, 0),
        vec![1; 15],
    ];
    let states = [
        state("other", 8, 8, vec![station(5, 1, 0, 0)]),
        state("fdb", 8, 8, entries.clone()),
        state("fdb", 8, 8, vec![station(6, 1, 0, 0)]),
    ];
    let now = fabric::clock::seconds();
    for known_before in [true, false] {
        let logic = if known_before { with_ports(&[]) } else { learning(&[]) };
        logic.take_over(&states);
        logic.ports_changed(&ports(&[]));
        let left = known(&*logic);
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!((left[0].key, left[0].port), (key(1), PortIndex(1)));
        assert!(left[0].seen <= now + 1, "heard in the future: it would never age");
    }
    for (key_len, value_len) in [(8, 9), (7, 8), (0, 16)] {
        let logic = with_ports(&[]);
        logic.take_over(&[state("fdb", key_len, value_len, entries.clone())]);
        assert!(logic.fdb().is_empty());
    }
    let wires = make("static", &[]);
    assert!(wires.hand_over().is_empty());
    wires.take_over(&states);
}
