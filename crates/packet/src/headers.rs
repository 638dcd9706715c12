//! Offsets of a frame's layers, found in one pass (IEEE 802.1Q §9, RFC 791 §3.1, RFC 8200 §3 and §4).
//!
//! Parsing never fails. A truncated, malformed or unknown layer is `None`, and so are all layers after it.
//!
//! Invariants: every offset that is `Some` lies within the frame; the walk visits at most two tags and eight IPv6
//! extension headers. Lengths stated by the headers (IPv4 total length, ...) are not compared with the frame's, which
//! may be only the front of a packet.

use crate::bytes::{be16, chunk};
use crate::ether::{ADDRESSES_LEN, EtherType, HEADER_LEN, VLAN_TAG_LEN};

/// Protocol numbers of transport protocols (RFC 791 §3.1 "Protocol", RFC 8200 §3 "Next Header").
pub mod protocol {
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// IGMP (RFC 2236).
    pub const IGMP: u8 = 2;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// DCCP (RFC 4340).
    pub const DCCP: u8 = 33;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: u8 = 136;
}

/// Length of an IPv4 header without options (RFC 791 §3.1).
pub const IPV4_MIN_LEN: usize = 20;

/// Length of an IPv6 header without extension headers (RFC 8200 §3).
pub const IPV6_LEN: usize = 40;

const MAX_VLAN_TAGS: u8 = 2;
const MAX_EXTENSIONS: usize = 8;

// Next-header values of the IPv6 extension headers that the walk handles (RFC 8200 §4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;

/// The version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// The layers of a frame. Offsets count from the frame's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Length of the Ethernet header with its VLAN tags (IEEE 802.3 §3.2, IEEE 802.1Q §9.5): the offset of a payload of
    /// any type. 0 if the frame ends before.
    pub l2_len: u16,
    /// Number of VLAN tags, TPID 0x8100 or 0x88a8, that `l2_len` includes: at most two.
    pub vlan_tags: u8,
    /// The type after the tags. `None` if the frame ends before, or has a length there (IEEE 802.3 §3.2.6).
    pub ethertype: Option<EtherType>,
    /// The version of the IP header; `Some` if and only if `l3` is.
    pub ip: Option<IpVersion>,
    /// Offset of a complete IP header, IPv4 options included, whose version matches the type.
    pub l3: Option<u16>,
    /// The transport protocol announced by the IPv4 header or the last IPv6 extension header. `None` if the extension
    /// headers are truncated or too many.
    pub protocol: Option<u8>,
    /// Offset of the transport header, whose first byte at least is present. `None` for all fragments but the first.
    pub l4: Option<u16>,
    /// Whether this is a fragment of a packet, the first one included; any IPv6 packet with a fragment header counts as
    /// one.
    pub fragment: bool,
}

impl Layers {
    /// Finds the layers of `frame`, which may be only the front of a longer packet.
    #[inline]
    pub fn parse(frame: &[u8]) -> Self {
        let mut layers = Self::default();
        // `None` only means that the walk ended early: `layers` has all that it found until then.
        let _ = layers.walk(frame);
        layers
    }

    #[inline]
    fn walk(&mut self, frame: &[u8]) -> Option<()> {
        let mut ethertype = EtherType(be16(frame, ADDRESSES_LEN)?);
        let mut at = HEADER_LEN;
        let mut tags = 0;
        while tags < MAX_VLAN_TAGS && ethertype.is_vlan() {
            ethertype = EtherType(be16(frame, at + 2)?);
            at += VLAN_TAG_LEN;
            tags += 1;
        }
        self.vlan_tags = tags;
        self.l2_len = u16::try_from(at).ok()?;
        if ethertype < EtherType::FIRST {
            return None;
        }
        self.ethertype = Some(ethertype);
        match ethertype {
            EtherType::IPV4 => self.ipv4(frame, at),
            EtherType::IPV6 => self.ipv6(frame, at),
            _ => None,
        }
    }

