//! Log warnings for ports that reach their share of a MAC table.
//!
//! Clients determine when that happens, so warnings are rate limited: at most one per port in [`PAUSE`], and the next
//! one only after the port was well below its share. The event `fdb-limit` is sent immediately.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::state::{Bridges, every};

/// Minimum time between two warnings for a port.
const PAUSE: Duration = Duration::from_secs(60);

/// A port at its share of a MAC table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AtLimit {
    pub(crate) bridge: String,
    pub(crate) port: String,
    pub(crate) limit: u32,
}

impl AtLimit {
    /// Returns the meaning and the remedy.
    pub(crate) fn reason(&self) -> String {
        let Self { bridge, port, limit } = self;
        format!(
            "{limit} stations reached, its share of the MAC table; new stations evict its own. If a client floods addresses, \
             limit the port with `mswitch port set {bridge} {port} --max-stations N`; if the stations are real, raise \
             `max-stations` or `port-share` of the bridge's logic"
        )
    }
}

impl fmt::Display for AtLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bridge \"{}\", port \"{}\": {}", self.bridge, self.port, self.reason())
    }
}

/// Lists the ports that have reached their share.
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

/// The ports with a warning, and its time.
#[derive(Default)]
pub(crate) struct ShareWarnings(BTreeMap<AtLimit, Instant>);

impl ShareWarnings {
    /// Returns those ports of `at_limit` for which a warning is due.
    pub(crate) fn due(&mut self, at_limit: BTreeSet<AtLimit>, now: Instant) -> Vec<AtLimit> {
        self.0.retain(|port, warned| at_limit.contains(port) || now.duration_since(*warned) < PAUSE);
        let new: Vec<_> = at_limit.into_iter().filter(|port| !self.0.contains_key(port)).collect();
        self.0.extend(new.iter().map(|port| (port.clone(), now)));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_repeated_only_after_a_pause_below_the_limit() {
        let port = |name: &str| AtLimit { bridge: "br0".into(), port: name.into(), limit: 6144 };
        let (mut warnings, start) = (ShareWarnings::default(), Instant::now());
        let mut new = |names: &[&str], seconds| {
            let at_limit = names.iter().map(|name| port(name)).collect();
            let new = warnings.due(at_limit, start + Duration::from_secs(seconds));
            new.into_iter().map(|port| port.port).collect::<Vec<_>>()
        };
        assert_eq!(new(&["a"], 0), ["a"]);
        assert_eq!(new(&["a", "b"], 1), ["b"]);
        assert_eq!(new(&["a", "b"], 100), [""; 0], "it was never below");
        assert_eq!(new(&["b"], 101), [""; 0]);
        assert_eq!(new(&["a", "b"], 102), ["a"]);
        assert_eq!(new(&["b"], 103), [""; 0]);
        assert_eq!(new(&["a", "b"], 104), [""; 0], "warned two seconds ago");
        assert!(port("a").to_string().contains("--max-stations"));
    }
}
