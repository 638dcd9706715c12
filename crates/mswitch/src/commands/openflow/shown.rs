//! Replies of a bridge with `--json`, and as `ovs-ofctl` writes them.

use openflow::message::{FlowModFlags, GroupDesc, MeterConfig, Port, PortConfig, PortState};
use openflow::multipart::{FlowEntry, GroupStats, MeterStats, TableStats};
use openflow::text;
use openflow::version::Version;
use serde::Serialize;

use crate::failure::Failure;
use crate::render::table::{Column, table};
use crate::render::units;

use super::tables::TableNames;

/// Something that a bridge lists.
pub(super) trait Shown: Serialize {
    /// Its lines.
    fn text(&self) -> &str;
}

macro_rules! shown {
    ($($name:ident),+) => {$(
        impl Shown for $name {
            fn text(&self) -> &str {
                &self.text
            }
        }
    )+};
}

shown!(Flow, Group, Meter);

/// A flow.
#[derive(Debug, Serialize)]
pub(super) struct Flow {
    table: u8,
    priority: u16,
    cookie: String,
    r#match: String,
    actions: String,
    packets: u64,
    bytes: u64,
    duration_seconds: f64,
    idle_timeout: u16,
    hard_timeout: u16,
    send_flow_removed: bool,
    text: String,
}

impl Flow {
    /// Leaves out of the text what changes with packets and time.
    pub(super) fn forget_statistics(&mut self) {
        let Self { table, priority, r#match, actions, idle_timeout, hard_timeout, cookie, .. } = self;
        let mut parts = Vec::new();
        if cookie.as_str() != "0x0" {
            parts.push(format!("cookie={cookie}"));
        }
        if *table > 0 {
            parts.push(format!("table={table}"));
        }
        for (name, timeout) in [("idle_timeout", *idle_timeout), ("hard_timeout", *hard_timeout)] {
            if timeout > 0 {
                parts.push(format!("{name}={timeout}"));
            }
        }
        if self.send_flow_removed {
            parts.push("send_flow_rem".into());
        }
        parts.push(format!("priority={priority}"));
        if !r#match.is_empty() {
            parts.push(r#match.clone());
        }
        self.text = format!("{} actions={actions}", parts.join(","));
    }

    /// Shows tables by name in the text.
    pub(super) fn name_tables(&mut self, names: &TableNames) {
        self.text = names.show(&self.text);
    }

    pub(super) fn new(flow: &FlowEntry, version: Version) -> Result<Self, Failure> {
        let malformed =
            |_| Failure::new("the bridge sent a flow with a malformed match; this is a bug in mswitch");
        let fields = flow.matching.to_fields().map_err(malformed)?;
        let (seconds, nanoseconds) = flow.stats.duration().unwrap_or_default();
        Ok(Self {
            table: flow.table_id,
            priority: flow.priority,
            cookie: format!("{:#x}", flow.cookie),
            r#match: text::match_text(&fields),
            actions: text::instructions_text(&flow.instructions, version),
            packets: flow.stats.packets().unwrap_or_default(),
            bytes: flow.stats.bytes().unwrap_or_default(),
            duration_seconds: f64::from(seconds) + f64::from(nanoseconds) / 1e9,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            send_flow_removed: flow.flags.contains(FlowModFlags::SEND_FLOW_REM),
            text: text::flow_entry_text(flow, version).map_err(malformed)?,
        })
    }
}

/// Counters.
#[derive(Debug, Serialize)]
struct Counter {
    packets: u64,
    bytes: u64,
}

impl From<&openflow::multipart::Counter> for Counter {
    fn from(counter: &openflow::multipart::Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}

/// A group, with its statistics where they are asked for.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    group: u32,
    #[serde(flatten)]
    statistics: Option<GroupStatistics>,
    text: String,
}

#[derive(Debug, Serialize)]
struct GroupStatistics {
    references: u32,
    #[serde(flatten)]
    total: Counter,
    buckets: Vec<Counter>,
}

impl Group {
    pub(super) fn new(group: &GroupDesc, version: Version, names: &TableNames) -> Self {
        let text = names.show(&text::group_text(group, version));
        Self { group: group.group, statistics: None, text }
    }

