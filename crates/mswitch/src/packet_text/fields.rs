//! The fields of a packet, named as in Open vSwitch (ovs-fields(7)).
//!
//! [`KEYS`] and [`WORDS`] are the only lists: a new field is an entry there and a line in [`super::frame`].

use std::net::{IpAddr, Ipv6Addr};

use packet::headers::protocol;
use packet::{EtherType, MacAddr, VlanTag};

use super::{Problem, instead};

/// Given fields; [`super::frame`] chooses the value of a field that is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) in_port: Option<String>,
    pub(super) dl_src: Option<MacAddr>,
    pub(super) dl_dst: Option<MacAddr>,
    pub(super) dl_type: Option<u16>,
    /// VLAN tags, outermost first.
    pub(super) tags: Vec<VlanTag>,
    pub(super) vlan: Option<u16>,
    pub(super) pcp: Option<u8>,
    pub(super) nw_src: Option<IpAddr>,
    pub(super) nw_dst: Option<IpAddr>,
    pub(super) transport: Option<Transport>,
    pub(super) tos: Option<u8>,
    pub(super) ttl: Option<u8>,
    pub(super) tp_src: Option<u16>,
    pub(super) tp_dst: Option<u16>,
    pub(super) tcp_flags: Option<u16>,
    pub(super) icmp_type: Option<u8>,
    pub(super) icmp_code: Option<u8>,
    pub(super) arp_op: Option<u16>,
    pub(super) arp_sha: Option<MacAddr>,
    pub(super) arp_tha: Option<MacAddr>,
    pub(super) nd_target: Option<Ipv6Addr>,
    pub(super) payload: Vec<u8>,
    /// Length of the whole frame.
    pub(super) len: Option<usize>,
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
    /// ICMP, or ICMPv6 in an IPv6 packet.
    Icmp,
    /// Any other protocol, by its number.
    Other(u8),
}

impl From<u8> for Transport {
    fn from(number: u8) -> Self {
        match number {
            protocol::TCP => Transport::Tcp,
            protocol::UDP => Transport::Udp,
            protocol::ICMP | protocol::ICMPV6 => Transport::Icmp,
            other => Transport::Other(other),
        }
    }
}

type Set = fn(&mut Fields, &str) -> Result<(), Problem>;

