//! Headers of a frame: Ethernet with up to two VLAN tags, IPv4 with options, IPv6 with extension headers, TCP, UDP and
//! ICMP.
//!
//! Offsets count from the frame's first byte. Lengths are checked, checksums are not. Any bytes can be parsed: reading
//! beyond the visible bytes, or beyond the length that an IP header announces, yields `Invalid`.

use crate::{Batch, Prefix};

/// EtherTypes.
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
const QINQ: u16 = 0x88a8;

/// Protocols over IP.
const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Most extension headers of a packet.
const MAX_EXTENSIONS: usize = 16;
/// Most visible bytes of a packet.
const MAX_VISIBLE: usize = 512;

/// Headers of a frame. See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// VLAN of the first tag.
    pub vlan: Option<u16>,
    /// VLAN of the second tag.
    pub inner_vlan: Option<u16>,
    /// EtherType behind the tags.
    pub ether_type: u16,
    /// Offset of the header behind the EtherType.
    pub network_at: usize,
    /// That header.
    pub network: Network,
    /// Header behind an IP header.
    pub transport: Transport,
}

/// Header behind the EtherType.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// ARP; its fields are not parsed.
    Arp,
    /// IPv4.
    Ipv4(Ipv4),
    /// IPv6.
    Ipv6(Ipv6),
    /// Any other protocol.
    Other,
    /// An IP header that contradicts itself, is incomplete or is not visible.
    Invalid,
}

/// An IPv4 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Time to live.
    pub ttl: u8,
    /// Protocol behind the header, such as 6 for TCP.
    pub protocol: u8,
    /// Length of the header with its options, bytes.
    pub header_len: usize,
    /// Offset of the packet's end, as the header announces it.
    pub end: usize,
    /// Place in a fragmented packet.
    pub fragment: Option<Fragment>,
}

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Hop limit.
    pub hop_limit: u8,
    /// Protocol behind the extension headers, such as 6 for TCP; of a later fragment and where `transport` is
    /// `Invalid`, it may be that of an extension header.
    pub protocol: u8,
    /// Length of the header with its extension headers, bytes.
    pub header_len: usize,
    /// Offset of the packet's end, as the header announces it.
    pub end: usize,
    /// Place in a fragmented packet.
    pub fragment: Option<Fragment>,
}

/// Place of a fragment in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in the packet, bytes; only the fragment at 0 has a transport header.
    pub offset: u16,
    /// Whether other fragments follow.
    pub more: bool,
}

/// Header behind an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// ICMP over IPv4, or ICMPv6.
    Icmp(Icmp),
    /// Any other protocol, or not IP.
    Other,
    /// None: the packet is a fragment that begins behind it.
    Fragment,
    /// A header that contradicts itself, is incomplete or is not visible.
    Invalid,
}

/// A TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Its offset.
    pub at: usize,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Flags: 1 FIN, 2 SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR.
    pub flags: u8,
    /// Its length with its options, bytes.
    pub header_len: usize,
}

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Its offset.
    pub at: usize,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// A header of ICMP or ICMPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmp {
    /// Its offset.
    pub at: usize,
    /// Type, such as 8 for an echo request of ICMP, or 128 of ICMPv6.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

impl Headers {
    /// Parses the visible bytes of a frame; `None` if the Ethernet header is incomplete.
    pub fn parse(frame: &[u8]) -> Option<Headers> {
        let (destination, source) = (bytes(frame, 0)?, bytes(frame, 6)?);
        let (mut at, mut vlans) = (12, [None; 2]);
        let mut ether_type = be16(frame, at)?;
        for vlan in &mut vlans {
            if !matches!(ether_type, VLAN | QINQ) {
                break;
            }
            *vlan = Some(be16(frame, at + 2)? & 0xfff);
            at += 4;
            ether_type = be16(frame, at)?;
        }
        let network_at = at + 2;
        let (network, transport) = match ether_type {
            IPV4 => ipv4(frame, network_at).unwrap_or((Network::Invalid, Transport::Invalid)),
            IPV6 => ipv6(frame, network_at).unwrap_or((Network::Invalid, Transport::Invalid)),
            ARP => (Network::Arp, Transport::Other),
            _ => (Network::Other, Transport::Other),
        };
        let [vlan, inner_vlan] = vlans;
        Some(Headers { destination, source, vlan, inner_vlan, ether_type, network_at, network, transport })
    }

