//! Commands of `ovs-appctl` for groups: `mdb/show` and `mdb/flush`.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::state::find;
use unixctl::{Commands, Reply};

use crate::follow::Numbers;
use crate::numbers::LOCAL;

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>) {
    let (subject, numbers) = (desired.clone(), numbers.clone());
    commands.add("mdb/show", "bridge", 1..=1, move |words| {
        let numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        show(&subject, &numbers, words.first().map_or("", String::as_str))
    });
    let subject = desired.clone();
    commands.add("mdb/flush", "[bridge]", 0..=1, move |words| flush(&subject, words.first()));
}

fn show(desired: &Desired, numbers: &Numbers, name: &str) -> Reply {
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| "no such bridge".to_owned())?;
    let Some(table) = bridge.logic.views().groups else {
        return Err("multicast snooping is disabled".into());
    };
    let port = |index| {
        let port = bridge.ports.iter().find(|(_, port)| port.at.port == index);
        match port.and_then(|(port, _)| numbers.openflow.get(&(name.into(), port.clone())).copied()) {
            Some(LOCAL) => "LOCAL".to_owned(),
            Some(number) => number.to_string(),
            None => "?".into(),
        }
    };
    let timeout = table.timeout();
    let mut entries = table.entries();
    // Members before routers.
    entries.sort_by_key(|entry| (entry.group.is_none(), entry.vid, entry.group, entry.port));
    let mut text = String::from(" port  VLAN  GROUP                Age\n");
    for entry in entries {
        let (port, age) = (port(entry.port), timeout.saturating_sub(entry.expires_seconds));
        // Writing to a string does not fail.
        let _ = match (entry.address, entry.group) {
            (Some(group), _) => writeln!(text, "{port:>5}  {:>4}  {group}         {age:>3}", entry.vid),
            (None, Some(group)) => writeln!(text, "{port:>5}  {:>4}  {group}         {age:>3}", entry.vid),
            (None, None) => writeln!(text, "{port:>5}  {:>4}  querier             {age:>3}", entry.vid),
        };
    }
    Ok(text)
}

fn flush(desired: &Desired, name: Option<&String>) -> Reply {
    let bridges = desired.state().bridges();
    if let Some(name) = name {
        let bridge = find(&bridges, name).map_err(|_| "no such bridge".to_owned())?;
        let Some(table) = bridge.logic.views().groups else {
            return Err("multicast snooping is disabled".into());
        };
        table.flush();
    } else {
        bridges.values().filter_map(|bridge| bridge.logic.views().groups).for_each(|table| table.flush());
    }
    Ok("table successfully flushed".into())
}
