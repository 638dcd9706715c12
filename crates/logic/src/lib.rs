//! What decides where packets go: the logics that ship with the switch, and how one is chosen by name.
//!
//! A logic implements [`fabric::SwitchLogic`] for the data plane and [`Logic`] for the people who run it. A new
//! one is one file and one line in [`LIST`].
//!
//! Invariants of the crate: the data plane neither blocks nor allocates nor panics in here, whatever bytes a
//! packet consists of; a logic knows ports by index and settings only, never their type.
#![forbid(unsafe_code)]

use std::sync::Arc;

mod chain;
mod description;
mod dummy;
mod error;
pub mod fdb;
mod flow;
mod handover;
mod hub;
mod learning;
pub mod params;
mod security;
mod snooping;
mod source_guard;
mod static_pairs;
mod views;
pub mod vlan;

pub use chain::{Chain, MAX_STAGES};
pub use description::{LogicDescription, ParamDefault, ParamDescription, ParamKind};
pub use dummy::Dummy;
pub use error::LogicError;
pub use fdb::Key;
pub use fdb::{Admission, Fdb, FdbChange, FdbEntry, FdbError, FdbEvent, FdbStats, Foresight};
pub use handover::{State, Station, replace};
pub use hub::Hub;
pub use learning::Learning;
pub use params::{ParamValue, Values};
pub use security::admits_packet as admits;
pub use snooping::GroupEntry;
pub use static_pairs::StaticPairs;
pub use views::{GroupTable, MacTable, Views};

/// Every logic there is.
pub const LIST: &[LogicInfo] = &[learning::INFO, static_pairs::INFO, hub::INFO, chain::INFO, dummy::INFO];

/// A logic as the control plane sees it.
pub trait Logic: fabric::SwitchLogic {
    /// The name it is chosen by, as in [`LIST`].
    fn name(&self) -> &str;

    /// Its parameters as they are in effect, defaults included.
    fn params(&self) -> Vec<(String, String)>;

    /// The views that it offers to the control plane.
    fn views(&self) -> Views<'_> {
        Views::default()
    }

    /// The ports that its parameters name. Those that are not there yet have no part in what it does.
    fn named_ports(&self) -> Vec<String> {
        Vec::new()
    }

    /// The module of this logic that a thread is calling at the moment; the thread's number is that of
    /// [`fabric::worker::Overrun`].
    fn called_on(&self, _thread: usize) -> Option<String> {
        None
    }

    /// Whether the files that it was made of have changed since, or it is better replaced by a new one for another reason.
    fn is_outdated(&self) -> bool {
        false
    }

    /// What it counts, beyond what the fabric counts for every bridge.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// What it remembers, as people read it.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    /// How full its tables are. For one whose tables are long and that knows without reading them.
    fn table_sizes(&self) -> Vec<TableSize> {
        let size = |table: Table| TableSize {
            name: table.name,
            entries: table.rows.len() as u64,
            capacity: table.capacity,
        };
        self.tables().into_iter().map(size).collect()
    }

    /// What it can be asked to do.
    fn commands(&self) -> Vec<CommandInfo> {
        Vec::new()
    }

    /// Does what it is asked to: a command's name and its arguments. Returns what is to be shown.
    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        Err(LogicError::unknown_command(self.name(), command, &self.commands()))
    }

    /// What a logic that takes its place may want to know. Called while it is in use, and once more when it is no longer.
    fn hand_over(&self) -> Vec<State> {
        Vec::new()
    }

    /// What the logic whose place it takes knows; what it does not understand it leaves. Called before its first batch, and
    /// once more when it is in use already: then what it has learned itself is newer.
    fn take_over(&self, _states: &[State]) {}

    /// Time passes: called by the control plane every few seconds with the seconds of [`fabric::clock`].
    fn tick(&self, _now_seconds: u32) {}
}

/// A number that a logic counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Its name: lower case, digits and underscores.
    pub name: String,
    /// What is counted, in a line.
    pub help: String,
    /// How many there were.
    pub value: u64,
}

/// A table of a logic, as people read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows, a text for each column.
    pub rows: Vec<Vec<String>>,
    /// How many rows it can have; 0: that is not known.
    pub capacity: u64,
}

/// How full a table of a logic is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSize {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub entries: u64,
    /// How many rows it can have; 0: that is not known.
    pub capacity: u64,
}

/// What a logic can be asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    /// Its name.
    pub name: String,
    /// Its arguments as usage texts have them, such as `PORT [SECONDS]`.
    pub usage: String,
    /// What it does, in a line.
    pub help: String,
}

/// A kind of logics that come from outside, each of which is called `PREFIX:FILE`.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The prefix, such as `wasm`.
    pub prefix: &'static str,
    /// How the names of such files end, such as `.wasm`, for whoever forgets the prefix.
    pub ending: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// What can be said about the one in this file.
    pub describe: fn(&str) -> Result<LogicDescription, LogicError>,
    /// Makes the one in this file.
    pub build: BuildFile,
}

