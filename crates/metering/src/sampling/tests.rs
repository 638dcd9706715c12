//! Statistical tests of sampling: mean and variance are right, independent of batch sizes.

use super::*;

/// Returns the indexes of the samples among `packets` packets, at a rate of 1 in `rate`, with these batch sizes in a
/// cycle.
fn sampled(rate: u32, packets: u64, batches: &[u64], seed: u64) -> Vec<u64> {
    let worker = Draw::new(seed);
    let (mut at, mut found) = (0, Vec::new());
    for batch in batches.iter().cycle() {
        if at >= packets {
            break;
        }
        let batch = (*batch).min(packets - at);
        if worker.picks(batch, rate) {
            let before = found.len();
            worker.samples(batch, |i| found.push(at + i as u64));
            assert!(found.len() > before, "a picked batch has a sample");
        }
        at += batch;
    }
    found
}

#[test]
fn mean_matches_the_rate() {
    for (rate, packets) in [(2, 20_000), (10, 100_000), (1000, 4_000_000), (100_000, 40_000_000)] {
        let found = sampled(rate, packets, &[64, 1, 7, 256], 42).len() as f64;
        let probability = 1.0 / f64::from(rate);
        let mean = packets as f64 * probability;
        let deviation = (mean * (1.0 - probability)).sqrt();
        assert!((found - mean).abs() < 4.0 * deviation, "{found} of {packets} at 1 in {rate}");
    }
}

#[test]
fn gaps_have_a_geometric_distribution() {
    let found = sampled(50, 2_000_000, &[64], 7);
    let gaps: Vec<f64> = found.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // Geometric distribution: mean 50, variance 50 * 49.
    assert!((mean - 50.0).abs() < 1.5, "{mean}");
    assert!((variance / 2450.0 - 1.0).abs() < 0.1, "{variance}");
    assert!(gaps.contains(&1.0), "adjacent packets can be sampled");
}

#[test]
fn samples_are_independent_of_batch_sizes() {
    let whole = sampled(20, 100_000, &[256], 3);
    assert_eq!(sampled(20, 100_000, &[1], 3), whole);
    assert_eq!(sampled(20, 100_000, &[3, 250, 64], 3), whole);
    assert_ne!(sampled(20, 100_000, &[256], 4), whole, "another seed samples other packets");
}

#[test]
fn alternating_ports_are_sampled_equally() {
    // Ports A and B send packets alternately: a fixed stride at an even rate would sample only one of them.
    let found = sampled(100, 1_000_000, &[1], 5);
    let even = found.iter().filter(|at| *at % 2 == 0).count() as f64;
    let half = found.len() as f64 / 2.0;
    assert!((even - half).abs() < 4.0 * (half / 2.0).sqrt(), "{even} of {}", found.len());
}

#[test]
fn a_rate_of_one_samples_every_packet() {
    assert_eq!(sampled(1, 1000, &[64, 1], 1), (0..1000).collect::<Vec<_>>());
}

#[test]
fn extreme_rates_do_not_overflow() {
    for rate in [1, 2, 3, 1_000_000_000, u32::MAX] {
        let longest = skip(rate, 1.0 - f64::EPSILON / 2.0);
        assert!(longest < u64::from(rate) * 40, "{longest}");
        assert_eq!(skip(rate, 0.0), 0);
    }
    assert_eq!(skip(0, 0.5), 0, "a rate of 0 samples every packet");
    assert!(sampled(u32::MAX, 10_000, &[256], 1).len() <= 1);
}

#[test]
fn a_new_rate_applies_immediately() {
    let worker = Draw::new(11);
    assert!(!worker.picks(1, 1_000_000_000));
    let mut found = 0;
    for _ in 0..1000 {
        if worker.picks(10, 10) {
            worker.samples(10, |_| found += 1);
        }
    }
    assert!((850..1150).contains(&found), "{found} of 10,000 at 1 in 10");
}
