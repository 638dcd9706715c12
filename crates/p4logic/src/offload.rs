//! Packets whose checksums, or segments, are left to their receivers (virtio's offloads).
//!
//! Such a packet goes through the program as it is, and leaves with new headers in front and the work still to be done,
//! as long as the work can be described: the headers are known to those that do it. With others in front, such as a
//! program's own tunnel, it cannot. The first packet for which that happens is segmented, its checksums are completed,
//! and what came of it goes through the program again, so that entries count it twice; from then on the program gets all
//! packets complete.

use fabric::{Batch, VersionId};
use match_action::Form;

/// Whether the work left on a received packet can be described behind new headers. `front`: memory.
pub(crate) fn describes(batch: &Batch<'_>, v: VersionId, form: &Form<'_>, front: &mut Vec<u8>) -> bool {
    let mut offload = batch.offload(v);
    if offload.is_none() {
        return true;
    }
    let header = batch.header(v);
    let end = header.len().min(form.to as usize);
    let kept = header.get((form.from as usize).min(end)..end).unwrap_or_default();
    front.clear();
    front.extend_from_slice(form.head);
    front.extend_from_slice(kept);
    let (Ok(head), Ok(from)) = (i16::try_from(form.head.len()), i16::try_from(form.from)) else {
        return false;
    };
    offload.shift(head.saturating_sub(from));
    let len = form.head.len() as u64 + u64::from(form.to.saturating_sub(form.from));
    u32::try_from(len).is_ok_and(|len| offload.validate(front, len).is_ok())
}

/// Completes the checksum of a packet whose bytes are those of a form of a received one.
pub(crate) fn complete(batch: &Batch<'_>, v: VersionId, form: &Form<'_>, bytes: &mut [u8]) {
    let offload = batch.offload(v);
    if !offload.needs_csum {
        return;
    }
    let start = (usize::from(offload.csum_start) + form.head.len()).checked_sub(form.from as usize);
    let Some(covered) = start.and_then(|start| bytes.get_mut(start..)) else { return };
    let at = usize::from(offload.csum_offset);
    let sum = packet::checksum::Sum::of(covered).finish();
    if let Some(field) = covered.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}
