//! Scenarios: which ports a switch has, what it connects, and where packets enter and leave. One file per kind, named
//! as in the comparison of seven software switches whose scenarios they are.
//!
//! Scenarios know no switch, and switches no scenario: a [`Topology`] is all that passes between them.

mod loopback;
mod p2p;
mod p2v;
mod pairs;
mod stations;
mod v2v;

/// Kinds of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The switch is the memif server.
    Memif,
    /// The switch is the vhost-user back-end and listens.
    VhostUser,
    /// The switch has one end of a veth pair, through AF_XDP.
    Veth,
}

impl Attachment {
    /// Part of a scenario's name.
    fn name(self) -> &'static str {
        match self {
            Attachment::Memif => "memif",
            Attachment::VhostUser => "vhost-user",
            Attachment::Veth => "veth",
        }
    }
}

/// What a switch is to connect. Ports are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Kind of each port.
    pub ports: Vec<Attachment>,
    /// Pairs of ports that exchange packets.
    pub wires: Vec<(usize, usize)>,
    /// Pairs of ports at which the generator sends and receives.
    pub ends: Vec<(usize, usize)>,
    /// Ports of each function, which forwards from one to the other.
    pub functions: Vec<(usize, usize)>,
    /// Stations at each end, whose packets come in random order.
    pub stations: u32,
}

impl Topology {
    /// Two ports and a wire between them.
    fn pair(first: Attachment, second: Attachment) -> Topology {
        Topology {
            ports: vec![first, second],
            wires: vec![(0, 1)],
            ends: vec![(0, 1)],
            functions: Vec::new(),
            stations: 1,
        }
    }

    /// So many pairs of ports, with a wire between the ports of each.
    fn pairs(kind: Attachment, count: usize) -> Topology {
        let pairs: Vec<(usize, usize)> = (0..count).map(|pair| (2 * pair, 2 * pair + 1)).collect();
        Topology {
            ports: vec![kind; 2 * count],
            wires: pairs.clone(),
            ends: pairs,
            functions: Vec::new(),
            stations: 1,
        }
    }

    /// Whether some port is of this kind.
    pub fn has(&self, kind: Attachment) -> bool {
        self.ports.contains(&kind)
    }

    /// Queues of each port: two where all are memif ports, whose clients must have as many as those of Open vSwitch.
    /// DPDK's AF_XDP driver has only one on veth.
    pub fn queues(&self) -> usize {
        if self.ports.iter().all(|kind| *kind == Attachment::Memif) { 2 } else { 1 }
    }

    /// Number of times that the switch forwards a packet on its way.
    pub fn hops(&self) -> usize {
        self.wires.len()
    }
}

/// A scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Its name: the kind, with length and kind of port where there are several.
    pub name: String,
    /// The kind: `p2p`, `p2v`, `v2v`, `stations`, `pairs` or `loopback`.
    pub kind: &'static str,
    /// One line for people.
    pub about: String,
    /// Its ports.
    pub topology: Topology,
    /// Whether it belongs to the quick set, to the core set, or only to the full one.
    pub set: Set,
}

/// Sets of scenarios: each contains those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// Under 10 minutes.
    Quick,
    /// Under an hour.
    Core,
    /// Everything.
    Full,
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let kinds = [
        p2p::scenarios(),
        p2v::scenarios(),
        v2v::scenarios(),
        stations::scenarios(),
        pairs::scenarios(),
        loopback::scenarios(),
    ];
    kinds.into_iter().flatten().collect()
}

/// Scenarios whose name or kind this is: `v2v-memif`, `v2v`, `loopback-3`.
pub fn named(name: &str) -> Vec<Scenario> {
    let prefix = format!("{name}-");
    all().into_iter().filter(|scenario| scenario.name == name || scenario.name.starts_with(&prefix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_is_used_once() {
        for scenario in all() {
            let topology = &scenario.topology;
            let mut wired: Vec<usize> = topology.wires.iter().flat_map(|(a, b)| [*a, *b]).collect();
            wired.sort_unstable();
            assert_eq!(wired, (0..topology.ports.len()).collect::<Vec<_>>(), "{}", scenario.name);
            let mut used: Vec<usize> = topology.functions.iter().flat_map(|(a, b)| [*a, *b]).collect();
            used.extend(topology.ends.iter().flat_map(|(a, b)| [*a, *b]));
            used.sort_unstable();
            assert_eq!(used, wired, "{}", scenario.name);
        }
    }

    #[test]
    fn names_select_one_or_a_kind() {
        let names = |name| named(name).into_iter().map(|scenario| scenario.name).collect::<Vec<_>>();
        assert_eq!(names("v2v"), ["v2v-memif", "v2v-vhost-user"]);
        assert_eq!(names("p2p"), ["p2p"]);
        assert_eq!(names("loopback-5"), ["loopback-5-memif", "loopback-5-vhost-user"]);
        assert_eq!(names("loopback").len(), 10);
        assert_eq!(names("stations"), ["stations-memif", "stations-vhost-user"]);
        assert!(names("v").is_empty());
    }
}
