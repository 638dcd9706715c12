//! Limits of ports, choice of victims, and counts that do not drift.

use super::*;

/// Counts the stations by port, one by one.
fn recount(fdb: &Fdb) -> HashMap<PortIndex, u32> {
    let mut counts = HashMap::new();
    fdb.entries().iter().for_each(|entry| *counts.entry(entry.port).or_insert(0) += 1);
    counts
}

fn learned(port: PortIndex, n: u64, seen: u32) -> Station {
    Station { key: key(n), port, is_static: false, is_sticky: false, seen }
}

#[test]
fn a_flood_evicts_only_stations_of_the_flooding_port() {
    // With a limit for each port, and with the table's capacity as the only limit.
    for limit in [75, 100] {
        let fdb = Fdb::new(4096).with_port_limit(4096 * limit / 100);
        (0..10).for_each(|n| _ = fdb.learn(key(n), B, 0));
        (100..50_000).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
        assert!((0..10).all(|n| fdb.lookup(key(n)) == Some(B)), "limit {limit}");
        let most = if limit == 75 { 3072 } else { 4096 - 10 };
        assert_eq!((fdb.stations_at(A), fdb.stations_at(B)), (most, 10));
        let stats = fdb.stats();
        assert_eq!(stats.learned - stats.evicted, u64::from(most) + 10, "{stats:?}");
        assert_eq!(stats.limit_evicted, if limit == 75 { stats.evicted } else { 0 });
        assert_eq!(stats.learned + stats.limited + stats.refused, 49_900 + 10, "{stats:?}");
    }
}

#[test]
fn the_largest_port_makes_room_for_the_others() {
    let fdb = Fdb::new(4096);
    let c = PortIndex(3);
    (0..1000).for_each(|n| _ = fdb.learn(key(n), B, 0));
    (1000..5000).for_each(|n| _ = fdb.learn(key(n), A, 1));
    (5000..5050).for_each(|n| _ = fdb.learn(key(n), c, 2));
    assert_eq!((fdb.stations_at(A), fdb.stations_at(B), fdb.stations_at(c)), (3046, 1000, 50));
}

#[test]
fn two_floods_share_the_table_and_leave_the_rest_alone() {
    let fdb = Fdb::new(1024).with_port_limit(768);
    let c = PortIndex(3);
    (0..10).for_each(|n| _ = fdb.learn(key(n), c, 0));
    for n in (100..40_000).step_by(2) {
        fdb.learn(key(n), A, 1);
        fdb.learn(key(n + 1), B, 1);
    }
    assert_eq!((fdb.len(), fdb.stations_at(c)), (1024, 10));
    assert!(fdb.stations_at(A).abs_diff(fdb.stations_at(B)) < 8);
}

#[test]
fn a_station_moves_to_a_port_at_its_limit() {
    let fdb = Fdb::new(100).with_port_limit(2);
    fdb.learn(key(1), A, 0);
    fdb.learn(key(2), A, 0);
    fdb.learn(key(3), B, 0);
    assert!(fdb.learn(key(3), A, 1));
    assert_eq!((fdb.lookup(key(3)), fdb.stations_at(A)), (Some(A), 3));
    // Static entries are not limited either, and count.
    fdb.add_static(1, mac(4), A).unwrap();
    assert_eq!((fdb.stations_at(A), fdb.stats().evicted), (4, 0));
}

#[test]
fn a_ports_own_setting_replaces_the_limit() {
    let fdb = Fdb::new(4096).with_port_limit(10);
    for n in 0..50 {
        assert_eq!(fdb.learn_within(key(n), A, 0, 50, false), Admission::Learned);
    }
    assert_eq!(fdb.learn_within(key(50), A, 0, 50, false), Admission::Refused);
    // Without a number of its own, the limit holds, and sticky stations make no room.
    for n in 100..110 {
        assert_eq!(fdb.learn_within(key(n), B, 0, u32::MAX, true), Admission::Learned);
    }
    assert_eq!(fdb.learn_within(key(110), B, 0, u32::MAX, true), Admission::Refused);
    assert_eq!((fdb.stations_at(A), fdb.stations_at(B)), (50, 10));
    assert_eq!(fdb.stats(), FdbStats { learned: 60, limited: 1, ..FdbStats::default() });
}

