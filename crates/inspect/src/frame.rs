//! A frame's flow and payload, found in its private header.
//!
//! VLAN tags are skipped, and so are carriers of line cards: EtherType 0x88b6, behind which an inner frame follows
//! (docs/line-cards.md). The payload ends where the IP header says.
//!
//! Invariants: parsing never fails; the payload lies within the packet. A packet whose lengths contradict each other,
//! or that hides its transport header, has a payload, too: all that is behind the last header that can be read.

use packet::headers::{Fragment, IPV4_MIN_LEN, IPV6_LEN, IpVersion, protocol};
use packet::{Layers, VlanTag};

use crate::rule::Transport;

/// EtherType of carriers between line cards.
const CARRIER: u16 = 0x88b6;

/// Carriers around a frame that are looked into.
const MOST_CARRIERS: usize = 2;

/// Length of a TCP header without options (RFC 9293 §3.1), and of a UDP header (RFC 768).
const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;

/// A flow: both directions of a VLAN and a 5-tuple. The ends are in order: the first has the lower address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Addresses of both ends; those of IPv4 as IPv6 has them (RFC 4291 §2.5.5.2).
    pub(crate) ends: [u128; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    /// VLANs of up to two tags, 12 bits each.
    pub(crate) vlan: u32,
}

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A TCP segment: the sequence number of its first byte, and whether a SYN is in front of it.
    Segment {
        /// Sequence number of the payload's first byte.
        seq: u32,
        /// Whether the segment begins the stream.
        syn: bool,
    },
    /// A UDP datagram.
    Datagram,
    /// A fragment of a packet.
    Fragment(FragmentOf),
    /// A packet whose lengths contradict each other, or whose transport header cannot be read.
    Odd,
}

/// The packet that a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FragmentOf {
    addresses: [u128; 2],
    id: u32,
    protocol: u8,
    vlan: u32,
}

/// A packet of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Its flow; `None` if the packet does not show its ports.
    pub(crate) key: Option<Key>,
    /// Which of the flow's ends sent it.
    pub(crate) direction: usize,
    pub(crate) transport: Transport,
    pub(crate) kind: Kind,
    /// Its payload: bytes `start..end` of the packet.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl View {
    /// Finds the payload of a packet of `len` bytes that begins with `header`. `vid` is the VLAN that the switch puts
    /// the frame in, whatever its outer tag; `None`: that of the tag. Returns `None` for all that is neither TCP nor
    /// UDP.
    pub(crate) fn of(header: &[u8], len: usize, vid: Option<u16>) -> Option<Self> {
        let (mut base, mut vlan) = (0, Vlans::new(vid));
        let mut frame = header;
        let mut layers = Layers::parse(frame);
        vlan.add(frame, &layers);
        for _ in 0..MOST_CARRIERS {
            if layers.ethertype.is_none_or(|kind| kind.0 != CARRIER) {
                break;
            }
            base += usize::from(layers.l2_len);
            frame = header.get(base..)?;
            layers = Layers::parse(frame);
            vlan.add(frame, &layers);
        }
        of_ip(frame, &layers, len.saturating_sub(base), vlan.vlan).map(|view| Self {
            start: view.start + base,
            end: view.end + base,
            ..view
        })
    }

    /// Length of the payload.
    pub(crate) fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// VLANs of the tags met so far.
struct Vlans {
    vlan: u32,
    /// The VLAN in place of the first tag's.
    outer: Option<u16>,
}

impl Vlans {
    fn new(outer: Option<u16>) -> Self {
        Self { vlan: u32::from(outer.unwrap_or(0)), outer }
    }

    fn add(&mut self, frame: &[u8], layers: &Layers) {
        for tag in 0..usize::from(layers.vlan_tags) {
            let Some(tci) = be16(frame, 14 + 4 * tag) else { return };
            // The switch has its own idea of the outer tag of type 0x8100.
            if self.outer.take().is_some() && be16(frame, 12) == Some(0x8100) {
                continue;
            }
            self.vlan = (self.vlan << 12 | u32::from(VlanTag::from_tci(tci).vid)) & 0xff_ffff;
        }
    }
}

