//! Ports, as the caller names them and controllers configure them.

use openflow::error::ErrorCode;
use openflow::message::{EthernetPort, Port, PortConfig, PortMod, PortProperty, PortState};
use openflow::multipart::{EthernetErrors, PortStats, PortStatsProperty, QueueStats};
use openflow::{Mac, PortNo, Text, Version};

use crate::follow::{PortCounters, QueueCounters};

/// Queues of a direction that statistics tell of one by one, so that a port's fit a message.
const NAMED_QUEUES: usize = 256;

/// A port of the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Number: 1 to 0xfeff, or [`PortNo::LOCAL`].
    pub number: PortNo,
    /// Name; messages before version 1.4 have 15 bytes of it, as all others.
    pub name: String,
    /// Ethernet address.
    pub address: [u8; 6],
    /// Whether it has a link.
    pub is_up: bool,
    /// Whether it may carry packets as far as a protocol of its link, such as LACP, is concerned.
    pub is_enabled: bool,
    /// Speed, kbit/s; 0: unknown.
    pub speed: u32,
    /// Whether it is a dummy for tests. As those of Open vSwitch, it counts neither errors nor drops, and received packets
    /// by two names more.
    pub is_dummy: bool,
    /// Its queues, of which some may not count ([`PortCounters::egress`]).
    pub queues: Vec<u32>,
    /// Its state in the spanning tree, if it takes part in one.
    pub tree: Option<TreeState>,
}

impl PortInfo {
    /// A port that is up and enabled, of which nothing else is known.
    pub fn new(number: PortNo, name: impl Into<String>, address: [u8; 6]) -> Self {
        Self {
            number,
            name: name.into(),
            address,
            is_up: true,
            is_enabled: true,
            speed: 0,
            is_dummy: false,
            queues: Vec::new(),
            tree: None,
        }
    }
}

/// State of a port in a spanning tree, as OpenFlow 1.0 tells it; later versions only tell whether it forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeState {
    /// It neither learns nor forwards, and is about to.
    Listen,
    /// It learns, and is about to forward.
    Learn,
    /// It forwards.
    Forward,
    /// It would close a loop.
    Block,
}

impl TreeState {
    /// The bits of [`PortState::STP_MASK`].
    fn bits(self) -> PortState {
        PortState::from_bits_retain((self as u32) << 8)
    }
}

/// A port with what controllers configured.
#[derive(Debug, Clone)]
pub(crate) struct PortEntry {
    pub(crate) info: PortInfo,
    pub(crate) config: PortConfig,
    pub(crate) counters: PortCounters,
    /// Whether controllers took its link away: they were told after the change of the configuration.
    pub(crate) is_cut: bool,
    /// Nanoseconds.
    pub(crate) created: u64,
}

/// A name in so many bytes with its terminator.
pub(crate) fn text(name: &str, bytes: usize) -> Text {
    let mut end = name.len().min(bytes.saturating_sub(1));
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    Text(name.as_bytes().get(..end).unwrap_or_default().to_vec())
}

/// The mode of a full-duplex link with a speed in kbit/s, as a bit of messages; 0: unknown, or none is defined for it.
fn mode(speed: u32, version: Version) -> u32 {
    let bit = match (speed / 1000, version) {
        (0, _) => return 0,
        (10, _) => 1,
        (100, _) => 3,
        (1000, _) => 5,
        (10_000, _) => 6,
        (_, Version::V1_0) => return 0,
        (40_000, _) => 7,
        (100_000, _) => 8,
        (1_000_000, _) => 9,
        // Another one.
        _ => 10,
    };
    1 << bit
}

impl PortEntry {
    /// Whether packets may leave through it.
    pub(crate) fn is_live(&self) -> bool {
        let forwards = self.info.tree.is_none_or(|tree| tree == TreeState::Forward);
        self.info.is_up && self.info.is_enabled && forwards && !self.config.contains(PortConfig::PORT_DOWN)
    }