/// Fields with a value, by all of their names.
const KEYS: &[(&[&str], Set)] = &[
    (&["in_port"], |to, text| once(&mut to.in_port, text.to_owned())),
    (&["dl_src", "eth_src"], |to, text| once(&mut to.dl_src, mac(text)?)),
    (&["dl_dst", "eth_dst"], |to, text| once(&mut to.dl_dst, mac(text)?)),
    (&["dl_type", "eth_type"], |to, text| once(&mut to.dl_type, number(text, u16::MAX)?)),
    (&["dl_vlan", "vlan_vid"], |to, text| match number(text, u16::MAX)? {
        // Open vSwitch's notation for "no tag".
        u16::MAX => Ok(()),
        vid if vid > 4095 => Err(format!("`{text}` is not a VLAN, a number from 0 to 4095")),
        vid => once(&mut to.vlan, vid),
    }),
    (&["dl_vlan_pcp", "vlan_pcp"], |to, text| once(&mut to.pcp, number(text, 7)? as u8)),
    (&["vlan_tci"], |to, text| {
        let tci = number(text, u16::MAX)?;
        // The bit marks a tag; without a tag the other bits are 0.
        if tci & 0x1000 == 0 {
            return if tci == 0 { Ok(()) } else { Err(format!("`{text}` lacks the bit 0x1000 of a tag")) };
        }
        once(&mut to.vlan, tci & 0xfff)?;
        once(&mut to.pcp, (tci >> 13) as u8)
    }),
    (&["nw_src", "ip_src", "ipv6_src", "arp_spa"], |to, text| once(&mut to.nw_src, address(text)?)),
    (&["nw_dst", "ip_dst", "ipv6_dst", "arp_tpa"], |to, text| once(&mut to.nw_dst, address(text)?)),
    (&["nw_proto", "ip_proto"], |to, text| {
        once(&mut to.transport, Transport::from(number(text, u8::MAX.into())? as u8))
    }),
    (&["nw_tos"], |to, text| once(&mut to.tos, number(text, u8::MAX.into())? as u8)),
    (&["ip_dscp"], |to, text| once(&mut to.tos, (number(text, 63)? as u8) << 2)),
    (&["nw_ttl"], |to, text| once(&mut to.ttl, number(text, u8::MAX.into())? as u8)),
    (&["tp_src", "tcp_src", "udp_src"], |to, text| once(&mut to.tp_src, number(text, u16::MAX)?)),
    (&["tp_dst", "tcp_dst", "udp_dst"], |to, text| once(&mut to.tp_dst, number(text, u16::MAX)?)),
    (&["tcp_flags"], |to, text| once(&mut to.tcp_flags, flags(text)?)),
    (&["icmp_type", "icmpv6_type"], |to, text| once(&mut to.icmp_type, number(text, u8::MAX.into())? as u8)),
    (&["icmp_code", "icmpv6_code"], |to, text| once(&mut to.icmp_code, number(text, u8::MAX.into())? as u8)),
    (&["arp_op"], |to, text| once(&mut to.arp_op, operation(text)?)),
    (&["arp_sha"], |to, text| once(&mut to.arp_sha, mac(text)?)),
    (&["arp_tha"], |to, text| once(&mut to.arp_tha, mac(text)?)),
    (&["nd_target"], |to, text| match address(text)? {
        IpAddr::V6(target) => once(&mut to.nd_target, target),
        IpAddr::V4(_) => Err(format!("`{text}` is not an IPv6 address")),
    }),
    (&["len"], |to, text| once(&mut to.len, number(text, u16::MAX)?.into())),
];

/// Protocol keywords, with their EtherType and transport.
const WORDS: &[(&str, Option<EtherType>, Option<Transport>)] = &[
    ("ip", Some(EtherType::IPV4), None),
    ("ipv6", Some(EtherType::IPV6), None),
    ("arp", Some(EtherType::ARP), None),
    ("icmp", None, Some(Transport::Icmp)),
    ("icmp6", Some(EtherType::IPV6), Some(Transport::Icmp)),
    ("tcp", None, Some(Transport::Tcp)),
    ("tcp6", Some(EtherType::IPV6), Some(Transport::Tcp)),
    ("udp", None, Some(Transport::Udp)),
    ("udp6", Some(EtherType::IPV6), Some(Transport::Udp)),
];

/// Returns whether a text is a protocol keyword.
pub(super) fn is_word(text: &str) -> bool {
    WORDS.iter().any(|(word, ..)| *word == text)
}

impl Fields {
    /// Sets the field `key`.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), Problem> {
        let Some((_, set)) = KEYS.iter().find(|(names, _)| names.contains(&key)) else {
            let known: Vec<_> = KEYS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
            return Err(format!("unknown field `{key}`; {}", instead(key, &known)));
        };
        set(self, value).map_err(|problem| format!("`{key}`: {problem}"))
    }

    /// Sets the fields that the protocol `word` implies.
    pub(super) fn choose(&mut self, word: &str) -> Result<(), Problem> {
        let Some((_, kind, transport)) = WORDS.iter().find(|(known, ..)| *known == word) else {
            let words = WORDS.iter().map(|(word, ..)| *word);
            let known: Vec<_> =
                words.chain(KEYS.iter().flat_map(|(names, _)| names.iter().copied())).collect();
            return Err(match control::suggest::nearest(word, &known) {
                Some(name) if is_word(name) => format!("unknown protocol `{word}`; did you mean `{name}`?"),
                Some(name) => format!("`{word}` has no value; write `{name}=VALUE`"),
                None => {
                    let words: Vec<_> = WORDS.iter().map(|(word, ..)| *word).collect();
                    format!("unknown protocol `{word}`; expected {}", control::suggest::one_of(&words))
                }
            });
        };
        let clash = |problem| format!("`{word}`: {problem}");
        if let Some(kind) = kind {
            once(&mut self.dl_type, kind.0).map_err(clash)?;
        }
        transport.map_or(Ok(()), |transport| once(&mut self.transport, transport).map_err(clash))
    }
}

