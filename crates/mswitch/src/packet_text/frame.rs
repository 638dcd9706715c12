//! Builds the shortest packet with given fields, with correct lengths and checksums.
//!
//! The constants below are the values of missing fields: IP addresses for documentation (RFC 5737, RFC 3849), a locally
//! administered source address, the first packet of a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packet::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use packet::ether::HEADER_LEN;
use packet::headers::{self, IPV4_MIN_LEN, IPV6_LEN};
use packet::{EtherType, MacAddr, VlanTag};

use super::Problem;
use super::fields::{Fields, Transport};

const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const DST: MacAddr = MacAddr::BROADCAST;
const SRC_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DST_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SRC_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const TTL: u8 = 64;
const SRC_PORT: u16 = 49_152;
const TCP_PORT: u16 = 80;
const UDP_PORT: u16 = 53;
const SYN: u16 = 0x02;
/// EtherType for local experiments (IEEE 802 §9.2.3).
const NO_PROTOCOL: EtherType = EtherType(0x88b5);

/// Longest frame of the switch.
const LONGEST: usize = 65_535;

// ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861).
const ECHO: u8 = 8;
const ECHO_V6: u8 = 128;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Network layer.
enum Network {
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
    Arp { src: Ipv4Addr, dst: Ipv4Addr },
    Other(EtherType),
}

/// Builds the packet.
pub(super) fn build(fields: &Fields) -> Result<Vec<u8>, Problem> {
    let network = network(fields)?;
    let mut frame = ethernet(fields, &network);
    let (l2, payload) = (frame.len(), fields.payload.as_slice());
    let upper = match &network {
        Network::Arp { src, dst } => arp(fields, *src, *dst),
        Network::Other(_) => Vec::new(),
        Network::V4 { .. } | Network::V6 { .. } => transport(fields, &network)?,
    };
    let ip = match network {
        Network::V4 { .. } => IPV4_MIN_LEN,
        Network::V6 { .. } => IPV6_LEN,
        Network::Arp { .. } | Network::Other(_) => 0,
    };
    let min_len = l2 + ip + upper.len() + payload.len();
    let len = fields.len.unwrap_or(min_len);
    if len < min_len {
        return Err(format!("`len`: {len} bytes are too few; the headers and the payload take {min_len}"));
    }
    if len > LONGEST {
        return Err(format!("the packet has {len} bytes; the maximum is {LONGEST}"));
    }
    let mut l3_payload = [&upper[..], payload].concat();
    l3_payload.resize(len - l2 - ip, 0);
    match &network {
        Network::V4 { src, dst } => {
            let protocol = number_of(fields, &network);
            let (src, dst) = (*src, *dst);
            let pseudo = pseudo_header_v4(src.octets(), dst.octets(), protocol, l3_payload.len() as u16);
            // ICMP has no pseudo-header (RFC 792).
            let pseudo = if protocol == headers::protocol::ICMP { Sum::default() } else { pseudo };
            complete(transport_of(fields), &mut l3_payload, pseudo);
            frame.extend(ipv4(fields, src, dst, protocol, l3_payload.len()));
        }
        Network::V6 { src, dst } => {
            let protocol = number_of(fields, &network);
            let (src, dst) = (*src, *dst);
            let pseudo = pseudo_header_v6(src.octets(), dst.octets(), protocol, l3_payload.len() as u32);
            complete(transport_of(fields), &mut l3_payload, pseudo);
            frame.extend(ipv6(fields, src, dst, protocol, l3_payload.len()));
        }
        Network::Arp { .. } | Network::Other(_) => {}
    }
    frame.extend(l3_payload);
    Ok(frame)
}

