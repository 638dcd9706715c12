//! What would happen to a packet, and why: nothing changes by it.

use std::fmt;
use std::sync::Arc;

use openflow::error::ErrorCode;
use openflow::message::PacketOut;
use openflow::text::{instructions_text, match_text};
use openflow::{PortNo, Version};
use pipeline::interp::{self, Effect, Event, Exit, Received};
use pipeline::ir::TableId;
use pipeline::state::EntryId;

use super::Switch;
use super::packets::{MIN_PACKET, failure};
use crate::exec::{self, Surroundings};
use crate::failure::Failure;
use crate::flows::Flow;
use crate::program::Layout;

/// What would happen to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsal {
    /// What happens on the way.
    pub steps: Vec<Step>,
    /// What comes of it; outputs of a failure are not executed.
    pub effects: Vec<Effect>,
    /// The limit that the packet exceeds.
    pub failure: Option<Failure>,
}

/// A step of a packet: a flow that matches, a table without one, a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is.
    pub what: String,
    /// Instructions of a flow.
    pub actions: Option<String>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.actions.iter().try_for_each(|actions| write!(f, " actions={actions}"))
    }
}

impl Switch {
    /// Takes a packet of `len` bytes, of which the first are visible, through the tables as if it had arrived at a
    /// port, and changes nothing: no counts, no timeouts, no learned flows.
    pub fn rehearse(&self, port: PortNo, visible: &[u8], len: u32, now: u64) -> Rehearsal {
        let (trace, effects) = self.rehearsed(port, visible, len, now);
        let steps = trace.iter().filter_map(|event| self.step(event)).collect();
        Rehearsal { failure: failure(&effects), steps, effects }
    }

    /// The trace of a rehearsal, and its effects.
    pub(super) fn rehearsed(
        &self,
        port: PortNo,
        visible: &[u8],
        len: u32,
        now: u64,
    ) -> (Vec<Event>, Vec<Effect>) {
        self.rehearsed_with(self.received_flags(), port, visible, len, now)
    }

    fn rehearsed_with(
        &self,
        flags: u64,
        port: PortNo,
        visible: &[u8],
        len: u32,
        now: u64,
    ) -> (Vec<Event>, Vec<Effect>) {
        let received = Received { len, flags, time: now, ..Received::whole(visible, port.0) };
        let is_live = |number: u32| self.ports.get(&number).is_some_and(|port| port.is_live());
        let mut random = self.random;
        let mut surroundings = Surroundings { now, random: &mut random, is_live: &is_live };
        let outcome = interp::rehearse(&self.datapath.state, &mut surroundings, &received, &exec::LIMITS);
        (outcome.trace, outcome.effects)
    }

    /// Rehearses a whole packet ([`Switch::rehearse`]). Returns the steps, and the packets that would leave; floods are
    /// packets for each port.
    pub fn foresee(&self, port: PortNo, packet: &[u8], now: u64) -> (Vec<String>, Vec<super::Effect>) {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let Rehearsal { steps, effects, .. } = self.rehearse(port, packet, len, now);
        (steps.iter().map(Step::to_string).collect(), self.outputs(port, packet, effects))
    }

    /// Returns the limit that a packet would exceed, if it arrived at a port.
    pub fn foresee_failure(&self, port: PortNo, packet: &[u8], now: u64) -> Option<Failure> {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        failure(&self.rehearsed(port, packet, len, now).1)
    }

    /// Rehearses a packet that a controller would send, as [`Switch::foresee`] does.
    ///
    /// # Errors
    /// The actions are refused, or the packet is too short.
    pub fn foresee_packet_out(
        &mut self,
        request: &PacketOut,
        now: u64,
    ) -> Result<(Vec<String>, Vec<super::Effect>), ErrorCode> {
        request.actions.iter().try_for_each(|action| action.check(Version::V1_5))?;
        if request.data.len() < MIN_PACKET {
            return Err(ErrorCode::BrcBadPacket);
        }
        let (port, packet) = (request.in_port, request.data.as_slice());
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let (trace, effects) = self
            .injecting(request, now, |switch, flags| switch.rehearsed_with(flags, port, packet, len, now))?;
        let steps = trace.iter().filter_map(|event| self.step(event));
        Ok((steps.map(|step| step.to_string()).collect(), self.outputs(port, packet, effects)))
    }

    /// The packets that effects send to ports.
    fn outputs(&self, port: PortNo, packet: &[u8], effects: Vec<Effect>) -> Vec<super::Effect> {
        let received = Received::whole(packet, port.0);
        let mut outputs = Vec::new();
        if failure(&effects).is_some() {
            return outputs;
        }
        for effect in effects {
            let Effect::Output { to, packet: form, queue, .. } = effect else { continue };
            let (packet, queue) = (form.bytes(&received), queue.unwrap_or(0));
            let output =
                |number| super::Effect::Output { port: PortNo(number), packet: packet.clone(), queue };
            match to {
                Exit::Port(number) => outputs.push(output(number)),
                Exit::Fallback => outputs.push(super::Effect::Normal { in_port: port, packet, queue }),
                Exit::Flood | Exit::All => {
                    let others = self.ports.keys().filter(|number| **number != port.0);
                    outputs.extend(others.map(|number| output(*number)));
                }
            }
        }
        outputs
    }

    /// A step in the terms of OpenFlow, if it is one.
    fn step(&self, event: &Event) -> Option<Step> {
        let layout = Layout::get();
        let plain = |what| Some(Step { what, actions: None });
        match event {
            Event::Lookup(id, _, hit) => {
                let table = layout.number(*id)?;
                match hit {
                    Some(entry) => Some(self.flow_step(*id, table, *entry)),
                    None => plain(format!("table {table}: no flow matches")),
                }
            }
            Event::Bucket(table, group, bucket) if *table == layout.groups => {
                plain(format!("group {group}: bucket {bucket}"))
            }
            _ => None,
        }
    }

    /// The flow of an entry; none has one that flows with conjunctive matches share.
    pub(super) fn flow_of(&self, id: TableId, table: u8, entry: EntryId) -> Option<&Arc<Flow>> {
        let installed = self.datapath.state.table(id)?.get(entry)?;
        let flows = self.datapath.model.tables().get(usize::from(table))?;
        let priority = u16::try_from(installed.entry.priority).ok()?;
        flows.find(priority, &installed.entry.matches)
    }

    /// The step at the flow of an entry.
    fn flow_step(&self, id: TableId, table: u8, entry: EntryId) -> Step {
        match self.flow_of(id, table, entry) {
            Some(flow) => {
                let matching = match_text(&flow.fields);
                let comma = if matching.is_empty() { "" } else { "," };
                let what = format!("table {table}: priority={}{comma}{matching}", flow.priority);
                Step { what, actions: Some(instructions_text(&flow.instructions, flow.version)) }
            }
            // Flows with conjunctive matches share entries.
            None => Step { what: format!("table {table}: a conjunctive match"), actions: None },
        }
    }
}
