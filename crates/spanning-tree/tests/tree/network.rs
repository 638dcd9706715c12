//! A simulator of bridges and LANs. Frames take no time; what they cause is done in the same step of the clock.

use std::collections::{BTreeMap, BTreeSet};

use packet::MacAddr;
use spanning_tree::{Bridge, Flush, Millis, PortState, Protocol, rstp, stp};

/// Step of the clock, milliseconds.
const STEP: Millis = 250;
/// Rounds of frames and answers within one step at most: a network that never comes to rest has failed.
const ROUNDS: usize = 200;

/// A LAN by a name; `None`: the port has a link, and nothing is at its other end.
pub(crate) type Lan = Option<char>;

/// A network.
pub(crate) struct Network {
    protocol: Protocol,
    pub(crate) bridges: Vec<Bridge>,
    /// LANs of the ports of each bridge, from port 1; a port without an entry is down.
    ports: Vec<BTreeMap<u8, Lan>>,
    /// Ports that were switched off by hand.
    down: BTreeSet<(usize, u8)>,
    costs: BTreeMap<(usize, u8), u32>,
    priorities: BTreeMap<(usize, u8), u8>,
    pub(crate) now: Millis,
    /// Stations that bridges had to forget so far.
    pub(crate) flushes: Vec<Flush>,
    pub(crate) frames: usize,
}

pub(crate) fn address(bridge: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, (bridge >> 8) as u8, bridge as u8])
}

impl Network {
    /// A network; LANs of a bridge's ports are the letters of a word: `0` stands for a LAN of its own, `X` for a port
    /// that is down.
    pub(crate) fn new(protocol: Protocol, bridges: &[&str]) -> Self {
        let mut network = Self {
            protocol,
            bridges: Vec::new(),
            ports: Vec::new(),
            down: BTreeSet::new(),
            costs: BTreeMap::new(),
            priorities: BTreeMap::new(),
            now: 1_000_000,
            flushes: Vec::new(),
            frames: 0,
        };
        for (number, lans) in bridges.iter().enumerate() {
            network.bridges.push(match protocol {
                Protocol::Stp => Bridge::Stp(stp::Bridge::new(network.stp(number, 0x8000), network.now)),
                Protocol::Rstp => Bridge::Rstp(rstp::Bridge::new(network.rstp(number, 0x8000), network.now)),
            });
            network.ports.push(BTreeMap::new());
            network.connect(number, lans);
        }
        network
    }

    fn stp(&self, bridge: usize, priority: u16) -> stp::Settings {
        let address = address(bridge);
        stp::Settings { priority, address, hello_time: 2, max_age: 20, forward_delay: 15 }
    }

    fn rstp(&self, bridge: usize, priority: u16) -> rstp::Settings {
        rstp::Settings { priority, ..rstp::Settings::read("", &BTreeMap::new(), address(bridge)).0 }
    }

    /// Connects the ports of a bridge to other LANs.
    pub(crate) fn connect(&mut self, bridge: usize, lans: &str) {
        let lan = |letter: char| (letter != '0').then_some(letter);
        let ports = (1..).zip(lans.chars()).filter(|(_, letter)| *letter != 'X');
        self.ports[bridge] = ports.map(|(number, letter)| (number, lan(letter))).collect();
        self.configure(bridge, 0x8000);
    }

    pub(crate) fn set_cost(&mut self, bridge: usize, port: u8, cost: u32) {
        self.costs.insert((bridge, port), cost);
        self.configure(bridge, 0x8000);
    }

    pub(crate) fn set_port_priority(&mut self, bridge: usize, port: u8, priority: u8) {
        self.priorities.insert((bridge, port), priority);
        self.configure(bridge, 0x8000);
    }

    /// Switches a port off or on.
    pub(crate) fn set_up(&mut self, bridge: usize, port: u8, is_up: bool) {
        match is_up {
            true => self.down.remove(&(bridge, port)),
            false => self.down.insert((bridge, port)),
        };
    }

    /// Configures a bridge anew, with a priority.
    pub(crate) fn configure(&mut self, bridge: usize, priority: u16) {
        let (stp, rstp) = (self.stp(bridge, priority), self.rstp(bridge, priority));
        let no_keys = BTreeMap::new();
        let most = self.ports[bridge].keys().max().copied().unwrap_or(0);
        let cost = |port: u8, default: u32| self.costs.get(&(bridge, port)).copied().unwrap_or(default);
        let priority = |port: u8| self.priorities.get(&(bridge, port)).copied().unwrap_or(128);
        match &mut self.bridges[bridge] {
            Bridge::Stp(it) => {
                let settings = |port| stp::PortSettings {
                    cost: cost(port, 10),
                    priority: priority(port),
                    ..stp::PortSettings::read(&format!("p{port}"), &no_keys, 0).0
                };
                it.configure(stp, (1..=most).map(|port| (port, settings(port))).collect(), self.now);
            }
            Bridge::Rstp(it) => {
                let settings = |port| rstp::PortSettings {
                    cost: cost(port, 200_000),
                    priority: priority(port),
                    // Some LANs have several bridges.
                    is_point_to_point: false,
                    ..rstp::PortSettings::read(&format!("p{port}"), &no_keys, 0).0
                };
                it.configure(rstp, (1..=most).map(|port| (port, settings(port))).collect(), self.now);
            }
        }
    }

