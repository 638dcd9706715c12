//! Datapath actions as text: what turns one packet into another, as Open vSwitch writes it.
//!
//! Both packets are compared header by header, so that the text says what was done and not how. Of a field that the
//! packet's way depends on in part, only this part is set.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use packet::MacAddr;

use super::flow::{ARP, ICMP, ICMPV6, IPV4, IPV6, MPLS, SCTP, TCP, UDP, VLAN};
use super::hexadecimal;

/// The headers of a packet, as far as actions change them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Headers<'a> {
    dst: &'a [u8],
    src: &'a [u8],
    vlans: [Option<(u16, u16)>; 2],
    kind: u16,
    /// MPLS labels.
    labels: [Option<u32>; LABELS],
    /// From the type's header on, or from what is behind the labels.
    rest: &'a [u8],
}

/// Labels that are compared.
const LABELS: usize = 3;

/// Bit of a label that is the last one.
const BOTTOM: u32 = 0x100;

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> Headers<'a> {
    fn of(packet: &'a [u8]) -> Option<Self> {
        let mut at = 12;
        let mut vlans = [None; 2];
        for place in &mut vlans {
            let kind = word(packet, at)?;
            if !VLAN.contains(&kind) {
                break;
            }
            *place = Some((kind, word(packet, at + 2)?));
            at += 4;
        }
        let (dst, src) = (packet.get(..6)?, packet.get(6..12)?);
        let kind = word(packet, at)?;
        let mut rest = packet.get(at + 2..)?;
        let mut labels = [None; LABELS];
        if MPLS.contains(&kind) {
            for place in &mut labels {
                let Some((entry, behind)) = rest.split_first_chunk() else { break };
                let entry = u32::from_be_bytes(*entry);
                (*place, rest) = (Some(entry), behind);
                if entry & BOTTOM != 0 {
                    break;
                }
            }
        }
        Some(Self { dst, src, vlans, kind, labels, rest })
    }

    fn labels(&self) -> Vec<u32> {
        self.labels.into_iter().flatten().collect()
    }

    fn tags(&self) -> impl DoubleEndedIterator<Item = (u16, u16)> {
        self.vlans.into_iter().flatten()
    }

    /// The protocol over IP, its ports, and the address of its header.
    fn upper(&self) -> Option<(u8, u16, u16)> {
        let (proto, at) = match self.kind {
            IPV4 => (*self.rest.get(9)?, usize::from(self.rest.first()? & 0xf) * 4),
            IPV6 => (*self.rest.get(6)?, 40),
            _ => return None,
        };
        Some((proto, word(self.rest, at)?, word(self.rest, at + 2)?))
    }
}

/// What follows the type of a packet, from which truncations take.
pub(super) fn rest_of(packet: &[u8]) -> Option<&[u8]> {
    Some(Headers::of(packet)?.rest)
}

/// Returns the actions that turn a packet into another, each with a comma behind it. `mask` has the bits of fields, by
/// their keys as in [`ofswitch::Dependency`], on which the packet's way depends.
pub(super) fn between(from: &[u8], to: &[u8], mask: &Mask<'_>) -> String {
    let mut text = String::new();
    let (Some(from), Some(to)) = (Headers::of(from), Headers::of(to)) else { return text };
    let mut set = |name: &str, parts: &[(&str, Option<String>)]| {
        let parts = parts.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
        let parts: Vec<_> = parts.collect();
        if !parts.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, "set({name}({})),", parts.join(","));
        }
    };
    let mac = |a: &[u8], b: &[u8], key: &str| {
        let shown = |bits: u128| {
            let [.., a, b, c, d, e, f] = bits.to_be_bytes();
            MacAddr([a, b, c, d, e, f]).to_string()
        };
        part([number(a), number(b)], mask(key), u128::MAX >> 80, shown)
    };
    set("eth", &[("src", mac(from.src, to.src, "eth_src")), ("dst", mac(from.dst, to.dst, "eth_dst"))]);
    if from.kind == to.kind {
        ip(&from, &to, mask, &mut set);
        arp(&from, &to, &mut set);
        upper(&from, &to, mask, &mut set);
    }
    labels(&from, &to, &mut text);
    vlans(&from, &to, &mut text);
    text
}

