//! Roles of controllers, and which asynchronous messages they get.

use crate::error::ErrorCode;
use crate::message::Form;
use crate::property::{Property, properties};
use crate::version::Version;
use crate::wire::{Coder, Record, Step, layout, numbers};

numbers! {
    /// A controller's role.
    pub enum Role: u32 / u32 else RrfcBadRole {
        /// The role stays as it is.
        #[default]
        NoChange = 0,
        /// Full access.
        Equal = 1,
        /// Full access, for one controller.
        Primary = 2,
        /// Reads only.
        Secondary = 3,
    }
}

/// Asks for a role, or tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RoleMessage {
    /// The role. Nicira's form lacks [`Role::NoChange`].
    pub role: Role,
    /// The controller's short id, since version 1.5.
    pub short_id: u16,
    /// Counts elections; Nicira's form lacks it.
    pub generation_id: u64,
}

impl RoleMessage {
    pub(crate) fn walk_form<C: Coder>(&mut self, c: &mut C, form: Form) -> Step {
        if form == Form::Nicira {
            let Some(mut role) = self.role.number().checked_sub(u32::from(!C::READS)) else {
                return Err(crate::error::Fault::Inexpressible("the role nochange as an extension"));
            };
            let fault = c.fault(ErrorCode::RrfcBadRole);
            c.u32(&mut role)?;
            self.role = role.checked_add(1).and_then(Role::from_number).ok_or(fault)?;
            return Ok(());
        }
        c.record(&mut self.role)?;
        if c.version() >= Version::V1_5 {
            c.u16(&mut self.short_id)?;
            c.pad(2)?;
        } else {
            c.pad(4)?;
        }
        c.u64(&mut self.generation_id)
    }
}

/// A controller's role has changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RoleStatus {
    /// The role.
    pub role: Role,
    /// Why: 0 another controller became primary, 1 configuration, 2 an experimenter's reason.
    pub reason: u8,
    /// Counts elections.
    pub generation_id: u64,
    /// Properties.
    pub properties: Vec<Property>,
}

layout!(RoleStatus { role: record, reason: u8, _: 3, generation_id: u64, properties: list, });

/// Bitmaps of reasons: messages with these reasons are sent to a controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncMasks {
    /// Packet-in, for primary and equal controllers.
    pub packet_in: u32,
    /// Packet-in, for secondary controllers.
    pub packet_in_secondary: u32,
    /// Port status, for primary and equal controllers.
    pub port_status: u32,
    /// Port status, for secondary controllers.
    pub port_status_secondary: u32,
    /// Flow removed, for primary and equal controllers.
    pub flow_removed: u32,
    /// Flow removed, for secondary controllers.
    pub flow_removed_secondary: u32,
}

layout!(AsyncMasks {
    packet_in: u32,
    packet_in_secondary: u32,
    port_status: u32,
    port_status_secondary: u32,
    flow_removed: u32,
    flow_removed_secondary: u32,
});

properties! {
    /// A bitmap of reasons for a kind of message.
    pub enum AsyncProperty {
        /// Packet-in, for secondary controllers.
        0 => PacketInSecondary(u32),
        /// Packet-in, for primary and equal controllers.
        1 => PacketIn(u32),
        /// Port status, for secondary controllers.
        2 => PortStatusSecondary(u32),
        /// Port status, for primary and equal controllers.
        3 => PortStatus(u32),
        /// Flow removed, for secondary controllers.
        4 => FlowRemovedSecondary(u32),
        /// Flow removed, for primary and equal controllers.
        5 => FlowRemoved(u32),
        /// Role status, for secondary controllers.
        6 => RoleStatusSecondary(u32),
        /// Role status, for primary and equal controllers.
        7 => RoleStatus(u32),
        /// Table status, for secondary controllers.
        8 => TableStatusSecondary(u32),
        /// Table status, for primary and equal controllers.
        9 => TableStatus(u32),
        /// Forwarded requests, for secondary controllers.
        10 => RequestForwardSecondary(u32),
        /// Forwarded requests, for primary and equal controllers.
        11 => RequestForward(u32),
    }
}

/// The same as [`AsyncMasks`], as properties: since version 1.4, and as Nicira's extension.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncProperties(
    /// The properties.
    pub Vec<AsyncProperty>,
);

impl Record for AsyncProperties {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.list(&mut self.0)
    }
}
