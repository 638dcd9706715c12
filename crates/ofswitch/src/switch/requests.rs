//! Requests of controllers, one after the other.

use openflow::error::{ErrorCode, reply};
use openflow::message::{
    Body, Capabilities, FeaturesReply, FlowMod, FlowModCommand, Form, Header, Hello, PortMod, Queue,
    QueueGetConfigReply, Role, RoleMessage, RoleStatus, SwitchConfig,
};
use openflow::multipart::{Multipart, Request};
use openflow::version::NO_BUFFER;
use openflow::{Message, PortNo, Version};

use super::Switch;
use crate::connection::{ConnectionId, FlowModCounts, Notice};
use crate::flows::FlowChange;
use crate::program::TABLES;

type Done = Result<(), ErrorCode>;

/// Whether a request changes something, which secondary controllers may not (OpenFlow 1.3.5, section 6.3.4).
fn changes(body: &Body) -> bool {
    if let Body::MultipartRequest(Multipart { content: Request::TableFeatures(wanted), .. }) = body {
        return !wanted.is_empty();
    }
    matches!(
        body,
        Body::FlowMod(_)
            | Body::GroupMod(_)
            | Body::MeterMod(_)
            | Body::PortMod(_)
            | Body::TableMod(_)
            | Body::PacketOut(_)
            | Body::BundleControl(_)
            | Body::BundleAdd(_)
            | Body::TlvTableMod(_)
            | Body::Resume(_)
    )
}

/// Flag of a switch's configuration in versions up to 1.2: packets whose TTL is invalid go to the controller.
const INVALID_TTL_TO_CONTROLLER: u16 = 4;

/// Whether a version has that flag; later ones have filters of asynchronous messages instead.
fn tells_expired(version: Version) -> bool {
    // In version 1.0 it is Open vSwitch's.
    version <= Version::V1_2
}

impl Switch {
    /// Processes a request.
    pub(super) fn request(&mut self, id: ConnectionId, bytes: &[u8], version: Version, now: u64) -> Done {
        let header = Header::decode(bytes).map_err(|error| error.code)?;
        // A second hello, of any version, changes nothing.
        if header.kind == 0 {
            return Hello::decode_any(bytes).map(drop).map_err(|error| error.code);
        }
        if header.version != version.number() {
            return Err(ErrorCode::BrcBadVersion);
        }
        let message = Message::decode(bytes).map_err(|error| error.code)?;
        message.check()?;
        let role = self.connections.get(&id).map(|connection| connection.role);
        if role == Some(Role::Secondary) && changes(&message.body) {
            return Err(ErrorCode::BrcIsSecondary);
        }
        if let Body::FlowMod(flow) = message.body {
            let header = (message.version, message.form, message.xid);
            return self.flow_mod(id, *flow, header, bytes, now);
        }
        self.dispatch(id, &message, bytes, now)
    }

    /// Sends a reply to a request.
    pub(super) fn answer(&mut self, id: ConnectionId, request: &Message, body: Body) -> Done {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let answer = Message::new(request.version, request.xid, body);
        if connection.send(answer) { Ok(()) } else { Err(ErrorCode::NxBrcUnencodableError) }
    }

