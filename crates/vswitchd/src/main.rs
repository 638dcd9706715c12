//! `ovs-vswitchd`: mswitch in the place of Open vSwitch's daemon of that name.
//!
//! The database of `ovsdb-server` is the source of the configuration; everything else is the daemon of `mswitch`, with
//! its control socket `mswitch.sock` in the run directory.
//!
//! - [`args`]: the command line; [`detach`]: processes and their start; [`log`]: the log in Open vSwitch's format;
//! - [`follow`]: the session with the database, and what happens on its events;
//! - [`plan`]: from rows to bridges and ports; [`vlan`], [`numbers`]: parts of it;
//! - [`facts`], [`controllers`], [`mirrors`]: the state of interfaces, controllers and mirrors; [`answer`]: from state
//!   to rows;
//! - [`monitor`]: BFD and CFM on interfaces; [`pulse`]: a moved clock and the database;
//! - [`bonds`]: bonds and LACP at their times, with the commands and the rows that tell of them;
//! - [`trees`]: spanning trees at their times, with the commands and the rows that tell of them;
//! - [`inbox`]: frames from bridges to the threads of these;
//! - [`dummy`], [`testing`]: what is within the process for tests; [`datapath`], [`trace`], [`odp`]: the datapath as
//!   Open vSwitch's commands show it;
//! - [`link_watch`]: changes of the host's interfaces; [`line_limit`]: log lines that others cause;
//! - [`commands`], [`fdb`], [`mdb`]: those of `ovs-appctl`.

mod accounting;
mod answer;
mod args;
mod bonds;
mod commands;
mod controllers;
mod datapath;
mod detach;
mod dummy;
mod facts;
mod fdb;
mod follow;
mod inbox;
mod line_limit;
mod link_watch;
mod log;
mod mdb;
mod mirrors;
mod monitor;
mod news;
mod numbers;
mod odp;
mod plan;
mod pulse;
mod qos;
mod seen;
mod testing;
mod trace;
mod trees;
mod vlan;

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use allocator as _;
use control::model::{Config, DaemonConfig};
use tokio::sync::Notify;
use unixctl::{Pidfile, Server};

use args::Args;
use detach::{Readiness, Role};

/// What the program answers to `--version`. Tools take the last word for the version of Open vSwitch.
const VERSION: &str =
    concat!("ovs-vswitchd (mswitch ", env!("CARGO_PKG_VERSION"), " for Open vSwitch) 3.1.0");

fn main() -> ExitCode {
    // First, before any file is open and any thread runs.
    let mut words = std::env::args_os().skip(1).peekable();
    if hostnet::guardian::is_asked_for(words.peek().map(OsString::as_os_str)) {
        return hostnet::guardian::main(words.skip(1));
    }
    let args = Args::parse();
    let done = match Role::of_this_process(args.detach, args.monitor) {
        Role::Starter(role) => detach::start(role),
        Role::Monitor => detach::monitor(),
        Role::Daemon(readiness) => run(args, readiness).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|message| {
        eprintln!("ovs-vswitchd: {message}");
        ExitCode::FAILURE
    })
}

/// Returns the path of the control socket: `mswitch.sock`, or with this process's number in its name while another
/// daemon listens there, as one that waits for the other's end does.
fn control_socket(rundir: &Path) -> PathBuf {
    let path = rundir.join("mswitch.sock");
    match UnixStream::connect(&path) {
        Ok(_) => rundir.join(format!("mswitch.{}.sock", std::process::id())),
        Err(_) => path,
    }
}

/// Runs the daemon in this process.
fn run(args: Args, readiness: Readiness) -> Result<(), String> {
    let log = log::start(&args)?;
    for option in &args.ignored {
        tracing::warn!("{option} has no effect");
    }
    if readiness.is_detached() && !args.no_chdir {
        std::env::set_current_dir("/").map_err(|error| format!("/: {error}"))?;
    }
    let create = |path| Pidfile::create(path, args.overwrite_pidfile).map_err(|error| error.to_string());
    // Kept until this function returns, which removes their files.
    let _pidfile = args.pidfile.as_deref().map(create).transpose()?;
    let listen = |path| Server::listen(path).map_err(|error| error.to_string());
    let server = args.unixctl.as_deref().map(listen).transpose()?.map(Arc::new);

    let settings = DaemonConfig { socket: Some(control_socket(&args.rundir)), ..DaemonConfig::default() };
    let follower = follow::Follower {
        remote: args.database.clone(),
        rundir: args.rundir.clone(),
        readiness,
        types: args.types,
        exit: Arc::new(Notify::new()),
        server,
        log,
    };
    let source: control::daemon::Source = Box::new(|desired| Box::pin(follower.run(desired)));
    control::daemon::run_with(&Config::default(), &settings, false, None, Some(source))
        .map_err(|error| error.to_string())
}
