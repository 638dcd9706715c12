//! Measures the table structures: `cargo run --release -p mswitch-tables --example lookups -- exact|lpm|classifier`.
//!
//! Keys are uniform over the entries, in batches of 64. Rule sets are made in the style of ClassBench from a fixed
//! seed. `classifier` also measures tuple space search with priority pruning, for comparison: a hash table for each
//! mask, in descending order of the highest priority in each.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use tables::{Classifier, Exact, Lookup, Lpm, MISS, Prefix, Rule};

const BATCH: usize = 64;

/// Returns the nanoseconds of a lookup over `keys`, the best of several passes.
fn lookup_ns(reader: &dyn Lookup, keys: &[u64]) -> f64 {
    let words = reader.words();
    best_ns(keys.len() / words, || {
        let mut out = [0; BATCH];
        for keys in keys.chunks(BATCH * words) {
            reader.lookup_flat(keys, &mut out);
            black_box(&out);
        }
    })
}

fn best_ns(count: usize, mut pass: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut passes = 0;
    while passes < 3 || begin.elapsed() < Duration::from_millis(300) {
        let begin = Instant::now();
        pass();
        best = best.min(begin.elapsed().as_nanos() as f64 / count as f64);
        passes += 1;
    }
    best
}

fn per_second(count: usize, begin: Instant) -> f64 {
    count as f64 / begin.elapsed().as_secs_f64()
}

fn exact(random: &mut fastrand::Rng) {
    println!(
        "exact, 2 words: entries  ns/hit  ns/miss  bytes/entry  inserts/s  changes/s  fork+100k+commit ms"
    );
    for entries in [1usize, 10, 100, 1_000, 10_000, 100_000, 1_000_000] {
        let keys: Vec<[u64; 2]> = (0..entries).map(|_| [random.u64(..), random.u64(..)]).collect();
        let mut table = Exact::<2>::new([u64::MAX; 2]);
        let begin = Instant::now();
        for (key, n) in keys.iter().zip(0..) {
            black_box(table.insert(key, n).is_ok());
        }
        let inserts = per_second(entries, begin);
        let traffic: Vec<u64> = (0..200_000).flat_map(|_| keys[random.usize(..entries)]).collect();
        let strangers: Vec<u64> = (0..400_000).map(|_| random.u64(..)).collect();
        let (hit, miss) = (lookup_ns(&table.reader(), &traffic), lookup_ns(&table.reader(), &strangers));
        let changes = 200_000.min(entries);
        let begin = Instant::now();
        for (key, n) in keys.iter().zip(0..).take(changes) {
            table.remove(key);
            black_box(table.insert(key, n).is_ok());
        }
        let changes = per_second(2 * changes, begin);
        let begin = Instant::now();
        let mut fork = table.fork();
        for (key, n) in keys.iter().zip(1..).take(100_000) {
            black_box(fork.insert(key, n).is_ok());
        }
        fork.commit();
        let bundle = begin.elapsed().as_secs_f64() * 1e3;
        println!(
            "{entries:9} {hit:6.1} {miss:6.1} {:8} {inserts:10.0} {changes:10.0} {bundle:6.1}",
            table.memory() / entries
        );
    }
}

fn lpm(random: &mut fastrand::Rng) {
    println!("lpm: width prefixes  ns/lookup  bytes/prefix  inserts/s  changes/s");
    for (width, lens) in [(32u8, [16u8, 20, 24, 24]), (128, [32, 40, 48, 64])] {
        for entries in [1_000usize, 10_000, 100_000, 1_000_000] {
            let prefixes: Vec<Prefix> = (0..entries)
                .map(|_| {
                    Prefix::new(u128::from(random.u64(..)) << 64, lens[random.usize(..4)] + random.u8(..5))
                })
                .collect();
            let mut table = Lpm::<2>::new(width);
            let begin = Instant::now();
            for (prefix, n) in prefixes.iter().zip(0..) {
                black_box(table.insert(*prefix, n).is_ok());
            }
            let inserts = per_second(entries, begin);
            let traffic: Vec<u64> = (0..200_000)
                .flat_map(|_| {
                    let prefix = prefixes[random.usize(..entries)];
                    let bits = prefix.bits() | random.u128(..) >> 1 >> (prefix.len() - 1);
                    [(bits >> 64) as u64, bits as u64]
                })
                .collect();
            let ns = lookup_ns(&table.reader(), &traffic);
            let changes = 100_000.min(entries);
            let begin = Instant::now();
            for (prefix, n) in prefixes.iter().zip(0..).take(changes) {
                black_box(table.remove(*prefix).is_ok());
                black_box(table.insert(*prefix, n).is_ok());
            }
            let changes = per_second(2 * changes, begin);
            println!(
                "{width:4} {entries:9} {ns:6.1} {:6} {inserts:10.0} {changes:10.0}",
                table.memory() / entries
            );
        }
    }
}