/// Sets a field; refuses a second, different value.
fn once<T: PartialEq>(field: &mut Option<T>, value: T) -> Result<(), Problem> {
    match field {
        Some(there) if *there != value => Err("contradicts an earlier value".into()),
        _ => {
            *field = Some(value);
            Ok(())
        }
    }
}

/// Parses a number, decimal or with `0x`.
pub(super) fn number(text: &str, most: u16) -> Result<u16, Problem> {
    exact(text)?;
    let read = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // from_str_radix accepts a sign.
        Some(digits) if digits.bytes().all(|c| c.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None if text.bytes().all(|c| c.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    let fits = read.and_then(|number| u16::try_from(number).ok()).filter(|number| *number <= most);
    fits.ok_or_else(|| format!("`{text}` is not a number from 0 to {most}"))
}

pub(super) fn mac(text: &str) -> Result<MacAddr, Problem> {
    exact(text)?;
    text.parse().map_err(|error: packet::ether::MacAddrError| error.to_string())
}

fn address(text: &str) -> Result<IpAddr, Problem> {
    exact(text)?;
    text.parse().map_err(|_| format!("`{text}` is not an IP address, such as 10.0.0.1 or 2001:db8::1"))
}

/// Refuses a mask.
fn exact(text: &str) -> Result<(), Problem> {
    match text.split_once('/') {
        Some((value, _)) => Err(format!("`{text}` has a mask; a packet has one value, such as {value}")),
        None => Ok(()),
    }
}

/// TCP flags (RFC 9293 §3.1): name, scapy's letter, bit.
const FLAGS: &[(&str, char, u16)] = &[
    ("fin", 'F', 0x01),
    ("syn", 'S', 0x02),
    ("rst", 'R', 0x04),
    ("psh", 'P', 0x08),
    ("ack", 'A', 0x10),
    ("urg", 'U', 0x20),
    ("ece", 'E', 0x40),
    ("cwr", 'C', 0x80),
];

/// Parses TCP flags: a number, `+syn+ack`, or `SA`.
fn flags(text: &str) -> Result<u16, Problem> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return number(text, 0xfff);
    }
    let unknown = || format!("`{text}` is not a set of TCP flags; write `+syn+ack`, `SA` or a number");
    if text.starts_with(['+', '-']) {
        let mut bits = 0;
        for item in text.replace('-', "+-").split('+').filter(|item| !item.is_empty()) {
            // A flag after a minus is clear, as are all flags that are not named.
            let (name, set) = item.strip_prefix('-').map_or((item, true), |name| (name, false));
            let (.., bit) = FLAGS.iter().find(|(known, ..)| *known == name).ok_or_else(unknown)?;
            bits |= if set { *bit } else { 0 };
        }
        return Ok(bits);
    }
    let bit = |letter: char| FLAGS.iter().find(|(_, known, _)| *known == letter).map(|(.., bit)| *bit);
    text.chars().try_fold(0, |bits, letter| Some(bits | bit(letter)?)).ok_or_else(unknown)
}

/// Parses an ARP operation (RFC 826): a number, or scapy's keywords.
fn operation(text: &str) -> Result<u16, Problem> {
    match text {
        "who-has" => Ok(1),
        "is-at" => Ok(2),
        number => self::number(number, u16::MAX),
    }
}
