//! Compares the interpreter, generated code and Open vSwitch on random OpenFlow tables and packets.

use std::process::ExitCode;

use clap::Parser;
use differential::case::Case;
use differential::compare::{Difference, judge};
use differential::explained::{EXPLAINED, When};
use differential::ours::Ours;
use differential::ovs::Ovs;
use differential::shrink::shrink;
use differential::subject::{Error, Result, Subject, hex};

/// Compares the interpreter, generated code and Open vSwitch on random OpenFlow tables and packets.
#[derive(Debug, Parser)]
struct Args {
    /// Table sets
    #[arg(long, default_value_t = 2500)]
    cases: u64,
    /// Packets of a table set
    #[arg(long, default_value_t = 50)]
    packets: usize,
    /// Seed of the first table set; the others follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Differences to print before giving up
    #[arg(long, default_value_t = 5)]
    differences: usize,
    /// Leave out Open vSwitch
    #[arg(long)]
    without_ovs: bool,
}

fn print(case: &Case, names: (&str, &str), seed: u64, difference: impl std::fmt::Display) {
    println!("seed {seed}: {} and {} differ", names.0, names.1);
    case.groups.iter().for_each(|group| println!("  add-group '{group}'"));
    case.rules.iter().for_each(|rule| println!("  add-flow '{rule}'"));
    for burst in &case.bursts {
        burst
            .packets
            .iter()
            .for_each(|packet| println!("  packet from port {}: {}", burst.port, hex(packet)));
    }
    println!("  {difference}");
}

/// One in so many table sets may be left out, and one more.
const MOST_LOST: usize = 200;

/// What was compared.
#[derive(Debug, Default)]
struct Sums {
    packets: usize,
    seen: usize,
    accepted: usize,
    refused: usize,
    explained: Vec<u64>,
    /// Table sets with unexplained differences.
    found: usize,
    /// Table sets that a switch did not survive.
    lost: usize,
}

fn subjects(args: &Args) -> Result<Vec<Box<dyn Subject>>> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(Ours::interpreted()?),
        Box::new(Ours::compiled(false)?),
        Box::new(Ours::compiled(true)?),
    ];
    if !args.without_ovs {
        subjects.push(Box::new(Ovs::start()?));
    }
    Ok(subjects)
}

/// Compares one table set; prints the smallest one that still differs.
fn compare(seed: u64, args: &Args, subjects: &mut [Box<dyn Subject>], sums: &mut Sums) -> Result<()> {
    let case = Case::new(seed, args.packets);
    let verdict = judge(&case, subjects)?;
    sums.packets += case.packets();
    sums.seen += verdict.seen;
    sums.accepted += verdict.accepted;
    sums.refused += verdict.refused;
    sums.explained.resize(EXPLAINED.len(), 0);
    sums.explained.iter_mut().zip(&verdict.explained).for_each(|(sum, count)| *sum += count);
    let Some((subject, difference)) = verdict.unexplained.first() else { return Ok(()) };
    sums.found += 1;
    let is_it = |(other, found): &&(usize, Difference)| other == subject && found.resembles(difference);
    let smallest = shrink(&verdict.case.unwrap_or(case), |case| {
        judge(case, subjects).is_ok_and(|again| again.unexplained.iter().any(|found| is_it(&found)))
    });
    let again = judge(&smallest, subjects)?.unexplained;
    let names = (subjects[0].name(), subjects[*subject].name());
    match again.iter().find(is_it) {
        Some((_, difference)) => print(&smallest, names, seed, difference),
        None => print(&smallest, names, seed, format_args!("not every time: {difference}")),
    }
    Ok(())
}

fn run(args: &Args) -> Result<usize> {
    let mut subjects = subjects(args)?;
    let mut sums = Sums::default();
    let mut sets = 0usize;
    for seed in args.seed..args.seed + args.cases {
        match compare(seed, args, &mut subjects, &mut sums) {
            Ok(()) => sets += 1,
            // Some tables end it.
            Err(error @ Error::OpenVSwitch(_)) => {
                println!("seed {seed} is left out: {error}");
                sums.lost += 1;
                subjects = self::subjects(args)?;
                continue;
            }
            Err(error) => return Err(error),
        }
        if sums.found == args.differences {
            break;
        }
    }
    let names: Vec<_> = subjects.iter().map(|subject| subject.name()).collect();
    println!("{}", names.join(", "));
    if !args.without_ovs {
        println!("{}", Ovs::version()?);
    }
    println!("{sets} table sets from seed {}, {} left out", args.seed, sums.lost);
    println!("{} groups and flows accepted by all, {} refused by all", sums.accepted, sums.refused);
    println!("{} packets, {} of which left or went to the controller", sums.packets, sums.seen);
    for (explanation, count) in EXPLAINED.iter().zip(&sums.explained) {
        match explanation.when {
            When::Avoided => println!("  avoided: {}", explanation.name),
            _ => println!("{count:>9}: {}", explanation.name),
        }
    }
    println!("{} table sets with unexplained differences", sums.found);
    if sums.lost > 1 + sets / MOST_LOST {
        return Err(Error::Other(format!("{} table sets are left out: too many", sums.lost)));
    }
    Ok(sums.found)
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