/// Shape of a rule set.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// Long prefixes on both sides, one destination port or a range of it.
    Acl,
    /// Many wildcards, ranges of ports on both sides.
    Firewall,
    /// A mix of both.
    Chain,
    /// As many masks as rules: all lengths of two prefixes and a port.
    Masks,
    /// The same rules as `Masks` with one mask, for comparison.
    OneMask,
}

/// A rule on addresses (word 0), ports and protocol (word 1).
fn rule(shape: Shape, number: usize, pools: &[Vec<u32>; 2], random: &mut fastrand::Rng) -> Rule<2> {
    let prefix = |len: u32| u32::MAX.checked_shl(32 - len).unwrap_or(0);
    let port = |len: u32| 0xffffu16.checked_shl(16 - len).unwrap_or(0);
    let one = |choices: &[u32], random: &mut fastrand::Rng| choices[random.usize(..choices.len())];
    let (src, dst, sport, dport) = match shape {
        Shape::Acl => (
            one(&[0, 16, 20, 24, 24, 27, 28, 30, 32, 32, 32], random),
            one(&[16, 20, 24, 24, 26, 28, 29, 32, 32, 32], random),
            one(&[0, 0, 0, 0, 0, 16], random),
            one(&[0, 4, 6, 10, 13, 16, 16, 16, 16], random),
        ),
        Shape::Firewall => (
            one(&[0, 0, 0, 1, 2, 8, 16, 24, 28, 32, 32], random),
            one(&[0, 0, 1, 3, 8, 16, 24, 24, 32, 32], random),
            one(&[0, 0, 0, 6, 10, 16], random),
            one(&[0, 0, 6, 10, 16, 16], random),
        ),
        Shape::Chain if random.bool() => return rule(Shape::Acl, number, pools, random),
        Shape::Chain => return rule(Shape::Firewall, number, pools, random),
        Shape::Masks => {
            ((number % 32) as u32 + 1, (number / 32 % 32) as u32 + 1, 0, (number / 1024 % 16) as u32 + 1)
        }
        Shape::OneMask => (32, 32, 0, 16),
    };
    let pick = |pool: &[u32], random: &mut fastrand::Rng| match shape {
        Shape::Masks | Shape::OneMask => random.u32(..),
        _ => pool[random.usize(..pool.len())] ^ random.u32(..) >> random.u32(14..31),
    };
    let protocol = match shape {
        Shape::Masks | Shape::OneMask => (0, 0),
        _ => (one(&[6, 6, 6, 17, 17, 1], random), one(&[0, 0xff, 0xff, 0xff, 0xff], random)),
    };
    let mask = [
        u64::from(prefix(src)) << 32 | u64::from(prefix(dst)),
        u64::from(port(sport)) << 48 | u64::from(port(dport)) << 32 | u64::from(protocol.1) << 24,
    ];
    let value = [
        u64::from(pick(&pools[0], random)) << 32 | u64::from(pick(&pools[1], random)),
        random.u64(..) << 32 | u64::from(protocol.0) << 24,
    ];
    Rule {
        value: [value[0] & mask[0], value[1] & mask[1]],
        mask,
        priority: 60_000u32.saturating_sub(number as u32 % 60_000),
    }
}

/// Highest priority and one more than its handle, by value.
type ByValue = HashMap<[u64; 2], (u32, u32)>;

/// Tuple space search: hash tables by mask, with the highest priority in each.
#[derive(Default)]
struct TupleSpace {
    tuples: Vec<Tuple>,
}

struct Tuple {
    mask: [u64; 2],
    highest: u32,
    /// Open addressing: value, priority and one more than the handle.
    slots: Vec<([u64; 2], u32, u32)>,
}

fn tuple_hash(key: &[u64; 2]) -> u64 {
    let mixed =
        u128::from(key[0] ^ 0x9fb2_1c65_1e98_df25).wrapping_mul(u128::from(key[1] ^ 0xd6e8_feb8_6659_fd93));
    (mixed >> 64) as u64 ^ mixed as u64
}

