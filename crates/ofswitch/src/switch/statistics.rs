//! Multipart requests: statistics and descriptions.

use std::collections::BTreeSet;
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::message::{Body, Form, cookie_of};
use openflow::multipart::{
    Aggregate, Counter, Desc, FlowEntry, FlowStatsEntry, FlowStatsRequest, GroupFeatures, GroupStats,
    MeterFeatures, Multipart, Reply, Request, TableStats,
};
use openflow::stats::{FlowStats, Stat};
use openflow::{Message, PortNo, Version, version};

use super::features::Bitmaps;
use super::notices::seconds;
use super::requests::queue_of;
use super::{Switch, translate};
use crate::connection::ConnectionId;
use crate::flows::{Flow, Selection};
use crate::lower::matching::conditions;
use crate::ports::text;
use crate::program::{BANDS, Layout, TABLES};
use crate::uses::Object;

type Done = Result<(), ErrorCode>;

/// Entries of a list in one message at first; halved as long as the message is too long.
const CHUNK: usize = 1024;

impl Switch {
    pub(super) fn multipart(
        &mut self,
        id: ConnectionId,
        message: &Message,
        request: &Request,
        now: u64,
    ) -> Done {
        // Replies are made at once and wait for slow readers.
        if self.waiting_bytes() > self.settings.limits.replies {
            return Err(match message.version {
                Version::V1_0 | Version::V1_1 | Version::V1_2 => ErrorCode::BrcEperm,
                _ => ErrorCode::BrcMultipartBufferOverflow,
            });
        }
        match request {
            Request::Desc => self.one(id, message, Reply::Desc(Box::new(self.desc()))),
            Request::Flow(request) => {
                let flows = self.chosen(request, message)?;
                let entry = |flow: &Arc<Flow>| self.flow_entry(flow, message, now);
                let entries = flows.iter().map(entry).collect();
                self.answer_list(id, message, entries, Reply::Flow)
            }
            Request::FlowStats(request) => {
                let flows = self.chosen(request, message)?;
                let entry = |flow: &Arc<Flow>| FlowStatsEntry {
                    table_id: flow.table,
                    reason: 0,
                    priority: flow.priority,
                    matching: translate::matching(&flow.fields, message.version, true),
                    stats: self.flow_stats(flow, now),
                };
                let entries = flows.iter().map(entry).collect();
                self.answer_list(id, message, entries, Reply::FlowStats)
            }
            Request::Aggregate(request) => {
                let flows = self.chosen(request, message)?;
                let (mut packets, mut bytes) = (0u64, 0u64);
                for flow in &flows {
                    let counts = self.datapath.counts(flow, now);
                    packets = packets.saturating_add(counts.packets);
                    bytes = bytes.saturating_add(counts.bytes);
                }
                let flows = u32::try_from(flows.len()).unwrap_or(u32::MAX);
                let sums = vec![Stat::PacketCount(packets), Stat::ByteCount(bytes), Stat::FlowCount(flows)];
                self.one(id, message, Reply::Aggregate(Aggregate(FlowStats(sums))))
            }
            Request::Table => {
                let tables = self.table_stats(message.version);
                self.answer_list(id, message, tables, Reply::Table)
            }
            Request::PortStats(request) => {
                let ports = self.chosen_ports(request.0)?;
                self.read_counters(&ports);
                let entries = ports.iter().filter_map(|n| Some(self.ports.get(n)?.stats(now))).collect();
                self.answer_list(id, message, entries, Reply::PortStats)
            }
            Request::PortDesc(request) => {
                let all = message.version < Version::V1_5;
                let ports = self.chosen_ports(if all { PortNo::ANY } else { request.0.0 })?;
                let describe = |n: &u32| Some(self.ports.get(n)?.describe(message.version));
                let entries = ports.iter().filter_map(describe).collect();
                self.answer_list(id, message, entries, Reply::PortDesc)
            }
            Request::Queue(request) => {
                let all = [PortNo::ANY, PortNo::ALL].contains(&request.port);
                if !all && !self.ports.contains_key(&request.port.0) {
                    return Err(ErrorCode::QofcBadPort);
                }
                let port = if all { PortNo::ANY } else { request.port };
                let wanted =
                    |(_, queue): &(PortNo, u32)| [version::ALL_QUEUES, *queue].contains(&request.queue);
                let chosen: Vec<_> = self.queues(port).filter(wanted).collect();
                let ports: BTreeSet<u32> = chosen.iter().map(|(port, _)| port.0).collect();
                self.read_counters(&Vec::from_iter(ports));
                let stats =
                    |(port, queue): &(PortNo, u32)| Some(self.ports.get(&port.0)?.queue_stats(*queue));
                let entries: Vec<_> = chosen.iter().filter_map(stats).collect();
                if entries.is_empty() && request.queue != version::ALL_QUEUES {
                    return Err(ErrorCode::QofcBadQueue);
                }
                self.answer_list(id, message, entries, Reply::Queue)
            }
            Request::QueueDesc(request) => {
                let all = request.port == PortNo::ANY;
                if !all && !self.ports.contains_key(&request.port.0) {
                    return Err(ErrorCode::QofcBadPort);
                }
                let wanted =
                    |(_, queue): &(PortNo, u32)| [version::ALL_QUEUES, *queue].contains(&request.queue);
                let queues = self.queues(request.port).filter(wanted);
                let entries: Vec<_> = queues.map(|(port, queue)| queue_of(port, queue)).collect();
                if entries.is_empty() && request.queue != version::ALL_QUEUES {
                    return Err(ErrorCode::QofcBadQueue);
                }
                self.answer_list(id, message, entries, Reply::QueueDesc)
            }
            Request::Group(request) => {
                let entries = self.group_stats(request.0, now);
                self.answer_list(id, message, entries, Reply::Group)
            }
            Request::GroupDesc(request) => {
                let all = request.0 == version::group::ALL;
                let chosen =
                    self.datapath.model.groups().iter().filter(|(group, _)| all || **group == request.0);
                let describe = |(group, entry): (&u32, &Arc<crate::groups::GroupEntry>)| {
                    let mut desc = entry.desc(*group);
                    desc.buckets
                        .iter_mut()
                        .for_each(|bucket| *bucket = translate::bucket(bucket, message.version));
                    desc
                };
                let entries = chosen.map(describe).collect();
                self.answer_list(id, message, entries, Reply::GroupDesc)
            }
            Request::GroupFeatures => {
                self.one(id, message, Reply::GroupFeatures(self.group_features(message.version)))
            }
            Request::Meter(request) => {
                let entries = self.chosen_meters(request.0)?.into_iter().filter_map(|meter| {
                    let entry = self.datapath.model.meters.get(&meter)?;
                    Some(self.datapath.meter_stats(meter, entry, now))
                });
                let entries = entries.collect();
                self.answer_list(id, message, entries, Reply::Meter)
            }
            Request::MeterConfig(request) => {
                let config = |meter: u32| Some(self.datapath.model.meters.get(&meter)?.config(meter));
                let entries = self.chosen_meters(request.0)?.into_iter().filter_map(config).collect();
                self.answer_list(id, message, entries, Reply::MeterConfig)
            }
            Request::MeterFeatures => {
                let features = MeterFeatures {
                    max_meter: self.settings.limits.meters.min(BANDS),
                    band_types: 1 << 1 | 1 << 2,
                    capabilities: 0xf,
                    max_bands: self.settings.limits.bands,
                    max_color: 0,
                };
                self.one(id, message, Reply::MeterFeatures(features))
            }
            Request::TableFeatures(wanted) => {
                let Some(wanted) = self.whole_request(id, message, wanted)? else { return Ok(()) };
                self.set_table_features(&wanted, message.version)?;
                let features = self.table_features(message.version);
                self.answer_list(id, message, features, Reply::TableFeatures)
            }
            Request::TableDesc => {
                let tables = self.datapath.table_descs(message.version);
                self.answer_list(id, message, tables, Reply::TableDesc)
            }
            Request::IpfixBridge => {
                let found = self.datapath.follower.as_mut().and_then(|follower| follower.bridge_ipfix());
                let stats = found.ok_or(ErrorCode::NxStNotConfigured)?;
                self.one(id, message, Reply::IpfixBridge(stats))
            }
            Request::IpfixFlow => {
                let found = self.datapath.follower.as_mut().map(|follower| follower.set_ipfix());
                let sets = found.filter(|sets| !sets.is_empty()).ok_or(ErrorCode::NxStNotConfigured)?;
                self.answer_list(id, message, sets, Reply::IpfixFlow)
            }
            Request::FlowMonitor(requests) => self.monitor(id, message, requests),
            Request::Unknown(..) => Err(ErrorCode::BrcBadVendor),
        }
    }

