//! Prints the time that arbiters take for a matching of random demand.
//!
//! `cargo run --profile demo -p mswitch-crossbar --example cost`
#![allow(clippy::expect_used)]

use std::sync::Arc;
use std::time::Instant;

use crossbar::{Arbiter, Demand, Diagonals, Hairpins, Heaviest, Islip, Lookup, Matching, Patterns};

/// Matchings of a turn.
const MATCHINGS: u32 = 20_000;
/// Turns of all arbiters; the fastest of each counts.
const TURNS: usize = 21;

fn main() {
    let heaviest = |ports| {
        let patterns = Patterns::new(ports, Hairpins::Forbidden).expect("patterns of 2 to 6 ports");
        Box::new(Heaviest::new(Arc::new(patterns))) as Box<dyn Arbiter>
    };
    let start = Instant::now();
    let lookup = Box::new(Lookup::new(5).expect("a table of 2 to 5 ports"));
    println!("the table of 5 ports takes {:.0} ms to make", start.elapsed().as_secs_f64() * 1e3);
    let mut arbiters: Vec<(&str, usize, Box<dyn Arbiter>, f64)> = vec![
        ("lookup", 5, lookup, f64::MAX),
        ("heaviest", 5, heaviest(5), f64::MAX),
        ("heaviest", 6, heaviest(6), f64::MAX),
        ("diagonals", 5, Box::new(Diagonals::new(Hairpins::Forbidden)), f64::MAX),
        ("diagonals", 64, Box::new(Diagonals::new(Hairpins::Forbidden)), f64::MAX),
        ("iSLIP, 2 iterations", 5, Box::new(Islip::new(2)), f64::MAX),
        ("iSLIP, 4 iterations", 16, Box::new(Islip::new(4)), f64::MAX),
        ("iSLIP, 6 iterations", 64, Box::new(Islip::new(6)), f64::MAX),
    ];
    for _ in 0..TURNS {
        for (_, ports, arbiter, fastest) in &mut arbiters {
            *fastest = fastest.min(turn(*ports, arbiter.as_mut()));
        }
    }
    for (name, ports, _, fastest) in &arbiters {
        println!("{name}, {ports} ports: {fastest:.0} ns for a matching");
    }
}

/// Returns the nanoseconds that a matching takes.
fn turn(ports: usize, arbiter: &mut dyn Arbiter) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let mut demands = vec![Demand::new(ports); 64];
    for demand in &mut demands {
        for at in (0..ports * ports).filter(|at| at / ports != at % ports) {
            demand.set(at / ports, at % ports, random.u32(..2_000).saturating_sub(1_000));
        }
    }
    let (start, mut pairs) = (Instant::now(), 0);
    for demand in demands.iter().cycle().take(MATCHINGS as usize) {
        let mut matching = Matching::default();
        arbiter.extend(demand, &mut matching);
        pairs += matching.len();
    }
    assert!(pairs > 0);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(MATCHINGS)
}
