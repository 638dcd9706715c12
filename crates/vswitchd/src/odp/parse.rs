//! Datapath flows as text: attributes in parentheses, one in another behind VLAN tags.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use packet::ether::MacAddr;

use super::flow::{Flow, Fragment, VLAN};

/// Depth of attributes in attributes at most.
const DEPTH: usize = 4;

/// Parses a flow. Masks behind `/` are ignored: a packet has values.
pub(super) fn flow(text: &str) -> Result<Flow, String> {
    let mut flow = Flow::default();
    attributes(text, &mut flow, DEPTH)?;
    Ok(flow)
}

fn attributes(text: &str, flow: &mut Flow, depth: usize) -> Result<(), String> {
    let depth = depth.checked_sub(1).ok_or("attributes are nested too deeply")?;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let open = rest.find('(').ok_or_else(|| format!("syntax error at {rest}"))?;
        let (name, inner) = rest.split_at(open);
        let close = closing(inner).ok_or_else(|| format!("`{rest}` has no closing parenthesis"))?;
        let value = inner.get(1..close).unwrap_or_default();
        attribute(name.trim(), value, flow, depth)?;
        rest = inner.get(close + 1..).unwrap_or_default().trim_start_matches([',', ' ', '\t']);
    }
    Ok(())
}

/// Returns the place of the parenthesis that closes the first one.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn attribute(name: &str, value: &str, flow: &mut Flow, depth: usize) -> Result<(), String> {
    match name {
        "in_port" => flow.in_port = Some(number(value)?),
        "eth_type" => {
            let kind = number(value)?;
            // The type of a tag; that behind it follows.
            if VLAN.contains(&kind) {
                flow.vlans.push((kind, 0));
            } else {
                flow.eth_type = kind;
            }
        }
        "encap" => return attributes(value, flow, depth),
        "eth" | "vlan" | "mpls" | "ipv4" | "ipv6" | "tcp" | "udp" | "sctp" | "icmp" | "icmpv6" | "arp"
        | "nd" => {
            let fields = value.split(',').filter(|field| !field.trim().is_empty());
            if name == "mpls" {
                flow.mpls.push(0);
            }
            for field in fields {
                let (key, value) =
                    field.split_once('=').ok_or_else(|| format!("`{field}` in `{name}` has no value"))?;
                member(name, key.trim(), value.trim(), flow)?;
            }
        }
        "tcp_flags" => flow.tcp_flags = flags(value)?,
        // Of the datapath, not of the packet.
        "recirc_id" | "dp_hash" | "skb_priority" | "skb_mark" | "ct_state" | "ct_zone" | "ct_mark"
        | "ct_label" | "packet_type" | "tunnel" => {}
        other => return Err(format!("`{other}` is not an attribute of a datapath flow")),
    }
    Ok(())
}

fn member(attribute: &str, key: &str, value: &str, flow: &mut Flow) -> Result<(), String> {
    match (attribute, key) {
        ("eth", "src") => flow.eth_src = mac(value)?,
        ("eth", "dst") => flow.eth_dst = mac(value)?,
        ("vlan", key) => {
            let part: u16 = number(value)?;
            // A tag has its presence bit in texts.
            let bits = match key {
                "vid" => part & 0xfff,
                "pcp" => (part & 7) << 13,
                "cfi" => 0,
                "tci" => part & 0xefff,
                _ => return Err(format!("`{key}` is not a field of `vlan`")),
            };
            if let Some((_, tci)) = flow.vlans.last_mut() {
                *tci |= bits;
            }
        }
        ("mpls", key) => {
            let part: u32 = number(value)?;
            let bits = match key {
                "label" => (part & 0xf_ffff) << 12,
                "tc" => (part & 7) << 9,
                "bos" => (part & 1) << 8,
                "ttl" => part & 0xff,
                _ => return Err(format!("`{key}` is not a field of `mpls`")),
            };
            if let Some(entry) = flow.mpls.last_mut() {
                *entry |= bits;
            }
        }
        ("ipv4", "src") => flow.ipv4_src = v4(value)?,
        ("ipv4", "dst") => flow.ipv4_dst = v4(value)?,
        ("ipv6", "src") => flow.ipv6_src = v6(value)?,
        ("ipv6", "dst") => flow.ipv6_dst = v6(value)?,
        ("ipv6", "label") => flow.ipv6_label = number(value)?,
        ("ipv4" | "ipv6", "proto") => flow.proto = number(value)?,
        ("ipv4", "tos") | ("ipv6", "tclass") => flow.tos = number(value)?,
        ("ipv4", "ttl") | ("ipv6", "hlimit") => flow.ttl = number(value)?,
        ("ipv4" | "ipv6", "frag") => {
            flow.fragment = match value {
                "no" => Fragment::No,
                "first" => Fragment::First,
                "later" => Fragment::Later,
                other => {
                    return Err(format!("`{other}` is not a fragment (expected `no`, `first` or `later`)"));
                }
            }
        }
        ("tcp" | "udp" | "sctp", "src") | ("icmp" | "icmpv6", "type") => flow.tp_src = number(value)?,
        ("tcp" | "udp" | "sctp", "dst") | ("icmp" | "icmpv6", "code") => flow.tp_dst = number(value)?,
        ("arp", "sip") => flow.arp_spa = v4(value)?,
        ("arp", "tip") => flow.arp_tpa = v4(value)?,
        ("arp", "op") => flow.arp_op = number(value)?,
        ("arp", "sha") => flow.arp_sha = mac(value)?,
        ("arp", "tha") => flow.arp_tha = mac(value)?,
        ("nd", "target") => flow.nd_target = v6(value)?,
        ("nd", "sll") => flow.nd_sll = mac(value)?,
        ("nd", "tll") => flow.nd_tll = mac(value)?,
        _ => return Err(format!("`{key}` is not a field of `{attribute}`")),
    }
    Ok(())
}

