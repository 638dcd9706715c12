//! The queues of ports where packets wait: made and removed with clients and settings, from memory that is bounded for
//! the whole switch.
//!
//! Each port has its share for itself, by the room of its queues, those of former configurations included while packets
//! wait in them: a port whose receiver is stuck takes nothing from the others, however often it is configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::worker_list::Workers;
use super::{Bridge, BridgeId, Placement, PortRef, SwitchError, doorbell, next};
use crate::bridge::port::PortIndex;
use crate::counters::QueueCounters;
use crate::deliver::client::Client;
use crate::deliver::egress::Egress;
use crate::queueing::classes::Classes;
use crate::queueing::lane::{self, LaneQueues, Planned};
use crate::worker::tasks::drain::Drain;
use crate::worker::tasks::{Task, Token};

/// The queues of an attached port.
pub(super) struct Queues {
    /// Of each transmit queue.
    pub(super) lanes: Vec<Arc<LaneQueues>>,
    /// Worker and token of the drain of each.
    pub(super) drains: Vec<(usize, Token)>,
}

/// The memory that queues may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) most: u64,
    pub(super) used: u64,
}

impl Memory {
    /// What the queues of all ports but one have left.
    pub(super) fn without(most: u64, bridges: &BTreeMap<BridgeId, Bridge>, except: PortRef) -> Self {
        let ports =
            bridges.iter().flat_map(|(bridge, it)| (0..).zip(&it.ports).map(|(i, port)| (*bridge, i, port)));
        let others = ports.filter(|(bridge, i, _)| (*bridge, PortIndex(*i)) != (except.bridge, except.port));
        let queues = others.filter_map(|(_, _, port)| port.as_ref()?.attached.as_ref()?.queues.as_ref());
        Self { most, used: queues.map(Queues::bytes).sum() }
    }

    /// Refuses queues that need more than there is.
    fn check(self, needed: u64) -> Result<(), SwitchError> {
        let left = self.most.saturating_sub(self.used);
        if needed > left {
            return Err(SwitchError::QueueMemory { needed, left, most: self.most });
        }
        Ok(())
    }
}

impl Queues {
    /// Queues in front of a client's transmit queues. Their drains are [started](Queues::start) later.
    pub(super) fn new(
        classes: &Arc<Classes>,
        tx: &[Arc<dyn Egress>],
        memory: Memory,
    ) -> Result<Self, SwitchError> {
        memory.check(lane::bytes(classes).saturating_mul(tx.len() as u64))?;
        let lanes = tx.iter().map(|egress| LaneQueues::new(classes, egress.clone()));
        let lanes = lanes.collect::<std::io::Result<_>>().map_err(doorbell)?;
        Ok(Self { lanes, drains: Vec::new() })
    }

    /// Bytes of memory that they may take.
    fn bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.bytes()).sum()
    }

    /// Changes the configuration, or leaves it as it is.
    pub(super) fn configure(&mut self, classes: &Arc<Classes>, memory: Memory) -> Result<(), SwitchError> {
        let planned: Vec<_> = self.lanes.iter().map(|lane| lane.planned(classes)).collect();
        memory.check(planned.iter().map(Planned::bytes).sum())?;
        self.lanes.iter().zip(planned).for_each(|(lane, planned)| lane.configure(planned));
        Ok(())
    }

    /// Drains for the queues, with their workers; to be added when the port is published.
    pub(super) fn start(
        &mut self,
        counters: &[Arc<QueueCounters>],
        client: &Arc<Client>,
        near: Placement,
        workers: &mut Workers,
        next_token: &mut Token,
    ) -> Vec<(usize, Task)> {
        let mut tasks = Vec::new();
        for (lane, counters) in self.lanes.iter().zip(counters) {
            let token = next(next_token);
            let worker = workers.place(near).0;
            let drain = Drain::new(lane.clone(), counters.clone(), client.clone(), token);
            self.drains.push((worker, token));
            tasks.push((worker, Task::Drain(Box::new(drain))));
        }
        tasks
    }
}