    /// The port as messages have it.
    pub(crate) fn describe(&self, version: Version) -> Port {
        let mut state = PortState::empty();
        state.set(PortState::LINK_DOWN, !self.info.is_up || self.is_cut);
        state.set(PortState::LIVE, version >= Version::V1_1 && self.is_live());
        match self.info.tree {
            Some(tree) if version == Version::V1_0 => state |= tree.bits(),
            Some(tree) => state.set(PortState::BLOCKED, tree != TreeState::Forward),
            None => {}
        }
        // The highest speed is unknown.
        let current = mode(self.info.speed, version);
        let ethernet = EthernetPort { current, current_speed: self.info.speed, ..EthernetPort::default() };
        Port {
            number: self.info.number,
            address: Mac(self.info.address),
            name: text(&self.info.name, 16),
            config: self.config,
            state,
            properties: vec![PortProperty::Ethernet(ethernet)],
        }
    }

    /// The port's statistics.
    pub(crate) fn stats(&self, now: u64) -> PortStats {
        let age = now.saturating_sub(self.created);
        let c = &self.counters;
        let known = !self.info.is_dummy;
        let count = |number: u64| if known { number } else { u64::MAX };
        let errors = match known {
            true => EthernetErrors::default(),
            false => {
                EthernetErrors { frame: u64::MAX, overrun: u64::MAX, crc: u64::MAX, collisions: u64::MAX }
            }
        };
        let mut properties = vec![PortStatsProperty::Ethernet(errors)];
        let named = self.named_counters();
        if !named.is_empty() {
            properties.push(PortStatsProperty::named(&named));
        }
        PortStats {
            port: self.info.number,
            rx_packets: c.rx_packets,
            tx_packets: c.tx_packets,
            rx_bytes: c.rx_bytes,
            tx_bytes: c.tx_bytes,
            rx_dropped: count(c.rx_dropped),
            tx_dropped: count(c.tx_dropped),
            rx_errors: count(0),
            tx_errors: count(0),
            duration_sec: (age / 1_000_000_000) as u32,
            duration_nsec: (age % 1_000_000_000) as u32,
            properties,
        }
    }

    /// The statistics of a queue; all ones where it does not count.
    pub(crate) fn queue_stats(&self, queue: u32) -> QueueStats {
        let counters = self.counters.egress.iter().find(|it| it.queue == queue);
        let count = |of: fn(&QueueCounters) -> u64| counters.map_or(u64::MAX, of);
        let seconds = |it: &QueueCounters| u32::try_from(it.age.as_secs()).unwrap_or(u32::MAX);
        QueueStats {
            port: self.info.number,
            queue,
            tx_bytes: count(|it| it.bytes),
            tx_packets: count(|it| it.packets),
            tx_errors: count(|it| it.errors),
            duration_sec: counters.map_or(u32::MAX, seconds),
            duration_nsec: counters.map_or(u32::MAX, |it| it.age.subsec_nanos()),
            properties: vec![],
        }
    }

    /// Counters that have names: those of queues.
    fn named_counters(&self) -> Vec<(String, u64)> {
        let c = &self.counters;
        let mut named = Vec::new();
        if self.info.is_dummy {
            named.extend((1..=2).map(|n| (format!("rx_custom_packets_{n}"), c.rx_packets)));
        }
        for (direction, queues) in [("rx", &c.rx_queues), ("tx", &c.tx_queues)] {
            for (n, (packets, bytes)) in queues.iter().enumerate().take(NAMED_QUEUES) {
                named.push((format!("{direction}_q{n}_bytes"), *bytes));
                named.push((format!("{direction}_q{n}_packets"), *packets));
            }
        }
        named
    }

