//! Flow monitors: controllers that follow the flows they choose.

use openflow::error::ErrorCode;
use openflow::instruction::Instructions;
use openflow::message::{Body, Form};
use openflow::multipart::{FlowEvent, FlowUpdate, MonitorFlags, MonitorRequest, Multipart, Reply};
use openflow::{Message, PortNo, Version, version};

use super::{Switch, translate};
use crate::connection::ConnectionId;
use crate::datapath::Event;
use crate::flows::{Flow, Selection};
use crate::lower::matching::conditions;

impl Switch {
    /// The flows that a monitor is about.
    fn monitored(&self, request: &MonitorRequest, form: Form) -> Result<Selection, ErrorCode> {
        let fields = request.matching.to_fields()?;
        let conditions = conditions(&fields, &self.datapath.model.tunnels)?;
        Ok(Selection {
            table: request.table_id,
            conditions,
            out_port: request.out_port,
            out_group: if form == Form::Standard { request.out_group } else { version::group::ANY },
            ..Selection::all()
        })
    }

    /// Makes monitors, and reports the flows that are there.
    pub(super) fn monitor(
        &mut self,
        id: ConnectionId,
        message: &Message,
        requests: &[MonitorRequest],
    ) -> Result<(), ErrorCode> {
        let form = message.form;
        let limit = self.settings.limits.monitors as usize;
        let Some(connection) = self.connections.get(&id) else { return Ok(()) };
        // They take effect together, or not at all.
        let mut monitors = connection.monitors.clone();
        let mut updates = Vec::new();
        for request in requests {
            let selection = self.monitored(request, form)?;
            let exists = monitors.contains_key(&request.monitor);
            match request.command {
                2 if form == Form::Standard => {
                    monitors.remove(&request.monitor).ok_or(ErrorCode::MofcUnknownMonitor)?;
                    continue;
                }
                1 if !exists => return Err(ErrorCode::MofcUnknownMonitor),
                0 if exists => return Err(ErrorCode::MofcMonitorExists),
                0 if monitors.len() >= limit => return Err(ErrorCode::MofcUnknown),
                _ => {}
            }
            monitors.insert(request.monitor, (request.clone(), form));
            if request.flags.contains(MonitorFlags::INITIAL) {
                let event = if form == Form::Standard { FlowEvent::Initial } else { FlowEvent::Added };
                let full = request.flags.contains(MonitorFlags::INSTRUCTIONS);
                let flows = selection.of(self.datapath.model.tables());
                updates.extend(flows.iter().map(|flow| report(flow, event, full, message.version)));
            }
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.monitors = monitors;
        }
        self.answer_list(id, message, updates, Reply::FlowMonitor)
    }

    /// Ends a monitor.
    pub(super) fn cancel_monitor(&mut self, id: ConnectionId, monitor: u32) -> Result<(), ErrorCode> {
        let connection = self.connections.get_mut(&id);
        let removed = connection.and_then(|connection| connection.monitors.remove(&monitor));
        removed.map(drop).ok_or(ErrorCode::MofcUnknownMonitor)
    }

    /// Reports changes to those that follow them.
    pub(super) fn tell_monitors(&mut self, events: &[Event], own: Option<(ConnectionId, u32)>, _now: u64) {
        if events.is_empty() || self.connections.values().all(|connection| connection.monitors.is_empty()) {
            return;
        }
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get(&id) else { continue };
            let Some(version) = connection.version else { continue };
            let monitors: Vec<(MonitorRequest, Form)> = connection.monitors.values().cloned().collect();
            let Some(form) = monitors.first().map(|(_, form)| *form) else { continue };
            let chosen: Vec<(MonitorRequest, Selection)> = monitors
                .into_iter()
                .filter_map(|(request, form)| Some((self.monitored(&request, form).ok()?, request)))
                .map(|(selection, request)| (request, selection))
                .collect();
            let mine = own.filter(|(owner, _)| *owner == id).map(|(_, xid)| xid);
            let mut updates = Vec::new();
            for event in events {
                updates.extend(update(event, &chosen, mine, version));
            }
            // One message of a transaction is enough.
            updates
                .dedup_by(|a, b| matches!((a, b), (FlowUpdate::Abbreviated(_), FlowUpdate::Abbreviated(_))));
            let reply = |part: &[FlowUpdate]| {
                let content = Reply::FlowMonitor(part.to_vec());
                let mut message =
                    Message::new(version, 0, Body::MultipartReply(Multipart { more: false, content }));
                message.form = form;
                message
            };
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            for chunk in updates.chunks(CHUNK) {
                connection.notify_list(chunk, reply, self.settings.limits.backlog);
            }
        }
    }
}

/// Updates in one message.
const CHUNK: usize = 16;

fn update(
    event: &Event,
    monitors: &[(MonitorRequest, Selection)],
    mine: Option<u32>,
    version: Version,
) -> Option<FlowUpdate> {
    let (flow, wanted, kind) = match event {
        Event::Added(flow) => (flow, MonitorFlags::ADD, FlowEvent::Added),
        Event::Modified(flow, _) => (flow, MonitorFlags::MODIFY, FlowEvent::Modified),
        Event::Removed(flow, reason, _) => (flow, MonitorFlags::REMOVED, FlowEvent::Removed(*reason)),
    };
    let chosen = |(request, selection): &&(MonitorRequest, Selection)| {
        // A flow that no longer sends to the port is told of once more.
        let was = request.out_port != PortNo::ANY
            && matches!(event, Event::Modified(_, before) if selection.contains(before));
        request.flags.contains(wanted) && (was || selection.contains(flow))
    };
    let mut following = monitors.iter().filter(chosen).peekable();
    following.peek()?;
    let flags = following.fold(MonitorFlags::empty(), |flags, (request, _)| flags | request.flags);
    // Open vSwitch and its tools take the flag for "only own changes" as one for own changes in full.
    let in_full = flags.intersects(MonitorFlags::NO_ABBREV | MonitorFlags::ONLY_OWN);
    if let (Some(xid), false) = (mine, in_full) {
        return Some(FlowUpdate::Abbreviated(xid));
    }
    Some(report(flow, kind, flags.contains(MonitorFlags::INSTRUCTIONS), version))
}

fn report(flow: &Flow, event: FlowEvent, full: bool, version: Version) -> FlowUpdate {
    FlowUpdate::Full {
        event,
        table_id: flow.table,
        priority: flow.priority,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        cookie: flow.cookie,
        matching: translate::matching(&flow.fields, version, true),
        instructions: match full {
            true => translate::instructions(&flow.instructions, version),
            false => Instructions::default(),
        },
    }
}
