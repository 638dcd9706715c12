//! The one binary: `mswitch daemon` is the switch, every other command talks to one that runs.
//!
//! - [`cli`] says what can be typed;
//! - [`commands`] does it, a file per noun;
//! - [`completion`] completes it at a TAB;
//! - [`render`] turns replies into tables for people (`--json` prints the replies themselves);
//! - [`top`] is the live view;
//! - [`log`] is how the daemon's log looks;
//! - [`failure`] is what goes to standard error.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 wrong usage.

mod cli;
mod commands;
mod completion;
mod failure;
mod log;
mod protection;
mod render;
mod top;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