/// Takes labels off until those below are common, and puts the others on; or changes the outermost.
fn labels(from: &Headers<'_>, to: &Headers<'_>, text: &mut String) {
    let (old, new) = (from.labels(), to.labels());
    if old == new {
        return;
    }
    let parts = |entry: u32| {
        let (label, tc, ttl, bos) = (entry >> 12, entry >> 9 & 7, entry & 0xff, entry >> 8 & 1);
        format!("label={label},tc={tc},ttl={ttl},bos={bos}")
    };
    if let ([_, a @ ..], [top, b @ ..]) = (old.as_slice(), new.as_slice())
        && a == b
    {
        // Writing to a string does not fail.
        let _ = write!(text, "set(mpls({})),", parts(*top));
        return;
    }
    let common = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    for left in (common..old.len()).rev() {
        let kind = if left > 0 { from.kind } else { to.kind };
        let _ = write!(text, "pop_mpls(eth_type={kind:#x}),");
    }
    for entry in new.iter().rev().skip(common) {
        let _ = write!(text, "push_mpls({},eth_type={:#x}),", parts(*entry), to.kind);
    }
}

fn mac_at(bytes: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(*bytes.get(at..)?.first_chunk()?))
}

fn arp(from: &Headers<'_>, to: &Headers<'_>, set: &mut Set<'_>) {
    if to.kind != ARP {
        return;
    }
    let address = |at: usize| {
        let of = |headers: &Headers<'_>| Some(Ipv4Addr::from(*headers.rest.get(at..)?.first_chunk()?));
        changed(of(from), of(to))
    };
    let mac = |at: usize| changed(mac_at(from.rest, at), mac_at(to.rest, at));
    let op = changed(word(from.rest, 6), word(to.rest, 6));
    set("arp", &[("sip", address(14)), ("tip", address(24)), ("op", op), ("sha", mac(8)), ("tha", mac(18))]);
}

/// A value, if it is another one than before.
fn changed<T: PartialEq + ToString>(from: Option<T>, to: Option<T>) -> Option<String> {
    let (from, to) = (from?, to?);
    (from != to).then(|| to.to_string())
}

type Mask<'a> = dyn Fn(&str) -> u128 + 'a;

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// A value of as many bits as `all` has, if it is another one than before; the part of it under a mask that covers the
/// change.
fn part(change: [u128; 2], mask: u128, all: u128, shown: impl Fn(u128) -> String) -> Option<String> {
    let [from, to] = change;
    let (changes, mask) = (from ^ to, mask & all);
    match changes {
        0 => None,
        _ if mask == all || changes & !mask != 0 => Some(shown(to)),
        _ => Some(format!("{}/{}", shown(to & mask), shown(mask))),
    }
}

/// The same for a port's number, whose masks are hexadecimal.
fn port(change: [u16; 2], mask: u128) -> Option<String> {
    let [from, to] = change;
    let (changes, mask) = (from ^ to, mask as u16);
    match changes {
        0 => None,
        _ if changes & !mask != 0 || mask == u16::MAX => Some(to.to_string()),
        _ => Some(format!("{}/{mask:#x}", to & mask)),
    }
}

type Set<'a> = dyn FnMut(&str, &[(&str, Option<String>)]) + 'a;

fn ip(from: &Headers<'_>, to: &Headers<'_>, mask: &Mask<'_>, set: &mut Set<'_>) {
    let byte = |at: usize| {
        let (a, b) = (from.rest.get(at)?, to.rest.get(at)?);
        (a != b).then_some(*b)
    };
    match to.kind {
        IPV4 => {
            let address = |at: usize, key: &str| {
                let of = |headers: &Headers<'_>| headers.rest.get(at..at + 4).map(number);
                let shown = |bits| Ipv4Addr::from(bits as u32).to_string();
                part([of(from)?, of(to)?], mask(key), u32::MAX.into(), shown)
            };
            let tos = byte(1).map(|tos| masked(from.rest.get(1).copied().unwrap_or(0), tos));
            let ttl = byte(8).map(|ttl| ttl.to_string());
            let (src, dst) = (address(12, "ip_src"), address(16, "ip_dst"));
            set("ipv4", &[("src", src), ("dst", dst), ("tos", tos), ("ttl", ttl)]);
        }
        IPV6 => {
            let address = |at: usize, key: &str| {
                let of = |headers: &Headers<'_>| headers.rest.get(at..at + 16).map(number);
                let shown = |bits| Ipv6Addr::from(bits).to_string();
                part([of(from)?, of(to)?], mask(key), u128::MAX, shown)
            };
            let first = |headers: &Headers<'_>| Some(u32::from_be_bytes(*headers.rest.first_chunk()?));
            let class = |headers: &Headers<'_>| first(headers).map(|word| (word >> 20) as u8);
            let label = |headers: &Headers<'_>| first(headers).map(|word| word & 0xf_ffff);
            let tclass = class(to).filter(|new| class(from) != Some(*new));
            let tclass = tclass.map(|new| masked(class(from).unwrap_or(0), new));
            let new = label(to).filter(|new| label(from) != Some(*new)).map(|new| format!("{new:#x}"));
            let hlimit = byte(7).map(|hlimit| hlimit.to_string());
            let parts = [
                ("src", address(8, "ipv6_src")),
                ("dst", address(24, "ipv6_dst")),
                ("label", new),
                ("tclass", tclass),
                ("hlimit", hlimit),
            ];
            set("ipv6", &parts);
        }
        _ => {}
    }
}

