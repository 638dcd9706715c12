//! `flow-client`: fills and changes tables of a switch by OpenFlow 1.4, as fast as the switch allows. See
//! `flow-client --help`.
//!
//! Messages are encoded before the time that is measured, so that the client takes little of it.

mod connection;
mod failure;
mod load;
mod requests;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use openflow::Version;
use openflow::message::FlowModCommand;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::load::Load;
use crate::requests::Requests;

/// The first version that has bundles.
const VERSION: Version = Version::V1_4;

/// Fills and changes tables of a switch by OpenFlow, and prints how fast as one JSON object.
///
/// Files have a flow a line, as `ovs-ofctl add-flows` takes it.
#[derive(Debug, Parser)]
#[command(name = "flow-client", version, max_term_width = 100)]
struct Cli {
    /// Management socket of the bridge.
    #[arg(long)]
    socket: PathBuf,
    /// Flow-mods in front of a barrier.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Barriers on their way.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    in_flight: u32,
    /// Most flow-mods a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Adds the flows of a file.
    Load {
        /// The file.
        file: PathBuf,
    },
    /// Changes flows to those of one file, then of another, and so on.
    Modify {
        /// The first file.
        first: PathBuf,
        /// The other file: the same matches and priorities.
        second: PathBuf,
        /// Time that this goes on, in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Adds the flows of a file, deletes them, and so on.
    Replace {
        /// The file.
        file: PathBuf,
        /// Time that this goes on, in seconds; then the flows are deleted.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// As `modify`, but each file is one atomic bundle; the times are those of its commit.
    Swap {
        /// The first file.
        first: PathBuf,
        /// The other file: the same matches and priorities.
        second: PathBuf,
        /// Time that this goes on, in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "flow-client: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let batch = cli.batch as usize;
    let read = |command, path: &PathBuf| Requests::read(command, path, batch);
    let bundle = |path: &PathBuf| Requests::bundle(FlowModCommand::ModifyStrict, path);
    let (turns, seconds) = match &cli.command {
        Command::Load { file } => (vec![read(FlowModCommand::Add, file)?], None),
        Command::Modify { first, second, seconds } => {
            let command = FlowModCommand::ModifyStrict;
            (vec![read(command, first)?, read(command, second)?], Some(*seconds))
        }
        Command::Replace { file, seconds } => (
            vec![read(FlowModCommand::Add, file)?, read(FlowModCommand::DeleteStrict, file)?],
            Some(*seconds),
        ),
        Command::Swap { first, second, seconds } => (vec![bundle(first)?, bundle(second)?], Some(*seconds)),
    };
    let load = Load { in_flight: cli.in_flight as usize, rate: cli.rate };
    let report = load.run(Connection::open(&cli.socket)?, &turns, seconds)?;
    let text = serde_json::to_string(&report).map_err(std::io::Error::from)?;
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}
