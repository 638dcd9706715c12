//! Outputs that carry offload metadata: checked, then passed on whole or made plain in software.
//!
//! The plain form of a version (segments with full checksums) is a set of new header versions over ranges of
//! the same payload: nothing but headers is copied. It is made once per version and shared by all
//! destinations that need it.

use packet::checksum::Sum;
use packet::offload::{Gso, Offload};
use packet::segment::{self, Plan};

use crate::bridge::{BridgeState, PortEntry};
use crate::counters::DropReason;
use crate::output::Scratchpad;
use crate::rx::{HEADROOM, PULL_MAX, RxBatch, Version, read_range};

/// Puts version `v`, which has offload metadata, on the list of `entry` in a form that it takes.
#[cold]
pub(crate) fn output(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: usize,
    entry: &PortEntry,
) {
    let version = rx.versions[v];
    let Ok(offload) = version.offload.validate(rx.header(v), version.len()) else {
        return pad.drop_packet(version.packet, DropReason::BadOffload);
    };
    rx.versions[v].offload = offload;
    let takes = match offload.gso {
        Gso::None => entry.caps.csum,
        Gso::Tcp4 => entry.caps.csum && entry.caps.tso4,
        Gso::Tcp6 => entry.caps.csum && entry.caps.tso6,
        Gso::Udp => entry.caps.csum && entry.caps.uso,
    };
    if takes {
        let frame = match offload.gso {
            Gso::None => version.len(),
            _ => version.len().min(u32::from(offload.hdr_len) + u32::from(offload.gso_size)),
        };
        return append(rx, pad, bridge, v, frame, entry);
    }
    if version.plain_count == 0
        && let Err(reason) = make_plain(rx, v)
    {
        return pad.drop_packet(version.packet, reason);
    }
    let (first, count) = (rx.versions[v].plain, rx.versions[v].plain_count);
    // The original must not change either: its plain form was made from it.
    rx.versions[v].outputs = rx.versions[v].outputs.saturating_add(1);
    for segment in first..first + count {
        let len = rx.versions[usize::from(segment)].len();
        append(rx, pad, bridge, usize::from(segment), len, entry);
    }
}

fn append(
    rx: &mut RxBatch,
    pad: &mut Scratchpad,
    bridge: &BridgeState,
    v: usize,
    frame: u32,
    entry: &PortEntry,
) {
    if frame > entry.max_frame {
        return pad.refuse(rx, bridge, v as u16, entry, DropReason::ExceedsMtu);
    }
    rx.versions[v].outputs = rx.versions[v].outputs.saturating_add(1);
    // All segments of a packet hash alike: the hash leaves lengths and sequence numbers out.
    let lane = entry.lane(|| packet::flow::hash(rx.header(v)));
    pad.append(lane, v as u16);
}

fn make_plain(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let version = rx.versions[v];
    let first = rx.used_versions;
    match version.offload.gso {
        Gso::None => complete_checksum(rx, v)?,
        _ => segments(rx, v)?,
    }
    rx.versions[v].plain = first as u16;
    rx.versions[v].plain_count = (rx.used_versions - first) as u16;
    Ok(())
}

fn complete_checksum(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let version = rx.versions[v];
    let rest = payload_sum(rx, v, u32::from(version.header_len), version.len());
    let fresh = rx.new_version().ok_or(DropReason::BatchLimit)?;
    let (old, new) = rx.slots.split_at_mut(fresh);
    let range = usize::from(version.start)..usize::from(version.start + version.header_len);
    let header = &mut new[0].0[range.clone()];
    header.copy_from_slice(&old[v].0[range]);
    segment::complete_checksum(header, &version.offload, version.len(), rest)
        .map_err(|_| DropReason::BadOffload)?;
    rx.versions[fresh] = Version { offload: Offload::NONE, outputs: 0, plain_count: 0, ..version };
    Ok(())
}

fn segments(rx: &mut RxBatch, v: usize) -> Result<(), DropReason> {
    let version = rx.versions[v];
    let private = u32::from(version.header_len);
    let plan =
        Plan::new(rx.header(v), version.len(), &version.offload).map_err(|_| DropReason::BadOffload)?;
    let header_len = plan.header_len();
    if rx.used_versions + plan.count() as usize > rx.versions.len() {
        return Err(DropReason::BatchLimit);
    }
    for i in 0..plan.count() {
        let range = plan.payload(i);
        let sum = payload_sum(rx, v, range.start, range.end);
        let fresh = rx.new_version().ok_or(DropReason::BatchLimit)?;
        let (old, new) = rx.slots.split_at_mut(fresh);
        let original = &old[v].0[usize::from(version.start)..][..private as usize];
        let slot = &mut new[0].0[HEADROOM..HEADROOM + PULL_MAX];
        plan.write_header(i, original, slot, sum).map_err(|_| DropReason::BadOffload)?;
        // Payload that is already in the private header stays private.
        let own = range.start.min(private) as usize..range.end.min(private) as usize;
        let own_len = own.len();
        match (slot.get_mut(header_len..header_len + own_len), original.get(own)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Err(DropReason::BadOffload),
        }
        rx.versions[fresh] = Version {
            start: HEADROOM as u16,
            header_len: (header_len + own_len) as u16,
            packet: version.packet,
            outputs: 0,
            plain: 0,
            plain_count: 0,
            from: version.from + range.start.max(private) - private,
            to: version.from + range.end.max(private) - private,
            offload: Offload::NONE,
            mirrored: version.mirrored,
        };
    }
    Ok(())
}

/// One's complement sum of bytes `from..to` of a version, its private part read privately and the rest
/// from the sender through a small buffer: what is summed may differ from what is copied later only if the
/// sender changes it, and then only its own packet is wrong.
fn payload_sum(rx: &RxBatch, v: usize, from: u32, to: u32) -> Sum {
    let version = &rx.versions[v];
    let private = u32::from(version.header_len);
    let mut sum = Sum::default();
    if let Some(own) = rx.header(v).get(from.min(private) as usize..to.min(private) as usize) {
        sum.add(own);
    }
    let pieces = rx.pieces(version.packet);
    let (mut at, end) =
        (version.from + from.max(private) - private, version.from + to.max(private) - private);
    let mut chunk = [0u8; 2048];
    while at < end {
        let n = (end - at).min(chunk.len() as u32);
        let bytes = &mut chunk[..n as usize];
        read_range(pieces, at, bytes);
        sum.add(bytes);
        at += n;
    }
    sum
}
