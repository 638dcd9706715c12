//! `learning` under a flood of source addresses from a port.

use fabric::DropReason;
use logic::{FdbChange, Key, MacTable};
use packet::MacAddr;

use crate::frames::{build, mac, number, plain};
use crate::rig::{Client, Rig, learning};

const TABLE: u64 = 4096;
const VICTIMS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// Makes a frame from a made-up address, to a destination that no bridge forwards to: only the table notices it.
fn made_up(n: u64) -> Vec<u8> {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let source = MacAddr([2, scattered[0], scattered[1], scattered[2], scattered[3], scattered[4]]);
    build(MacAddr([0x01, 0x80, 0xc2, 0, 0, 1]), source, None, 0, 46)
}

/// Floods from `attacker` ten times the table's capacity. Meanwhile `peer` sends to `victim`'s stations, which send now
/// and then. None of these frames may reach `onlooker`.
fn flood(attacker: &Client, victim: &Client, peer: &Client, onlooker: &Client) {
    let hello = |round| VICTIMS.map(move |n| plain(100, n, round));
    peer.send_and_settle([plain(0, 100, 0)]);
    victim.send_and_settle(hello(0));
    for client in [peer, victim, onlooker] {
        client.take();
    }
    for round in 0..40 {
        let first = u64::from(round) * TABLE / 4;
        attacker.send_and_settle((first..first + TABLE / 4).map(made_up));
        if round % 8 == 7 {
            victim.send_and_settle(hello(round));
            assert_eq!(peer.take().len(), VICTIMS.len());
        }
        peer.send_and_settle(VICTIMS.map(|n| plain(n, 100, n as u32)));
        let numbers: Vec<_> = victim.take().iter().map(|frame| u64::from(number(frame))).collect();
        assert_eq!(numbers, VICTIMS, "round {round}");
        assert_eq!(onlooker.take(), Vec::<Vec<u8>>::new(), "round {round}: flooded");
    }
}

#[test]
fn a_flood_of_addresses_harms_no_other_port() {
    for (share, most) in [("75", 3072), ("50", 2048), ("100", 4096 - 11)] {
        let logic = learning(&[("max-stations", "4096"), ("port-share", share)]);
        let rig = Rig::new(1, logic.clone());
        let [attacker, victim, peer, onlooker] = rig.plain_ports();
        let fdb = logic.fdb();
        fdb.watch(true);
        flood(&attacker, &victim, &peer, &onlooker);
        assert!(VICTIMS.iter().all(|n| fdb.lookup(key(*n)) == Some(victim.at.port)), "share {share}");
        assert_eq!(rig.drops(&attacker, DropReason::ReservedGroup), 10 * TABLE);
        let at = |client: &Client| fdb.stations_at(client.at.port);
        assert_eq!((at(&attacker), at(&victim), at(&peer), at(&onlooker)), (most, 10, 1, 0));

        let stats = fdb.stats();
        assert_eq!(stats.learned + stats.refused + stats.limited, 10 * TABLE + 11, "{stats:?}");
        assert_eq!(stats.learned - stats.evicted, fdb.len() as u64, "{stats:?}");
        assert_eq!(stats.limit_evicted, if share == "100" { 0 } else { stats.evicted }, "{stats:?}");
        let limited = if share == "100" { vec![] } else { vec![attacker.at.port] };
        assert_eq!(fdb.ports_at_limit(), limited);
        let (events, _) = fdb.drain_events();
        let noted = events.iter().filter(|event| event.change == FdbChange::AtLimit).map(|event| event.port);
        assert!(noted.eq(limited), "share {share}");
    }
}

/// Several workers learn at once.
#[test]
fn a_flood_from_many_ports_harms_no_other_port() {
    let logic = learning(&[("max-stations", "4096")]);
    let rig = Rig::new(2, logic.clone());
    let [one, two, victim, peer] = rig.plain_ports();
    peer.send_and_settle([plain(0, 100, 0)]);
    victim.send_and_settle(VICTIMS.map(|n| plain(100, n, 0)));
    for round in 0..20 {
        let first = round * TABLE;
        one.send((first..first + TABLE).step_by(2).map(made_up));
        two.send((first + 1..first + TABLE).step_by(2).map(made_up));
        for client in [&one, &two] {
            client.settle();
            client.take();
        }
        victim.take();
        peer.send_and_settle(VICTIMS.map(|n| plain(n, 100, n as u32)));
        assert_eq!((victim.take().len(), one.take().len()), (VICTIMS.len(), 0), "round {round}");
    }
    let fdb = logic.fdb();
    let at = |client: &Client| fdb.stations_at(client.at.port);
    let (least, most) = (at(&one).min(at(&two)), at(&one).max(at(&two)));
    assert_eq!((at(&victim), at(&peer)), (10, 1));
    assert!(least > 1500 && most <= 3072, "{least} and {most}");
    assert_eq!(fdb.entries().len(), fdb.len());
}

fn key(n: u64) -> Key {
    Key::new(0, mac(n))
}

#[test]
fn a_default_table_takes_an_uplink_with_thousands_of_stations() {
    let logic = learning(&[]);
    let rig = Rig::new(1, logic.clone());
    let [uplink, _guest] = rig.plain_ports();
    uplink.send_and_settle((1000..7000).map(|n| plain(0, n, 0)));
    let stats = logic.fdb().stats();
    assert_eq!((stats.learned, stats.limited, stats.limit_evicted), (6000, 0, 0));
    assert_eq!(logic.fdb().port_limit(), 6144);
}
