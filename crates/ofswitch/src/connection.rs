//! A connection: its version, role, filters, and the messages that wait for it.
//!
//! Replies always wait; asynchronous messages are dropped and counted while more than [`crate::Limits::backlog`] bytes
//! wait, so that a controller that reads nothing costs no more memory than its own requests make.

use std::collections::{BTreeMap, VecDeque};

use openflow::message::Form;
use openflow::message::{
    AsyncMasks, AsyncProperties, AsyncProperty, BundleFlags, FlowModCommand, Role, TableFeatures,
};
use openflow::multipart::MonitorRequest;
use openflow::{Message, Version};

/// A connection's number, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A controller.
    Controller,
    /// A tool such as `ovs-ofctl`: gets asynchronous messages only when it has asked for packets.
    Service,
}

/// Kinds of asynchronous messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Notice {
    PacketIn = 0,
    PortStatus = 1,
    FlowRemoved = 2,
    RoleStatus = 3,
    TableStatus = 4,
    RequestForward = 5,
}

/// Mask of the reason of packet-ins whose TTL is invalid.
const INVALID_TTL: u32 = 1 << crate::program::outputs::INVALID_TTL;

/// Bytes of a packet for a controller that has not asked for a number.
const MISS_SEND_LEN: u16 = 128;

/// Reasons of flow-removed messages before version 1.4.
const OLD_REMOVALS: u32 = 0xf;

/// Reasons for which asynchronous messages are sent, for primary and equal controllers, and for secondary ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filters {
    primary: [u32; 6],
    secondary: [u32; 6],
}

impl Default for Filters {
    fn default() -> Self {
        // No match, action, and what the later versions split off; not expired packets.
        Filters { primary: [0b11_1011, 7, 0x3f, 7, 0x18, 0], secondary: [0, 7, 0, 7, 0, 0] }
    }
}

impl Filters {
    /// The filters as masks.
    pub(crate) fn masks(&self) -> AsyncMasks {
        let ([packet_in, port_status, flow_removed, ..], [packet2, port2, flow2, ..]) =
            (self.primary, self.secondary);
        AsyncMasks {
            packet_in,
            packet_in_secondary: packet2,
            port_status,
            port_status_secondary: port2,
            // These masks are of versions before 1.4, which do not have the other reasons.
            flow_removed: flow_removed & OLD_REMOVALS,
            flow_removed_secondary: flow2 & OLD_REMOVALS,
        }
    }

    /// Sets the filters.
    pub(crate) fn set_masks(&mut self, masks: &AsyncMasks) {
        let primary = [masks.packet_in, masks.port_status, masks.flow_removed];
        let secondary =
            [masks.packet_in_secondary, masks.port_status_secondary, masks.flow_removed_secondary];
        self.primary.iter_mut().zip(primary).for_each(|(mask, new)| *mask = new);
        self.secondary.iter_mut().zip(secondary).for_each(|(mask, new)| *mask = new);
    }

    /// Whether packets whose TTL is invalid are sent to a primary controller.
    pub(crate) fn has_expired(&self) -> bool {
        self.primary.first().is_some_and(|reasons| reasons & INVALID_TTL != 0)
    }

    /// Sets whether they are.
    pub(crate) fn set_expired(&mut self, wanted: bool) {
        for reasons in self.primary.iter_mut().take(1) {
            *reasons = if wanted { *reasons | INVALID_TTL } else { *reasons & !INVALID_TTL };
        }
    }

    /// The filters as properties.
    pub(crate) fn properties(&self) -> AsyncProperties {
        let ([p0, p1, p2, p3, p4, p5], [s0, s1, s2, s3, s4, s5]) = (self.primary, self.secondary);
        use AsyncProperty as P;
        AsyncProperties(vec![
            P::PacketInSecondary(s0),
            P::PacketIn(p0),
            P::PortStatusSecondary(s1),
            P::PortStatus(p1),
            P::FlowRemovedSecondary(s2),
            P::FlowRemoved(p2),
            P::RoleStatusSecondary(s3),
            P::RoleStatus(p3),
            P::TableStatusSecondary(s4),
            P::TableStatus(p4),
            P::RequestForwardSecondary(s5),
            P::RequestForward(p5),
        ])
    }