/// The value in front of a mask.
fn unmasked(text: &str) -> &str {
    text.split_once('/').map_or(text, |(value, _)| value).trim()
}

/// Parses a number, decimal or hexadecimal.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let value = unmasked(text);
    let parsed = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    parsed
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| format!("`{text}` is not a number in range"))
}

fn parsed<T: FromStr>(text: &str, kind: &str) -> Result<T, String> {
    unmasked(text).parse().map_err(|_| format!("`{text}` is not {kind}"))
}

/// Parses an address; leading zeros may be left out.
fn mac(text: &str) -> Result<[u8; 6], String> {
    let padded: Vec<String> = unmasked(text).split(':').map(|pair| format!("{pair:0>2}")).collect();
    parsed::<MacAddr>(&padded.join(":"), "an Ethernet address").map(|mac| mac.0)
}

fn v4(text: &str) -> Result<[u8; 4], String> {
    parsed::<Ipv4Addr>(text, "an IPv4 address").map(|address| address.octets())
}

fn v6(text: &str) -> Result<[u8; 16], String> {
    parsed::<Ipv6Addr>(text, "an IPv6 address").map(|address| address.octets())
}

/// Names of TCP's flags, from the lowest bit on.
const FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

/// Parses TCP's flags, a number or names with `|` or `+` between them.
fn flags(text: &str) -> Result<u16, String> {
    if let Ok(flags) = number(text) {
        return Ok(flags);
    }
    let mut flags = 0;
    for name in unmasked(text).split(['|', '+']).filter(|name| !name.is_empty()) {
        let bit = FLAGS.iter().position(|known| *known == name);
        flags |= 1 << bit.ok_or_else(|| format!("`{name}` is not a flag of TCP"))?;
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_fields() {
        let text = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:0a),eth_type(0x8100),\
                    vlan(vid=20,pcp=3),encap(eth_type(0x0800),ipv4(src=192.168.0.1/255.0.0.0,dst=192.168.0.2,\
                    proto=6,tos=4,ttl=128,frag=first),tcp(src=8,dst=10)),tcp_flags(syn|ack)";
        let found = flow(text).unwrap();
        assert_eq!(found.in_port, Some(1));
        assert_eq!(found.vlans, [(0x8100, 3 << 13 | 20)]);
        assert_eq!((found.eth_type, found.ipv4_src, found.proto), (0x0800, [192, 168, 0, 1], 6));
        assert_eq!((found.tos, found.ttl, found.fragment), (4, 128, Fragment::First));
        assert_eq!((found.tp_src, found.tp_dst, found.tcp_flags), (8, 10, 0x12));
        let two = flow("eth_type(0x8847),mpls(label=16,tc=1,ttl=64,bos=0),mpls(label=17,tc=0,ttl=2,bos=1)");
        assert_eq!(two.unwrap().mpls, [16 << 12 | 1 << 9 | 64, 17 << 12 | 1 << 8 | 2]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("eth", "syntax error at eth"),
            ("eth(src=1", "`eth(src=1` has no closing parenthesis"),
            ("frob(1)", "`frob` is not an attribute of a datapath flow"),
            ("eth(src)", "`src` in `eth` has no value"),
            ("eth(foo=1)", "`foo` is not a field of `eth`"),
            ("in_port(x)", "`x` is not a number in range"),
            ("tcp_flags(syn|x)", "`x` is not a flag of TCP"),
            ("encap(encap(encap(encap(eth_type(1)))))", "attributes are nested too deeply"),
        ] {
            assert_eq!(flow(text).unwrap_err(), expected);
        }
    }
}