    /// Parses the IPv4 header (RFC 791 §3.1).
    #[inline]
    fn ipv4(&mut self, frame: &[u8], l3: usize) -> Option<()> {
        let header = chunk::<IPV4_MIN_LEN>(frame, l3)?;
        let length = usize::from(header[0] & 0x0f) * 4;
        let l4 = l3 + length;
        if header[0] >> 4 != 4 || length < IPV4_MIN_LEN || l4 > frame.len() {
            return None;
        }
        self.ip = Some(IpVersion::V4);
        self.l3 = Some(self.l2_len);
        self.protocol = Some(header[9]);
        let fragmentation = u16::from_be_bytes([header[6], header[7]]);
        // "More fragments" or an offset makes a fragment; only an offset means that the transport header is elsewhere.
        self.fragment = fragmentation & 0x3fff != 0;
        if fragmentation & 0x1fff == 0 {
            self.transport(frame, l4)?;
        }
        Some(())
    }

    /// Parses the IPv6 header and its extension headers (RFC 8200 §3, §4).
    #[inline]
    fn ipv6(&mut self, frame: &[u8], l3: usize) -> Option<()> {
        let header = chunk::<IPV6_LEN>(frame, l3)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.ip = Some(IpVersion::V6);
        self.l3 = Some(self.l2_len);
        let mut next = header[6];
        let mut at = l3 + IPV6_LEN;
        for _ in 0..=MAX_EXTENSIONS {
            match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    let [following, length] = *chunk(frame, at)?;
                    next = following;
                    at += (usize::from(length) + 1) * 8;
                }
                FRAGMENT => {
                    self.fragment = true;
                    let [following, _, high, low, ..] = *chunk::<8>(frame, at)?;
                    next = following;
                    at += 8;
                    if u16::from_be_bytes([high, low]) >> 3 != 0 {
                        self.protocol = Some(next);
                        return None;
                    }
                }
                NO_NEXT_HEADER => {
                    self.protocol = Some(next);
                    return None;
                }
                _ => {
                    self.protocol = Some(next);
                    return self.transport(frame, at);
                }
            }
        }
        None
    }

    #[inline]
    fn transport(&mut self, frame: &[u8], l4: usize) -> Option<()> {
        if l4 < frame.len() {
            self.l4 = Some(u16::try_from(l4).ok()?);
        }
        Some(())
    }
}

/// A fragment of a packet (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The identification, which all fragments of the packet share.
    pub id: u32,
    /// Whether it begins the packet. Its transport header may still be in a later fragment.
    pub is_first: bool,
}

impl Fragment {
    /// Finds the fragment in a frame with these layers. `None` if it is none, is truncated, or holds fragments itself:
    /// no sender has a reason to fragment twice, and only one identification would be known.
    pub fn of(frame: &[u8], layers: &Layers) -> Option<Self> {
        let l3 = usize::from(layers.l3?);
        match layers.ip? {
            IpVersion::V4 => {
                let is_first = be16(frame, l3 + 6)? & 0x1fff == 0;
                layers.fragment.then_some(Self { id: be16(frame, l3 + 4)?.into(), is_first })
            }
            IpVersion::V6 => Self::of_ipv6(frame, l3),
        }
    }

