//! A case: groups, flows and packets, made from a seed.

use fastrand::Rng;

use crate::packets::{self, Protocol};
use crate::rules;
use crate::subject::messages;

/// Ports of a switch, numbered from 1.
pub const PORTS: u32 = 4;

/// Tables that flows are in.
pub const TABLES: u8 = 4;

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The table.
    pub table: u8,
    /// The priority.
    pub priority: u16,
    /// The cookie.
    pub cookie: u64,
    /// Fields, as `NAME=VALUE`.
    pub matches: Vec<String>,
    /// Actions and instructions.
    pub actions: Vec<String>,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table={},priority={},cookie={:#x}", self.table, self.priority, self.cookie)?;
        for field in &self.matches {
            write!(f, ",{field}")?;
        }
        match self.actions.as_slice() {
            [] => write!(f, ",actions=drop"),
            actions => write!(f, ",actions={}", actions.join(",")),
        }
    }
}

/// Packets that arrive at a port one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burst {
    /// The port.
    pub port: u32,
    /// The packets.
    pub packets: Vec<Vec<u8>>,
}

/// Groups, flows and packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Groups, in the order of their addition.
    pub groups: Vec<String>,
    /// Flows, in the order of their addition.
    pub rules: Vec<Rule>,
    /// Packets.
    pub bursts: Vec<Burst>,
}

impl Case {
    /// The case of a seed, with a number of packets in bursts of up to ten.
    pub fn new(seed: u64, packets: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let protocols: Vec<_> = (0..random.usize(1..4)).map(|_| Protocol::random(&mut random)).collect();
        let (groups, rules) = rules::random(&mut random, &protocols);
        let mut bursts = vec![];
        let mut left = packets;
        while left > 0 {
            let count = left.min(10);
            left -= count;
            let mut one = || {
                let protocol = match random.u8(..10) {
                    0 => Protocol::random(&mut random),
                    _ => protocols[random.usize(..protocols.len())],
                };
                packets::packet(&mut random, protocol)
            };
            let packets = (0..count).map(|_| one()).collect();
            bursts.push(Burst { port: random.u32(1..=PORTS), packets });
        }
        Self { groups, rules, bursts }
    }

    /// Whether every group and flow can be written as a message.
    pub fn is_valid(&self) -> bool {
        messages(self).is_ok()
    }

    /// Packets of all bursts.
    pub fn packets(&self) -> usize {
        self.bursts.iter().map(|burst| burst.packets.len()).sum()
    }

    /// All actions and groups.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        self.rules.iter().flat_map(|rule| &rule.actions).chain(&self.groups)
    }

    /// Whether packets change the flows, so that each must be processed before the next one comes.
    pub fn learns(&self) -> bool {
        self.texts().any(|text| text.contains("learn("))
    }

    /// Leaves out groups and flows, by their numbers in this order, and packets, by theirs.
    pub fn without(&mut self, items: &[usize], packets: &[usize]) {
        let mut number = 0..;
        let mut keep = || number.next().is_some_and(|number| !items.contains(&number));
        self.groups.retain(|_| keep());
        self.rules.retain(|_| keep());
        let mut number = 0..;
        for burst in &mut self.bursts {
            burst.packets.retain(|_| number.next().is_some_and(|number| !packets.contains(&number)));
        }
    }
}