    /// Tells the bridges that all their links have one bridge at the other end at most.
    pub(crate) fn point_to_point(mut self) -> Self {
        for (bridge, ports) in self.bridges.iter_mut().zip(&self.ports) {
            let Bridge::Rstp(it) = bridge else { continue };
            let settings = |port: &u8| rstp::PortSettings::read(&format!("p{port}"), &BTreeMap::new(), 100).0;
            let own = rstp::Settings::read("", &BTreeMap::new(), it.status().bridge.address()).0;
            it.configure(own, ports.keys().map(|port| (*port, settings(port))).collect(), self.now);
        }
        self
    }

    fn is_up(&self, bridge: usize, port: u8) -> bool {
        self.ports[bridge].contains_key(&port) && !self.down.contains(&(bridge, port))
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, seconds: f64) {
        let end = self.now + (seconds * 1000.0) as Millis;
        loop {
            self.exchange();
            if self.now >= end {
                return;
            }
            self.now = (self.now + STEP).min(end);
        }
    }

    fn exchange(&mut self) {
        for bridge in 0..self.bridges.len() {
            let most = self.ports[bridge].keys().max().copied().unwrap_or(0);
            for port in 1..=most {
                let is_up = self.is_up(bridge, port);
                self.bridges[bridge].set_link(port, is_up, address(bridge), self.now);
            }
        }
        for _ in 0..ROUNDS {
            let mut sent = Vec::new();
            for (bridge, it) in self.bridges.iter_mut().enumerate() {
                let outcome = it.run(self.now);
                if outcome.flush != Flush::Nothing {
                    self.flushes.push(outcome.flush);
                }
                sent.extend(outcome.frames.into_iter().map(|(port, frame)| (bridge, port, frame)));
            }
            if sent.is_empty() {
                return;
            }
            self.frames += sent.len();
            for (from, port, frame) in sent {
                let Some(Some(lan)) = self.ports[from].get(&port).copied() else { continue };
                for to in 0..self.bridges.len() {
                    for other in 1..=self.ports[to].keys().max().copied().unwrap_or(0) {
                        let is_other = (to, other) != (from, port);
                        if is_other && self.is_up(to, other) && self.ports[to].get(&other) == Some(&Some(lan))
                        {
                            self.bridges[to].receive(other, &frame, self.now).unwrap();
                        }
                    }
                }
            }
        }
        panic!("the network does not come to rest");
    }

    pub(crate) fn state(&self, bridge: usize, port: u8) -> PortState {
        self.bridges[bridge].state(port)
    }

    /// The states of a bridge's ports, and its path cost: `F:10 B F` for a root port with that cost, a blocking port
    /// and another one that forwards; `D`: disabled, `Li`, `Le`: listening, learning; `root`: it is the root.
    pub(crate) fn shown(&self, bridge: usize) -> String {
        let (is_root, cost, root_port) = match &self.bridges[bridge] {
            Bridge::Stp(it) => {
                let root =
                    (1..=255).find(|port| it.port_status(*port).is_some_and(|it| it.role == stp::Role::Root));
                (it.status().root == it.status().bridge, it.status().root_path_cost, root)
            }
            Bridge::Rstp(it) => {
                let root = (1..=255)
                    .find(|port| it.port_status(*port).is_some_and(|it| it.role == rstp::Role::Root));
                (it.status().root == it.status().bridge, it.status().root_path_cost, root)
            }
        };
        let most = self.ports[bridge].keys().max().copied().unwrap_or(0);
        let ports: Vec<_> = (1..=most)
            .map(|port| {
                let cost = if root_port == Some(port) { format!(":{cost}") } else { String::new() };
                let state = match self.state(bridge, port) {
                    PortState::Disabled => "D",
                    PortState::Blocking => "B",
                    PortState::Listening => "Li",
                    PortState::Learning => "Le",
                    PortState::Forwarding => "F",
                };
                format!("{state}{cost}")
            })
            .collect();
        let all_forward = ports.iter().all(|port| port == "F" || port == "D");
        if is_root && all_forward { "root".into() } else { ports.join(" ") }
    }

    /// Checks the states of all bridges.
    #[track_caller]
    pub(crate) fn check(&self, expected: &[&str]) {
        let cost = if self.protocol == Protocol::Stp { 10 } else { 200_000 };
        // Costs are in hops.
        let in_hops = |text: String| {
            let words = text.split(' ').map(|word| match word.split_once(':') {
                Some((state, total)) => format!("{state}:{}", total.parse::<u32>().unwrap() / cost),
                None => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let shown: Vec<_> = (0..self.bridges.len()).map(|bridge| in_hops(self.shown(bridge))).collect();
        assert_eq!(shown, expected);
    }

    /// The edges that forward: bridge and LAN.
    pub(crate) fn edges(&self) -> Vec<(usize, char)> {
        let mut edges = Vec::new();
        for (bridge, ports) in self.ports.iter().enumerate() {
            for (port, lan) in ports {
                if let (Some(lan), PortState::Forwarding) = (lan, self.state(bridge, *port)) {
                    edges.push((bridge, *lan));
                }
            }
        }
        edges
    }

    /// All connections of ports that are up.
    pub(crate) fn connections(&self) -> Vec<(usize, char)> {
        let mut all = Vec::new();
        for (bridge, ports) in self.ports.iter().enumerate() {
            all.extend(
                ports
                    .iter()
                    .filter(|(port, _)| self.is_up(bridge, **port))
                    .filter_map(|(_, lan)| Some((bridge, (*lan)?))),
            );
        }
        all
    }
}
