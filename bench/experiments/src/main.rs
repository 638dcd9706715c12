//! `mswitch-experiments`: runs experiments on the fabric, and prints their points.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use experiments::experiments::{Experiment, LIST, Options, Point};
use experiments::report::{Measured, shown, write};
use experiments::rig::Result;
use experiments::samples::Effort;

/// Runs experiments on the fabric with ports in this process, and prints their points.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Experiments to run; all by default. `list` names them.
    experiments: Vec<String>,
    /// CPUs of the workers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 0])]
    cpus: Vec<usize>,
    /// Turns of each measurement.
    #[arg(long, default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    rounds: usize,
    /// Milliseconds of a measurement.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    milliseconds: u64,
    /// Print JSON, an object for each experiment.
    #[arg(long)]
    json: bool,
    /// Write experiments.json, experiments.md and plots into this folder, too.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mswitch-experiments: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.experiments.iter().any(|name| name == "list") {
        for experiment in LIST {
            println!("{:<14} {}", experiment.name, experiment.about);
        }
        return Ok(());
    }
    let effort = Effort { rounds: arguments.rounds, time: Duration::from_millis(arguments.milliseconds) };
    let options = Options { cpus: arguments.cpus.clone(), effort };
    let mut all = Vec::new();
    for experiment in chosen(&arguments.experiments)? {
        if options.cpus.len() < experiment.workers {
            return Err(format!("{} needs {} CPUs (--cpus)", experiment.name, experiment.workers).into());
        }
        let mut points = Vec::new();
        if !arguments.json {
            println!("{}: {}", experiment.name, experiment.about);
            println!("{:>18}  {:<32} {:>22} {:>20}", experiment.x, "", "Mpps", "ratio to base");
        }
        (experiment.run)(&options, &mut |point| {
            if !arguments.json {
                println!("{}", line(&point));
            }
            points.push(point);
        })?;
        let measured = Measured { experiment, points };
        if arguments.json {
            println!("{}", measured.json());
        } else {
            println!("(base: {}; median, least to greatest of {} turns)\n", experiment.base, effort.rounds);
        }
        all.push(measured);
        // After each, so that an early end leaves something.
        if let Some(folder) = &arguments.out {
            write(folder, effort, &all)?;
        }
    }
    Ok(())
}

/// The experiments of these names; all if there is none.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    if names.is_empty() {
        return Ok(LIST.iter().collect());
    }
    let find = |name: &String| {
        let found = LIST.iter().find(|experiment| experiment.name == name);
        found.ok_or_else(|| format!("unknown experiment {name:?}; `list` names all").into())
    };
    names.iter().map(find).collect()
}

/// A line of the table.
fn line(point: &Point) -> String {
    let Point { x, series, mpps, ratio, drops, disturbed, .. } = point;
    let mut line = format!("{x:>18}  {series:<32} {:>22} {:>20}", shown(*mpps), shown(*ratio));
    if *drops > 0 {
        line += &format!("  {drops} dropped");
    }
    if *disturbed > 0 {
        line += &format!("  disturbed {disturbed} times");
    }
    line
}
