//! Reads and writes configurations as TOML.
//!
//! One pass reports every mistake with line and column, bridge and port, and the value expected. A file with a mistake
//! yields no configuration, so files are never applied in part.

mod bridge;
mod edit;
mod mirror;
mod mistyped;
mod openflow;
mod p4;
mod patches;
mod port;
mod protection;
mod report;
mod section;
mod sflow;
mod syntax;
pub(crate) mod write;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use rustix::process::Uid;
use toml::de::DeTable;

pub use edit::{Edited, edit};
pub use report::{Context, FileError, Position, Problem};
pub use write::{Secrets, write};

use crate::check::Ours;
use crate::model::{Config, DaemonConfig};
use crate::{cpulist, keys, socket};
use port::Shared;
use report::Report;
use section::Section;

/// Thoroughness of the search for mistakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Only keys and values. The directories, CPUs, users and modules that they name need not exist.
    Form,
    /// Also the directories, CPUs, users and modules that the text names.
    Text,
    /// Also sockets, by connecting to them.
    Machine,
}

/// A configuration, and notes on its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The configuration.
    pub config: Config,
    /// Notes on a text that is accepted: former names, patch ports without a peer.
    pub notes: Vec<Problem>,
}

impl Parsed {
    /// Formats the notes as lines; `path` is the path of the file.
    pub fn note_lines(&self, path: &Path) -> Vec<String> {
        self.notes.iter().map(|note| note.line(path)).collect()
    }
}

/// Reads the file at `path`, at [`Depth::Machine`]. `socket` is the control socket of its daemon; `None` means the one
/// in the file.
pub fn read_for(path: &Path, socket: Option<&Path>) -> Result<Parsed, FileError> {
    parse_for(&text_of(path)?, path, Depth::Machine, socket)
}

/// Returns the text of the file at `path`.
pub fn text_of(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|error| {
        let message = match error.kind() {
            ErrorKind::PermissionDenied => permission_denied(rustix::process::geteuid()),
            _ => format!("cannot read the file: {error}"),
        };
        let problem = Problem { position: None, context: Context::default(), message };
        FileError { file: path.into(), problems: vec![problem] }
    })
}

/// Returns the message for a file that this process may not read as `user`.
fn permission_denied(user: Uid) -> String {
    let remedy = match user.is_root() {
        true => "its file system, a security module or the lack of CAP_DAC_OVERRIDE restricts root",
        false => "permit that user to read the file and to enter its directories, or run mswitch as root",
    };
    format!("cannot read the file: permission denied for user {}; {remedy}", user.as_raw())
}

/// Parses a configuration from `text`. Messages refer to `path`.
pub fn parse(text: &str, path: &Path, depth: Depth) -> Result<Config, FileError> {
    parse_for(text, path, depth, None).map(|parsed| parsed.config)
}

/// Like [`parse`], with notes. `socket` is the control socket of the daemon; `None` means the one in the text.
pub fn parse_for(text: &str, path: &Path, depth: Depth, socket: Option<&Path>) -> Result<Parsed, FileError> {
    let mut report = Report::new(text);
    let config = parse_reporting(text, depth, socket, &mut report);
    let (problems, notes) = report.finish();
    match problems.is_empty() {
        true => Ok(Parsed { config, notes }),
        false => Err(FileError { file: path.into(), problems }),
    }
}

fn parse_reporting(text: &str, depth: Depth, socket: Option<&Path>, report: &mut Report<'_>) -> Config {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // The recovered part of an invalid text would cause further, misleading mistakes.
        let mut line = 0;
        for error in errors {
            let span = error.span().unwrap_or_default();
            // The parser may report a mistake again at the rest of its line.
            if std::mem::replace(&mut line, report.line(&span)) == report.line(&span) {
                continue;
            }
            report.add(&span, &Context::default(), syntax::explain(text, &span, error.message()));
        }
        return Config::default();
    }
    let root = Section { table: root.get_ref(), span: 0..0, context: Context::default() };
    root.only(&["daemon", "bridge", "sflow"], report);
    // A socket that the command line overrides is not checked.
    let daemon = daemon(&root, depth, socket.is_none(), report);
    let sflow = sflow::read(&root, report);
    let ours = match depth {
        Depth::Machine => Ours::of_daemon(socket.unwrap_or(daemon.socket())),
        Depth::Form | Depth::Text => Ours::default(),
    };
    let (exclusive, sockets, patches, hosts) = Default::default();
    let mut shared = Shared { exclusive, sockets, patches, hosts, ours: &ours, depth };
    let mut names = BTreeMap::new();
    let bridges = root
        .tables("bridge", "bridge", report)
        .into_iter()
        .filter_map(|section| bridge::read(section, &mut names, &mut shared, report))
        .collect();
    let config = Config { daemon, bridges, sflow };
    patches::check(&config, &shared.patches, report);
    config
}

/// Reads `[daemon]`. `binds`: whether the daemon binds the socket in this section.
fn daemon(root: &Section<'_>, depth: Depth, binds: bool, report: &mut Report<'_>) -> DaemonConfig {
    let mut config = DaemonConfig::default();
    let Some((table, span)) = root.table("daemon", "a table that begins with `[daemon]`", report) else {
        return config;
    };
    let section = Section { table, span, context: Context::default() };
    section.only(&keys::names(keys::DAEMON), report);
    if let Some((text, span)) = section.text("workers", "a CPU list such as `0,2-3`", report) {
        let cpus =
            if depth == Depth::Form { cpulist::parse_workers(text) } else { cpulist::parse_online(text) };
        match cpus {
            Ok(cpus) => config.workers = cpus,
            Err(error) => report.add(&span, &section.context, format!("`workers`: {error}")),
        }
    }
    if let Some((poll, _)) = section.boolean("poll", report) {
        config.poll = poll;
    }
    if let Some((path, span)) = section.text("socket", "a path", report) {
        config.socket = Some(path.into());
        if binds
            && depth == Depth::Machine
            && let Err(error) = socket::could_bind(Path::new(path))
        {
            report.add(&span, &section.context, format!("`socket`: {error}"));
        }
    }
    for (key, expected, value) in [
        ("owner", "a user's name or number as text", &mut config.owner),
        ("group", "a group's name or number as text", &mut config.group),
        ("mode", "an octal mode as text", &mut config.mode),
    ] {
        *value = section.text(key, expected, report).map(|(text, _)| text.to_owned());
    }
    if depth > Depth::Form
        && let Err(error) = config.access()
    {
        // The message begins with its key.
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
