//! What controllers are told: removed flows, ports, tables, requests of others.

use openflow::message::bucket;
use openflow::message::{
    Body, FlowModFlags, FlowRemoved, PortConfig, PortReason, PortState, PortStatus, RequestForward,
    TableStatus,
};
use openflow::stats::FlowStats;
use openflow::{Message, Version};

use super::Switch;
use super::translate;
use crate::connection::{ConnectionId, Notice};
use crate::datapath::{Counts, Event};
use crate::flows::{DELETED, Flow};
use crate::groups::GROUP_DELETED;

impl Counts {
    /// The counts as messages have them.
    pub(crate) fn stats(&self) -> FlowStats {
        FlowStats::new(seconds(self.age), self.packets, self.bytes)
    }
}

/// Seconds and nanoseconds.
pub(super) fn seconds(nanoseconds: u64) -> (u32, u32) {
    ((nanoseconds / 1_000_000_000) as u32, (nanoseconds % 1_000_000_000) as u32)
}

impl Switch {
    /// Tells of changes of flows. `own`: the connection and transaction that made them.
    pub(super) fn tell(&mut self, events: &[Event], own: Option<(ConnectionId, u32)>, now: u64) {
        for event in events {
            if let Event::Removed(flow, reason, counts) = event {
                self.tell_removed(flow, *reason, counts);
            }
        }
        self.tell_monitors(events, own, now);
    }

    fn tell_removed(&mut self, flow: &Flow, reason: u8, counts: &Counts) {
        if !flow.flags.contains(FlowModFlags::SEND_FLOW_REM) {
            return;
        }
        for connection in self.connections.values_mut() {
            let Some(version) = connection.version else { continue };
            // What a version has no reason for is told of like deletion.
            let reason = match reason {
                GROUP_DELETED if version >= Version::V1_1 => reason,
                reason if version >= Version::V1_4 => reason,
                reason => reason.min(DELETED),
            };
            if !connection.wants(Notice::FlowRemoved, reason) {
                continue;
            }
            let removed = FlowRemoved {
                matching: translate::matching(&flow.fields, version, false),
                cookie: flow.cookie,
                priority: flow.priority,
                reason,
                table_id: flow.table,
                idle_timeout: flow.idle_timeout,
                hard_timeout: flow.hard_timeout,
                stats: counts.stats(),
            };
            let message = Message::new(version, 0, Body::FlowRemoved(removed));
            connection.notify(message, self.settings.limits.backlog);
        }
    }

    pub(super) fn tell_port(&mut self, number: u32, reason: PortReason) {
        let Some(port) = self.ports.get(&number) else { return };
        for connection in self.connections.values_mut() {
            let Some(version) = connection.version else { continue };
            if connection.wants(Notice::PortStatus, reason.number()) {
                let mut status = PortStatus { reason, port: port.describe(version) };
                // Whether a new port is live is said next.
                status.port.state.set(
                    PortState::LIVE,
                    reason != PortReason::Add && status.port.state.contains(PortState::LIVE),
                );
                connection
                    .notify(Message::new(version, 0, Body::PortStatus(status)), self.settings.limits.backlog);
            }
        }
    }

    /// Tells of a port that a controller has configured, and of the link that it loses or gets by that.
    pub(super) fn tell_configured(&mut self, number: u32) {
        self.tell_port(number, PortReason::Modify);
        let Some(port) = self.ports.get_mut(&number) else { return };
        let is_cut = port.config.contains(PortConfig::PORT_DOWN);
        if std::mem::replace(&mut port.is_cut, is_cut) != is_cut {
            self.tell_port(number, PortReason::Modify);
        }
    }

    /// Tells those whose version has live ports that a new port is one.
    pub(super) fn tell_live(&mut self, number: u32) {
        let Some(port) = self.ports.get(&number).filter(|port| port.is_live()) else { return };
        for connection in self.connections.values_mut() {
            let Some(version) = connection.version.filter(|version| *version >= Version::V1_1) else {
                continue;
            };
            let reason = PortReason::Modify;
            if connection.wants(Notice::PortStatus, reason.number()) {
                let status = Body::PortStatus(PortStatus { reason, port: port.describe(version) });
                connection.notify(Message::new(version, 0, status), self.settings.limits.backlog);
            }
        }
    }

    /// Tells of tables that have become full, or empty again.
    pub(super) fn after_changes(&mut self) {
        for (number, reason) in self.datapath.vacancy_events() {
            for connection in self.connections.values_mut() {
                let Some(version) = connection.version.filter(|version| *version >= Version::V1_4) else {
                    continue;
                };
                if !connection.wants(Notice::TableStatus, reason) {
                    continue;
                }
                let Some(table) = self.datapath.table_descs(version).into_iter().nth(number) else {
                    continue;
                };
                let status = Message::new(version, 0, Body::TableStatus(TableStatus { reason, table }));
                connection.notify(status, self.settings.limits.backlog);
            }
        }
    }

    /// Forwards changes of groups and meters to other controllers that want them.
    pub(super) fn forward(&mut self, id: ConnectionId, message: &Message, bytes: &[u8]) {
        let reason = match &message.body {
            Body::GroupMod(_) => 0,
            Body::MeterMod(_) => 1,
            _ => return,
        };
        for (other, connection) in &mut self.connections {
            let Some(version) = connection.version.filter(|_| *other != id) else { continue };
            if !connection.wants(Notice::RequestForward, reason) {
                continue;
            }
            let request = match version == message.version {
                true => Some(bytes.to_vec()),
                false => translated(message, version),
            };
            // What a version cannot express is not forwarded to it.
            if let Some(request) = request {
                let forward = Body::RequestForward(RequestForward(request));
                connection.notify(Message::new(version, 0, forward), self.settings.limits.backlog);
            }
        }
    }
}

/// A change of groups or meters in another version.
fn translated(message: &Message, version: Version) -> Option<Vec<u8>> {
    let mut body = message.body.clone();
    if let Body::GroupMod(group) = &mut body {
        group.buckets.iter_mut().for_each(|bucket| *bucket = translate::bucket(bucket, version));
        if message.version < Version::V1_5 {
            // Such requests concern all buckets.
            group.command_bucket = bucket::ALL;
        }
    }
    Message::new(version, message.xid, body).into_bytes().ok()
}
