//! Candidates from the running daemon, chosen by the words before the cursor.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use control::client::{Client, connect};
use control::model::DEFAULT_SOCKET;
use control::{options, proto};
use tonic::{Response, Status};

use crate::cli::Cli;
use crate::commands::socket_of_environment;

/// Time allowed for the daemon to answer.
pub(super) const LIMIT: Duration = Duration::from_millis(500);

/// The prefix of a logic from a file, such as `wasm:`.
const FILE: &str = "FILE";

/// Values from the words before the cursor; empty if missing.
pub(super) struct Words {
    socket: PathBuf,
    bridge: String,
    /// The logic of `logic set` and `bridge add`.
    logic: String,
    /// The type of `port add`.
    kind: String,
    /// The words of `logic call` behind the bridge.
    command: Vec<String>,
    /// The parameters of `logic set` and `bridge add`, as `KEY=VALUE`.
    given: Vec<String>,
}

/// The logic whose parameters are logics.
const CHAIN: &str = "chain";
/// Logics that are no stages of a chain.
const ALONE: [&str; 4] = [CHAIN, "openflow", "p4", "p4:"];

impl Words {
    /// Parses complete words of an incomplete command.
    pub(super) fn new(words: &[OsString]) -> Words {
        let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).unwrap_or_default();
        let socket = matches.try_get_one::<PathBuf>("socket").ok().flatten().cloned();
        let mut deepest = &matches;
        while let Some((_, below)) = deepest.subcommand() {
            deepest = below;
        }
        Words {
            socket: socket.or_else(socket_of_environment).unwrap_or_else(|| DEFAULT_SOCKET.into()),
            bridge: text(deepest, "bridge"),
            logic: text(deepest, "logic"),
            kind: text(deepest, "kind"),
            command: texts(deepest, "command"),
            given: texts(deepest, "params"),
        }
    }

    /// Asks the daemon; `None` if it does not answer in time.
    fn ask<T>(&self, question: impl AsyncFnOnce(&mut Client) -> Result<Response<T>, Status>) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(async {
            let answer = async {
                let mut client = connect(&self.socket).await.ok()?;
                Some(question(&mut client).await.ok()?.into_inner())
            };
            tokio::time::timeout(LIMIT, answer).await.ok()?
        })
    }

    pub(super) fn bridges(&self) -> Vec<CompletionCandidate> {
        let reply = self.ask(async |client| client.list_bridges(proto::ListBridgesRequest::default()).await);
        let bridges = reply.unwrap_or_default().bridges;
        bridges.into_iter().map(|bridge| described(bridge.name, "")).collect()
    }

    /// Ports of the bridge, or of all bridges without a bridge.
    fn list_ports(&self) -> Vec<proto::Port> {
        let request = proto::ListPortsRequest { bridge: self.bridge.clone(), ..Default::default() };
        self.ask(async |client| client.list_ports(request).await).unwrap_or_default().ports
    }

    pub(super) fn ports(&self) -> Vec<CompletionCandidate> {
        let mut ports = self.list_ports();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        ports.dedup_by(|a, b| a.name == b.name);
        ports.into_iter().map(|port| described(port.name, &port.r#type)).collect()
    }

    /// Patch ports of all bridges, as `--peer` names them.
    pub(super) fn patch_ports(&self) -> Vec<CompletionCandidate> {
        let request = proto::ListPortsRequest::default();
        let ports = self.ask(async |client| client.list_ports(request).await).unwrap_or_default().ports;
        let patches = ports.into_iter().filter(|port| port.r#type == "patch");
        patches.map(|port| described(format!("{}/{}", port.bridge, port.name), "")).collect()
    }

    /// TAP ports of the bridge.
    pub(super) fn tap_ports(&self) -> Vec<CompletionCandidate> {
        let taps = self.list_ports().into_iter().filter(|port| port.r#type == "tap");
        taps.map(|port| described(port.name, "")).collect()
    }

    pub(super) fn mirrors(&self) -> Vec<CompletionCandidate> {
        let request = proto::ListMirrorsRequest { bridge: self.bridge.clone() };
        let reply = self.ask(async |client| client.list_mirrors(request).await);
        reply.unwrap_or_default().mirrors.into_iter().map(|mirror| described(mirror.name, "")).collect()
    }

    fn list_logics(&self, name: &str) -> Vec<proto::LogicType> {
        let request = proto::ListLogicsRequest { name: name.into() };
        self.ask(async |client| client.list_logics(request).await).unwrap_or_default().logics
    }

    /// Logics, and files for logics such as `wasm:FILE`.
    pub(super) fn logics(&self, typed: &str) -> Vec<CompletionCandidate> {
        let mut found = Vec::new();
        for logic in self.list_logics("") {
            match logic.name.strip_suffix(FILE).filter(|_| logic.from_file) {
                None => found.push(described(logic.name, &logic.summary)),
                Some(prefix) => match typed.strip_prefix(prefix) {
                    None => found.push(described(prefix.to_owned(), &logic.summary)),
                    Some(file) => {
                        let endings = endings(prefix);
                        let files = PathCompleter::any().filter(move |path| {
                            path.extension().is_some_and(|own| endings.iter().any(|it| own == *it))
                        });
                        let files = files.complete(file.as_ref());
                        found.extend(files.into_iter().map(|file| file.add_prefix(prefix)));
                    }
                },
            }
        }
        found.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(typed));
        found
    }

    /// Parameters of the logic as `KEY=`, or as `KEY=VALUE` if the values are known.
    pub(super) fn params(&self, typed: &str) -> Vec<CompletionCandidate> {
        if self.logic == CHAIN {
            return self.stages(typed);
        }
        let logics = self.list_logics(&self.logic);
        let mut found = Vec::new();
        for param in logics.into_iter().flat_map(|logic| logic.params) {
            let ports = || self.list_ports().into_iter().map(|port| port.name);
            let keys = match (param.any_name, param.r#type.as_str()) {
                (true, "port") => ports().collect(),
                (true, _) => Vec::new(),
                (false, _) => vec![param.name],
            };
            let values: Vec<String> = match param.r#type.as_str() {
                "choice" => param.choices,
                "switch" => vec!["on".into(), "off".into()],
                "port" => ports().collect(),
                _ => Vec::new(),
            };
            for key in keys {
                match values.is_empty() {
                    true => found.push(described(format!("{key}="), &param.summary)),
                    false => found.extend(
                        values.iter().map(|value| described(format!("{key}={value}"), &param.summary)),
                    ),
                }
            }
        }
        found.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(typed));
        found
    }

    /// Logics for a stage of a chain, as `N=LOGIC`: for the stage typed, else for the next one.
    fn stages(&self, typed: &str) -> Vec<CompletionCandidate> {
        let next = (1..).find(|n| !self.given.iter().any(|param| param.starts_with(&format!("{n}="))));
        let (number, logic) = match typed.split_once('=') {
            Some((number, logic)) => (number.to_owned(), logic),
            None => (next.unwrap_or(1).to_string(), ""),
        };
        let stage = format!("{number}=");
        if typed.split_once('=').is_none() && !stage.starts_with(typed) {
            return Vec::new();
        }
        let is_stage = |logic: &CompletionCandidate| !ALONE.iter().any(|alone| logic.get_value() == *alone);
        let logics = self.logics(logic).into_iter().filter(is_stage);
        logics.map(|logic| logic.add_prefix(&stage)).collect()
    }

    fn logic_of_bridge(&self) -> proto::Logic {
        let request =
            proto::GetLogicRequest { bridge: self.bridge.clone(), rows: Some(0), ..Default::default() };
        self.ask(async |client| client.get_logic(request).await).unwrap_or_default()
    }

    /// Next words of the commands of the bridge's logic, for `logic call`. Those of a chain have two: the stage's number
    /// and the command.
    pub(super) fn commands(&self) -> Vec<CompletionCandidate> {
        let mut found: Vec<CompletionCandidate> = Vec::new();
        for command in self.logic_of_bridge().commands {
            let words: Vec<&str> = command.name.split(' ').collect();
            let Some((next, rest)) = words
                .strip_prefix(self.command.iter().map(String::as_str).collect::<Vec<_>>().as_slice())
                .and_then(<[&str]>::split_first)
            else {
                continue;
            };
            let help = if rest.is_empty() { command.summary.as_str() } else { "" };
            if !found.iter().any(|candidate| candidate.get_value() == *next) {
                found.push(described((*next).to_owned(), help));
            }
        }
        found
    }

    /// Tables of the bridge's logic.
    pub(super) fn tables(&self) -> Vec<CompletionCandidate> {
        self.logic_of_bridge().tables.into_iter().map(|table| described(table.name, "")).collect()
    }

    /// Options of the port's type as `KEY=`, for `--opt`.
    pub(super) fn options(&self) -> Vec<CompletionCandidate> {
        let known = options::known(&self.kind).unwrap_or_default();
        known.iter().map(|key| described(format!("{key}="), "")).collect()
    }

    /// Returns whether the port's type, if given, lacks an option of another type.
    pub(super) fn lacks_option(&self, id: &str) -> bool {
        let key = match id {
            "rounds" => "loop".to_owned(),
            other => other.replace('_', "-"),
        };
        let has = |kind: &str| options::known(kind).is_ok_and(|keys| keys.contains(&key.as_str()));
        options::known(&self.kind).is_ok()
            && !has(&self.kind)
            && ports::Spec::TYPES.iter().any(|kind| has(kind))
    }
}

/// Returns the extensions of the files that a prefix such as `wasm:` names.
fn endings(prefix: &str) -> &'static [&'static str] {
    match prefix {
        "native:" => &["so"],
        "p4:" => &["p4", "json"],
        _ => &["wasm"],
    }
}

fn texts(matches: &ArgMatches, id: &str) -> Vec<String> {
    let values = matches.try_get_raw(id).ok().flatten().into_iter().flatten();
    values.map(|value| value.to_string_lossy().into_owned()).collect()
}

fn text(matches: &ArgMatches, id: &str) -> String {
    matches.try_get_one::<String>(id).ok().flatten().cloned().unwrap_or_default()
}

fn described(value: String, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.to_owned().into()))
}