    fn one(&mut self, id: ConnectionId, message: &Message, content: Reply) -> Done {
        self.part(id, message, content, false);
        Ok(())
    }

    fn part(&mut self, id: ConnectionId, message: &Message, content: Reply, more: bool) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return true };
        let mut reply =
            Message::new(message.version, message.xid, Body::MultipartReply(Multipart { more, content }));
        reply.form = message.form;
        connection.send(reply)
    }

    /// Sends a list in as many messages as it needs. An entry that the version cannot express is left out.
    pub(super) fn answer_list<T: Clone>(
        &mut self,
        id: ConnectionId,
        message: &Message,
        entries: Vec<T>,
        content: impl Fn(Vec<T>) -> Reply,
    ) -> Done {
        let mut rest = entries.as_slice();
        let mut size = CHUNK;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(size.min(rest.len()));
            if self.part(id, message, content(head.to_vec()), !tail.is_empty()) {
                if tail.is_empty() {
                    return Ok(());
                }
                (rest, size) = (tail, CHUNK);
            } else if size > 1 {
                size = (head.len() / 2).max(1);
            } else {
                (rest, size) = (tail, CHUNK);
            }
        }
        // There are none, or the last one was left out.
        self.part(id, message, content(vec![]), false);
        Ok(())
    }

    fn desc(&self) -> Desc {
        Desc {
            manufacturer: text("mswitch", 256),
            hardware: text("software switch", 256),
            software: text(env!("CARGO_PKG_VERSION"), 256),
            serial: text("None", 32),
            datapath: text(&self.settings.name, 256),
        }
    }

    /// The flows that a request is about.
    fn chosen(&self, request: &FlowStatsRequest, message: &Message) -> Result<Vec<Arc<Flow>>, ErrorCode> {
        let fields = request.matching.to_fields()?;
        let extension = message.form == Form::Nicira;
        let in_match = if extension { cookie_of(&fields) } else { None };
        let known =
            |oxm: &openflow::oxm::Oxm| oxm.field().is_none_or(|field| field.has_length(oxm.value.len()));
        let fields: Vec<_> = match in_match {
            Some(_) => fields.into_iter().filter(known).collect(),
            None => fields,
        };
        let old = extension || message.version == Version::V1_0;
        let selection = Selection {
            table: request.table_id,
            conditions: conditions(&fields, &self.datapath.model.tunnels)?,
            strict: None,
            cookie: match in_match {
                Some(cookie) => cookie,
                None if old => (0, 0),
                None => (request.cookie, request.cookie_mask),
            },
            out_port: request.out_port,
            out_group: if old { version::group::ANY } else { request.out_group },
        };
        Ok(selection.of(self.datapath.model.tables()))
    }

    fn flow_stats(&self, flow: &Flow, now: u64) -> FlowStats {
        let counts = self.datapath.counts(flow, now);
        let mut stats = counts.stats();
        let (seconds, nanoseconds) = seconds(counts.silent);
        stats.0.insert(1, Stat::IdleTime(seconds, nanoseconds));
        stats
    }

    fn flow_entry(&self, flow: &Flow, message: &Message, now: u64) -> FlowEntry {
        let counts = self.datapath.counts(flow, now);
        let by_fields = message.form == Form::Nicira;
        // Ages are one more than they are; 0 is unknown.
        let age = |nanoseconds: u64| u16::try_from(nanoseconds / 1_000_000_000 + 1).unwrap_or(u16::MAX);
        FlowEntry {
            table_id: flow.table,
            priority: flow.priority,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            idle_age: age(counts.silent),
            hard_age: age(now.saturating_sub(flow.modified)),
            flags: flow.flags,
            importance: flow.importance,
            cookie: flow.cookie,
            matching: translate::matching(&flow.fields, message.version, by_fields),
            instructions: translate::instructions(&flow.instructions, message.version),
            stats: match message.version {
                Version::V1_5 => self.flow_stats(flow, now),
                _ => counts.stats(),
            },
        }
    }

    fn table_stats(&self, version: Version) -> Vec<TableStats> {
        let layout = Layout::get();
        let all = if version == Version::V1_0 { 0x003f_ffff } else { u32::MAX.into() };
        let Bitmaps { matched: fields, settable, actions } = Bitmaps::new(version);
        let (fields, actions) = if version == Version::V1_2 { (fields, actions) } else { (all, u32::MAX) };
        let model = &self.datapath.model;
        let stats = |(number, table): (usize, &crate::flows::FlowTable)| {
            let state = layout.tables.get(number).and_then(|id| self.datapath.state.table(*id));
            let (lookups, matched) = state.map_or((0, 0), |state| state.lookups());
            let settings = model.settings.get(number);
            TableStats {
                table_id: number as u8,
                active: u32::try_from(table.len()).unwrap_or(u32::MAX),
                lookups,
                matched,
                max_entries: settings.map_or(0, |settings| settings.size(&self.settings.limits)),
                name: self.table_name(number as u8),
                match_fields: fields,
                wildcards: fields,
                // No table follows the last one.
                instructions: if number + 1 == usize::from(TABLES) { 0x3c } else { 0x3e },
                write_actions: actions,
                apply_actions: actions,
                write_setfields: settable,
                apply_setfields: settable,
                metadata_match: u64::MAX,
                metadata_write: u64::MAX,
                config: settings.map_or(0, |settings| settings.config(version).bits()),
            }
        };
        model.tables().iter().enumerate().map(stats).collect()
    }

    fn chosen_ports(&self, port: PortNo) -> Result<Vec<u32>, ErrorCode> {
        match port {
            PortNo::ANY => Ok(self.ports.keys().copied().collect()),
            port if self.ports.contains_key(&port.0) => Ok(vec![port.0]),
            _ => Err(ErrorCode::BrcBadPort),
        }
    }

    fn chosen_meters(&self, meter: u32) -> Result<Vec<u32>, ErrorCode> {
        match meter {
            version::meter::ALL => Ok(self.datapath.model.meters.keys().copied().collect()),
            meter if self.datapath.model.meters.contains_key(&meter) => Ok(vec![meter]),
            _ => Err(ErrorCode::MmfcUnknownMeter),
        }
    }

    fn group_stats(&self, group: u32, now: u64) -> Vec<GroupStats> {
        let layout = Layout::get();
        let all = group == version::group::ALL;
        let installed = self.datapath.state.groups(layout.groups).filter(|(id, _)| all || *id == group);
        let counter = |stats: &pipeline::state::Stats| {
            let (packets, bytes) = stats.get();
            Counter { packets, bytes }
        };
        let stats = |(id, installed): (u32, &Arc<pipeline::state::InstalledGroup>)| {
            let (duration_sec, duration_nsec) = seconds(now.saturating_sub(installed.since));
            GroupStats {
                group: id,
                references: self.datapath.model.uses().of(Object::Group(id)).count() as u32,
                total: counter(&installed.stats),
                duration_sec,
                duration_nsec,
                buckets: installed.bucket_stats.iter().map(counter).collect(),
            }
        };
        installed.map(stats).collect()
    }

    fn group_features(&self, version: Version) -> GroupFeatures {
        // Weights, liveness, chaining, as Open vSwitch says; all actions of version 1.0, or output, copies, pushes,
        // pops, queues, groups, TTLs, fields, PBB.
        GroupFeatures {
            kinds: 0xf,
            capabilities: 0x7,
            max_groups: [self.settings.limits.groups; 4],
            actions: [if version == Version::V1_0 { 0xfff } else { 0x0fff_f801 }; 4],
        }
    }
}
