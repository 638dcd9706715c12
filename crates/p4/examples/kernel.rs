//! Compares interpreter and XDP for the programs of STF cases: by the cases, then by random packets and entries.
//!
//! ```text
//! cargo run -p mswitch-p4 --example kernel -- PACKETS SEED FOLDER/*.stf
//! ```
//!
//! Says of each program why it stays on the CPU, or how it differs. Programs that are refused or not lowered by the
//! front end are left out. Runs as root: the kernel takes programs from nobody else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use mswitch_p4::compile;
use mswitch_p4::preprocess;
use mswitch_p4::stf::Case;
use mswitch_p4::stf::kernel::{Comparison, Unfit, compare};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let mut number = || args.next().and_then(|text| text.parse::<usize>().ok());
    let (Some(packets), Some(seed)) = (number(), number()) else {
        eprintln!("usage: kernel PACKETS SEED FILE.stf…");
        return ExitCode::from(2);
    };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut constructs: BTreeMap<String, usize> = BTreeMap::new();
    let mut sum = Comparison::default();
    for file in args.map(PathBuf::from) {
        let kind = match run(&file, packets, seed as u64) {
            None => "left out",
            Some(Err(Unfit::Refused(refusals))) => {
                let mut names: Vec<_> = refusals.iter().map(|refusal| refusal.construct.clone()).collect();
                names.sort();
                names.dedup();
                names.iter().for_each(|name| *constructs.entry(name.clone()).or_default() += 1);
                let list: Vec<_> = refusals.iter().map(ToString::to_string).collect();
                println!("{}: stays on the CPU: {}", file.display(), list.join("; "));
                "on the CPU"
            }
            Some(Err(Unfit::Kernel(reason))) => {
                println!("{}: {reason}", file.display());
                "not run"
            }
            Some(Ok(comparison)) => {
                sum.packets += comparison.packets;
                sum.left_out += comparison.left_out;
                sum.outputs += comparison.outputs;
                sum.hits += comparison.hits;
                sum.handed_over += comparison.handed_over;
                if !comparison.to_cpu.is_empty() {
                    let list: Vec<_> = comparison.to_cpu.iter().map(ToString::to_string).collect();
                    println!("{}: to the CPU: {}", file.display(), list.join("; "));
                }
                match comparison.difference {
                    None if comparison.to_cpu.is_empty() => "equal",
                    None => "equal, some packets on the CPU",
                    Some(difference) => {
                        println!("{}: {difference}", file.display());
                        "different"
                    }
                }
            }
        };
        *kinds.entry(kind).or_default() += 1;
    }
    for (construct, count) in constructs {
        println!("{count:4} on the CPU for {construct}");
    }
    let Comparison { packets, left_out, handed_over, outputs, hits, .. } = sum;
    println!(
        "{kinds:?}; {packets} packets, {handed_over} of them to the CPU, {outputs} left, {hits} hits, \
         {left_out} too short or too long"
    );
    if kinds.contains_key("different") || kinds.contains_key("not run") {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The comparison for the program of a case; nothing if there is no such program.
fn run(file: &Path, packets: usize, seed: u64) -> Option<Result<Comparison, Unfit>> {
    let program = compile::file(&file.with_extension("p4"), &preprocess::Options::default()).ok()?.lower()?;
    let case = fs::read_to_string(file).ok().and_then(|text| Case::parse(&text).ok())?;
    Some(compare(&program, &case, seed, packets))
}
