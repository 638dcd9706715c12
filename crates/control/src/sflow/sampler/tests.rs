//! Sampling: fair in the mean and in its spread, whatever batches packets come in.

use super::*;

/// Which of `packets` are sampled, one in `rate`, in batches of these sizes over and over.
fn sampled(rate: u32, packets: u64, batches: &[u64], seed: u64) -> Vec<u64> {
    let sampler = Sampler::new(1, seed);
    let worker = &sampler.workers[0];
    let (mut at, mut found) = (0, Vec::new());
    for batch in batches.iter().cycle() {
        if at >= packets {
            break;
        }
        let batch = (*batch).min(packets - at);
        if worker.picks(batch, rate) {
            let before = found.len();
            worker.samples(batch, |i| found.push(at + i as u64));
            assert!(found.len() > before, "what was picked has a sample");
        }
        at += batch;
    }
    found
}

#[test]
fn one_in_so_many_is_sampled() {
    for (rate, packets) in [(2, 20_000), (10, 100_000), (1000, 4_000_000), (100_000, 40_000_000)] {
        let found = sampled(rate, packets, &[64, 1, 7, 256], 42).len() as f64;
        let chance = 1.0 / f64::from(rate);
        let mean = packets as f64 * chance;
        let deviation = (mean * (1.0 - chance)).sqrt();
        assert!((found - mean).abs() < 4.0 * deviation, "{found} of {packets} at 1 in {rate}");
    }
}

#[test]
fn the_distances_have_the_spread_of_chance() {
    let found = sampled(50, 2_000_000, &[64], 7);
    let gaps: Vec<f64> = found.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // Of a geometric distribution: mean 50, variance 50 * 49.
    assert!((mean - 50.0).abs() < 1.5, "{mean}");
    assert!((variance / 2450.0 - 1.0).abs() < 0.1, "{variance}");
    assert!(gaps.contains(&1.0), "neighbours too");
}

#[test]
fn batches_do_not_matter() {
    let whole = sampled(20, 100_000, &[256], 3);
    assert_eq!(sampled(20, 100_000, &[1], 3), whole);
    assert_eq!(sampled(20, 100_000, &[3, 250, 64], 3), whole);
    assert_ne!(sampled(20, 100_000, &[256], 4), whole, "another seed, other packets");
}

#[test]
fn no_port_in_a_pattern_is_favoured() {
    // Ports A and B by turns, a packet each: a fixed stride of an even rate would see only one of them.
    let found = sampled(100, 1_000_000, &[1], 5);
    let even = found.iter().filter(|at| *at % 2 == 0).count() as f64;
    let half = found.len() as f64 / 2.0;
    assert!((even - half).abs() < 4.0 * (half / 2.0).sqrt(), "{even} of {}", found.len());
}

#[test]
fn every_packet_at_a_rate_of_one() {
    assert_eq!(sampled(1, 1000, &[64, 1], 1), (0..1000).collect::<Vec<_>>());
}

#[test]
fn the_extremes_neither_overflow_nor_stop() {
    for rate in [1, 2, 3, 1_000_000_000, u32::MAX] {
        let longest = skip(rate, 1.0 - f64::EPSILON / 2.0);
        assert!(longest < u64::from(rate) * 40, "{longest}");
        assert_eq!(skip(rate, 0.0), 0);
    }
    assert_eq!(skip(0, 0.5), 0, "no rate is every packet");
    assert!(sampled(u32::MAX, 10_000, &[256], 1).len() <= 1);
}

#[test]
fn another_rate_does_not_wait_for_the_old_one() {
    let sampler = Sampler::new(1, 11);
    let worker = &sampler.workers[0];
    assert!(!worker.picks(1, 1_000_000_000));
    let mut found = 0;
    for _ in 0..1000 {
        if worker.picks(10, 10) {
            worker.samples(10, |_| found += 1);
        }
    }
    assert!((850..1150).contains(&found), "{found} of 10,000 at 1 in 10");
}

#[test]
fn numbers_are_unique_and_lead_back() {
    assert_eq!(if_index(0, PortIndex(0)), 1);
    assert_eq!(if_index(0, PortIndex(4095)), 4096);
    assert_eq!(if_index(1, PortIndex(0)), 4097);
    for (bridge, port) in [(0, 0), (0, 4095), (1, 0), (4094, 4095), (262_142, 7)] {
        assert_eq!(port_of(if_index(bridge, PortIndex(port))), (bridge, PortIndex(port)));
    }
}
