//! The bridge's spanning tree as packets see it: which ports forward, and which ones learn.
//!
//! The control side runs the protocol and passes a [`TreeView`] ([`crate::OpenFlow::set_tree`]). A port that the
//! configuration puts into the tree is blocked until the view tells its state: two ports that forwarded meanwhile could
//! be a loop. BPDUs that any port of such a bridge receives are for the control side, ahead of the tables.
//!
//! A bridge whose ports take part in no tree pays nothing; with one, batches of ports that forward pay one look at the
//! ports' map.

use std::collections::BTreeMap;

use fabric::{Batch, DropReason, PortIndex, Value, VersionId};
use logic::vlan::Vlans;
use ofswitch::TreeState;
use packet::ether;
use spanning_tree::bpdu;
pub use spanning_tree::{PortState, Protocol};

use crate::execute::{Executor, remark};
use crate::plane::{Local, Plane};
use crate::ports::PortMap;
use crate::tally::Other;
use crate::upcalls::Purpose;

/// States of a bridge's ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeView {
    /// The protocol that decides.
    pub protocol: Protocol,
    /// By the names of ports that take part.
    pub ports: BTreeMap<String, PortState>,
}

/// What a port does with packets that it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Gate {
    /// They are forwarded.
    #[default]
    Open,
    /// Only addresses are learned from them.
    Learning,
    /// They are dropped.
    Closed,
}

impl Gate {
    pub(crate) fn of(state: PortState) -> Self {
        match (state.forwards(), state.learns()) {
            (true, _) => Self::Open,
            (_, true) => Self::Learning,
            _ => Self::Closed,
        }
    }
}

/// The state as OpenFlow tells it; `None`: the port has no link.
pub(crate) fn openflow_state(state: PortState) -> Option<TreeState> {
    match state {
        PortState::Disabled => None,
        PortState::Blocking => Some(TreeState::Block),
        PortState::Listening => Some(TreeState::Listen),
        PortState::Learning => Some(TreeState::Learn),
        PortState::Forwarding => Some(TreeState::Forward),
    }
}

/// Why a port does not send, in Open vSwitch's words.
pub(crate) fn skipped(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Stp => " >> STP not in forwarding state, skipping output",
        Protocol::Rstp => " >> RSTP not in forwarding state, skipping output",
    }
}

/// Whether a frame is a BPDU, or claims to be: untagged, with a length in place of its type.
pub(crate) fn is_bpdu(front: &[u8]) -> bool {
    let length = front.get(ether::HEADER_LEN - 2..ether::HEADER_LEN);
    bpdu::is_for_bridges(front) && length.is_some_and(|length| length < &[0x06, 0x00][..])
}

impl Plane {
    /// Hands BPDUs of a batch to the control side, and decides for all of a batch whose port does not forward; returns
    /// what is left to do for the others.
    pub(crate) fn pass_gate(&self, ports: &PortMap, batch: &mut Batch<'_>) -> Gate {
        if !ports.has_tree() {
            return Gate::Open;
        }
        let Some(local) = self.locals.get(batch.worker()) else { return Gate::Open };
        let Some(mut executor) = self.executor_of_link(local, ports, batch.ingress()) else {
            return Gate::Open;
        };
        executor.take_bpdus(batch);
        let gate = ports.gate(batch.ingress());
        if gate == Gate::Closed {
            executor.take_pdus(batch);
            executor.close(batch);
        }
        if executor.has_upcalls {
            self.bell.ring();
        }
        gate
    }

    /// The executor of frames that concern an ingress port's link.
    pub(crate) fn executor_of_link<'a>(
        &'a self,
        local: &'a Local,
        ports: &'a PortMap,
        ingress: PortIndex,
    ) -> Option<Executor<'a>> {
        let number = ports.number(ingress)?;
        Some(Executor::new(self, local, ports, number))
    }
}

impl Executor<'_> {
    /// Hands BPDUs to the control side.
    fn take_bpdus(&mut self, batch: &mut Batch<'_>) {
        let ingress = batch.ingress();
        for v in batch.packets() {
            if !batch.is_open(v) || !is_bpdu(batch.header(v)) {
                continue;
            }
            if self.ports.hears_bpdus(ingress) {
                remark(batch, v, "it is for the spanning tree", &[]);
                self.hand_over(batch, v, Purpose::Bpdu);
            } else {
                remark(batch, v, "{} takes no part in the spanning tree", &[Value::Port(ingress)]);
                batch.discard(v, DropReason::ReservedGroup);
            }
        }
    }

    /// Drops all packets of a port that does not forward.
    pub(crate) fn close(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            if batch.is_open(v) {
                self.shut(batch, v);
            }
        }
    }

    /// Drops a packet of a port that does not forward.
    pub(crate) fn shut(&self, batch: &mut Batch<'_>, v: VersionId) {
        remark(batch, v, "{} does not forward in the spanning tree", &[Value::Port(batch.ingress())]);
        self.count(batch, Other::SpanningTree);
        batch.discard(v, DropReason::Logic);
    }

    /// Learns where a packet came from, for `NORMAL`, and forwards nothing.
    pub(crate) fn learn(&self, batch: &mut Batch<'_>, v: VersionId) {
        // Tags may be changed on the way.
        let v = if batch.vlan_aware() { batch.copy(v) } else { Some(v) };
        let Some(v) = v else { return };
        let Some((dst, src)) = ether::addresses(batch.header(v)) else { return };
        let Some(frame) = Vlans::of(batch).enter(batch, v) else { return };
        self.hear(batch, v, &frame, dst, src);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpdus_are_told_from_other_packets_for_bridges() {
        let frame = |dst: u8, kind: u16| {
            [&[1, 0x80, 0xc2, 0, 0, dst, 2, 0, 0, 0, 0, 1][..], &kind.to_be_bytes()].concat()
        };
        assert!(is_bpdu(&frame(0, 39)) && is_bpdu(&frame(0, 0x5ff)));
        assert!(!is_bpdu(&frame(0, 0x600)) && !is_bpdu(&frame(0, 0x8100)), "it has a type");
        assert!(!is_bpdu(&frame(2, 39)) && !is_bpdu(&frame(0, 39)[..13]));
    }

    #[test]
    fn ports_open_as_far_as_their_state_goes() {
        let of = [PortState::Disabled, PortState::Blocking, PortState::Listening].map(Gate::of);
        assert_eq!(of, [Gate::Closed; 3]);
        assert_eq!([PortState::Learning, PortState::Forwarding].map(Gate::of), [Gate::Learning, Gate::Open]);
    }
}
