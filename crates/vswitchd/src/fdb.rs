//! `fdb/…`: the MAC tables of bridges, and the events in them that `coverage/…` counts (ovs-vswitchd(8)).

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use control::desired::Desired;
use control::state::{Bridge, find, find_port};
use logic::{FdbEntry, FdbStats};
use packet::MacAddr;
use unixctl::{Commands, Reply};

use crate::follow::Numbers;
use crate::numbers::LOCAL;

/// Reads a counter.
type Count = fn(&FdbStats) -> u64;

/// Counters of events in MAC tables, by Open vSwitch's names. The last counts packets of stations with a static entry
/// at another port.
const COUNTERS: [(&str, Count); 5] = [
    ("mac_learning_evicted", |stats| stats.evicted),
    ("mac_learning_expired", |stats| stats.expired),
    ("mac_learning_learned", |stats| stats.learned),
    ("mac_learning_moved", |stats| stats.moved),
    ("mac_learning_static_none_move", |stats| stats.conflicts),
];

/// Adds the commands.
pub(crate) fn add(commands: &mut Commands, desired: &Arc<Desired>, numbers: &Arc<Mutex<Numbers>>) {
    let read = {
        let numbers = numbers.clone();
        move || numbers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    };
    let (subject, its) = (desired.clone(), read.clone());
    commands.add("fdb/show", "bridge", 1..=1, move |words| show(&subject, &its(), word(words, 0)));
    let subject = desired.clone();
    commands.add("fdb/flush", "[bridge]", 0..=1, move |words| flush(&subject, words.first()));
    let subject = desired.clone();
    commands.add("fdb/add", "bridge port vlan mac", 4..=4, move |words| add_static(&subject, &read(), words));
    let subject = desired.clone();
    commands.add("fdb/del", "bridge vlan mac", 3..=3, move |words| delete_static(&subject, words));
    let subject = desired.clone();
    commands.add("fdb/stats-show", "bridge", 1..=1, move |words| statistics(&subject, word(words, 0)));
    let subject = desired.clone();
    commands.add("coverage/show", "", 0..=0, move |_| Ok(coverage(&subject)));
    let subject = desired.clone();
    commands.add("coverage/read-counter", "counter", 1..=1, move |words| {
        let known = COUNTERS.iter().find(|(name, _)| *name == word(words, 0));
        let (_, count) = known.ok_or("No such counter")?;
        Ok(format!("{}\n", total(&subject, *count)))
    });
}

fn word(words: &[String], at: usize) -> &str {
    words.get(at).map_or("", String::as_str)
}

const NO_BRIDGE: &str = "no such bridge";

/// The stations of a bridge, those used last at the end.
fn show(desired: &Desired, numbers: &Numbers, name: &str) -> Reply {
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| NO_BRIDGE)?;
    let mut stations = bridge.logic.views().stations.map(|table| table.entries()).unwrap_or_default();
    stations.sort_by_key(|station| (station.rank, station.vid, station.mac));
    let mut text = String::from(" port  VLAN  MAC                Age\n");
    for station in stations {
        let port = number(bridge, numbers, name, &station);
        let age = match station.is_static {
            true => "static".to_owned(),
            false => format!("{:>3}", station.age_seconds),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{port:>5}  {:>4}  {}  {age}", station.vid, station.mac);
    }
    Ok(text)
}

/// The OpenFlow number of a station's port.
fn number(bridge: &Bridge, numbers: &Numbers, name: &str, station: &FdbEntry) -> String {
    let port = bridge.ports.iter().find(|(_, port)| port.at.port == station.port);
    let number = port.and_then(|(port, _)| numbers.openflow.get(&(name.into(), port.clone())).copied());
    match number {
        Some(LOCAL) => "LOCAL".into(),
        Some(number) => number.to_string(),
        None => "?".into(),
    }
}

fn flush(desired: &Desired, name: Option<&String>) -> Reply {
    let bridges = desired.state().bridges();
    if let Some(name) = name {
        find(&bridges, name).map_err(|_| NO_BRIDGE)?;
    }
    for (_, bridge) in bridges.iter().filter(|(other, _)| name.is_none_or(|name| name == *other)) {
        if let Some(table) = bridge.logic.views().stations {
            table.flush(None, true);
        }
    }
    Ok("table successfully flushed".into())
}

/// Reads a VLAN and an address.
fn station(vlan: &str, mac: &str) -> Result<(u16, MacAddr), String> {
    let vlan = vlan.parse().map_err(|_| format!("{vlan}: not a VLAN (0 to 4094)"))?;
    Ok((vlan, mac.parse().map_err(|_| "bad MAC address")?))
}

