//! Routes of any table through an interface.
//!
//! A route with several next hops moves as a whole: next hops through other interfaces stay in it. Routes that the
//! kernel makes for an address or an interface (table local) are left to the kernel.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{V6, split};
use crate::attributes::{Attributes, ip, u32_at};
use crate::link::Interface;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_MFC_STATS: u16 = 17;
const RTA_VIA: u16 = 18;
const RTA_EXPIRES: u16 = 23;
const RTA_PAD: u16 = 24;
const RTA_NH_ID: u16 = 30;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_ENCAP: u16 = 22;

const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_ONLINK: u8 = 4;
/// Routes that the kernel makes by itself.
const RTPROT_KERNEL: u8 = 2;
const TABLE_LOCAL: u32 = 255;
/// A route that is no destination for packets but a type of address: local, broadcast, anycast, multicast.
const ADDRESS_TYPES: [u8; 4] = [2, 3, 4, 5];
/// Ticks of a second in times that the kernel reports.
const USER_HZ: u32 = 100;
/// Header of a next hop in a list (`struct rtnexthop`).
const NEXT_HOP: usize = 8;

/// Place of a route among those that have the same destination and metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rank {
    /// No other interface has such a route.
    #[default]
    Only,
    /// In front of the route of another interface: this one is used.
    First,
    /// Behind the route of another interface.
    Last,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub(crate) family: u8,
    destination_length: u8,
    source_length: u8,
    tos: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    onlink: bool,
    /// Place among equal routes.
    #[serde(default)]
    pub rank: Rank,
    attributes: Attributes,
}

/// The routes of which the kernel uses the first: family, table, destination, source, type of service, metric.
pub(crate) type Slot = (u8, u32, (Option<IpAddr>, u8), (Option<IpAddr>, u8), u8, u32);