    /// Sets those filters that properties name.
    pub(crate) fn set_properties(&mut self, properties: &AsyncProperties) {
        for property in &properties.0 {
            let (primary, at, mask) = match *property {
                AsyncProperty::PacketInSecondary(mask) => (false, 0, mask),
                AsyncProperty::PacketIn(mask) => (true, 0, mask),
                AsyncProperty::PortStatusSecondary(mask) => (false, 1, mask),
                AsyncProperty::PortStatus(mask) => (true, 1, mask),
                AsyncProperty::FlowRemovedSecondary(mask) => (false, 2, mask),
                AsyncProperty::FlowRemoved(mask) => (true, 2, mask),
                AsyncProperty::RoleStatusSecondary(mask) => (false, 3, mask),
                AsyncProperty::RoleStatus(mask) => (true, 3, mask),
                AsyncProperty::TableStatusSecondary(mask) => (false, 4, mask),
                AsyncProperty::TableStatus(mask) => (true, 4, mask),
                AsyncProperty::RequestForwardSecondary(mask) => (false, 5, mask),
                AsyncProperty::RequestForward(mask) => (true, 5, mask),
                AsyncProperty::Other(_) => continue,
            };
            let masks: &mut [u32; 6] = if primary { &mut self.primary } else { &mut self.secondary };
            masks.iter_mut().skip(at).take(1).for_each(|place| *place = mask);
        }
    }
}

/// A bundle that a connection has open.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenBundle {
    pub(crate) flags: BundleFlags,
    pub(crate) is_closed: bool,
    /// The request that opened it.
    pub(crate) request: Vec<u8>,
    /// Time of its last message, nanoseconds.
    pub(crate) used: u64,
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) bytes: usize,
}

/// A request of several messages that is not complete.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    pub(crate) xid: u32,
    pub(crate) messages: usize,
    pub(crate) tables: Vec<TableFeatures>,
}

/// Changes of flows that took effect, by their kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowModCounts {
    /// Additions.
    pub adds: u64,
    /// Deletions.
    pub deletes: u64,
    /// Modifications.
    pub modifications: u64,
}

impl FlowModCounts {
    /// A single change.
    pub(crate) fn one(command: FlowModCommand) -> Self {
        let mut counts = Self::default();
        match command {
            FlowModCommand::Add => counts.adds = 1,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => counts.modifications = 1,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => counts.deletes = 1,
        }
        counts
    }
}

impl std::ops::AddAssign for FlowModCounts {
    fn add_assign(&mut self, other: Self) {
        self.adds += other.adds;
        self.deletes += other.deletes;
        self.modifications += other.modifications;
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) kind: ConnectionKind,
    /// The version, once both sides have said hello.
    pub(crate) version: Option<Version>,
    pub(crate) role: Role,
    pub(crate) filters: Filters,
    pub(crate) miss_send_len: u16,
    /// Form of packet-ins: 0 the standard's, 1 and 2 Nicira's.
    pub(crate) packet_in_format: u32,
    pub(crate) controller_id: u16,
    /// Whether flow-mods of version 1.0 name tables.
    pub(crate) names_tables: bool,
    pub(crate) bundles: BTreeMap<u32, OpenBundle>,
    /// Monitors, each with the form and the version of its request.
    pub(crate) monitors: BTreeMap<u32, (MonitorRequest, Form)>,
    pub(crate) is_closed: bool,
    pub(crate) waiting: VecDeque<Vec<u8>>,
    pub(crate) waiting_bytes: usize,
    pub(crate) dropped: u64,
    /// A request whose end is still to come.
    pub(crate) partial: Option<Partial>,
    /// Those since [`crate::Switch::take_flow_mods`].
    pub(crate) flow_mods: FlowModCounts,
}

