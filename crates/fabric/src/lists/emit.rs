//! Emitting: puts a version on the list of a port in a form that the port takes, or refuses it.

use super::offloads;
use super::scratchpad::Scratchpad;
use crate::bridge::state::{BridgeState, PortEntry};
use crate::counters::DropReason;
use crate::observe::explain::{Remark, Value};
use crate::rx::RxBatch;
use crate::rx::record::state;

/// Puts version `v` on the list of a port in a form that it takes; on the list of queue `queue`, if given.
pub(crate) fn emit(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: usize,
    entry: &PortEntry,
    queue: Option<u16>,
) {
    let packet = rx.records[v].packet;
    if entry.lanes == 0 {
        return pad.drop_packet(packet, entry.closed);
    }
    let marked = entry.marks.as_ref().map_or(Some(v), |marks| marks.marked(rx, v));
    let Some(v) = marked else { return pad.drop_packet(packet, DropReason::BatchLimit) };
    let record = &mut rx.records[v];
    if record.has(state::OFFLOAD) {
        return offloads::output(rx, pad, bridge, v, entry, queue);
    }
    if record.len() > entry.max_frame {
        return refuse(rx, pad, bridge, v as u16, entry, DropReason::ExceedsMtu);
    }
    record.state |= state::SENT;
    let lane = entry.lane(queue, rx, || packet::flow::hash(rx.header(v)));
    pad.append(lane, v as u16);
}

/// Counts version `v`, which a port cannot take, at the port.
#[cold]
pub(super) fn refuse(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: u16,
    entry: &PortEntry,
    reason: DropReason,
) {
    if !pad.rehearsal {
        bridge.refuse(entry, reason);
    }
    if pad.notes.are_taken() {
        // It is shown at the end of the batch and must not change until then.
        let record = &mut rx.records[usize::from(v)];
        record.state |= state::SENT;
        if reason == DropReason::ExceedsMtu
            && let Some(lane) = bridge.lane(entry.first_lane as usize)
        {
            let (most, len) = (entry.max_frame.into(), record.len().into());
            let values = [Value::Port(lane.port), Value::Number(most), Value::Number(len)];
            let text = "{} takes frames of at most {} bytes; this one has {}";
            pad.notes.journal.add(|| Remark::new(record.packet, text, &values));
        }
        pad.notes.refused(v, entry.first_lane, reason);
    }
}
