//! LACPDUs: the frames of LACP (IEEE 802.1AX §6.4.2). They come from the network, and are checked field by field.

use packet::MacAddr;

/// Destination of all frames of Slow Protocols (IEEE 802.3 annex 57A).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x02]);
/// EtherType of Slow Protocols.
pub const ETHER_TYPE: u16 = 0x8809;

/// Length of a frame with an LACPDU, without a checksum.
pub const FRAME_LEN: usize = ETHERNET_LEN + PDU_LEN;

const ETHERNET_LEN: usize = 14;
const PDU_LEN: usize = 110;
/// Length of a port's information.
const INFO_LEN: usize = 15;

/// Subtypes of Slow Protocols.
const LACP: u8 = 1;
const MARKER: u8 = 2;

bitflags::bitflags! {
    /// State of a port, as LACPDUs have it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct State: u8 {
        /// It negotiates even if the peer does not.
        const ACTIVITY = 0x01;
        /// The peer is to send every second.
        const TIMEOUT = 0x02;
        /// It may be aggregated.
        const AGGREGATION = 0x04;
        /// It is in the right aggregate.
        const SYNCHRONIZATION = 0x08;
        /// It takes packets.
        const COLLECTING = 0x10;
        /// It sends packets.
        const DISTRIBUTING = 0x20;
        /// It has no information from a peer.
        const DEFAULTED = 0x40;
        /// Its information from the peer is out of date.
        const EXPIRED = 0x80;
    }
}

/// Information about a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Priority of its system.
    pub system_priority: u16,
    /// Address of its system.
    pub system: MacAddr,
    /// Aggregation key.
    pub key: u16,
    /// Priority of the port.
    pub port_priority: u16,
    /// Number of the port.
    pub port: u16,
    /// State of the port.
    pub state: State,
}

impl Default for Info {
    /// No port is known.
    fn default() -> Self {
        let state = State::empty();
        Self { system_priority: 0, system: MacAddr::ZERO, key: 0, port_priority: 0, port: 0, state }
    }
}

impl Info {
    fn read(bytes: &[u8; INFO_LEN]) -> Self {
        let [p0, p1, a, b, c, d, e, f, k0, k1, q0, q1, n0, n1, state] = *bytes;
        Self {
            system_priority: u16::from_be_bytes([p0, p1]),
            system: MacAddr([a, b, c, d, e, f]),
            key: u16::from_be_bytes([k0, k1]),
            port_priority: u16::from_be_bytes([q0, q1]),
            port: u16::from_be_bytes([n0, n1]),
            state: State::from_bits_retain(state),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.system_priority.to_be_bytes());
        to.extend(self.system.0);
        to.extend(self.key.to_be_bytes());
        to.extend(self.port_priority.to_be_bytes());
        to.extend(self.port.to_be_bytes());
        to.push(self.state.bits());
    }

    /// Key by which ports are ranked; the smallest comes first (IEEE 802.1AX §6.3.4).
    pub(crate) fn rank(&self) -> (u16, MacAddr, u16, u16) {
        (self.system_priority, self.system, self.port_priority, self.port)
    }
}

/// An LACPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pdu {
    /// The sender's port.
    pub actor: Info,
    /// The receiver's port, as the sender knows it.
    pub partner: Info,
}

/// A frame of Slow Protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// An LACPDU.
    Pdu(Pdu),
    /// A PDU of the Marker protocol.
    Marker,
    /// Something else, or damaged.
    Unknown,
}

impl Frame {
    /// Returns whether a frame is one of Slow Protocols.
    #[inline]
    pub fn is_slow(frame: &[u8]) -> bool {
        frame.first_chunk() == Some(&GROUP.0) && frame.get(12..14) == Some(&ETHER_TYPE.to_be_bytes())
    }

    /// Reads an untagged Ethernet frame of Slow Protocols.
    pub fn parse(frame: &[u8]) -> Self {
        let Some(pdu) = frame.get(ETHERNET_LEN..).and_then(|rest| rest.first_chunk::<PDU_LEN>()) else {
            return Self::Unknown;
        };
        match pdu {
            [MARKER, ..] => Self::Marker,
            // Subtype, any version; then the types and lengths of the first two fields.
            [LACP, _, rest @ ..] => Self::lacp(rest).map_or(Self::Unknown, Self::Pdu),
            _ => Self::Unknown,
        }
    }

