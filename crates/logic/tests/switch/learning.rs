//! `learning` without VLANs.

use fabric::{DropReason, PortIndex, VlanMode};
use packet::MacAddr;

use crate::frames::{build, mac, plain};
use crate::rig::{Rig, make, stations};

#[test]
fn floods_until_it_has_learned() {
    let rig = Rig::new(1, make("learning", &[]));
    let [a, b, c] = rig.plain_ports();
    a.send_and_settle([plain(2, 1, 0)]);
    assert_eq!((a.take(), b.take(), c.take()), (vec![], vec![plain(2, 1, 0)], vec![plain(2, 1, 0)]));
    b.send_and_settle([plain(1, 2, 1), plain(1, 2, 2)]);
    assert_eq!((a.take(), c.take()), (vec![plain(1, 2, 1), plain(1, 2, 2)], vec![]));
    a.send_and_settle([plain(2, 1, 3), plain(0, 1, 4)]);
    assert_eq!((b.take(), c.take()), (vec![plain(2, 1, 3), plain(0, 1, 4)], vec![plain(0, 1, 4)]));
}

#[test]
fn follows_a_station_that_moves_within_a_batch() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b, c] = rig.plain_ports();
    b.send_and_settle([plain(0, 2, 0)]);
    // Station 2 moves to port a between two frames to it: the second must not leave by any port.
    a.send_and_settle([plain(2, 1, 1), plain(0, 2, 2), plain(2, 1, 3)]);
    assert_eq!(b.take(), [plain(2, 1, 1), plain(0, 2, 2)]);
    assert_eq!(rig.drops(&a, DropReason::SamePort), 1);
    c.take();
    c.send_and_settle([plain(2, 3, 4)]);
    assert_eq!((a.take().last(), b.take()), (Some(&plain(2, 3, 4)), vec![]));
    let stats = stations(&logic).stats();
    assert_eq!((stats.learned, stats.moved), (3, 1));
}

#[test]
fn forgets_silent_stations() {
    let logic = make("learning", &[("ageing", "10")]);
    let rig = Rig::new(1, logic.clone());
    let [a, b, c] = rig.plain_ports();
    b.send_and_settle([plain(0, 2, 0)]);
    c.take();
    let now = fabric::clock::seconds();
    logic.tick(now + 5);
    a.send_and_settle([plain(2, 1, 1)]);
    assert_eq!(c.take(), Vec::<Vec<u8>>::new());
    // The clock's second may have changed since the frame was heard, hence the slack.
    logic.tick(now + 15);
    a.send_and_settle([plain(2, 1, 2)]);
    assert_eq!((b.take().len(), c.take()), (3 - 1, vec![plain(2, 1, 2)]));

    let never = make("learning", &[("ageing", "0")]);
    rig.switch.set_logic(rig.bridge, never.clone()).unwrap();
    a.send_and_settle([plain(0, 1, 3)]);
    never.tick(u32::MAX);
    assert_eq!(stations(&never).len(), 1);
}

#[test]
fn drops_frames_to_bridges_and_passes_other_groups() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b] = rig.plain_ports();
    let reserved = |last| build(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]), mac(1), None, 0, 46);
    a.send_and_settle([0x00, 0x0e, 0x0f, 0x10, 0x20].map(reserved));
    assert_eq!(b.take(), [reserved(0x10), reserved(0x20)]);
    assert_eq!(rig.drops(&a, DropReason::ReservedGroup), 3);
    // A group address is never a source, but the frame may pass.
    let odd = build(mac(9), MacAddr([3, 0, 0, 0, 0, 1]), None, 0, 46);
    a.send_and_settle([odd.clone()]);
    assert_eq!(b.take(), [odd]);
    assert_eq!(stations(&logic).len(), 1);
}

#[test]
fn counts_evictions() {
    let logic = make("learning", &[("max-stations", "3000"), ("port-share", "100")]);
    let rig = Rig::new(1, logic.clone());
    let [a, _b] = rig.plain_ports();
    a.send_and_settle((1..=5000).map(|n| plain(0, n, 0)));
    let fdb = stations(&logic);
    let stats = fdb.stats();
    assert_eq!((fdb.len(), fdb.capacity(), stats.learned), (3000, 3000, 5000));
    assert_eq!(stats.evicted, 2000);
}

#[test]
fn bridges_are_independent() {
    let (one, two) = (make("learning", &[]), make("learning", &[]));
    let rig = Rig::new(2, one.clone());
    let other = rig.switch.add_bridge("br1", two.clone()).unwrap();
    let [a, b] = rig.plain_ports();
    let c = rig.port_of(other, "c", VlanMode::Transparent);
    let d = rig.port_of(other, "d", VlanMode::Transparent);
    a.send_and_settle([plain(0, 1, 0)]);
    d.send_and_settle([plain(0, 1, 1)]);
    assert_eq!((b.take(), c.take()), (vec![plain(0, 1, 0)], vec![plain(0, 1, 1)]));
    assert_eq!((a.take(), d.take()), (vec![], vec![]));
    // The same station, at another index in each.
    let port = |logic: &std::sync::Arc<dyn logic::Logic>| stations(logic).entries()[0].port;
    assert_eq!((port(&one), port(&two)), (PortIndex(0), PortIndex(1)));
}

#[test]
fn the_null_address_is_no_station() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b] = rig.plain_ports();
    let mut frame = plain(0, 1, 0);
    frame[..12].fill(0);
    a.send_and_settle([frame.clone()]);
    assert_eq!((b.take(), stations(&logic).len()), (vec![frame], 0));
}

#[test]
fn static_entries_hold() {
    let logic = make("learning", &[]);
    let rig = Rig::new(1, logic.clone());
    let [a, b, c] = rig.plain_ports();
    stations(&logic).add_static(0, mac(2), c.at.port).unwrap();
    b.send_and_settle([plain(1, 2, 0)]);
    c.take();
    a.send_and_settle([plain(2, 1, 1)]);
    assert_eq!((b.take(), c.take()), (vec![], vec![plain(2, 1, 1)]));
}
