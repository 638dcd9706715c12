//! List-based forwarding (mSwitch 3.3): a worker's scratchpad with one list of outputs per destination queue.
//!
//! Appending is O(1); a destination without packets costs nothing; lists keep the order in which the logic
//! spoke, unicast and flooded packets alike. Nodes are outputs, not packets: one packet may be on many
//! lists, and on one list more than once.

use crate::bridge::{BridgeState, PortEntry};
use crate::counters::{DropReason, Drops};
use crate::egress::OutputList;
use crate::fault::Fault;
use crate::notes::Notes;
use crate::rx::RxBatch;
use crate::tools::Tools;

/// Outputs one batch may have in all: every packet of a full batch flooded to 1,024 ports.
const NODES: usize = 256 << 10;

pub(crate) const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Node {
    pub(crate) next: u32,
    pub(crate) version: u16,
    /// Why the destination did not take it: one more than the reason, 0 while nothing is against it. Not an `Option`: a
    /// node of zeroes costs no memory until it is used.
    refused: u8,
}

impl Node {
    #[inline(always)]
    pub(crate) fn new(version: u16, next: u32) -> Self {
        Self { next, version, refused: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_refused(&self) -> bool {
        self.refused != 0
    }

    #[inline]
    pub(crate) fn refuse(&mut self, reason: DropReason) {
        self.refused = reason as u8 + 1;
    }

    /// Why the destination did not take it, if it did not.
    pub(crate) fn refusal(&self) -> Option<DropReason> {
        DropReason::ALL.get(usize::from(self.refused).checked_sub(1)?).copied()
    }
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL, count: 0 };

/// Sorts a list, by merging what is in order already. Stable.
fn sort(nodes: &mut [Node], list: &mut List, packet: &impl Fn(u16) -> u16) {
    let key = |nodes: &[Node], at: u32| packet(nodes[at as usize].version);
    // Bin i holds up to 2^i of the runs that were found, or none; earlier ones are in higher bins.
    let mut bins = [NIL; 32];
    let mut rest = list.head;
    while rest != NIL {
        let mut run = rest;
        let mut last = rest;
        loop {
            rest = nodes[last as usize].next;
            if rest == NIL || key(nodes, last) > key(nodes, rest) {
                break;
            }
            last = rest;
        }
        if run == list.head && rest == NIL {
            return; // in order as it is
        }
        nodes[last as usize].next = NIL;
        for bin in &mut bins {
            if *bin == NIL {
                *bin = run;
                break;
            }
            run = merge(nodes, std::mem::replace(bin, NIL), run, packet);
        }
    }
    let sorted = bins.into_iter().fold(NIL, |later, earlier| merge(nodes, earlier, later, packet));
    (list.head, list.tail) = (sorted, sorted);
    while nodes[list.tail as usize].next != NIL {
        list.tail = nodes[list.tail as usize].next;
    }
}

/// One list of two in order; of equals, those of `a` first.
fn merge(nodes: &mut [Node], mut a: u32, mut b: u32, packet: &impl Fn(u16) -> u16) -> u32 {
    let (mut head, mut tail) = (NIL, NIL);
    while a != NIL || b != NIL {
        let of_a =
            b == NIL || a != NIL && packet(nodes[a as usize].version) <= packet(nodes[b as usize].version);
        let from = if of_a { &mut a } else { &mut b };
        let taken = *from;
        *from = nodes[taken as usize].next;
        match tail {
            NIL => head = taken,
            tail => nodes[tail as usize].next = taken,
        }
        tail = taken;
    }
    head
}

/// See the module.
pub struct Scratchpad {
    nodes: Box<[Node]>,
    used: usize,
    lists: Vec<List>,
    active: Vec<u32>,
    pub(crate) drops: Drops,
    pub(crate) notes: Notes,
    /// Nothing of the batch is counted at ports.
    pub(crate) rehearsal: bool,
}

impl Default for Scratchpad {
    fn default() -> Self {
        // `vec!` of zeroes takes its pages from the system untouched: memory is used as lists grow.
        Self {
            nodes: vec![Node::default(); NODES].into(),
            used: 0,
            lists: Vec::new(),
            active: Vec::new(),
            drops: Drops::default(),
            notes: Notes::default(),
            rehearsal: false,
        }
    }
}

impl Scratchpad {
    /// That of worker `index`.
    pub(crate) fn of_worker(index: usize) -> Self {
        Self { notes: Notes::of_worker(index), ..Self::default() }
    }

    /// One for a batch that is never sent.
    pub(crate) fn for_rehearsal() -> Self {
        Self { rehearsal: true, ..Self::of_worker(0) }
    }

    /// Makes room for a bridge's queues. Allocates only after the bridge grew.
    #[inline]
    pub(crate) fn begin(&mut self, lanes: usize) {
        self.used = 0;
        if self.lists.len() < lanes {
            self.lists.resize(lanes, EMPTY);
            self.active.reserve(lanes);
        }
    }

    /// Puts version `v` on the list of queue `lane`.
    #[inline(always)]
    pub(crate) fn append(&mut self, lane: u32, v: u16) {
        let n = self.used;
        let (Some(node), Some(list)) = (self.nodes.get_mut(n), self.lists.get_mut(lane as usize)) else {
            self.drops.add(DropReason::BatchLimit, 1);
            return self.notes.refused(v, lane, DropReason::BatchLimit);
        };
        *node = Node::new(v, NIL);
        let n = n as u32;
        if list.count == 0 {
            list.head = n;
            self.active.push(lane);
        } else {
            self.nodes[list.tail as usize].next = n;
        }
        list.tail = n;
        list.count += 1;
        self.used += 1;
    }

    /// Outputs so far.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Puts each list in the order of its packets again, which `packet` knows by their versions, where several logics have
    /// spoken one after the other. What was said of one packet stays in the order in which it was said.
    pub(crate) fn restore_order(&mut self, packet: impl Fn(u16) -> u16) {
        for i in 0..self.active.len() {
            let Some(list) = self.lists.get_mut(self.active[i] as usize) else { continue };
            sort(&mut self.nodes, list, &packet);
        }
    }

    /// Counts a packet that goes nowhere, or not everywhere, at the queue that it came from.
    #[inline]
    pub(crate) fn drop_packet(&mut self, packet: u16, reason: DropReason) {
        self.drops.add(reason, 1);
        self.notes.dropped(packet, reason);
    }

    /// Counts version `v` as something that a port cannot take, at the port.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        rx: &mut RxBatch,
        bridge: &BridgeState,
        v: u16,
        entry: &PortEntry,
        reason: DropReason,
    ) {
        if !self.rehearsal {
            bridge.refuse(entry, reason);
        }
        if self.notes.are_taken() {
            // It is shown at the end of the batch and must not change until then.
            let version = &mut rx.versions[usize::from(v)];
            version.outputs = version.outputs.saturating_add(1);
            self.notes.refused(v, entry.first_lane, reason);
        }
    }

    /// Remembers where the lists start, for observers who look when they have been delivered.
    pub(crate) fn note_lists(&mut self, shown: impl Fn(u32) -> bool) {
        let lists = self.active.iter().filter_map(|lane| Some((*lane, self.lists.get(*lane as usize)?.head)));
        self.notes.listed(shown, lists);
    }

    /// How many lists there are, in the order in which destinations were first named.
    pub(crate) fn list_count(&self) -> usize {
        self.active.len()
    }

    /// The queue and the first node of one of them.
    pub(crate) fn list(&self, i: usize) -> Option<(u32, u32)> {
        let lane = *self.active.get(i)?;
        Some((lane, self.lists.get(lane as usize)?.head))
    }

    pub(crate) fn node(&self, at: u32) -> Option<Node> {
        self.nodes.get(at as usize).copied()
    }

    /// The nodes of the list that starts at `head`, delivered or not.
    pub(crate) fn nodes_from(&self, head: u32) -> impl Iterator<Item = Node> {
        let mut at = head;
        std::iter::from_fn(move || {
            let node = *self.nodes.get(at as usize)?;
            at = node.next;
            Some(node)
        })
    }

    /// Delivers every list once, in the order in which destinations were first named, and empties them.
    /// `on_fault` is called for each destination that died.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        batch: &RxBatch,
        bridge: &BridgeState,
        tools: &mut Tools,
        mut on_fault: impl FnMut(usize, Fault),
    ) {
        for i in 0..self.active.len() {
            let lane = self.active[i] as usize;
            let list = std::mem::replace(&mut self.lists[lane], EMPTY);
            let Some(to) = bridge.lane(lane) else { continue };
            let mut outputs =
                OutputList { batch, nodes: &mut self.nodes, head: list.head, count: list.count };
            if let Err(fault) = to.egress.deliver(&mut outputs, &to.counters, tools) {
                on_fault(lane, fault);
            }
        }
        self.active.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists in any order, with equals told apart by their versions.
    #[test]
    fn sorting_is_stable_and_complete() {
        let mut state = 1u32;
        let mut random = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for round in 0..500 {
            let n = random(120) + 1;
            let packets: Vec<u16> = (0..n).map(|_| random(1 + round % 70) as u16).collect();
            let mut pad = Scratchpad::default();
            pad.begin(2);
            (0..n as u16).for_each(|v| pad.append(1, v));
            pad.restore_order(|v| packets[usize::from(v)]);
            let mut expected: Vec<u16> = (0..n as u16).collect();
            expected.sort_by_key(|v| packets[usize::from(*v)]);
            let (_, head) = pad.list(0).unwrap();
            assert_eq!(pad.nodes_from(head).map(|node| node.version).collect::<Vec<_>>(), expected);
            // What comes after goes behind it.
            pad.append(1, n as u16);
            assert_eq!(
                pad.nodes_from(pad.list(0).unwrap().1).last().map(|node| node.version),
                Some(n as u16)
            );
        }
    }
}