    fn lacp(fields: &[u8]) -> Option<Pdu> {
        let info = |number: u8, at: usize| match fields.get(at..)?.split_first_chunk()? {
            ([kind, 20], rest) if *kind == number => Some(Info::read(rest.first_chunk()?)),
            _ => None,
        };
        Some(Pdu { actor: info(1, 0)?, partner: info(2, 20)? })
    }
}

impl Pdu {
    /// Makes an Ethernet frame from a port with this address.
    pub fn frame(&self, source: MacAddr) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FRAME_LEN);
        frame.extend(GROUP.0);
        frame.extend(source.0);
        frame.extend(ETHER_TYPE.to_be_bytes());
        frame.extend([LACP, 1]);
        for (number, info) in [(1, &self.actor), (2, &self.partner)] {
            frame.extend([number, 20]);
            info.write(&mut frame);
            frame.extend([0; 3]);
        }
        // The collector adds no delay; what follows is the end of the list, and reserved.
        frame.extend([3, 16]);
        frame.resize(FRAME_LEN, 0);
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info() -> impl Strategy<Value = Info> {
        any::<(u16, [u8; 6], u16, u16, u16, u8)>().prop_map(
            |(system_priority, system, key, port_priority, port, state)| Info {
                system_priority,
                system: MacAddr(system),
                key,
                port_priority,
                port,
                state: State::from_bits_retain(state),
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(actor in info(), partner in info(), source: [u8; 6], more: Vec<u8>) {
            let pdu = Pdu { actor, partner };
            let mut frame = pdu.frame(MacAddr(source));
            prop_assert_eq!(frame.len(), FRAME_LEN);
            prop_assert!(Frame::is_slow(&frame));
            // What follows is padding.
            frame.extend(more);
            prop_assert_eq!(Frame::parse(&frame), Frame::Pdu(pdu));
        }

        #[test]
        fn any_bytes_are_read_without_harm(frame: Vec<u8>) {
            let short = frame.len() < FRAME_LEN;
            prop_assert!(!short || Frame::parse(&frame) == Frame::Unknown);
        }

        #[test]
        fn a_damaged_header_is_no_pdu(actor in info(), partner in info(), at in 0usize..6, value: u8) {
            // Subtype, and type and length of both fields; the version may be any.
            let at = ETHERNET_LEN + [0, 2, 3, 22, 23, 1][at];
            let mut frame = Pdu { actor, partner }.frame(MacAddr::ZERO);
            let is_same = frame[at] == value || at == ETHERNET_LEN + 1;
            frame[at] = value;
            prop_assert_eq!(matches!(Frame::parse(&frame), Frame::Pdu(_)), is_same);
        }

        #[test]
        fn cut_frames_are_no_pdus(actor in info(), partner in info(), len in 0..FRAME_LEN) {
            let frame = Pdu { actor, partner }.frame(MacAddr::ZERO);
            prop_assert_eq!(Frame::parse(&frame[..len]), Frame::Unknown);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_standard() {
        let info = |n: u8| Info {
            system_priority: 0x0102,
            system: MacAddr([n; 6]),
            key: 0x0304,
            port_priority: 0x0506,
            port: 0x0708,
            state: State::ACTIVITY | State::EXPIRED,
        };
        let frame = Pdu { actor: info(0xaa), partner: info(0xbb) }.frame(MacAddr([2; 6]));
        let head =
            [&[1, 0x80, 0xc2, 0, 0, 2, 2, 2, 2, 2, 2, 2, 0x88, 0x09, 1, 1][..], &[1, 20, 1, 2]].concat();
        assert_eq!(frame[..20], head);
        assert_eq!(frame[20..36], [0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 0xaa, 3, 4, 5, 6, 7, 8, 0x81, 0, 0, 0]);
        assert_eq!(frame[36..40], [2, 20, 1, 2]);
        assert_eq!(frame[56..60], [3, 16, 0, 0]);
    }

    #[test]
    fn markers_and_other_protocols_are_told_apart() {
        let mut frame = Pdu { actor: Info::default(), partner: Info::default() }.frame(MacAddr::ZERO);
        frame[14] = MARKER;
        assert_eq!(Frame::parse(&frame), Frame::Marker);
        frame[14] = 10;
        assert_eq!(Frame::parse(&frame), Frame::Unknown);
        frame[13] = 0;
        assert!(!Frame::is_slow(&frame) && !Frame::is_slow(&[]));
    }
}
