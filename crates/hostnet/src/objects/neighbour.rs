//! Neighbours: permanent and proxied entries, and those in use, so that connections do not wait for a resolution.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::split;
use crate::attributes::{Attributes, u32_at};
use crate::link::Interface;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_PROTOCOL: u16 = 12;
const NDA_FLAGS_EXT: u16 = 15;
const KEPT: &[u16] = &[NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NDA_FLAGS_EXT];
/// Flag of entries for which the host answers in the place of others.
pub(crate) const NTF_PROXY: u8 = 8;

const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// An entry of the neighbour table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    family: u8,
    pub(crate) interface: u32,
    state: u16,
    flags: u8,
    kind: u8,
    attributes: Attributes,
}

impl Neighbour {
    /// Parses a message of the kernel; `None` for entries that the kernel makes by itself, and unresolved ones.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let (header, mut attributes) = split(message, 12)?;
        let state = u16::from_ne_bytes([header[8], header[9]]);
        let flags = header[10];
        let ip = attributes.ip(NDA_DST)?;
        let resolved = attributes.get(NDA_LLADDR).is_some();
        let state = match state {
            _ if flags & NTF_PROXY != 0 => state,
            PERMANENT | REACHABLE if resolved => state,
            // Usable at once, and confirmed by the next packets.
            STALE | DELAY | PROBE if resolved => STALE,
            NOARP if resolved && !is_implied(ip) => NOARP,
            _ => return None,
        };
        attributes.retain(KEPT);
        Some(Self {
            family: header[0],
            interface: u32_at(header, 4)?,
            state,
            flags,
            kind: header[11],
            attributes,
        })
    }

    /// Returns whether the entry stays until it is removed.
    pub(crate) fn is_kept(&self) -> bool {
        self.flags & NTF_PROXY != 0 || self.state & (PERMANENT | NOARP) != 0
    }

    pub(super) fn moved(&self, to: &Interface) -> Self {
        Self { interface: to.index, ..self.clone() }
    }

    pub(super) fn key(&self) -> String {
        format!("{:?}", (self.interface, self.flags & NTF_PROXY, self.attributes.ip(NDA_DST)))
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.family, 0, 0, 0];
        body.extend_from_slice(&self.interface.to_ne_bytes());
        body.extend_from_slice(&self.state.to_ne_bytes());
        body.extend_from_slice(&[self.flags, self.kind]);
        self.attributes.emit(&mut body);
        body
    }
}

/// Returns whether the kernel makes the entry for this address by itself.
fn is_implied(ip: IpAddr) -> bool {
    ip.is_multicast() || ip.is_loopback() || ip.is_unspecified() || ip == IpAddr::from([255; 4])
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.attributes.ip(NDA_DST) {
            Some(ip) => write!(f, "{ip}")?,
            None => write!(f, "unknown")?,
        }
        if self.flags & NTF_PROXY != 0 {
            return write!(f, " proxy");
        }
        if let Some(mac) = self.attributes.get(NDA_LLADDR) {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            write!(f, " lladdr {}", mac.join(":"))?;
        }
        let state = match self.state {
            PERMANENT => " permanent",
            NOARP => " noarp",
            REACHABLE => " reachable",
            _ => " stale",
        };
        write!(f, "{state}")
    }
}