    fn dispatch(&mut self, id: ConnectionId, message: &Message, bytes: &[u8], now: u64) -> Done {
        match &message.body {
            Body::EchoRequest(data) => self.answer(id, message, Body::EchoReply(data.clone())),
            Body::EchoReply(_) | Body::Error(_) | Body::Hello(_) => Ok(()),
            Body::FeaturesRequest => self.features(id, message),
            Body::GetConfigRequest => {
                let miss_send_len =
                    self.connections.get(&id).map_or(0, |connection| connection.miss_send_len);
                let expired = self.connections.get(&id).is_some_and(|connection| {
                    tells_expired(message.version) && connection.filters.has_expired()
                });
                let flags = self.config | if expired { INVALID_TTL_TO_CONTROLLER } else { 0 };
                let config = SwitchConfig { flags, miss_send_len };
                self.answer(id, message, Body::GetConfigReply(config))
            }
            Body::SetConfig(config) => self.set_config(id, config, message.version),
            Body::BarrierRequest => self.answer(id, message, Body::BarrierReply),
            Body::GroupMod(_) | Body::MeterMod(_) | Body::TableMod(_) | Body::TlvTableMod(_) => {
                self.object_mod(id, message, bytes, now)
            }
            Body::PortMod(port) => self.port_mod(port),
            Body::PacketOut(packet) => self.packet_out(packet, message.version, now),
            Body::MultipartRequest(request) => self.multipart(id, message, &request.content, now),
            Body::RoleRequest(role) => self.role_request(id, message, *role),
            Body::GetAsyncRequest => {
                let filters =
                    self.connections.get(&id).map(|connection| connection.filters).unwrap_or_default();
                self.answer(
                    id,
                    message,
                    match message.version >= Version::V1_4 {
                        true => Body::GetAsyncReply2(filters.properties()),
                        false => Body::GetAsyncReply(filters.masks()),
                    },
                )
            }
            Body::SetAsync(masks) => self.with(id, |connection| {
                connection.filters.set_masks(masks);
                connection.asks_for_notices();
            }),
            Body::SetAsync2(properties) => self.with(id, |connection| {
                connection.filters.set_properties(properties);
                connection.asks_for_notices();
            }),
            Body::QueueGetConfigRequest(request) => {
                if request.0 != PortNo::ANY && !self.ports.contains_key(&request.0.0) {
                    return Err(ErrorCode::QofcBadPort);
                }
                let queues = self.queues(request.0).map(|(port, queue)| queue_of(port, queue)).collect();
                let config = QueueGetConfigReply { port: request.0, queues };
                self.answer(id, message, Body::QueueGetConfigReply(config))
            }
            Body::BundleControl(control) => self.bundle_control(id, message, control, bytes, now),
            Body::BundleAdd(add) => self.bundle_add(id, message, add, bytes, now),
            // Both forms of flows are always understood.
            Body::SetFlowFormat(0 | 2) => Ok(()),
            Body::SetFlowFormat(_) => Err(ErrorCode::BrcEperm),
            Body::FlowModTableId(enable) => {
                self.with(id, |connection| connection.names_tables = enable.0 != 0)
            }
            Body::SetPacketInFormat(format) if *format <= 2 => {
                self.with(id, |connection| connection.packet_in_format = *format)
            }
            Body::SetPacketInFormat(_) => Err(ErrorCode::BrcEperm),
            Body::SetControllerId(controller) => {
                self.with(id, |connection| connection.controller_id = controller.0)
            }
            // Ages are always sent.
            Body::FlowAge => Ok(()),
            Body::FlowMonitorCancel(monitor) => self.cancel_monitor(id, *monitor),
            Body::TlvTableRequest => {
                let maps = self.datapath.model.tunnels.reply();
                self.answer(id, message, Body::TlvTableReply(maps))
            }
            // Nothing is tracked, so there is nothing to forget.
            Body::CtFlushZone(_) | Body::CtFlush(_) => Ok(()),
            Body::Resume(packet) => self.resume(packet, now),
            _ => Err(ErrorCode::BrcBadType),
        }
    }

    fn with(&mut self, id: ConnectionId, change: impl FnOnce(&mut crate::connection::Connection)) -> Done {
        if let Some(connection) = self.connections.get_mut(&id) {
            change(connection);
        }
        Ok(())
    }

    fn features(&mut self, id: ConnectionId, message: &Message) -> Done {
        let version = message.version;
        let mut capabilities = Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::QUEUE_STATS;
        capabilities |= match version {
            Version::V1_0 => Capabilities::ARP_MATCH_IP,
            _ => Capabilities::GROUP_STATS,
        };
        if version >= Version::V1_4 {
            // Flows can be monitored, too; Open vSwitch does not say it either.
            capabilities |= Capabilities::BUNDLES;
        }
        let ports = match version < Version::V1_3 {
            true => self.ports.values().map(|port| port.describe(version)).collect(),
            false => vec![],
        };
        let features = FeaturesReply {
            datapath_id: self.settings.datapath_id,
            buffers: self.buffers.size(),
            tables: TABLES,
            auxiliary_id: 0,
            capabilities,
            // All actions of version 1.0.
            actions: if version == Version::V1_0 { 0xfff } else { 0 },
            ports,
        };
        self.answer(id, message, Body::FeaturesReply(features))
    }

    fn set_config(&mut self, id: ConnectionId, config: &SwitchConfig, version: Version) -> Done {
        // Fragments are not reassembled. They are the switch's, of which a secondary controller changes nothing.
        let is_secondary =
            self.connections.get(&id).is_some_and(|connection| connection.role == Role::Secondary);
        if config.flags & 3 != 2 && !is_secondary {
            self.config = config.flags & 3;
            let flags = self.received_flags();
            self.datapath.follower.iter_mut().for_each(|follower| follower.flags(flags));
        }
        self.with(id, |connection| {
            connection.miss_send_len = config.miss_send_len;
            if tells_expired(version) {
                connection.filters.set_expired(config.flags & INVALID_TTL_TO_CONTROLLER != 0);
            }
        })?;
        self.versions_changed();
        Ok(())
    }

