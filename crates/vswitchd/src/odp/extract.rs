//! From bytes to the fields of a packet: what can be read; the rest is zero.

use super::flow::{ARP, Flow, Fragment, ICMP, ICMPV6, IGMP, IPV4, IPV6, MPLS, RARP, SCTP, TCP, UDP, VLAN};

/// Labels of a packet at most.
const LABELS: usize = 3;

/// Returns the fields of a packet.
pub(super) fn fields(packet: &[u8]) -> Flow {
    let mut flow = Flow::default();
    // What is cut off stays zero.
    let _ = link(packet, &mut flow);
    flow
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(u16::from_be_bytes)
}

fn link(packet: &[u8], flow: &mut Flow) -> Option<()> {
    (flow.eth_dst, flow.eth_src) = (chunk(packet, 0)?, chunk(packet, 6)?);
    let mut at = 12;
    let mut kind = word(packet, at)?;
    while VLAN.contains(&kind) && flow.vlans.len() < 2 {
        flow.vlans.push((kind, word(packet, at + 2)?));
        at += 4;
        kind = word(packet, at)?;
    }
    flow.eth_type = kind;
    let rest = packet.get(at + 2..)?;
    match kind {
        IPV4 => ipv4(rest, flow),
        IPV6 => ipv6(rest, flow),
        ARP | RARP => arp(rest, flow),
        kind if MPLS.contains(&kind) => {
            let labels = rest.chunks_exact(4).filter_map(|entry| chunk(entry, 0)).map(u32::from_be_bytes);
            for entry in labels.take(LABELS) {
                flow.mpls.push(entry);
                if entry & 0x100 != 0 {
                    break;
                }
            }
            Some(())
        }
        _ => Some(()),
    }
}

fn ipv4(header: &[u8], flow: &mut Flow) -> Option<()> {
    flow.tos = *header.get(1)?;
    let place = word(header, 6)?;
    flow.fragment = match (place & 0x1fff != 0, place & 0x2000 != 0) {
        (true, _) => Fragment::Later,
        (false, true) => Fragment::First,
        (false, false) => Fragment::No,
    };
    (flow.ttl, flow.proto) = (*header.get(8)?, *header.get(9)?);
    (flow.ipv4_src, flow.ipv4_dst) = (chunk(header, 12)?, chunk(header, 16)?);
    upper(header.get(usize::from(header.first()? & 0xf) * 4..)?, flow)
}

fn ipv6(header: &[u8], flow: &mut Flow) -> Option<()> {
    let first = chunk(header, 0).map(u32::from_be_bytes)?;
    (flow.tos, flow.ipv6_label) = ((first >> 20) as u8, first & 0xf_ffff);
    (flow.proto, flow.ttl) = (*header.get(6)?, *header.get(7)?);
    (flow.ipv6_src, flow.ipv6_dst) = (chunk(header, 8)?, chunk(header, 24)?);
    let mut rest = header.get(40..)?;
    if flow.proto == 44 {
        flow.proto = *rest.first()?;
        flow.fragment = if word(rest, 2)? & 0xfff8 != 0 { Fragment::Later } else { Fragment::First };
        rest = rest.get(8..)?;
    }
    upper(rest, flow)
}

fn upper(bytes: &[u8], flow: &mut Flow) -> Option<()> {
    if flow.fragment == Fragment::Later {
        return Some(());
    }
    match flow.proto {
        TCP | UDP | SCTP => {
            (flow.tp_src, flow.tp_dst) = (word(bytes, 0)?, word(bytes, 2)?);
            if flow.proto == TCP {
                flow.tcp_flags = word(bytes, 12)? & 0xfff;
            }
        }
        ICMP | ICMPV6 | IGMP => {
            (flow.tp_src, flow.tp_dst) = ((*bytes.first()?).into(), (*bytes.get(1)?).into());
            if flow.proto == ICMPV6 && matches!(flow.tp_src, 135 | 136) {
                flow.nd_target = chunk(bytes, 8)?;
                options(bytes.get(24..)?, flow);
            }
        }
        _ => {}
    }
    Some(())
}

/// The link-layer addresses among the options of neighbour discovery.
fn options(mut bytes: &[u8], flow: &mut Flow) {
    while let [kind, units, ..] = *bytes {
        let length = usize::from(units) * 8;
        if let Some(address) = chunk(bytes, 2).filter(|_| length >= 8) {
            match kind {
                1 => flow.nd_sll = address,
                2 => flow.nd_tll = address,
                _ => {}
            }
        }
        let Some(rest) = bytes.get(length.max(8)..) else { return };
        bytes = rest;
    }
}

fn arp(header: &[u8], flow: &mut Flow) -> Option<()> {
    flow.arp_op = word(header, 6)?;
    (flow.arp_sha, flow.arp_spa) = (chunk(header, 8)?, chunk(header, 14)?);
    (flow.arp_tha, flow.arp_tpa) = (chunk(header, 18)?, chunk(header, 24)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp::{compose, parse};

    #[test]
    fn packets_have_the_fields_that_made_them() {
        for text in [
            "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x28,ttl=9,frag=no),tcp(src=1,dst=2)",
            "in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=2),encap(eth_type(0x86dd),\
             ipv6(src=::1,dst=::2,label=7,proto=58,tclass=0x70,hlimit=8,frag=no),icmpv6(type=135,code=0),\
             nd(target=fe80::1,sll=00:00:00:00:00:03))",
            "in_port(1),eth(),eth_type(0x0806),arp(sip=1.2.3.4,tip=4.3.2.1,op=2,sha=00:00:00:00:00:0a)",
            "in_port(1),eth(),eth_type(0x8847),mpls(label=100,tc=3,ttl=64,bos=1)",
            "in_port(1),eth(),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,frag=later)",
        ] {
            let flow = parse::flow(text).unwrap();
            let packet = compose::packet(&flow, true);
            assert_eq!(fields(&packet), Flow { in_port: None, ..flow }, "{text}");
            (0..packet.len()).for_each(|end| drop(fields(&packet[..end])));
        }
    }
}
