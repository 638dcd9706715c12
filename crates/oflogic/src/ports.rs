//! Ports as the control plane and OpenFlow see them.

use fabric::PortIndex;
use openflow::PortNo;

/// Facts about a port that only the control plane knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// The port.
    pub index: PortIndex,
    /// Number that the configuration asks for; `None`: the lowest free one from 1. A number that another port has is
    /// ignored.
    pub number: Option<u16>,
    /// Whether the port is the bridge's own, [`PortNo::LOCAL`].
    pub is_local: bool,
    /// Ethernet address.
    pub address: [u8; 6],
    /// Whether it has a link.
    pub is_up: bool,
    /// Speed, kbit/s; 0: unknown.
    pub speed: u32,
}

/// A port with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedPort {
    /// The port.
    pub index: PortIndex,
    /// Its OpenFlow number.
    pub number: PortNo,
    /// Its name.
    pub name: String,
}
