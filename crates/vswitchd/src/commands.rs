//! Commands of `ovs-appctl` (ovs-vswitchd(8)).

use std::sync::{Arc, Mutex};

use control::desired::Desired;
use tokio::sync::Notify;
use unixctl::Commands;

use crate::accounting;
use crate::bonds::{self, Bonds};
use crate::datapath;
use crate::dummy::{Level, Types};
use crate::fdb;
use crate::follow::Numbers;
use crate::log::Log;
use crate::mdb;
use crate::monitor::{self, Monitor};
use crate::pulse::Pulse;
use crate::qos;
use crate::seen::Seen;
use crate::testing;
use crate::trace;
use crate::trees::{self, Trees};

/// What commands work on.
pub(crate) struct Subjects {
    pub(crate) desired: Arc<Desired>,
    pub(crate) numbers: Arc<Mutex<Numbers>>,
    pub(crate) bonds: Arc<Bonds>,
    pub(crate) trees: Arc<Trees>,
    pub(crate) types: Types,
    pub(crate) exit: Arc<Notify>,
    pub(crate) log: Log,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) seen: Seen,
    pub(crate) qos: qos::Shown,
    /// The datapath's name.
    pub(crate) datapath: &'static str,
}

/// Returns the commands.
pub(crate) fn commands(subjects: Subjects) -> Commands {
    let Subjects {
        desired,
        numbers,
        bonds,
        trees,
        types,
        exit,
        log,
        monitor,
        pulse,
        seen,
        qos: shown,
        datapath: name,
    } = subjects;
    let mut commands = Commands::new(crate::VERSION);
    commands.add("exit", "[--cleanup]", 0..=1, move |_| {
        exit.notify_one();
        Ok(String::new())
    });
    let subject = log.clone();
    commands.add("vlog/reopen", "", 0..=0, move |_| match &subject.file {
        Some(file) => file.reopen().map(|()| String::new()).map_err(|error| error.to_string()),
        None => Err("Logging to file not configured".into()),
    });
    let subject = log.clone();
    commands.add("vlog/close", "", 0..=0, move |_| match &subject.file {
        Some(file) => file.close().map(|()| String::new()).map_err(|error| error.to_string()),
        None => Ok(String::new()),
    });
    let subject = log.clone();
    commands.add("vlog/list", "", 0..=0, move |_| Ok(subject.list()));
    commands.add("vlog/set", "{spec | PATTERN:destination:pattern}", 1..=usize::MAX, move |words| {
        words.iter().try_for_each(|spec| log.set(spec)).map(|()| String::new())
    });
    seen.add(&mut commands);
    if types.level > Level::Off {
        testing::add(&mut commands, &desired, (&bonds, &trees, &monitor), &pulse, &seen);
        datapath::add_for_tests(&mut commands, &desired, &numbers, name);
    }
    accounting::add(&mut commands, &desired);
    bonds::add(&mut commands, &bonds);
    trees::add(&mut commands, &trees);
    datapath::add(&mut commands, &desired, &numbers, name);
    monitor::commands::add(&mut commands, &monitor);
    fdb::add(&mut commands, &desired, &numbers);
    mdb::add(&mut commands, &desired, &numbers);
    qos::add(&mut commands, &desired, &shown);
    trace::add(&mut commands, &desired, &numbers, name);
    // Nothing is cached in front of the tables.
    commands.add("revalidator/wait", "", 0..=0, |_| Ok(String::new()));
    let subject = desired.clone();
    commands.add("memory/show", "", 0..=0, move |_| Ok(memory(&subject)));
    commands.add("ofproto/list", "", 0..=0, move |_| Ok(list(&desired)));
    commands
}

/// What takes memory, in the order of its names.
fn memory(desired: &Desired) -> String {
    let bridges = desired.state().bridges();
    let ports: usize = bridges.values().map(|bridge| bridge.ports.len()).sum();
    format!("bridges:{} ports:{ports}", bridges.len())
}

fn list(desired: &Desired) -> String {
    let bridges = desired.state().bridges();
    bridges.keys().fold(String::new(), |all, name| all + name + "\n")
}
