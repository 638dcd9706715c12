//! What moves with an interface: addresses, routes, neighbours, policy rules and next hops.
//!
//! Each object is the kernel's own message, header fields and attributes, and prints itself as `ip` would.
//!
//! Invariant: an object that is added where it came from leaves the kernel as it was.

mod address;
mod neighbour;
mod nexthop;
mod route;
mod rule;

use std::fmt;

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::link::Interface;
use crate::netlink::{Connection, Refusal};

pub use address::Address;
pub(crate) use neighbour::NTF_PROXY;
pub use neighbour::Neighbour;
pub use nexthop::Nexthop;
pub use route::{Rank, Route};
pub use rule::Rule;

/// Kinds of messages about next hops, which `libc` lacks.
pub(crate) mod nexthop_messages {
    pub(crate) use super::nexthop::{RTM_GETNEXTHOP, RTM_NEWNEXTHOP};
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::address::tests::address;
    pub(crate) use super::route::tests::{multipath, route};
}

/// Number of the family IPv4.
pub(crate) const V4: u8 = 2;
/// Number of the family IPv6.
pub(crate) const V6: u8 = 10;

/// An object that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    /// An address of the interface.
    Address(Address),
    /// An entry of the neighbour table: ARP or neighbour discovery.
    Neighbour(Neighbour),
    /// A next hop that routes refer to by number.
    Nexthop(Nexthop),
    /// A policy rule that names the interface.
    Rule(Rule),
    /// A route through the interface.
    Route(Route),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "address {address}"),
            Self::Neighbour(neighbour) => write!(f, "neighbour {neighbour}"),
            Self::Nexthop(nexthop) => write!(f, "nexthop {nexthop}"),
            Self::Rule(rule) => write!(f, "rule {rule}"),
            Self::Route(route) => write!(f, "route {route}"),
        }
    }
}

/// What identifies an object to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u8, String);

/// How an object is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Behind equal ones. An object that exists already stays, with the lifetimes and state of the new one.
    Behind,
    /// In front of equal ones: for routes that another interface offers as well.
    InFront,
    /// In place of the object with the same key.
    Replace,
}

impl Object {
    /// Returns what identifies the object to the kernel, whatever its lifetimes and state.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Address(address) => Key(0, address.key()),
            Self::Neighbour(neighbour) => Key(1, neighbour.key()),
            Self::Nexthop(nexthop) => Key(2, nexthop.key()),
            Self::Rule(rule) => Key(3, rule.key()),
            Self::Route(route) => Key(4, route.key()),
        }
    }

    /// Returns whether somebody configured the object, in contrast to a neighbour that was found.
    pub(crate) fn is_configured(&self) -> bool {
        match self {
            Self::Neighbour(neighbour) => neighbour.is_kept(),
            _ => true,
        }
    }

    /// Returns the seconds until the object expires, if it does.
    pub(crate) fn lifetime(&self) -> Option<u32> {
        match self {
            Self::Address(address) => address.lifetime(),
            Self::Route(route) => route.lifetime(),
            Self::Neighbour(_) | Self::Nexthop(_) | Self::Rule(_) => None,
        }
    }

    /// Returns the object as it is at another interface.
    #[must_use]
    pub fn moved(&self, from: &Interface, to: &Interface) -> Self {
        match self {
            Self::Address(address) => Self::Address(address.moved(from, to)),
            Self::Neighbour(neighbour) => Self::Neighbour(neighbour.moved(to)),
            Self::Nexthop(nexthop) => Self::Nexthop(nexthop.moved(from, to)),
            Self::Rule(rule) => Self::Rule(rule.moved(from, to)),
            Self::Route(route) => Self::Route(route.moved(from, to)),
        }
    }

    /// Adds the object. One that exists already is no failure.
    pub(crate) fn add(&self, connection: &mut Connection, how: How) -> Result<(), Refusal> {
        let (kind, body) = match self {
            Self::Address(address) => (libc::RTM_NEWADDR, address.body()),
            Self::Neighbour(neighbour) => (libc::RTM_NEWNEIGH, neighbour.body()),
            Self::Nexthop(nexthop) => (nexthop::RTM_NEWNEXTHOP, nexthop.body()),
            Self::Rule(rule) => (libc::RTM_NEWRULE, rule.body()),
            Self::Route(route) => (libc::RTM_NEWROUTE, route.body()),
        };
        let flags = match (self, how) {
            // Rules may be doubled, and are not replaced.
            (Self::Rule(_), _) => NLM_F_CREATE | NLM_F_EXCL,
            (Self::Route(_), How::Behind) => NLM_F_CREATE | NLM_F_APPEND,
            (Self::Route(_), How::InFront) => NLM_F_CREATE,
            _ => NLM_F_CREATE | NLM_F_REPLACE,
        };
        match connection.request(kind, flags, &body) {
            Err(Refusal { errno: Errno::EXIST, .. }) => Ok(()),
            done => done,
        }
    }

    /// Removes the object. One that is gone already, or whose interface is, is no failure.
    pub(crate) fn remove(&self, connection: &mut Connection) -> Result<(), Refusal> {
        let (kind, body) = match self {
            Self::Address(address) => (libc::RTM_DELADDR, address.body()),
            Self::Neighbour(neighbour) => (libc::RTM_DELNEIGH, neighbour.body()),
            // Next hops are only replaced: removing one removes its routes.
            Self::Nexthop(_) => return Ok(()),
            Self::Rule(rule) => (libc::RTM_DELRULE, rule.body()),
            Self::Route(route) => (libc::RTM_DELROUTE, route.removal()),
        };
        match connection.request(kind, 0, &body) {
            Err(Refusal {
                errno: Errno::SRCH | Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::ADDRNOTAVAIL,
                ..
            }) => Ok(()),
            done => done,
        }
    }
}

/// Splits a message into its header of `length` bytes and its attributes.
fn split(message: &[u8], length: usize) -> Option<(&[u8], Attributes)> {
    let header = message.get(..length)?;
    Some((header, Attributes::parse(message.get(length..)?).ok()?))
}