impl Connection {
    pub(crate) fn new(kind: ConnectionKind) -> Self {
        Connection {
            kind,
            version: None,
            role: Role::Equal,
            filters: Filters::default(),
            miss_send_len: if kind == ConnectionKind::Service { 0 } else { MISS_SEND_LEN },
            packet_in_format: 0,
            controller_id: 0,
            names_tables: false,
            bundles: BTreeMap::new(),
            monitors: BTreeMap::new(),
            is_closed: false,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            partial: None,
            flow_mods: FlowModCounts::default(),
        }
    }

    /// Bytes of the messages of its bundles.
    pub(crate) fn bundle_bytes(&self) -> usize {
        self.bundles.values().map(|bundle| bundle.bytes).sum()
    }

    /// A service that sets filters wants messages.
    pub(crate) fn asks_for_notices(&mut self) {
        if self.miss_send_len == 0 {
            self.miss_send_len = MISS_SEND_LEN;
        }
    }

    /// Whether it gets asynchronous messages of a kind with a reason.
    pub(crate) fn wants(&self, notice: Notice, reason: u8) -> bool {
        if self.version.is_none() || self.is_closed {
            return false;
        }
        if self.kind == ConnectionKind::Service && self.miss_send_len == 0 {
            return false;
        }
        self.filters_admit(notice, reason)
    }

    /// Whether its filters admit asynchronous messages of a kind with a reason.
    pub(crate) fn filters_admit(&self, notice: Notice, reason: u8) -> bool {
        let masks =
            if self.role == Role::Secondary { &self.filters.secondary } else { &self.filters.primary };
        let mask = masks.get(notice as usize).copied().unwrap_or(0);
        reason < 32 && mask >> reason & 1 == 1
    }

    /// Puts a message into the queue; `false`: it cannot be expressed in its version.
    pub(crate) fn send(&mut self, message: Message) -> bool {
        match message.into_bytes() {
            Ok(bytes) => {
                self.waiting_bytes += bytes.len();
                self.waiting.push_back(bytes);
                true
            }
            Err(_) => false,
        }
    }

    /// Puts an asynchronous message into the queue, unless too much waits.
    pub(crate) fn notify(&mut self, message: Message, backlog: usize) {
        if self.waiting_bytes > backlog || !self.send(message) {
            self.dropped += 1;
        }
    }

    /// The same for a list, in as many messages as its length needs.
    pub(crate) fn notify_list<T>(&mut self, list: &[T], message: impl Fn(&[T]) -> Message, backlog: usize) {
        let mut todo = vec![list];
        while let Some(part) = todo.pop() {
            if self.waiting_bytes <= backlog && self.send(message(part)) {
                continue;
            }
            if self.waiting_bytes > backlog || part.len() < 2 {
                self.dropped += 1;
                continue;
            }
            let (head, tail) = part.split_at(part.len() / 2);
            todo.extend([tail, head]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_the_same_as_masks_and_as_properties() {
        let mut filters = Filters::default();
        let mut masks = filters.masks();
        masks.packet_in = 1;
        masks.flow_removed_secondary = 8;
        filters.set_masks(&masks);
        let mut other = Filters::default();
        other.set_properties(&filters.properties());
        assert_eq!(other, filters);
    }

    #[test]
    fn a_service_asks_for_packets_before_it_gets_any() {
        let mut connection = Connection::new(ConnectionKind::Service);
        connection.version = Some(Version::V1_3);
        assert!(!connection.wants(Notice::PortStatus, 0));
        connection.miss_send_len = 100;
        assert!(connection.wants(Notice::PortStatus, 0) && !connection.wants(Notice::PacketIn, 2));
        connection.role = Role::Secondary;
        assert!(!connection.wants(Notice::PacketIn, 0) && connection.wants(Notice::PortStatus, 0));
    }
}
