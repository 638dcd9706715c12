use std::collections::{HashMap, HashSet};
use std::sync::Barrier;

use proptest::prelude::*;

use super::*;

mod eviction;

fn mac(n: u64) -> MacAddr {
    MacAddr::from_u64(0x5254_0000_0000 + n)
}

fn key(n: u64) -> Key {
    Key::new(1, mac(n))
}

const A: PortIndex = PortIndex(1);
const B: PortIndex = PortIndex(2);

#[test]
fn learns_and_moves() {
    let fdb = Fdb::new(100);
    assert_eq!(fdb.lookup(key(1)), None);
    assert!(fdb.learn(key(1), A, 5));
    assert!(!fdb.learn(key(1), A, 6));
    assert_eq!(fdb.lookup(key(1)), Some(A));
    assert_eq!(fdb.lookup(Key::new(2, mac(1))), None);
    assert!(fdb.learn(key(1), B, 7));
    assert_eq!(fdb.lookup(key(1)), Some(B));
    assert_eq!((fdb.len(), fdb.is_empty()), (1, false));
    assert_eq!(fdb.stats(), FdbStats { learned: 1, moved: 1, ..FdbStats::default() });
}

#[test]
fn a_station_is_found_in_all_vlans() {
    let fdb = Fdb::new(100);
    for (vid, n) in [(2, 1), (2, 2), (3, 2), (4, 4)] {
        fdb.learn(Key::new(vid, mac(n)), A, 6);
    }
    let mut vlans: Vec<_> = fdb.entries_of(&[mac(2), mac(3)].into()).iter().map(|entry| entry.vid).collect();
    vlans.sort_unstable();
    assert_eq!(vlans, [2, 3]);
}

#[test]
fn a_watcher_sees_each_change() {
    let fdb = Fdb::new(2);
    fdb.learn(key(9), A, 1);
    fdb.flush(None, false);
    assert_eq!(fdb.drain_events(), (Vec::new(), 0), "recorded without a watcher");
    fdb.watch(true);
    let mut seen = Vec::new();
    fdb.learn(key(1), A, 10);
    fdb.learn(key(1), A, 11);
    fdb.learn(key(1), B, 12);
    fdb.learn(key(2), A, 13);
    // Only some buckets are searched for a victim at a time: it takes a few frames.
    while fdb.lookup(key(3)).is_none() {
        fdb.learn(key(3), A, 14);
    }
    fdb.expire(400, 300);
    let (events, lost) = fdb.drain_events();
    assert_eq!(lost, 0);
    seen.extend(events.iter().map(|e| (e.change, e.key.mac(), e.port)));
    use FdbChange::*;
    assert_eq!(seen[..3], [(Learned, mac(1), A), (Moved, mac(1), B), (Learned, mac(2), A)]);
    let changes: Vec<_> = seen[3..].iter().map(|(change, ..)| *change).collect();
    assert_eq!(changes, [Evicted, Learned, Expired, Expired], "{seen:?}");
    fdb.watch(false);
    fdb.learn(key(1), A, 500);
    assert_eq!(fdb.drain_events(), (Vec::new(), 0));
}

#[test]
fn a_slow_watcher_sees_the_number_of_lost_events() {
    let fdb = Fdb::new(10);
    fdb.watch(true);
    for i in 0..10_000 {
        fdb.learn(key(1), if i % 2 == 0 { A } else { B }, 0);
    }
    let (events, lost) = fdb.drain_events();
    assert_eq!(events.len() as u64 + lost, 10_000);
    assert!(lost > 0);
}

#[test]
fn ages() {
    let fdb = Fdb::new(100);
    fdb.learn(key(1), A, 10);
    fdb.learn(key(2), A, 10);
    fdb.learn(key(2), A, 20);
    fdb.add_static(1, mac(3), A).unwrap();
    assert_eq!(fdb.expire(309, 300), 0);
    assert_eq!(fdb.expire(310, 300), 1);
    assert_eq!([1, 2, 3].map(|n| fdb.lookup(key(n))), [None, Some(A), Some(A)]);
    assert_eq!(fdb.stats().expired, 1);
    // A worker may be a second ahead of the control plane.
    assert_eq!(fdb.expire(19, 1), 0);
}