    /// Source and destination address of an IP packet, as prefixes of full length.
    pub fn addresses(&self) -> Option<(Prefix, Prefix)> {
        match &self.network {
            Network::Ipv4(ip) => Some((Prefix::v4(ip.source, 32), Prefix::v4(ip.destination, 32))),
            Network::Ipv6(ip) => Some((Prefix::v6(ip.source, 128), Prefix::v6(ip.destination, 128))),
            _ => None,
        }
    }

    /// Source and destination port of a TCP or UDP packet.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.transport {
            Transport::Tcp(Tcp { source, destination, .. })
            | Transport::Udp(Udp { source, destination, .. }) => Some((source, destination)),
            _ => None,
        }
    }

    /// Place in a fragmented IP packet.
    pub fn fragment(&self) -> Option<Fragment> {
        match &self.network {
            Network::Ipv4(ip) => ip.fragment,
            Network::Ipv6(ip) => ip.fragment,
            _ => None,
        }
    }
}

impl Batch {
    /// Headers of a packet; `None` if its Ethernet header is incomplete. Makes up to 512 bytes visible where the first
    /// 128 do not contain all of them.
    pub fn headers(&mut self, packet: usize) -> Option<Headers> {
        let visible = self.header(packet);
        let (len, found) = (visible.len(), Headers::parse(visible));
        let is_cut = matches!(found, Some(Headers { transport: Transport::Invalid, .. }));
        if !is_cut || len >= MAX_VISIBLE.min(self.packet_len(packet)) {
            return found;
        }
        self.pull(packet, MAX_VISIBLE);
        Headers::parse(self.header(packet))
    }
}

fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    bytes(frame, at).map(u16::from_be_bytes)
}

fn ipv4(frame: &[u8], at: usize) -> Option<(Network, Transport)> {
    let [first, _, len0, len1, _, _, flags0, flags1, ttl, protocol] = bytes(frame, at)?;
    let (source, destination) = (bytes(frame, at + 12)?, bytes(frame, at + 16)?);
    let (header_len, len) = (usize::from(first & 15) * 4, usize::from(u16::from_be_bytes([len0, len1])));
    if first >> 4 != 4 || header_len < 20 || len < header_len || frame.len() < at + header_len {
        return None;
    }
    let flags = u16::from_be_bytes([flags0, flags1]);
    let (offset, more) = ((flags & 0x1fff) * 8, flags & 0x2000 != 0);
    let fragment = if more || offset != 0 { Some(Fragment { offset, more }) } else { None };
    let end = at + len;
    let transport = match offset {
        0 => transport(frame, at + header_len, end, protocol, ICMP),
        _ => Some(Transport::Fragment),
    };
    let ip = Ipv4 { source, destination, ttl, protocol, header_len, end, fragment };
    Some((Network::Ipv4(ip), transport.unwrap_or(Transport::Invalid)))
}

fn ipv6(frame: &[u8], at: usize) -> Option<(Network, Transport)> {
    let [first, _, _, _, len0, len1, protocol, hop_limit] = bytes(frame, at)?;
    let (source, destination) = (bytes(frame, at + 8)?, bytes(frame, at + 24)?);
    if first >> 4 != 6 {
        return None;
    }
    let end = at + 40 + usize::from(u16::from_be_bytes([len0, len1]));
    let mut chain = Chain { protocol, at: at + 40, fragment: None };
    let transport = match chain.follow(frame, end) {
        Some(()) if matches!(chain.fragment, Some(Fragment { offset: 1.., .. })) => Some(Transport::Fragment),
        Some(()) => transport(frame, chain.at, end, chain.protocol, ICMPV6),
        None => None,
    };
    let (protocol, header_len, fragment) = (chain.protocol, chain.at - at, chain.fragment);
    let ip = Ipv6 { source, destination, hop_limit, protocol, header_len, end, fragment };
    Some((Network::Ipv6(ip), transport.unwrap_or(Transport::Invalid)))
}

/// A position among IPv6 extension headers.
struct Chain {
    /// Protocol of the header at `at`.
    protocol: u8,
    at: usize,
    fragment: Option<Fragment>,
}

