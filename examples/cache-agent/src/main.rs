//! An agent that keeps decisions of a P4 program's rules in a table that runs in the kernel.
//!
//! The program is `cache.p4` beside this folder, on a bridge with `xdp = true`. Its rules belong to the CPU; each packet
//! that they decide makes a digest. The agent writes the decision into the table `cache`, and the flow's next packets
//! stay in the kernel. It needs a role for this table and digest alone:
//!
//! ```text
//! mswitch-cache-agent --socket /run/mswitch/br0.p4rt --entries 1000
//! ```
//!
//! - [`names`]: ids of the program's objects, and entities with them;
//! - [`switch`]: the connection: claim, reads, writes;
//! - [`cache`]: which flows are kept;
//! - [`agent`]: what it does when;
//! - [`failure`]: reasons for its end.
//!
//! SIGTERM and SIGINT end it. The cache stays as it is, and traffic goes on.
#![forbid(unsafe_code)]

mod agent;
mod cache;
mod failure;
mod names;
mod switch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use failure::Failure;

/// Keeps decisions of a P4 program's rules in a table that runs in the kernel.
#[derive(Debug, Parser)]
#[command(name = "mswitch-cache-agent", version, max_term_width = 100)]
struct Options {
    /// P4Runtime socket of the bridge
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Device id of the bridge
    #[arg(long, default_value_t = 1)]
    device: u64,
    /// Role to claim: its limits are `[[bridge.p4.role]]` in the configuration of mswitch
    #[arg(long, default_value = "cache")]
    role: String,
    /// Election id; the claim with the largest one wins
    #[arg(long, default_value_t = 1)]
    election: u64,
    /// Most flows in the cache
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    entries: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("mswitch-cache-agent: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(agent::run(options))
}