#[test]
fn statics_stay() {
    let fdb = Fdb::new(100);
    fdb.learn(key(1), A, 0);
    fdb.add_static(1, mac(1), B).unwrap();
    assert!(!fdb.learn(key(1), A, 0));
    assert_eq!(fdb.lookup(key(1)), Some(B));
    fdb.add_static(1, mac(1), A).unwrap();
    assert_eq!(fdb.lookup(key(1)), Some(A));
    assert_eq!(fdb.len(), 1);
    let found = fdb.entries();
    let rank = found[0].rank;
    let (mac_1, vid, port) = (mac(1), 1, A);
    let entry = FdbEntry { mac: mac_1, vid, port, age_seconds: 0, is_static: true, is_sticky: false, rank };
    assert_eq!(found, [entry]);
    assert_eq!(fdb.flush(None, true), 0);
    assert!(fdb.remove(1, mac(1)) && !fdb.remove(1, mac(1)));
    assert!(fdb.is_empty());

    assert!(matches!(fdb.add_static(1, MacAddr::BROADCAST, A), Err(FdbError::Group(_))));
    assert!(matches!(fdb.add_static(4095, mac(1), A), Err(FdbError::Vid(4095))));
    assert!(matches!(fdb.add_static(1, mac(1), PortIndex(4096)), Err(FdbError::Port(_))));
    assert!(!fdb.learn(key(9), PortIndex(4096), 0));
}

#[test]
fn a_restricted_port_learns_no_more_than_its_limit() {
    let fdb = Fdb::new(100);
    fdb.learn(key(9), B, 0);
    for n in [1, 2] {
        assert_eq!(fdb.learn_within(key(n), A, 0, 2, false), Admission::Learned);
    }
    assert_eq!(fdb.learn_within(key(3), A, 0, 2, false), Admission::Refused);
    assert_eq!(fdb.learn_within(key(9), A, 0, 100, false), Admission::Refused, "known at another port");
    assert_eq!([1, 2, 3, 9].map(|n| fdb.lookup(key(n))), [Some(A), Some(A), None, Some(B)]);
    assert_eq!((fdb.stations_at(A), fdb.stations_at(B), fdb.len()), (2, 1, 3));
    // Ageing makes room, and so does a station's move to an unrestricted port.
    assert_eq!(fdb.learn_within(key(1), A, 300, 2, false), Admission::Known);
    assert_eq!(fdb.expire(310, 300), 2);
    assert_eq!(fdb.learn_within(key(3), A, 310, 2, false), Admission::Learned);
    assert!(fdb.learn(key(3), B, 311));
    assert_eq!((fdb.stations_at(A), fdb.stations_at(B)), (1, 1));
    // A station learned under a wider limit leaves when it is heard.
    (20..25).for_each(|n| assert_eq!(fdb.learn_within(key(n), A, 311, 10, false), Admission::Learned));
    assert_eq!(fdb.learn_within(key(20), A, 311, 5, false), Admission::Refused);
    assert_eq!(fdb.learn_within(key(21), A, 311, 5, false), Admission::Known);
    assert_eq!(fdb.stations_at(A), 5);
}

#[test]
fn sticky_stations_stay() {
    let fdb = Fdb::new(100);
    assert_eq!(fdb.learn_within(key(1), A, 0, 2, true), Admission::Learned);
    fdb.learn(key(2), A, 0);
    assert_eq!(fdb.learn_within(key(2), A, 0, 2, true), Admission::Known);
    assert!(!fdb.learn(key(1), B, 0));
    assert_eq!((fdb.expire(1000, 300), fdb.stations_at(A)), (0, 2));
    let listed = fdb.entries();
    assert!(listed.iter().all(|entry| entry.is_sticky && !entry.is_static && entry.port == A));
    // A static entry overrides a sticky one, and a flush that keeps static entries keeps it.
    fdb.add_static(1, mac(1), B).unwrap();
    assert_eq!((fdb.stations_at(A), fdb.stations_at(B)), (1, 1));
    assert_eq!(fdb.learn_within(key(1), B, 0, 1, true), Admission::Known);
    assert_eq!(fdb.flush(None, true), 1);
    assert_eq!(fdb.lookup(key(1)), Some(B));
    assert_eq!(fdb.learn_within(key(3), A, 0, 2, true), Admission::Learned);
    for (port, left) in [(B, 2), (A, 1)] {
        fdb.retain(|_, at, fixed| at != port || fixed != Some(Fixed::Sticky));
        assert_eq!(fdb.len(), left);
    }
}

