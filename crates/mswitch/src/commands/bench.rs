//! `mswitch bench`: what [`bench_run`] does, with its progress on standard error and Ctrl-C as its interruption.

use std::path::PathBuf;

use bench_run::compare::{Comparison, compare, compare_builds};
use bench_run::run::{Options, run as run_benchmark};
use bench_run::scenarios::Set;
use bench_run::settings::Wishes;
use bench_run::{Error, Interrupt, ceilings, list, report};
use tokio::signal::unix::{SignalKind, signal};

use super::{answer, print};
use crate::cli::{BenchCommand, BenchRunArgs, Output};
use crate::failure::Failure;

pub(super) fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Run(args) if args.list => print(&list::text(&program(args.mswitch)?)),
        BenchCommand::Run(args) => measure(args),
        BenchCommand::Compare { a, b, output } => {
            let first = report::read(&a)?;
            let comparison = match b {
                Some(b) => compare(&first, &report::read(&b)?),
                None => compare_builds(&first).map_err(Error::while_doing(a.display()))?,
            };
            answer(output, &comparison, Comparison::text)
        }
        BenchCommand::Ceilings(output) => limits(output),
    }
}

fn measure(args: BenchRunArgs) -> Result<(), Failure> {
    let set = match (args.quick, args.full) {
        (true, _) => Set::Quick,
        (_, true) => Set::Full,
        _ => Set::Core,
    };
    let wishes = Wishes {
        set,
        scenarios: args.scenarios,
        peers: args.peers,
        sizes: args.sizes,
        loads: args.loads,
        ways: args.ways.into_iter().collect(),
        seconds: args.seconds,
        rounds: args.rounds,
        limit: args.limit,
    };
    let before = args.before.as_deref().map(super::absolute).transpose()?;
    let options = Options { wishes, out: args.out, mswitch: program(args.mswitch)?, before };
    Ok(run_benchmark(&options, &interrupted_by_signals()?, &mut progress)?)
}

fn limits(output: Output) -> Result<(), Failure> {
    let measured = ceilings::measure(&interrupted_by_signals()?)?;
    answer(output, &measured, ceilings::Ceilings::text)
}

fn progress(line: &str) {
    eprintln!("{line}");
}

/// The program of the peers named mswitch: this one unless another is given.
fn program(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(path) => super::absolute(&path),
        None => Ok(std::env::current_exe()?),
    }
}

/// An interruption that SIGINT, SIGTERM or SIGHUP sets.
fn interrupted_by_signals() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let setter = interrupt.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut int, mut term, mut hangup) = {
        // Handlers are in place before anything is started.
        let _inside = runtime.enter();
        let of = |kind: fn() -> SignalKind| signal(kind());
        (of(SignalKind::interrupt)?, of(SignalKind::terminate)?, of(SignalKind::hangup)?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hangup.recv() => {} }
            setter.set();
            eprintln!("mswitch: interrupted; removing what was started");
            // Further signals do nothing: the removal takes seconds.
            std::future::pending::<()>().await;
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(interrupt)
}