/// Finds the payload of an IP packet in a frame of `len` bytes.
fn of_ip(frame: &[u8], layers: &Layers, len: usize, vlan: u32) -> Option<View> {
    let l3 = usize::from(layers.l3?);
    let version = layers.ip?;
    let (addresses, stated, header_len) = match version {
        // RFC 791 §3.1: total length at byte 2, addresses from byte 12.
        IpVersion::V4 => {
            let total = usize::from(be16(frame, l3 + 2)?);
            let address = |at: usize| {
                let bytes: [u8; 4] = *frame.get(at..)?.first_chunk()?;
                Some(std::net::Ipv4Addr::from(bytes).to_ipv6_mapped().to_bits())
            };
            let header_len = usize::from(frame.get(l3)? & 0x0f) * 4;
            ([address(l3 + 12)?, address(l3 + 16)?], total, header_len.max(IPV4_MIN_LEN))
        }
        // RFC 8200 §3: payload length at byte 4, addresses from byte 8.
        IpVersion::V6 => {
            let payload = usize::from(be16(frame, l3 + 4)?);
            let address = |at: usize| Some(u128::from_be_bytes(*frame.get(at..)?.first_chunk()?));
            ([address(l3 + 8)?, address(l3 + 24)?], payload + IPV6_LEN, IPV6_LEN)
        }
    };
    let behind = (l3 + header_len).min(len);
    let hidden = View {
        key: None,
        direction: 0,
        transport: Transport { protocol: None, ports: None },
        kind: Kind::Odd,
        start: behind,
        end: len,
    };
    // More extension headers than are read, or cut off.
    let Some(protocol) = layers.protocol else { return Some(hidden) };
    if !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let end = l3 + stated;
    let is_odd = stated < header_len || end > len;
    let end = if is_odd { len } else { end };
    let fragment = match layers.fragment {
        false => None,
        true => match Fragment::of(frame, layers) {
            Some(fragment) => Some(FragmentOf { addresses, id: fragment.id, protocol, vlan }),
            // Fragments within a fragment.
            None => return Some(hidden),
        },
    };
    let Some(l4) = layers.l4.map(usize::from) else {
        let transport = Transport { protocol: Some(protocol), ports: None };
        return Some(match fragment {
            Some(of) => View { transport, kind: Kind::Fragment(of), end, ..hidden },
            None => View { transport, end, ..hidden },
        });
    };
    let ports = be16(frame, l4).zip(be16(frame, l4 + 2)).filter(|_| l4 + 4 <= end);
    let Some(ports) = ports.map(|(from, to)| [from, to]) else {
        let kind = fragment.map_or(Kind::Odd, Kind::Fragment);
        return Some(View { start: l4.min(end), end, kind, ..hidden });
    };
    let mut sides = [(addresses[0], ports[0]), (addresses[1], ports[1])];
    let direction = usize::from(sides[0] > sides[1]);
    sides.sort();
    let key = Key { ends: sides.map(|(end, _)| end), ports: sides.map(|(_, port)| port), protocol, vlan };
    let transport = Transport { protocol: Some(protocol), ports: Some(ports) };
    let rest = (l4 + 4).min(end);
    let (kind, start) = match protocol {
        protocol::TCP => segment(frame, l4, end),
        _ => datagram(frame, l4, end, fragment.is_some()),
    }
    .unwrap_or((Kind::Odd, rest));
    let kind = match fragment {
        Some(of) => Kind::Fragment(of),
        None if is_odd => Kind::Odd,
        None => kind,
    };
    Some(View { key: Some(key), direction, transport, kind, start, end })
}

/// Reads a TCP header (RFC 9293 §3.1); `None` if it does not fit.
fn segment(frame: &[u8], l4: usize, end: usize) -> Option<(Kind, usize)> {
    let header = frame.get(l4..)?.first_chunk::<TCP_LEN>()?;
    let [_, _, _, _, a, b, c, d, _, _, _, _, offset, flags, ..] = *header;
    let len = usize::from(offset >> 4) * 4;
    let start = l4 + len;
    if len < TCP_LEN || start > end {
        return None;
    }
    let syn = flags & 0x02 != 0;
    let seq = u32::from_be_bytes([a, b, c, d]).wrapping_add(syn.into());
    Some((Kind::Segment { seq, syn }, start))
}

