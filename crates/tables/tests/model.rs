//! Each structure against a linear scan of its entries, with changes in between.

use std::collections::HashMap;

use proptest::prelude::*;
use tables::{Classifier, Exact, Lookup, Lpm, MISS, Prefix, Rule, TableError};

/// Keys with few different bits, so that entries meet.
fn key() -> impl Strategy<Value = [u64; 2]> {
    (0u64..40, prop_oneof![Just(0u64), Just(1 << 63), 0u64..4])
        .prop_map(|(low, high)| [low << 57 | low, high])
}

fn mask() -> impl Strategy<Value = [u64; 2]> {
    let word = prop_oneof![
        Just(0u64),
        Just(u64::MAX),
        (0u32..64).prop_map(|len| !(u64::MAX >> len)),
        any::<u64>(),
        (0u32..64).prop_map(|bit| 1 << bit),
    ];
    (word.clone(), word).prop_map(|(high, low)| [high, low])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exact_is_a_map_of_masked_keys(
        mask in mask(),
        changes in prop::collection::vec((key(), prop::option::weighted(0.7, 0u32..1000)), 1..400),
        probes in prop::collection::vec(key(), 1..150),
    ) {
        let masked = |key: &[u64; 2]| [key[0] & mask[0], key[1] & mask[1]];
        let mut table = Exact::<2>::new(mask);
        let reader = table.reader();
        let mut model = HashMap::new();
        for (key, handle) in &changes {
            match handle {
                Some(handle) => prop_assert_eq!(table.insert(key, *handle), Ok(model.insert(masked(key), *handle))),
                None => prop_assert_eq!(table.remove(key), model.remove(&masked(key))),
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let mut out = vec![0; probes.len()];
        reader.lookup(&probes, &mut out);
        for (probe, found) in probes.iter().zip(out) {
            prop_assert_eq!(found, model.get(&masked(probe)).copied().unwrap_or(MISS));
            prop_assert_eq!(reader.find(probe), found);
            prop_assert_eq!(table.get(probe), model.get(&masked(probe)).copied());
        }
        let mut each = HashMap::new();
        table.each(|key, handle| { each.insert(key, handle); });
        prop_assert_eq!(each, model);
    }

    #[test]
    fn lpm_finds_the_longest_prefix(
        changes in prop::collection::vec((prefix_bits(), 0u8..=128, prop::option::weighted(0.7, 0u32..1000)), 1..200),
        probes in prop::collection::vec(prefix_bits(), 1..100),
    ) {
        let mut table = Lpm::<2>::new(128);
        let reader = table.reader();
        let mut model: HashMap<Prefix, u32> = HashMap::new();
        for (bits, len, handle) in changes {
            let prefix = Prefix::new(bits, len);
            prop_assert_eq!(table.get(prefix), model.get(&prefix).copied());
            match handle {
                Some(handle) => prop_assert_eq!(table.insert(prefix, handle), Ok(model.insert(prefix, handle))),
                None => prop_assert_eq!(table.remove(prefix), Ok(model.remove(&prefix))),
            }
            prop_assert_eq!(table.len(), model.len());
        }
        let keys: Vec<[u64; 2]> = probes.iter().map(|bits| [(bits >> 64) as u64, *bits as u64]).collect();
        let mut out = vec![0; keys.len()];
        reader.lookup(&keys, &mut out);
        for ((bits, found), key) in probes.iter().zip(&out).zip(&keys) {
            prop_assert_eq!(reader.find(key), *found);
            let longest = model
                .iter()
                .filter(|(prefix, _)| Prefix::new(*bits, prefix.len()) == **prefix)
                .max_by_key(|(prefix, _)| prefix.len());
            prop_assert_eq!(*found, longest.map_or(MISS, |(_, handle)| *handle));
        }
        prop_assert!(model.iter().all(|(prefix, handle)| table.get(*prefix) == Some(*handle)));
        // What is removed leaves nothing behind.
        let empty = Lpm::<2>::new(128).memory();
        for prefix in model.keys() {
            prop_assert!(table.remove(*prefix).is_ok_and(|old| old.is_some()));
        }
        prop_assert_eq!(table.memory(), empty);
        reader.lookup(&keys, &mut out);
        prop_assert!(out.iter().all(|found| *found == MISS));
    }

}

proptest! {
    // A case builds many trees.
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn classifier_finds_the_highest_priority(
        loaded in prop::collection::vec((key(), mask(), 0u32..50), 0..100),
        changes in prop::collection::vec((key(), mask(), 0u32..70_000, any::<bool>()), 1..150),
        removals in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        probes in prop::collection::vec(key(), 1..150),
        rebuild in any::<bool>(),
    ) {
        let mut table = Classifier::<2>::new();
        let reader = table.reader();
        let mut model: HashMap<Rule<2>, u32> = HashMap::new();
        let rule = |value: [u64; 2], mask: [u64; 2], priority| {
            Rule { value: [value[0] & mask[0], value[1] & mask[1]], mask, priority }
        };
        let loaded: Vec<_> =
            loaded.into_iter().zip(0..).map(|((value, mask, priority), n)| (rule(value, mask, priority), n)).collect();
        model.extend(loaded.iter().copied());
        table.extend(loaded).unwrap();
        for ((value, mask, priority, high), handle) in changes.into_iter().zip(1000..) {
            let rule = rule(value, mask, if high { priority } else { priority % 50 });
            prop_assert_eq!(table.insert(&rule, handle), Ok(model.insert(rule, handle)));
        }
        for index in removals {
            let mut rules: Vec<_> = model.keys().copied().collect();
            rules.sort_by_key(|rule| (rule.priority, rule.value, rule.mask));
            if !rules.is_empty() {
                let rule = *index.get(&rules);
                prop_assert_eq!(table.remove(&rule), Ok(model.remove(&rule)));
            }
        }
        prop_assert_eq!(table.len(), model.len());
        if rebuild {
            table.rebuild().unwrap();
        }
        let mut out = vec![0; probes.len()];
        reader.lookup(&probes, &mut out);
        for (probe, found) in probes.iter().zip(out) {
            let highest = model.keys().filter(|rule| rule.matches(probe)).map(|rule| rule.priority).max();
            let of_found = model.iter().find(|(_, handle)| **handle == found).map(|(rule, _)| *rule);
            prop_assert_eq!(of_found.map(|rule| rule.priority), highest);
            let alone = reader.find(probe);
            let of_alone = model.iter().find(|(_, handle)| **handle == alone).map(|(rule, _)| *rule);
            prop_assert!(of_alone.is_none_or(|rule| rule.matches(probe)));
            prop_assert_eq!(of_alone.map(|rule| rule.priority), highest);
            prop_assert!(of_found.is_none_or(|rule| rule.matches(probe)));
            prop_assert_eq!(found == MISS, highest.is_none());
        }
        for rule in model.keys() {
            table.remove(rule).unwrap();
        }
        let mut found = [0];
        reader.lookup(&probes[..1], &mut found);
        prop_assert_eq!(found, [MISS]);
    }
}

fn prefix_bits() -> impl Strategy<Value = u128> {
    let few = |bit: u32| (0u128..4).prop_map(move |value| value << bit);
    (few(126), few(110), few(95), few(60), few(0)).prop_map(|(a, b, c, d, e)| a | b | c | d | e)
}

#[test]
fn an_exact_table_grows_and_shrinks_by_hundreds_of_thousands() {
    let mut table = Exact::<1>::new([u64::MAX]);
    let reader = table.reader();
    for n in 0..200_000u32 {
        assert_eq!(table.insert(&[u64::from(n)], n), Ok(None));
    }
    let keys: Vec<[u64; 1]> = (0..400_000).map(|n| [n]).collect();
    let mut out = vec![0; keys.len()];
    reader.lookup(&keys, &mut out);
    assert!(out.iter().zip(0..).all(|(found, n)| *found == if n < 200_000 { n } else { MISS }));
    for n in 0..200_000u32 {
        assert_eq!(table.remove(&[u64::from(n)]), Some(n));
    }
    assert!(table.is_empty());
    reader.lookup(&keys, &mut out);
    assert!(out.iter().all(|found| *found == MISS));
}

#[test]
fn the_widest_keys_work() {
    let key = |n: u64| std::array::from_fn::<u64, 32, _>(|word| n.rotate_left(word as u32));
    let mut exact = Exact::<32>::new([u64::MAX; 32]);
    let mut classifier = Classifier::<32>::new();
    for n in 0..2_000u32 {
        exact.insert(&key(n.into()), n).unwrap();
        classifier.insert(&Rule { value: key(n.into()), mask: [u64::MAX; 32], priority: 1 }, n).unwrap();
    }
    let keys: Vec<u64> = (0..2_000).flat_map(key).collect();
    for reader in [Box::new(exact.reader()) as Box<dyn Lookup>, Box::new(classifier.reader())] {
        let mut out = vec![MISS; 2_000];
        reader.lookup_flat(&keys, &mut out);
        assert!(out.into_iter().eq(0..2_000));
    }
}

#[test]
fn flat_lookups_ignore_what_is_no_whole_key() {
    let mut table = Exact::<2>::new([u64::MAX; 2]);
    table.insert(&[1, 2], 7).unwrap();
    let mut out = [9; 3];
    table.reader().lookup_flat(&[1, 2, 1, 3, 1], &mut out);
    assert_eq!(out, [7, MISS, 9]);
    table.reader().lookup_flat(&[1, 2, 1, 3, 1], &mut []);
}

#[test]
fn entries_that_no_table_can_have_are_refused() {
    assert_eq!(Exact::<1>::new([1]).insert(&[1], MISS), Err(TableError::ReservedHandle));
    let rule = Rule { value: [0], mask: [0], priority: 0 };
    assert_eq!(Classifier::<1>::new().insert(&rule, MISS), Err(TableError::ReservedHandle));
    let mut lpm = Lpm::<1>::new(32);
    assert_eq!(lpm.insert(Prefix::new(0, 8), MISS), Err(TableError::ReservedHandle));
    assert_eq!(lpm.insert(Prefix::new(0, 33), 1), Err(TableError::PrefixTooLong { found: 33, width: 32 }));
}

/// Rules that no window separates: each names two bits of its own.
#[test]
fn rules_that_overlap_everywhere_are_found() {
    let mut table = Classifier::<2>::new();
    let mut rules = Vec::new();
    for a in 0..64 {
        for b in (0..64).step_by(3) {
            rules.push(Rule {
                value: [1 << a, 1 << b],
                mask: [1 << a, 1 << b],
                priority: rules.len() as u32,
            });
        }
    }
    for (rule, handle) in rules.iter().zip(0..) {
        table.insert(rule, handle).unwrap();
    }
    let mut random = fastrand::Rng::with_seed(17);
    let keys: Vec<[u64; 2]> = (0..500).map(|_| [random.u64(..) & random.u64(..), random.u64(..)]).collect();
    let mut out = vec![0; keys.len()];
    table.reader().lookup(&keys, &mut out);
    for (key, found) in keys.iter().zip(out) {
        let expected = rules.iter().rposition(|rule| rule.matches(key));
        assert_eq!(found, expected.map_or(MISS, |n| n as u32));
    }
}
