//! Logics replaced, ports added and removed while frames flow: nothing is lost, nothing is reordered.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fabric::{DropReason, VlanMode};

use crate::frames::{number, plain};
use crate::rig::{Client, Rig, make, stations, wait_for};

/// Sends numbered frames in small bursts until `stop` is set; returns their number.
pub fn stream(from: &Client, src: u64, dst: impl Fn(u32) -> u64, stop: &AtomicBool) -> u32 {
    let mut n = 0;
    while !stop.load(Relaxed) {
        from.send((n..n + 50).map(|i| plain(dst(i), src, i)));
        n += 50;
        from.settle();
    }
    n
}

pub fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|frame| number(frame)).collect()
}

#[test]
fn a_replaced_logic_loses_nothing() {
    let rig = Rig::new(2, make("learning", &[]));
    let [a, b] = rig.plain_ports();
    let stop = AtomicBool::new(false);
    let (there, back) = std::thread::scope(|scope| {
        let there = scope.spawn(|| stream(&a, 1, |_| 2, &stop));
        let back = scope.spawn(|| stream(&b, 2, |_| 1, &stop));
        for i in 0..200 {
            let name = if i % 2 == 0 { "static" } else { "learning" };
            rig.switch.set_logic(rig.bridge, make(name, &[])).unwrap();
        }
        stop.store(true, Relaxed);
        (there.join().unwrap(), back.join().unwrap())
    });
    assert_eq!(numbers(&b.take_all(there as usize)), Vec::from_iter(0..there));
    assert_eq!(numbers(&a.take_all(back as usize)), Vec::from_iter(0..back));
}

#[test]
fn ports_come_and_go_under_traffic() {
    let logic = make("learning", &[]);
    let rig = Rig::new(2, logic.clone());
    let [a, b] = rig.plain_ports();
    // Both stations are known from the start, so that a guest's frame reaches only port a.
    b.send_and_settle([plain(0, 2, 0)]);
    a.send_and_settle([plain(2, 1, 0)]);
    b.take();
    let stop = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        // Every third frame is flooded, to the ports that come and go as well.
        let sent = scope.spawn(|| stream(&a, 1, |i| if i % 3 == 0 { 0 } else { 2 }, &stop));
        for i in 0..50 {
            let guest = rig.port("guest", VlanMode::Transparent);
            guest.send_and_settle([plain(1, 100 + i, 0)]);
            wait_for("a flooded frame", || !guest.take().is_empty());
            rig.switch.remove_port(guest.at).unwrap();
            assert!(stations(&logic).entries().iter().all(|entry| entry.port != guest.at.port));
        }
        stop.store(true, Relaxed);
        sent.join().unwrap()
    });
    assert_eq!(numbers(&b.take_all(sent as usize)), Vec::from_iter(0..sent));
    assert_eq!(rig.drops(&a, DropReason::PortDown), 0);
}

#[test]
fn a_removed_ports_stations_are_forgotten() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b, c] = rig.plain_ports();
    stations(&logic).add_static(0, crate::frames::mac(3), b.at.port).unwrap();
    b.send_and_settle([plain(0, 2, 0)]);
    a.take();
    c.take();
    rig.switch.remove_port(b.at).unwrap();
    assert!(stations(&logic).is_empty());
    a.send_and_settle([plain(2, 1, 1)]);
    assert_eq!(c.take(), [plain(2, 1, 1)]);
}

/// A guest that continues at another port is found there before it sends anything.
#[test]
fn frames_to_stations_are_flooded_when_their_port_goes_down() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b, c] = rig.plain_ports();
    stations(&logic).add_static(0, crate::frames::mac(4), b.at.port).unwrap();
    b.send_and_settle([plain(0, 2, 0)]);
    c.send_and_settle([plain(0, 3, 0)]);
    for client in [&a, &b, &c] {
        client.take();
    }
    rig.switch.detach(b.at).unwrap();
    a.send_and_settle([plain(2, 1, 1), plain(4, 1, 2), plain(3, 1, 3)]);
    assert_eq!(c.take(), [plain(2, 1, 1), plain(3, 1, 3)]);
    let known = stations(&logic).entries();
    assert!(known.iter().any(|entry| entry.mac == crate::frames::mac(4)), "static entries stay");
    // Closing a port by hand has the same effect; changing another setting has none.
    rig.set(&c, |settings| settings.mtu = 1000);
    assert_eq!(stations(&logic).entries().len(), known.len());
    rig.set(&c, |settings| settings.admin_up = false);
    assert!(stations(&logic).entries().iter().all(|entry| entry.port != c.at.port));
}

#[test]
fn order_holds_for_every_pair_of_ports() {
    let rig = Rig::new(2, make("learning", &[]));
    let [a, b, c] = rig.plain_ports();
    c.send_and_settle([plain(0, 3, 0)]);
    a.take();
    b.take();
    let stop = AtomicBool::new(false);
    // Known, broadcast, unknown: unicast and flooded frames interleave.
    let mixed = |i| [3, 0, 9, 3][i as usize % 4];
    let (from_a, from_b) = std::thread::scope(|scope| {
        let from_a = scope.spawn(|| stream(&a, 1, mixed, &stop));
        let from_b = scope.spawn(|| stream(&b, 2, mixed, &stop));
        wait_for("some thousand frames", || rig.switch.workers().iter().all(|w| w.counters.packets > 5000));
        stop.store(true, Relaxed);
        (from_a.join().unwrap(), from_b.join().unwrap())
    });
    let frames = c.take_all((from_a + from_b) as usize);
    for (src, sent) in [(1, from_a), (2, from_b)] {
        let own: Vec<_> = frames.iter().filter(|frame| frame[11] == src).cloned().collect();
        assert_eq!(numbers(&own), Vec::from_iter(0..sent));
    }
}
