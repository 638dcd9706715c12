//! Keys of flows: what the packets of a flow have in common, read from the front of a packet.

use fabric::PortIndex;
use packet::EtherType;
use packet::headers::{IpVersion, Layers, protocol};

/// Value of [`FlowKey::egress`] for packets that went nowhere.
pub const NOWHERE: PortIndex = PortIndex::NONE;
/// Value of [`FlowKey::egress`] for packets that went to several ports.
pub const SEVERAL: PortIndex = PortIndex(u16::MAX - 1);
/// Value of [`FlowKey::egress`] where it does not matter.
pub const ANYWHERE: PortIndex = PortIndex(u16::MAX - 2);

/// Bits of the type of service that are the differentiated services' code point (RFC 2474).
const DSCP: u8 = 0xfc;

/// Where a flow is observed at its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Way {
    /// Where its packets come in.
    #[default]
    In,
    /// Where they leave.
    Out,
}

/// What the packets of a flow have in common. Fields that they lack are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The ingress port; [`PortIndex::NONE`] if the packets come from no port.
    pub ingress: PortIndex,
    /// The egress port, or [`NOWHERE`], [`SEVERAL`] or [`ANYWHERE`].
    pub egress: PortIndex,
    /// Direction in which the packets are observed.
    pub way: Way,
    /// The outermost VLAN tag.
    pub tci: Option<u16>,
    /// Source of the Ethernet header.
    pub mac_source: [u8; 6],
    /// Destination of the Ethernet header.
    pub mac_destination: [u8; 6],
    /// The type behind the tags.
    pub ethertype: u16,
    /// 4 or 6; 0: another protocol.
    pub ip_version: u8,
    /// Protocol above IP.
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Source address; an IPv4 address is in the first 4 bytes.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Ports of TCP, UDP, SCTP, DCCP and UDP-Lite. Of ICMP, the second has type and code.
    pub ports: [u16; 2],
    /// Observation domain and point that a `sample` action names.
    pub observation: [u32; 2],
}

impl FlowKey {
    /// The key in words, for a hash.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 9] {
        let mac = |[a, b, c, d, e, f]: [u8; 6], rest: u16| {
            let [high, low] = rest.to_be_bytes();
            u64::from_be_bytes([high, low, a, b, c, d, e, f])
        };
        let (source, destination) = (u128::from_be_bytes(self.source), u128::from_be_bytes(self.destination));
        let pair = |a: u16, b: u16| u64::from(a) << 16 | u64::from(b);
        let kind = [self.ip_version, self.protocol, self.tos, self.way as u8];
        [
            mac(self.mac_source, self.ethertype),
            mac(self.mac_destination, self.tci.map_or(0, |tci| tci | 0x1000)),
            source as u64,
            (source >> 64) as u64,
            destination as u64,
            (destination >> 64) as u64,
            pair(self.ingress.0, self.egress.0) << 32 | pair(self.ports[0], self.ports[1]),
            u64::from(u32::from_be_bytes(kind)),
            u64::from(self.observation[0]) << 32 | u64::from(self.observation[1]),
        ]
    }
}

/// Fields that a protocol exports, and that make flows differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Packets of IPv4, without Ethernet's fields.
    Ipv4,
    /// All packets, with Ethernet's fields.
    Ethernet,
}

/// A packet as it is accounted.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The key of its flow.
    pub key: FlowKey,
    /// Bytes of the IP packet, header included; of other protocols, the bytes behind the Ethernet header.
    pub octets: u32,
    /// Flags of TCP (RFC 9293, section 3.1).
    pub tcp_flags: u8,
}

impl Facts {
    /// Reads the front of a packet of `length` bytes; `None` if `detail` leaves such packets out. Ports and direction
    /// are the caller's.
    #[inline]
    pub fn read(front: &[u8], length: u32, detail: Detail) -> Option<Self> {
        let layers = Layers::parse(front);
        if detail == Detail::Ipv4 && layers.ip != Some(IpVersion::V4) {
            return None;
        }
        let mut key = FlowKey {
            ingress: PortIndex::NONE,
            egress: ANYWHERE,
            way: Way::In,
            tci: None,
            mac_source: [0; 6],
            mac_destination: [0; 6],
            ethertype: 0,
            ip_version: 0,
            protocol: 0,
            tos: 0,
            source: [0; 16],
            destination: [0; 16],
            ports: [0; 2],
            observation: [0; 2],
        };
        if detail == Detail::Ethernet {
            key.mac_destination = chunk(front, 0).unwrap_or_default();
            key.mac_source = chunk(front, 6).unwrap_or_default();
            key.ethertype = layers.ethertype.map_or(0, |EtherType(number)| number);
            key.tci = (layers.vlan_tags > 0).then(|| chunk(front, 14).map(u16::from_be_bytes)).flatten();
        }
        let behind = length.saturating_sub(layers.l2_len.into());
        let mut octets = behind;
        if let (Some(version), Some(at)) = (layers.ip, layers.l3) {
            let at = usize::from(at);
            let stated = match version {
                IpVersion::V4 => read_ipv4(&mut key, front, at),
                IpVersion::V6 => read_ipv6(&mut key, front, at),
            };
            // Ethernet pads short frames. Segments that a guest leaves to the receiver may state no length.
            octets = stated.filter(|stated| (1..=behind).contains(stated)).unwrap_or(behind);
            key.protocol = layers.protocol.unwrap_or(0);
            if detail == Detail::Ipv4 {
                // Congestion that a packet met (RFC 3168) makes no other flow.
                key.tos &= DSCP;
            }
        }
        let mut tcp_flags = 0;
        if let Some(l4) = layers.l4.map(usize::from) {
            match key.protocol {
                protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE => {
                    let [a, b, c, d] = chunk(front, l4).unwrap_or_default();
                    key.ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
                }
                protocol::ICMP if key.ip_version == 4 => key.ports[1] = number(front, l4),
                protocol::ICMPV6 if key.ip_version == 6 => key.ports[1] = number(front, l4),
                _ => {}
            }
            if key.protocol == protocol::TCP {
                tcp_flags = front.get(l4 + 13).copied().unwrap_or(0);
            }
        }
        Some(Self { key, octets, tcp_flags })
    }
}

