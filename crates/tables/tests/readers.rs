//! Readers beside a writer: no reader sees half of a change, or misses an entry that was there all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tables::{Classifier, ClassifierReader, Exact, ExactReader, Lpm, LpmReader, MISS, Prefix, Rule};

const READERS: usize = 2;
/// Batches that each reader checks at least.
const BATCHES: usize = 500;

/// Runs `check` in readers until each has done its batches, and `change` with increasing numbers meanwhile.
fn beside(check: impl Fn(&mut fastrand::Rng) + Sync, mut change: impl FnMut(u32)) {
    let finished = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..READERS {
            let (check, finished, stop) = (&check, &finished, &stop);
            scope.spawn(move || {
                let done = Done(finished);
                let mut random = fastrand::Rng::with_seed(seed as u64);
                (0..BATCHES).for_each(|_| check(&mut random));
                drop(done);
                // Others are not done: stay beside them.
                while !stop.load(Ordering::Relaxed) {
                    check(&mut random);
                }
            });
        }
        let mut number = 0;
        while finished.load(Ordering::Relaxed) < READERS || number < 5_000 {
            change(number);
            number += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Counts a reader as done even if it fails, so that the writer stops.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A handle that names its key, and a version.
fn handle(key: u32, version: u32) -> u32 {
    key << 12 | version & 0xfff
}

#[test]
fn exact_entries_stay_visible_while_others_come_and_go() {
    const STABLE: u32 = 500;
    let key =
        |n: u32| [u64::from(n) << 32 | u64::from(n), u64::from(n).wrapping_mul(0x9e37_79b9), u64::from(!n)];
    let mut table = Exact::<3>::new([u64::MAX; 3]);
    for n in 0..STABLE {
        table.insert(&key(n), handle(n, 0)).unwrap();
    }
    let reader = table.reader();
    let check = |random: &mut fastrand::Rng| {
        let numbers: [u32; 64] = std::array::from_fn(|_| random.u32(..2 * STABLE));
        let mut out = [0; 64];
        reader.lookup(&numbers.map(key), &mut out);
        for (n, found) in numbers.into_iter().zip(out) {
            assert!(found >> 12 == n || found == MISS && n >= STABLE, "key {n}: {found:#x}");
        }
    };
    let mut random = fastrand::Rng::with_seed(99);
    beside(check, |number| {
        let n = random.u32(..2 * STABLE);
        if n < STABLE || random.bool() {
            table.insert(&key(n), handle(n, number)).unwrap();
        } else {
            table.remove(&key(n));
        }
        // Growth: splits beside the readers.
        if number % 8 == 0 {
            let grown = 2 * STABLE + number / 8 % 100_000;
            table.insert(&key(grown), handle(grown, 0)).unwrap();
        }
    });
}

#[test]
fn prefixes_are_replaced_at_once() {
    const NETS: u32 = 64;
    let bits = |net: u32, host: u32| u128::from(0x0a00_0000 | net << 10 | host) << 96;
    let mut table = Lpm::<1>::new(64);
    table.insert(Prefix::new(0, 0), handle(NETS, 0)).unwrap();
    for net in 0..NETS {
        table.insert(Prefix::new(bits(net, 0), 22), handle(net, 0)).unwrap();
    }
    let reader = table.reader();
    let check = |random: &mut fastrand::Rng| {
        let nets: [u32; 64] = std::array::from_fn(|_| random.u32(..NETS));
        let keys = nets.map(|net| [(bits(net, random.u32(..1024)) >> 64) as u64]);
        let mut out = [0; 64];
        reader.lookup(&keys, &mut out);
        for (net, found) in nets.into_iter().zip(out) {
            assert_eq!(found >> 12, net, "{found:#x}");
        }
    };
    let mut random = fastrand::Rng::with_seed(99);
    beside(check, |number| {
        let net = random.u32(..NETS);
        let prefix = Prefix::new(bits(net, random.u32(..1024)), random.u8(22..=40));
        if prefix.len() == 22 || random.bool() {
            table.insert(prefix, handle(net, number)).unwrap();
        } else {
            table.remove(prefix).unwrap();
        }
        if number % 1_000 == 0 {
            table.insert(Prefix::new(0, 0), handle(NETS, number)).unwrap();
        }
    });
}

#[test]
fn rules_are_replaced_at_once() {
    const GROUPS: u32 = 64;
    let value = |group: u32, rest: u64| [u64::from(group) << 40 | rest & 0xffff_ffff, rest];
    let rule = |group: u32, rest: u64, mask: u64, priority| Rule {
        value: value(group, rest),
        mask: [u64::MAX << 40 | mask & 0xffff_ffff, mask],
        priority,
    };
    let mut table = Classifier::<2>::new();
    for group in 0..GROUPS {
        table.insert(&rule(group, 0, 0, 1), handle(group, 0)).unwrap();
    }
    let reader = table.reader();
    let check = |random: &mut fastrand::Rng| {
        let groups: [u32; 64] = std::array::from_fn(|_| random.u32(..GROUPS));
        let keys = groups.map(|group| value(group, random.u64(..)));
        let mut out = [0; 64];
        reader.lookup(&keys, &mut out);
        for (group, found) in groups.into_iter().zip(out) {
            assert_eq!(found >> 12, group, "{found:#x}");
        }
    };
    let mut random = fastrand::Rng::with_seed(99);
    let mut added = Vec::new();
    beside(check, |number| {
        let group = random.u32(..GROUPS);
        if added.len() < 3_000 {
            let new = rule(group, random.u64(..), random.u64(..) & random.u64(..), random.u32(2..100));
            table.insert(&new, handle(group, number)).unwrap();
            added.push(new);
        } else {
            added.drain(1_500..).for_each(|rule| {
                table.remove(&rule).unwrap();
            });
        }
    });
}

struct Tables {
    exact: ExactReader<1>,
    lpm: LpmReader<1>,
    classifier: ClassifierReader<1>,
}

/// A bundle over three tables: within a batch, all entries have one version.
#[test]
fn a_bundle_is_met_as_a_whole() {
    const ENTRIES: u32 = 300;
    let prefix = |n: u32| Prefix::new(u128::from(n) << 100, 28);
    let rule = |n: u32| Rule { value: [u64::from(n) << 36], mask: [u64::MAX << 36], priority: n };
    let mut exact = Exact::<1>::new([u64::MAX << 36]);
    let mut lpm = Lpm::<1>::new(64);
    let mut classifier = Classifier::<1>::new();
    for n in 0..ENTRIES {
        exact.insert(&[u64::from(n) << 36], 0).unwrap();
        lpm.insert(prefix(n), 0).unwrap();
        classifier.insert(&rule(n), 0).unwrap();
    }
    let snapshot = |exact: &Exact<1>, lpm: &Lpm<1>, classifier: &Classifier<1>| {
        Arc::new(Tables { exact: exact.reader(), lpm: lpm.reader(), classifier: classifier.reader() })
    };
    let current = ArcSwap::new(snapshot(&exact, &lpm, &classifier));
    let check = |random: &mut fastrand::Rng| {
        let keys: [[u64; 1]; 64] = std::array::from_fn(|_| [u64::from(random.u32(..ENTRIES)) << 36]);
        let tables = current.load();
        let mut out = [[0; 64]; 3];
        tables.exact.lookup(&keys, &mut out[0]);
        tables.lpm.lookup(&keys, &mut out[1]);
        tables.classifier.lookup(&keys, &mut out[2]);
        assert!(out.iter().flatten().all(|version| *version == out[0][0]), "{out:?}");
    };
    let mut version = 0;
    beside(check, |number| {
        if number % 500 != 0 {
            return std::thread::yield_now();
        }
        version += 1;
        let mut next = (exact.fork(), lpm.fork(), classifier.fork());
        for n in 0..ENTRIES {
            next.0.insert(&[u64::from(n) << 36], version).unwrap();
            next.1.insert(prefix(n), version).unwrap();
            // A new rule in place of the old one, not only a new handle.
            next.2.remove(&rule(n)).unwrap();
            next.2.insert(&rule(n), version).unwrap();
        }
        next.0.commit();
        next.1.commit();
        next.2.commit();
        current.store(snapshot(&next.0, &next.1, &next.2));
        (exact, lpm, classifier) = next;
    });
}
