//! Protocol versions, port numbers and the ids of those who extend the protocol.

use std::fmt;

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Version {
    /// OpenFlow 1.0 (0x01).
    #[default]
    V1_0,
    /// OpenFlow 1.1 (0x02).
    V1_1,
    /// OpenFlow 1.2 (0x03).
    V1_2,
    /// OpenFlow 1.3 (0x04).
    V1_3,
    /// OpenFlow 1.4 (0x05).
    V1_4,
    /// OpenFlow 1.5 (0x06).
    V1_5,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 6] =
        [Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_3, Version::V1_4, Version::V1_5];

    /// The number in a message's first byte.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The version with a number in a message's first byte.
    pub fn from_number(number: u8) -> Option<Self> {
        Version::ALL.into_iter().find(|version| version.number() == number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFlow 1.{}", *self as u8)
    }
}

/// A port's number, in the 32 bits that versions since 1.1 have.
///
/// Version 1.0 and Nicira's extensions have 16 bits, whose reserved range 0xff00 to 0xffff stands for 0xffffff00 to
/// 0xffffffff.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortNo(
    /// The number.
    pub u32,
);

impl PortNo {
    /// Ports above are reserved ones.
    pub const MAX: PortNo = PortNo(0xffff_ff00);
    /// Value of the field `actset_output` when no output is in the action set.
    pub const UNSET: PortNo = PortNo(0xffff_fff7);
    /// The port that the packet arrived at.
    pub const IN_PORT: PortNo = PortNo(0xffff_fff8);
    /// The flow tables, for packet-out.
    pub const TABLE: PortNo = PortNo(0xffff_fff9);
    /// The switch's own forwarding.
    pub const NORMAL: PortNo = PortNo(0xffff_fffa);
    /// All ports but the ingress port and those that do not flood.
    pub const FLOOD: PortNo = PortNo(0xffff_fffb);
    /// All ports but the ingress port.
    pub const ALL: PortNo = PortNo(0xffff_fffc);
    /// The controller.
    pub const CONTROLLER: PortNo = PortNo(0xffff_fffd);
    /// The host's port.
    pub const LOCAL: PortNo = PortNo(0xffff_fffe);
    /// No port, or any port (`OFPP_NONE`, `OFPP_ANY`).
    pub const ANY: PortNo = PortNo(0xffff_ffff);

    /// Reserved ports and their names as `ovs-ofctl` writes them.
    pub const NAMES: [(PortNo, &'static str); 10] = [
        (PortNo::UNSET, "UNSET"),
        (PortNo::IN_PORT, "IN_PORT"),
        (PortNo::TABLE, "TABLE"),
        (PortNo::NORMAL, "NORMAL"),
        (PortNo::FLOOD, "FLOOD"),
        (PortNo::ALL, "ALL"),
        (PortNo::CONTROLLER, "CONTROLLER"),
        (PortNo::LOCAL, "LOCAL"),
        (PortNo::ANY, "NONE"),
        (PortNo::ANY, "ANY"),
    ];

    /// The number in 16 bits, if it has one.
    pub fn to_16_bits(self) -> Option<u16> {
        match self.0 {
            0..=0xfeff | 0xffff_ff00..=0xffff_ffff => Some((self.0 & 0xffff) as u16),
            _ => None,
        }
    }

    /// The port with a number of 16 bits.
    pub fn from_16_bits(number: u16) -> Self {
        PortNo(if number >= 0xff00 { 0xffff_0000 | u32::from(number) } else { u32::from(number) })
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PortNo::NAMES.iter().find(|(port, _)| port == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(
    /// The six bytes.
    pub [u8; 6],
);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Ids of those who extend the protocol ("vendors", "experimenters").
pub mod vendor {
    /// Nicira, now Open vSwitch.
    pub const NICIRA: u32 = 0x0000_2320;
    /// Open Networking Foundation.
    pub const ONF: u32 = 0x4f4e_4600;
    /// Netronome: selection methods of groups.
    pub const NETRONOME: u32 = 0x0000_154d;
    /// Netronome as Open vSwitch 2.4 misspelt it.
    pub const NETRONOME_MISSPELT: u32 = 0x0000_1540;
    /// Intel: statistics of ports.
    pub const INTEL: u32 = 0x0000_aa01;
    /// Network service headers, in OXM headers.
    pub const NSH: u32 = 0x005a_d650;
}

/// Table numbers.
pub mod table {
    /// The last table's number.
    pub const MAX: u8 = 0xfe;
    /// All tables.
    pub const ALL: u8 = 0xff;
}

/// Group numbers.
pub mod group {
    /// The last group's number.
    pub const MAX: u32 = 0xffff_ff00;
    /// All groups.
    pub const ALL: u32 = 0xffff_fffc;
    /// Any group, or none.
    pub const ANY: u32 = 0xffff_ffff;
}

/// Meter numbers.
pub mod meter {
    /// The last meter's number.
    pub const MAX: u32 = 0xffff_0000;
    /// Packets on the slow path.
    pub const SLOWPATH: u32 = 0xffff_fffd;
    /// Packets to controllers.
    pub const CONTROLLER: u32 = 0xffff_fffe;
    /// All meters.
    pub const ALL: u32 = 0xffff_ffff;
}

/// Buffer number of a packet that comes along with its message.
pub const NO_BUFFER: u32 = 0xffff_ffff;
/// Queue number that stands for all queues.
pub const ALL_QUEUES: u32 = 0xffff_ffff;
