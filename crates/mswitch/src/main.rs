//! The binary: `mswitch daemon` is the switch; every other command but `bench` is a client of a running daemon.
//!
//! - [`cli`] defines the command line, [`usage`] improves its errors;
//! - [`commands`] implements the commands, one file per noun;
//! - [`completion`] completes the command line in shells;
//! - [`render`] renders replies as text (`--json` prints the replies themselves);
//! - [`packet_text`] parses packets that are written as text;
//! - [`top`] is the live view;
//! - [`log`] formats the daemon's log;
//! - [`failure`] formats errors of commands.
//!
//! The daemon starts this program once more as the guardian of addresses that it has moved ([`hostnet::guardian`]).
//!
//! Exit codes: 0 done, 1 refused or failed, 2 wrong usage. `config diff` has the exit codes of diff(1).

mod card_ports;
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

use std::ffi::OsString;
use std::process::ExitCode;

use allocator as _;

fn main() -> ExitCode {
    // First, before any file is open and any thread runs.
    let mut args = std::env::args_os().skip(1).peekable();
    if hostnet::guardian::is_asked_for(args.peek().map(OsString::as_os_str)) {
        return hostnet::guardian::main(args.skip(1));
    }
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
