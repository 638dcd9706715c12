//! Spreading of packets over links and ports by a hash.

use super::Content;
use crate::error::ErrorCode;
use crate::oxm::{OxmHeader, OxmId, Subfield};
use crate::version::PortNo;
use crate::wire::{Coder, Record, Step, numbers};

numbers! {
    /// Fields that a hash covers.
    pub enum HashFields: u16 / u16 else BacBadArgument {
        /// Ethernet source.
        #[default]
        EthSrc = 0,
        /// Ethernet to transport, the same for both directions.
        SymmetricL4 = 1,
        /// IP and TCP or SCTP ports, the same for both directions.
        SymmetricL3L4 = 2,
        /// IP and TCP, UDP or SCTP ports, the same for both directions.
        SymmetricL3L4Udp = 3,
        /// IP source.
        NwSrc = 4,
        /// IP destination.
        NwDst = 5,
        /// IP addresses, the same for both directions.
        SymmetricL3 = 6,
    }
}

/// Stores a hash's choice among links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Multipath {
    /// What is hashed.
    pub fields: HashFields,
    /// The hash's start value.
    pub basis: u16,
    /// How a link is chosen: 0 modulo, 1 threshold, 2 highest random weight, 3 iterated hash.
    pub algorithm: u16,
    /// The last link, counted from 0.
    pub max_link: u16,
    /// The algorithm's argument.
    pub argument: u32,
    /// Where the link is stored.
    pub destination: Subfield,
}

impl Content for Multipath {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        c.record(&mut self.fields)?;
        c.u16(&mut self.basis)?;
        c.pad(2)?;
        c.u16(&mut self.algorithm)?;
        c.u16(&mut self.max_link)?;
        c.u32(&mut self.argument)?;
        c.pad(2)?;
        self.destination.walk_range(c)?;
        self.destination.header.walk32(c)
    }
}

/// Sends the packet to one of several ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Bundle {
    /// How a port is chosen: 0 the first that is up, 1 highest random weight.
    pub algorithm: u16,
    /// What is hashed.
    pub fields: HashFields,
    /// The hash's start value.
    pub basis: u16,
    /// The ports.
    pub members: Vec<PortNo>,
}

/// The members' type: `NXM_OF_IN_PORT`.
const PORTS: OxmHeader =
    OxmHeader { id: OxmId { class: 0, experimenter: 0, field: 0 }, masked: false, length: 2 };

impl Bundle {
    fn walk_head<C: Coder>(&mut self, c: &mut C) -> Step<usize> {
        c.u16(&mut self.algorithm)?;
        c.record(&mut self.fields)?;
        c.u16(&mut self.basis)?;
        let mut kind = PORTS;
        kind.walk32(c)?;
        c.refuse_if(kind != PORTS, ErrorCode::BacBadArgument)?;
        let mut count = self.members.len() as u16;
        c.u16(&mut count)?;
        Ok(count.into())
    }

    fn walk_members<C: Coder>(&mut self, c: &mut C, count: usize) -> Step {
        c.zeros(4, ErrorCode::BacBadArgument)?;
        let mut members: Vec<Member> = self.members.iter().copied().map(Member).collect();
        c.counted(&mut members, count)?;
        self.members = members.into_iter().map(|Member(port)| port).collect();
        Ok(())
    }
}

#[derive(Default)]
struct Member(PortNo);

impl Record for Member {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.port16(&mut self.0)
    }
}

impl Content for Bundle {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        let count = self.walk_head(c)?;
        c.zeros(6, ErrorCode::BacBadArgument)?;
        self.walk_members(c, count)
    }
}

/// Stores one of several ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BundleLoad {
    /// The choice.
    pub bundle: Bundle,
    /// Where the port is stored.
    pub destination: Subfield,
}

impl Content for BundleLoad {
    fn walk_content<C: Coder>(&mut self, c: &mut C) -> Step {
        let count = self.bundle.walk_head(c)?;
        self.destination.walk_range(c)?;
        self.destination.header.walk32(c)?;
        self.bundle.walk_members(c, count)
    }
}