/// Reads an IPv4 header (RFC 791, section 3.1). Returns the total length.
#[inline]
fn read_ipv4(key: &mut FlowKey, front: &[u8], at: usize) -> Option<u32> {
    let header: [u8; 20] = chunk(front, at)?;
    key.ip_version = 4;
    key.tos = header[1];
    key.source[..4].copy_from_slice(&header[12..16]);
    key.destination[..4].copy_from_slice(&header[16..20]);
    Some(u16::from_be_bytes([header[2], header[3]]).into())
}

/// Reads an IPv6 header (RFC 8200, section 3). Returns the length with the header.
#[inline]
fn read_ipv6(key: &mut FlowKey, front: &[u8], at: usize) -> Option<u32> {
    let header: [u8; 40] = chunk(front, at)?;
    key.ip_version = 6;
    key.tos = header[0] << 4 | header[1] >> 4;
    key.source.copy_from_slice(&header[8..24]);
    key.destination.copy_from_slice(&header[24..40]);
    let payload = u16::from_be_bytes([header[4], header[5]]);
    // 0 is a length that is stated elsewhere (RFC 2675).
    (payload > 0).then(|| u32::from(payload) + 40)
}

#[inline]
fn chunk<const N: usize>(front: &[u8], at: usize) -> Option<[u8; N]> {
    front.get(at..)?.first_chunk::<N>().copied()
}

#[inline]
fn number(front: &[u8], at: usize) -> u16 {
    chunk(front, at).map_or(0, u16::from_be_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An Ethernet header with these tags and type, and what follows.
    pub(crate) fn frame(tags: &[u16], ethertype: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tci in tags {
            frame.extend([0x81, 0]);
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(rest);
        frame
    }

    /// An IPv4 packet from 10.0.0.1 to 10.0.0.2.
    pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len()) as u16;
        let mut packet = vec![0x45, 0xb9];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    /// An IPv6 packet from 2001:db8::1 to 2001:db8::2.
    pub(crate) fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x6b, 0x90, 0, 7];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([protocol, 64]);
        for last in [1, 2] {
            packet.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend(payload);
        packet
    }

    fn read(frame: &[u8], detail: Detail) -> Option<Facts> {
        Facts::read(frame, frame.len() as u32, detail)
    }

    #[test]
    fn ipv4_is_read_with_and_without_ethernet() {
        let mut tcp = vec![0x04, 0xd2, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12];
        tcp.resize(26, 0);
        let bytes = frame(&[0x6064], 0x0800, &ipv4(6, &tcp));
        let facts = read(&bytes, Detail::Ipv4).unwrap();
        let key = facts.key;
        assert_eq!((facts.octets, facts.tcp_flags), (46, 0x12));
        assert_eq!((key.ip_version, key.protocol, key.tos, key.ports), (4, 6, 0xb8, [1234, 80]));
        assert_eq!((&key.source[..4], &key.destination[..4]), (&[10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!((key.tci, key.ethertype, key.mac_source), (None, 0, [0; 6]));
        let key = read(&bytes, Detail::Ethernet).unwrap().key;
        assert_eq!((key.tci, key.ethertype, key.tos), (Some(0x6064), 0x0800, 0xb9));
        assert_eq!((key.mac_destination[5], key.mac_source[5]), (2, 1));
    }

    #[test]
    fn padding_does_not_count_and_a_wrong_length_does_not_matter() {
        let mut short = frame(&[], 0x0800, &ipv4(1, &[8, 0, 0, 0]));
        short.resize(60, 0);
        let facts = read(&short, Detail::Ipv4).unwrap();
        assert_eq!((facts.octets, facts.key.ports), (24, [0, 0x0800]));
        for stated in [[0, 0], [0xff, 0xff]] {
            short[16..18].copy_from_slice(&stated);
            assert_eq!(read(&short, Detail::Ipv4).unwrap().octets, 46);
        }
    }

    #[test]
    fn ipv6_and_others_are_read() {
        let bytes = frame(&[], 0x86dd, &ipv6(58, &[135, 1, 0, 0]));
        let facts = read(&bytes, Detail::Ethernet).unwrap();
        let key = facts.key;
        assert_eq!((facts.octets, key.ip_version, key.protocol, key.tos), (44, 6, 58, 0xb9));
        assert_eq!((key.ports, key.source[15], key.destination[15]), ([0, 135 << 8 | 1], 1, 2));
        assert!(read(&bytes, Detail::Ipv4).is_none());
        let facts = read(&frame(&[], 0x0806, &[0; 28]), Detail::Ethernet).unwrap();
        assert_eq!((facts.octets, facts.key.ip_version, facts.key.ethertype), (28, 0, 0x0806));
    }

    #[test]
    fn fragments_and_truncated_packets_have_no_ports() {
        let mut later = frame(&[], 0x0800, &ipv4(17, &[0x12; 16]));
        later[21] = 8;
        assert_eq!(read(&later, Detail::Ipv4).unwrap().key.ports, [0, 0]);
        let whole = frame(&[5], 0x86dd, &ipv6(6, &[0xff; 20]));
        for length in 0..whole.len() {
            let facts = read(&whole[..length], Detail::Ethernet).unwrap();
            assert!(facts.octets as usize <= length);
        }
    }
}