impl Route {
    /// Parses a message of the kernel; `None` for routes that the kernel makes by itself.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut attributes) = split(message, 12)?;
        let flags = u32_at(header, 8)?;
        let (protocol, kind) = (header[5], header[7]);
        let table = attributes.number(RTA_TABLE).unwrap_or_else(|| header[4].into());
        let own = protocol == RTPROT_KERNEL && (table == TABLE_LOCAL || ADDRESS_TYPES.contains(&kind));
        if flags & RTM_F_CLONED != 0 || own {
            return None;
        }
        attributes.set_number(RTA_TABLE, table);
        // A lifetime is reported among the statistics, and set by an attribute of its own.
        let expires = attributes.get(RTA_CACHEINFO).and_then(|info| u32_at(info, 8)).unwrap_or_default();
        if header[0] == V6 && expires.cast_signed() > 0 {
            attributes.set_number(RTA_EXPIRES, expires.div_ceil(USER_HZ));
        }
        for kind in [RTA_IIF, RTA_CACHEINFO, RTA_MFC_STATS, RTA_PAD] {
            attributes.remove(kind);
        }
        if attributes.get(RTA_NH_ID).is_some() {
            // The kernel reports the next hop's own attributes as well, and takes only one of both.
            for kind in [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH, RTA_ENCAP_TYPE, RTA_ENCAP] {
                attributes.remove(kind);
            }
        }
        let onlink = flags & u32::from(RTNH_F_ONLINK) != 0;
        let mut route = Self {
            family: header[0],
            destination_length: header[1],
            source_length: header[2],
            tos: header[3],
            protocol,
            scope: header[6],
            kind,
            onlink,
            rank: Rank::Only,
            attributes,
        };
        route.each_hop(|hop| hop[2] &= RTNH_F_ONLINK);
        Some(route)
    }

    /// Shows the header of each next hop of a list.
    fn each_hop(&mut self, mut see: impl FnMut(&mut [u8])) {
        let Some(list) = self.attributes.get(RTA_MULTIPATH) else { return };
        let mut list = list.to_vec();
        let mut at = 0;
        while let Some(hop) = list.get_mut(at..at + NEXT_HOP) {
            let length = usize::from(u16::from_ne_bytes([hop[0], hop[1]]));
            see(hop);
            at += length.max(NEXT_HOP).next_multiple_of(4);
        }
        self.attributes.set(RTA_MULTIPATH, &list);
    }

    /// Returns the interfaces of the next hops of a list.
    fn hops(&self) -> Vec<u32> {
        let mut hops = Vec::new();
        self.clone().each_hop(|hop| hops.extend(u32_at(hop, 4)));
        hops
    }

    /// Returns whether packets of this route leave through an interface.
    pub(crate) fn leaves_through(&self, interface: u32) -> bool {
        self.attributes.number(RTA_OIF) == Some(interface) || self.hops().contains(&interface)
    }

    /// Returns the route with another place among equal routes.
    pub(crate) fn with_rank(&self, rank: Rank) -> Self {
        Self { rank, ..self.clone() }
    }

    /// Returns the route with a gateway that is reached although no prefix says so.
    pub(crate) fn onlink(&self) -> Self {
        Self { onlink: true, ..self.clone() }
    }

    /// Returns whether the route has several next hops.
    pub(crate) fn is_multipath(&self) -> bool {
        self.attributes.get(RTA_MULTIPATH).is_some()
    }

    /// Returns whether the kernel made the route for this prefix of an address.
    pub(crate) fn is_prefix(&self, (network, length): (Ipv4Addr, u8)) -> bool {
        self.is_kernels() && self.prefix(RTA_DST, self.destination_length) == (Some(network.into()), length)
    }

    /// Returns whether the route is for all destinations that have no other.
    pub(crate) fn is_default(&self) -> bool {
        self.destination_length == 0
    }

    /// Returns the number of the route's next hop, if it refers to one.
    pub(crate) fn nexthop(&self) -> Option<u32> {
        self.attributes.number(RTA_NH_ID)
    }

    /// Returns whether packets go to a gateway, which another route has to reach.
    pub(crate) fn has_gateway(&self) -> bool {
        [RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH, RTA_NH_ID]
            .iter()
            .any(|kind| self.attributes.get(*kind).is_some())
    }

    fn prefix(&self, kind: u16, length: u8) -> (Option<IpAddr>, u8) {
        (self.attributes.ip(kind), length)
    }

    pub(crate) fn slot(&self) -> Slot {
        (
            self.family,
            self.attributes.number(RTA_TABLE).unwrap_or_default(),
            self.prefix(RTA_DST, self.destination_length),
            self.prefix(RTA_SRC, self.source_length),
            self.tos,
            self.attributes.number(RTA_PRIORITY).unwrap_or_default(),
        )
    }

    /// Returns whether the kernel made the route together with an address.
    pub(crate) fn is_kernels(&self) -> bool {
        self.protocol == RTPROT_KERNEL
    }

    /// Returns the source address that the route prefers.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.attributes.ip(RTA_PREFSRC)
    }

    /// Returns the route without a preferred source address: the kernel chooses one.
    pub(crate) fn without_source(&self) -> Self {
        let mut route = self.clone();
        route.attributes.remove(RTA_PREFSRC);
        route
    }

    /// Returns the seconds until the route expires, if it does.
    pub(crate) fn lifetime(&self) -> Option<u32> {
        self.attributes.number(RTA_EXPIRES)
    }

    /// Returns the route as it is `seconds` later; `None` if it has expired by then.
    pub(crate) fn aged(&self, seconds: u32) -> Option<Self> {
        let mut aged = self.clone();
        if let Some(expires) = self.lifetime() {
            let left = expires.saturating_sub(seconds);
            if left == 0 {
                return None;
            }
            aged.attributes.set_number(RTA_EXPIRES, left);
        }
        Some(aged)
    }

    pub(super) fn moved(&self, from: &Interface, to: &Interface) -> Self {
        let mut route = self.clone();
        if self.attributes.number(RTA_OIF) == Some(from.index) {
            route.attributes.set_number(RTA_OIF, to.index);
        }
        route.each_hop(|hop| {
            if u32_at(hop, 4) == Some(from.index) {
                hop[4..8].copy_from_slice(&to.index.to_ne_bytes());
            }
        });
        route
    }

    pub(super) fn key(&self) -> String {
        let hop = [RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_NH_ID, RTA_PREFSRC]
            .map(|kind| self.attributes.get(kind).map(<[u8]>::to_vec));
        let mut hops = self.hops();
        hops.sort_unstable();
        format!("{:?}", (self.slot(), self.kind, hop, hops))
    }

    fn header(&self) -> Vec<u8> {
        let table = self.attributes.number(RTA_TABLE).unwrap_or_default();
        let table = u8::try_from(table).unwrap_or_default();
        let mut header = vec![
            self.family,
            self.destination_length,
            self.source_length,
            self.tos,
            table,
            self.protocol,
            self.scope,
            self.kind,
        ];
        let flags = if self.onlink { u32::from(RTNH_F_ONLINK) } else { 0 };
        header.extend_from_slice(&flags.to_ne_bytes());
        header
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = self.header();
        self.attributes.emit(&mut body);
        body
    }

    /// Names this route and no equal one of another interface.
    pub(super) fn removal(&self) -> Vec<u8> {
        let mut body = self.header();
        let mut attributes = self.attributes.clone();
        attributes.remove(RTA_EXPIRES);
        attributes.emit(&mut body);
        body
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.attributes.ip(RTA_DST) {
            Some(destination) => write!(f, "{destination}/{}", self.destination_length)?,
            None => write!(f, "default")?,
        }
        if let Some(source) = self.attributes.ip(RTA_SRC) {
            write!(f, " from {source}/{}", self.source_length)?;
        }
        let via = self.attributes.get(RTA_VIA).and_then(|via| ip(via.get(2..)?));
        if let Some(gateway) = self.attributes.ip(RTA_GATEWAY).or(via) {
            write!(f, " via {gateway}")?;
        }
        match self.hops().len() {
            0 => {}
            hops => write!(f, " with {hops} next hops")?,
        }
        if let Some(id) = self.nexthop() {
            write!(f, " nhid {id}")?;
        }
        if let Some(table) = self.attributes.number(RTA_TABLE).filter(|table| *table != 254) {
            write!(f, " table {table}")?;
        }
        if let Some(source) = self.source() {
            write!(f, " src {source}")?;
        }
        if let Some(metric) = self.attributes.number(RTA_PRIORITY) {
            write!(f, " metric {metric}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a route of the main table for tests.
    pub(crate) fn route(destination: &str, gateway: Option<&str>, interface: u32) -> Route {
        let (ip, length) = destination.split_once('/').unwrap();
        let octets = |ip: &str| match ip.parse().unwrap() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let length: u8 = length.parse().unwrap();
        let mut attributes = Attributes::default();
        attributes.set_number(RTA_TABLE, 254);
        if length > 0 {
            attributes.set(RTA_DST, &octets(ip));
        }
        if let Some(gateway) = gateway {
            attributes.set(RTA_GATEWAY, &octets(gateway));
        }
        attributes.set_number(RTA_OIF, interface);
        let family = if ip.contains(':') { V6 } else { super::super::V4 };
        let mut message = vec![family, length, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        attributes.emit(&mut message);
        Route::parse(&message).unwrap()
    }

    /// Returns a default route with next hops through these interfaces.
    pub(crate) fn multipath(interfaces: &[u32]) -> Route {
        let mut list = Vec::new();
        for interface in interfaces {
            let mut gateway = Attributes::default();
            gateway.set(RTA_GATEWAY, &[10, 0, 0, 254]);
            list.extend_from_slice(&16_u16.to_ne_bytes());
            list.extend_from_slice(&[0x15, 0]);
            list.extend_from_slice(&interface.to_ne_bytes());
            gateway.emit(&mut list);
        }
        let mut attributes = Attributes::default();
        attributes.set_number(RTA_TABLE, 254);
        attributes.set(RTA_MULTIPATH, &list);
        let mut message = vec![super::super::V4, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        attributes.emit(&mut message);
        Route::parse(&message).unwrap()
    }

    impl Route {
        /// Returns the route with a preferred source address.
        pub(crate) fn preferring(mut self, source: [u8; 4]) -> Self {
            self.attributes.set(RTA_PREFSRC, &source);
            self
        }

        /// Returns the route as if the kernel had made it.
        pub(crate) fn made_by_kernel(self) -> Self {
            Self { protocol: RTPROT_KERNEL, ..self }
        }
    }

    fn interface(index: u32) -> Interface {
        Interface { index, name: format!("if{index}") }
    }

    #[test]
    fn next_hops_through_other_interfaces_stay() {
        let route = multipath(&[2, 5, 2]);
        assert_eq!(route.hops(), [2, 5, 2]);
        assert!(route.leaves_through(5) && route.leaves_through(2) && !route.leaves_through(3));
        let moved = route.moved(&interface(2), &interface(3));
        assert_eq!(moved.hops(), [3, 5, 3]);
        // Flags such as `dead` are states of the kernel.
        moved.clone().each_hop(|hop| assert_eq!(hop[2], 4));
        assert_eq!(moved.moved(&interface(3), &interface(2)), route);
        assert_eq!(route.to_string(), "default with 3 next hops");
    }

    #[test]
    fn routes_print_as_the_command_would() {
        assert_eq!(route("10.1.0.0/16", Some("10.0.0.254"), 2).to_string(), "10.1.0.0/16 via 10.0.0.254");
        assert_eq!(route("::/0", Some("fe80::1"), 2).to_string(), "default via fe80::1");
    }

    #[test]
    fn the_kernels_own_routes_stay() {
        let parse = |table: u8, protocol: u8, kind: u8| {
            Route::parse(&[super::super::V4, 0, 0, 0, table, protocol, 0, kind, 0, 0, 0, 0])
        };
        assert!(parse(254, RTPROT_KERNEL, 1).is_some());
        assert!(parse(255, RTPROT_KERNEL, 2).is_none());
        assert!(parse(254, RTPROT_KERNEL, 3).is_none());
        assert!(parse(255, 4, 2).is_some());
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_messages_are_parsed_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            use super::super::{Address, Neighbour, Nexthop, Rule};
            if let Some(route) = Route::parse(&bytes) {
                let _ = (route.to_string(), route.key() == route.key(), route.removal());
            }
            let _ = Address::parse(&bytes).map(|address| address.to_string());
            let _ = Rule::parse(&bytes).map(|rule| rule.to_string());
            let _ = Nexthop::parse(&bytes).map(|nexthop| nexthop.to_string());
            let _ = Neighbour::parse(&bytes).map(|neighbour| neighbour.to_string());
        }
    }
}
