//! IPv4 and IPv6 addresses of an interface, with their lifetimes.
//!
//! The order of IPv4 addresses matters: the first of a prefix is primary, and the kernel prefers it as a source.
//! Objects keep the kernel's order.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{V6, split};
use crate::attributes::{Attributes, u32_at};
use crate::link::Interface;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_LABEL: u16 = 3;
const IFA_BROADCAST: u16 = 4;
const IFA_ANYCAST: u16 = 5;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_RT_PRIORITY: u16 = 9;
const IFA_PROTO: u16 = 11;
/// Attributes that `RTM_NEWADDR` takes.
const KEPT: &[u16] = &[
    IFA_ADDRESS,
    IFA_LOCAL,
    IFA_LABEL,
    IFA_BROADCAST,
    IFA_ANYCAST,
    IFA_CACHEINFO,
    IFA_FLAGS,
    IFA_RT_PRIORITY,
    IFA_PROTO,
];

const NODAD: u32 = 0x02;
const DADFAILED: u32 = 0x08;
const HOMEADDRESS: u32 = 0x10;
const TENTATIVE: u32 = 0x40;
const MANAGETEMPADDR: u32 = 0x100;
const NOPREFIXROUTE: u32 = 0x200;
const MCAUTOJOIN: u32 = 0x400;
/// Flags that the owner of an address sets; all others are states that the kernel derives.
const CHOSEN: u32 = NODAD | HOMEADDRESS | MANAGETEMPADDR | NOPREFIXROUTE | MCAUTOJOIN;

const SCOPE_LINK: u8 = 253;
/// A lifetime without end.
const FOREVER: u32 = u32::MAX;
/// Longest label of an IPv4 address, its zero included.
const LABEL_SIZE: usize = 16;

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub(crate) family: u8,
    pub(crate) prefix: u8,
    pub(crate) scope: u8,
    pub(crate) interface: u32,
    attributes: Attributes,
}

