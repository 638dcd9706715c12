//! Matches and values of fields, read from text.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::ParseError;
use super::fields::{CT_STATES, TCP_FLAGS, ones};
use crate::field::{Field, FieldId, Notation};
use crate::oxm::Oxm;
use crate::version::{PortNo, Version};

/// A number: decimal, or hexadecimal behind `0x`.
pub(super) fn number(text: &str) -> Result<u128, ParseError> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| ParseError::new("number", text))
}

/// A number of at most as many bits as `T` has.
pub(super) fn small<T: TryFrom<u128>>(text: &str) -> Result<T, ParseError> {
    T::try_from(number(text)?).map_err(|_| ParseError::new("number in its range", text))
}

/// A port: its number or a reserved port's name.
pub(super) fn port(text: &str) -> Result<PortNo, ParseError> {
    let named = PortNo::NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    match named {
        Some((port, _)) => Ok(*port),
        None => {
            let number: u32 = small(text)?;
            // Reserved ports of 16 bits are those of 32 bits.
            Ok(if (0xff00..=0xffff).contains(&number) {
                PortNo(0xffff_0000 | number)
            } else {
                PortNo(number)
            })
        }
    }
}

fn mac(text: &str) -> Result<u128, ParseError> {
    let parts: Vec<&str> = text.split(':').collect();
    let bytes = parts.iter().map(|part| u8::from_str_radix(part, 16));
    let value =
        bytes.collect::<Result<Vec<u8>, _>>().map_err(|_| ParseError::new("Ethernet address", text))?;
    if value.len() != 6 {
        return Err(ParseError::new("Ethernet address", text));
    }
    Ok(value.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

fn ipv4(text: &str) -> Result<u128, ParseError> {
    let address: Ipv4Addr = text.parse().map_err(|_| ParseError::new("IPv4 address", text))?;
    Ok(u32::from(address).into())
}

fn ipv6(text: &str) -> Result<u128, ParseError> {
    let address: Ipv6Addr = text.parse().map_err(|_| ParseError::new("IPv6 address", text))?;
    Ok(address.into())
}

/// Flags such as `+syn-ack`: value and mask.
fn flags(text: &str, names: &[&str]) -> Result<(u128, u128), ParseError> {
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let tail = rest.get(1..).unwrap_or_default();
        let end = tail.find(['+', '-']).unwrap_or(tail.len());
        let (name, next) = tail.split_at(end);
        let bit =
            names.iter().position(|known| *known == name).ok_or_else(|| ParseError::new("flag", text))?;
        match sign {
            '+' => value |= 1 << bit,
            '-' => {}
            _ => return Err(ParseError::new("flag behind + or -", text)),
        }
        mask |= 1 << bit;
        rest = next;
    }
    Ok((value, mask))
}

/// A value of a field, with a mask behind a slash if not all bits matter.
pub(super) fn value(field: &Field, text: &str) -> Result<(u128, u128), ParseError> {
    let all = ones(field.bytes * 8);
    let signed = text.starts_with(['+', '-']);
    match field.notation {
        Notation::CtState if signed => return flags(text, &CT_STATES),
        Notation::TcpFlags if signed => return flags(text, &TCP_FLAGS),
        Notation::TunnelFlags if signed => return flags(text, &["oam"]),
        Notation::TunnelFlags if text == "oam" => return Ok((1, 1)),
        Notation::Frag => {
            return match text {
                "yes" => Ok((1, 1)),
                "first" => Ok((1, 3)),
                "later" => Ok((3, 3)),
                "no" => Ok((0, 3)),
                "not_later" => Ok((0, 2)),
                _ => Err(ParseError::new("kind of fragment", text)),
            };
        }
        _ => {}
    }
    let one = |text: &str| match field.notation {
        Notation::Mac => mac(text),
        Notation::Ipv4 => ipv4(text),
        Notation::Ipv6 => ipv6(text),
        Notation::Port => port(text).map(|port| port.0.into()),
        Notation::Port16 => port(text).map(|port| (port.0 & 0xffff).into()),
        _ => number(text),
    };
    let Some((value, mask)) = text.split_once('/') else {
        let value = one(text)?;
        return if value & !all == 0 {
            Ok((value, all))
        } else {
            Err(ParseError::new("value in its range", text))
        };
    };
    let bits = match field.notation {
        Notation::Ipv4 => Some(32),
        Notation::Ipv6 => Some(128),
        _ => None,
    };
    let mask = match (bits, mask.parse::<u32>()) {
        (Some(bits), Ok(prefix)) if prefix <= bits => {
            all & !u128::MAX.checked_shr(128 - bits + prefix).unwrap_or(0)
        }
        _ => one(mask)?,
    };
    let value = one(value)?;
    if (value | mask) & !all != 0 {
        return Err(ParseError::new("value in its range", text));
    }
    Ok((value & mask, mask))
}

/// A field's TLV: without a mask if all bits matter.
pub(super) fn oxm(id: FieldId, version: Version, value: u128, mask: u128) -> Oxm {
    let field = id.field();
    let exact = mask & ones(field.bits.into()) == ones(field.bits.into());
    let tlv = Oxm::number(id, version, value);
    if exact { tlv } else { Oxm { mask: Some(Oxm::number(id, version, mask).value), ..tlv } }
}

/// The fields of a match so far.
pub(super) struct MatchBuilder {
    version: Version,
    fields: BTreeMap<FieldId, (u128, u128)>,
    /// Tag control information and its mask.
    tci: (u128, u128),
    /// Fields whose meaning depends on the protocol, which may be named later.
    pending: Vec<(String, String)>,
}

impl MatchBuilder {
    pub(super) fn new(version: Version) -> Self {
        MatchBuilder { version, fields: BTreeMap::new(), tci: (0, 0), pending: Vec::new() }
    }

    /// Takes a protocol's keyword; `false` if it is none.
    pub(super) fn keyword(&mut self, name: &str) -> bool {
        let (eth_type, protocol) = match name {
            "ip" => (0x0800, None),
            "icmp" => (0x0800, Some(1)),
            "igmp" => (0x0800, Some(2)),
            "tcp" => (0x0800, Some(6)),
            "udp" => (0x0800, Some(17)),
            "sctp" => (0x0800, Some(132)),
            "ipv6" => (0x86dd, None),
            "icmp6" => (0x86dd, Some(58)),
            "tcp6" => (0x86dd, Some(6)),
            "udp6" => (0x86dd, Some(17)),
            "sctp6" => (0x86dd, Some(132)),
            "arp" => (0x0806, None),
            "rarp" => (0x8035, None),
            "mpls" => (0x8847, None),
            "mplsm" => (0x8848, None),
            _ => return false,
        };
        self.fields.insert(FieldId::EthType, (eth_type, 0xffff));
        if let Some(protocol) = protocol {
            self.fields.insert(FieldId::NwProto, (protocol, 0xff));
        }
        true
    }

    /// Takes a field by its name.
    pub(super) fn field(&mut self, name: &str, text: &str) -> Result<(), ParseError> {
        match name {
            "dl_vlan" => self.tag(0x1000 | small::<u16>(text)? as u128, 0x1fff),
            "dl_vlan_pcp" | "vlan_pcp" => self.tag(0x1000 | u128::from(small::<u8>(text)? & 7) << 13, 0xf000),
            "vlan_tci" => {
                let (value, mask) = value(FieldId::VlanTci.field(), text)?;
                self.tag(value, mask);
            }
            "vlan_vid" => {
                let (value, mask) = value(FieldId::VlanVid.field(), text)?;
                self.tag(value, mask & 0x1fff);
            }
            "nw_src" | "nw_dst" | "nw_proto" | "tp_src" | "tp_dst" | "icmp_type" | "icmp_code" => {
                self.pending.push((name.to_owned(), text.to_owned()));
            }
            _ => {
                let name = if name.starts_with("gtpu_") { format!("tun_{name}") } else { name.to_owned() };
                let field = Field::with_name(&name).ok_or_else(|| ParseError::new("field", &name))?;
                let (value, mask) = value(field, text)?;
                self.set(field.id, value, mask);
            }
        }
        Ok(())
    }

    fn tag(&mut self, value: u128, mask: u128) {
        self.tci = (self.tci.0 | value & mask, self.tci.1 | mask);
    }

    /// Stores a field under its form in the version.
    fn set(&mut self, id: FieldId, value: u128, mask: u128) {
        let old = self.version == Version::V1_0;
        let exact = mask == ones(id.field().bytes * 8);
        let (id, value) = match id {
            FieldId::InPort if !old => (FieldId::InPortOxm, PortNo::from_16_bits(value as u16).0.into()),
            FieldId::InPortOxm if old => (FieldId::InPort, value & 0xffff),
            FieldId::NwTos if !old => (FieldId::IpDscp, value >> 2),
            FieldId::IpDscp if old => (FieldId::NwTos, value << 2),
            _ => (id, value),
        };
        let mask = if exact { ones(id.field().bytes * 8) } else { mask };
        self.fields.insert(id, (value, mask));
    }

    /// The match: fields in an order that has prerequisites first.
    pub(super) fn finish(mut self) -> Result<Vec<Oxm>, ParseError> {
        let known = |builder: &Self, id| builder.fields.get(&id).map(|(value, _)| *value);
        // The protocol goes before what depends on it.
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|(name, _)| name != "nw_proto");
        for (name, text) in pending {
            let eth_type = known(&self, FieldId::EthType);
            let arp = matches!(eth_type, Some(0x0806 | 0x8035));
            let protocol = known(&self, FieldId::NwProto);
            let id = match (name.as_str(), protocol, eth_type) {
                ("nw_proto", ..) => {
                    if arp {
                        FieldId::ArpOp
                    } else {
                        FieldId::NwProto
                    }
                }
                ("nw_src", ..) => {
                    if arp {
                        FieldId::ArpSpa
                    } else {
                        FieldId::IpSrc
                    }
                }
                ("nw_dst", ..) => {
                    if arp {
                        FieldId::ArpTpa
                    } else {
                        FieldId::IpDst
                    }
                }
                ("tp_src", Some(6), _) => FieldId::TcpSrc,
                ("tp_dst", Some(6), _) => FieldId::TcpDst,
                ("tp_src", Some(17), _) => FieldId::UdpSrc,
                ("tp_dst", Some(17), _) => FieldId::UdpDst,
                ("tp_src", Some(132), _) => FieldId::SctpSrc,
                ("tp_dst", Some(132), _) => FieldId::SctpDst,
                ("icmp_type", _, Some(0x86dd)) => FieldId::Icmpv6Type,
                ("icmp_code", _, Some(0x86dd)) => FieldId::Icmpv6Code,
                ("icmp_type", ..) => FieldId::IcmpType,
                ("icmp_code", ..) => FieldId::IcmpCode,
                _ => return Err(ParseError::new("protocol before a field that depends on it", &name)),
            };
            let (value, mask) = value(id.field(), &text)?;
            self.set(id, value, mask);
        }
        let (tci, mask) = self.tci;
        if self.version == Version::V1_0 {
            if mask != 0 {
                self.fields.insert(FieldId::VlanTci, (tci, mask));
            }
        } else {
            if mask & 0x1fff != 0 {
                self.fields.insert(FieldId::VlanVid, (tci & 0x1fff, mask & 0x1fff));
            }
            if mask & 0xe000 == 0xe000 && tci & 0x1000 != 0 {
                self.fields.insert(FieldId::VlanPcp, (tci >> 13, 7));
            }
        }
        // Without a mask, the VLAN's id is matched with the bit that says that there is one.
        let version = self.version;
        let tlv = |(id, (value, mask)): (FieldId, (u128, u128))| match id {
            FieldId::VlanVid if mask != 0x1fff => {
                Oxm { mask: Some(Oxm::number(id, version, mask).value), ..Oxm::number(id, version, value) }
            }
            _ => oxm(id, version, value, mask),
        };
        Ok(self.fields.into_iter().map(tlv).collect())
    }
}
