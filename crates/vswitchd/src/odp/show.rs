//! A packet as an OpenFlow match, in the order and the words of Open vSwitch's traces.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::MacAddr;

use super::flow::{ARP, ICMP, ICMPV6, IPV4, IPV6, SCTP, TCP, UDP, VLAN};

/// Returns the match of exactly this packet, but for headers behind the transport layer's ports.
pub(crate) fn matching(in_port: &str, packet: &[u8]) -> String {
    text(in_port, packet).unwrap_or_else(|| format!("in_port={in_port}"))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn mac(bytes: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(*bytes.get(at..)?.first_chunk()?))
}

/// `None`: the packet is too short for its headers.
fn text(in_port: &str, packet: &[u8]) -> Option<String> {
    let (mut tags, mut at) = (Vec::new(), 12);
    let mut kind = word(packet, at)?;
    while VLAN.contains(&kind) && tags.len() < 2 {
        tags.push(word(packet, at + 2)?);
        at += 4;
        kind = word(packet, at)?;
    }
    let rest = packet.get(at + 2..)?;
    let (protocol, fields) = match kind {
        IPV4 => ipv4(rest)?,
        IPV6 => ipv6(rest)?,
        ARP => ("arp".to_owned(), arp(rest)?),
        kind => (format!("dl_type=0x{kind:04x}"), String::new()),
    };
    let vlans = match tags.as_slice() {
        [] => "vlan_tci=0x0000".to_owned(),
        [outer, inner @ ..] => {
            let inner = inner.first().copied().unwrap_or(0);
            format!("dl_vlan={},dl_vlan_pcp={},vlan_tci1=0x{inner:04x}", outer & 0xfff, outer >> 13)
        }
    };
    let (dst, src) = (mac(packet, 0)?, mac(packet, 6)?);
    // The type has its own place where it has no name.
    let (name, kind) = match protocol.split_once('=') {
        None => (protocol + ",", String::new()),
        Some(_) => (String::new(), format!(",{protocol}")),
    };
    Some(format!("{name}in_port={in_port},{vlans},dl_src={src},dl_dst={dst}{kind}{fields}"))
}

fn ipv4(header: &[u8]) -> Option<(String, String)> {
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk()?));
    let (tos, ttl, proto) = (*header.get(1)?, *header.get(8)?, *header.get(9)?);
    let place = word(header, 6)?;
    let (is_later, has_more) = (place & 0x1fff != 0, place & 0x2000 != 0);
    let upper = header.get(usize::from(header.first()? & 0xf) * 4..)?;
    let (name, mut fields) = protocol(proto, "ip", upper, is_later);
    let fragment = match (is_later, has_more) {
        (true, _) => "later",
        (false, true) => "first",
        (false, false) => "no",
    };
    let (src, dst) = (address(12)?, address(16)?);
    fields.insert_str(
        0,
        &format!(",nw_src={src},nw_dst={dst}{}", common(&name, "ip", proto, tos, ttl, fragment)),
    );
    Some((name, fields))
}

fn ipv6(header: &[u8]) -> Option<(String, String)> {
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk()?));
    let first = u32::from_be_bytes(*header.first_chunk()?);
    let (class, label) = ((first >> 20) as u8, first & 0xf_ffff);
    let (proto, ttl) = (*header.get(6)?, *header.get(7)?);
    let (name, mut fields) = protocol(proto, "ipv6", header.get(40..)?, false);
    let (src, dst) = (address(8)?, address(24)?);
    let common = common(&name, "ipv6", proto, class, ttl, "no");
    fields.insert_str(0, &format!(",ipv6_src={src},ipv6_dst={dst},ipv6_label=0x{label:05x}{common}"));
    Some((name, fields))
}

fn common(name: &str, family: &str, proto: u8, tos: u8, ttl: u8, fragment: &str) -> String {
    let proto = if name == family { format!(",nw_proto={proto}") } else { String::new() };
    format!("{proto},nw_tos={},nw_ecn={},nw_ttl={ttl},nw_frag={fragment}", tos & 0xfc, tos & 3)
}

/// The name of a protocol over IP, and its fields.
fn protocol(proto: u8, family: &str, upper: &[u8], is_later: bool) -> (String, String) {
    let six = if family == "ipv6" { "6" } else { "" };
    let name = match proto {
        TCP => format!("tcp{six}"),
        UDP => format!("udp{six}"),
        SCTP => format!("sctp{six}"),
        ICMP if six.is_empty() => "icmp".to_owned(),
        ICMPV6 if !six.is_empty() => "icmp6".to_owned(),
        _ => return (family.to_owned(), String::new()),
    };
    let fields = match (proto, upper) {
        _ if is_later => String::new(),
        (ICMP | ICMPV6, [kind, code, ..]) => format!(",icmp_type={kind},icmp_code={code}"),
        (_, [a, b, c, d, ..]) => {
            let mut ports =
                format!(",tp_src={},tp_dst={}", u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            if let Some(flags) = word(upper, 12).filter(|_| proto == TCP) {
                // Writing to a string does not fail.
                let _ = write!(ports, ",tcp_flags=0x{:x}", flags & 0xfff);
            }
            ports
        }
        _ => String::new(),
    };
    (name, fields)
}

fn arp(header: &[u8]) -> Option<String> {
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk()?));
    Some(format!(
        ",arp_spa={},arp_tpa={},arp_op={},arp_sha={},arp_tha={}",
        address(14)?,
        address(24)?,
        word(header, 6)?,
        mac(header, 8)?,
        mac(header, 18)?
    ))
}

#[cfg(test)]
mod tests {
    use super::super::described;

    fn shown(text: &str) -> String {
        super::matching("7", &described(text).unwrap().packet)
    }

    #[test]
    fn packets_are_matches() {
        let head = "in_port=1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02";
        assert_eq!(
            shown(&format!("icmp,{head},nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_ttl=64,icmp_type=8")),
            "icmp,in_port=7,vlan_tci=0x0000,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,nw_src=10.0.0.1,\
             nw_dst=10.0.0.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,icmp_type=8,icmp_code=0"
        );
        assert_eq!(
            shown(&format!("udp,{head},dl_vlan=9,dl_vlan_pcp=3,nw_src=10.0.0.1,tp_dst=53")),
            "udp,in_port=7,dl_vlan=9,dl_vlan_pcp=3,vlan_tci1=0x0000,dl_src=00:00:00:00:00:01,\
             dl_dst=00:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=0.0.0.0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no,tp_src=0,\
             tp_dst=53"
        );
        assert_eq!(
            shown(&format!("arp,{head},arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.2")),
            "arp,in_port=7,vlan_tci=0x0000,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02,arp_spa=10.0.0.1,\
             arp_tpa=10.0.0.2,arp_op=1,arp_sha=00:00:00:00:00:00,arp_tha=00:00:00:00:00:00"
        );
        assert!(
            shown(&format!("{head},dl_type=0x1234")).ends_with("dl_dst=00:00:00:00:00:02,dl_type=0x1234")
        );
        assert_eq!(super::matching("LOCAL", &[0; 9]), "in_port=LOCAL", "a packet that is cut short");
    }
}
