//! The parts of a packet that decide where it goes: endpoints, fragments, ICMP errors, neighbour discovery.
//!
//! Two readers: [`Flow`] takes TCP, UDP and SCTP over IPv4 without options, fragments and tags from fixed offsets, most
//! packets; [`Seen`] takes everything else. Where both read a packet, they agree.
//!
//! Invariant: offsets and lengths in packets are checked; anything that cannot be read is [`Seen::Other`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::headers::{IPV4_MIN_LEN, IPV6_LEN, IpVersion, Layers, protocol};
use packet::{EtherType, MacAddr, Sum};

use super::lookup::number;

/// One end of a transport protocol's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The address, IPv4 mapped.
    pub(super) address: u128,
    pub(super) port: u16,
}

impl End {
    pub(super) fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self.address).to_canonical()
    }
}

/// Identity of a fragmented packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FragmentId {
    source: u128,
    destination: u128,
    id: u32,
    protocol: u8,
}

/// A packet as this logic sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// A packet with ports; the first fragment of one with its identity.
    Flow { protocol: u8, source: End, destination: End, fragment: Option<FragmentId> },
    /// A fragment without ports.
    Later(FragmentId),
    /// An ICMP error about a packet of this source.
    Error { protocol: u8, source: End },
    /// An ARP reply or neighbour advertisement.
    Answer,
    /// An ARP request or neighbour solicitation: the address that asks, and the MAC address that it claims.
    Question { source: u128, mac: Option<MacAddr> },
    /// A packet of a stack whose lengths contradict each other, or whose IPv4 header has a wrong checksum.
    Wrong,
    /// Anything else.
    Other,
}

impl From<Flow> for Seen {
    fn from(flow: Flow) -> Self {
        let (source, destination) = (flow.source(), flow.destination());
        Self::Flow { protocol: flow.protocol(), source, destination, fragment: None }
    }
}

/// Fields that all packets of a flow share, at fixed offsets of a plain packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    /// Source MAC address and type.
    front: u64,
    /// Source and destination address.
    addresses: u64,
    /// Source and destination port.
    ports: u32,
    protocol: u8,
}

/// Ethernet header, IPv4 header and ports.
const PLAIN_LEN: usize = 38;

impl Flow {
    /// Reads a plain packet of `len` bytes. With `CHECKED`, one whose IPv4 header is right.
    #[inline(always)]
    pub(super) fn of<const CHECKED: bool>(header: &[u8], len: u32) -> Option<Self> {
        let front: &[u8; PLAIN_LEN] = header.first_chunk()?;
        let [_, _, _, _, _, _, rest @ ..] = front;
        let word = |at: usize| rest.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
        let (from, types) = (word(0)?, word(8)?);
        // Version 4 and a header of five words; no fragment (RFC 791 §3.1).
        let is_plain = from as u16 == 0x0800 && types >> 56 == 0x45 && types & 0xbfff == 0;
        let total = u32::from((types >> 32) as u16);
        let is_whole = total >= 24 && total <= len.saturating_sub(14);
        let [_, protocol, ..] = *front.last_chunk::<16>()?;
        let with_ports = matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
        if !is_plain || !is_whole || !with_ports {
            return None;
        }
        if CHECKED && Sum::of(front.get(14..34)?).finish() != 0 {
            return None;
        }
        let ports = u32::from_be_bytes(*front.last_chunk()?);
        Some(Self { front: from, addresses: word(20)?, ports, protocol })
    }

    pub(super) fn protocol(self) -> u8 {
        self.protocol
    }

    pub(super) fn mac(self) -> MacAddr {
        MacAddr::from_u64(self.front >> 16)
    }

    #[inline]
    pub(super) fn source(self) -> End {
        End { address: mapped((self.addresses >> 32) as u32), port: (self.ports >> 16) as u16 }
    }

    #[inline]
    pub(super) fn destination(self) -> End {
        End { address: mapped(self.addresses as u32), port: self.ports as u16 }
    }
}

