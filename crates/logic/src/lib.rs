//! Forwarding decisions: the logics that ship with the switch, and their selection by name.
//!
//! A logic implements [`fabric::SwitchLogic`] for the data plane and [`Logic`] for the control plane. A new one is one
//! file and one line in [`LIST`].
//!
//! Invariants of the crate: the data plane neither blocks nor allocates nor panics here, whatever a packet contains; a
//! logic knows ports by index and settings only, never their type.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

mod chain;
mod description;
mod discovery;
mod dummy;
mod error;
pub mod excerpt;
pub mod fdb;
mod flow;
pub mod fragments;
mod handover;
mod hub;
mod learning;
mod middlebox;
pub mod params;
mod security;
mod snooping;
mod source_guard;
mod static_pairs;
pub mod three_tuple;
mod views;
pub mod vlan;

pub use chain::{Chain, MAX_STAGES};
pub use description::{
    CounterDescription, LogicDescription, ParamDefault, ParamDescription, ParamKind, TableDescription,
};
pub use dummy::Dummy;
pub use error::LogicError;
pub use fdb::Key;
pub use fdb::{Admission, Fdb, FdbChange, FdbEntry, FdbError, FdbEvent, FdbStats, Fixed, Foresight};
pub use handover::{State, Station, layout_difference, replace};
pub use hub::Hub;
pub use learning::{Learning, SnoopingSettings};
pub use middlebox::Middlebox;
pub use params::{ParamValue, Values};
pub use security::{admits_packet as admits, unknown_destination};
pub use snooping::{Destinations, GroupEntry};
pub use static_pairs::StaticPairs;
pub use three_tuple::ThreeTuple;
pub use views::{GroupTable, MacTable, Views};

/// All logics that ship with the switch.
pub const LIST: &[LogicInfo] = &[
    learning::INFO,
    static_pairs::INFO,
    hub::INFO,
    chain::INFO,
    middlebox::INFO,
    three_tuple::INFO,
    dummy::INFO,
];

/// Control side of a logic.
pub trait Logic: fabric::SwitchLogic {
    /// Returns the name that selects it, as in [`LIST`].
    fn name(&self) -> &str;

    /// Returns its short name for explanations: of a module, the name in its description.
    fn label(&self) -> &str {
        self.name()
    }

    /// Returns the stages of a chain with their numbers; other logics have none.
    fn stages(&self) -> Vec<(usize, &dyn Logic)> {
        Vec::new()
    }

    /// Returns the parameters in effect, defaults included.
    fn params(&self) -> Vec<(String, String)>;

    /// Returns the views that it offers to the control plane.
    fn views(&self) -> Views<'_> {
        Views::default()
    }

    /// Returns the ports that its parameters name. A name has no effect while no port has it.
    fn named_ports(&self) -> Vec<String> {
        Vec::new()
    }

    /// The module of this logic that a thread is calling at the moment; the thread's number is that of
    /// [`fabric::worker::Overrun`].
    fn called_on(&self, _thread: usize) -> Option<String> {
        None
    }

    /// Returns the modules of this logic that have failed since it was made.
    fn faults(&self) -> Vec<Faults> {
        Vec::new()
    }

    /// Returns whether the files that it was made from have changed since, or it is better replaced for another reason.
    fn is_outdated(&self) -> bool {
        false
    }

    /// Returns its counters, in addition to those that the fabric keeps for every bridge.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Returns its tables as text.
    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    /// Returns the sizes of its tables. For logics with long tables that know the sizes without reading them.
    fn table_sizes(&self) -> Vec<TableSize> {
        let size = |table: Table| TableSize {
            name: table.name,
            entries: table.rows.len() as u64,
            capacity: table.capacity,
        };
        self.tables().into_iter().map(size).collect()
    }

    /// Returns its commands.
    fn commands(&self) -> Vec<CommandInfo> {
        Vec::new()
    }

    /// Runs a command: its name and its arguments. Returns the output.
    fn call(&self, command: &[String]) -> Result<String, LogicError> {
        Err(LogicError::unknown_command(self.name(), command, &self.commands()))
    }

    /// Returns the state that a successor may need. Called while the logic is in use, and once more after its last
    /// batch.
    fn hand_over(&self) -> Vec<State> {
        Vec::new()
    }

    /// Takes over the predecessor's state, as far as it understands it. Called before its first batch, and once more
    /// when it is in use already: then anything that it has learned itself is newer.
    fn take_over(&self, _states: &[State]) {}

    /// Returns a note about each table that starts empty because the predecessor's table has another layout or name.
    fn not_taken_over(&self, _states: &[State]) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether it has a table of this name that takes over a predecessor's entries.
    fn has_table(&self, _name: &str) -> bool {
        false
    }

    /// Returns a note about each table of the predecessor whose entries are lost because no table has its name.
    fn left_behind(&self, states: &[State]) -> Vec<String> {
        handover::left_behind(states, |name| self.has_table(name))
    }

    /// Receives the name of its bridge, before its first batch.
    fn set_bridge(&self, _bridge: &str) {}

    /// Advances its time: the control plane calls it every few seconds with the seconds of [`fabric::clock`].
    fn tick(&self, _now_seconds: u32) {}
}

/// Faults of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The module; in a chain, with the number of its stage.
    pub module: String,
    /// Number of faults.
    pub count: u64,
    /// Message of the latest one.
    pub reason: String,
    /// Time of the latest one.
    pub last: Instant,
    /// Whether a worker waits for the restart of its instance and drops the module's packets meanwhile.
    pub restarting: bool,
}

