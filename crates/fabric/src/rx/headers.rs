//! Private headers of a batch: copying them in, reading them, removing packets from the batch.

use super::{HEADER_COPY, HEADROOM, OFFLOAD_COPY, RxBatch};
use crate::copy;
use crate::cpu::each_level;
use crate::rx::record::{Record, Segment, state};

impl RxBatch {
    /// Copies the front of every packet into its private header slot.
    #[inline]
    pub(crate) fn load_headers(&mut self) {
        self.copy_all();
        self.used_versions = self.packets;
    }

    /// For packets in the switch's own memory, which need no private copy: leaves them where they are, if all are in one
    /// piece and without work left; otherwise loads their headers.
    #[inline]
    pub(crate) fn leave_unloaded(&mut self) {
        if self.offloads || self.used_segments > 0 {
            return self.load_headers();
        }
        self.unloaded = true;
        self.used_versions = self.packets;
    }

    each_level! {
        fn copy_all [copy_all_v3, copy_all_v4](self: &mut Self) = copy_headers at self.level;
    }

    #[inline(always)]
    fn copy_headers(&mut self) {
        let RxBatch { records, slots, segments, .. } = self;
        for (record, slot) in records[..self.packets].iter_mut().zip(slots.iter_mut()) {
            let most = if record.has(state::OFFLOAD) { OFFLOAD_COPY } else { HEADER_COPY };
            let want = (record.to as usize).min(most);
            let to = slot.0[HEADROOM..HEADROOM + OFFLOAD_COPY].as_mut_ptr();
            if !record.has(state::PIECES) {
                // SAFETY: `want` bytes are within the packet, readable by the contract of `add_segment`, and within the
                // slot.
                unsafe { copy::bytes(record.at, to, want) };
            } else {
                load_pieces(record, segments, &mut slot.0[HEADROOM..HEADROOM + want]);
            }
            record.header_len = want as u16;
            record.from = want as u32;
        }
    }

    /// Removes from a batch just loaded the packets for which `keep`, given header and length, returns false; returns
    /// their number. The sender gets their descriptors back like all others. If `shown`, they follow the remaining
    /// packets, in any order, and no version takes their place.
    pub(crate) fn retain(&mut self, shown: bool, mut keep: impl FnMut(&[u8], u32) -> bool) -> u32 {
        let mut kept = 0;
        for i in 0..self.packets {
            let len = self.records[i].len();
            if !keep(self.header(i), len) {
                self.removed_bytes += u64::from(len);
                continue;
            }
            if kept < i {
                self.records.swap(kept, i);
                self.work.swap(kept, i);
                self.records[kept].packet = kept as u16;
                self.records[i].packet = i as u16;
                let (to, from) = self.slots.split_at_mut(i);
                if shown {
                    std::mem::swap(&mut to[kept], &mut from[0]);
                } else {
                    let Record { start, header_len, .. } = self.records[kept];
                    let range = usize::from(start)..usize::from(start + header_len);
                    to[kept].0[range.clone()].copy_from_slice(&from[0].0[range]);
                }
            }
            kept += 1;
        }
        let dropped = self.packets - kept;
        self.packets = kept;
        if !shown {
            self.used_versions = kept;
        }
        dropped as u32
    }

    /// The private header bytes of a version.
    #[inline(always)]
    pub(crate) fn header(&self, v: usize) -> &[u8] {
        self.header_of(v, &self.records[v])
    }

    /// The private header bytes of versions `first..end`, as far as there are so many.
    #[inline(always)]
    pub(crate) fn headers(&self, first: usize, end: usize) -> impl Iterator<Item = &[u8]> {
        let records = self.records.get(first..end).unwrap_or_default();
        records.iter().zip(first..).map(|(record, v)| self.header_of(v, record))
    }

    /// The private header bytes of version `v`, which this is the record of.
    #[inline(always)]
    pub(crate) fn header_of(&self, v: usize, record: &Record) -> &[u8] {
        debug_assert!(std::ptr::eq(record, &raw const self.records[v]));
        // SAFETY: there is a record, so `v` is below `SLOTS`; every record has `start + header_len <= SLOT_LEN`
        // (`record.rs`).
        unsafe { self.slots.bytes(v, record.start.into(), record.header_len.into()) }
    }
}

/// Gathers the front of a packet in several pieces.
#[cold]
fn load_pieces(record: &Record, segments: &[Segment], to: &mut [u8]) {
    let first = record.first_piece as usize;
    let pieces = segments.get(first..first + usize::from(record.pieces)).unwrap_or_default();
    crate::rx::record::Source { at: record.at, pieces }.read(0, to);
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::cpu::Level;
    use crate::rx::BatchLimits;

    #[test]
    fn every_level_of_the_instruction_set_copies_the_same() {
        let bytes: Vec<u8> = (0..=255).collect();
        for level in [Level::Baseline, Level::V3, Level::V4] {
            if level > Level::detected() {
                continue;
            }
            let mut batch = RxBatch::new(BatchLimits { packets: 256, bytes: 1 << 20 });
            batch.level = level;
            // SAFETY: the bytes outlive the batch's use of them, and no piece is longer.
            let added =
                unsafe { batch.add_plain(242, |i| Some((NonNull::from(&bytes[..]).cast(), 14 + i as u32))) };
            batch.load_headers();
            assert_eq!(added, 242);
            for len in 14..256 {
                assert_eq!(batch.header(len - 14), &bytes[..len.min(HEADER_COPY)], "{level:?}, {len} bytes");
            }
        }
    }

    #[test]
    fn bytes_of_removed_packets_are_known() {
        for shown in [false, true] {
            let bytes = [0; 128];
            let mut batch = RxBatch::new(BatchLimits { packets: 8, bytes: 1 << 20 });
            // SAFETY: the bytes outlive the batch's use of them, and no piece is longer.
            unsafe { batch.add_plain(3, |i| Some((NonNull::from(&bytes[..]).cast(), 60 + i as u32))) };
            batch.load_headers();
            assert_eq!(batch.retain(shown, |_, len| len == 61), 2);
            assert_eq!((batch.packets, batch.bytes, batch.removed_bytes), (1, 183, 122));
            batch.clear();
            assert_eq!((batch.bytes, batch.removed_bytes), (0, 0));
        }
    }
}
