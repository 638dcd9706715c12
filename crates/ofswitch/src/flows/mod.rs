//! Flows as controllers know them.
//!
//! A table's flows are found by number, which is the order of their addition, and by match and priority, which tell
//! them apart. Their counters and expiry are the pipeline's: an entry with the same conditions and priority.
//!
//! - `change.rs`: flow-mods; `select.rs`: which flows a request is about; `expire.rs`: timeouts and eviction;
//!   `conjunction.rs`: conjunctive matches.

mod change;
mod conjunction;
mod expire;
mod select;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use openflow::action::Action;
use openflow::instruction::{Instruction, Instructions};
use openflow::message::FlowModFlags;
use openflow::oxm::Oxm;
use openflow::{PortNo, Version};

use crate::datapath::Counts;
use crate::lower::matching::Conditions;
use crate::uses::Object;

pub(crate) use change::{DELETED, FlowChange, no_table};
pub(crate) use select::Selection;

/// What tells flows apart: table, priority and match.
pub(crate) type FlowKey = (u8, u16, Conditions);

/// A flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) table: u8,
    pub(crate) priority: u16,
    pub(crate) conditions: Conditions,
    /// The match as it was given.
    pub(crate) fields: Arc<[Oxm]>,
    pub(crate) cookie: u64,
    pub(crate) idle_timeout: u16,
    pub(crate) hard_timeout: u16,
    pub(crate) flags: FlowModFlags,
    pub(crate) importance: u16,
    pub(crate) instructions: Arc<Instructions>,
    /// The version in which the instructions were given.
    pub(crate) version: Version,
    /// Nanoseconds.
    pub(crate) created: u64,
    /// Nanoseconds.
    pub(crate) modified: u64,
    pub(crate) before: Before,
    /// Nested lists and learned flows that belong to it, by number.
    pub(crate) copies: Vec<u32>,
    pub(crate) learns: Vec<u32>,
    /// Bytes of the message that gave its match or its instructions.
    pub(crate) size: usize,
}

/// What a flow, when it was put there or changed, had from itself or from the flow in whose place it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    /// Time of the last packet, or of the addition. Nanoseconds.
    pub(crate) used: u64,
    /// Packets counted.
    pub(crate) packets: u64,
}

impl Before {
    /// What a flow with these statistics leaves, at a time.
    fn of(counts: &Counts, resets: bool, now: u64) -> Self {
        let packets = if resets { 0 } else { counts.packets };
        Before { used: now.saturating_sub(counts.silent), packets }
    }
}

impl Flow {
    pub(crate) fn key(&self) -> FlowKey {
        (self.table, self.priority, self.conditions.clone())
    }

    /// All actions, those of lists within lists too.
    pub(crate) fn actions(&self) -> Vec<&Action> {
        let mut all = Vec::new();
        self.visit(&mut |action| all.push(action));
        all
    }

    /// The same without a list of them.
    fn visit<'a>(&'a self, each: &mut dyn FnMut(&'a Action)) {
        for instruction in &self.instructions.0 {
            if let Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) = instruction {
                visit(actions, each);
            }
        }
    }

    /// Whether it refers to a group.
    pub(crate) fn has_group(&self, group: u32) -> bool {
        self.objects().contains(&Object::Group(group))
    }

    /// Groups and meters that it refers to.
    pub(crate) fn objects(&self) -> BTreeSet<Object> {
        let mut all = BTreeSet::new();
        for instruction in &self.instructions.0 {
            if let Instruction::Meter(meter) = instruction {
                all.insert(Object::Meter(*meter));
            }
        }
        self.visit(&mut |action| match action {
            Action::Group(group) => _ = all.insert(Object::Group(*group)),
            Action::Meter(meter) => _ = all.insert(Object::Meter(*meter)),
            _ => {}
        });
        all
    }

    /// Whether it goes by itself.
    pub(crate) fn is_timed(&self) -> bool {
        self.idle_timeout != 0 || self.hard_timeout != 0
    }

    /// Whether it does nothing but `NORMAL`, and counts its packets.
    pub(crate) fn is_normal(&self) -> bool {
        let uncounted = FlowModFlags::NO_PKT_COUNTS | FlowModFlags::NO_BYT_COUNTS;
        let [Instruction::ApplyActions(actions)] = self.instructions.0.as_slice() else { return false };
        matches!(actions.as_slice(), [Action::Output(output)] if output.port == PortNo::NORMAL)
            && !self.flags.intersects(uncounted)
    }

    /// Whether it is a clause of a conjunctive match.
    pub(crate) fn is_clause(&self) -> bool {
        is_clause(&self.instructions)
    }

    /// Its clauses of conjunctive matches; such a flow does nothing else.
    pub(crate) fn clauses(&self) -> Vec<openflow::action::Conjunction> {
        let clause = |action: &Action| match action {
            Action::Conjunction(clause) => Some(*clause),
            _ => None,
        };
        self.instructions.applied().iter().filter_map(clause).collect()
    }
}

