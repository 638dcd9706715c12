//! Commands of `ovs-appctl` (ovs-vswitchd(8)).

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::state::find;
use tokio::sync::Notify;
use unixctl::{Commands, Reply};

use crate::follow::Numbers;
use crate::log::LogFile;
use crate::numbers::LOCAL;

/// What commands work on.
pub(crate) struct Subjects {
    pub(crate) desired: Arc<Desired>,
    pub(crate) numbers: Arc<Mutex<Numbers>>,
    pub(crate) exit: Arc<Notify>,
    pub(crate) log: Option<LogFile>,
}

/// Returns the commands.
pub(crate) fn commands(subjects: Subjects) -> Commands {
    let Subjects { desired, numbers, exit, log } = subjects;
    let mut commands = Commands::new(crate::VERSION);
    commands.add("exit", "[--cleanup]", 0..=1, move |_| {
        exit.notify_one();
        Ok(String::new())
    });
    commands.add("vlog/reopen", "", 0..=0, move |_| match &log {
        Some(log) => log.reopen().map(|()| String::new()).map_err(|error| error.to_string()),
        None => Err("Logging to file not configured".into()),
    });
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
        let number = port.and_then(|(port, _)| numbers.get(&(name.into(), port.clone())).copied());
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