/// A type of service, with a mask of the part that changes: that of services or that of congestion.
fn masked(from: u8, to: u8) -> String {
    let changed = from ^ to;
    let parts = [0xfc, 0x03].into_iter().filter(|part| changed & part != 0);
    let mask: u8 = parts.fold(0, |mask, part| mask | part);
    let value = hexadecimal((to & mask).into());
    if mask == 0xff { value } else { format!("{value}/{mask:#x}") }
}

fn upper(from: &Headers<'_>, to: &Headers<'_>, mask: &Mask<'_>, set: &mut Set<'_>) {
    let (Some((proto, src, dst)), Some((same, new_src, new_dst))) = (from.upper(), to.upper()) else {
        return;
    };
    if proto != same {
        return;
    }
    match proto {
        TCP | UDP | SCTP => {
            let name = match proto {
                TCP => "tcp",
                UDP => "udp",
                _ => "sctp",
            };
            let (src, dst) = (port([src, new_src], mask("tp_src")), port([dst, new_dst], mask("tp_dst")));
            set(name, &[("src", src), ("dst", dst)]);
        }
        ICMP | ICMPV6 => {
            let name = if proto == ICMP { "icmp" } else { "icmpv6" };
            let byte = |shift: u16| changed(Some(src >> shift & 0xff), Some(new_src >> shift & 0xff));
            set(name, &[("type", byte(8)), ("code", byte(0))]);
            if proto == ICMPV6 && matches!(new_src >> 8, 135 | 136) {
                neighbour(from, to, set);
            }
        }
        _ => {}
    }
}

/// Neighbour discovery, behind the fixed header of IPv6.
fn neighbour(from: &Headers<'_>, to: &Headers<'_>, set: &mut Set<'_>) {
    let target = |headers: &Headers<'_>| Some(Ipv6Addr::from(*headers.rest.get(48..)?.first_chunk()?));
    let option = |headers: &Headers<'_>, kind: u8| {
        let mut bytes = headers.rest.get(64..)?;
        loop {
            let [this, units, ..] = *bytes else { return None };
            if this == kind {
                return mac_at(bytes, 2);
            }
            bytes = bytes.get(usize::from(units.max(1)) * 8..)?;
        }
    };
    let address = |kind: u8| changed(option(from, kind), option(to, kind));
    set("nd", &[("target", changed(target(from), target(to))), ("sll", address(1)), ("tll", address(2))]);
}

