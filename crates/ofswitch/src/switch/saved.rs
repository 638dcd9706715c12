//! Flows, groups, meters and the configuration of tables, as messages that outlive the switch.
//!
//! A [`Snapshot`] shares what it has with the switch: taking one costs a reference for each flow, and it is encoded
//! while the switch goes on. [`Switch::restore`] gives another switch the same; all of it, or nothing.
//!
//! Counters start anew, and so do idle timeouts. Hard timeouts go on: a flow's age is saved with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::message::bucket;
use openflow::message::{
    Body, Bucket, FlowMod, FlowModCommand, FlowModFlags, Form, GroupMod, GroupModCommand, MeterMod,
    MeterModCommand, TableMod, TableModProperty, TlvTableCommand, TlvTableMod,
};
use openflow::{Message, PortNo, Version, version};

use super::{Switch, translate};
use crate::flows::{Flow, FlowChange, visit};
use crate::groups::GroupEntry;
use crate::meters::MeterEntry;
use crate::tables::{Miss, TableSettings};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// A message that restores part of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The age of a flow, nanoseconds; 0 for all else.
    pub age: u64,
    /// A complete message.
    pub message: Vec<u8>,
}

/// Flows, groups, meters and the configuration of tables at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tunnels: TlvTableMod,
    tables: Arc<Vec<TableSettings>>,
    meters: BTreeMap<u32, Arc<MeterEntry>>,
    groups: BTreeMap<u32, Arc<GroupEntry>>,
    flows: Vec<Arc<Flow>>,
    now: u64,
}

/// A message that a switch refuses to restore.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("message {number} of {count} is refused with {code}")]
pub struct RestoreError {
    /// Its number, from 1.
    pub number: usize,
    /// The number of messages.
    pub count: usize,
    /// The reason.
    pub code: ErrorCode,
}

impl Switch {
    /// Returns a number that grows whenever something changes that a snapshot has.
    pub fn changes(&self) -> u64 {
        self.datapath.changes
    }

    /// Returns what [`Switch::restore`] needs, at a time.
    pub fn snapshot(&self, now: u64) -> Snapshot {
        let model = &self.datapath.model;
        Snapshot {
            tunnels: TlvTableMod { command: TlvTableCommand::Add, maps: model.tunnels.reply().maps },
            tables: model.settings.clone(),
            meters: BTreeMap::clone(&model.meters),
            groups: BTreeMap::clone(model.groups()),
            flows: self.datapath.flows().cloned().collect(),
            now,
        }
    }

    /// Gives a switch without flows, groups and meters those of a snapshot. Returns the number of flows. Flows whose hard
    /// timeout is over are left out.
    ///
    /// # Errors
    /// A message is refused, for example because it exceeds a limit; the switch stays as it was.
    pub fn restore(&mut self, saved: &[Saved], now: u64) -> Result<usize, RestoreError> {
        let mut number = 0;
        // Flows that end get their age below.
        let mut ending = Vec::new();
        let done = self.datapath.change_many(now, |datapath, transaction| {
            for saved in saved {
                number += 1;
                let message = Message::decode(&saved.message).map_err(|error| error.code)?;
                message.check()?;
                match message.body {
                    Body::FlowMod(flow) => {
                        let (size, version) = (saved.message.len(), message.version);
                        let ends = u64::from(flow.hard_timeout) * SECOND;
                        let change = FlowChange::new(*flow, size, version, message.form, true, datapath)?;
                        let since = now.saturating_sub(saved.age);
                        if ends == 0 {
                            datapath.flow_mod(&change, since, transaction)?;
                        } else if ends > saved.age {
                            datapath.flow_mod(&change, now, transaction)?;
                            ending.push((change, since));
                        }
                    }
                    Body::GroupMod(group) => datapath.group_mod(&group, now, transaction)?,
                    Body::MeterMod(meter) => datapath.meter_mod(&meter, now, transaction)?,
                    Body::TableMod(table) => datapath.table_mod(&table, message.version, transaction)?,
                    Body::TlvTableMod(maps) => datapath.model.tunnels.change(&maps)?,
                    _ => return Err(ErrorCode::BrcBadType),
                }
            }
            Ok(())
        });
        done.map_err(|code| RestoreError { number, count: saved.len(), code })?;
        for (change, since) in ending {
            // The same flow again, as if added earlier. If that were refused, its timeout would start anew.
            let _ = self.datapath.apply_flow_mod(&change, since);
        }
        self.after_changes();
        Ok(self.flow_count())
    }
}

impl Snapshot {
    /// Encodes the snapshot: what is referred to before what refers to it.
    pub fn messages(&self) -> impl Iterator<Item = Saved> {
        let tunnels = (!self.tunnels.maps.is_empty()).then(|| Body::TlvTableMod(self.tunnels.clone()));
        let tunnels = tunnels.into_iter().filter_map(|body| encode(Version::V1_4, body));
        let tables = (0..).zip(&*self.tables).flat_map(|(number, settings)| table_mods(number, settings));
        let meter = |(number, entry): (&u32, &Arc<MeterEntry>)| {
            let config = entry.config(*number);
            let command = MeterModCommand::Add;
            let change = MeterMod { command, flags: config.flags, meter: config.meter, bands: config.bands };
            encode(Version::V1_4, Body::MeterMod(change))
        };
        let meters = self.meters.iter().filter_map(meter);
        let groups = self.ordered_groups().into_iter().flat_map(|(number, entry)| group_mods(number, entry));
        let objects = tunnels.chain(tables).chain(meters).chain(groups);
        let objects = objects.map(|message| Saved { age: 0, message });
        let flow = |flow: &Arc<Flow>| {
            let age = self.now.saturating_sub(flow.created);
            flow_mod(flow).map(|message| Saved { age, message })
        };
        objects.chain(self.flows.iter().filter_map(flow))
    }

