//! `p4-client`: fills and changes tables of a P4 switch by P4Runtime, as fast as the switch allows. See
//! `p4-client --help`.
//!
//! Requests are encoded before the time that is measured, so that the client takes little of it.

mod controller;
mod encoded;
mod failure;
mod load;
mod requests;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use p4runtime_proto::v1::update::Type;

use crate::controller::Controller;
use crate::failure::Failure;
use crate::load::Load;
use crate::requests::Requests;

/// Fills and changes tables of a P4 switch by P4Runtime, and prints how fast as one JSON object.
///
/// Files have an entity a line, as `mswitch p4 add` takes it.
#[derive(Debug, Parser)]
#[command(name = "p4-client", version, max_term_width = 100)]
struct Cli {
    /// Socket of P4Runtime.
    #[arg(long)]
    socket: PathBuf,
    /// Device.
    #[arg(long, default_value_t = 1)]
    device: u64,
    /// Updates of a request.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Requests on their way.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: u32,
    /// Most updates a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Inserts the entities of a file.
    Load {
        /// The file.
        file: PathBuf,
    },
    /// Changes entries to those of one file, then of another, and so on.
    Modify {
        /// The first file.
        first: PathBuf,
        /// The other file: the same keys.
        second: PathBuf,
        /// Time that this goes on, in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Inserts the entries of a file, deletes them, and so on.
    Replace {
        /// The file.
        file: PathBuf,
        /// Time that this goes on, in seconds; then the entries are deleted.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "p4-client: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    // One thread leaves more of a small machine to the switch.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let controller = Controller::connect(&cli.socket, cli.device).await?;
        let batch = cli.batch as usize;
        let read = |kind: Type, path: &PathBuf| Requests::read(&controller, kind, path, batch);
        let load = Load { in_flight: cli.in_flight as usize, rate: cli.rate };
        match &cli.command {
            Command::Load { file } => load.once(&controller, &read(Type::Insert, file)?).await,
            Command::Modify { first, second, seconds } => {
                let turns = [read(Type::Modify, first)?, read(Type::Modify, second)?];
                load.turns(&controller, &turns, *seconds).await
            }
            Command::Replace { file, seconds } => {
                let turns = [read(Type::Insert, file)?, read(Type::Delete, file)?];
                load.turns(&controller, &turns, *seconds).await
            }
        }
    })?;
    let text = serde_json::to_string(&report).map_err(std::io::Error::from)?;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}