    pub(super) fn counted(stats: &GroupStats) -> Self {
        let buckets = stats.buckets.iter().map(Counter::from).collect();
        let statistics =
            GroupStatistics { references: stats.references, total: Counter::from(&stats.total), buckets };
        Self { group: stats.group, statistics: Some(statistics), text: text::group_stats_text(stats) }
    }
}

/// A meter, with its statistics where they are asked for.
#[derive(Debug, Serialize)]
pub(super) struct Meter {
    meter: u32,
    #[serde(flatten)]
    statistics: Option<MeterStatistics>,
    text: String,
}

#[derive(Debug, Serialize)]
struct MeterStatistics {
    flows: u32,
    #[serde(flatten)]
    total: Counter,
    bands: Vec<Counter>,
}

impl Meter {
    pub(super) fn new(meter: &MeterConfig) -> Self {
        Self { meter: meter.meter, statistics: None, text: text::meter_text(meter) }
    }

    pub(super) fn counted(stats: &MeterStats) -> Self {
        let bands = stats.bands.iter().map(Counter::from).collect();
        let statistics = MeterStatistics { flows: stats.flows, total: Counter::from(&stats.total), bands };
        Self { meter: stats.meter, statistics: Some(statistics), text: text::meter_stats_text(stats) }
    }
}

/// A flow table.
#[derive(Debug, Serialize)]
pub(super) struct FlowTable {
    table: u8,
    /// `null`: the table has no name.
    name: Option<String>,
    flows: u32,
    lookups: u64,
    matched: u64,
}

impl FlowTable {
    pub(super) fn new(stats: &TableStats, names: &TableNames) -> Self {
        let TableStats { table_id: table, active: flows, lookups, matched, .. } = *stats;
        Self { table, name: names.name(table).cloned(), flows, lookups, matched }
    }

    /// Whether it has flows or has been looked up.
    pub(super) fn is_used(&self) -> bool {
        self.flows > 0 || self.lookups > 0
    }
}

pub(super) fn tables(tables: &[FlowTable]) -> String {
    let columns = [
        Column::Right("TABLE"),
        Column::Left("NAME"),
        Column::Right("FLOWS"),
        Column::Right("LOOKUPS"),
        Column::Right("MATCHED"),
    ];
    let row = |table: &FlowTable| {
        vec![
            table.table.to_string(),
            table.name.clone().unwrap_or_else(|| "-".into()),
            units::count(table.flows.into()),
            units::count(table.lookups),
            units::count(table.matched),
        ]
    };
    table(&columns, tables.iter().map(row).collect(), "no flows")
}

/// A port.
#[derive(Debug, Serialize)]
pub(super) struct OpenFlowPort {
    number: u32,
    port: String,
    name: String,
    address: String,
    link: bool,
    config: Vec<&'static str>,
}

impl OpenFlowPort {
    pub(super) fn new(port: &Port) -> Self {
        let options = [
            (PortConfig::PORT_DOWN, "port-down"),
            (PortConfig::NO_RECV, "no-receive"),
            (PortConfig::NO_FLOOD, "no-flood"),
            (PortConfig::NO_FWD, "no-forward"),
            (PortConfig::NO_PACKET_IN, "no-packet-in"),
        ];
        let config = options.iter().filter(|(option, _)| port.config.contains(*option));
        Self {
            number: port.number.0,
            port: port.number.to_string(),
            name: String::from_utf8_lossy(&port.name.0).into_owned(),
            address: port.address.to_string(),
            link: !port.state.contains(PortState::LINK_DOWN),
            config: config.map(|(_, name)| *name).collect(),
        }
    }
}

pub(super) fn ports(ports: &[OpenFlowPort]) -> String {
    let columns = [
        Column::Right("NUMBER"),
        Column::Left("PORT"),
        Column::Left("LINK"),
        Column::Left("ADDRESS"),
        Column::Left("CONFIGURED"),
    ];
    let row = |port: &OpenFlowPort| {
        vec![
            port.port.clone(),
            port.name.clone(),
            if port.link { "up" } else { "down" }.into(),
            port.address.clone(),
            if port.config.is_empty() { "-".into() } else { port.config.join(", ") },
        ]
    };
    table(&columns, ports.iter().map(row).collect(), "no ports")
}