/// Takes tags off until the rest is common, and puts the others on.
fn vlans(from: &Headers<'_>, to: &Headers<'_>, text: &mut String) {
    let (old, new): (Vec<_>, Vec<_>) = (from.tags().collect(), to.tags().collect());
    let common = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    for _ in common..old.len() {
        text.push_str("pop_vlan,");
    }
    for (kind, tci) in new.iter().rev().skip(common) {
        let tpid = if *kind == VLAN[0] { String::new() } else { format!("tpid={kind:#06x},") };
        let _ = write!(text, "push_vlan({tpid}vid={},pcp={}),", tci & 0xfff, tci >> 13);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp;

    fn among(from: &[u8], to: &[u8]) -> String {
        between(from, to, &|_| u128::MAX)
    }

    #[test]
    fn only_what_matters_is_set() {
        let packet = |src: &str, port: u16| {
            let ip = format!("ipv4(src={src},dst=10.0.0.2,proto=17,frag=no),udp(src={port},dst=2)");
            odp::packet(&format!("in_port(1),eth(),eth_type(0x0800),{ip}"), None).unwrap()
        };
        let (from, to) = (packet("10.0.0.1", 0x8201), packet("10.0.0.7", 0x8242));
        let mask = |port: u128| move |key: &str| if key == "tp_src" { port } else { 0xff };
        let exactly = "set(ipv4(src=0.0.0.7/0.0.0.255)),set(udp(src=33346)),";
        assert_eq!(between(&from, &to, &mask(0xff)), exactly.replace("33346", "66/0xff"));
        assert_eq!(between(&from, &to, &mask(0xffff)), exactly);
        assert_eq!(
            between(&from, &to, &mask(0)),
            exactly,
            "a change that nothing explains is shown as it is"
        );
    }

    #[test]
    fn changes_become_actions() {
        let packet = |tag: &str, src: &str, ttl: u8, tos: u8, port: u16| {
            let eth = format!("in_port(1),eth(src={src},dst=50:54:00:00:00:0a)");
            let ip = format!(
                "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos={tos},ttl={ttl},frag=no),udp(src={port},dst=2)"
            );
            let text = match tag {
                "" => format!("{eth},{ip}"),
                tag => format!("{eth},eth_type(0x8100),{tag},encap({ip})"),
            };
            odp::packet(&text, None).unwrap()
        };
        let plain = packet("", "50:54:00:00:00:05", 64, 0, 1);
        for (to, expected) in [
            (packet("", "50:54:00:00:00:05", 64, 0, 1), ""),
            (packet("", "50:54:00:00:00:06", 63, 0, 1), "set(eth(src=50:54:00:00:00:06)),set(ipv4(ttl=63)),"),
            (packet("", "50:54:00:00:00:05", 64, 40, 7), "set(ipv4(tos=0x28/0xfc)),set(udp(src=7)),"),
            (packet("vlan(vid=9,pcp=3)", "50:54:00:00:00:05", 64, 0, 1), "push_vlan(vid=9,pcp=3),"),
        ] {
            assert_eq!(among(&plain, &to), expected);
        }
        let tagged = packet("vlan(vid=9,pcp=3)", "50:54:00:00:00:05", 64, 0, 1);
        assert_eq!(among(&tagged, &plain), "pop_vlan,");
        let other = packet("vlan(vid=8,pcp=0)", "50:54:00:00:00:05", 64, 0, 1);
        assert_eq!(among(&tagged, &other), "pop_vlan,push_vlan(vid=8,pcp=0),");
        assert_eq!(among(&plain, &[1, 2]), "");
        let labelled = |labels: &[u8]| [&plain[..12], &[0x88, 0x47], labels, &plain[14..]].concat();
        let (one, two) = (labelled(&[0, 0, 0xb7, 64]), labelled(&[0, 0, 0xb6, 64, 0, 0, 0xb7, 64]));
        assert_eq!(among(&one, &two), "push_mpls(label=11,tc=3,ttl=64,bos=0,eth_type=0x8847),");
        assert_eq!(among(&two, &one), "pop_mpls(eth_type=0x8847),");
        assert_eq!(among(&one, &plain), "pop_mpls(eth_type=0x800),");
        let less = labelled(&[0, 0, 0xb7, 63]);
        assert_eq!(among(&one, &less), "set(mpls(label=11,tc=3,ttl=63,bos=1)),");
    }

    #[test]
    fn changes_of_neighbour_discovery_and_arp() {
        let nd = |target: &str, sll: &str| {
            let ip =
                "eth_type(0x86dd),ipv6(src=::1,dst=::2,proto=58,hlimit=255,frag=no),icmpv6(type=135,code=0)";
            odp::packet(&format!("in_port(1),eth(),{ip},nd(target={target},sll={sll})"), None).unwrap()
        };
        let (from, to) = (nd("fe80::1", "00:00:00:00:00:01"), nd("fe80::2", "00:00:00:00:00:02"));
        assert_eq!(among(&from, &to), "set(nd(target=fe80::2,sll=00:00:00:00:00:02)),");
        let arp = |op: u8| {
            odp::packet(&format!("in_port(1),eth(),eth_type(0x0806),arp(sip=1.1.1.1,op={op})"), None).unwrap()
        };
        assert_eq!(among(&arp(1), &arp(2)), "set(arp(op=2)),");
    }
}
