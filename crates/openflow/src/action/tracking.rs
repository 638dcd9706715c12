//! Connection tracking, address translation, and the actions that contain actions.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Action, Content, walk_list};
use crate::error::ErrorCode;
use crate::oxm::{OxmHeader, Subfield};
use crate::wire::{Coder, Record, Step};

/// Applies actions to a copy of the packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nest(
    /// The actions.
    pub Vec<Action>,
);

impl Content for Nest {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(6)?;
        walk_list(c, &mut self.0)
    }
}

bitflags::bitflags! {
    /// Options of connection tracking.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CtFlags: u16 {
        /// The connection is kept.
        const COMMIT = 1;
        /// A connection in the other direction is replaced.
        const FORCE = 1 << 1;
    }
}

/// A connection tracking zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Zone {
    /// A number.
    Id(u16),
    /// A field's value.
    Field(Subfield),
}

impl Default for Zone {
    fn default() -> Self {
        Zone::Id(0)
    }
}

impl Record for Zone {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let mut header = match self {
            Zone::Id(_) => OxmHeader::default(),
            Zone::Field(source) => source.header,
        };
        header.walk32(c)?;
        if C::READS && header != OxmHeader::default() {
            *self = Zone::Field(Subfield { header, ..Subfield::default() });
        }
        match self {
            Zone::Id(id) => c.u16(id),
            Zone::Field(source) => source.walk_range(c),
        }
    }
}

/// Tracks the packet's connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Track {
    /// Options.
    pub flags: CtFlags,
    /// The zone.
    pub zone: Zone,
    /// The table that the tracked packet goes to; 0xff: none.
    pub recirculate: u8,
    /// Port of the protocol whose related connections are found, such as 21; 0: none.
    pub helper: u16,
    /// Actions in the context of the tracker: translation, changes of mark and label.
    pub actions: Vec<Action>,
}

impl Default for Track {
    fn default() -> Self {
        Track {
            flags: CtFlags::empty(),
            zone: Zone::default(),
            recirculate: 0xff,
            helper: 0,
            actions: Vec::new(),
        }
    }
}

impl Content for Track {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.flags16(&mut self.flags)?;
        c.record(&mut self.zone)?;
        c.u8(&mut self.recirculate)?;
        c.pad(3)?;
        c.u16(&mut self.helper)?;
        walk_list(c, &mut self.actions)
    }
}

bitflags::bitflags! {
    /// Options of address translation.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct NatFlags: u16 {
        /// The source is translated.
        const SRC = 1;
        /// The destination is translated.
        const DST = 1 << 1;
        /// A client keeps its address.
        const PERSISTENT = 1 << 2;
        /// Ports are chosen by a hash.
        const PROTO_HASH = 1 << 3;
        /// Ports are chosen at random.
        const PROTO_RANDOM = 1 << 4;
    }
}

/// Translates addresses.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Nat {
    /// Options.
    pub flags: NatFlags,
    /// Addresses and ports to choose from.
    pub range: NatRange,
}

/// Addresses and ports to choose from; `None`: unrestricted.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NatRange {
    /// First IPv4 address.
    pub ipv4_min: Option<Ipv4Addr>,
    /// Last IPv4 address.
    pub ipv4_max: Option<Ipv4Addr>,
    /// First IPv6 address.
    pub ipv6_min: Option<Ipv6Addr>,
    /// Last IPv6 address.
    pub ipv6_max: Option<Ipv6Addr>,
    /// First port.
    pub port_min: Option<u16>,
    /// Last port.
    pub port_max: Option<u16>,
}

impl NatRange {
    fn present(&self) -> u16 {
        [
            self.ipv4_min.is_some(),
            self.ipv4_max.is_some(),
            self.ipv6_min.is_some(),
            self.ipv6_max.is_some(),
            self.port_min.is_some(),
            self.port_max.is_some(),
        ]
        .iter()
        .rev()
        .fold(0, |bits, present| bits << 1 | u16::from(*present))
    }
}

impl Content for Nat {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.pad(2)?;
        c.flags16(&mut self.flags)?;
        let mut present = self.range.present();
        c.u16(&mut present)?;
        c.refuse_if(present >= 1 << 6, ErrorCode::BacBadArgument)?;
        let range = &mut self.range;
        c.reporting(ErrorCode::BacBadArgument, |c| {
            ipv4(c, present & 1 != 0, &mut range.ipv4_min)?;
            ipv4(c, present & 2 != 0, &mut range.ipv4_max)?;
            ipv6(c, present & 4 != 0, &mut range.ipv6_min)?;
            ipv6(c, present & 8 != 0, &mut range.ipv6_max)?;
            port(c, present & 16 != 0, &mut range.port_min)?;
            port(c, present & 32 != 0, &mut range.port_max)
        })
    }
}

fn ipv4<C: Coder>(c: &mut C, present: bool, field: &mut Option<Ipv4Addr>) -> Step {
    if present {
        let mut bytes = field.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
        c.bytes(&mut bytes)?;
        *field = Some(bytes.into());
    }
    Ok(())
}

fn ipv6<C: Coder>(c: &mut C, present: bool, field: &mut Option<Ipv6Addr>) -> Step {
    if present {
        let mut bytes = field.unwrap_or(Ipv6Addr::UNSPECIFIED).octets();
        c.bytes(&mut bytes)?;
        *field = Some(bytes.into());
    }
    Ok(())
}

fn port<C: Coder>(c: &mut C, present: bool, field: &mut Option<u16>) -> Step {
    if present {
        let mut port = field.unwrap_or_default();
        c.u16(&mut port)?;
        *field = Some(port);
    }
    Ok(())
}