impl Chain {
    /// Skips extension headers that are visible and end at `end` at the latest; `None` if one is not or does not.
    fn follow(&mut self, frame: &[u8], end: usize) -> Option<()> {
        for _ in 0..MAX_EXTENSIONS {
            let [next, units] = match self.protocol {
                HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY | HIP
                | SHIM6 => bytes(frame, self.at)?,
                _ => return Some(()),
            };
            let len = match self.protocol {
                FRAGMENT => 8,
                AUTHENTICATION => (usize::from(units) + 2) * 4,
                _ => (usize::from(units) + 1) * 8,
            };
            let behind = self.at + len;
            if behind > end.min(frame.len()) {
                return None;
            }
            if self.protocol == FRAGMENT {
                let place = be16(frame, self.at + 2)?;
                self.fragment = Some(Fragment { offset: place & 0xfff8, more: place & 1 != 0 });
            }
            self.at = behind;
            self.protocol = next;
            if matches!(self.fragment, Some(Fragment { offset: 1.., .. })) {
                return Some(());
            }
        }
        None
    }
}

/// Parses the header of a protocol over IP, whose packet ends at `end`; `icmp` is the protocol that counts as ICMP.
fn transport(frame: &[u8], at: usize, end: usize, protocol: u8, icmp: u8) -> Option<Transport> {
    let needed = match protocol {
        TCP => 20,
        UDP => 8,
        // RFC 792: all messages have 8 bytes. RFC 4443: the common part has 4.
        ICMP if icmp == ICMP => 8,
        ICMPV6 if icmp == ICMPV6 => 4,
        _ => return Some(Transport::Other),
    };
    if at + needed > end || at + needed > frame.len() {
        return None;
    }
    let [b0, b1, b2, b3] = bytes(frame, at)?;
    let (source, destination) = (u16::from_be_bytes([b0, b1]), u16::from_be_bytes([b2, b3]));
    Some(match protocol {
        TCP => {
            let [offset, flags] = bytes(frame, at + 12)?;
            let header_len = usize::from(offset >> 4) * 4;
            if header_len < 20 || at + header_len > end {
                return None;
            }
            Transport::Tcp(Tcp { at, source, destination, flags, header_len })
        }
        UDP => Transport::Udp(Udp { at, source, destination }),
        _ => Transport::Icmp(Icmp { at, kind: b0, code: b1 }),
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

    fn ethernet(types: &[u16], rest: &[u8]) -> Vec<u8> {
        let types = types.iter().flat_map(|word| word.to_be_bytes());
        MACS.iter().copied().chain(types).chain(rest.iter().copied()).collect()
    }

    /// An IPv4 packet with these words of options, flags and fragment offset.
    fn v4(protocol: u8, options: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let len = (20 + usize::from(options) * 4 + payload.len()) as u16;
        let mut packet = vec![0x45 + options, 0];
        packet.extend(len.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(vec![1; usize::from(options) * 4]);
        packet.extend(payload);
        packet
    }

    fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([next, 63]);
        packet.extend([1; 16]);
        packet.extend([2; 16]);
        packet.extend(payload);
        packet
    }

    fn tcp(words: u8) -> Vec<u8> {
        let mut header = vec![0x30, 0x39, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, words << 4, 2];
        header.resize(usize::from(words.max(5)) * 4, 0);
        header
    }

    const UDP_HEADER: [u8; 8] = [0, 53, 0x12, 0x34, 0, 8, 0, 0];

    fn parse(frame: &[u8]) -> Headers {
        Headers::parse(frame).unwrap()
    }

    #[test]
    fn tags_and_other_protocols() {
        let arp = parse(&ethernet(&[ARP], &[0; 28]));
        assert_eq!((arp.network, arp.transport, arp.network_at), (Network::Arp, Transport::Other, 14));
        assert_eq!((arp.destination, arp.source), ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]));
        let one = parse(&ethernet(&[VLAN, 0xa00a, ARP], &[]));
        assert_eq!((one.vlan, one.inner_vlan, one.network_at), (Some(10), None, 18));
        let two = parse(&ethernet(&[QINQ, 100, VLAN, 7, IPV4], &v4(UDP, 0, 0, &UDP_HEADER)));
        assert_eq!((two.vlan, two.inner_vlan, two.network_at), (Some(100), Some(7), 22));
        assert_eq!(two.transport, Transport::Udp(Udp { at: 42, source: 53, destination: 0x1234 }));
        let three = parse(&ethernet(&[QINQ, 1, VLAN, 2, VLAN, 3, IPV4], &v4(UDP, 0, 0, &UDP_HEADER)));
        assert_eq!((three.ether_type, three.network), (VLAN, Network::Other));
        for cut in [&MACS[..], &ethernet(&[VLAN], &[]), &ethernet(&[VLAN, 1, QINQ, 2], &[])] {
            assert_eq!(Headers::parse(cut), None);
        }
    }

    #[test]
    fn ipv4_with_options_and_fragments() {
        let found = parse(&ethernet(&[IPV4], &v4(TCP, 2, 0x4000, &tcp(6))));
        let flags = Tcp { at: 42, source: 12345, destination: 80, flags: 2, header_len: 24 };
        assert_eq!((found.transport, found.fragment()), (Transport::Tcp(flags), None));
        assert_eq!(found.ports(), Some((12345, 80)));
        let (from, to) = found.addresses().unwrap();
        assert_eq!((from, to), (Prefix::v4([10, 0, 0, 1], 32), Prefix::v4([10, 0, 0, 2], 32)));
        let first = parse(&ethernet(&[IPV4], &v4(UDP, 0, 0x2000, &UDP_HEADER)));
        assert_eq!(first.fragment(), Some(Fragment { offset: 0, more: true }));
        assert_eq!(first.ports(), Some((53, 0x1234)));
        let later = parse(&ethernet(&[IPV4], &v4(UDP, 0, 0x1fff, &UDP_HEADER)));
        assert_eq!(later.fragment(), Some(Fragment { offset: 65528, more: false }));
        assert_eq!((later.transport, later.ports()), (Transport::Fragment, None));
        let echo = parse(&ethernet(&[IPV4], &v4(ICMP, 0, 0, &[8, 1, 0, 0, 0, 0, 0, 0])));
        assert_eq!(echo.transport, Transport::Icmp(Icmp { at: 34, kind: 8, code: 1 }));
        assert_eq!(parse(&ethernet(&[IPV4], &v4(ICMPV6, 0, 0, &[0; 8]))).transport, Transport::Other);
    }

    #[test]
    fn wrong_lengths_are_invalid() {
        let transport = |packet: &[u8]| parse(&ethernet(&[IPV4], packet)).transport;
        // Bytes behind the announced end are padding.
        let mut short = v4(TCP, 0, 0, &tcp(5));
        short[3] = 39;
        assert_eq!(transport(&short), Transport::Invalid);
        assert_eq!(transport(&v4(TCP, 0, 0, &tcp(4))), Transport::Invalid);
        let mut long = v4(TCP, 0, 0, &tcp(5));
        long[32] = 0x60;
        assert_eq!(transport(&long), Transport::Invalid);
        let udp = v4(UDP, 0, 0, &UDP_HEADER);
        for (at, byte) in [(0, 0x44), (0, 0x65), (3, 19), (0, 0x4f)] {
            let mut wrong = udp.clone();
            wrong[at] = byte;
            assert_eq!(parse(&ethernet(&[IPV4], &wrong)).network, Network::Invalid, "{at} {byte}");
        }
        assert_eq!(parse(&ethernet(&[IPV6], &udp)).network, Network::Invalid);
    }

    #[test]
    fn ipv6_with_extension_headers() {
        let chain = [
            &[ROUTING, 0, 0, 0, 0, 0, 0, 0][..],
            &[DESTINATION_OPTIONS, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[AUTHENTICATION, 0, 0, 0, 0, 0, 0, 0],
            &[FRAGMENT, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[UDP, 0, 0, 1, 0, 0, 0, 0],
            &UDP_HEADER,
        ];
        let found = parse(&ethernet(&[IPV6], &v6(HOP_BY_HOP, &chain.concat())));
        assert_eq!(
            found.transport,
            Transport::Udp(Udp { at: 14 + 40 + 52, source: 53, destination: 0x1234 })
        );
        assert_eq!(found.fragment(), Some(Fragment { offset: 0, more: true }));
        match found.network {
            Network::Ipv6(ip) => assert_eq!((ip.protocol, ip.header_len, ip.end), (UDP, 92, 14 + 40 + 60)),
            other => panic!("{other:?}"),
        }
        let later = [&[UDP, 0, 0, 8, 0, 0, 0, 0][..], &UDP_HEADER].concat();
        let later = parse(&ethernet(&[IPV6], &v6(FRAGMENT, &later)));
        assert_eq!((later.transport, later.fragment().unwrap().offset), (Transport::Fragment, 8));
        let icmp = parse(&ethernet(&[IPV6], &v6(ICMPV6, &[128, 0, 0, 0])));
        assert_eq!(icmp.transport, Transport::Icmp(Icmp { at: 54, kind: 128, code: 0 }));
        assert_eq!(parse(&ethernet(&[IPV6], &v6(59, &[]))).transport, Transport::Other);
        // An extension header beyond the end, and too many of them.
        let cut = parse(&ethernet(&[IPV6], &v6(HOP_BY_HOP, &[UDP, 9, 0, 0, 0, 0, 0, 0])));
        assert_eq!(cut.transport, Transport::Invalid);
        assert_eq!(cut.addresses().unwrap().1, Prefix::v6([2; 16], 128));
        let endless = parse(&ethernet(&[IPV6], &v6(HOP_BY_HOP, &[0; 8 * 32])));
        assert_eq!(endless.transport, Transport::Invalid);
    }

    /// Offset behind the last header that was found.
    fn end(found: &Headers) -> usize {
        let ip = match found.network {
            Network::Ipv4(Ipv4 { header_len, .. }) | Network::Ipv6(Ipv6 { header_len, .. }) => {
                found.network_at + header_len
            }
            _ => found.network_at,
        };
        match found.transport {
            Transport::Tcp(tcp) => tcp.at + 20,
            Transport::Udp(udp) => udp.at + 8,
            Transport::Icmp(icmp) => icmp.at + 4,
            _ => ip,
        }
    }

    #[test]
    fn random_frames_are_parsed_within_their_bounds() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let types = [IPV4, IPV6, ARP, VLAN, QINQ, 0];
        let protocols =
            [HOP_BY_HOP, ICMP, TCP, UDP, ROUTING, FRAGMENT, AUTHENTICATION, ICMPV6, DESTINATION_OPTIONS, 59];
        let mut valid = 0;
        for _ in 0..200_000 {
            let mut frame: Vec<u8> = (0..random() % 160).map(|_| random() as u8).collect();
            // Plausible types, versions and protocols make the parser go further.
            let mut at = 12;
            for _ in 0..random() % 3 {
                if let Some(place) = frame.get_mut(at..at + 2) {
                    place.copy_from_slice(&[VLAN, QINQ][random() % 2].to_be_bytes());
                }
                at += 4;
            }
            let ether_type = types[random() % types.len()];
            if let Some(place) = frame.get_mut(at..at + 2) {
                place.copy_from_slice(&ether_type.to_be_bytes());
            }
            let (version, next) = if ether_type == IPV4 { (0x45 + random() % 4, 9) } else { (0x60, 6) };
            let len = at + 2 + if ether_type == IPV4 { 2 } else { 4 };
            for (place, byte) in [
                (at + 2, version as u8),
                (at + 2 + next, protocols[random() % protocols.len()]),
                (at + 42, protocols[random() % protocols.len()]),
                (at + 43, (random() % 4) as u8),
                (len, 0),
                (len + 1, 20 + (random() % 140) as u8),
            ] {
                if let Some(place) = frame.get_mut(place) {
                    *place = byte;
                }
            }
            let whole = Headers::parse(&frame);
            for visible in [frame.len(), random() % (frame.len() + 1), frame.len().saturating_sub(1)] {
                let found = match Headers::parse(&frame[..visible]) {
                    Some(found) => found,
                    None => continue,
                };
                assert!(end(&found) <= visible, "{found:?} of {visible} bytes: {frame:?}");
                if found.transport != Transport::Invalid {
                    valid += usize::from(found.ports().is_some());
                    assert_eq!(Some(found), whole, "more visible bytes change nothing: {frame:?}");
                }
            }
        }
        assert!(valid > 1000, "{valid}");
    }
}
