//! Ports, as the caller names them and controllers configure them.

use openflow::error::ErrorCode;
use openflow::message::{EthernetPort, Port, PortConfig, PortMod, PortProperty, PortState};
use openflow::multipart::{EthernetErrors, PortStats, PortStatsProperty};
use openflow::{Mac, PortNo, Text, Version};

use crate::follow::PortCounters;

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
    /// Whether it counts errors and drops.
    pub counts_errors: bool,
    /// Its queues, whose counters are unknown.
    pub queues: Vec<u32>,
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
        self.info.is_up && self.info.is_enabled && !self.config.contains(PortConfig::PORT_DOWN)
    }

    /// The port as messages have it.
    pub(crate) fn describe(&self, version: Version) -> Port {
        let mut state = PortState::empty();
        state.set(PortState::LINK_DOWN, !self.info.is_up || self.is_cut);
        state.set(PortState::LIVE, version >= Version::V1_1 && self.is_live());
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
        let known = self.info.counts_errors;
        let count = |number: u64| if known { number } else { u64::MAX };
        let errors = match known {
            true => EthernetErrors::default(),
            false => {
                EthernetErrors { frame: u64::MAX, overrun: u64::MAX, crc: u64::MAX, collisions: u64::MAX }
            }
        };
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
            properties: vec![PortStatsProperty::Ethernet(errors)],
        }
    }

    /// Changes the configuration; whether anything changed.
    pub(crate) fn configure(&mut self, request: &PortMod) -> Result<bool, ErrorCode> {
        if request.address.0 != self.info.address {
            return Err(ErrorCode::PmfcBadHwAddr);
        }
        let known = PortConfig::PORT_DOWN
            | PortConfig::NO_RECV
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
    fn modes_are_those_of_the_version() {
        let of = |mbit: u32| [Version::V1_0, Version::V1_3].map(|version| mode(mbit * 1000, version));
        assert_eq!(of(0), [0, 0]);
        assert_eq!(of(1000), [1 << 5, 1 << 5]);
        assert_eq!(of(10_000), [1 << 6, 1 << 6]);
        assert_eq!((of(25_000), of(40_000)), ([0, 1 << 10], [0, 1 << 7]));
        assert_eq!(of(1_000_000), [0, 1 << 9]);
    }
}
