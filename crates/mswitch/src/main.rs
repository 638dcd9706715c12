//! The one binary: `mswitch daemon` is the switch, every other command talks to one that runs.
//!
//! - [`cli`] defines the command line, [`usage`] words its errors;
//! - [`commands`] does it, a file per noun;
//! - [`completion`] completes it at a TAB;
//! - [`render`] turns replies into tables for people (`--json` prints the replies themselves);
//! - [`packet_text`] reads packets that are written as text;
//! - [`top`] is the live view;
//! - [`log`] is how the daemon's log looks;
//! - [`failure`] is what goes to standard error.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 wrong usage. `config diff` has those of diff(1).

mod cli;
mod commands;
mod completion;
mod failure;
mod log;
mod packet_text;
mod protection;
mod render;
mod top;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run(usage::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                eprintln!("{failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}