/// Whether instructions make a flow a clause of a conjunctive match.
pub(crate) fn is_clause(instructions: &Instructions) -> bool {
    instructions.applied().iter().any(|action| matches!(action, Action::Conjunction(_)))
}

/// Visits actions and those nested in them.
pub(crate) fn visit<'a>(actions: &'a [Action], each: &mut dyn FnMut(&'a Action)) {
    for action in actions {
        each(action);
        match action {
            Action::Clone(nest) => visit(&nest.0, each),
            Action::Track(track) => visit(&track.actions, each),
            _ => {}
        }
    }
}

/// A table's flows.
#[derive(Debug, Default)]
pub(crate) struct FlowTable {
    /// By number.
    flows: BTreeMap<u64, Arc<Flow>>,
    /// The same by match and priority: to find a flow, as few places of memory are read as can be.
    index: HashTable<Found>,
    hasher: DefaultHashBuilder,
    /// Flows that are clauses of conjunctive matches.
    clauses: usize,
}

/// A flow in the index.
#[derive(Debug)]
struct Found {
    hash: u64,
    number: u64,
    flow: Arc<Flow>,
}

impl Found {
    fn is(&self, hash: u64, priority: u16, conditions: &Conditions) -> bool {
        self.hash == hash && self.flow.priority == priority && self.flow.conditions == *conditions
    }
}

impl FlowTable {
    /// Flows in the order of their addition.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.flows.values()
    }

    /// The same, with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &Arc<Flow>)> {
        self.flows.iter().map(|(number, flow)| (*number, flow))
    }

    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow with this priority and match.
    pub(crate) fn find(&self, priority: u16, conditions: &Conditions) -> Option<&Arc<Flow>> {
        let hash = self.hasher.hash_one((priority, conditions));
        self.index.find(hash, |found| found.is(hash, priority, conditions)).map(|found| &found.flow)
    }

    /// Adds a flow, or replaces the one with the same match and priority. A flow that replaces another has its number.
    /// Returns that, and the flow that was replaced.
    pub(crate) fn put(&mut self, number: u64, flow: Arc<Flow>) -> (u64, Option<Arc<Flow>>) {
        let hash = self.hasher.hash_one((flow.priority, &flow.conditions));
        let number = match self.index.find_mut(hash, |found| found.is(hash, flow.priority, &flow.conditions))
        {
            Some(found) => {
                found.flow = flow.clone();
                found.number
            }
            None => {
                let found = Found { hash, number, flow: flow.clone() };
                self.index.insert_unique(hash, found, |found| found.hash);
                number
            }
        };
        self.clauses += usize::from(flow.is_clause());
        let replaced = self.flows.insert(number, flow);
        self.clauses -= replaced.as_ref().map_or(0, |flow| usize::from(flow.is_clause()));
        (number, replaced)
    }

    /// Removes a flow; returns it with its number.
    pub(crate) fn remove(&mut self, flow: &Flow) -> Option<(u64, Arc<Flow>)> {
        let hash = self.hasher.hash_one((flow.priority, &flow.conditions));
        let is_it = |found: &Found| found.is(hash, flow.priority, &flow.conditions);
        let (found, _) = self.index.find_entry(hash, is_it).ok()?.remove();
        self.flows.remove(&found.number);
        self.clauses -= usize::from(found.flow.is_clause());
        Some((found.number, found.flow))
    }

    /// The flow of this number.
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Flow>> {
        self.flows.get(&number)
    }

    /// Removes the flow of this number.
    pub(crate) fn remove_number(&mut self, number: u64) {
        if let Some(flow) = self.get(number).cloned() {
            self.remove(&flow);
        }
    }

    /// Number of flows that are clauses of conjunctive matches.
    pub(crate) fn clauses(&self) -> usize {
        self.clauses
    }
}