/// Chooses the network layer that the fields imply.
fn network(fields: &Fields) -> Result<Network, Problem> {
    let addresses = [fields.nw_src, fields.nw_dst];
    let has_v6 = fields.nd_target.is_some() || addresses.iter().flatten().any(IpAddr::is_ipv6);
    let needs_ip = fields.transport.is_some()
        || fields.tp_src.or(fields.tp_dst).is_some()
        || fields.tos.or(fields.ttl).is_some()
        || fields.tcp_flags.is_some()
        || fields.icmp_type.or(fields.icmp_code).is_some()
        || addresses.iter().any(Option::is_some)
        || has_v6;
    let needs_arp = fields.arp_op.is_some() || fields.arp_sha.or(fields.arp_tha).is_some();
    let kind = match fields.dl_type.map(EtherType) {
        Some(kind) => kind,
        None if needs_arp => EtherType::ARP,
        None if has_v6 => EtherType::IPV6,
        None if needs_ip => EtherType::IPV4,
        None => NO_PROTOCOL,
    };
    if needs_arp && kind != EtherType::ARP {
        return Err("ARP fields are given, but the packet is not ARP; omit them or write `arp`".into());
    }
    let v4 = |address: Option<IpAddr>, default| match address {
        None => Ok(default),
        Some(IpAddr::V4(address)) => Ok(address),
        Some(IpAddr::V6(address)) => {
            Err(format!("{address} is an IPv6 address, but the packet is not IPv6; write `ipv6`"))
        }
    };
    let v6 = |address: Option<IpAddr>, default| match address {
        None => Ok(default),
        Some(IpAddr::V6(address)) => Ok(address),
        Some(IpAddr::V4(address)) => {
            Err(format!("{address} is an IPv4 address, but the packet is IPv6; omit `ipv6`"))
        }
    };
    let [src, dst] = addresses;
    match kind {
        EtherType::IPV4 if fields.nd_target.is_some() => {
            Err("`nd_target` belongs to neighbour discovery, but the packet is IPv4; write `icmp6`".into())
        }
        EtherType::IPV4 => Ok(Network::V4 { src: v4(src, SRC_V4)?, dst: v4(dst, DST_V4)? }),
        EtherType::ARP if fields.transport.is_some() => {
            Err("a transport protocol is given, but the packet is ARP; omit one of them".into())
        }
        EtherType::ARP => Ok(Network::Arp { src: v4(src, SRC_V4)?, dst: v4(dst, DST_V4)? }),
        EtherType::IPV6 => Ok(Network::V6 { src: v6(src, SRC_V6)?, dst: v6(dst, DST_V6)? }),
        other if needs_ip => {
            Err(format!("IP fields are given, but the packet has EtherType {other}; omit `dl_type`"))
        }
        other => Ok(Network::Other(other)),
    }
}

fn ethernet(fields: &Fields, network: &Network) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.extend(fields.dl_dst.unwrap_or(DST).0);
    header.extend(fields.dl_src.unwrap_or(SRC).0);
    let own = fields.vlan.is_some() || fields.pcp.is_some();
    let own =
        own.then(|| VlanTag { vid: fields.vlan.unwrap_or(0), pcp: fields.pcp.unwrap_or(0), dei: false });
    for tag in own.iter().chain(&fields.tags) {
        header.extend(EtherType::VLAN.0.to_be_bytes());
        header.extend(tag.to_tci().to_be_bytes());
    }
    let kind = match network {
        Network::V4 { .. } => EtherType::IPV4,
        Network::V6 { .. } => EtherType::IPV6,
        Network::Arp { .. } => EtherType::ARP,
        Network::Other(kind) => *kind,
    };
    header.extend(kind.0.to_be_bytes());
    header
}

/// Builds an ARP message (RFC 826).
fn arp(fields: &Fields, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![0, 1, 8, 0, 6, 4];
    message.extend(fields.arp_op.unwrap_or(1).to_be_bytes());
    message.extend(fields.arp_sha.unwrap_or(fields.dl_src.unwrap_or(SRC)).0);
    message.extend(src.octets());
    message.extend(fields.arp_tha.unwrap_or(MacAddr::ZERO).0);
    message.extend(dst.octets());
    message
}

