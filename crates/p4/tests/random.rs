//! Random packets and entries for the programs of the cases: machine code must do what the interpreter does.
//!
//! `MSWITCH_P4_PACKETS` sets the number of packets of each program, `MSWITCH_P4_SEED` the seed.

use std::fs;
use std::path::{Path, PathBuf};

use mswitch_p4::compile;
use mswitch_p4::preprocess;
use mswitch_p4::stf::random::{Comparison, compare};
use mswitch_p4::stf::{Case, Options};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Cases of the programs, in order.
fn cases() -> Vec<PathBuf> {
    let folders =
        ["tests/cases", "../../examples/p4"].map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut cases: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "stf"))
        .collect();
    cases.sort();
    cases
}

fn run(path: &Path) -> Option<Comparison> {
    let mut front = compile::file(&path.with_extension("p4"), &preprocess::Options::default()).ok()?;
    let program = front.lower()?;
    let case = Case::parse(&fs::read_to_string(path).ok()?).ok()?;
    let (seed, packets) = (number("MSWITCH_P4_SEED", 1), number("MSWITCH_P4_PACKETS", 200));
    Some(compare(&program, Some(&case), seed, packets as usize, &Options::default()))
}

#[test]
fn code_does_what_the_interpreter_does() {
    let cases = cases();
    assert!(cases.len() >= 16, "{} cases found", cases.len());
    let (mut wrong, mut sum, mut specialised) = (String::new(), Comparison::default(), 0);
    for path in &cases {
        match run(path) {
            Some(comparison) => {
                sum.outputs += comparison.outputs;
                sum.hits += comparison.hits;
                sum.specialised += comparison.specialised;
                specialised += usize::from(comparison.specialised > 0);
                if comparison.difference.is_some() {
                    wrong += &format!("{}: {comparison}\n", path.display());
                }
            }
            None => wrong += &format!("{}: not read\n", path.display()),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The comparison is worth something only if packets get this far.
    assert!(sum.outputs > 100 * cases.len() && sum.hits > 5 * cases.len(), "{sum}");
    // Code is specialised for most programs, those of two stages among them.
    assert!(2 * specialised > cases.len() && sum.specialised > 50 * cases.len(), "{specialised}: {sum}");
}
