//! From fields to bytes: headers with right lengths and checksums, and as much payload as Open vSwitch's tests expect.

use packet::Sum;
use packet::checksum::{pseudo_header_v4, pseudo_header_v6};

use super::flow::{ARP, Flow, Fragment, ICMP, ICMPV6, IGMP, IPV4, IPV6, MPLS, RARP, SCTP, TCP, UDP};

/// Bytes of the payload of packets whose length is not given.
const PAYLOAD: u8 = 64;

/// Flags of TCP segments without payload: FIN, SYN, RST.
const BARE: u16 = 0x07;

const ECHO: [u16; 2] = [0, 8];
const ECHO_V6: [u16; 2] = [128, 129];
const NEIGHBOUR: [u16; 2] = [135, 136];

/// Returns the packet with the fields of a flow, with payload or as short as it can be.
pub(super) fn packet(flow: &Flow, with_payload: bool) -> Vec<u8> {
    let mut bytes = [flow.eth_dst, flow.eth_src].concat();
    for (kind, tci) in &flow.vlans {
        put(&mut bytes, &[*kind, *tci]);
    }
    if flow.eth_type < 0x600 {
        // Nothing is said of what follows.
        put(&mut bytes, &[flow.eth_type]);
        return bytes;
    }
    put(&mut bytes, &[flow.eth_type]);
    for entry in &flow.mpls {
        bytes.extend(entry.to_be_bytes());
    }
    match flow.eth_type {
        IPV4 => ipv4(flow, &mut bytes, with_payload),
        IPV6 => ipv6(flow, &mut bytes, with_payload),
        ARP | RARP => arp(flow, &mut bytes),
        kind if MPLS.contains(&kind) && flow.mpls.is_empty() => bytes.extend([0, 0, 1, 0]),
        _ => {}
    }
    bytes
}

/// Lengthens a packet of a flow to `length` bytes.
pub(super) fn expand(bytes: &mut Vec<u8>, flow: &Flow, length: usize) {
    let more = length.saturating_sub(bytes.len());
    if more == 0 {
        return;
    }
    bytes.resize(length, 0);
    let head = 14 + 4 * flow.vlans.len();
    match flow.eth_type {
        IPV4 => {
            let total = (bytes.len() - head) as u16;
            let Some(ip) = bytes.get_mut(head..) else { return };
            fill(ip, 2, total);
            fill(ip, 10, 0);
            let sum = Sum::of(ip.get(..20).unwrap_or_default()).finish();
            fill(ip, 10, sum);
            let Some(upper) = ip.get_mut(20..) else { return };
            finish_v4(flow, upper);
        }
        IPV6 => {
            let Some(ip) = bytes.get_mut(head..) else { return };
            let payload = ip.len().saturating_sub(40) as u16;
            fill(ip, 4, payload);
            let Some(upper) = ip.get_mut(40..) else { return };
            finish_v6(flow, upper);
        }
        _ => {}
    }
}

fn payload(with_payload: bool) -> std::ops::Range<u8> {
    0..if with_payload { PAYLOAD } else { 0 }
}

/// Adds words in network byte order.
fn put(bytes: &mut Vec<u8>, words: &[u16]) {
    for word in words {
        bytes.extend(word.to_be_bytes());
    }
}