    fn flow_mod(
        &mut self,
        id: ConnectionId,
        flow: FlowMod,
        (version, form, xid): (Version, Form, u32),
        bytes: &[u8],
        now: u64,
    ) -> Done {
        let names_tables = self.connections.get(&id).is_some_and(|connection| connection.names_tables);
        let buffer = flow.buffer_id;
        let change = FlowChange::new(flow, bytes.len(), version, form, names_tables, &self.datapath)?;
        let events = self.datapath.apply_flow_mod(&change, now)?;
        self.count_flow_mods(id, FlowModCounts::one(change.command));
        self.tell(&events, Some((id, xid)), now);
        if buffer != NO_BUFFER
            && !matches!(change.command, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
        {
            // The flow is there whatever becomes of the packet.
            if let Err(code) = self.packet_of_buffer(buffer, now) {
                self.refuse(id, code, bytes, version);
            }
        }
        Ok(())
    }

    /// Counts changes of flows that a connection has made.
    pub(super) fn count_flow_mods(&mut self, id: ConnectionId, counts: FlowModCounts) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.flow_mods += counts;
        }
    }

    fn object_mod(&mut self, id: ConnectionId, message: &Message, bytes: &[u8], now: u64) -> Done {
        let ((), events) = self.datapath.change_many(now, |datapath, transaction| match &message.body {
            Body::GroupMod(group) => datapath.group_mod(group, now, transaction),
            Body::MeterMod(meter) => datapath.meter_mod(meter, now, transaction),
            Body::TableMod(table) => datapath.table_mod(table, message.version, transaction),
            Body::TlvTableMod(maps) => datapath.model.tunnels.change(maps),
            _ => Err(ErrorCode::BrcBadType),
        })?;
        // Maps of tunnel options change nothing in the pipeline.
        self.datapath.changes += 1;
        self.tell(&events, Some((id, message.xid)), now);
        self.forward(id, message, bytes);
        Ok(())
    }

    pub(super) fn port_mod(&mut self, request: &PortMod) -> Done {
        let port = self.ports.get_mut(&request.number.0).ok_or(ErrorCode::PmfcBadPort)?;
        if port.configure(request)? {
            self.tell_configured(request.number.0);
            self.ports_configured();
        }
        Ok(())
    }

    /// Roles (OpenFlow 1.3.5, section 6.3.4): a primary controller makes those before it secondary.
    fn role_request(&mut self, id: ConnectionId, message: &Message, request: RoleMessage) -> Done {
        let elects = matches!(request.role, Role::Primary | Role::Secondary);
        if message.form == Form::Standard && elects {
            let stale =
                self.generation.is_some_and(|known| (request.generation_id.wrapping_sub(known) as i64) < 0);
            if stale {
                return Err(ErrorCode::RrfcStale);
            }
            self.generation = Some(request.generation_id);
        }
        if request.role == Role::Primary {
            let others: Vec<ConnectionId> = self
                .connections
                .iter()
                .filter(|(other, connection)| **other != id && connection.role == Role::Primary)
                .map(|(other, _)| *other)
                .collect();
            for other in others {
                let generation_id = self.generation.unwrap_or(u64::MAX);
                let Some(connection) = self.connections.get_mut(&other) else { continue };
                connection.role = Role::Secondary;
                let Some(version) = connection.version.filter(|version| *version >= Version::V1_3) else {
                    continue;
                };
                let status =
                    RoleStatus { role: Role::Secondary, reason: 0, generation_id, properties: vec![] };
                if connection.filters_admit(Notice::RoleStatus, 0) {
                    let status = Message::new(version, 0, Body::RoleStatus(status));
                    connection.notify(status, self.settings.limits.backlog);
                }
            }
        }
        if request.role != Role::NoChange {
            self.with(id, |connection| connection.role = request.role)?;
            self.versions_changed();
        }
        let role = self.connections.get(&id).map_or(Role::Equal, |connection| connection.role);
        let generation_id = self.generation.unwrap_or(u64::MAX);
        let mut answer = Message::new(
            message.version,
            message.xid,
            Body::RoleReply(RoleMessage { role, short_id: request.short_id, generation_id }),
        );
        answer.form = message.form;
        self.with(id, |connection| {
            connection.send(answer);
        })
    }

    /// Queues of a port, or of all, each with its port.
    pub(super) fn queues(&self, port: PortNo) -> impl Iterator<Item = (PortNo, u32)> {
        let chosen =
            self.ports.values().filter(move |entry| port == PortNo::ANY || entry.info.number == port);
        chosen.flat_map(|entry| entry.info.queues.iter().map(|queue| (entry.info.number, *queue)))
    }

    /// Tells a refusal inside a bundle, with the request's own bytes.
    pub(super) fn refuse_inner(
        &mut self,
        id: ConnectionId,
        code: ErrorCode,
        request: &[u8],
        version: Version,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.send(reply(code, request, version));
        }
    }
}

/// A queue without properties.
pub(super) fn queue_of(port: PortNo, queue: u32) -> Queue {
    Queue { queue, port, properties: vec![] }
}
