//! Reads a configuration from TOML, and writes it.
//!
//! Every mistake in the file is found in one go and told with its line and column, the bridge and port it is in, and
//! what would be right. A file with a mistake yields no configuration at all, so nothing is ever half applied.

mod bridge;
mod mirror;
mod port;
mod protection;
mod report;
mod section;
mod sflow;
pub(crate) mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::de::DeTable;

pub use report::{Context, FileError, Problem};
pub use write::{Secrets, write};

use crate::check::Ours;
use crate::model::{Config, DaemonConfig};
use crate::{cpulist, keys, socket};
use port::Shared;
use report::Report;
use section::Section;

/// How far to look for mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// At the text, and at what it names as far as looking there disturbs nobody (directories, CPUs).
    Text,
    /// At sockets too: who listens there is asked by connecting.
    Machine,
}

/// Reads the file at `path`, looking at the machine too, for a daemon whose control socket is the file's unless it is
/// `socket`.
pub fn read_for(path: &Path, socket: Option<&Path>) -> Result<Config, FileError> {
    parse_for(&text_of(path)?, path, Depth::Machine, socket)
}

/// What the file at `path` says.
pub fn text_of(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|error| FileError {
        file: path.into(),
        problems: vec![Problem {
            line: 1,
            column: 1,
            context: Context::default(),
            message: format!("cannot read the file: {error}"),
        }],
    })
}

/// Reads a configuration from `text`; `path` is for the messages.
pub fn parse(text: &str, path: &Path, depth: Depth) -> Result<Config, FileError> {
    parse_for(text, path, depth, None)
}

/// Like [`parse`], for a daemon whose control socket is not the text's but `socket`.
pub fn parse_for(text: &str, path: &Path, depth: Depth, socket: Option<&Path>) -> Result<Config, FileError> {
    let mut report = Report::new(text);
    let config = parse_reporting(text, depth, socket, &mut report);
    let problems = report.finish();
    if problems.is_empty() { Ok(config) } else { Err(FileError { file: path.into(), problems }) }
}

fn parse_reporting(text: &str, depth: Depth, socket: Option<&Path>, report: &mut Report<'_>) -> Config {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What was recovered from a broken text would bring mistakes that nobody made.
        for error in errors {
            report.add(&error.span().unwrap_or_default(), &Context::default(), error.message());
        }
        return Config::default();
    }
    let root = Section { table: root.get_ref(), span: 0..0, context: Context::default() };
    root.only(&["daemon", "bridge", "sflow"], report);
    // A socket that the command line overrides is nobody's.
    let daemon = daemon(&root, depth == Depth::Machine && socket.is_none(), report);
    let sflow = sflow::read(&root, report);
    let ours = match depth {
        Depth::Machine => Ours::of_daemon(socket.unwrap_or(daemon.socket())),
        Depth::Text => Ours::default(),
    };
    let mut shared = Shared { exclusive: BTreeMap::new(), sockets: BTreeSet::new(), ours: &ours, depth };
    let mut names = BTreeMap::new();
    let bridges = root
        .tables("bridge", "bridge", report)
        .into_iter()
        .filter_map(|section| bridge::read(section, &mut names, &mut shared, report))
        .collect();
    Config { daemon, bridges, sflow }
}

/// `[daemon]`: the daemon's own settings; whether its socket could be made if `look`.
fn daemon(root: &Section<'_>, look: bool, report: &mut Report<'_>) -> DaemonConfig {
    let mut config = DaemonConfig::default();
    let Some((table, span)) = root.table("daemon", "a table that begins with `[daemon]`", report) else {
        return config;
    };
    let section = Section { table, span, context: Context::default() };
    section.only(&keys::names(keys::DAEMON), report);
    if let Some((text, span)) = section.text("workers", "a CPU list such as `0,2-3`", report) {
        match cpulist::parse_online(text) {
            Ok(cpus) => config.workers = cpus,
            Err(error) => report.add(&span, &section.context, format!("`workers`: {error}")),
        }
    }
    if let Some((poll, _)) = section.boolean("poll", report) {
        config.poll = poll;
    }
    if let Some((path, span)) = section.text("socket", "a path", report) {
        config.socket = Some(path.into());
        if look && let Err(error) = socket::could_bind(Path::new(path)) {
            report.add(&span, &section.context, format!("`socket`: {error}"));
        }
    }
    for (key, expected, value) in [
        ("owner", "a user's name or number as text", &mut config.owner),
        ("group", "a group's name or number as text", &mut config.group),
        ("mode", "an octal mode such as \"0660\"", &mut config.mode),
    ] {
        *value = section.text(key, expected, report).map(|(text, _)| text.to_owned());
    }
    if let Err(error) = config.access() {
        // The sentence begins with the key that it is about.
        let key = error.0.split(':').next().unwrap_or_default();
        report.add(&section.span_of(key), &section.context, format!("`[daemon]`: {error}"));
    }
    if let Some((text, span)) = section.text("metrics", "a text such as `127.0.0.1:9090` or `9090`", report) {
        match text.parse() {
            Ok(address) => config.metrics = Some(address),
            Err(error) => report.add(&span, &section.context, format!("`metrics`: {error}")),
        }
    }
    config
}

#[cfg(test)]
mod tests;