#[test]
fn a_port_at_its_limit_is_noted_once_until_it_is_well_below() {
    let fdb = Fdb::new(100).with_port_limit(16);
    fdb.watch(true);
    let noted = || {
        let events = fdb.drain_events().0.into_iter();
        events.filter(|event| event.change == FdbChange::AtLimit).map(|event| event.port).collect::<Vec<_>>()
    };
    (0..16).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
    assert_eq!((noted(), fdb.ports_at_limit()), (vec![], vec![]));
    (16..40).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
    assert_eq!((noted(), fdb.ports_at_limit()), (vec![A], vec![A]));
    // A port that is just below its limit is not noted again.
    fdb.remove(1, fdb.entries()[0].mac);
    fdb.rearm();
    (40..60).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
    assert_eq!(noted(), []);
    fdb.flush(Some(A), false);
    fdb.rearm();
    assert_eq!(fdb.ports_at_limit(), []);
    (0..17).for_each(|n| _ = fdb.learn(key(n), A, 100));
    assert_eq!(noted(), [A]);
}

#[test]
fn a_table_that_takes_over_keeps_the_limit() {
    let fdb = Fdb::new(100).with_port_limit(3);
    let adopted = (0..9).filter(|n| fdb.adopt(&learned(A, *n, 0), 1)).count();
    assert_eq!((adopted, fdb.stations_at(A)), (3, 3));
    assert!(fdb.adopt(&Station { is_static: true, ..learned(A, 20, 0) }, 1));
}

