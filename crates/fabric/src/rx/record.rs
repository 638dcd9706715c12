//! Packet records: one flat table with an entry for each packet of a batch.
//!
//! A [`Record`] is one form of a packet: private header bytes in the slot of the record's number, then bytes `from..to`
//! of the source, which are still in the sender's memory. The first records of a batch are the received packets in
//! their order; behind them are the versions that the batch makes (copies, segments, originated packets). In the plain
//! case (one piece, no work left) the record describes a packet completely. Rarer properties spill into side tables of
//! [`crate::RxBatch`]: the pieces of a packet that came in several, and offload metadata.
//!
//! Built-in logics, deliveries and generated code read the same records. They lie in memory that only the fabric can
//! write: a record holds addresses in its sender's memory and lengths that copies rely on, so no module can access it
//! (docs/decisions.md).
//!
//! Invariants, for every record in use:
//! - `start + header_len <= SLOT_LEN`, and `from <= to`;
//! - `from..to` lies within the packet's pieces;
//! - the records of received packets have their own number as `packet`.

use packet::offload::Offload;

use crate::copy;
use crate::rx::HEADROOM;

/// A piece of a packet in the sender's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) at: *const u8,
    pub(crate) len: u32,
}

/// One form of a packet. See the module.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Record {
    /// First byte of a packet in one piece; unused if [`state::PIECES`] is set.
    pub(crate) at: *const u8,
    /// Bytes of the source that the header replaces: the payload is `from..to` of the source.
    pub(crate) from: u32,
    /// End of the payload.
    pub(crate) to: u32,
    /// Start of the header in its slot.
    pub(crate) start: u16,
    /// Header bytes.
    pub(crate) header_len: u16,
    /// Number of the packet that it is a form of.
    pub(crate) packet: u16,
    /// Flags of [`state`].
    pub(crate) state: u16,
    /// First of its pieces, if [`state::PIECES`] is set; its note, if [`state::NOTED`] is.
    pub(crate) first_piece: u32,
    /// Number of pieces.
    pub(crate) pieces: u16,
    /// Traffic class, for queues that use it.
    pub(crate) class: u16,
}

const _: () = assert!(size_of::<Record>() == 32);

/// Flags of a record.
pub(crate) mod state {
    /// The packet came in several pieces.
    pub(crate) const PIECES: u16 = 1;
    /// Work is left: a checksum, segmentation. The side table holds the metadata.
    pub(crate) const OFFLOAD: u16 = 2;
    /// Its sender verified its checksums.
    pub(crate) const VERIFIED: u16 = 4;
    /// An output refers to it: it must not change any more.
    pub(crate) const SENT: u16 = 8;
    /// The logic has decided about this received packet.
    pub(crate) const HANDLED: u16 = 16;
    /// It is a mirror's copy.
    pub(crate) const MIRRORED: u16 = 32;
    /// Its port says something of this received packet, which came in one piece: the side table has the note.
    pub(crate) const NOTED: u16 = 64;

    /// Flags that a further version of the packet inherits.
    pub(crate) const INHERITED: u16 = PIECES | OFFLOAD | VERIFIED | MIRRORED;
}

impl Record {
    pub(crate) const EMPTY: Record = Record {
        at: std::ptr::null(),
        from: 0,
        to: 0,
        start: HEADROOM as u16,
        header_len: 0,
        packet: 0,
        state: 0,
        first_piece: 0,
        pieces: 0,
        class: 0,
    };

    /// A received packet of `len` bytes in one piece, its header not yet copied.
    #[inline(always)]
    pub(crate) fn plain(packet: u16, at: *const u8, len: u32) -> Self {
        Record { at, to: len, packet, ..Record::EMPTY }
    }

    /// Total length, bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.header_len) + self.payload_len()
    }

    /// Bytes still in the sender's memory.
    #[inline(always)]
    pub(crate) fn payload_len(&self) -> u32 {
        self.to.wrapping_sub(self.from)
    }

    #[inline(always)]
    pub(crate) fn has(&self, flags: u16) -> bool {
        self.state & flags != 0
    }

    /// A version of the same packet without work left.
    #[inline]
    pub(crate) fn plain_version(&self) -> Record {
        let state = self.state & (state::INHERITED & !(state::OFFLOAD | state::VERIFIED));
        Record { state, ..*self }
    }

    /// The same packet as a version that no output refers to.
    #[inline]
    pub(crate) fn version(&self) -> Record {
        Record { state: self.state & state::INHERITED, ..*self }
    }
}

/// Side table entry of a record with [`state::OFFLOAD`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Work left to do.
    pub(crate) offload: Offload,
    /// Its form for receivers without offloads: versions `plain..plain + plain_count`, made when first needed.
    pub(crate) plain: u16,
    pub(crate) plain_count: u16,
}

impl Work {
    pub(crate) const NONE: Work = Work { offload: Offload::NONE, plain: 0, plain_count: 0 };
}

/// A packet's bytes in its sender's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    /// First byte of a packet in one piece.
    pub(crate) at: *const u8,
    /// The pieces of a packet in several; empty for one piece.
    pub(crate) pieces: &'a [Segment],
}

impl Source<'_> {
    /// Calls `f` with each stretch of memory that holds bytes `from..to` of the packet.
    #[inline(always)]
    pub(crate) fn for_each(self, from: u32, to: u32, mut f: impl FnMut(*const u8, usize)) {
        if self.pieces.is_empty() {
            if from < to {
                f(self.at.wrapping_add(from as usize), (to - from) as usize);
            }
            return;
        }
        for_each_piece(self.pieces, from, to, f);
    }

    /// Reads bytes `from..from + out.len()` of the packet. Bytes of `out` beyond its last piece are left unchanged.
    pub(crate) fn read(self, from: u32, out: &mut [u8]) {
        let mut done = 0;
        self.for_each(from, from + out.len() as u32, |at, n| {
            if let Some(to) = out.get_mut(done..done + n) {
                // SAFETY: the caller stays within the packet, whose pieces are readable by the contract of
                // `RxBatch::add_segment`; `to` is n bytes of ours.
                unsafe { copy::bytes(at, to.as_mut_ptr(), n) };
            }
            done += n;
        });
    }
}

fn for_each_piece(pieces: &[Segment], from: u32, to: u32, mut f: impl FnMut(*const u8, usize)) {
    let (mut skip, mut left) = (from, to - from);
    for piece in pieces {
        if left == 0 {
            return;
        }
        if skip >= piece.len {
            skip -= piece.len;
            continue;
        }
        let n = (piece.len - skip).min(left);
        f(piece.at.wrapping_add(skip as usize), n as usize);
        left -= n;
        skip = 0;
    }
}
