//! Command implementations, one file per noun.

mod bench;
mod bridge;
pub(crate) mod capture;
mod config;
mod daemon;
mod events;
mod fdb;
mod logic;
mod manual;
mod mirror;
mod openflow;
mod p4;
mod port;
mod sflow;
mod status;
mod trace;
mod worker;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use control::client::connect;
use control::model::DEFAULT_SOCKET;
use serde::Serialize;

use crate::cli::{Cli, Command, ConfigCommand, Output, PortCommand};
use crate::completion;
use crate::failure::Failure;

/// Runs one command.
pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    let compares = matches!(cli.command, Command::Config(ConfigCommand::Diff { .. }));
    let done = run_any(cli);
    if compares { done.map_err(Failure::of_comparison) } else { done }
}

fn run_any(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Daemon(args) => daemon::run(&args, cli.socket),
        Command::Config(ConfigCommand::Check { file, output }) => {
            config::check(&file, socket_for(&file, cli.socket).as_deref(), output)
        }
        Command::Port(PortCommand::Reasons { reason, markdown, output }) => {
            port::reasons(reason.as_deref(), markdown, output)
        }
        Command::Config(ConfigCommand::Reference) => print(&control::keys::reference()),
        Command::Bench(command) => bench::run(command),
        Command::P4(command) if p4::is_local(&command) => p4::run(command),
        Command::Completion { shell } => print(completion::script(shell)),
        Command::Complete { shell, arguments } => print(&completion::reply(shell, arguments)),
        Command::Man { directory, date } => manual::pages(&directory, &date.unwrap_or_default()),
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(ask(command, cli.socket))
        }
    }
}

/// Returns the control socket that the environment names. An option takes precedence, and for a daemon also its file.
///
/// clap does not read the variable: it would show the option in each usage line as if it were required.
pub(crate) fn socket_of_environment() -> Option<PathBuf> {
    std::env::var_os("MSWITCH_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the control socket of a daemon with this file, unless the file names it: that of the option, or else that of
/// the environment.
fn socket_for(file: &Path, option: Option<PathBuf>) -> Option<PathBuf> {
    let in_file = || {
        let text = control::file::text_of(file).ok()?;
        control::file::parse(&text, file, control::file::Depth::Form).ok()?.daemon.socket
    };
    option.or_else(|| if in_file().is_some() { None } else { socket_of_environment() })
}

/// Runs a command that needs a daemon.
async fn ask(command: Command, socket: Option<PathBuf>) -> Result<(), Failure> {
    match &command {
        Command::Port(command) => port::check(command, socket.is_some())?,
        Command::Sflow(command) => sflow::check(command)?,
        _ => {}
    }
    let socket = socket.or_else(socket_of_environment);
    let mut client = connect(socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET))).await?;
    match command {
        Command::Status(output) => status::run(&mut client, output).await,
        Command::Bridge(command) => bridge::run(&mut client, command).await,
        Command::Port(command) => port::run(&mut client, command).await,
        Command::Worker(command) => worker::run(&mut client, command).await,
        Command::Logic(command) => logic::run(&mut client, command).await,
        Command::Fdb(command) => fdb::run(&mut client, command).await,
        Command::Mirror(command) => mirror::run(&mut client, command).await,
        Command::Openflow(command) => openflow::run(&mut client, command).await,
        Command::P4(command) => p4::ask(&mut client, command).await,
        Command::Sflow(command) => sflow::run(&mut client, command).await,
        Command::Capture(args) => capture::run(&mut client, args).await,
        Command::Trace(args) => trace::run(&mut client, args).await,
        Command::Config(command) => config::run(&mut client, command).await,
        Command::Events(args) => events::run(&mut client, args).await,
        Command::Top(args) => crate::top::run(&mut client, args).await,
        // Handled by `run`, without a daemon.
        Command::Daemon(_)
        | Command::Bench(_)
        | Command::Completion { .. }
        | Command::Complete { .. }
        | Command::Man { .. } => Ok(()),
    }
}

/// Prints a reply as JSON, or as the text that `people` renders.
pub(crate) fn answer<T: Serialize>(
    output: Output,
    reply: &T,
    people: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if output.json {
        let json = serde_json::to_string_pretty(reply).map_err(Failure::new)?;
        print(&format!("{json}\n"))
    } else {
        print(&people(reply))
    }
}

/// Prints; ends the process quietly when the reader has closed the pipe (`| head`).
fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints as [`print()`] does.
fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Collects `KEY=VALUE` options into a map; refuses a key that is given twice.
fn unique(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if map.insert(key.clone(), value).is_some() {
            return Err(Failure::new(format_args!("option `{key}` is given twice; give it once")));
        }
    }
    Ok(map)
}

/// Prints a note on standard error; the command continues.
fn note(text: impl std::fmt::Display) {
    eprintln!("mswitch: note: {text}");
}

/// Notes that a flag or key was given by its former name.
fn note_former(old: &str, new: &str) {
    note(format_args!("`{old}` is now called `{new}`"));
}

/// Makes a path absolute: the daemon has another working directory.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(format_args!("`{}`: {error}", path.display())))
}

/// Returns the only element of a reply about one object; the daemon refuses unknown names.
fn single<T>(list: Vec<T>) -> Result<T, Failure> {
    list.into_iter()
        .next()
        .ok_or_else(|| Failure::new("the daemon sent an empty reply; this is a bug in mswitch"))
}