    fn of_ipv6(frame: &[u8], l3: usize) -> Option<Self> {
        let (mut next, mut at) = (*frame.get(l3 + 6)?, l3 + IPV6_LEN);
        let mut found: Option<Self> = None;
        for _ in 0..=MAX_EXTENSIONS {
            match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    let Some([following, length]) = chunk(frame, at) else { break };
                    next = *following;
                    at += (usize::from(*length) + 1) * 8;
                }
                FRAGMENT if found.is_some() => return None,
                FRAGMENT => {
                    let [following, _, high, low, id @ ..] = *chunk::<8>(frame, at)?;
                    let is_first = u16::from_be_bytes([high, low]) >> 3 == 0;
                    found = Some(Self { id: u32::from_be_bytes(id), is_first });
                    if !is_first {
                        break;
                    }
                    next = following;
                    at += 8;
                }
                _ => break,
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(types: &[u16], rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        for (i, ethertype) in types.iter().enumerate() {
            if i > 0 {
                frame.extend([0, 5]);
            }
            frame.extend(ethertype.to_be_bytes());
        }
        frame.extend(rest);
        frame
    }

    fn ipv4(words: u8, fragmentation: u16, protocol: u8) -> Vec<u8> {
        let mut header = vec![0; usize::from(words) * 4];
        header[0] = 0x40 | words;
        header[6..8].copy_from_slice(&fragmentation.to_be_bytes());
        header[9] = protocol;
        header
    }

    fn ipv6(next: u8) -> Vec<u8> {
        let mut header = vec![0; 40];
        (header[0], header[6]) = (0x60, next);
        header
    }

    #[test]
    fn tags_are_counted_up_to_two() {
        let udp = [ipv4(5, 0x4000, 17), vec![0; 8]].concat();
        for (types, tags, l2_len) in
            [(&[0x0800][..], 0, 14), (&[0x8100, 0x0800], 1, 18), (&[0x88a8, 0x8100, 0x0800], 2, 22)]
        {
            let layers = Layers::parse(&frame(types, &udp));
            let expected = Layers {
                l2_len,
                vlan_tags: tags,
                ethertype: Some(EtherType::IPV4),
                ip: Some(IpVersion::V4),
                l3: Some(l2_len),
                protocol: Some(17),
                l4: Some(l2_len + 20),
                fragment: false,
            };
            assert_eq!(layers, expected);
        }
        let layers = Layers::parse(&frame(&[0x8100, 0x8100, 0x8100, 0x0800], &udp));
        assert_eq!((layers.l2_len, layers.ethertype, layers.l3), (22, Some(EtherType::VLAN), None));
    }

    #[test]
    fn other_types() {
        let arp = Layers::parse(&frame(&[0x0806], &[0; 28]));
        assert_eq!((arp.l2_len, arp.ethertype, arp.l3), (14, Some(EtherType::ARP), None));
        let llc = Layers::parse(&frame(&[0x0026], &[0x42; 38]));
        assert_eq!((llc.l2_len, llc.ethertype), (14, None));
        assert_eq!(Layers::parse(&[0; 13]), Layers::default());
        assert_eq!(Layers::parse(&frame(&[0x8100], &[0, 5, 8])), Layers::default());
    }

    #[test]
    fn ipv4_options_and_fragments() {
        let parse = |ip: &[u8]| Layers::parse(&frame(&[0x0800], ip));
        let options = parse(&[ipv4(7, 0, 6), vec![0; 20]].concat());
        assert_eq!((options.l3, options.l4, options.fragment), (Some(14), Some(42), false));
        let first = parse(&[ipv4(5, 0x2000, 6), vec![0; 20]].concat());
        assert_eq!((first.l4, first.fragment), (Some(34), true));
        let later = parse(&[ipv4(5, 0x0001, 6), vec![0; 20]].concat());
        assert_eq!((later.ip, later.l4, later.fragment), (Some(IpVersion::V4), None, true));
        assert_eq!(parse(&ipv4(5, 0, 6)).l4, None, "no byte after the header");
        assert_eq!(parse(&ipv4(7, 0, 6)[..27]).ip, None, "options truncated");
        let mut wrong = ipv4(5, 0, 6);
        wrong[0] = 0x44;
        assert_eq!(parse(&wrong).ip, None, "header length below the minimum");
        wrong[0] = 0x65;
        assert_eq!(parse(&wrong).ip, None, "version does not match the type");
    }

    #[test]
    fn ipv6_extension_headers() {
        let parse = |ip: &[u8]| Layers::parse(&frame(&[0x86dd], ip));
        let plain = parse(&[ipv6(6), vec![0; 20]].concat());
        assert_eq!((plain.protocol, plain.l4), (Some(6), Some(54)));

        // Hop-by-hop of 8 bytes, routing of 24, destination options of 16, then UDP.
        let mut chain = ipv6(0);
        chain.extend([43, 0, 0, 0, 0, 0, 0, 0]);
        chain.extend([60, 2].into_iter().chain([0; 22]));
        chain.extend([17, 1].into_iter().chain([0; 14]));
        chain.extend([0; 8]);
        let layers = parse(&chain);
        assert_eq!((layers.protocol, layers.l4, layers.fragment), (Some(17), Some(14 + 40 + 48), false));
        let cut = parse(&chain[..40 + 8 + 24]);
        assert_eq!((cut.ip, cut.protocol, cut.l4), (Some(IpVersion::V6), None, None));

        let first = parse(&[ipv6(44), vec![17, 0, 0, 1, 0, 0, 0, 9], vec![0; 8]].concat());
        assert_eq!((first.protocol, first.l4, first.fragment), (Some(17), Some(62), true));
        let later = parse(&[ipv6(44), vec![17, 0, 0, 8, 0, 0, 0, 9], vec![0; 8]].concat());
        assert_eq!((later.protocol, later.l4, later.fragment), (Some(17), None, true));
        let nothing = parse(&[ipv6(59), vec![0; 8]].concat());
        assert_eq!((nothing.protocol, nothing.l4), (Some(59), None));
    }

    #[test]
    fn fragments_are_identified() {
        let find = |kind: u16, ip: &[u8]| {
            let frame = frame(&[kind], ip);
            Fragment::of(&frame, &Layers::parse(&frame))
        };
        let v4 = |fragmentation| {
            let mut ip = ipv4(5, fragmentation, 17);
            ip[4..6].copy_from_slice(&[1, 2]);
            find(0x0800, &ip)
        };
        assert_eq!(v4(0x4000), None);
        assert_eq!(v4(0x2000), Some(Fragment { id: 0x102, is_first: true }));
        assert_eq!(v4(0x0003), Some(Fragment { id: 0x102, is_first: false }));
        let v6 = |next: u8, headers: &[[u8; 8]]| find(0x86dd, &[&ipv6(next)[..], &headers.concat()].concat());
        let (first, later) = ([17, 0, 0, 1, 0, 0, 1, 9], [17, 0, 0, 8, 0, 0, 1, 9]);
        let options = [44, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(v6(17, &[[0; 8]]), None);
        assert_eq!(v6(60, &[options, first]), Some(Fragment { id: 0x109, is_first: true }));
        assert_eq!(v6(44, &[later, first]), Some(Fragment { id: 0x109, is_first: false }));
        // Fragments within a fragment, also behind options.
        let outer = |next: u8| [next, 0, 0, 1, 0, 0, 0, 9];
        for inner in [first, later] {
            assert_eq!(v6(44, &[outer(44), inner]), None);
            assert_eq!(v6(44, &[outer(60), options, inner]), None);
        }
        // The first fragment ends before the transport header.
        assert_eq!(v6(44, &[outer(60)]), Some(Fragment { id: 9, is_first: true }));
    }

    #[test]
    fn the_walk_is_bounded() {
        let chain = |n: usize| {
            let mut ip = ipv6(60);
            for i in 0..n {
                ip.extend([if i + 1 == n { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            ip.extend([0; 8]);
            Layers::parse(&frame(&[0x86dd], &ip)).protocol
        };
        assert_eq!(chain(MAX_EXTENSIONS), Some(17));
        assert_eq!(chain(MAX_EXTENSIONS + 1), None);
    }

    proptest! {
        #[test]
        fn offsets_lie_within_any_frame(
            ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88a8, 0x0806]),
            version in prop::sample::select(vec![0x45u8, 0x46, 0x60, 0x40]),
            next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 60]),
            mut rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(byte) = rest.first_mut() {
                *byte = version;
            }
            if let Some(byte) = rest.get_mut(6) {
                *byte = next;
            }
            let frame = frame(&[ethertype], &rest);
            let layers = Layers::parse(&frame);
            prop_assert!(Fragment::of(&frame, &layers).is_none() || layers.fragment);
            prop_assert_eq!(layers.l3.is_some(), layers.ip.is_some());
            for offset in [Some(layers.l2_len), layers.l3, layers.l4].into_iter().flatten() {
                prop_assert!(usize::from(offset) <= frame.len());
            }
            if let (Some(l3), Some(l4)) = (layers.l3, layers.l4) {
                prop_assert!(l3 + 20 <= l4 && usize::from(l4) < frame.len());
            }
        }
    }
}