#[test]
fn workers_together_keep_the_limit_of_a_port() {
    for _ in 0..50 {
        let fdb = Fdb::new(1000);
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            for t in 0..3 {
                let (fdb, start) = (&fdb, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..100 {
                        fdb.learn_within(key(t * 50 + n), A, 0, 20, false);
                    }
                });
            }
        });
        assert_eq!((fdb.stations_at(A), fdb.entries().len()), (20, 20));
    }
}

#[test]
fn flushes_by_vlan() {
    let fdb = Fdb::new(100);
    let at = |vid| Key::new(vid, mac(1));
    for vid in [1, 2] {
        fdb.learn(at(vid), A, 0);
    }
    fdb.learn(Key::new(2, mac(2)), B, 0);
    fdb.add_static(2, mac(3), A).unwrap();
    assert_eq!(fdb.flush_vlan(2, Some(A)), 1);
    assert_eq!([fdb.lookup(at(1)), fdb.lookup(at(2))], [Some(A), None]);
    assert_eq!((fdb.flush_vlan(2, None), fdb.len()), (1, 2), "the static station stays");
}

#[test]
fn flushes_by_port() {
    let fdb = Fdb::new(100);
    fdb.learn(key(1), A, 0);
    fdb.learn(key(2), B, 0);
    fdb.add_static(1, mac(3), A).unwrap();
    assert_eq!(fdb.flush(Some(A), true), 1);
    assert_eq!([1, 2, 3].map(|n| fdb.lookup(key(n))), [None, Some(B), Some(A)]);
    assert_eq!(fdb.flush(Some(A), false), 1);
    assert_eq!(fdb.flush(None, false), 1);
    assert!(fdb.is_empty() && fdb.entries().is_empty());
}

#[test]
fn holds_all_the_stations_it_promises() {
    let fdb = Fdb::new(8192);
    for n in 0..8192 {
        fdb.learn(key(n), PortIndex(n as u16 % 4096), 0);
    }
    let stats = fdb.stats();
    // Both buckets of a station fill up hardly ever, but sometimes.
    assert!(stats.evicted <= 8, "{stats:?}");
    let found = (0..8192).filter(|n| fdb.lookup(key(*n)) == Some(PortIndex(*n as u16 % 4096))).count();
    assert_eq!(found as u64, 8192 - stats.evicted);
}

#[test]
fn full_table_makes_room_and_counts() {
    let fdb = Fdb::new(4096);
    for n in 0..100_000 {
        fdb.learn(key(n), A, n as u32);
    }
    let stats = fdb.stats();
    assert_eq!((fdb.len(), fdb.entries().len()), (4096, 4096));
    assert_eq!((stats.learned, stats.refused), (100_000, 0));
    assert_eq!(stats.evicted, 100_000 - 4096);
    assert_eq!(fdb.lookup(key(99_999)), Some(A));
}

#[test]
fn a_small_table_forgets_its_oldest_stations() {
    let fdb = Fdb::new(4);
    (0..4).for_each(|n| assert!(fdb.learn(key(n), A, n as u32)));
    // The first one is heard again.
    fdb.learn(key(0), A, 4);
    (77..79).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
    let known = [0, 1, 2, 3, 77, 78].map(|n| fdb.lookup(key(n)).is_some());
    assert_eq!(known, [true, false, false, true, true, true]);
    assert_eq!((fdb.len(), fdb.stats().evicted), (4, 2));
}

#[test]
fn stations_are_ranked_by_their_use() {
    let fdb = Fdb::new(100);
    (0..6).for_each(|n| _ = fdb.learn(key(n), A, 7));
    fdb.learn(key(2), B, 7);
    fdb.learn(key(4), A, 8);
    let mut entries = fdb.entries();
    entries.sort_by_key(|entry| entry.rank);
    let order: Vec<_> = entries.iter().map(|entry| entry.mac).collect();
    assert_eq!(order, [0, 1, 3, 5, 2, 4].map(mac));
}

