//! Ports that reached their share of a MAC table, said in the log.
//!
//! A client decides when that happens, so a port is named once in [`PAUSE`] at most, and again only after it was well below
//! its share. The event `fdb-limit` says it at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::state::{Bridges, every};

/// Time for which a port is not named again.
const PAUSE: Duration = Duration::from_secs(60);

/// A port at its share of a MAC table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AtLimit {
    pub(crate) bridge: String,
    pub(crate) port: String,
    pub(crate) limit: u32,
}

impl AtLimit {
    /// What it means, and what to do about it.
    pub(crate) fn reason(&self) -> String {
        let Self { bridge, port, limit } = self;
        format!(
            "{limit} stations, its share of the MAC table; new ones replace its own. \
             If it floods addresses, limit it with `mswitch port set {bridge} {port} --max-stations N`; if they are \
             real, raise `max-stations` or `port-share` of the bridge's logic"
        )
    }
}

impl fmt::Display for AtLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bridge \"{}\", port \"{}\": {}", self.bridge, self.port, self.reason())
    }
}

/// Lists the ports that are at their share.
pub(crate) fn list(bridges: &Bridges) -> BTreeSet<AtLimit> {
    let full = bridges.iter().filter_map(|(name, bridge)| {
        let table = bridge.logic.views().stations?;
        Some((name.as_str(), (table.port_limit(), table.ports_at_limit())))
    });
    let full: BTreeMap<_, _> = full.filter(|(_, (_, ports))| !ports.is_empty()).collect();
    if full.is_empty() {
        return BTreeSet::new();
    }
    let at_limit = every(bridges).filter_map(|(bridge, port, there)| {
        let (limit, ports) = full.get(bridge)?;
        let is_full = ports.contains(&there.at.port);
        is_full.then(|| AtLimit { bridge: bridge.into(), port: port.into(), limit: *limit })
    });
    at_limit.collect()
}

/// The ports that were named, and when.
#[derive(Default)]
pub(crate) struct Overfull(BTreeMap<AtLimit, Instant>);

impl Overfull {
    /// Returns the ports to name, of those that are at their share.
    pub(crate) fn new_ones(&mut self, there: BTreeSet<AtLimit>, now: Instant) -> Vec<AtLimit> {
        self.0.retain(|port, named| there.contains(port) || now.duration_since(*named) < PAUSE);
        let new: Vec<_> = there.into_iter().filter(|port| !self.0.contains_key(port)).collect();
        self.0.extend(new.iter().map(|port| (port.clone(), now)));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_once_and_again_after_a_pause() {
        let port = |name: &str| AtLimit { bridge: "br0".into(), port: name.into(), limit: 6144 };
        let (mut overfull, start) = (Overfull::default(), Instant::now());
        let mut new = |names: &[&str], seconds| {
            let there = names.iter().map(|name| port(name)).collect();
            let new = overfull.new_ones(there, start + Duration::from_secs(seconds));
            new.into_iter().map(|port| port.port).collect::<Vec<_>>()
        };
        assert_eq!(new(&["a"], 0), ["a"]);
        assert_eq!(new(&["a", "b"], 1), ["b"]);
        assert_eq!(new(&["a", "b"], 100), [""; 0], "it never was below");
        assert_eq!(new(&["b"], 101), [""; 0]);
        assert_eq!(new(&["a", "b"], 102), ["a"]);
        assert_eq!(new(&["b"], 103), [""; 0]);
        assert_eq!(new(&["a", "b"], 104), [""; 0], "named two seconds ago");
        assert!(port("a").to_string().contains("--max-stations"));
    }
}
