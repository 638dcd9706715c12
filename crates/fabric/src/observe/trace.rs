//! Traces: follow a packet that is never sent, as a batch of one, up to its delivery.
//!
//! The code is that for traffic, on memory of its own, with a logic that was asked to change nothing. The receiver's
//! behaviour (a full ring, a device that refuses) cannot be predicted.

use packet::offload::Offload;

use crate::bridge::port::PortIndex;
use crate::bridge::state::BridgeState;
use crate::counters::{DropReason, Drops};
use crate::decide::{detour, steps};
use crate::lists::scratchpad::Scratchpad;
use crate::observe::explain::Remark;
use crate::observe::interest::Interest;
use crate::rx::record::state;
use crate::rx::{BatchLimits, MAX_PACKET, RxBatch};
use crate::switch::SwitchError;

/// Predicted fate of a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traced {
    /// Findings and decisions, in order.
    pub remarks: Vec<Remark>,
    /// Packets that ports would be given, in the order in which the logic names them; mirrors' copies of what leaves
    /// follow.
    pub outputs: Vec<TracedOutput>,
    /// Drops that would be counted at the ingress port.
    pub drops: Vec<DropReason>,
    /// Ports that would not take the packet, though it was for them, and why.
    pub refusals: Vec<(PortIndex, DropReason)>,
}

/// A packet that would be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedOutput {
    /// Destination port.
    pub port: PortIndex,
    /// Transmit queue of the port.
    pub queue: u16,
    /// Traffic class ([`crate::Batch::set_class`]).
    pub class: u16,
    /// The whole packet.
    pub packet: Vec<u8>,
    /// Work left to the receiver.
    pub offload: Offload,
    /// Whether it is a mirror's copy.
    pub mirrored: bool,
}

/// Reasons for refusing a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The packet is too long.
    #[error("the packet has {0} bytes; the maximum is {MAX_PACKET}")]
    TooLong(usize),
    /// The bridge's logic does not support rehearsals in [`crate::SwitchLogic::explain`].
    #[error("the logic of this bridge does not support tracing a packet that is not sent")]
    Unexplained,
    /// The port or its bridge is gone.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

/// Predicts the fate of `packet` from `ingress` in this state; from [`PortIndex::NONE`], that of one which comes from
/// no port.
pub(crate) fn rehearse(
    bridge: &BridgeState,
    ingress: PortIndex,
    packet: &[u8],
    offload: Offload,
) -> Result<Traced, TraceError> {
    let mut rx = RxBatch::new(BatchLimits { packets: 1, bytes: MAX_PACKET as usize });
    let mut pad = Scratchpad::for_rehearsal();
    let room = rx.landing().and_then(|room| room.get_mut(..packet.len()));
    room.ok_or(TraceError::TooLong(packet.len()))?.copy_from_slice(packet);
    // One piece is never too many.
    let _ = rx.landed(0, packet.len(), offload);
    if rx.is_empty() {
        return Ok(Traced { drops: counted(&rx.drops), ..Traced::default() });
    }
    rx.load_headers();
    pad.notes.begin(Interest { explained: true, ..Interest::default() }, bridge.lane_count());
    let mut explained = true;
    match ingress {
        PortIndex::NONE => steps::decide_originated(&mut rx, &mut pad, bridge, |batch| {
            explained = bridge.logic.explain(batch);
        }),
        ingress => explained = detour::decide(&mut rx, &mut pad, bridge, ingress),
    }
    if !explained {
        return Err(TraceError::Unexplained);
    }
    let outputs = pad.outputs_in_order().into_iter();
    let outputs = outputs.filter_map(|(lane, v)| traced(&rx, bridge, lane, v.into())).collect();
    let refusals =
        pad.notes.refusals().filter_map(|(_, lane, reason)| Some((bridge.lane(lane as usize)?.port, reason)));
    let refusals = refusals.chain(pad.notes.copies_refused.iter().copied()).collect();
    Ok(Traced {
        remarks: pad.notes.journal.remarks().to_vec(),
        outputs,
        drops: counted(&pad.drops),
        refusals,
    })
}

fn traced(rx: &RxBatch, bridge: &BridgeState, lane: u32, v: usize) -> Option<TracedOutput> {
    let port = bridge.lane(lane as usize)?.port;
    let first = bridge.port(port).map_or(lane, |entry| entry.first_lane);
    let record = rx.records.get(v)?;
    let mut packet = rx.header(v).to_vec();
    let mut payload = vec![0; record.payload_len() as usize];
    rx.source(record).read(record.from, &mut payload);
    packet.extend(payload);
    let queue = lane.saturating_sub(first) as u16;
    let mirrored = record.has(state::MIRRORED);
    Some(TracedOutput { port, queue, class: record.class, packet, offload: rx.offload(v), mirrored })
}

fn counted(drops: &Drops) -> Vec<DropReason> {
    let times = |reason: &DropReason| std::iter::repeat_n(*reason, drops.get(*reason) as usize);
    DropReason::ALL.iter().flat_map(times).collect()
}