impl Address {
    /// Parses a message of the kernel; `None` for addresses that must not move: duplicates on the link.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut attributes) = split(message, 8)?;
        let flags = attributes.number(IFA_FLAGS).unwrap_or_else(|| header[2].into());
        if flags & DADFAILED != 0 {
            return None;
        }
        attributes.retain(KEPT);
        let address = Self {
            family: header[0],
            prefix: header[1],
            scope: header[3],
            interface: u32_at(header, 4)?,
            attributes,
        };
        Some(address.with_flags(flags & (CHOSEN | TENTATIVE)))
    }

    fn flags(&self) -> u32 {
        self.attributes.number(IFA_FLAGS).unwrap_or_default()
    }

    fn with_flags(mut self, flags: u32) -> Self {
        self.attributes.set_number(IFA_FLAGS, flags);
        self
    }

    /// Returns the local address.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        self.attributes.ip(IFA_LOCAL).or_else(|| self.attributes.ip(IFA_ADDRESS))
    }

    /// Returns the other end of a point-to-point address.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        self.attributes.ip(IFA_ADDRESS).filter(|peer| Some(*peer) != self.local())
    }

    /// Returns whether the address is not in use yet although it needs no duplicate address detection.
    pub(crate) fn is_pending(&self) -> bool {
        self.flags() & (NODAD | TENTATIVE) == NODAD | TENTATIVE
    }

    /// Returns whether the address is IPv6.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.family == V6
    }

    /// Returns whether the address is only valid on its link, as each interface has one with IPv6.
    #[must_use]
    pub fn is_link_local_v6(&self) -> bool {
        self.is_v6() && self.scope == SCOPE_LINK
    }

    /// Returns the address without duplicate address detection: it is usable at once. An address whose detection has
    /// not ended is returned unchanged, and detected at its new interface.
    pub(crate) fn undetected(&self) -> Self {
        let flags = self.flags();
        let flags = if self.is_v6() && flags & TENTATIVE == 0 { flags | NODAD } else { flags };
        self.clone().with_flags(flags)
    }

    /// Returns the prefix to which the kernel makes a route for an IPv4 address.
    pub(crate) fn prefix_v4(&self) -> Option<(Ipv4Addr, u8)> {
        let IpAddr::V4(ip) = self.attributes.ip(IFA_ADDRESS)? else { return None };
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or_default();
        let own = self.prefix < 32 && self.flags() & NOPREFIXROUTE == 0;
        own.then(|| (Ipv4Addr::from_bits(ip.to_bits() & mask), self.prefix))
    }

    /// Returns the address for which the kernel makes no route to its prefix.
    pub(crate) fn without_prefix(self) -> Self {
        let flags = self.flags() | NOPREFIXROUTE;
        self.with_flags(flags)
    }

    /// Seconds for which the address is valid and preferred.
    fn lifetimes(&self) -> Option<(u32, u32)> {
        let info = self.attributes.get(IFA_CACHEINFO)?;
        Some((u32_at(info, 4)?, u32_at(info, 0)?))
    }

    /// Returns the seconds for which the address is valid; `None` if it does not expire.
    pub(crate) fn lifetime(&self) -> Option<u32> {
        self.lifetimes().map(|(valid, _)| valid).filter(|valid| *valid != FOREVER)
    }

    /// Returns the address as it is `seconds` later; `None` if it has expired by then.
    pub(crate) fn aged(&self, seconds: u32) -> Option<Self> {
        let mut aged = self.clone();
        let Some((valid, preferred)) = self.lifetimes() else { return Some(aged) };
        let less =
            |lifetime: u32| if lifetime == FOREVER { FOREVER } else { lifetime.saturating_sub(seconds) };
        if less(valid) == 0 {
            return None;
        }
        let mut info = less(preferred).to_ne_bytes().to_vec();
        info.extend_from_slice(&less(valid).to_ne_bytes());
        // Times of creation and update, which the kernel sets.
        info.extend_from_slice(&[0; 8]);
        aged.attributes.set(IFA_CACHEINFO, &info);
        Some(aged)
    }

    /// Returns this address with the lifetimes of `other`.
    pub(crate) fn with_lifetimes_of(&self, other: &Self) -> Self {
        let mut address = self.clone();
        if let Some(info) = other.attributes.get(IFA_CACHEINFO) {
            address.attributes.set(IFA_CACHEINFO, info);
        }
        address
    }

    pub(super) fn moved(&self, from: &Interface, to: &Interface) -> Self {
        let mut address = self.clone();
        address.interface = to.index;
        if let Some(label) = self.attributes.text(IFA_LABEL) {
            // `eth0:1` becomes `host0:1`; any other label is somebody's own choice.
            let rest = label.strip_prefix(&from.name).filter(|rest| rest.is_empty() || rest.starts_with(':'));
            let label = rest.map_or(label.clone(), |rest| format!("{}{rest}", to.name));
            if label.len() < LABEL_SIZE {
                address.attributes.set_text(IFA_LABEL, &label);
            } else {
                address.attributes.remove(IFA_LABEL);
            }
        }
        address
    }

    pub(super) fn key(&self) -> String {
        format!("{:?}", (self.interface, self.prefix, self.local(), self.peer()))
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let low = self.flags().to_ne_bytes();
        let low = if cfg!(target_endian = "big") { low[3] } else { low[0] };
        let mut body = vec![self.family, self.prefix, low & !0x40, self.scope];
        body.extend_from_slice(&self.interface.to_ne_bytes());
        let mut attributes = self.attributes.clone();
        attributes.set_number(IFA_FLAGS, self.flags() & CHOSEN);
        attributes.emit(&mut body);
        body
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match (self.local(), self.peer()) {
            (Some(local), Some(peer)) => write!(f, "{local} peer {peer}/{}", self.prefix)?,
            (Some(local), None) => write!(f, "{local}/{}", self.prefix)?,
            (None, _) => write!(f, "unknown/{}", self.prefix)?,
        }
        for (flag, word) in [(NODAD, "nodad"), (NOPREFIXROUTE, "noprefixroute")] {
            if self.flags() & flag != 0 {
                write!(f, " {word}")?;
            }
        }
        match self.lifetime() {
            Some(valid) => write!(f, " valid for {valid} s"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an address for tests.
    pub(crate) fn address(text: &str, interface: u32, valid: u32) -> Address {
        let (ip, prefix) = text.split_once('/').unwrap();
        let ip: IpAddr = ip.parse().unwrap();
        let bytes = match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let mut attributes = Attributes::default();
        attributes.set(IFA_ADDRESS, &bytes);
        if ip.is_ipv4() {
            attributes.set(IFA_LOCAL, &bytes);
            attributes.set_text(IFA_LABEL, "eth0");
        }
        let mut info = valid.to_ne_bytes().to_vec();
        info.extend_from_slice(&valid.to_ne_bytes());
        info.extend_from_slice(&[1; 8]);
        attributes.set(IFA_CACHEINFO, &info);
        attributes.set_number(IFA_FLAGS, 0x80);
        let mut message =
            vec![if ip.is_ipv4() { super::super::V4 } else { V6 }, prefix.parse().unwrap(), 0x80, 0];
        message.extend_from_slice(&interface.to_ne_bytes());
        attributes.emit(&mut message);
        Address::parse(&message).unwrap()
    }

    fn interface(index: u32, name: &str) -> Interface {
        Interface { index, name: name.into() }
    }

    #[test]
    fn lifetimes_run_on_and_end() {
        let lease = address("10.0.0.5/24", 2, 600);
        assert_eq!(lease.to_string(), "10.0.0.5/24 valid for 600 s");
        assert_eq!(lease.aged(100).unwrap().to_string(), "10.0.0.5/24 valid for 500 s");
        assert_eq!(lease.aged(600), None);
        let fixed = address("fd00::5/64", 2, FOREVER);
        assert_eq!(fixed.aged(100_000).unwrap().to_string(), "fd00::5/64");
    }

    #[test]
    fn labels_follow_the_interface() {
        let (eth0, host0) = (interface(2, "eth0"), interface(3, "host0"));
        let label = |text: &str, to: &Interface| {
            let mut address = address("10.0.0.5/24", 2, 600);
            address.attributes.set_text(IFA_LABEL, text);
            address.moved(&eth0, to).attributes.text(IFA_LABEL)
        };
        assert_eq!(label("eth0", &host0).as_deref(), Some("host0"));
        assert_eq!(label("eth0:web", &host0).as_deref(), Some("host0:web"));
        assert_eq!(label("eth0x", &host0).as_deref(), Some("eth0x"));
        assert_eq!(label("eth0:website", &interface(3, "a-long-name-15c")).as_deref(), None);
    }

    #[test]
    fn addresses_in_use_skip_duplicate_detection() {
        let used = address("fd00::5/64", 2, FOREVER);
        assert_eq!(used.undetected().flags(), NODAD);
        assert_eq!(used.clone().with_flags(TENTATIVE).undetected().flags(), TENTATIVE);
        assert_eq!(address("10.0.0.5/24", 2, 600).undetected().flags(), 0);
    }
}
