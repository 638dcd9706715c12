//! Arbiters against searches of all matchings.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crossbar::{
    Arbiter, Demand, Diagonals, Hairpins, Heaviest, Islip, Lookup, Matching, Pair, Patterns, Scheduler,
    weight,
};

/// The largest number of pairs: augmenting paths (Kuhn's algorithm), which know nothing of patterns.
fn most_pairs(demand: &Demand) -> usize {
    fn augment(demand: &Demand, input: usize, seen: &mut u64, inputs: &mut [Option<usize>]) -> bool {
        for output in 0..demand.ports() {
            if demand.requests(input) >> output & 1 == 0 || *seen >> output & 1 != 0 {
                continue;
            }
            *seen |= 1 << output;
            if inputs[output].is_none_or(|other| augment(demand, other, seen, inputs)) {
                inputs[output] = Some(input);
                return true;
            }
        }
        false
    }
    let mut inputs = vec![None; demand.ports()];
    (0..demand.ports()).filter(|input| augment(demand, *input, &mut 0, &mut inputs)).count()
}

/// The largest sum of weights: all matchings are tried.
fn most_weight(demand: &Demand, input: usize, taken: u64) -> u64 {
    if input == demand.ports() {
        return 0;
    }
    let idle = most_weight(demand, input + 1, taken);
    let pairs =
        (0..demand.ports()).filter(|output| taken >> output & 1 == 0 && demand.get(input, *output) > 0);
    let sums = pairs.map(|output| {
        u64::from(demand.get(input, output)) + most_weight(demand, input + 1, taken | 1 << output)
    });
    sums.max().unwrap_or(0).max(idle)
}

/// The matching that an arbiter makes of a demand. It has only pairs with demand.
fn matched(arbiter: &mut dyn Arbiter, demand: &Demand) -> Matching {
    let mut matching = Matching::default();
    arbiter.extend(demand, &mut matching);
    assert!(matching.pairs().all(|(input, output)| demand.get(input, output) > 0), "{demand:?} {matching:?}");
    matching
}

fn heaviest(ports: usize, hairpins: Hairpins) -> Heaviest {
    Heaviest::new(Arc::new(Patterns::new(ports, hairpins).unwrap()))
}

/// A demand without hairpins, with a bit for each pair.
fn of_bits(ports: usize, bits: u32) -> Demand {
    let mut demand = Demand::new(ports);
    let pairs = (0..ports).flat_map(|input| (0..ports).map(move |output| (input, output)));
    for (at, (input, output)) in pairs.filter(|(input, output)| input != output).enumerate() {
        demand.set(input, output, bits >> at & 1);
    }
    demand
}

#[test]
fn lookup_finds_the_most_pairs_of_every_demand() {
    for ports in 2..=5 {
        let mut lookup = Lookup::new(ports).unwrap();
        for bits in 0..1u32 << (ports * (ports - 1)) {
            let demand = of_bits(ports, bits);
            assert_eq!(matched(&mut lookup, &demand).len(), most_pairs(&demand), "{bits:#x} of {ports}");
        }
    }
    assert!(Lookup::new(1).is_none() && Lookup::new(6).is_none());
}

#[test]
fn the_heaviest_matching_has_the_largest_sum() {
    let mut random = fastrand::Rng::with_seed(1);
    for hairpins in [Hairpins::Allowed, Hairpins::Forbidden] {
        for ports in 2..=6 {
            let mut arbiter = heaviest(ports, hairpins);
            for _ in 0..[2_000, 300][usize::from(ports == 6)] {
                let (mut demand, most) =
                    (Demand::new(ports), random.choice([1, 3, 1_000, u32::MAX]).unwrap());
                for at in 0..ports * ports {
                    let (input, output) = (at / ports, at % ports);
                    if (hairpins == Hairpins::Allowed || input != output) && random.bool() {
                        demand.set(input, output, random.u32(..=most));
                    }
                }
                let matching = matched(&mut arbiter, &demand);
                let sum: u64 = matching.pairs().map(|(i, o)| u64::from(demand.get(i, o))).sum();
                assert_eq!(sum, most_weight(&demand, 0, 0), "{demand:?}");
            }
        }
    }
}

#[test]
fn two_cards_exchange_packets_while_the_third_is_idle() {
    let mut demand = Demand::new(3);
    demand.set(0, 1, 1);
    demand.set(1, 0, 1);
    assert_eq!(matched(&mut Lookup::new(3).unwrap(), &demand).len(), 2);
    assert_eq!(matched(&mut heaviest(3, Hairpins::Forbidden), &demand).len(), 2);
}