/// Adds a static station; an entry that it replaces is told of.
fn add_static(desired: &Desired, numbers: &Numbers, words: &[String]) -> Reply {
    let [name, port, vlan, mac] = words else { return Err("expected bridge, port, VLAN and address".into()) };
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| NO_BRIDGE)?;
    let (vlan, mac) = station(vlan, mac)?;
    let port = find_port(&bridges, name, port).map_err(|_| format!("{name} has no port {port}"))?;
    let table = bridge.logic.views().stations.ok_or("the bridge has no MAC table")?;
    let before = table.entry(vlan, mac).filter(|entry| entry.port != port.at.port || !entry.is_static);
    table.add_static(vlan, mac, port.at.port).map_err(|error| error.to_string())?;
    Ok(before.map_or_else(String::new, |before| {
        let kind = if before.is_static { "static" } else { "dynamic" };
        let at = number(bridge, numbers, name, &before);
        format!("Overriding already existing {kind} entry on {at}\n")
    }))
}

fn delete_static(desired: &Desired, words: &[String]) -> Reply {
    let [name, vlan, mac] = words else { return Err("expected bridge, VLAN and address".into()) };
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| NO_BRIDGE)?;
    let (vlan, mac) = station(vlan, mac)?;
    let table = bridge.logic.views().stations.ok_or("the bridge has no MAC table")?;
    if !table.entry(vlan, mac).is_some_and(|entry| entry.is_static) || !table.remove(vlan, mac) {
        return Err("could not find static mac entry".into());
    }
    Ok(String::new())
}

fn statistics(desired: &Desired, name: &str) -> Reply {
    let bridges = desired.state().bridges();
    let bridge = find(&bridges, name).map_err(|_| NO_BRIDGE)?;
    let table = bridge.logic.views().stations.ok_or("the bridge has no MAC table")?;
    let statics = table.entries().iter().filter(|entry| entry.is_static).count();
    let FdbStats { learned, expired, evicted, moved, .. } = table.stats();
    Ok(format!(
        "Statistics for bridge \"{name}\":\n  Current/maximum MAC entries in the table: {}/{}\n  \
         Current static MAC entries in the table : {statics}\n  \
         Total number of learned MAC entries     : {learned}\n  \
         Total number of expired MAC entries     : {expired}\n  \
         Total number of evicted MAC entries     : {evicted}\n  \
         Total number of port moved MAC entries  : {moved}\n",
        table.len(),
        table.capacity(),
    ))
}

/// Stations that were learned at ports that a configuration no longer has.
pub(crate) struct Departed(Vec<(String, u16, MacAddr)>);

impl Departed {
    /// Lists them before the configuration takes effect; `stays`: whether a bridge keeps a port.
    pub(crate) fn list(desired: &Desired, stays: impl Fn(&str, &str) -> bool) -> Self {
        let mut stations = Vec::new();
        let bridges = desired.state().bridges();
        for (name, bridge) in bridges.iter() {
            let left = bridge.ports.iter().filter(|(port, _)| !stays(name, port));
            let left: BTreeSet<_> = left.map(|(_, port)| port.at.port).collect();
            let Some(table) = bridge.logic.views().stations.filter(|_| !left.is_empty()) else { continue };
            let learned = table.entries().into_iter().filter(|it| !it.is_static && left.contains(&it.port));
            stations.extend(learned.map(|station| (name.clone(), station.vid, station.mac)));
        }
        Self(stations)
    }

    /// Has other bridges forget them, too: they may have learned them at ports that lead to the bridge, and the
    /// stations may come back elsewhere, as migrated guests do.
    pub(crate) fn forget(self, desired: &Desired) {
        let bridges = desired.state().bridges();
        for (from, vid, mac) in self.0 {
            for (_, bridge) in bridges.iter().filter(|(name, _)| **name != from) {
                let table = bridge.logic.views().stations;
                if let Some(table) = table.filter(|it| it.entry(vid, mac).is_some_and(|it| !it.is_static)) {
                    table.remove(vid, mac);
                }
            }
        }
    }
}

/// A counter's sum over the bridges that there are.
fn total(desired: &Desired, count: Count) -> u64 {
    let bridges = desired.state().bridges();
    bridges.values().filter_map(|it| it.logic.views().stations).map(|table| count(&table.stats())).sum()
}

/// The counters that are not 0.
fn coverage(desired: &Desired) -> String {
    let mut text = String::from("Events since the bridges were added:\n");
    for (name, count) in COUNTERS {
        let total = total(desired, count);
        if total > 0 {
            let _ = writeln!(text, "{name:<30} total: {total}");
        }
    }
    text
}
