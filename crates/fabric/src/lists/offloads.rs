//! Outputs with offload metadata: validated, then passed on whole or made plain in software.
//!
//! The plain form of a version (segments with full checksums) is a set of new header versions over ranges of the same
//! payload: only headers are copied. It is made once per version and shared by all destinations that need it.

use packet::checksum::Sum;
use packet::offload::Gso;
use packet::segment::{self, Plan};

use super::emit::refuse;
use crate::bridge::state::{BridgeState, PortEntry};
use crate::counters::DropReason;
use crate::lists::scratchpad::Scratchpad;
use crate::rx::arena::SLOT_LEN;
use crate::rx::record::{Record, Work, state};
use crate::rx::{HEADROOM, RxBatch};

/// Puts version `v`, which has offload metadata, on the list of `entry` in a form that it takes.
#[cold]
pub(crate) fn output(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: usize,
    entry: &PortEntry,
    queue: Option<u16>,
) {
    let record = rx.records[v];
    if let Err(reason) = validate(rx, v) {
        return pad.drop_packet(record.packet, reason);
    }
    let offload = rx.work[v].offload;
    let takes = match offload.gso {
        Gso::None => entry.caps.csum,
        Gso::Tcp4 => entry.caps.csum && entry.caps.tso4,
        Gso::Tcp6 => entry.caps.csum && entry.caps.tso6,
        Gso::Udp => entry.caps.csum && entry.caps.uso,
    };
    if takes {
        let frame = match offload.gso {
            Gso::None => record.len(),
            _ => record.len().min(u32::from(offload.hdr_len) + u32::from(offload.gso_size)),
        };
        return append(rx, pad, bridge, v, frame, entry, queue);
    }
    if rx.work[v].plain_count == 0
        && let Err(reason) = make_plain(rx, v)
    {
        return pad.drop_packet(record.packet, reason);
    }
    let (first, count) = (rx.work[v].plain, rx.work[v].plain_count);
    // The original must not change either: its plain form was made from it.
    rx.records[v].state |= state::SENT;
    for segment in first..first + count {
        let len = rx.records[usize::from(segment)].len();
        append(rx, pad, bridge, usize::from(segment), len, entry, queue);
    }
}

fn append(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: usize,
    frame: u32,
    entry: &PortEntry,
    queue: Option<u16>,
) {
    if frame > entry.max_frame {
        return refuse(rx, pad, bridge, v as u16, entry, DropReason::ExceedsMtu);
    }
    rx.records[v].state |= state::SENT;
    // All segments of a packet hash alike: the hash leaves out lengths and sequence numbers.
    let lane = entry.lane(queue, rx, || packet::flow::hash(rx.header(v)));
    pad.append(lane, v as u16);
}

/// Normalizes the metadata of version `v`, if it describes the packet.
fn validate(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let offload = rx.work[v].offload.validate(rx.header(v), rx.records[v].len());
    rx.work[v].offload = offload.map_err(|_| DropReason::BadOffload)?;
    Ok(())
}

/// The plain form of version `v`, which has offload metadata, as versions that the caller may edit: receivers without
/// offloads get others.
pub(crate) fn plain_versions(rx: &mut RxBatch, v: usize) -> Result<std::ops::Range<u16>, DropReason> {
    validate(rx, v)?;
    make_plain(rx, v)?;
    let Work { plain, plain_count, .. } = rx.work[v];
    rx.work[v].plain_count = 0;
    Ok(plain..plain + plain_count)
}

fn make_plain(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let first = rx.used_versions;
    match rx.work[v].offload.gso {
        Gso::None => complete_checksum(rx, v)?,
        _ => segments(rx, v)?,
    }
    rx.work[v].plain = first as u16;
    rx.work[v].plain_count = (rx.used_versions - first) as u16;
    Ok(())
}

fn complete_checksum(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let (record, offload) = (rx.records[v], rx.work[v].offload);
    let rest = payload_sum(rx, v, u32::from(record.header_len), record.len());
    let fresh = rx.new_version().ok_or(DropReason::BatchLimit)?;
    let (old, new) = rx.slots.split_at_mut(fresh);
    let range = usize::from(record.start)..usize::from(record.start + record.header_len);
    let header = &mut new[0].0[range.clone()];
    header.copy_from_slice(&old[v].0[range]);
    segment::complete_checksum(header, &offload, record.len(), rest).map_err(|_| DropReason::BadOffload)?;
    rx.records[fresh] = record.plain_version();
    Ok(())
}

fn segments(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let (record, offload) = (rx.records[v], rx.work[v].offload);
    let private = u32::from(record.header_len);
    let plan = Plan::new(rx.header(v), record.len(), &offload).map_err(|_| DropReason::BadOffload)?;
    let header_len = plan.header_len();
    if rx.used_versions + plan.count() as usize > rx.records.len() {
        return Err(DropReason::BatchLimit);
    }
    for i in 0..plan.count() {
        let range = plan.payload(i);
        let sum = payload_sum(rx, v, range.start, range.end);
        let fresh = rx.new_version().ok_or(DropReason::BatchLimit)?;
        let (old, new) = rx.slots.split_at_mut(fresh);
        let original = &old[v].0[usize::from(record.start)..][..private as usize];
        // Payload that is already in the private header stays private.
        let own = range.start.min(private) as usize..range.end.min(private) as usize;
        let own_len = own.len();
        // A header of maximal length, with tags in front, needs part of the headroom.
        let start = HEADROOM.min(SLOT_LEN.saturating_sub(header_len + own_len));
        let slot = &mut new[0].0[start..];
        plan.write_header(i, original, slot, sum).map_err(|_| DropReason::BadOffload)?;
        match (slot.get_mut(header_len..header_len + own_len), original.get(own)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Err(DropReason::BadOffload),
        }
        rx.records[fresh] = Record {
            start: start as u16,
            header_len: (header_len + own_len) as u16,
            from: record.from + range.start.max(private) - private,
            to: record.from + range.end.max(private) - private,
            ..record.plain_version()
        };
    }
    Ok(())
}

/// One's complement sum of bytes `from..to` of a version: its private part is read privately, the rest from the sender
/// through a small buffer. The bytes summed can differ from those copied later only if the sender changes them, and
/// then only its own packet is wrong.
fn payload_sum(rx: &RxBatch, v: usize, from: u32, to: u32) -> Sum {
    let record = &rx.records[v];
    let private = u32::from(record.header_len);
    let mut sum = Sum::default();
    if let Some(own) = rx.header(v).get(from.min(private) as usize..to.min(private) as usize) {
        sum.add(own);
    }
    let source = rx.source(record);
    let (mut at, end) = (record.from + from.max(private) - private, record.from + to.max(private) - private);
    let mut chunk = [0u8; 2048];
    while at < end {
        let n = (end - at).min(chunk.len() as u32);
        let bytes = &mut chunk[..n as usize];
        source.read(at, bytes);
        sum.add(bytes);
        at += n;
    }
    sum
}
