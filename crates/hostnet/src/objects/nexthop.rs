//! Next hops that routes refer to by number (`ip nexthop`), and groups of them.
//!
//! Moving a next hop moves all its routes at once, so such routes are neither added nor removed while it lives. If
//! its interface vanishes, the kernel removes the next hop and its routes: then both are added again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::split;
use crate::attributes::Attributes;
use crate::link::Interface;

pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
const NHA_RES_GROUP: u16 = 12;
const KEPT: &[u16] = &[
    NHA_ID,
    NHA_GROUP,
    NHA_GROUP_TYPE,
    NHA_BLACKHOLE,
    NHA_OIF,
    NHA_GATEWAY,
    NHA_ENCAP_TYPE,
    NHA_ENCAP,
    NHA_FDB,
    NHA_RES_GROUP,
];
/// The gateway is reached although no prefix says so.
const RTNH_F_ONLINK: u32 = 4;

/// A next hop, or a group of next hops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nexthop {
    family: u8,
    protocol: u8,
    onlink: bool,
    attributes: Attributes,
}

impl Nexthop {
    /// Parses a message of the kernel.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut attributes) = split(message, 8)?;
        attributes.retain(KEPT);
        let flags = u32::from_ne_bytes(header.get(4..8)?.try_into().ok()?);
        Some(Self { family: header[0], protocol: header[2], onlink: flags & RTNH_F_ONLINK != 0, attributes })
    }

    /// Returns the number that routes refer to.
    pub(crate) fn id(&self) -> Option<u32> {
        self.attributes.number(NHA_ID)
    }

    /// Returns the index of the interface; `None` for a group.
    pub(crate) fn interface(&self) -> Option<u32> {
        self.attributes.number(NHA_OIF)
    }

    /// Returns the members of a group.
    pub(crate) fn members(&self) -> Vec<u32> {
        let group = self.attributes.get(NHA_GROUP).unwrap_or_default();
        group.chunks_exact(8).filter_map(|entry| crate::attributes::u32_at(entry, 0)).collect()
    }

    pub(super) fn moved(&self, from: &Interface, to: &Interface) -> Self {
        let mut nexthop = self.clone();
        if self.interface() == Some(from.index) {
            nexthop.attributes.set_number(NHA_OIF, to.index);
        }
        nexthop
    }

    pub(super) fn key(&self) -> String {
        format!("{:?}", self.attributes)
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.family, 0, self.protocol, 0];
        let flags = if self.onlink { RTNH_F_ONLINK } else { 0 };
        body.extend_from_slice(&flags.to_ne_bytes());
        self.attributes.emit(&mut body);
        body
    }
}

impl fmt::Display for Nexthop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "id {}", self.id().unwrap_or_default())?;
        if let Some(gateway) = self.attributes.ip(NHA_GATEWAY) {
            write!(f, " via {gateway}")?;
        }
        let members: Vec<String> = self.members().iter().map(ToString::to_string).collect();
        if !members.is_empty() {
            write!(f, " group {}", members.join("/"))?;
        }
        Ok(())
    }
}