/// Makes the logic in a file.
pub type BuildFile = fn(&str, &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError>;

type Build = fn(&[(String, String)], &'static [Kind]) -> Result<Arc<dyn Logic>, LogicError>;

/// A logic that ships with the switch.
#[derive(Debug, Clone, Copy)]
pub struct LogicInfo {
    /// The name it is chosen by.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    params: fn() -> Vec<ParamDescription>,
    build: Build,
}

impl LogicInfo {
    /// What can be said about it.
    pub fn describe(&self) -> LogicDescription {
        let (name, summary) = (self.name.into(), self.summary.into());
        LogicDescription { name, summary, params: (self.params)(), commands: Vec::new() }
    }
}

/// The one of `kinds` that a logic is of, and its file, if it comes from outside.
fn outside<'a>(name: &'a str, kinds: &'static [Kind]) -> Option<(&'static Kind, &'a str)> {
    let (prefix, file) = name.split_once(':')?;
    Some((kinds.iter().find(|kind| kind.prefix == prefix)?, file))
}

fn find(name: &str, kinds: &'static [Kind]) -> Result<&'static LogicInfo, LogicError> {
    LIST.iter().find(|info| info.name == name).ok_or_else(|| LogicError::unknown_logic(name, kinds))
}

/// What can be said about the logic called `name`, which is one of [`LIST`] or of one of `kinds`.
pub fn describe(name: &str, kinds: &'static [Kind]) -> Result<LogicDescription, LogicError> {
    match outside(name, kinds) {
        Some((kind, file)) => (kind.describe)(file),
        None => Ok(find(name, kinds)?.describe()),
    }
}

/// Makes the logic called `name`, which is one of [`LIST`] or of one of `kinds`.
pub fn build(
    name: &str,
    params: &[(String, String)],
    kinds: &'static [Kind],
) -> Result<Arc<dyn Logic>, LogicError> {
    match outside(name, kinds) {
        Some((kind, file)) => (kind.build)(file, params),
        None => (find(name, kinds)?.build)(params, kinds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(given: &[(&str, &str)]) -> Vec<(String, String)> {
        given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    fn refused(name: &str, params: &[(&str, &str)]) -> String {
        match build(name, &given(params), KINDS) {
            Ok(_) => panic!("{name} {params:?} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_logic_can_be_made_and_names_itself() {
        for info in LIST {
            // A chain of nothing would be nothing.
            let least: &[_] = if info.name == "chain" { &[("1", "hub")] } else { &[] };
            let logic = build(info.name, &given(least), &[]).unwrap();
            assert_eq!(logic.name(), info.name);
            assert!(!info.summary.is_empty());
            let described = describe(info.name, &[]).unwrap();
            assert_eq!(params::check_description(&described), Ok(()));
        }
    }

    #[test]
    fn parameters_take_effect_and_defaults_show() {
        let logic = build("learning", &given(&[("ageing", "0")]), &[]).unwrap();
        let expected = [("ageing", "0"), ("max-stations", "8192"), ("port-share", "75"), ("snooping", "off")];
        assert_eq!(logic.params(), given(&expected));
        assert!(logic.views().groups.is_none());
        let logic =
            build("learning", &given(&[("snooping", "on"), ("unregistered", "routers")]), &[]).unwrap();
        let expected = [("snooping", "on"), ("snooping-timeout", "260"), ("unregistered", "routers")];
        assert_eq!(logic.params()[3..], given(&expected));
        assert_eq!(logic.views().groups.unwrap().entries(), []);
        let logic = build("static", &given(&[("a", "b")]), &[]).unwrap();
        assert_eq!(logic.params(), given(&[("a", "b")]));
        assert!(logic.views().stations.is_none());
    }

    /// A kind whose file is the name of a logic that ships with the switch.
    const KINDS: &[Kind] = &[Kind {
        prefix: "module",
        ending: ".mod",
        summary: "a test's",
        describe: |file| describe(file, &[]),
        build: |file, params| build(file, params, &[]),
    }];

    #[test]
    fn kinds_from_outside_are_told_by_their_prefix() {
        assert_eq!(build("module:learning", &given(&[("ageing", "7")]), KINDS).unwrap().params()[0].1, "7");
        assert_eq!(describe("module:static", KINDS).unwrap(), describe("static", KINDS).unwrap());
        let unknown = describe("modul:static", KINDS).unwrap_err().to_string();
        assert!(unknown.starts_with("there is no logic `modul:static`"), "{unknown}");
        for (typed, meant) in [
            ("/tmp/a.mod", "/tmp/a.mod"),
            ("modul:/tmp/a.mod", "/tmp/a.mod"),
            ("/tmp/a:b.mod", "/tmp/a:b.mod"),
        ] {
            let unknown = describe(typed, KINDS).unwrap_err().to_string();
            assert!(unknown.contains(&format!("did you mean `module:{meant}`?")), "{unknown}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        assert_eq!(
            refused("lerning", &[]),
            "there is no logic `lerning`, did you mean `learning`? The logics are: learning, static, hub, chain, dummy, module:FILE"
        );
        assert_eq!(
            refused("zzz", &[]),
            "there is no logic `zzz`; the logics are: learning, static, hub, chain, dummy, module:FILE"
        );
        assert_eq!(
            refused("learning", &[("aging", "1")]),
            "logic `learning` has no parameter `aging`, did you mean `ageing`? \
             Its parameters are: ageing, max-stations, port-share, snooping, snooping-timeout, unregistered"
        );
        assert_eq!(
            refused("learning", &[("ageing", "soon")]),
            "parameter `ageing` of logic `learning` cannot be `soon`: \
             a whole number of seconds from 0 to 1000000 is expected"
        );
        assert!(refused("learning", &[("max-stations", "0")]).contains("from 1 to"));
        assert_eq!(
            refused("learning", &[("snooping", "yes")]),
            "parameter `snooping` of logic `learning` cannot be `yes`: `on` or `off` is expected"
        );
        assert!(refused("learning", &[("ageing", "1"), ("ageing", "2")]).contains("given twice"));
        assert!(refused("static", &[("a", "a")]).contains("itself"));
        assert!(refused("static", &[("a", "")]).contains("name of a port"));
        let ambiguous = refused("static", &[("a", "x"), ("b", "x")]);
        assert!(ambiguous.contains("x=a") && ambiguous.contains("x=b"), "{ambiguous}");
    }
}
