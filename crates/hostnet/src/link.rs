//! Interfaces: name, MAC address, MTU, and the settings that the kernel keeps for each of them.
//!
//! Settings are read by netlink. Those of IPv4 and the address generation of IPv6 are written by netlink, too; the
//! other settings of IPv6 only exist as files below `/proc/sys/net/ipv6/conf`.
//!
//! Invariant: a setting is only written where it differs, so that a read-only `/proc/sys` rarely matters.

use std::collections::BTreeMap;
use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::attributes::{Attributes, u32_at};
use crate::netlink::{Connection, Refusal};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INET_CONF: u16 = 1;
const IFLA_INET6_CONF: u16 = 2;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IFF_UP: u32 = 1;

/// Value of `addr_gen_mode` with which the kernel makes no link-local address.
pub(crate) const NO_LINK_LOCAL: u8 = 1;

/// Settings of IPv4 that move: name and number (`IPV4_DEVCONF_*`).
const IPV4: &[(&str, u16)] = &[
    ("forwarding", 1),
    ("proxy_arp", 3),
    ("accept_redirects", 4),
    ("secure_redirects", 5),
    ("send_redirects", 6),
    ("shared_media", 7),
    (RP_FILTER, 8),
    ("accept_source_route", 9),
    ("log_martians", 11),
    ("arp_filter", 13),
    ("arp_announce", 18),
    ("arp_ignore", 19),
    ("promote_secondaries", 20),
    ("arp_accept", 21),
    ("arp_notify", 22),
    ("accept_local", 23),
    ("src_valid_mark", 24),
    ("proxy_arp_pvlan", 25),
    ("route_localnet", 26),
    ("ignore_routes_with_linkdown", 29),
    ("drop_unicast_in_l2_multicast", 30),
    ("drop_gratuitous_arp", 31),
    ("bc_forwarding", 32),
];

/// Settings of IPv6 that move: name and position (`DEVCONF_*`).
const IPV6: &[(&str, usize)] = &[
    ("disable_ipv6", 26),
    ("forwarding", 0),
    ("accept_ra", 3),
    ("accept_redirects", 4),
    ("autoconf", 5),
    ("use_tempaddr", 10),
    ("accept_ra_defrtr", 17),
    ("accept_ra_pinfo", 18),
    ("accept_ra_rtr_pref", 19),
    ("accept_ra_rt_info_max_plen", 21),
    ("proxy_ndp", 22),
    ("optimistic_dad", 23),
    ("accept_dad", 27),
    ("ndisc_notify", 29),
];

/// The reverse path filter of IPv4.
pub(crate) const RP_FILTER: &str = "rp_filter";
/// Returns the reverse path filter that accepts most while packets arrive at one interface and routes point to
/// another.
///
/// The kernel takes the stricter of an interface's filter and the namespace's. Switching it off is best: even a loose
/// filter refuses packets at an interface without an address. Where the namespace's own is strict, loose is best.
pub(crate) fn relaxed_filter() -> u32 {
    let of_all = std::fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter");
    if of_all.is_ok_and(|value| value.trim() == "0") { 0 } else { 2 }
}

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's index.
    pub index: u32,
    /// The present name.
    pub name: String,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "`{}`", self.name)
    }
}

/// The MAC address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// State of an interface apart from its addresses and routes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// MAC address; `None` for an interface that is not Ethernet.
    pub mac: Option<Mac>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub up: bool,
    /// Index of the bridge, bond or VRF that the interface belongs to.
    pub master: Option<u32>,
    /// Way in which IPv6 makes link-local addresses (`addr_gen_mode`); `None` without IPv6.
    pub address_generation: Option<u8>,
    /// Settings below `net.ipv4.conf`.
    pub ipv4: BTreeMap<String, u32>,
    /// Settings below `net.ipv6.conf`.
    pub ipv6: BTreeMap<String, i32>,
}

/// One interface of a listing.
pub(crate) struct Listed {
    pub(crate) interface: Interface,
    pub(crate) link: Link,
    /// Interface of the same namespace that this one lies on, as a VLAN does.
    pub(crate) lower: Option<u32>,
    /// The kernel's name for this kind of interface, such as `vlan`.
    pub(crate) kind: Option<String>,
}

/// Returns the body of a request about interface `index`, or about all for 0.
fn request(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![0_u8; 4];
    for word in [index, flags, change] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    body
}

