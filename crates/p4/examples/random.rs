//! Compares interpreter and machine code by random packets and entries, for the programs of STF cases.
//!
//! ```text
//! cargo run -p mswitch-p4 --example random -- PACKETS SEED FOLDER/*.stf
//! ```
//!
//! Programs that are refused or not lowered are left out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use mswitch_p4::compile;
use mswitch_p4::preprocess;
use mswitch_p4::stf::random::{Comparison, compare};
use mswitch_p4::stf::{Case, Options};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let mut number = || args.next().and_then(|text| text.parse::<usize>().ok());
    let (Some(packets), Some(seed)) = (number(), number()) else {
        eprintln!("usage: random PACKETS SEED FILE.stf…");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    let (mut programs, mut differences, mut sum) = (0, 0, Comparison::default());
    for file in args.map(PathBuf::from) {
        let Some(comparison) = run(&file, packets, seed as u64) else {
            println!("{}: left out", file.display());
            continue;
        };
        programs += 1;
        sum.packets += comparison.packets;
        sum.outputs += comparison.outputs;
        sum.hits += comparison.hits;
        sum.specialised += comparison.specialised;
        if comparison.difference.is_some() {
            differences += 1;
            println!("{}: {comparison}", file.display());
        }
    }
    println!("{programs} programs, {sum}, {differences} differences, {} s", start.elapsed().as_secs());
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The comparison for the program of a case; nothing if there is no such program.
fn run(file: &Path, packets: usize, seed: u64) -> Option<Comparison> {
    let program = compile::file(&file.with_extension("p4"), &preprocess::Options::default()).ok()?.lower()?;
    let case = fs::read_to_string(file).ok().and_then(|text| Case::parse(&text).ok());
    Some(compare(&program, case.as_ref(), seed, packets, &Options::default()))
}
