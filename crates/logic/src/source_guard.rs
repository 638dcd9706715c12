//! Source guard: the addresses that a port may send from and answer for.
//!
//! It checks the source of IPv4 and IPv6 packets, and the fields that make others believe that an address is here: the
//! sender in ARP (RFC 826), targets and link-layer addresses in neighbour discovery (RFC 4861). A station without an
//! address may ask for one (DHCP, RFC 2131) and check whether another has it (RFC 5227, RFC 4862), nothing else.
//!
//! Invariant: a packet that cannot be read, because it is malformed or its headers are too long, is not allowed. Frames
//! of other protocols have no address to guard and pass.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fabric::protection::Source;
use packet::headers::{IPV6_LEN, protocol};
use packet::{EtherType, IpVersion, Layers, MacAddr, ether};

use crate::discovery::{NdOption, NdOptions, SOURCE_LINK_LAYER, TARGET_LINK_LAYER};

/// Result of inspecting a packet's front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The packet may pass.
    Allowed,
    /// The packet may not pass.
    Forbidden,
    /// The result cannot be told without more of the packet.
    TooShort,
}

use Verdict::{Allowed, Forbidden, TooShort};

// ICMPv6 types (RFC 2710 §3, RFC 3810 §5.2, RFC 4861 §4).
const MLD_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const ROUTER_SOLICITATION: u8 = 133;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const MLD2_REPORT: u8 = 143;

/// Inspects the packet that begins with `header`, at a port that is granted `sources`.
pub(crate) fn look(header: &[u8], sources: &[Source]) -> Verdict {
    let Some((_, mac)) = ether::addresses(header) else { return Forbidden };
    let layers = Layers::parse(header);
    let guard = Guard { header, layers, mac, sources };
    match (layers.ethertype, layers.ip) {
        (_, Some(IpVersion::V4)) => guard.ipv4(),
        (_, Some(IpVersion::V6)) => guard.ipv6(),
        (Some(EtherType::ARP), None) => guard.arp(),
        (Some(EtherType::IPV4 | EtherType::IPV6), None) => Forbidden,
        // More tags than are read: the receiver that removes them may find any packet.
        (Some(ethertype), None) if ethertype.is_vlan() => Forbidden,
        (_, None) => Allowed,
    }
}

/// The address that a packet claims and `sources` do not grant, for explanations.
pub(crate) fn claim(header: &[u8], sources: &[Source]) -> Claim {
    let layers = Layers::parse(header);
    let address =
        |at: usize| header.get(at..).and_then(|rest| rest.first_chunk()).map(|b| Ipv4Addr::from(*b));
    let l3 = usize::from(layers.l3.unwrap_or(0));
    match (layers.ethertype, layers.ip) {
        (_, Some(IpVersion::V4)) => {
            address(l3 + 12).map_or(Claim::Unreadable, |found| Claim::Ip(found.into()))
        }
        (_, Some(IpVersion::V6)) => {
            let source = header.get(l3 + 8..).and_then(|rest| rest.first_chunk::<16>());
            let mac = ether::addresses(header).map(|(_, src)| src);
            let Some((source, mac)) = source.map(|bytes| Ipv6Addr::from(*bytes)).zip(mac) else {
                return Claim::Unreadable;
            };
            let granted = sources.iter().any(|granted| granted.allows(source.into(), mac));
            match granted || source.is_unspecified() && layers.protocol == Some(protocol::ICMPV6) {
                true => Claim::Discovery,
                false => Claim::Ip(source.into()),
            }
        }
        (Some(EtherType::ARP), None) => {
            address(usize::from(layers.l2_len) + 14).map_or(Claim::Unreadable, Claim::Arp)
        }
        _ => Claim::Unreadable,
    }
}

/// An address that a packet claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The source of an IP packet.
    Ip(IpAddr),
    /// The sender of an ARP packet.
    Arp(Ipv4Addr),
    /// A target or link-layer address of neighbour discovery.
    Discovery,
    /// It is malformed, or further back than source guard looks.
    Unreadable,
}

