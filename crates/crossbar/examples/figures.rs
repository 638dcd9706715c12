//! Draws mean delay against load for schedulers, as `NAME.svg` in a folder, and prints where each of them saturates.
//!
//! `cargo run --profile demo -p mswitch-crossbar --example figures -- docs/plots`
#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bench_run::plot::{Kind, Line, Lines, Point};
use crossbar::simulate::{Discipline, Outcome, Pattern, Setup, Traffic, run};
use crossbar::{Diagonals, Hairpins, Heaviest, Islip, Lookup, Patterns};

/// Loads of the curves.
const LOADS: [f64; 14] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99];

/// A curve: the name, and a run of its discipline.
type Curve = (&'static str, fn(&Setup) -> Outcome);

const FIFO: Curve = ("one queue for each input", |setup| run(setup, Discipline::Fifo));
const OUTPUTS: Curve = ("queues at the outputs (bound)", |setup| run(setup, Discipline::OutputQueues));
const ISLIP_1: Curve = ("iSLIP, 1 iteration", |setup| islip(setup, 1));
const ISLIP_2: Curve = ("iSLIP, 2 iterations", |setup| islip(setup, 2));
const ISLIP_4: Curve = ("iSLIP, 4 iterations", |setup| islip(setup, 4));
const DIAGONALS: Curve =
    ("diagonals", |setup| run(setup, Discipline::Scheduled(&mut Diagonals::new(setup.hairpins))));
const LOOKUP: Curve = ("lookup", |setup| {
    run(setup, Discipline::Scheduled(&mut Lookup::new(setup.ports).expect("a table of 2 to 5 ports")))
});
const HEAVIEST: Curve = ("heaviest", |setup| {
    let patterns = Patterns::new(setup.ports, setup.hairpins).expect("patterns of 2 to 6 ports");
    run(setup, Discipline::Scheduled(&mut Heaviest::new(Arc::new(patterns))))
});

fn islip(setup: &Setup, iterations: usize) -> Outcome {
    run(setup, Discipline::Scheduled(&mut Islip::new(iterations)))
}

/// A figure.
struct Figure {
    file: &'static str,
    title: &'static str,
    ports: usize,
    hairpins: Hairpins,
    pattern: Pattern,
    burst: f64,
    curves: &'static [Curve],
}

const FIVE_CARDS: &[Curve] = &[FIFO, ISLIP_2, DIAGONALS, LOOKUP, HEAVIEST, OUTPUTS];

const FIGURES: [Figure; 6] = [
    Figure {
        file: "scheduler-islip",
        title: "16 ports, independent packets, all outputs alike",
        ports: 16,
        hairpins: Hairpins::Allowed,
        pattern: Pattern::Uniform,
        burst: 1.0,
        curves: &[FIFO, ISLIP_1, ISLIP_2, ISLIP_4, DIAGONALS, OUTPUTS],
    },
    Figure {
        file: "scheduler-sixteen-cards",
        title: "Sixteen cards, independent packets, all others alike",
        ports: 16,
        hairpins: Hairpins::Forbidden,
        pattern: Pattern::Uniform,
        burst: 1.0,
        curves: &[ISLIP_1, ISLIP_4, DIAGONALS, OUTPUTS],
    },
    Figure {
        file: "scheduler-uniform",
        title: "Five cards, independent packets, all others alike",
        ports: 5,
        hairpins: Hairpins::Forbidden,
        pattern: Pattern::Uniform,
        burst: 1.0,
        curves: FIVE_CARDS,
    },
    Figure {
        file: "scheduler-bursts",
        title: "Five cards, bursts of 16 packets, all others alike",
        ports: 5,
        hairpins: Hairpins::Forbidden,
        pattern: Pattern::Uniform,
        burst: 16.0,
        curves: FIVE_CARDS,
    },
    Figure {
        file: "scheduler-diagonal",
        title: "Five cards, two thirds to the next card, one third to the one after it",
        ports: 5,
        hairpins: Hairpins::Forbidden,
        pattern: Pattern::Diagonal,
        burst: 1.0,
        curves: FIVE_CARDS,
    },
    Figure {
        file: "scheduler-hotspot",
        title: "Five cards, one of them hears twice as much as the others",
        ports: 5,
        hairpins: Hairpins::Forbidden,
        pattern: Pattern::Hotspot,
        burst: 1.0,
        curves: FIVE_CARDS,
    },
];

fn main() -> ExitCode {
    match std::env::args().nth(1).map(PathBuf::from) {
        Some(folder) if folder.is_dir() => match draw(&folder) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("figures: {}: {error}", folder.display()),
        },
        Some(folder) => eprintln!("figures: {} is not a folder; name one that exists", folder.display()),
        None => eprintln!("usage: figures FOLDER"),
    }
    ExitCode::FAILURE
}

/// Draws all figures and prints their table, which takes some minutes.
fn draw(folder: &Path) -> std::io::Result<()> {
    println!("| traffic | discipline | carried of load 0.99 | mean delay at load 0.9, in slots | longest |");
    println!("| --- | --- | --- | --- | --- |");
    for figure in &FIGURES {
        let mut lines = Vec::new();
        for (series, (name, curve)) in figure.curves.iter().enumerate() {
            let outcomes: Vec<_> = LOADS.iter().map(|load| (*load, curve(&figure.setup(*load)))).collect();
            // Where queues grow without end, the delay is that of the run's length alone.
            let stable = |outcome: &Outcome| outcome.carried > 0.99 * outcome.offered;
            let points = outcomes.iter().take_while(|(_, outcome)| stable(outcome));
            let points = points.map(|(x, outcome)| Point { x: *x, y: outcome.delays.mean(), range: None });
            lines.push(Line { series, dashed: false, points: points.collect() });
            let (last, (_, busy)) = (&outcomes.last().expect("loads").1, &outcomes[10]);
            let delay = match stable(busy) {
                true => format!("{:.2} | {}", busy.delays.mean(), busy.longest_wait),
                false => "grows |".to_owned(),
            };
            let carried = last.carried / last.offered * 0.99;
            println!("| {} | {name} | {carried:.3} | {delay} |", figure.title);
        }
        let plot = Lines {
            title: figure.title.to_owned(),
            x: "load of the busiest output".to_owned(),
            x_scale: Kind::Linear,
            y: "mean delay, slots".to_owned(),
            scale: Kind::Logarithmic,
            ticks: vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
            series: figure.curves.iter().map(|(name, _)| (*name).to_owned()).collect(),
            lines,
        };
        std::fs::write(folder.join(format!("{}.svg", figure.file)), plot.svg())?;
    }
    Ok(())
}

impl Figure {
    fn setup(&self, load: f64) -> Setup {
        let traffic = Traffic { pattern: self.pattern, load, burst: self.burst };
        Setup {
            ports: self.ports,
            hairpins: self.hairpins,
            traffic,
            slots: 300_000,
            warm_up: 100_000,
            seed: 1,
        }
    }
}