#[derive(Debug, Clone)]
enum Op {
    Learn(u64, u16),
    Within(u64, u16, u32, bool),
    Static(u64, u16),
    Remove(u64),
    Adopt(u64, u16),
    AdoptMove(u64, u16, u16),
    Flush(Option<u16>, bool),
    PortDown(u16),
    Sticky(u16),
    Retain(u16),
    Expire(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let (n, p) = (0u64..60, 0u16..4);
    prop_oneof![
        // Ports differ in the number of stations heard.
        12 => (n.clone(), prop_oneof![6 => Just(0u16), 1 => p.clone()]).prop_map(|(n, p)| Op::Learn(n, p)),
        3 => (n.clone(), p.clone(), prop_oneof![1u32..6, Just(u32::MAX)], any::<bool>())
            .prop_map(|(n, p, most, sticky)| Op::Within(n, p, most, sticky)),
        1 => (n.clone(), p.clone()).prop_map(|(n, p)| Op::Static(n, p)),
        1 => n.clone().prop_map(Op::Remove),
        1 => (n.clone(), p.clone()).prop_map(|(n, p)| Op::Adopt(n, p)),
        1 => (n, p.clone(), p.clone()).prop_map(|(n, from, to)| Op::AdoptMove(n, from, to)),
        1 => (proptest::option::of(p.clone()), any::<bool>()).prop_map(|(p, keep)| Op::Flush(p, keep)),
        1 => p.clone().prop_map(Op::PortDown),
        1 => p.clone().prop_map(Op::Sticky),
        1 => p.prop_map(Op::Retain),
        1 => (1u32..50).prop_map(Op::Expire),
    ]
}

/// Applies `op` to a table.
fn apply(fdb: &Fdb, now: u32, op: &Op) {
    match *op {
        Op::Learn(n, port) => _ = fdb.learn(key(n), PortIndex(port), now),
        Op::Within(n, port, most, sticky) => {
            fdb.learn_within(key(n), PortIndex(port), now, most, sticky);
        }
        Op::Static(n, port) => _ = fdb.add_static(1, mac(n), PortIndex(port)),
        Op::Remove(n) => _ = fdb.remove(1, mac(n)),
        Op::Adopt(n, port) => _ = fdb.adopt(&learned(PortIndex(port), n, now), now),
        Op::AdoptMove(n, from, to) => {
            fdb.adopt_move(&learned(PortIndex(to), n, now), PortIndex(from), now);
        }
        Op::Flush(port, keep) => _ = fdb.flush(port.map(PortIndex), keep),
        Op::PortDown(port) => _ = fdb.flush_learned(PortIndex(port)),
        Op::Sticky(port) => {
            fdb.retain(|_, at, fixed| at != PortIndex(port) || fixed != Some(Fixed::Sticky));
        }
        Op::Retain(gone) => fdb.retain(|_, port, _| port != PortIndex(gone)),
        Op::Expire(ageing) => _ = fdb.expire(now, ageing),
    }
}

proptest! {
    // Each operation is followed by a recount of the whole table.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn counts_do_not_drift_and_room_is_made_by_the_larger_port(
        capacity in 1u32..40,
        share in 1u32..=100,
        ops in proptest::collection::vec(op(), 0..300),
    ) {
        let limit = (capacity * share / 100).max(1);
        let fdb = Fdb::new(capacity).with_port_limit(limit);
        fdb.watch(true);
        for (now, op) in (0..).zip(&ops) {
            let (before, known) = (recount(&fdb), |n| fdb.lookup(key(n)).is_some());
            let at = |port: PortIndex| before.get(&port).copied().unwrap_or(0);
            let newcomer = match *op {
                Op::Learn(n, port) if !known(n) => Some((PortIndex(port), limit)),
                Op::Within(n, port, most, _) if !known(n) => {
                    Some((PortIndex(port), if most == u32::MAX { limit } else { most }))
                }
                _ => None,
            };
            apply(&fdb, now, op);
            let after = recount(&fdb);
            for port in (0..4).map(PortIndex) {
                prop_assert_eq!(fdb.stations_at(port), after.get(&port).copied().unwrap_or(0), "{:?}", op);
            }
            prop_assert_eq!(fdb.len() as u32, after.values().sum::<u32>());
            prop_assert!(fdb.len() <= fdb.capacity());
            let events = fdb.drain_events().0;
            let Some((port, limit)) = newcomer else { continue };
            // Its port has at most its limit, unless it had more before.
            prop_assert!(fdb.stations_at(port) <= limit.max(at(port)), "{:?}", op);
            for evicted in events.iter().filter(|event| event.change == FdbChange::Evicted) {
                prop_assert!(evicted.port == port || at(evicted.port) > at(port), "{:?}: {:?}", op, evicted);
            }
        }
        let stats = fdb.stats();
        prop_assert!(stats.limit_evicted <= stats.evicted);
    }
}

#[test]
fn counts_agree_after_workers_contended() {
    // Fewer slots than stations, and one port that hears most of them.
    let fdb = Fdb::new(512).with_port_limit(256);
    let start = Barrier::new(5);
    std::thread::scope(|scope| {
        for t in 0..5 {
            let (fdb, start) = (&fdb, &start);
            scope.spawn(move || {
                let mut random = Random(t);
                start.wait();
                for i in 0..if t == 4 { 2000 } else { 60_000u32 } {
                    let n = random.below(if i % 2 == 0 { 16 } else { 4000 });
                    let port = PortIndex(if random.below(3) > 0 { 0 } else { random.below(4) as u16 });
                    match (t, random.below(8)) {
                        (4, 0) => _ = fdb.flush(Some(port), true),
                        (4, 1) => _ = fdb.expire(i, 50),
                        (4, 2) => _ = fdb.remove(1, mac(n)),
                        (4, 3) => _ = fdb.add_static(1, mac(n % 64), port),
                        (4, 4) => _ = fdb.flush_learned(port),
                        (_, 5) => _ = fdb.learn_within(key(n), port, i / 1000, 100, n.is_multiple_of(64)),
                        _ => _ = fdb.learn(key(n), port, i / 1000),
                    }
                }
            });
        }
    });
    let counts = recount(&fdb);
    for port in (0..4).map(PortIndex) {
        assert_eq!(fdb.stations_at(port), counts.get(&port).copied().unwrap_or(0));
    }
    assert_eq!(fdb.len() as u32, counts.values().sum::<u32>());
    assert!(fdb.len() <= fdb.capacity());
}
