//! Commands of `ovs-appctl` (ovs-vswitchd(8)).

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::state::find;
use tokio::sync::Notify;
use unixctl::{Commands, Reply};

use crate::bonds::{self, Bonds};
use crate::datapath;
use crate::dummy::{Level, Types};
use crate::follow::Numbers;
use crate::log::Log;
use crate::mdb;
use crate::monitor::{self, Monitor};
use crate::numbers::LOCAL;
use crate::pulse::Pulse;
use crate::seen::Seen;
use crate::testing;
use crate::trace;

/// What commands work on.
pub(crate) struct Subjects {
    pub(crate) desired: Arc<Desired>,
    pub(crate) numbers: Arc<Mutex<Numbers>>,
    pub(crate) bonds: Arc<Bonds>,
    pub(crate) types: Types,
    pub(crate) exit: Arc<Notify>,
    pub(crate) log: Log,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) pulse: Arc<Pulse>,
}

/// Returns the commands.
pub(crate) fn commands(subjects: Subjects) -> Commands {
    let Subjects { desired, numbers, bonds, types, exit, log, monitor, pulse } = subjects;
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
    let seen = Seen::new(&desired, &numbers);
    seen.add(&mut commands);
    if types.level > Level::Off {
        testing::add(&mut commands, &desired, &bonds, &monitor, &pulse, &seen);
    }
    bonds::add(&mut commands, &bonds);
    let name = if types.level > Level::Off { "dummy@ovs-dummy" } else { "system@ovs-system" };
    datapath::add(&mut commands, &desired, &numbers, name);
    monitor::commands::add(&mut commands, &monitor);
    mdb::add(&mut commands, &desired, &numbers);
    trace::add(&mut commands, &desired, &numbers, name);
    // Nothing is cached in front of the tables.
    commands.add("revalidator/wait", "", 0..=0, |_| Ok(String::new()));
    commands.add("coverage/show", "", 0..=0, |_| {
        Ok("Event coverage is not counted; mswitch's metrics have counters".into())
    });
    let subject = desired.clone();
    commands.add("memory/show", "", 0..=0, move |_| Ok(memory(&subject)));
    let subject = desired.clone();
    commands.add("ofproto/list", "", 0..=0, move |_| Ok(list(&subject)));
    let subject = desired.clone();
    commands.add("fdb/show", "bridge", 1..=1, move |words| {
        let numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        show(&subject, &numbers, words.first().map_or("", String::as_str))
    });
    commands.add("fdb/flush", "[bridge]", 0..=1, move |words| flush(&desired, words.first()));
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

fn show(desired: &Desired, numbers: &Numbers, name: &str) -> Reply {
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| "no such bridge".to_owned())?;
    let mut stations = bridge.logic.views().stations.map(|table| table.entries()).unwrap_or_default();
    stations.sort_by_key(|station| (station.vid, station.mac));
    let mut text = String::from(" port  VLAN  MAC                Age\n");
    for station in stations {
        let port = bridge.ports.iter().find(|(_, port)| port.at.port == station.port);
        let number = port.and_then(|(port, _)| numbers.openflow.get(&(name.into(), port.clone())).copied());
        let port = match number {
            Some(LOCAL) => "LOCAL".into(),
            Some(number) => number.to_string(),
            None => "?".into(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{port:>5}  {:>4}  {}  {:>3}", station.vid, station.mac, station.age_seconds);
    }
    Ok(text)
}

fn flush(desired: &Desired, name: Option<&String>) -> Reply {
    let bridges = desired.state().bridges();
    if let Some(name) = name {
        find(&bridges, name).map_err(|_| "no such bridge".to_owned())?;
    }
    for (_, bridge) in bridges.iter().filter(|(other, _)| name.is_none_or(|name| name == *other)) {
        if let Some(table) = bridge.logic.views().stations {
            table.flush(None, true);
        }
    }
    Ok("table successfully flushed".into())
}