#[inline]
fn mapped(v4: u32) -> u128 {
    0xffff_0000_0000 | u128::from(v4)
}

/// ICMP and ICMPv6 errors that carry the packet they are about: unreachable, time exceeded, parameter problem
/// (RFC 792), and in ICMPv6 too big (RFC 4443 §3).
const ICMP_ERRORS: [u8; 3] = [3, 11, 12];
const ICMPV6_ERRORS: std::ops::RangeInclusive<u8> = 1..=4;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Option of a solicitation with the sender's MAC address (RFC 4861 §4.6.1).
const SOURCE_LINK_LAYER: [u8; 2] = [1, 1];

impl Seen {
    /// Reads a packet of `len` bytes whose front is `header`. `tags`: whether it may have a VLAN tag.
    pub(super) fn of(header: &[u8], len: u32, tags: bool) -> Self {
        let layers = Layers::parse(header);
        if layers.vlan_tags > u8::from(tags) {
            return Self::Other;
        }
        if layers.ethertype == Some(EtherType::ARP) {
            return arp(header.get(usize::from(layers.l2_len)..).unwrap_or_default());
        }
        let Some((l3, version)) = layers.l3.map(usize::from).zip(layers.ip) else { return Self::Other };
        ip(header, len, &layers, l3, version).unwrap_or(Self::Other)
    }

    /// Returns whether more bytes of the packet may help: its extension headers are longer than `header`.
    pub(super) fn is_cut(header: &[u8], len: u32) -> bool {
        let layers = Layers::parse(header);
        (header.len() as u64) < u64::from(len)
            && layers.ip.is_some()
            && (layers.protocol.is_none() || (layers.l4.is_none() && !layers.fragment))
    }
}

fn ip(header: &[u8], len: u32, layers: &Layers, l3: usize, version: IpVersion) -> Option<Seen> {
    let packet = header.get(l3..)?;
    let (source, destination) = addresses(packet, version)?;
    if !lengths_agree(packet, u64::from(len).saturating_sub(l3 as u64), version) {
        return Some(Seen::Wrong);
    }
    let protocol = layers.protocol?;
    let identity = || {
        let id = fragment_id(packet, version)?;
        Some(FragmentId { source, destination, id, protocol })
    };
    let Some(l4) = layers.l4.map(usize::from) else {
        return if layers.fragment { identity().map(Seen::Later) } else { None };
    };
    let fragment = if layers.fragment { Some(identity()?) } else { None };
    let transport = header.get(l4..)?;
    match (protocol, version) {
        (protocol::TCP | protocol::UDP | protocol::SCTP, _) => {
            let (from, to) = ports(transport)?;
            let (source, destination) =
                (End { address: source, port: from }, End { address: destination, port: to });
            Some(Seen::Flow { protocol, source, destination, fragment })
        }
        _ if fragment.is_some() => None,
        (protocol::ICMP, IpVersion::V4) if ICMP_ERRORS.contains(transport.first()?) => {
            inner(transport, version)
        }
        (protocol::ICMPV6, IpVersion::V6) => match transport.first()? {
            kind if ICMPV6_ERRORS.contains(kind) => inner(transport, version),
            &ADVERTISEMENT => Some(Seen::Answer),
            &SOLICITATION => {
                let option = transport.get(24..32).and_then(|option| option.strip_prefix(&SOURCE_LINK_LAYER));
                let mac = option.and_then(|mac| mac.first_chunk()).map(|mac| MacAddr(*mac));
                Some(Seen::Question { source, mac })
            }
            _ => None,
        },
        _ => None,
    }
}