/// Finds an interface by index.
pub(crate) fn by_index(connection: &mut Connection, index: u32) -> Result<Option<Listed>, Refusal> {
    match connection.get(libc::RTM_GETLINK, libc::RTM_NEWLINK, &request(index, 0, 0)) {
        Ok(message) => Ok(parse(&message)),
        Err(Refusal { errno: Errno::NODEV, .. }) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Finds an interface by name.
pub(crate) fn by_name(connection: &mut Connection, name: &str) -> Result<Option<Listed>, Refusal> {
    let mut body = request(0, 0, 0);
    let mut attributes = Attributes::default();
    attributes.set_text(IFLA_IFNAME, name);
    attributes.emit(&mut body);
    match connection.get(libc::RTM_GETLINK, libc::RTM_NEWLINK, &body) {
        Ok(message) => Ok(parse(&message)),
        // ERANGE: longer than any interface's name.
        Err(Refusal { errno: Errno::NODEV | Errno::RANGE | Errno::INVAL, .. }) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Lists all interfaces of the namespace.
pub(crate) fn all(connection: &mut Connection) -> Result<Vec<Listed>, Refusal> {
    let messages = connection.list(libc::RTM_GETLINK, libc::RTM_NEWLINK, &request(0, 0, 0))?;
    Ok(messages.iter().filter_map(|message| parse(message)).collect())
}

fn parse(message: &[u8]) -> Option<Listed> {
    let (index, flags) = (u32_at(message, 4)?, u32_at(message, 8)?);
    let attributes = Attributes::parse(message.get(16..)?).ok()?;
    let families = attributes.nested(IFLA_AF_SPEC).unwrap_or_default();
    let v4 = families.nested(AF_INET).unwrap_or_default();
    let v6 = families.nested(AF_INET6).unwrap_or_default();
    let v4 = v4.get(IFLA_INET_CONF).unwrap_or_default();
    let mode = v6.get(IFLA_INET6_ADDR_GEN_MODE).and_then(|mode| mode.first()).copied();
    let v6 = v6.get(IFLA_INET6_CONF).unwrap_or_default();
    let ipv4 = IPV4
        .iter()
        .filter_map(|(name, number)| Some(((*name).to_owned(), u32_at(v4, (usize::from(*number) - 1) * 4)?)))
        .collect();
    let ipv6 = IPV6
        .iter()
        .filter_map(|(name, at)| Some(((*name).to_owned(), u32_at(v6, at * 4)?.cast_signed())))
        .collect();
    let elsewhere = attributes.get(IFLA_LINK_NETNSID).is_some();
    Some(Listed {
        interface: Interface { index, name: attributes.text(IFLA_IFNAME)? },
        link: Link {
            mac: attributes.get(IFLA_ADDRESS).and_then(|mac| mac.try_into().ok()).map(Mac),
            mtu: attributes.number(IFLA_MTU)?,
            up: flags & IFF_UP != 0,
            master: attributes.number(IFLA_MASTER),
            address_generation: mode,
            ipv4,
            ipv6,
        },
        lower: attributes.number(IFLA_LINK).filter(|lower| !elsewhere && *lower != 0 && *lower != index),
        kind: attributes.nested(IFLA_LINKINFO).and_then(|info| info.text(IFLA_INFO_KIND)),
    })
}

/// A change of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets the MAC address.
    Mac(Mac),
    /// Sets the MTU.
    Mtu(u32),
    /// Sets the interface up or down.
    Up(bool),
    /// Sets the way in which IPv6 makes link-local addresses.
    AddressGeneration(u8),
    /// Writes a setting below `net.ipv4.conf`.
    Ipv4(String, u32),
    /// Writes a setting below `net.ipv6.conf`.
    Ipv6(String, i32),
}

impl Change {
    /// Describes the change, to follow "cannot".
    pub(crate) fn describe(&self, on: &Interface) -> String {
        let name = &on.name;
        match self {
            Self::Mac(mac) => format!("set the MAC address of {on} to {mac}"),
            Self::Mtu(mtu) => format!("set the MTU of {on} to {mtu}"),
            Self::Up(true) => format!("set {on} up"),
            Self::Up(false) => format!("set {on} down"),
            Self::AddressGeneration(mode) => format!("set net.ipv6.conf.{name}.addr_gen_mode to {mode}"),
            Self::Ipv4(setting, value) => format!("set net.ipv4.conf.{name}.{setting} to {value}"),
            Self::Ipv6(setting, value) => format!("set net.ipv6.conf.{name}.{setting} to {value}"),
        }
    }

    /// Returns whether an interface in this state needs no such change.
    pub(crate) fn holds(&self, link: &Link) -> bool {
        match self {
            Self::Mac(mac) => link.mac == Some(*mac),
            Self::Mtu(mtu) => link.mtu == *mtu,
            Self::Up(up) => link.up == *up,
            Self::AddressGeneration(mode) => link.address_generation == Some(*mode),
            Self::Ipv4(setting, value) => link.ipv4.get(setting) == Some(value),
            Self::Ipv6(setting, value) => link.ipv6.get(setting) == Some(value),
        }
    }

    /// Makes the change.
    pub(crate) fn make(&self, connection: &mut Connection, on: &Interface) -> Result<(), Refusal> {
        let mut attributes = Attributes::default();
        let mut flags = (0, 0);
        match self {
            Self::Mac(mac) => attributes.set(IFLA_ADDRESS, &mac.0),
            Self::Mtu(mtu) => attributes.set_number(IFLA_MTU, *mtu),
            Self::Up(up) => flags = (if *up { IFF_UP } else { 0 }, IFF_UP),
            Self::AddressGeneration(mode) => {
                let mut v6 = Attributes::default();
                v6.set(IFLA_INET6_ADDR_GEN_MODE, &[*mode]);
                attributes.set_nested(IFLA_AF_SPEC, &family(AF_INET6, &v6));
            }
            Self::Ipv4(setting, value) => {
                let number = IPV4.iter().find(|(name, _)| name == setting).map(|(_, number)| *number);
                let number = number.ok_or(Refusal { errno: Errno::INVAL, explanation: None })?;
                let (mut values, mut v4) = (Attributes::default(), Attributes::default());
                values.set_number(number, *value);
                v4.set_nested(IFLA_INET_CONF, &values);
                attributes.set_nested(IFLA_AF_SPEC, &family(AF_INET, &v4));
            }
            Self::Ipv6(setting, value) => {
                let path = format!("/proc/sys/net/ipv6/conf/{}/{setting}", on.name);
                return std::fs::write(path, value.to_string()).map_err(Refusal::from);
            }
        }
        let mut body = request(on.index, flags.0, flags.1);
        attributes.emit(&mut body);
        connection.request(libc::RTM_SETLINK, 0, &body)
    }
}

fn family(family: u16, settings: &Attributes) -> Attributes {
    let mut list = Attributes::default();
    list.set_nested(family, settings);
    list
}

impl Link {
    /// Returns the changes of settings that make `self` equal `wanted`, in an order that the kernel accepts. Whether
    /// the interface is up, its reverse path filter and its link-local addresses are left to the caller.
    pub(crate) fn changes_to(&self, wanted: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        if let Some(mac) = wanted.mac.filter(|mac| self.mac != Some(*mac)) {
            changes.push(Change::Mac(mac));
        }
        // `disable_ipv6` is first: other settings of IPv6 mean nothing while it holds. A larger MTU is set before.
        if self.mtu != wanted.mtu {
            changes.push(Change::Mtu(wanted.mtu));
        }
        for (name, _) in IPV6 {
            if let (Some(now), Some(value)) = (self.ipv6.get(*name), wanted.ipv6.get(*name))
                && now != value
            {
                changes.push(Change::Ipv6((*name).to_owned(), *value));
            }
        }
        for (name, _) in IPV4.iter().filter(|(name, _)| *name != RP_FILTER) {
            if let (Some(now), Some(value)) = (self.ipv4.get(*name), wanted.ipv4.get(*name))
                && now != value
            {
                changes.push(Change::Ipv4((*name).to_owned(), *value));
            }
        }
        changes
    }

    /// Returns the change that sets the reverse path filter, if it differs.
    pub(crate) fn reverse_path(&self, value: Option<u32>) -> Option<Change> {
        let now = self.ipv4.get(RP_FILTER)?;
        value.filter(|value| value != now).map(|value| Change::Ipv4(RP_FILTER.to_owned(), value))
    }

    /// Returns the change that sets the reverse path filter to this one's.
    pub(crate) fn own_reverse_path(&self) -> Option<Change> {
        self.ipv4.get(RP_FILTER).map(|value| Change::Ipv4(RP_FILTER.to_owned(), *value))
    }

    /// Returns the change that sets the generation of link-local addresses, if it differs.
    pub(crate) fn generation(&self, mode: Option<u8>) -> Option<Change> {
        let now = self.address_generation?;
        mode.filter(|mode| *mode != now).map(Change::AddressGeneration)
    }
}

/// Refuses interfaces whose configuration cannot move alone.
pub(crate) fn obstacle(connection: &mut Connection, of: &Listed) -> Result<Option<Error>, Refusal> {
    let all = all(connection)?;
    let name = |index: u32| {
        let found = all.iter().find(|other| other.interface.index == index);
        found.map_or_else(|| format!("interface {index}"), |other| other.interface.to_string())
    };
    let on = of.interface.name.clone();
    if of.kind.is_none() && of.interface.index == 1 || of.link.mac.is_none() {
        return Ok(Some(Error::NotEthernet { interface: on }));
    }
    if let Some(master) = of.link.master {
        return Ok(Some(Error::Enslaved { interface: on, master: name(master) }));
    }
    let upper = all
        .iter()
        .find(|other| other.lower == Some(of.interface.index) && other.kind.as_deref() != Some("veth"));
    Ok(upper.map(|upper| Error::Stacked {
        interface: on,
        upper: upper.interface.name.clone(),
        kind: upper.kind.clone().unwrap_or_else(|| "interface".to_owned()),
    }))
}