/// A counter of a logic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// Name: lower-case letters, digits and underscores.
    pub name: String,
    /// Description, in one line.
    pub help: String,
    /// Count.
    pub value: u64,
}

/// A table of a logic, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Name.
    pub name: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows: one text for each column.
    pub rows: Vec<Vec<String>>,
    /// Largest number of rows; 0 if unknown.
    pub capacity: u64,
}

/// Size of a logic's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSize {
    /// Name.
    pub name: String,
    /// Number of rows.
    pub entries: u64,
    /// Largest number of rows; 0 if unknown.
    pub capacity: u64,
}

/// A command of a logic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandInfo {
    /// Name.
    pub name: String,
    /// Arguments as in usage texts, such as `PORT [SECONDS]`.
    pub usage: String,
    /// Description, in one line.
    pub help: String,
}

/// A kind of logics of another crate: those in files, each named `PREFIX:FILE`, or a single one.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The prefix, such as `wasm`; of a single logic, its name.
    pub prefix: &'static str,
    /// Suffix of the file names, such as `.wasm`, for hints to users who forget the prefix; `None`: a single logic, not
    /// in a file.
    pub ending: Option<&'static str>,
    /// Description, in one line.
    pub summary: &'static str,
    /// Describes the logic in a file, or the single one.
    pub describe: fn(&str) -> Result<LogicDescription, LogicError>,
    /// Makes the logic in a file, or the single one.
    pub build: BuildFile,
}

impl Kind {
    /// Returns whether its logics are in files.
    pub fn is_file(&self) -> bool {
        self.ending.is_some()
    }

    /// Returns how its logics are named: `PREFIX:FILE`, or the name.
    pub fn label(&self) -> String {
        if self.is_file() { format!("{}:FILE", self.prefix) } else { self.prefix.into() }
    }
}

/// Function that makes the logic in a file.
pub type BuildFile = fn(&str, &[(String, String)]) -> Result<Arc<dyn Logic>, LogicError>;

type Build = fn(&[(String, String)], &'static [Kind]) -> Result<Arc<dyn Logic>, LogicError>;

/// A logic that ships with the switch.
#[derive(Debug, Clone, Copy)]
pub struct LogicInfo {
    /// Name that selects the logic.
    pub name: &'static str,
    /// Description, in one line.
    pub summary: &'static str,
    params: fn() -> Vec<ParamDescription>,
    build: Build,
}

impl LogicInfo {
    /// Returns its description.
    pub fn describe(&self) -> LogicDescription {
        let (name, summary) = (self.name.into(), self.summary.into());
        LogicDescription { name, summary, params: (self.params)(), ..LogicDescription::default() }
    }
}

/// Returns the kind and the file of a logic of another crate, if the name is of one of `kinds`.
fn outside<'a>(name: &'a str, kinds: &'static [Kind]) -> Option<(&'static Kind, &'a str)> {
    if let Some(single) = kinds.iter().find(|kind| !kind.is_file() && kind.prefix == name) {
        return Some((single, name));
    }
    let (prefix, file) = name.split_once(':')?;
    Some((kinds.iter().find(|kind| kind.is_file() && kind.prefix == prefix)?, file))
}

fn find(name: &str, kinds: &'static [Kind]) -> Result<&'static LogicInfo, LogicError> {
    LIST.iter().find(|info| info.name == name).ok_or_else(|| LogicError::unknown_logic(name, kinds))
}

/// Describes the logic `name`, which is in [`LIST`] or of one of `kinds`.
pub fn describe(name: &str, kinds: &'static [Kind]) -> Result<LogicDescription, LogicError> {
    match outside(name, kinds) {
        Some((kind, file)) => (kind.describe)(file),
        None => Ok(find(name, kinds)?.describe()),
    }
}

/// Makes the logic `name`, which is in [`LIST`] or of one of `kinds`.
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
            let least: &[_] = match info.name {
                "chain" => &[("1", "hub")],
                "three-tuple" => &[("host", "host"), ("uplink", "eth0")],
                _ => &[],
            };
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
        ending: Some(".mod"),
        summary: "a test's",
        describe: |file| describe(file, &[]),
        build: |file, params| build(file, params, &[]),
    }];

    #[test]
    fn the_prefix_selects_a_kind_from_outside() {
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
    fn errors_name_the_accepted_values() {
        assert_eq!(
            refused("lerning", &[]),
            "there is no logic `lerning`, did you mean `learning`? The logics are: learning, static, hub, chain, \
             middlebox, three-tuple, dummy, module:FILE"
        );
        for (typed, meant) in [
            ("chain wasm:fw.wasm", "chain --param 1=wasm:fw.wasm"),
            ("chain learning ageing=60", "chain --param 1='learning ageing=60'"),
            ("learning ageing=60 snooping=on", "learning --param ageing=60 --param snooping=on"),
        ] {
            let message = refused(typed, &[]);
            assert!(message.contains(&format!("`{typed}`, did you mean `{meant}`? ")), "{message}");
        }
        let hub = build("hub", &[], &[]).unwrap();
        assert_eq!(hub.call(&["show".into()]).unwrap_err().to_string(), "logic `hub` has no commands");
        assert_eq!(
            refused("zzz", &[]),
            "there is no logic `zzz`; the logics are: learning, static, hub, chain, middlebox, three-tuple, dummy, \
             module:FILE"
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
