//! Matches and values of fields as text.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::hex;
use crate::field::{Field, FieldId, Notation};
use crate::oxm::Oxm;
use crate::version::{Mac, PortNo};

/// Value and mask of a field: the low 128 bits, which only tunnel metadata exceeds.
#[derive(Clone, Copy)]
struct Pattern {
    value: u128,
    mask: u128,
}

/// Fields in the order of `ovs-ofctl`, up to the protocol's keyword.
const BEFORE_PROTOCOL: &[(FieldId, &str)] = &[
    (FieldId::PktMark, "pkt_mark"),
    (FieldId::RecircId, "recirc_id"),
    (FieldId::DpHash, "dp_hash"),
    (FieldId::ConjId, "conj_id"),
    (FieldId::ActsetOutput, "actset_output"),
    (FieldId::CtState, "ct_state"),
    (FieldId::CtZone, "ct_zone"),
    (FieldId::CtMark, "ct_mark"),
    (FieldId::CtLabel, "ct_label"),
    (FieldId::CtNwSrc, "ct_nw_src"),
    (FieldId::CtIpv6Src, "ct_ipv6_src"),
    (FieldId::CtNwDst, "ct_nw_dst"),
    (FieldId::CtIpv6Dst, "ct_ipv6_dst"),
    (FieldId::CtNwProto, "ct_nw_proto"),
    (FieldId::CtTpSrc, "ct_tp_src"),
    (FieldId::CtTpDst, "ct_tp_dst"),
];

/// Fields behind the keyword, up to the VLAN.
const BEFORE_VLAN: &[(FieldId, &str)] = &[
    (FieldId::TunId, "tun_id"),
    (FieldId::TunSrc, "tun_src"),
    (FieldId::TunDst, "tun_dst"),
    (FieldId::TunIpv6Src, "tun_ipv6_src"),
    (FieldId::TunIpv6Dst, "tun_ipv6_dst"),
    (FieldId::TunGbpId, "tun_gbp_id"),
    (FieldId::TunGbpFlags, "tun_gbp_flags"),
    (FieldId::TunErspanVer, "tun_erspan_ver"),
    (FieldId::TunErspanIdx, "tun_erspan_idx"),
    (FieldId::TunErspanDir, "tun_erspan_dir"),
    (FieldId::TunErspanHwid, "tun_erspan_hwid"),
    (FieldId::TunGtpuFlags, "gtpu_flags"),
    (FieldId::TunGtpuMsgtype, "gtpu_msgtype"),
    (FieldId::TunFlags, "tun_flags"),
];

/// Fields behind the VLAN and the Ethernet addresses.
const BEHIND_ETHERNET: &[(FieldId, &str)] = &[
    (FieldId::Ipv6Src, "ipv6_src"),
    (FieldId::Ipv6Dst, "ipv6_dst"),
    (FieldId::Ipv6Label, "ipv6_label"),
    (FieldId::Ipv6Exthdr, "ipv6_exthdr"),
    (FieldId::ArpSpa, "arp_spa"),
    (FieldId::ArpTpa, "arp_tpa"),
    (FieldId::NshFlags, "nsh_flags"),
    (FieldId::NshTtl, "nsh_ttl"),
    (FieldId::NshMdtype, "nsh_mdtype"),
    (FieldId::NshNp, "nsh_np"),
    (FieldId::NshSpi, "nsh_spi"),
    (FieldId::NshSi, "nsh_si"),
    (FieldId::NshC1, "nsh_c1"),
    (FieldId::NshC2, "nsh_c2"),
    (FieldId::NshC3, "nsh_c3"),
    (FieldId::NshC4, "nsh_c4"),
    (FieldId::IpSrc, "nw_src"),
    (FieldId::IpDst, "nw_dst"),
    (FieldId::NwProto, "nw_proto"),
    (FieldId::ArpOp, "arp_op"),
    (FieldId::ArpSha, "arp_sha"),
    (FieldId::ArpTha, "arp_tha"),
    (FieldId::NwTos, "nw_tos"),
    (FieldId::NwEcn, "nw_ecn"),
    (FieldId::NwTtl, "nw_ttl"),
    (FieldId::MplsLabel, "mpls_label"),
    (FieldId::MplsTc, "mpls_tc"),
    (FieldId::MplsTtl, "mpls_ttl"),
    (FieldId::MplsBos, "mpls_bos"),
    (FieldId::PbbIsid, "pbb_isid"),
    (FieldId::PbbUca, "pbb_uca"),
    (FieldId::IpFrag, "nw_frag"),
    (FieldId::IcmpType, "icmp_type"),
    (FieldId::IcmpCode, "icmp_code"),
    (FieldId::Icmpv6Type, "icmp_type"),
    (FieldId::Icmpv6Code, "icmp_code"),
    (FieldId::NdTarget, "nd_target"),
    (FieldId::NdSll, "nd_sll"),
    (FieldId::NdTll, "nd_tll"),
    (FieldId::NdReserved, "nd_reserved"),
    (FieldId::NdOptionsType, "nd_options_type"),
    (FieldId::TcpSrc, "tp_src"),
    (FieldId::UdpSrc, "tp_src"),
    (FieldId::SctpSrc, "tp_src"),
    (FieldId::TcpDst, "tp_dst"),
    (FieldId::UdpDst, "tp_dst"),
    (FieldId::SctpDst, "tp_dst"),
    (FieldId::TcpFlags, "tcp_flags"),
];