impl TupleSpace {
    fn new(rules: &[Rule<2>]) -> Self {
        let mut by_mask: HashMap<[u64; 2], ByValue> = HashMap::new();
        for (rule, n) in rules.iter().zip(1..) {
            let of_value = by_mask.entry(rule.mask).or_default().entry(rule.value).or_default();
            *of_value = (*of_value).max((rule.priority, n));
        }
        let tuple = |(mask, rules): ([u64; 2], ByValue)| {
            let mut slots = vec![([0; 2], 0, 0); (2 * rules.len()).next_power_of_two()];
            let highest = rules.values().map(|(priority, _)| *priority).max().unwrap_or(0);
            for (value, (priority, handle)) in rules {
                let mut at = tuple_hash(&value) as usize % slots.len();
                while slots[at].2 != 0 {
                    at = (at + 1) % slots.len();
                }
                slots[at] = (value, priority, handle);
            }
            Tuple { mask, highest, slots }
        };
        let mut tuples: Vec<Tuple> = by_mask.into_iter().map(tuple).collect();
        tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.highest));
        Self { tuples }
    }

    fn lookup(&self, key: &[u64; 2]) -> (u32, u32) {
        let mut best = (0, 0);
        for tuple in &self.tuples {
            if best.1 != 0 && tuple.highest <= best.0 {
                break;
            }
            let masked = [key[0] & tuple.mask[0], key[1] & tuple.mask[1]];
            let bits = tuple.slots.len() - 1;
            let mut at = tuple_hash(&masked) as usize & bits;
            while tuple.slots[at].2 != 0 {
                let (value, priority, handle) = tuple.slots[at];
                if value == masked {
                    best = best.max((priority, handle));
                    break;
                }
                at = (at + 1) & bits;
            }
        }
        best
    }
}

fn classifier(random: &mut fastrand::Rng) {
    println!(
        "classifier: shape rules  masks  ns tree  ns tuples  MB  build ms  one-by-one/s  changes/s  misses"
    );
    for shape in [Shape::OneMask, Shape::Masks, Shape::Firewall, Shape::Chain, Shape::Acl] {
        for count in [1_000usize, 10_000, 100_000] {
            if matches!(shape, Shape::Masks | Shape::OneMask) && count != 10_000 {
                continue;
            }
            let pools = [(); 2].map(|()| (0..count / 20 + 10).map(|_| random.u32(..)).collect::<Vec<u32>>());
            let rules: Vec<Rule<2>> = (0..count).map(|n| rule(shape, n, &pools, random)).collect();
            let mut table = Classifier::new();
            let begin = Instant::now();
            let built = table.extend(rules.iter().copied().zip(0..));
            let build_ms = begin.elapsed().as_secs_f64() * 1e3;
            black_box(built.is_ok());
            let keys: Vec<[u64; 2]> = (0..100_000)
                .map(|_| {
                    let rule = rules[random.usize(..count)];
                    std::array::from_fn(|i| rule.value[i] | random.u64(..) & !rule.mask[i])
                })
                .collect();
            let tree = lookup_ns(&table.reader(), keys.as_flattened());
            let tuples = TupleSpace::new(&rules);
            let some = &keys[..if tuples.tuples.len() > 1_000 { 200 } else { 5_000 }];
            let tuples_ns = best_ns(some.len(), || {
                some.iter().for_each(|key| {
                    black_box(tuples.lookup(key));
                });
            });
            let mut out = vec![0; some.len()];
            table.reader().lookup(some, &mut out);
            let differing = some.iter().zip(out).filter(|(key, found)| {
                let priority = rules.get(*found as usize).map_or(0, |rule| rule.priority);
                *found == MISS || tuples.lookup(key).0 != priority
            });
            let misses = differing.count();
            let changes = count.min(20_000);
            let begin = Instant::now();
            for (rule, n) in rules.iter().zip(0..).take(changes) {
                black_box(table.remove(rule).is_ok());
                black_box(table.insert(rule, n).is_ok());
            }
            let changes = per_second(2 * changes, begin);
            let mut grown = Classifier::new();
            let begin = Instant::now();
            for (rule, n) in rules.iter().zip(0..) {
                black_box(grown.insert(rule, n).is_ok());
            }
            let inserts = per_second(count, begin);
            let grown_ns = lookup_ns(&grown.reader(), keys.as_flattened());
            println!(
                "{shape:?} {count:7} {:6} {tree:6.1} {tuples_ns:8.1} {:6.2} {build_ms:7.1} {inserts:9.0} {changes:9.0} \
                 {misses} (grown one by one: {grown_ns:.1} ns)",
                tuples.tuples.len(),
                table.memory() as f64 / 1e6
            );
        }
    }
}

fn main() {
    let mut random = fastrand::Rng::with_seed(17);
    match std::env::args().nth(1).as_deref() {
        Some("exact") => exact(&mut random),
        Some("lpm") => lpm(&mut random),
        Some("classifier") => classifier(&mut random),
        _ => println!("usage: measure exact|lpm|classifier"),
    }
}