#[test]
fn nothing_can_be_added_to_a_matching_of_round_robin() {
    let mut random = fastrand::Rng::with_seed(2);
    for ports in [1, 2, 5, 16, 64] {
        let mut islip = Islip::new(ports);
        let mut diagonals = Diagonals::new(Hairpins::Allowed);
        for turn in 0..400 {
            let mut demand = Demand::new(ports);
            (0..ports * ports)
                .for_each(|at| demand.set(at / ports, at % ports, u32::from(random.u8(..) < 64)));
            let arbiter: &mut dyn Arbiter = if turn % 2 == 0 { &mut islip } else { &mut diagonals };
            let matching = matched(arbiter, &demand);
            let free = (0..ports).filter(|input| matching.is_input_free(*input));
            let left = free.filter(|input| demand.requests(*input) & !matching.outputs_taken() != 0);
            assert_eq!(left.count(), 0, "{demand:?} {matching:?}");
            // A matching that cannot be extended has at least half of the most pairs.
            assert!(2 * matching.len() >= most_pairs(&demand));
        }
    }
}

#[test]
fn a_packet_does_not_starve_behind_a_queue_that_is_always_longer() {
    // Slots of 1,500 bytes at 10 Gbit/s, and a queue that keeps 15,000 bytes.
    let (mut arbiter, slot, rate) = (heaviest(3, Hairpins::Forbidden), 1_200, 10_000_000_000);
    let mut demand = Demand::new(3);
    demand.set(1, 0, weight(15_000, 10 * slot, rate));
    let served = (0..100).find(|waited| {
        demand.set(2, 0, weight(64, waited * slot, rate));
        matched(&mut arbiter, &demand).output(2) == Some(0)
    });
    assert_eq!(served, Some(20));
}

#[test]
fn one_port_alone_sends_to_itself_only_where_it_may() {
    let mut demand = Demand::new(1);
    demand.set(0, 0, 1);
    assert_eq!(matched(&mut Diagonals::new(Hairpins::Forbidden), &demand).len(), 0);
    assert_eq!(matched(&mut Diagonals::new(Hairpins::Allowed), &demand).len(), 1);
    assert_eq!(matched(&mut Diagonals::new(Hairpins::Forbidden), &Demand::new(0)).len(), 0);
}

#[test]
fn full_queues_get_equal_shares_by_lookup() {
    for ports in 2..=5 {
        let (mut lookup, demand) = (Lookup::new(ports).unwrap(), of_bits(ports, u32::MAX));
        let numberings: u64 = (1..=ports as u64).product();
        let mut served = vec![0u64; ports * ports];
        for _ in 0..numberings {
            matched(&mut lookup, &demand).pairs().for_each(|(i, o)| served[i * ports + o] += 1);
        }
        let share = numberings / (ports as u64 - 1);
        let pairs = served.iter().enumerate().filter(|(at, _)| at / ports != at % ports);
        assert!(pairs.clone().all(|(_, times)| *times == share), "{served:?}");
    }
}

#[test]
fn full_queues_get_equal_shares_by_diagonals() {
    for ports in [2, 5, 64] {
        let mut diagonals = Diagonals::new(Hairpins::Forbidden);
        let mut demand = Demand::new(ports);
        let pairs = || (0..ports * ports).map(|at| (at / ports, at % ports)).filter(|(i, o)| i != o);
        pairs().for_each(|(input, output)| demand.set(input, output, 1));
        let mut served = vec![0; ports * ports];
        for _ in 1..ports {
            matched(&mut diagonals, &demand).pairs().for_each(|(i, o)| served[i * ports + o] += 1);
        }
        assert!(pairs().all(|(input, output)| served[input * ports + output] == 1));
    }
}

#[test]
fn a_lower_class_gets_what_a_higher_one_leaves() {
    let mut random = fastrand::Rng::with_seed(3);
    let arbiters = || -> Vec<Box<dyn Arbiter + Send>> {
        let lookup = Lookup::new(5).unwrap();
        (0..8).map(|_| Box::new(lookup.clone()) as Box<dyn Arbiter + Send>).collect()
    };
    let mut scheduler = Scheduler::new(arbiters());
    for _ in 0..2_000 {
        let demands: Vec<_> =
            (0..8).map(|_| of_bits(5, random.u32(..) & random.u32(..) & random.u32(..))).collect();
        let mut pairs: Vec<Pair> = Vec::new();
        let matching = scheduler.schedule(&demands, |pair| pairs.push(pair));
        assert_eq!(pairs.len(), matching.len());
        assert!(pairs.iter().all(|pair| demands[pair.class].get(pair.input, pair.output) > 0));
        assert!(pairs.iter().all(|pair| matching.output(pair.input) == Some(pair.output)));
        let mut taken = Matching::default();
        for class in (0..8).rev() {
            // The class has as many pairs as the inputs and outputs that the higher ones left allow.
            let mut left = Demand::new(5);
            for at in 0..25 {
                let (input, output) = (at / 5, at % 5);
                if taken.is_input_free(input) && taken.outputs_taken() >> output & 1 == 0 {
                    left.set(input, output, demands[class].get(input, output));
                }
            }
            let own = || pairs.iter().filter(|pair| pair.class == class);
            assert_eq!(own().count(), most_pairs(&left), "class {class}");
            own().for_each(|pair| assert!(taken.connect(pair.input, pair.output)));
        }
    }
}