/// Builds an IPv4 header (RFC 791 §3.1) for a payload of `len` bytes.
fn ipv4(fields: &Fields, src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x45, fields.tos.unwrap_or(0)];
    header.extend(((IPV4_MIN_LEN + len) as u16).to_be_bytes());
    header.extend([0, 0, 0, 0, fields.ttl.unwrap_or(TTL), protocol, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    let sum = Sum::of(&header).finish();
    put(&mut header, 10, sum);
    header
}

/// Builds an IPv6 header (RFC 8200 §3) for a payload of `len` bytes.
fn ipv6(fields: &Fields, src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: usize) -> Vec<u8> {
    let class = fields.tos.unwrap_or(0);
    let mut header = vec![0x60 | class >> 4, class << 4, 0, 0];
    header.extend((len as u16).to_be_bytes());
    header.extend([protocol, fields.ttl.unwrap_or(TTL)]);
    header.extend(src.octets());
    header.extend(dst.octets());
    header
}

/// Returns the transport protocol; UDP, the simplest with ports, where only ports are given.
fn transport_of(fields: &Fields) -> Transport {
    let icmp = fields.icmp_type.or(fields.icmp_code).is_some() || fields.nd_target.is_some();
    match fields.transport {
        Some(transport) => transport,
        None if icmp => Transport::Icmp,
        None if fields.tcp_flags.is_some() => Transport::Tcp,
        None if fields.tp_src.or(fields.tp_dst).is_some() => Transport::Udp,
        // A number for experiments (RFC 3692).
        None => Transport::Other(253),
    }
}

fn number_of(fields: &Fields, network: &Network) -> u8 {
    match transport_of(fields) {
        Transport::Tcp => headers::protocol::TCP,
        Transport::Udp => headers::protocol::UDP,
        Transport::Icmp if matches!(network, Network::V6 { .. }) => headers::protocol::ICMPV6,
        Transport::Icmp => headers::protocol::ICMP,
        Transport::Other(number) => number,
    }
}

/// Builds the transport header, with lengths and checksum of 0.
fn transport(fields: &Fields, network: &Network) -> Result<Vec<u8>, Problem> {
    let transport = transport_of(fields);
    let has_ports = matches!(transport, Transport::Tcp | Transport::Udp);
    if !has_ports && fields.tp_src.or(fields.tp_dst).is_some() {
        return Err("ports are given, but the protocol has none; write `tcp` or `udp`".into());
    }
    if fields.tcp_flags.is_some() && transport != Transport::Tcp {
        return Err("`tcp_flags` is given, but the protocol is not TCP; write `tcp`".into());
    }
    if transport != Transport::Icmp
        && (fields.icmp_type.or(fields.icmp_code).is_some() || fields.nd_target.is_some())
    {
        return Err("ICMP fields are given, but the protocol is not ICMP; write `icmp` or `icmp6`".into());
    }
    let ports = |default: u16| {
        let ports = [fields.tp_src.unwrap_or(SRC_PORT), fields.tp_dst.unwrap_or(default)];
        ports.map(u16::to_be_bytes).concat()
    };
    Ok(match transport {
        // RFC 9293 §3.1.
        Transport::Tcp => {
            let offset_and_flags = 5 << 12 | fields.tcp_flags.unwrap_or(SYN);
            [&ports(TCP_PORT)[..], &[0; 8], &offset_and_flags.to_be_bytes(), &[0xff, 0xff, 0, 0, 0, 0]]
                .concat()
        }
        // RFC 768.
        Transport::Udp => [&ports(UDP_PORT)[..], &[0; 4]].concat(),
        Transport::Icmp => icmp(fields, matches!(network, Network::V6 { .. })),
        Transport::Other(_) => Vec::new(),
    })
}

/// Builds an ICMP or ICMPv6 message (RFC 792, RFC 4443, RFC 4861 §4.3 and §4.4).
fn icmp(fields: &Fields, is_v6: bool) -> Vec<u8> {
    let kind = fields.icmp_type.unwrap_or(match (is_v6, fields.nd_target) {
        (_, Some(_)) => NEIGHBOUR_SOLICITATION,
        (true, None) => ECHO_V6,
        (false, None) => ECHO,
    });
    let mut message = vec![kind, fields.icmp_code.unwrap_or(0), 0, 0, 0, 0, 0, 0];
    if is_v6 && matches!(kind, NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT) {
        message.extend(fields.nd_target.unwrap_or(DST_V6).octets());
    }
    message
}

/// Fills in the length and the checksum of a transport header with its payload. `pseudo` is the sum of the
/// pseudo-header.
fn complete(transport: Transport, l3_payload: &mut [u8], pseudo: Sum) {
    let checksum = |l3_payload: &[u8]| {
        let mut sum = pseudo;
        sum.add(l3_payload);
        sum.finish()
    };
    match transport {
        Transport::Tcp => {
            let sum = checksum(l3_payload);
            put(l3_payload, 16, sum);
        }
        Transport::Udp => {
            put(l3_payload, 4, l3_payload.len() as u16);
            // 0 means "no checksum".
            let sum = checksum(l3_payload);
            put(l3_payload, 6, if sum == 0 { 0xffff } else { sum });
        }
        Transport::Icmp => {
            let sum = checksum(l3_payload);
            put(l3_payload, 2, sum);
        }
        Transport::Other(_) => {}
    }
}

/// Writes two bytes in network byte order.
fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
