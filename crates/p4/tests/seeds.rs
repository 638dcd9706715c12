//! Replays the inputs of the fuzz targets: programs that once were findings, or cover much.

use std::fs;
use std::path::Path;

use mswitch_p4::compile;
use mswitch_p4::preprocess::Options;

/// Takes each seed of a target through the front end; returns how many there are.
fn replay(target: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let seeds: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    for seed in &seeds {
        let bytes = fs::read(seed.path()).unwrap_or_default();
        let mut front = compile::text("seed", &String::from_utf8_lossy(&bytes), &Options::default());
        front.lower();
    }
    seeds.len()
}

#[test]
fn no_seed_makes_the_front_end_fail() {
    assert!(replay("p4_source") > 0 && replay("p4_check") > 0);
}
