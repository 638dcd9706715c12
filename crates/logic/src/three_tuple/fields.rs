//! The parts of a packet that decide where it goes: endpoints, fragments, ICMP errors, neighbour discovery.
//!
//! Two readers: [`Flow`] takes TCP, UDP and SCTP over IPv4 without options, fragments and tags from fixed offsets, most
//! packets; [`Seen`] takes everything else. Where both read a packet, they agree.
//!
//! Invariants: offsets and lengths in packets are checked; anything that cannot be read is [`Seen::Other`]. Nothing
//! behind the end that the IP header states is read. Only a fragment with an offset is [`Seen::Later`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::headers::{Fragment, IPV4_MIN_LEN, IPV6_LEN, IpVersion, Layers, protocol};
use packet::{EtherType, MacAddr, Sum};

use super::lookup::number;
use crate::discovery;

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
    /// The address that it is from, IPv4 mapped.
    pub(super) source: u128,
    destination: u128,
    id: u32,
    /// 0 for IPv6, whose fragments are one packet whatever protocol they name (RFC 8200 §4.5).
    protocol: u8,
}

/// A packet as this logic sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// A packet with ports; the first fragment of one with its identity.
    Flow { protocol: u8, source: End, destination: End, fragment: Option<FragmentId> },
    /// A first fragment without ports: of another protocol, or too short.
    First(FragmentId),
    /// A fragment other than the first one, which has the ports.
    Later(FragmentId),
    /// An ICMP error about a packet of this source.
    Error { protocol: u8, source: End },
    /// An ARP reply or neighbour advertisement.
    Answer,
    /// An ARP request or neighbour solicitation: the address that asks, and the MAC address that it claims.
    Question { source: u128, mac: Option<MacAddr> },
    /// A packet whose IP header states more bytes than there are, or has a wrong checksum (IPv4).
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
        if !is_plain || !is_whole || !has_ports(protocol) {
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
/// Offset of the options in a solicitation (RFC 4861 §4.3).
const SOLICITATION_OPTIONS: usize = 24;

/// Bytes of a transport header or ICMP message that are looked at, beyond which only solicitations are read.
const TRANSPORT_LOOK: usize = 64;

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
        let there = u64::from(len).saturating_sub(l3 as u64);
        let Some(stated) = stated_len(header.get(l3..).unwrap_or_default(), there, version) else {
            return Self::Wrong;
        };
        // What follows the IP packet is padding, which receivers cut off.
        let seen = match header.get(..l3 + stated) {
            Some(front) if front.len() < header.len() => {
                ip(front, &Layers::parse(front), l3, stated, version)
            }
            _ => ip(header, &layers, l3, stated, version),
        };
        seen.unwrap_or(Self::Other)
    }

    /// Returns whether more bytes of the packet may help.
    pub(super) fn is_cut(header: &[u8], len: u32) -> bool {
        let layers = Layers::parse(header);
        let is_behind = |l4: u16| usize::from(l4) + TRANSPORT_LOOK > header.len();
        (header.len() as u64) < u64::from(len)
            && match layers.ip {
                Some(IpVersion::V4) => layers.l4.is_some_and(is_behind),
                Some(IpVersion::V6) => layers.l4.is_none_or(is_behind),
                None => false,
            }
    }
}

/// Reads an IP packet of `stated` bytes at `l3`. `frame` ends with it, or is the front of it.
fn ip(frame: &[u8], layers: &Layers, l3: usize, stated: usize, version: IpVersion) -> Option<Seen> {
    let (source, destination) = addresses(frame.get(l3..)?, version)?;
    if !layers.fragment {
        let flow = flow(frame, layers, source, destination);
        return flow.or_else(|| message(frame, layers, l3 + stated, source, version));
    }
    let Fragment { id, is_first } = Fragment::of(frame, layers)?;
    let protocol = if version == IpVersion::V4 { layers.protocol? } else { 0 };
    let id = FragmentId { source, destination, id, protocol };
    if !is_first {
        return Some(Seen::Later(id));
    }
    Some(match flow(frame, layers, source, destination) {
        Some(Seen::Flow { protocol, source, destination, .. }) => {
            Seen::Flow { protocol, source, destination, fragment: Some(id) }
        }
        _ => Seen::First(id),
    })
}

/// Reads the ports of a packet.
fn flow(frame: &[u8], layers: &Layers, source: u128, destination: u128) -> Option<Seen> {
    let protocol = layers.protocol.filter(|protocol| has_ports(*protocol))?;
    let (from, to) = ports(frame.get(usize::from(layers.l4?)..)?)?;
    let (source, destination) = (End { address: source, port: from }, End { address: destination, port: to });
    Some(Seen::Flow { protocol, source, destination, fragment: None })
}

/// Reads the ICMP message of a packet that is no fragment and ends at `end`.
fn message(frame: &[u8], layers: &Layers, end: usize, source: u128, version: IpVersion) -> Option<Seen> {
    let message = frame.get(usize::from(layers.l4?)..)?;
    let kind = message.first()?;
    match (layers.protocol?, version) {
        (protocol::ICMP, IpVersion::V4) if ICMP_ERRORS.contains(kind) => inner(message, version),
        (protocol::ICMPV6, IpVersion::V6) => match kind {
            kind if ICMPV6_ERRORS.contains(kind) => inner(message, version),
            &ADVERTISEMENT => Some(Seen::Answer),
            // Options that are not here could claim anything.
            &SOLICITATION if frame.len() == end => {
                let mac = discovery::claimed(message.get(SOLICITATION_OPTIONS..)?)?;
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
    let (port, _) = ports(transport).filter(|_| has_ports(protocol))?;
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

/// Length of the IP packet as its header states it. `None` if fewer than that are `there`, or the checksum of an IPv4
/// header is wrong.
fn stated_len(packet: &[u8], there: u64, version: IpVersion) -> Option<usize> {
    let stated = match version {
        IpVersion::V4 => {
            let own = usize::from(packet.first()? & 0x0f) * 4;
            let total = usize::from(be16(packet, 2)?);
            let is_right = own >= IPV4_MIN_LEN && total >= own && Sum::of(packet.get(..own)?).finish() == 0;
            is_right.then_some(total)?
        }
        // A length of 0 belongs to jumbograms (RFC 2675), which no port carries.
        IpVersion::V6 => IPV6_LEN + usize::from(be16(packet, 4)?),
    };
    (stated as u64 <= there).then_some(stated)
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

#[inline]
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::SCTP)
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
