//! List-based forwarding (mSwitch 3.3): a worker's scratchpad with one list of outputs per destination queue.
//!
//! Appending is O(1); a destination without packets costs nothing; lists keep the order in which the logic
//! spoke, unicast and flooded packets alike. Nodes are outputs, not packets: one packet may be on many
//! lists, and on one list more than once.

use crate::bridge::BridgeState;
use crate::counters::{DropReason, Drops};
use crate::egress::{OutputList, Tools};
use crate::fault::Fault;
use crate::rx::RxBatch;

/// Outputs one batch may have in all: every packet of a full batch flooded to 1,024 ports.
const NODES: usize = 256 << 10;

pub(crate) const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Node {
    pub(crate) next: u32,
    pub(crate) version: u16,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
    count: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL, count: 0 };

/// See the module.
pub struct Scratchpad {
    nodes: Box<[Node]>,
    used: usize,
    lists: Vec<List>,
    active: Vec<u32>,
    pub(crate) drops: Drops,
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
        }
    }
}

impl Scratchpad {
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
            return;
        };
        *node = Node { next: NIL, version: v };
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