/// The keyword for an Ethernet type and an IP protocol, and whether it stands for the protocol too.
fn keyword(eth_type: u128, protocol: Option<u128>) -> Option<(&'static str, bool)> {
    let both = match (eth_type, protocol) {
        (0x0800, Some(1)) => "icmp",
        (0x0800, Some(2)) => "igmp",
        (0x0800, Some(6)) => "tcp",
        (0x0800, Some(17)) => "udp",
        (0x0800, Some(132)) => "sctp",
        (0x86dd, Some(58)) => "icmp6",
        (0x86dd, Some(6)) => "tcp6",
        (0x86dd, Some(17)) => "udp6",
        (0x86dd, Some(132)) => "sctp6",
        _ => {
            let name = match eth_type {
                0x0800 => "ip",
                0x86dd => "ipv6",
                0x0806 => "arp",
                0x8035 => "rarp",
                0x8847 => "mpls",
                0x8848 => "mplsm",
                _ => return None,
            };
            return Some((name, false));
        }
    };
    Some((both, true))
}

/// A match in the form of `ovs-ofctl`: protocol keywords, then fields in its order, separated by commas.
///
/// Unknown fields come last, as `OXM(class,experimenter,field)=value/mask`.
pub fn match_text(fields: &[Oxm]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut known = BTreeMap::new();
    let mut unknown = Vec::new();
    for oxm in fields {
        match oxm.field() {
            Some(field) if !field.is_variable() => collect(&mut known, field.id, oxm),
            Some(field) => {
                unknown.push(format!("{}={}", field.name, masked(&hex(oxm.value_number()), oxm, hex)))
            }
            None => unknown.push(unknown_field(oxm)),
        }
    }
    let list =
        |parts: &mut Vec<String>, known: &mut BTreeMap<FieldId, Pattern>, order: &[(FieldId, &str)]| {
            for (id, name) in order {
                if let Some(pattern) = known.remove(id) {
                    parts.push(format!("{name}={}", pattern_text(*id, pattern)));
                }
            }
        };
    list(&mut parts, &mut known, BEFORE_PROTOCOL);
    let eth_type = known.get(&FieldId::EthType).map(|pattern| pattern.value);
    let protocol = known.get(&FieldId::NwProto).map(|pattern| pattern.value);
    if let Some((name, both)) = eth_type.and_then(|eth_type| keyword(eth_type, protocol)) {
        parts.push(name.to_owned());
        known.remove(&FieldId::EthType);
        if both {
            known.remove(&FieldId::NwProto);
        }
    }
    for n in 0..16 {
        if let Some((id, pattern)) = FieldId::reg(n).and_then(|id| known.remove_entry(&id)) {
            parts.push(format!("{}={}", id.field().name, pattern_text(id, pattern)));
        }
    }
    list(&mut parts, &mut known, BEFORE_VLAN);
    parts.append(&mut unknown);
    let ports =
        [(FieldId::Metadata, "metadata"), (FieldId::InPort, "in_port"), (FieldId::InPortOxm, "in_port")];
    list(&mut parts, &mut known, &ports);
    parts.extend(vlan_text(&mut known));
    list(&mut parts, &mut known, &[(FieldId::EthSrc, "dl_src"), (FieldId::EthDst, "dl_dst")]);
    list(&mut parts, &mut known, &[(FieldId::EthType, "dl_type")]);
    list(&mut parts, &mut known, BEHIND_ETHERNET);
    // What the order above lacks.
    parts.extend(
        known.iter().map(|(id, pattern)| format!("{}={}", id.field().name, pattern_text(*id, *pattern))),
    );
    parts.join(",")
}

