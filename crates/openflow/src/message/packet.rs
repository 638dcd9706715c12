//! Packets to and from controllers.

use crate::action::{Action, walk_list};
use crate::error::ErrorCode;
use crate::matching::Match;
use crate::message::Form;
use crate::oxm::Oxm;
use crate::property::{Aligned64, Bytes, Fields, properties};
use crate::version::{PortNo, Version};
use crate::wire::{Coder, Record, Step};

/// A packet for a controller.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketIn {
    /// Number of the buffer that holds the packet.
    pub buffer_id: u32,
    /// The packet's length.
    pub total_len: u16,
    /// Why it is sent: 0 no match, 1 action, 2 expired, 3 action set, 4 group, 5 packet-out.
    pub reason: u8,
    /// The table.
    pub table_id: u8,
    /// The flow's cookie, since version 1.3.
    pub cookie: u64,
    /// The ingress port, in versions 1.0 and 1.1.
    pub in_port: PortNo,
    /// The physical ingress port, in version 1.1.
    pub in_phy_port: PortNo,
    /// The ingress port and other metadata, since version 1.2.
    pub fields: Vec<Oxm>,
    /// The packet, or its start.
    pub data: Vec<u8>,
}

impl PacketIn {
    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        let version = c.version();
        c.u32(&mut self.buffer_id)?;
        if form == Form::Standard && version == Version::V1_1 {
            c.port(&mut self.in_port)?;
            c.port(&mut self.in_phy_port)?;
        }
        c.u16(&mut self.total_len)?;
        if form == Form::Standard && version == Version::V1_0 {
            c.port(&mut self.in_port)?;
            c.u8(&mut self.reason)?;
            c.pad(1)?;
            return c.rest(&mut self.data);
        }
        c.u8(&mut self.reason)?;
        c.u8(&mut self.table_id)?;
        if form == Form::Standard && version == Version::V1_1 {
            return c.rest(&mut self.data);
        }
        if form == Form::Nicira || version >= Version::V1_3 {
            c.u64(&mut self.cookie)?;
        }
        let mut matching = Match::Fields(std::mem::take(&mut self.fields));
        if form == Form::Nicira {
            let len = c.length()?;
            c.pad(6)?;
            matching.walk_fields(c, len)?;
        } else {
            matching.walk_typed(c)?;
        }
        if let Match::Fields(fields) = matching {
            self.fields = fields;
        }
        c.pad(2)?;
        c.rest(&mut self.data)
    }
}

properties! {
    /// A property of a packet in Nicira's second form.
    pub enum PacketProperty {
        /// The packet, or its start.
        0 => Packet(Bytes),
        /// The packet's length, if only its start is there.
        1 => FullLen(u32),
        /// Number of the buffer that holds the packet.
        2 => BufferId(u32),
        /// The table.
        3 => TableId(u8),
        /// The flow's cookie.
        4 => Cookie(Aligned64),
        /// Why it is sent.
        5 => Reason(u8),
        /// The ingress port and other metadata.
        6 => Metadata(Fields),
        /// Data from the action that sent it.
        7 => UserData(Bytes),
        /// What the switch needs to resume processing. Only the switch knows its content.
        8 => Continuation(Bytes),
    }
}

/// A packet for a controller in Nicira's second form, or one to resume.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketIn2(
    /// The properties.
    pub Vec<PacketProperty>,
);

impl Record for PacketIn2 {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.list(&mut self.0)
    }
}

/// A packet from a controller.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketOut {
    /// Number of the buffer that holds the packet; [`NO_BUFFER`](crate::version::NO_BUFFER): it is in `data`.
    pub buffer_id: u32,
    /// The ingress port to pretend, up to version 1.4.
    pub in_port: PortNo,
    /// The ingress port and other metadata, since version 1.5.
    pub fields: Vec<Oxm>,
    /// What to do with it.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Vec<u8>,
}

/// Port numbers from here on are reserved in 16 bits, or out of their range.
const FIRST_RESERVED: PortNo = PortNo(0xff00);

impl PacketOut {
    /// Refuses a packet that no switch accepts.
    pub(crate) fn check(&self, version: Version) -> Result<(), ErrorCode> {
        let reserved = [PortNo::LOCAL, PortNo::CONTROLLER, PortNo::ANY];
        if version < Version::V1_5 && self.in_port >= FIRST_RESERVED && !reserved.contains(&self.in_port) {
            return Err(ErrorCode::BrcBadPort);
        }
        crate::matching::check_fields(&self.fields)?;
        self.actions.iter().try_for_each(|action| action.check(version))
    }
}

impl Record for PacketOut {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        let version = c.version();
        c.u32(&mut self.buffer_id)?;
        if version < Version::V1_5 {
            c.port(&mut self.in_port)?;
        }
        let len = c.length()?;
        match version {
            Version::V1_0 => {}
            Version::V1_5 => {
                c.pad(2)?;
                let mut matching = Match::Fields(std::mem::take(&mut self.fields));
                matching.walk_typed(c)?;
                if let Match::Fields(fields) = matching {
                    self.fields = fields;
                }
            }
            _ => c.pad(6)?,
        }
        c.measured(len, ErrorCode::BacBadLen, |c| walk_list(c, &mut self.actions))?;
        c.rest(&mut self.data)
    }
}