    /// The groups, each behind those that its actions refer to.
    fn ordered_groups(&self) -> Vec<(u32, &GroupEntry)> {
        let mut ordered = Vec::new();
        let mut done = BTreeSet::new();
        for first in self.groups.keys() {
            // Groups to be done, and whether what they refer to has been done.
            let mut todo = vec![(*first, false)];
            while let Some((number, is_ready)) = todo.pop() {
                let Some(entry) = self.groups.get(&number).filter(|_| !done.contains(&number)) else {
                    continue;
                };
                if is_ready {
                    done.insert(number);
                    ordered.push((number, entry.as_ref()));
                } else {
                    // Groups have no loops.
                    todo.push((number, true));
                    todo.extend(entry.groups().into_iter().map(|other| (other, false)));
                }
            }
        }
        ordered
    }
}

/// Encodes a message; `None`: the version cannot express it.
fn encode(version: Version, body: Body) -> Option<Vec<u8>> {
    Message::new(version, 0, body).into_bytes().ok()
}

/// The configuration of a table, as far as controllers have changed it and the standard can express it.
fn table_mods(table_id: u8, settings: &TableSettings) -> Vec<Vec<u8>> {
    let of = |version| TableMod { table_id, config: settings.config(version), properties: Vec::new() };
    let mut bodies = Vec::new();
    if settings.miss != Miss::Default {
        bodies.push((Version::V1_2, Body::TableMod(of(Version::V1_2))));
    }
    if settings.evicts || settings.vacancy.is_some() {
        let properties = settings.vacancy.map(TableModProperty::Vacancy).into_iter().collect();
        let change = TableMod { properties, ..of(Version::V1_4) };
        bodies.push((Version::V1_4, Body::TableMod(change)));
    }
    bodies.into_iter().filter_map(|(version, body)| encode(version, body)).collect()
}

/// Messages that add a group. One with more buckets than fit a message takes several.
pub(crate) fn group_mods(group: u32, entry: &GroupEntry) -> Vec<Vec<u8>> {
    let mut actions = Vec::new();
    entry.buckets.iter().for_each(|bucket| visit(&bucket.actions, &mut |action| actions.push(action)));
    let has_all = |version: &Version| actions.iter().all(|action| action.exists_in(*version));
    // Versions before the last one lack ids of buckets, but have actions that it lacks.
    let version = Version::ALL.into_iter().rev().filter(|version| *version > Version::V1_0).find(has_all);
    let version = version.unwrap_or(Version::V1_5);
    let buckets: Vec<Bucket> =
        entry.buckets.iter().map(|bucket| translate::bucket(bucket, version)).collect();
    let message = |command, buckets: &[Bucket]| {
        let change = GroupMod {
            command,
            kind: entry.kind,
            group,
            command_bucket: match command {
                GroupModCommand::InsertBucket => bucket::LAST,
                _ => bucket::ALL,
            },
            buckets: buckets.to_vec(),
            properties: entry.properties.clone(),
        };
        encode(version, Body::GroupMod(change))
    };
    if let Some(whole) = message(GroupModCommand::Add, &buckets) {
        return vec![whole];
    }
    let mut messages = Vec::new();
    let mut rest = buckets.as_slice();
    let mut command = GroupModCommand::Add;
    while !rest.is_empty() {
        let sizes = std::iter::successors(Some(rest.len()), |size| (*size > 1).then_some(size / 2));
        let found = sizes.filter_map(|size| {
            let (head, tail) = rest.split_at(size);
            message(command, head).map(|message| (message, tail))
        });
        let Some((message, tail)) = { found }.next() else { return Vec::new() };
        messages.push(message);
        (rest, command) = (tail, GroupModCommand::InsertBucket);
    }
    messages
}

/// The message that adds a flow: in the version in which it was added, which can express all of it.
fn flow_mod(flow: &Flow) -> Option<Vec<u8>> {
    let actions = flow.actions();
    let others = [Version::V1_5, Version::V1_4, Version::V1_3];
    let has_all = |version: &Version| actions.iter().all(|action| action.exists_in(*version));
    std::iter::once(flow.version).chain(others.into_iter().filter(has_all)).find_map(|version| {
        // Flows that overlap now did not when they were added; additions in old versions always reset counts.
        let mut flags = flow.flags - FlowModFlags::CHECK_OVERLAP;
        flags.set(
            FlowModFlags::RESET_COUNTS,
            version > Version::V1_1 && flags.contains(FlowModFlags::RESET_COUNTS),
        );
        let change = FlowMod {
            cookie: flow.cookie,
            table_id: flow.table,
            command: FlowModCommand::Add,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            priority: flow.priority,
            buffer_id: version::NO_BUFFER,
            out_port: PortNo::ANY,
            out_group: version::group::ANY,
            flags,
            importance: flow.importance,
            matching: translate::matching(&flow.fields, version, true),
            instructions: (*flow.instructions).clone(),
            ..FlowMod::default()
        };
        let mut message = Message::new(version, 0, Body::FlowMod(Box::new(change)));
        if version == Version::V1_0 {
            // Its own form lacks most fields.
            message.form = Form::Nicira;
        }
        message.into_bytes().ok()
    })
}