#[test]
fn a_table_that_becomes_smaller_forgets_its_oldest_stations() {
    let fdb = Fdb::new(8192);
    (0..6).for_each(|n| _ = fdb.learn(key(n), A, n as u32));
    fdb.add_static(1, mac(0), B).unwrap();
    assert_eq!(fdb.resize(3, 2), 3);
    let known = [0, 1, 2, 3, 4, 5].map(|n| fdb.lookup(key(n)).is_some());
    assert_eq!(known, [true, false, false, false, true, true]);
    fdb.learn(key(9), A, 9);
    assert_eq!((fdb.len(), fdb.stations_at(A), fdb.lookup(key(4))), (3, 2, None));
    assert_eq!((fdb.resize(1 << 20, 1 << 20), fdb.capacity()), (16_384, 16_384));
}

#[test]
fn statics_displace_the_learned_but_not_each_other() {
    let fdb = Fdb::new(4);
    (0..4).for_each(|n| assert!(fdb.learn(key(n), A, 0)));
    (10..14).for_each(|n| fdb.add_static(1, mac(n), B).unwrap());
    assert_eq!(fdb.add_static(1, mac(14), B), Err(FdbError::Full(4)));
    assert!(fdb.entries().iter().all(|entry| entry.is_static));
    fdb.learn(key(1), A, 0);
    assert_eq!((fdb.lookup(key(1)), fdb.len()), (None, 4));
    assert!(fdb.stats().refused > 0);
}

