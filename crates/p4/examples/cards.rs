//! Compares programs with what they are split into, over 2 to 5 line cards, by STF cases and random packets.
//!
//! ```text
//! cargo run -p mswitch-p4 --example cards -- PACKETS SEED FOLDER/*.stf
//! ```
//!
//! Programs that are refused or not lowered are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use mswitch_p4::compile;
use mswitch_p4::preprocess;
use mswitch_p4::split::Layout;
use mswitch_p4::stf::cards::{Comparison, compare};
use mswitch_p4::stf::{Case, Command};

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let mut number = || args.next().and_then(|text| text.parse::<usize>().ok());
    let (Some(random), Some(seed)) = (number(), number()) else {
        eprintln!("usage: cards PACKETS SEED FILE.stf…");
        return ExitCode::from(2);
    };
    let (mut cases, mut packets, mut outputs, mut carried, mut differences) = (0, 0, 0, 0, 0);
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for file in args.map(PathBuf::from) {
        for cards in 2..=5 {
            match run(&file, cards, (random, seed as u64)) {
                None => {}
                Some(Err(text)) => {
                    let first = text.lines().next().unwrap_or_default().to_owned();
                    println!("{}, {cards} cards: {first}", file.display());
                    *refused.entry(first).or_default() += 1;
                }
                Some(Ok(comparison)) => {
                    cases += 1;
                    packets += comparison.packets;
                    outputs += comparison.outputs;
                    carried += comparison.carried;
                    if let Some(difference) = comparison.difference {
                        differences += 1;
                        println!("{}, {cards} cards: {difference}", file.display());
                    }
                }
            }
        }
    }
    println!(
        "{cases} runs, {packets} packets, {outputs} left, {carried} carried, {differences} differences, {} refused",
        refused.values().sum::<usize>()
    );
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The comparison for a case, its ports dealt to so many cards; nothing if its program does not run.
fn run(file: &Path, cards: usize, random: (usize, u64)) -> Option<Result<Comparison, String>> {
    let case = Case::parse(&fs::read_to_string(file).ok()?).ok()?;
    let mut front = compile::file(&file.with_extension("p4"), &preprocess::Options::default()).ok()?;
    front.lower()?;
    let named = case.steps.iter().filter_map(|step| match &step.command {
        Command::Packet(port, _) | Command::Expect(port, _) => Some(*port),
        _ => None,
    });
    // Ports that nobody names show that cards agree on them, too.
    let ports: BTreeSet<u32> = named.chain(0..16).filter(|port| *port < 500).collect();
    let mut layout = Layout { cards: vec![Vec::new(); cards], link: 500 };
    ports.into_iter().enumerate().for_each(|(at, port)| layout.cards[at % cards].push(port));
    Some(compare(&mut front, &layout, &case, random))
}
