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
    /// Speed, kbit/s; 0: unknown.
    pub speed: u32,
}

/// A port with what controllers configured.
#[derive(Debug, Clone)]
pub(crate) struct PortEntry {
    pub(crate) info: PortInfo,
    pub(crate) config: PortConfig,
    pub(crate) counters: PortCounters,
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

impl PortEntry {
    /// Whether packets may leave through it.
    pub(crate) fn is_live(&self) -> bool {
        self.info.is_up && !self.config.contains(PortConfig::PORT_DOWN)
    }

    /// The port as messages have it.
    pub(crate) fn describe(&self, version: Version) -> Port {
        let mut state = PortState::empty();
        state.set(PortState::LINK_DOWN, !self.info.is_up);
        state.set(PortState::LIVE, version >= Version::V1_4 && self.is_live());
        let ethernet = EthernetPort {
            current_speed: self.info.speed,
            max_speed: self.info.speed,
            ..EthernetPort::default()
        };
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
        PortStats {
            port: self.info.number,
            rx_packets: c.rx_packets,
            tx_packets: c.tx_packets,
            rx_bytes: c.rx_bytes,
            tx_bytes: c.tx_bytes,
            rx_dropped: c.rx_dropped,
            tx_dropped: c.tx_dropped,
            rx_errors: 0,
            tx_errors: 0,
            duration_sec: (age / 1_000_000_000) as u32,
            duration_nsec: (age % 1_000_000_000) as u32,
            properties: vec![PortStatsProperty::Ethernet(EthernetErrors::default())],
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