#[derive(Debug, Clone)]
enum Op {
    Learn(u16, u64, u16),
    Static(u16, u64, u16),
    Remove(u16, u64),
    Flush(Option<u16>, bool),
    Expire(u32),
    Wait(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let station = (0u16..3, 0u64..40);
    prop_oneof![
        12 => (station.clone(), 0u16..4).prop_map(|((v, m), p)| Op::Learn(v, m, p)),
        2 => (station.clone(), 0u16..4).prop_map(|((v, m), p)| Op::Static(v, m, p)),
        2 => station.prop_map(|(v, m)| Op::Remove(v, m)),
        1 => (proptest::option::of(0u16..4), any::<bool>()).prop_map(|(p, keep)| Op::Flush(p, keep)),
        1 => (1u32..50).prop_map(Op::Expire),
        3 => (0u32..20).prop_map(Op::Wait),
    ]
}

/// Port, last seen, static.
type Model = HashMap<(u16, u64), (u16, u32, bool)>;

/// Applies `op` to a table and its model; their answers must agree.
fn step(fdb: &Fdb, model: &mut Model, now: &mut u32, op: Op) -> Result<(), TestCaseError> {
    let before = model.len();
    match op {
        Op::Learn(vid, n, port) => {
            let changed = match model.get(&(vid, n)) {
                Some((old, _, fixed)) => !fixed && *old != port,
                None => true,
            };
            prop_assert_eq!(fdb.learn(Key::new(vid, mac(n)), PortIndex(port), *now), changed);
            let entry = model.entry((vid, n)).or_insert((port, *now, false));
            if !entry.2 {
                *entry = (port, *now, false);
            }
        }
        Op::Static(vid, n, port) => {
            prop_assert_eq!(fdb.add_static(vid, mac(n), PortIndex(port)), Ok(()));
            model.insert((vid, n), (port, 0, true));
        }
        Op::Remove(vid, n) => {
            prop_assert_eq!(fdb.remove(vid, mac(n)), model.remove(&(vid, n)).is_some());
        }
        Op::Flush(port, keep) => {
            model.retain(|_, (p, _, fixed)| (keep && *fixed) || port.is_some_and(|port| port != *p));
            prop_assert_eq!(fdb.flush(port.map(PortIndex), keep), before - model.len());
        }
        Op::Expire(ageing) => {
            model.retain(|_, (_, seen, fixed)| *fixed || *now - *seen < ageing);
            prop_assert_eq!(fdb.expire(*now, ageing), before - model.len());
        }
        Op::Wait(seconds) => *now += seconds,
    }
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_a_hash_map(ops in proptest::collection::vec(op(), 0..200)) {
        let fdb = Fdb::new(1000);
        let (mut model, mut now) = (Model::new(), 0);
        for op in ops {
            step(&fdb, &mut model, &mut now, op)?;
            prop_assert_eq!(fdb.len(), model.len());
        }
        for vid in 0..3 {
            for n in 0..40 {
                let expected = model.get(&(vid, n)).map(|(port, ..)| PortIndex(*port));
                prop_assert_eq!(fdb.lookup(Key::new(vid, mac(n))), expected);
            }
        }
        let listed: HashMap<_, _> =
            fdb.entries().into_iter().map(|e| ((e.vid, e.mac), (e.port.0, e.is_static))).collect();
        let expected: HashMap<_, _> =
            model.into_iter().map(|((vid, n), (port, _, fixed))| ((vid, mac(n)), (port, fixed))).collect();
        for port in 0..4 {
            let at = listed.values().filter(|(there, _)| *there == port).count();
            prop_assert_eq!(fdb.stations_at(PortIndex(port)) as usize, at);
        }
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn a_full_table_forgets_but_never_errs(
        capacity in 1u32..20,
        heard in proptest::collection::vec((0u64..60, 0u16..4), 0..300),
    ) {
        let fdb = Fdb::new(capacity);
        let mut last = HashMap::new();
        for (now, (n, port)) in (0..).zip(heard) {
            fdb.learn(key(n), PortIndex(port), now);
            last.insert(n, PortIndex(port));
            prop_assert!(fdb.len() <= capacity as usize);
            for (n, port) in &last {
                prop_assert!(fdb.lookup(key(*n)).is_none_or(|found| found == *port));
            }
        }
        prop_assert_eq!(fdb.entries().len(), fdb.len());
        let stats = fdb.stats();
        prop_assert!(stats.learned - stats.evicted <= fdb.len() as u64);
        let by_port: u32 = (0..4).map(|port| fdb.stations_at(PortIndex(port))).sum();
        prop_assert_eq!(by_port as usize, fdb.len());
    }
}

/// A small random generator for each thread, with a fixed seed, so that a failure repeats as far as threads allow.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Returns a port that station `n` may be heard at; those of different stations mostly differ.
fn home(n: u64, which: u64) -> PortIndex {
    PortIndex(((n * 7 + which * 2048) % 4096) as u16)
}

#[test]
fn many_workers_never_find_a_wrong_port() {
    const STATIONS: u64 = 6000;
    // Fewer slots than stations, so workers contend for slots.
    let fdb = Fdb::new(3000);
    let start = Barrier::new(5);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (fdb, start) = (&fdb, &start);
            scope.spawn(move || {
                let mut random = Random(t);
                start.wait();
                for i in 0..200_000u32 {
                    // Half of the traffic is among few stations: workers collide on the same words.
                    let range = if i % 2 == 0 { 16 } else { STATIONS };
                    let n = random.below(range);
                    fdb.learn(key(n), home(n, random.below(2)), i / 1000);
                    let n = random.below(range);
                    if let Some(port) = fdb.lookup(key(n)) {
                        assert!(port == home(n, 0) || port == home(n, 1), "station {n} at {port:?}");
                    }
                }
            });
        }
        let (fdb, start) = (&fdb, &start);
        scope.spawn(move || {
            let mut random = Random(99);
            start.wait();
            for i in 0..300 {
                match i % 4 {
                    0 => drop(fdb.flush(Some(home(random.below(STATIONS), 0)), true)),
                    1 => drop(fdb.expire(random.below(250) as u32, 50)),
                    2 => assert!(fdb.add_static(1, mac(i % 16), home(i % 16, 0)).is_ok()),
                    _ => drop(fdb.remove(1, mac(random.below(16)))),
                }
                for entry in fdb.entries() {
                    let n = entry.mac.to_u64() - mac(0).to_u64();
                    assert!(n < STATIONS && [home(n, 0), home(n, 1)].contains(&entry.port), "{entry:?}");
                }
            }
        });
    });
    let listed = fdb.entries();
    assert_eq!(listed.len(), fdb.len());
    assert!(fdb.len() <= fdb.capacity());
    let by_port: u32 = (0..4096).map(|port| fdb.stations_at(PortIndex(port))).sum();
    assert_eq!(by_port as usize, listed.len());
    let keys: HashSet<_> = listed.iter().map(|entry| (entry.vid, entry.mac)).collect();
    assert_eq!(keys.len(), listed.len(), "a station is listed twice");
}

#[test]
fn workers_that_hear_a_new_station_at_once_agree_on_one_entry() {
    for round in 0..200 {
        let fdb = Fdb::new(64);
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for port in [A, B] {
                let (fdb, start) = (&fdb, &start);
                scope.spawn(move || {
                    start.wait();
                    for n in 0..32 {
                        fdb.learn(key(round * 100 + n), port, 0);
                    }
                });
            }
        });
        assert_eq!((fdb.len(), fdb.entries().len()), (32, 32));
    }
}
