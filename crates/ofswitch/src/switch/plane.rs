//! For those that run the program themselves: what they follow, and what packets cause that only the switch can do.

use openflow::{PortNo, version};
use pipeline::ir::{Constant, DigestId, TableId};

use super::Sample;
use super::Switch;
use super::pauses::Arrived;
use crate::exec;
use crate::follow::Follower;
use crate::program::Layout;
use crate::program::outputs::{self, Record};

/// A flow table in figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSummary {
    /// Number.
    pub number: u8,
    /// Name, if it has one.
    pub name: Option<String>,
    /// The table in the program.
    pub id: TableId,
    /// Flows.
    pub flows: usize,
    /// Flows that it may have.
    pub capacity: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that a flow matched.
    pub hits: u64,
}

impl Switch {
    /// Returns the state of the pipeline that holds the flows.
    pub fn state(&self) -> &pipeline::state::State {
        &self.datapath.state
    }

    /// Sets what follows the changes of this switch. It is made from the state and told of the ports at once.
    pub fn set_follower(&mut self, make: impl FnOnce(&pipeline::state::State) -> Box<dyn Follower>) {
        self.datapath.follower = Some(make(&self.datapath.state));
        self.datapath.tell_only_normal();
        self.ports_configured();
        let flags = self.received_flags();
        self.datapath.follower.iter_mut().for_each(|follower| follower.flags(flags));
    }

    /// Tells the follower of the ports' configurations.
    pub(super) fn ports_configured(&mut self) {
        if let Some(follower) = &mut self.datapath.follower {
            let ports: Vec<_> = self.ports.iter().map(|(n, port)| (PortNo(*n), port.config)).collect();
            follower.configured(&ports);
        }
    }

    /// Flags of received packets.
    pub(super) fn received_flags(&self) -> u64 {
        match self.config & 3 {
            1 => 1 << exec::DROP_FRAGMENTS,
            3 => 1 << exec::MATCH_FRAGMENTS,
            _ => 0,
        }
    }

    /// Reads the counters of ports, where the follower has them.
    pub(super) fn read_counters(&mut self, ports: &[u32]) {
        let Some(follower) = &mut self.datapath.follower else { return };
        for number in ports {
            if let (Some(port), Some(counters)) =
                (self.ports.get_mut(number), follower.counters(PortNo(*number)))
            {
                port.counters = counters;
            }
        }
    }

    /// Sends a packet to controllers, as the program asked: `reason`, `limit` and `data` are those of
    /// [`pipeline::interp::Effect::Controller`]. `arrived`: the packet as it was received, and its port, if it
    /// [pauses](Switch::is_pause).
    pub fn send_to_controllers(
        &mut self,
        reason: u8,
        limit: Option<u16>,
        data: &[u8],
        packet: &[u8],
        arrived: Option<(PortNo, &[u8])>,
        now: u64,
    ) {
        let flags = self.received_flags();
        let arrived = arrived.map(|(port, bytes)| Arrived { port: port.0, bytes, flags, resumed: &[] });
        if let Some(record) = Record::read(data) {
            self.packet_in(&record, reason, limit, packet, arrived.as_ref(), now);
        }
    }

    /// Whether a packet that the program sends to controllers for this reason waits for them.
    pub fn is_pause(reason: u8) -> bool {
        reason & outputs::PAUSE != 0
    }

    /// Returns what a digest of the program says of a packet to sample; `None`: it is for
    /// [`Switch::process_digest`].
    pub fn sample_of(id: DigestId, values: &[Constant]) -> Option<Sample> {
        (id == Layout::get().sample).then(|| Sample::of(values))
    }

    /// Processes a digest of the program: learns a flow.
    pub fn process_digest(&mut self, id: DigestId, values: &[Constant], now: u64) {
        let mut effects = std::mem::take(&mut self.effects);
        self.digest(id, values, (PortNo::ANY, &[]), now, &mut effects);
        self.effects = effects;
        self.after_changes();
    }

    /// Names of the program's reasons for drops, by number.
    pub fn drop_reasons() -> &'static [String] {
        &Layout::get().program.reasons
    }

    /// Number of the reason for which packets are dropped that no flow matches.
    pub fn miss_reason() -> usize {
        Layout::get().reasons.table_miss.index()
    }

    /// The flow tables that have flows or have been looked up.
    pub fn table_summaries(&self) -> Vec<TableSummary> {
        let (model, names) = (&self.datapath.model, self.table_names());
        let summary = |(number, table): (usize, &crate::flows::FlowTable)| {
            let id = *Layout::get().tables.get(number)?;
            let (lookups, hits) = self.datapath.state.table(id).map_or((0, 0), |state| state.lookups());
            let settings = model.settings.get(number)?;
            Some(TableSummary {
                number: number as u8,
                name: names.get(&(number as u8)).cloned(),
                id,
                flows: table.len(),
                capacity: settings.size(&self.settings.limits),
                lookups,
                hits,
            })
        };
        let used = |summary: &TableSummary| summary.flows > 0 || summary.lookups > 0;
        model.tables().iter().enumerate().filter_map(summary).filter(used).collect()
    }

    /// Number of groups and of meters.
    pub fn object_counts(&self) -> (usize, usize) {
        let meters = self.datapath.model.meters.keys().filter(|meter| **meter <= version::meter::MAX);
        (self.datapath.model.groups().len(), meters.count())
    }
}