/// Sets a word, if it is there.
fn fill(bytes: &mut [u8], at: usize, word: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

fn ipv4(flow: &Flow, bytes: &mut Vec<u8>, with_payload: bool) {
    let mut upper = upper(flow, with_payload);
    let fragment = match flow.fragment {
        Fragment::No => 0,
        Fragment::First => 0x2000,
        Fragment::Later => 0x2064,
    };
    let total = 20 + upper.len() as u16;
    let mut header = vec![0x45, flow.tos];
    put(&mut header, &[total, 0, fragment]);
    header.extend([flow.ttl, flow.proto, 0, 0]);
    header.extend(flow.ipv4_src);
    header.extend(flow.ipv4_dst);
    let sum = Sum::of(&header).finish();
    fill(&mut header, 10, sum);
    finish_v4(flow, &mut upper);
    bytes.extend(header);
    bytes.extend(upper);
}

fn ipv6(flow: &Flow, bytes: &mut Vec<u8>, with_payload: bool) {
    let mut upper = upper(flow, with_payload);
    finish_v6(flow, &mut upper);
    let mut extension = Vec::new();
    let mut next = flow.proto;
    if flow.fragment != Fragment::No {
        // More fragments, at an offset unless it is the first.
        let offset: u16 = if flow.fragment == Fragment::Later { 100 << 3 | 1 } else { 1 };
        extension.extend([flow.proto, 0]);
        put(&mut extension, &[offset, 0, 0]);
        next = 44;
    }
    let first = 6 << 28 | u32::from(flow.tos) << 20 | flow.ipv6_label & 0xf_ffff;
    bytes.extend(first.to_be_bytes());
    put(bytes, &[(extension.len() + upper.len()) as u16]);
    bytes.extend([next, flow.ttl]);
    bytes.extend(flow.ipv6_src);
    bytes.extend(flow.ipv6_dst);
    bytes.extend(extension);
    bytes.extend(upper);
}

/// Returns the header over IP, without its checksum, and its payload.
fn upper(flow: &Flow, with_payload: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if flow.fragment == Fragment::Later {
        return bytes;
    }
    let (src, dst) = (flow.tp_src, flow.tp_dst);
    let kind = [src as u8, dst as u8];
    let mut has_payload = false;
    match flow.proto {
        TCP => {
            put(&mut bytes, &[src, dst, 0, 0, 0, 0, 5 << 12 | flow.tcp_flags & 0xfff, 0, 0, 0]);
            has_payload = flow.tcp_flags & BARE == 0;
        }
        UDP => {
            let length = 8 + if with_payload { u16::from(PAYLOAD) } else { 0 };
            put(&mut bytes, &[src, dst, length, 0]);
            has_payload = true;
        }
        SCTP => put(&mut bytes, &[src, dst, 0, 0, 0, 0]),
        ICMP => {
            bytes.extend(kind);
            put(&mut bytes, &[0, 0, 0]);
            has_payload = ECHO.contains(&src) && dst == 0;
        }
        IGMP => {
            bytes.extend(kind);
            put(&mut bytes, &[0, 0, 0]);
        }
        ICMPV6 => {
            bytes.extend(kind);
            put(&mut bytes, &[0, 0, 0]);
            if NEIGHBOUR.contains(&src) && dst == 0 {
                bytes.extend(flow.nd_target);
                for (option, address) in [(1, flow.nd_sll), (2, flow.nd_tll)] {
                    if address != [0; 6] {
                        bytes.extend([option, 1]);
                        bytes.extend(address);
                    }
                }
            }
            has_payload = ECHO_V6.contains(&src) && dst == 0;
        }
        _ => {}
    }
    bytes.extend(payload(has_payload && with_payload));
    bytes
}

/// Sets the length and the checksum of a header over IPv4.
fn finish_v4(flow: &Flow, upper: &mut [u8]) {
    let pseudo = pseudo_header_v4(flow.ipv4_src, flow.ipv4_dst, flow.proto, upper.len() as u16);
    finish(flow, upper, pseudo);
}

/// Sets the length and the checksum of a header over IPv6.
fn finish_v6(flow: &Flow, upper: &mut [u8]) {
    let pseudo = pseudo_header_v6(flow.ipv6_src, flow.ipv6_dst, flow.proto, upper.len() as u32);
    finish(flow, upper, pseudo);
}

fn finish(flow: &Flow, upper: &mut [u8], pseudo: Sum) {
    if flow.fragment == Fragment::Later || upper.is_empty() {
        return;
    }
    let (at, with_pseudo) = match flow.proto {
        TCP => (16, true),
        UDP => {
            let length = upper.len() as u16;
            fill(upper, 4, length);
            (6, true)
        }
        ICMP | IGMP => (2, false),
        ICMPV6 => (2, true),
        _ => return,
    };
    fill(upper, at, 0);
    let mut sum = Sum::of(upper);
    if with_pseudo {
        let mut whole = pseudo;
        whole.combine(sum);
        sum = whole;
    }
    let sum = match sum.finish() {
        0 if flow.proto == UDP => 0xffff,
        sum => sum,
    };
    fill(upper, at, sum);
}

fn arp(flow: &Flow, bytes: &mut Vec<u8>) {
    put(bytes, &[1, IPV4, 0x0604, flow.arp_op]);
    bytes.extend(flow.arp_sha);
    bytes.extend(flow.arp_spa);
    bytes.extend(flow.arp_tha);
    bytes.extend(flow.arp_tpa);
}

#[cfg(test)]
mod tests {
    use crate::odp;

    fn hex(text: &str, length: Option<usize>) -> String {
        control::hex::format(&odp::packet(text, length).unwrap())
    }

    #[test]
    fn checksums_and_lengths_are_right() {
        let eth = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:0a)";
        let icmp = format!(
            "{eth},eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=3,code=1)"
        );
        // Computed by hand: the headers' words add up to 0xffff with the checksums.
        assert_eq!(
            hex(&icmp, None),
            "50540000000a50540000000508004500001c0000000040\
             0166df0a0000010a0000020301fcfe00000000"
        );
        let udp = format!(
            "{eth},eth_type(0x8100),vlan(vid=9,pcp=0),encap(eth_type(0x0800),\
             ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2))"
        );
        let short = odp::packet(&udp, Some(64)).unwrap();
        assert_eq!(short.len(), 64);
        assert_eq!(short[12..18], [0x81, 0, 0, 9, 8, 0]);
        assert_eq!(short[20..22], [0, 46], "length of IP");
        assert_eq!(short[42..44], [0, 26], "length of UDP");
        assert_eq!(odp::packet(&udp, None).unwrap().len(), 18 + 20 + 8 + 64);
        assert!(odp::packet(&udp, Some(20)).unwrap_err().starts_with("the headers take 46 bytes"));
        let arp = format!(
            "{eth},eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:05,tha=0:0:0:0:0:0)"
        );
        assert!(hex(&arp, None).ends_with(
            "0806000108000604000150540000000 50a0000010000000000000a000002".replace(' ', "").as_str()
        ));
    }
}