/// Reads a UDP header (RFC 768); `None` if its length is wrong. The length of a first fragment is that of the packet.
fn datagram(frame: &[u8], l4: usize, end: usize, is_fragment: bool) -> Option<(Kind, usize)> {
    let len = usize::from(be16(frame, l4 + 4)?);
    let is_right = if is_fragment { len >= UDP_LEN } else { len >= UDP_LEN && l4 + len <= end };
    (is_right && l4 + UDP_LEN <= end).then_some((Kind::Datagram, l4 + UDP_LEN))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TCP segment from 10.0.0.`from`:`ports.0` to 10.0.0.`to`:`ports.1` in a frame without a tag.
    pub(crate) fn tcp(ends: (u8, u8), ports: (u16, u16), seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut l4 = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        l4.extend(seq.to_be_bytes());
        l4.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        ip4(ends, 6, 0x4000, &[&l4, payload].concat())
    }

    pub(crate) fn udp(ends: (u8, u8), ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut l4 = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        l4.extend((8 + payload.len() as u16).to_be_bytes());
        l4.extend([0, 0]);
        ip4(ends, 17, 0, &[&l4, payload].concat())
    }

    pub(crate) fn ip4(ends: (u8, u8), protocol: u8, fragmentation: u16, l4: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, ends.1, 2, 0, 0, 0, 0, ends.0, 8, 0, 0x45, 0];
        frame.extend((20 + l4.len() as u16).to_be_bytes());
        frame.extend([0, 7]);
        frame.extend(fragmentation.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, ends.0, 10, 0, 0, ends.1]);
        frame.extend(l4);
        frame
    }

    fn ip6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
        frame.extend((rest.len() as u16).to_be_bytes());
        frame.extend([next, 64]);
        frame.extend([&[0xfd; 15][..], &[1], &[0xfd; 15], &[2]].concat());
        frame.extend(rest);
        frame
    }

    fn view(frame: &[u8]) -> Option<View> {
        View::of(frame, frame.len(), None)
    }

    fn payload(frame: &[u8]) -> &[u8] {
        let view = view(frame).unwrap();
        &frame[view.start..view.end]
    }

    #[test]
    fn both_directions_are_one_flow() {
        let there = view(&tcp((1, 2), (40_000, 80), 7, 0x10, b"hi")).unwrap();
        let back = view(&tcp((2, 1), (80, 40_000), 9, 0x12, b"")).unwrap();
        assert_eq!((there.key, there.direction, back.direction), (back.key, 0, 1));
        assert_eq!(there.kind, Kind::Segment { seq: 7, syn: false });
        assert_eq!(back.kind, Kind::Segment { seq: 10, syn: true });
        assert_eq!((there.len(), back.len()), (2, 0));
        let other = view(&udp((1, 2), (40_000, 80), b"hi")).unwrap();
        assert_ne!(other.key, there.key);
    }

    #[test]
    fn tags_and_carriers_are_skipped() {
        let plain = udp((1, 2), (5, 6), b"hi");
        let tag = |frame: &[u8], kind: u16, vid: u16| {
            [&frame[..12], &kind.to_be_bytes(), &vid.to_be_bytes(), &frame[12..]].concat()
        };
        let tagged = tag(&plain, 0x8100, 7);
        let twice = tag(&tagged, 0x88a8, 9);
        let carrier = [&[2; 12][..], &[0x88, 0xb6], &tagged].concat();
        let nested = [&[2; 12][..], &[0x88, 0xb6], &carrier].concat();
        let deep = [&[2; 12][..], &[0x88, 0xb6], &nested].concat();
        for frame in [&plain, &tagged, &twice, &carrier, &nested] {
            assert_eq!(payload(frame), b"hi");
        }
        assert_eq!(view(&deep), None);
        let vlan = |frame: &[u8], vid| View::of(frame, frame.len(), vid).unwrap().key.unwrap().vlan;
        assert_eq!([&plain, &tagged, &twice].map(|frame| vlan(frame, None)), [0, 7, 9 << 12 | 7]);
        assert_eq!([vlan(&plain, Some(7)), vlan(&tagged, Some(7))], [7, 7]);
    }

    #[test]
    fn padding_is_no_payload() {
        let frame = [udp((1, 2), (5, 6), b"hi"), vec![0xee; 20]].concat();
        assert_eq!(payload(&frame), b"hi");
    }

    #[test]
    fn wrong_lengths_make_odd_packets_scanned_to_their_end() {
        let good = tcp((1, 2), (5, 6), 7, 0x10, b"evil");
        // Total length above and below what is there, and header lengths of TCP below the minimum and behind the end.
        for (at, value) in [(17, 200), (17, 30), (46, 0x40), (46, 0xf0)] {
            let mut frame = good.clone();
            frame[at] = value;
            assert_eq!(view(&frame).unwrap().kind, Kind::Odd, "{at} {value}");
        }
        let mut frame = good.clone();
        frame[17] = 200;
        assert!(payload(&frame).ends_with(b"evil"));
        let mut frame = udp((1, 2), (5, 6), b"evil");
        frame[39] = 99;
        assert_eq!(view(&frame).unwrap().kind, Kind::Odd);
        assert!(payload(&frame).ends_with(b"evil"));
    }

    #[test]
    fn extension_headers_are_skipped_or_hide() {
        let l4 = [&[0, 5, 0, 6, 0, 12, 0, 0][..], b"evil"].concat();
        let chain = |count: usize| {
            let mut rest = Vec::new();
            for number in 0..count {
                rest.extend([if number + 1 == count { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
            }
            ip6(if count == 0 { 17 } else { 60 }, &[rest, l4.clone()].concat())
        };
        for count in [0, 1, 8] {
            let view = view(&chain(count)).unwrap();
            assert_eq!((view.kind, view.transport.ports), (Kind::Datagram, Some([5, 6])), "{count}");
            assert_eq!(payload(&chain(count)), b"evil");
        }
        let view = view(&chain(9)).unwrap();
        assert_eq!((view.kind, view.key, view.transport.protocol), (Kind::Odd, None, None));
        assert!(payload(&chain(9)).ends_with(b"evil"));
    }

    #[test]
    fn fragments_are_told_apart() {
        let l4 = [&[0, 5, 0, 6, 0, 99, 0, 0][..], b"evil"].concat();
        let first = view(&ip4((1, 2), 17, 0x2000, &l4)).unwrap();
        let later = view(&ip4((1, 2), 17, 0x0002, b"evil")).unwrap();
        let Kind::Fragment(of) = first.kind else { panic!("{first:?}") };
        assert_eq!((later.kind, later.key), (Kind::Fragment(of), None));
        assert_eq!((first.transport.ports, later.transport.ports), (Some([5, 6]), None));
        assert_eq!((first.len(), later.len()), (4, 4));
        assert_ne!(view(&ip4((1, 3), 17, 2, b"evil")).unwrap().kind, later.kind);
        let short = view(&ip4((1, 2), 6, 0x2000, &[0, 5])).unwrap();
        assert_eq!((short.kind, short.key), (Kind::Fragment(FragmentOf { protocol: 6, ..of }), None));
        let inner = ip6(
            44,
            &[[44, 0, 0, 1, 0, 0, 0, 9], [17, 0, 0, 1, 0, 0, 0, 9], [0, 5, 0, 6, 0, 8, 0, 0]].concat(),
        );
        assert_eq!(view(&inner).unwrap().kind, Kind::Odd);
    }

    #[test]
    fn others_are_left_alone() {
        assert_eq!(view(&ip4((1, 2), 1, 0, &[0; 8])), None);
        assert_eq!(view(&[[2; 12].as_slice(), &[8, 6], &[0; 28]].concat()), None);
        assert_eq!(view(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_payload_within_the_packet(
            mut frame in prop::sample::select(vec![
                tcp((1, 2), (5, 6), 7, 0x10, b"payload"), udp((1, 2), (5, 6), b"payload"),
                ip6(60, &[6, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0, 1]),
                ip6(44, &[17, 0, 0, 1, 0, 0, 0, 9, 0, 5, 0, 6, 0, 9, 0, 0, 1]),
            ]),
            changes in proptest::collection::vec((0usize..80, any::<u8>()), 0..6),
            cut in 0usize..100, more in 0usize..2000,
        ) {
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(cut);
            let len = frame.len() + more;
            if let Some(view) = View::of(&frame, len, None) {
                prop_assert!(view.start <= view.end && view.end <= len, "{:?}", view);
            }
        }
    }
}