/// Reads the packet that an ICMP error is about, behind its 8 bytes (RFC 792, RFC 4443 §3.1).
fn inner(icmp: &[u8], version: IpVersion) -> Option<Seen> {
    let packet = icmp.get(8..)?;
    let (source, _) = addresses(packet, version)?;
    let (protocol, transport) = match version {
        IpVersion::V4 => {
            let offset = be16(packet, 6)? & 0x1fff;
            let length = usize::from(packet.first()? & 0x0f) * 4;
            (*packet.get(9)?, packet.get(length.max(IPV4_MIN_LEN)..).filter(|_| offset == 0)?)
        }
        IpVersion::V6 => (*packet.get(6)?, packet.get(IPV6_LEN..)?),
    };
    let with_ports = matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP);
    let (port, _) = ports(transport).filter(|_| with_ports)?;
    Some(Seen::Error { protocol, source: End { address: source, port } })
}

/// Source and destination, IPv4 mapped. IPv6 packets with mapped addresses are not read: such addresses do not appear
/// on a wire (RFC 4291 §2.5.5.2), and stand for IPv4 here.
fn addresses(packet: &[u8], version: IpVersion) -> Option<(u128, u128)> {
    match version {
        IpVersion::V4 => {
            let at = |from: usize| packet.get(from..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            Some((mapped(at(12)?), mapped(at(16)?)))
        }
        IpVersion::V6 => {
            let at = |from: usize| packet.get(from..)?.first_chunk().map(|bytes| u128::from_be_bytes(*bytes));
            let found = (at(8)?, at(24)?);
            let is_mapped = |address| Ipv6Addr::from_bits(address).to_ipv4_mapped().is_some();
            (!is_mapped(found.0) && !is_mapped(found.1)).then_some(found)
        }
    }
}

/// Returns whether the IP header's length fits into the packet, and the checksum of an IPv4 header is right.
fn lengths_agree(packet: &[u8], len: u64, version: IpVersion) -> bool {
    match version {
        IpVersion::V4 => {
            let own = usize::from(packet.first().map_or(0, |first| first & 0x0f)) * 4;
            let total = be16(packet, 2).map_or(0, u64::from);
            let header = packet.get(..own).unwrap_or_default();
            own >= IPV4_MIN_LEN && total >= own as u64 && total <= len && Sum::of(header).finish() == 0
        }
        // A length of 0 belongs to jumbograms (RFC 2675), which no port carries.
        IpVersion::V6 => be16(packet, 4).is_some_and(|payload| u64::from(payload) + IPV6_LEN as u64 <= len),
    }
}

/// Identification of a fragment: of IPv4 in its header, of IPv6 in the fragment header (RFC 8200 §4.5), behind at most
/// as many headers as [`Layers`] visits.
fn fragment_id(packet: &[u8], version: IpVersion) -> Option<u32> {
    const FRAGMENT: u8 = 44;
    if version == IpVersion::V4 {
        return be16(packet, 4).map(u32::from);
    }
    let (mut next, mut at) = (*packet.get(6)?, IPV6_LEN);
    for _ in 0..=8 {
        let header: &[u8; 8] = packet.get(at..)?.first_chunk()?;
        if next == FRAGMENT {
            return header.last_chunk().map(|id| u32::from_be_bytes(*id));
        }
        let [following, length, ..] = *header;
        next = following;
        at += (usize::from(length) + 1) * 8;
    }
    None
}

/// Reads ARP for IPv4 over Ethernet (RFC 826).
fn arp(body: &[u8]) -> Seen {
    let Some([0, 1, 8, 0, 6, 4, 0, operation, rest @ ..]) = body.first_chunk::<28>() else {
        return Seen::Other;
    };
    let [m0, m1, m2, m3, m4, m5, a, b, c, d, ..] = *rest;
    match operation {
        1 => {
            let source = number(Ipv4Addr::new(a, b, c, d).into());
            Seen::Question { source, mac: Some(MacAddr([m0, m1, m2, m3, m4, m5])) }
        }
        2 => Seen::Answer,
        _ => Seen::Other,
    }
}

fn ports(transport: &[u8]) -> Option<(u16, u16)> {
    be16(transport, 0).zip(be16(transport, 2))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