/// Takes in a field; wide registers count as the narrow ones that they are made of, DSCP as type of service.
fn collect(known: &mut BTreeMap<FieldId, Pattern>, id: FieldId, oxm: &Oxm) {
    let (value, mask) = (oxm.value_number(), oxm.mask_number());
    let wide = |first: FieldId, width: u8| Some((id as u8).checked_sub(first as u8)? * width);
    let (base, width) = if (FieldId::XReg0..=FieldId::XReg7).contains(&id) {
        (wide(FieldId::XReg0, 2), 2)
    } else if (FieldId::XxReg0..=FieldId::XxReg3).contains(&id) {
        (wide(FieldId::XxReg0, 4), 4)
    } else {
        (None, 0)
    };
    if let Some(base) = base {
        for n in 0..width {
            let shift = u32::from(width - 1 - n) * 32;
            let part = Pattern { value: value >> shift & 0xffff_ffff, mask: mask >> shift & 0xffff_ffff };
            if let (Some(id), true) = (FieldId::reg(base + n), part.mask != 0) {
                known.insert(id, part);
            }
        }
        return;
    }
    match id {
        FieldId::IpDscp => known.insert(FieldId::NwTos, Pattern { value: value << 2, mask }),
        FieldId::PacketType if value == 0 => None,
        _ => known.insert(id, Pattern { value, mask }),
    };
}

fn unknown_field(oxm: &Oxm) -> String {
    let value: String = oxm.value.iter().map(|byte| format!("{byte:02x}")).collect();
    let mask: String =
        oxm.mask.iter().flat_map(|mask| mask.iter()).map(|byte| format!("{byte:02x}")).collect();
    let slash = if mask.is_empty() { "" } else { "/0x" };
    format!("OXM({},{:#x},{})=0x{value}{slash}{mask}", oxm.id.class, oxm.id.experimenter, oxm.id.field)
}

/// The VLAN tag: id and priority, or the tag control information.
fn vlan_text(known: &mut BTreeMap<FieldId, Pattern>) -> Vec<String> {
    let mut tci = Pattern { value: 0, mask: 0 };
    let parts = [(FieldId::VlanTci, 0xffff, 0), (FieldId::VlanVid, 0x1fff, 0), (FieldId::VlanPcp, 7, 13)];
    for (id, bits, shift) in parts {
        if let Some(part) = known.remove(&id) {
            tci.value |= (part.value & bits) << shift;
            tci.mask |= (part.mask & bits) << shift;
        }
    }
    if tci.mask == 0 {
        return Vec::new();
    }
    let (vid, pcp) = (tci.mask & 0x0fff, tci.mask & 0xe000);
    let tagged = tci.mask & tci.value & 0x1000 != 0;
    if tagged && matches!(vid, 0 | 0x0fff) && matches!(pcp, 0 | 0xe000) && vid | pcp != 0 {
        let mut parts = Vec::new();
        if vid != 0 {
            parts.push(format!("dl_vlan={}", tci.value & 0x0fff));
        }
        if pcp != 0 {
            parts.push(format!("dl_vlan_pcp={}", tci.value >> 13));
        }
        return parts;
    }
    match tci.mask {
        0xffff => vec![format!("vlan_tci=0x{:04x}", tci.value)],
        mask => vec![format!("vlan_tci=0x{:04x}/0x{mask:04x}", tci.value)],
    }
}

