//! The limits that bound what controllers cost, and their use.

use super::Switch;
use crate::connection::Connection;
use crate::flows::FlowTable;
use crate::program::{BANDS, TABLES};

/// What a limit holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerWhat {
    /// The bridge.
    Bridge,
    /// Each flow table.
    Table,
    /// Each group.
    Group,
    /// Each meter.
    Meter,
    /// Each connection.
    Connection,
    /// Each bundle.
    Bundle,
    /// Each worker.
    Worker,
}

/// A limit and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What is limited.
    pub name: &'static str,
    /// What the limit holds for.
    pub per: PerWhat,
    /// What is used, by the table, group or connection that uses most.
    pub used: u64,
    /// The limit.
    pub most: u64,
    /// Whether both are bytes.
    pub is_bytes: bool,
}

impl Limit {
    /// A limit of a number of things.
    pub fn count(name: &'static str, per: PerWhat, used: usize, most: usize) -> Self {
        Self { name, per, used: used as u64, most: most as u64, is_bytes: false }
    }

    /// A limit of bytes.
    pub fn bytes(name: &'static str, per: PerWhat, used: usize, most: usize) -> Self {
        Self { is_bytes: true, ..Self::count(name, per, used, most) }
    }
}

impl Switch {
    /// Bytes that wait for all connections.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.connections.values().map(|connection| connection.waiting_bytes).sum()
    }

    /// Returns the limits with their use.
    pub fn limits(&self) -> Vec<Limit> {
        use PerWhat::{Bridge, Bundle, Connection as PerConnection, Group, Meter, Table};
        let (limits, model) = (&self.settings.limits, &self.datapath.model);
        let bands = |used: &dyn Fn(usize, usize) -> usize| {
            model.meters.values().map(|meter| meter.bands.len()).fold(0, used)
        };
        let largest = |of: fn(&Connection) -> usize| self.connections.values().map(of).max().unwrap_or(0);
        let bundle_messages = self
            .connections
            .values()
            .flat_map(|connection| connection.bundles.values())
            .map(|bundle| bundle.messages.len())
            .max();
        let conjunctions = model.conjunctive.values().map(|expansion| expansion.entries.len()).max();
        let (_, meters) = self.object_counts();
        vec![
            Limit::count("flows", Bridge, model.sums.flows, limits.flows as usize),
            Limit::count(
                "flows",
                Table,
                model.tables().iter().map(FlowTable::len).max().unwrap_or(0),
                limits.flows_per_table as usize,
            ),
            Limit::count(
                "combinations of conjunctions",
                Table,
                conjunctions.unwrap_or(0),
                limits.conjunctions as usize,
            ),
            Limit::count(
                "tables",
                Bridge,
                model.tables().iter().filter(|table| table.len() > 0).count(),
                TABLES.into(),
            ),
            Limit::count("groups", Bridge, model.groups().len(), limits.groups as usize),
            Limit::count("buckets", Bridge, model.sums.buckets, limits.all_buckets as usize),
            Limit::count(
                "buckets",
                Group,
                model.groups().values().map(|group| group.buckets.len()).max().unwrap_or(0),
                limits.buckets as usize,
            ),
            Limit::bytes("flows and groups", Bridge, model.sums.bytes, limits.bytes),
            Limit::count("meters", Bridge, meters, limits.meters as usize),
            Limit::count("bands", Bridge, bands(&|sum, bands| sum + bands), BANDS as usize),
            Limit::count("bands", Meter, bands(&usize::max), limits.bands.into()),
            Limit::count("buffered packets", Bridge, self.buffers.used(), limits.buffers as usize),
            Limit::count("ports", Bridge, self.ports.len(), limits.ports as usize),
            Limit::bytes("messages waiting", PerConnection, largest(|one| one.waiting_bytes), limits.backlog),
            Limit::bytes("messages waiting", Bridge, self.waiting_bytes(), limits.replies),
            Limit::count("bundles", PerConnection, largest(|one| one.bundles.len()), limits.bundles as usize),
            Limit::count(
                "messages of bundles",
                Bundle,
                bundle_messages.unwrap_or(0),
                limits.bundle_messages as usize,
            ),
            Limit::bytes("bundles", PerConnection, largest(Connection::bundle_bytes), limits.bundle_bytes),
            Limit::bytes(
                "bundles",
                Bridge,
                self.connections.values().map(Connection::bundle_bytes).sum(),
                limits.all_bundle_bytes,
            ),
            Limit::count(
                "flow monitors",
                PerConnection,
                largest(|one| one.monitors.len()),
                limits.monitors as usize,
            ),
            Limit::count("connections", Bridge, self.connections.len(), limits.connections as usize),
        ]
    }
}