impl Claim {
    /// Returns the IP address.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Claim::Ip(address) => Some(address),
            Claim::Arp(address) => Some(address.into()),
            Claim::Discovery | Claim::Unreadable => None,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Ip(address) => write!(out, "IP source {address}"),
            Claim::Arp(address) => write!(out, "ARP sender {address}"),
            Claim::Discovery => out.write_str("the address in a neighbour discovery message"),
            Claim::Unreadable => out.write_str("an address that cannot be read"),
        }
    }
}

struct Guard<'a> {
    header: &'a [u8],
    layers: Layers,
    /// The frame's source.
    mac: MacAddr,
    sources: &'a [Source],
}

impl Guard<'_> {
    fn owns(&self, address: IpAddr, mac: MacAddr) -> bool {
        self.sources.iter().any(|source| source.allows(address, mac))
    }

    fn owned(&self, address: IpAddr) -> Verdict {
        if self.owns(address, self.mac) { Allowed } else { Forbidden }
    }

    fn field<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.header.get(at..)?.first_chunk().copied()
    }

    /// RFC 791 §3.1; a station without an address may send to a DHCP server, RFC 2131 §4.1.
    fn ipv4(&self) -> Verdict {
        let l3 = usize::from(self.layers.l3.unwrap_or(0));
        let Some(source) = self.field::<4>(l3 + 12).map(Ipv4Addr::from) else { return Forbidden };
        if !source.is_unspecified() {
            return self.owned(source.into());
        }
        let ports = self.layers.l4.and_then(|l4| self.field::<4>(l4.into()));
        let dhcp = self.layers.protocol == Some(protocol::UDP) && ports == Some([0, 68, 0, 67]);
        if dhcp { Allowed } else { Forbidden }
    }

    /// RFC 826: the sender's protocol address, for its hardware address and for the frame's source. A sender without an
    /// address is probing, RFC 5227 §2.1.1.
    fn arp(&self) -> Verdict {
        let at = usize::from(self.layers.l2_len);
        let Some([0, 1, 8, 0, 6, 4, _, _]) = self.field::<8>(at) else { return Forbidden };
        let (Some(hardware), Some(address)) = (self.field(at + 8), self.field::<4>(at + 14)) else {
            return Forbidden;
        };
        let address = Ipv4Addr::from(address);
        if address.is_unspecified()
            || self.owns(address.into(), MacAddr(hardware)) && self.owns(address.into(), self.mac)
        {
            Allowed
        } else {
            Forbidden
        }
    }

    /// RFC 8200 §3.
    fn ipv6(&self) -> Verdict {
        let l3 = usize::from(self.layers.l3.unwrap_or(0));
        let Some(source) = self.field::<16>(l3 + 8).map(Ipv6Addr::from) else { return Forbidden };
        if !source.is_unspecified() && self.owned(source.into()) == Forbidden {
            return Forbidden;
        }
        let Some(transport) = self.layers.protocol else { return TooShort };
        if transport != protocol::ICMPV6 {
            return if source.is_unspecified() { Forbidden } else { Allowed };
        }
        let kind = self.layers.l4.and_then(|l4| self.field::<1>(l4.into()));
        match kind {
            // Only a fragment after the first; receivers ignore neighbour discovery in fragments (RFC 6980).
            None if self.layers.fragment && !source.is_unspecified() => Allowed,
            None => TooShort,
            Some([kind]) => self.icmpv6(kind, l3, source),
        }
    }

    fn icmpv6(&self, kind: u8, l3: usize, source: Ipv6Addr) -> Verdict {
        let nameless = source.is_unspecified();
        match kind {
            ROUTER_SOLICITATION..=REDIRECT => {}
            MLD_REPORT | MLD_DONE | MLD2_REPORT => return Allowed,
            _ => return if nameless { Forbidden } else { Allowed },
        }
        if self.layers.fragment {
            return Forbidden;
        }
        let Some(l4) = self.layers.l4.map(usize::from) else { return TooShort };
        let Some(length) = self.field(l3 + 4).map(u16::from_be_bytes) else { return Forbidden };
        let Some(message) = self.header.get(l4..l3 + IPV6_LEN + usize::from(length)) else { return TooShort };
        let target =
            message.get(8..24).and_then(|bytes| bytes.first_chunk::<16>()).map(|b| Ipv6Addr::from(*b));
        // The owner of the link-layer address in the message, the offset of the options, and the type of the option
        // with it.
        let (owner, options, told) = match (kind, target) {
            (NEIGHBOUR_ADVERTISEMENT, Some(target)) if self.owns(target.into(), self.mac) => {
                (target, 24, TARGET_LINK_LAYER)
            }
            // Checking whether an address is free prepares taking it (RFC 4862 §5.4).
            (NEIGHBOUR_SOLICITATION, Some(target)) if nameless => {
                return self.owned(target.into());
            }
            (NEIGHBOUR_SOLICITATION, Some(_)) => (source, 24, SOURCE_LINK_LAYER),
            (ROUTER_SOLICITATION, _) if nameless => return Allowed,
            (ROUTER_SOLICITATION, _) => (source, 8, SOURCE_LINK_LAYER),
            (NEIGHBOUR_ADVERTISEMENT | NEIGHBOUR_SOLICITATION, _) => return Forbidden,
            // Routers are checked by their source alone.
            _ => return if nameless { Forbidden } else { Allowed },
        };
        self.options(message.get(options..).unwrap_or_default(), told, owner)
    }

    /// Each option of type `told` must be an address that `owner` has here.
    fn options(&self, options: &[u8], told: u8, owner: Ipv6Addr) -> Verdict {
        let is_owned = |option: NdOption<'_>| option.mac().is_some_and(|mac| self.owns(owner.into(), mac));
        let is_right = |option: Option<NdOption<'_>>| {
            option.is_some_and(|option| option.kind != told || is_owned(option))
        };
        if NdOptions(options).all(is_right) { Allowed } else { Forbidden }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ME: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn source(text: &str, mac: Option<[u8; 6]>) -> Source {
        let address: IpAddr = text.parse().unwrap();
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Source { address, prefix, mac: mac.map(MacAddr) }
    }

    /// 10.0.0.5 and fe80::5 at ME, 10.0.0.6 and fd00::6 at any station.
    fn granted() -> Vec<Source> {
        vec![
            source("10.0.0.5", Some(ME)),
            source("fe80::5", Some(ME)),
            source("10.0.0.6", None),
            source("fd00::6", None),
        ]
    }

    fn verdict(frame: &[u8]) -> Verdict {
        look(frame, &granted())
    }

    fn ethernet(mac: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xff; 6], &mac[..], &ethertype.to_be_bytes(), payload].concat()
    }

    fn ipv4(mac: [u8; 6], from: &str, payload: &[u8]) -> Vec<u8> {
        let from: Ipv4Addr = from.parse().unwrap();
        let mut header = [0; 20];
        (header[0], header[9]) = (0x45, 17);
        header[12..16].copy_from_slice(&from.octets());
        ethernet(mac, 0x0800, &[&header[..], payload].concat())
    }

    fn arp(mac: [u8; 6], sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
        let front = [0, 1, 8, 0, 6, 4, 0, 2];
        ethernet(mac, 0x0806, &[&front[..], &sender, &address, &[0; 10]].concat())
    }

    fn ipv6(mac: [u8; 6], from: &str, next: u8, payload: &[u8]) -> Vec<u8> {
        let from: Ipv6Addr = from.parse().unwrap();
        let length = (payload.len() as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0][..], &length, &[next, 255], &from.octets(), &[0; 16]].concat();
        ethernet(mac, 0x86dd, &[&header[..], payload].concat())
    }

    fn discovery(kind: u8, target: &str, option: Option<(u8, [u8; 6])>) -> Vec<u8> {
        let target: Ipv6Addr = target.parse().unwrap();
        let mut message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
        if let Some((kind, mac)) = option {
            message.extend([&[kind, 1][..], &mac].concat());
        }
        message
    }

    #[test]
    fn ipv4_sources() {
        assert_eq!(verdict(&ipv4(ME, "10.0.0.5", &[0; 8])), Allowed);
        assert_eq!(verdict(&ipv4(OTHER, "10.0.0.5", &[0; 8])), Forbidden, "another station");
        assert_eq!(verdict(&ipv4(OTHER, "10.0.0.6", &[0; 8])), Allowed);
        assert_eq!(verdict(&ipv4(ME, "10.0.0.7", &[0; 8])), Forbidden);
        assert_eq!(verdict(&ipv4(ME, "0.0.0.0", &[0, 68, 0, 67, 0, 0, 0, 0])), Allowed, "DHCP");
        assert_eq!(verdict(&ipv4(ME, "0.0.0.0", &[0, 67, 0, 68, 0, 0, 0, 0])), Forbidden);
        // Malformed, truncated, or below more tags than are read.
        assert_eq!(verdict(&ethernet(ME, 0x0800, &[0x44; 40])), Forbidden);
        assert_eq!(verdict(&ipv4(ME, "10.0.0.5", &[])[..30]), Forbidden);
        let mut tagged = ipv4(ME, "10.0.0.7", &[0; 8]);
        for tags in 1..=3 {
            tagged.splice(12..12, [0x81, 0, 0, 5]);
            assert_eq!(verdict(&tagged), Forbidden, "{tags} tags");
        }
    }

    #[test]
    fn what_is_claimed_is_named() {
        let named = |frame: &[u8]| claim(frame, &granted()).to_string();
        assert_eq!(named(&ipv4(ME, "10.0.0.7", &[0; 8])), "IP source 10.0.0.7");
        assert_eq!(named(&arp(ME, ME, [10, 0, 0, 1])), "ARP sender 10.0.0.1");
        assert_eq!(named(&ipv6(ME, "fd00::7", 17, &[0; 8])), "IP source fd00::7");
        let poison = ipv6(ME, "fe80::5", 58, &discovery(136, "fd00::1", None));
        assert_eq!(named(&poison), "the address in a neighbour discovery message");
        assert_eq!(named(&ethernet(ME, 0x0800, &[0x44; 40])), "an address that cannot be read");
    }

    #[test]
    fn arp_senders() {
        assert_eq!(verdict(&arp(ME, ME, [10, 0, 0, 5])), Allowed);
        assert_eq!(verdict(&arp(ME, OTHER, [10, 0, 0, 5])), Forbidden, "sends others to that station");
        assert_eq!(verdict(&arp(OTHER, ME, [10, 0, 0, 5])), Forbidden);
        assert_eq!(verdict(&arp(ME, ME, [10, 0, 0, 1])), Forbidden, "poison");
        assert_eq!(verdict(&arp(ME, ME, [0; 4])), Allowed, "a probe");
        assert_eq!(verdict(&arp(ME, ME, [10, 0, 0, 5])[..30]), Forbidden);
        let mut odd = arp(ME, ME, [10, 0, 0, 5]);
        odd[18] = 8;
        assert_eq!(verdict(&odd), Forbidden);
    }

    #[test]
    fn ipv6_sources() {
        assert_eq!(verdict(&ipv6(ME, "fe80::5", 17, &[0; 8])), Allowed);
        assert_eq!(verdict(&ipv6(OTHER, "fe80::5", 17, &[0; 8])), Forbidden);
        assert_eq!(verdict(&ipv6(ME, "fd00::7", 17, &[0; 8])), Forbidden);
        assert_eq!(verdict(&ipv6(ME, "::", 17, &[0; 8])), Forbidden);
        // With more headers than were copied, more of the packet is needed.
        let hidden = ipv6(ME, "fd00::6", 60, &[&[58, 20][..], &[0; 30]].concat());
        assert_eq!(verdict(&hidden), TooShort);
        let later_fragment = [58, 0, 0, 8, 0, 0, 0, 1, 136, 0];
        assert_eq!(verdict(&ipv6(ME, "fd00::6", 44, &later_fragment)), Allowed);
        assert_eq!(verdict(&ipv6(ME, "::", 44, &later_fragment)), TooShort);
        let advertisement = discovery(136, "fd00::1", None);
        let first_fragment = [&[58, 0, 0, 1, 0, 0, 0, 1][..], &advertisement].concat();
        assert_eq!(verdict(&ipv6(ME, "fd00::6", 44, &first_fragment)), Forbidden, "RFC 6980");
    }

    #[test]
    fn neighbour_discovery() {
        let from = |from: &str, message: &[u8]| verdict(&ipv6(ME, from, 58, message));
        assert_eq!(from("fe80::5", &discovery(136, "fe80::5", Some((2, ME)))), Allowed);
        assert_eq!(from("fe80::5", &discovery(136, "fe80::5", Some((2, OTHER)))), Forbidden);
        assert_eq!(from("fe80::5", &discovery(136, "fd00::1", Some((2, ME)))), Forbidden, "poison");
        assert_eq!(from("fe80::5", &discovery(136, "fd00::6", None)), Allowed);
        assert_eq!(from("fe80::5", &discovery(135, "fd00::1", Some((1, ME)))), Allowed);
        assert_eq!(from("fe80::5", &discovery(135, "fd00::1", Some((1, OTHER)))), Forbidden);
        assert_eq!(from("::", &discovery(135, "fd00::6", None)), Allowed, "check whether it is free");
        assert_eq!(from("::", &discovery(135, "fd00::1", None)), Forbidden);
        assert_eq!(from("::", &discovery(136, "fd00::6", None)), Allowed);
        assert_eq!(from("::", &[133, 0, 0, 0, 0, 0, 0, 0]), Allowed);
        assert_eq!(from("fe80::5", &[&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &OTHER].concat()), Forbidden);
        assert_eq!(from("::", &[143, 0, 0, 0, 0, 0, 0, 0]), Allowed, "before it has an address");
        assert_eq!(from("::", &[128, 0, 0, 0, 0, 0, 0, 0]), Forbidden);
        // An option of length zero, or one beyond the message.
        let mut odd = discovery(136, "fe80::5", Some((2, ME)));
        odd[25] = 0;
        assert_eq!(from("fe80::5", &odd), Forbidden);
        odd[25] = 2;
        assert_eq!(from("fe80::5", &odd), Forbidden);
        // The length in the packet exceeds the visible part.
        assert_eq!(verdict(&ipv6(ME, "fe80::5", 58, &discovery(136, "fe80::5", None))[..70]), TooShort);
    }

    #[test]
    fn other_protocols_have_nothing_to_guard() {
        assert_eq!(verdict(&ethernet(OTHER, 0x88cc, &[0; 46])), Allowed);
        assert_eq!(verdict(&ethernet(OTHER, 0x0026, &[0x42; 46])), Allowed);
    }

    proptest! {
        /// Whatever the other bytes: IP from an address that is not granted does not pass.
        #[test]
        fn no_other_address_passes(
            v6: bool, mut bytes in prop::collection::vec(any::<u8>(), 60..200), next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 60]),
        ) {
            let (kind, version, at) = if v6 { (0x86dd_u16, 0x60, 22) } else { (0x0800, 0x45, 26) };
            bytes[12..14].copy_from_slice(&kind.to_be_bytes());
            bytes[14] = version;
            bytes[if v6 { 20 } else { 23 }] = next;
            bytes[at] = 0x20;
            prop_assert_ne!(verdict(&bytes), Allowed);
        }
    }
}