/// A value with its mask, unless all bits matter.
fn pattern_text(id: FieldId, pattern: Pattern) -> String {
    let field = id.field();
    let all = ones(field.bytes * 8);
    let mask = pattern.mask & all;
    let exact = mask == all || mask == ones(field.bits.into());
    let value = pattern.value;
    match field.notation {
        Notation::CtState => flags(value, mask, &CT_STATES),
        Notation::TcpFlags if !exact => flags(value, mask, &TCP_FLAGS),
        Notation::TunnelFlags => flags(value, mask, &["oam"]),
        Notation::Frag => fragment(value, mask),
        Notation::Ipv4 if !exact => {
            with_prefix(notation(field, value), mask << 96, 32, || notation(field, mask))
        }
        Notation::Ipv6 if !exact => with_prefix(notation(field, value), mask, 128, || notation(field, mask)),
        Notation::Mac if !exact => format!("{}/{}", notation(field, value), notation(field, mask)),
        // Zones are decimal in matches, and ids of recirculations hexadecimal.
        _ if id == FieldId::CtZone => value.to_string(),
        _ if id == FieldId::RecircId => hex(value),
        _ if exact => notation(field, value),
        _ => format!("{}/{}", hex(value), hex(mask)),
    }
}

pub(super) fn ones(bits: usize) -> u128 {
    u128::MAX.checked_shr(128u32.saturating_sub(bits as u32)).unwrap_or(0)
}

/// An address with a mask: the length of its prefix, if it is one.
fn with_prefix(address: String, mask: u128, bits: u32, text: impl FnOnce() -> String) -> String {
    let prefix = mask.leading_ones();
    if mask.count_ones() == prefix && prefix <= bits {
        format!("{address}/{prefix}")
    } else {
        format!("{address}/{}", text())
    }
}

pub(super) const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
pub(super) const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// Flags that must be set and clear.
fn flags(value: u128, mask: u128, names: &[&str]) -> String {
    let mut text = String::new();
    for (bit, name) in names.iter().enumerate() {
        if mask >> bit & 1 == 1 {
            text.push(if value >> bit & 1 == 1 { '+' } else { '-' });
            text.push_str(name);
        }
    }
    text
}

fn fragment(value: u128, mask: u128) -> String {
    let text = match (mask & 3, value & 3) {
        (1, 1) => "yes",
        (3, 1) => "first",
        (3, 3) => "later",
        (1 | 3, 0) => "no",
        (2, 0) => "not_later",
        _ => "<error>",
    };
    text.to_owned()
}

/// A value as its field writes it.
pub(super) fn notation(field: &Field, value: u128) -> String {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    match field.notation {
        Notation::Decimal => value.to_string(),
        Notation::Hex => hex(value),
        Notation::Mac => Mac([a, b, c, d, e, f]).to_string(),
        Notation::Ipv4 => Ipv4Addr::from(value as u32).to_string(),
        Notation::Ipv6 => Ipv6Addr::from(value).to_string(),
        Notation::Port16 => PortNo::from_16_bits(value as u16).to_string(),
        Notation::Port => PortNo(value as u32).to_string(),
        Notation::CtState => flags(value, 0xff, &CT_STATES),
        Notation::Frag => fragment(value, 3),
        Notation::TcpFlags | Notation::TunnelFlags => hex(value),
        Notation::PacketType => format!("({},{})", value >> 16, hex(value & 0xffff)),
    }
}

/// A value with its mask, if the TLV has one.
pub(super) fn masked(value: &str, oxm: &Oxm, write: impl Fn(u128) -> String) -> String {
    match &oxm.mask {
        Some(_) => format!("{value}/{}", write(oxm.mask_number())),
        None => value.to_owned(),
    }
}