    /// Changes the configuration; whether anything changed.
    pub(crate) fn configure(&mut self, request: &PortMod) -> Result<bool, ErrorCode> {
        if request.address.0 != self.info.address {
            return Err(ErrorCode::PmfcBadHwAddr);
        }
        let known = PortConfig::PORT_DOWN
            | PortConfig::NO_RECV
            | PortConfig::NO_RECV_STP
            | PortConfig::NO_FLOOD
            | PortConfig::NO_FWD
            | PortConfig::NO_PACKET_IN;
        let before = self.config;
        self.config = before & !request.mask | request.config & request.mask & known;
        Ok(before != self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_tell_of_their_counters_where_they_count() {
        let info = PortInfo { queues: vec![0, 7], ..PortInfo::new(PortNo(1), "a", [2; 6]) };
        let age = std::time::Duration::from_millis(1500);
        let seven = QueueCounters { queue: 7, packets: 3, bytes: 180, errors: 2, age };
        let counters = PortCounters { egress: vec![seven], ..PortCounters::default() };
        let entry = PortEntry { info, config: PortConfig::empty(), counters, is_cut: false, created: 0 };
        let shown = |queue| {
            let it = entry.queue_stats(queue);
            (it.tx_packets, it.tx_bytes, it.tx_errors, it.duration_sec, it.duration_nsec)
        };
        assert_eq!(shown(7), (3, 180, 2, 1, 500_000_000));
        assert_eq!(shown(0), (u64::MAX, u64::MAX, u64::MAX, u32::MAX, u32::MAX));
    }

    #[test]
    fn queues_have_counters_by_name() {
        let info = PortInfo::new(PortNo(1), "p1", [2; 6]);
        let counters = PortCounters {
            rx_packets: 3,
            rx_queues: vec![(1, 60), (2, 120)],
            tx_queues: vec![(0, 0); 1000],
            ..PortCounters::default()
        };
        let config = PortConfig::empty();
        let mut entry = PortEntry { info, config, counters, is_cut: false, created: 0 };
        let named = entry.named_counters();
        assert_eq!(named[..2], [("rx_q0_bytes".to_owned(), 60), ("rx_q0_packets".to_owned(), 1)]);
        assert_eq!((named[3].0.as_str(), named[3].1), ("rx_q1_packets", 2));
        assert_eq!(named.len(), 4 + 2 * NAMED_QUEUES);
        let reply = openflow::multipart::Reply::PortStats(vec![entry.stats(0)]);
        let multipart = openflow::multipart::Multipart { more: false, content: reply };
        let body = openflow::message::Body::MultipartReply(multipart);
        assert!(openflow::Message::new(Version::V1_4, 1, body).into_bytes().is_ok(), "it fits");
        entry.info.is_dummy = true;
        assert_eq!(entry.named_counters()[1], ("rx_custom_packets_2".to_owned(), 3));
    }

    #[test]
    fn the_state_in_a_spanning_tree_is_that_of_the_version() {
        let info = PortInfo::new(PortNo(1), "p1", [2; 6]);
        let (config, counters) = (PortConfig::empty(), PortCounters::default());
        let mut entry = PortEntry { info, config, counters, is_cut: false, created: 0 };
        for (tree, old, new) in [
            (None, 0, PortState::LIVE),
            (Some(TreeState::Listen), 0, PortState::BLOCKED),
            (Some(TreeState::Learn), 1 << 8, PortState::BLOCKED),
            (Some(TreeState::Forward), 2 << 8, PortState::LIVE),
            (Some(TreeState::Block), 3 << 8, PortState::BLOCKED),
        ] {
            entry.info.tree = tree;
            assert_eq!(entry.describe(Version::V1_0).state.bits(), old, "{tree:?}");
            assert_eq!(entry.describe(Version::V1_3).state, new, "{tree:?}");
        }
    }

    #[test]
    fn modes_are_those_of_the_version() {
        let of = |mbit: u32| [Version::V1_0, Version::V1_3].map(|version| mode(mbit * 1000, version));
        assert_eq!(of(0), [0, 0]);
        assert_eq!(of(1000), [1 << 5, 1 << 5]);
        assert_eq!(of(10_000), [1 << 6, 1 << 6]);
        assert_eq!((of(25_000), of(40_000)), ([0, 1 << 10], [0, 1 << 7]));
        assert_eq!(of(1_000_000), [0, 1 << 9]);
    }
}
