//! The batch while a receive queue fills it.

use std::ptr::NonNull;

use packet::offload::Offload;

use super::{BatchLimits, MAX_BATCH, MAX_PACKET, MAX_SEGMENTS, MIN_PACKET, SEGMENTS, VERSIONS};
use crate::copy;
use crate::counters::{DropReason, Drops};
use crate::cpu::Level;
use crate::fault::Fault;
use crate::rx::arena::{Arena, Slots};
use crate::rx::record::{Record, Segment, Source, Work, state};
use crate::slab::Slab;

/// Most bytes that a port may say of a packet.
pub const MAX_NOTE: usize = 160;
/// Room for one packet in the batch's own memory, with the metadata that a port reads in front of it.
const LANDING: usize = MAX_PACKET as usize + 64;

/// What a port says of a packet.
#[derive(Debug, Clone, Copy)]
struct Note {
    len: usize,
    bytes: [u8; MAX_NOTE],
}

impl Note {
    const EMPTY: Note = Note { len: 0, bytes: [0; MAX_NOTE] };

    fn content(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Packets taken from one queue in one go. See the module.
pub struct RxBatch {
    pub(crate) limits: BatchLimits,
    /// The received packets, then the versions that the batch made.
    pub(crate) records: Box<[Record; VERSIONS]>,
    /// Side table of records with offload metadata, by record number.
    pub(crate) work: Box<[Work; VERSIONS]>,
    /// Side table of packets in several pieces.
    pub(crate) segments: Box<[Segment]>,
    /// Side table of notes, by the numbers that packets were received with; it grows when they come.
    notes: Vec<Note>,
    /// Whether any packet has one.
    pub(crate) has_notes: bool,
    pub(crate) slots: Slots,
    pub(crate) packets: usize,
    /// Upper bound of the lengths of all versions.
    pub(crate) longest: u32,
    /// Whether any version has work left.
    pub(crate) offloads: bool,
    /// All classes that versions were given, combined by `or`: while it is 0, all versions are of class 0.
    pub(crate) classes: u16,
    /// Whether its packets stay where they are, without private headers: see [`RxBatch::leave_unloaded`].
    pub(crate) unloaded: bool,
    /// Packets that the logic has originated.
    pub(super) originated: usize,
    pub(crate) used_versions: usize,
    pub(crate) used_segments: usize,
    open_first: usize,
    pub(crate) open_len: u64,
    /// Bytes that were received.
    pub(crate) bytes: u64,
    /// Of these, bytes of packets that rate limits have removed.
    pub(crate) removed_bytes: u64,
    /// Number of the receive queue in its port.
    pub(crate) queue: u16,
    /// Receive queues that the port's client uses; 0 for packets that came from no port.
    pub(crate) queues: u32,
    /// Mark of injected packets; 0 for all others.
    pub(crate) mark: u16,
    pub(crate) drops: Drops,
    /// Instruction set level of the CPU: how headers are copied.
    pub(crate) level: Level,
    /// Own memory for packets that lie in no client's. Landed packets are named by address, so the memory must not be
    /// borrowed as a whole while there are any: no box, and references only to the part behind them.
    pub(super) landing: Slab,
    pub(super) landed: usize,
}

// SAFETY: the raw pointers in `records` and `segments` are only dereferenced between `receive` and `complete` of the
// queue that supplied them, on the thread that owns both.
unsafe impl Send for RxBatch {}

/// A boxed array of copies of `value`, made without a copy on the stack.
fn table<T: Copy, const N: usize>(value: T) -> Box<[T; N]> {
    let table: Box<[T]> = vec![value; N].into();
    let table: Result<Box<[T; N]>, _> = table.try_into();
    table.unwrap_or_else(|_| Box::new([value; N]))
}

impl RxBatch {
    /// An empty batch with room for the largest one.
    pub fn new(limits: BatchLimits) -> Self {
        let limits = BatchLimits { packets: limits.packets.clamp(1, MAX_BATCH), bytes: limits.bytes };
        let no_segment = Segment { at: std::ptr::null(), len: 0 };
        Self {
            limits,
            records: table(Record::EMPTY),
            work: table(Work::NONE),
            segments: vec![no_segment; SEGMENTS].into(),
            notes: Vec::new(),
            has_notes: false,
            slots: Slots::default(),
            packets: 0,
            longest: 0,
            offloads: false,
            classes: 0,
            unloaded: false,
            originated: 0,
            used_versions: 0,
            used_segments: 0,
            open_first: 0,
            open_len: 0,
            bytes: 0,
            removed_bytes: 0,
            queue: 0,
            queues: 0,
            mark: 0,
            drops: Drops::default(),
            level: Level::detected(),
            landing: Slab::new(limits.bytes + 2 * LANDING),
            landed: 0,
        }
    }

    /// Empties the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.packets = 0;
        self.longest = 0;
        self.offloads = false;
        self.classes = 0;
        self.has_notes = false;
        self.unloaded = false;
        self.originated = 0;
        self.used_versions = 0;
        self.used_segments = 0;
        self.open_first = 0;
        self.open_len = 0;
        (self.bytes, self.removed_bytes) = (0, 0);
        self.landed = 0;
        self.slots.take_back();
    }

    /// Keeps private headers in this memory until the batch is emptied. To be called before they are loaded.
    ///
    /// # Safety
    /// See [`Arena::new`]: until then only this batch uses the memory, and the logic while it is called with this
    /// batch.
    #[inline]
    pub(crate) unsafe fn keep_headers_in(&mut self, arena: Arena) {
        self.slots.lend(arena);
    }

    /// Packets in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether it holds no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether another packet fits within the bounds.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.packets < self.limits.packets
            && self.bytes < self.limits.bytes as u64
            && self.used_segments + MAX_SEGMENTS <= self.segments.len()
    }

    /// Number of packets that fit within the bound of packets.
    #[inline]
    pub fn room(&self) -> usize {
        self.limits.packets.saturating_sub(self.packets)
    }

    /// Adds up to `most` packets of one piece each, without work left, while the bounds allow: `piece(i)` returns
    /// address and length of the `i`th. Ends at the first that is `None`, too short or too long. Returns the number of
    /// packets added. This is the fast path; the packet that ends it goes through [`RxBatch::add_segment`].
    ///
    /// # Safety
    /// As for [`RxBatch::add_segment`], of each piece.
    #[inline(always)]
    pub unsafe fn add_plain(
        &mut self,
        most: usize,
        mut piece: impl FnMut(usize) -> Option<(NonNull<u8>, u32)>,
    ) -> usize {
        let fits = |len: &u32| len.wrapping_sub(MIN_PACKET) <= MAX_PACKET - MIN_PACKET;
        let piece = |i| piece(i).filter(|(_, len)| fits(len)).map(|(at, len)| (at, len, 0));
        // SAFETY: by the caller's promise.
        unsafe { self.add_plain_in_class(most, u64::MAX, piece) }
    }

    /// The same for packets that come in a traffic class, the third of what `piece` returns; ends when they have so many
    /// bytes, too.
    ///
    /// # Safety
    /// As for [`RxBatch::add_plain`]; and no length is shorter than [`MIN_PACKET`] or longer than [`MAX_PACKET`].
    #[inline(always)]
    pub(crate) unsafe fn add_plain_in_class(
        &mut self,
        most: usize,
        most_bytes: u64,
        mut piece: impl FnMut(usize) -> Option<(NonNull<u8>, u32, u16)>,
    ) -> usize {
        let first = self.packets;
        let end = first + most.min(self.limits.packets.saturating_sub(first));
        let (mut bytes, mut longest, mut classes) = (self.bytes, self.longest, 0);
        let most_bytes = bytes.saturating_add(most_bytes).min(self.limits.bytes as u64);
        let records = self.records.get_mut(first..end).unwrap_or_default();
        let mut added = 0;
        for record in records {
            if bytes >= most_bytes {
                break;
            }
            let Some((at, len, class)) = piece(added) else { break };
            *record = Record { class, ..Record::plain((first + added) as u16, at.as_ptr(), len) };
            copy::prefetch_read(at.as_ptr());
            if len > 64 {
                copy::prefetch_read(at.as_ptr().wrapping_add(64));
            }
            bytes += u64::from(len);
            longest = longest.max(len);
            classes |= class;
            added += 1;
        }
        (self.bytes, self.longest, self.packets) = (bytes, longest, first + added);
        // Never for those of `add_plain`.
        if classes != 0 {
            self.classes |= classes;
        }
        added
    }

    /// Adds a piece to the packet being described.
    ///
    /// # Safety
    /// `len` bytes at `at` stay readable (a fault that the process catches counts as readable) until the queue's
    /// [`RxQueue::complete`](super::RxQueue::complete).
    #[inline]
    pub unsafe fn add_segment(&mut self, at: NonNull<u8>, len: u32) -> Result<(), Fault> {
        if self.used_segments - self.open_first >= MAX_SEGMENTS {
            return Err(Fault::Chain { max: MAX_SEGMENTS as u16 });
        }
        if let Some(slot) = self.segments.get_mut(self.used_segments) {
            *slot = Segment { at: at.as_ptr(), len };
            self.used_segments += 1;
            self.open_len += u64::from(len);
        }
        Ok(())
    }

    /// [`RxBatch::end_packet`] of a packet that comes in a traffic class, as one from another bridge.
    #[inline]
    pub(crate) fn end_packet_in_class(&mut self, offload: Offload, class: u16) {
        let number = self.packets;
        self.end_packet(offload);
        // A packet that is left out has no record; the next one sets its own class.
        if let Some(record) = self.records.get_mut(number) {
            record.class = class;
            self.classes |= class;
        }
    }

    /// Ends the packet being described. Packets that are too short or too long are counted and left out.
    #[inline]
    pub fn end_packet(&mut self, offload: Offload) {
        let (first, len) = (self.open_first, self.open_len);
        self.open_len = 0;
        if len < u64::from(MIN_PACKET) || len > u64::from(MAX_PACKET) || self.packets >= MAX_BATCH {
            self.used_segments = first;
            self.drops
                .add(if len < u64::from(MIN_PACKET) { DropReason::Runt } else { DropReason::Oversize }, 1);
            return;
        }
        let (i, len) = (self.packets, len as u32);
        let (Some(pieces), Some(record)) =
            (self.segments.get(first..self.used_segments), self.records.get_mut(i))
        else {
            return;
        };
        let at = pieces.first().map_or(std::ptr::null(), |piece| {
            copy::prefetch_read(piece.at);
            if piece.len > 64 {
                copy::prefetch_read(piece.at.wrapping_add(64));
            }
            piece.at
        });
        *record = Record::plain(i as u16, at, len);
        if pieces.len() > 1 {
            record.state = state::PIECES;
            (record.first_piece, record.pieces) = (first as u32, pieces.len() as u16);
        } else {
            self.used_segments = first;
        }
        self.open_first = self.used_segments;
        self.bytes += u64::from(len);
        self.longest = self.longest.max(len);
        self.packets = i + 1;
        self.set_offload(i, offload);
    }

    /// [`RxBatch::end_packet`] of a packet of which its port has something to say to the logic ([`Batch::note`]): at most
    /// [`MAX_NOTE`] bytes. A packet in several pieces is left out.
    ///
    /// [`Batch::note`]: crate::Batch::note
    pub fn end_packet_with_note(&mut self, offload: Offload, content: &[u8]) {
        if self.used_segments - self.open_first > 1 {
            self.abandon_packet();
            return self.count_drop(DropReason::Oversize);
        }
        let number = self.packets;
        self.end_packet(offload);
        let is_left_out = self.packets == number;
        let Some(record) = self.records.get_mut(number).filter(|_| !is_left_out) else { return };
        if self.notes.len() <= number {
            self.notes.resize(number + 1, Note::EMPTY);
        }
        let Some(note) = self.notes.get_mut(number) else { return };
        note.len = content.len().min(MAX_NOTE);
        note.bytes.iter_mut().zip(content).for_each(|(to, byte)| *to = *byte);
        record.state |= state::NOTED;
        record.first_piece = number as u32;
        self.has_notes = true;
    }

    /// What the port says of a received packet.
    pub(crate) fn note(&self, i: usize) -> Option<&[u8]> {
        let record = self.records.get(i)?;
        let note = self.notes.get(record.first_piece as usize);
        note.filter(|_| record.has(state::NOTED)).map(Note::content)
    }

    /// Sets the offload metadata of packet `i`, if unknown when the packet was ended. To be called before the batch is
    /// given to the fabric, that is, in [`RxQueue::receive`](super::RxQueue::receive).
    #[inline]
    pub fn set_offload(&mut self, i: usize, offload: Offload) {
        if let (Some(record), Some(work)) = (self.records.get_mut(i), self.work.get_mut(i)) {
            self.offloads |= !offload.is_none();
            put_offload(record, work, offload);
        }
    }

    /// The first byte of packet `i`, if it was added in one piece.
    #[inline]
    pub fn front(&self, i: usize) -> Option<NonNull<u8>> {
        let record = self.records.get(..self.packets)?.get(i)?;
        if record.has(state::PIECES) { None } else { NonNull::new(record.at.cast_mut()) }
    }

    /// The private header of version `v`, which no output refers to.
    pub(crate) fn header_mut(&mut self, v: usize) -> Option<&mut [u8]> {
        let record = self.records.get(v)?;
        let header = usize::from(record.start)..usize::from(record.start + record.header_len);
        self.slots.get_mut(v)?.0.get_mut(header)
    }

    /// Counts a packet that cannot be added to the batch.
    #[cold]
    pub fn count_drop(&mut self, reason: DropReason) {
        self.drops.add(reason, 1);
    }

    /// Discards the pieces of a packet that was not ended.
    pub fn abandon_packet(&mut self) {
        self.used_segments = self.open_first;
        self.open_len = 0;
    }

    /// Room in the batch's own memory for a port that must read into it (a TAP): [`MAX_PACKET`] bytes and 64 more;
    /// `None` if the batch is full.
    #[inline]
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        let room = NonNull::slice_from_raw_parts(self.landing.get(self.landed, LANDING)?, LANDING);
        // SAFETY: initialized memory of the slab behind all landed packets, so nothing of the batch refers to it, and
        // nothing can for as long as the batch is borrowed.
        Some(unsafe { &mut *room.as_ptr() })
    }

    /// Makes a packet of bytes `skip..len` written to [`RxBatch::landing`].
    #[inline]
    pub fn landed(&mut self, skip: usize, len: usize, offload: Offload) -> Result<(), Fault> {
        let (start, piece_len) = (self.landed, len.saturating_sub(skip));
        let Some(at) = self.landing.get(start + skip, piece_len) else { return Ok(()) };
        // The next packet begins on its own cache line.
        self.landed = (start + len).next_multiple_of(64);
        // SAFETY: the slab stays in place, and this part is not handed out again before `clear`.
        unsafe { self.add_segment(at, piece_len as u32)? };
        self.end_packet(offload);
        Ok(())
    }

    /// The bytes of a version that are in its sender's memory.
    #[inline(always)]
    pub(crate) fn source(&self, record: &Record) -> Source<'_> {
        Source { at: record.at, pieces: self.pieces(record) }
    }

    /// The pieces of a packet that came in several; empty for a packet in one piece.
    #[inline(always)]
    fn pieces(&self, record: &Record) -> &[Segment] {
        if !record.has(state::PIECES) {
            return &[];
        }
        let first = record.first_piece as usize;
        self.segments.get(first..first + usize::from(record.pieces)).unwrap_or_default()
    }

    /// Offload metadata of version `v`.
    #[inline]
    pub(crate) fn offload(&self, v: usize) -> Offload {
        let record = &self.records[v];
        match record.has(state::OFFLOAD) {
            true => self.work[v].offload,
            false => Offload { csum_valid: record.has(state::VERIFIED), ..Offload::NONE },
        }
    }

    /// Replaces the offload metadata of version `v`.
    pub(crate) fn replace_offload(&mut self, v: usize, offload: Offload) {
        self.offloads |= !offload.is_none();
        put_offload(&mut self.records[v], &mut self.work[v], offload);
    }
}

/// Stores metadata in normal form: if no work is left, only meaningful fields are kept.
#[inline(always)]
fn put_offload(record: &mut Record, work: &mut Work, offload: Offload) {
    record.state &= !(state::OFFLOAD | state::VERIFIED);
    if !offload.is_none() {
        record.state |= state::OFFLOAD;
        *work = Work { offload, ..Work::NONE };
    } else if offload.csum_valid {
        record.state |= state::VERIFIED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_without_a_job_arrives_in_its_normal_form() {
        // Found by fuzzing: meaningless fields passed from client to client unchecked.
        let claim = Offload { ecn: true, csum_valid: true, gso_size: 9, csum_start: 7, ..Offload::NONE };
        let mut batch = RxBatch::new(BatchLimits::default());
        assert_eq!(batch.landed(0, 60, claim), Ok(()));
        batch.load_headers();
        assert_eq!(batch.offload(0), claim.validate(&[0; 60], 60).unwrap());
    }

    #[test]
    fn landed_packets_stay_unchanged_while_more_land() {
        let mut batch = RxBatch::new(BatchLimits { packets: 4, bytes: 200 });
        for packet in 0..3u8 {
            let room = batch.landing().unwrap();
            assert_eq!(room.len(), LANDING);
            room.fill(packet);
            assert_eq!(batch.landed(10, 100, Offload::NONE), Ok(()));
        }
        // More than is left of the slab.
        assert_eq!(batch.landed(0, 3 * LANDING, Offload::NONE), Ok(()));
        assert_eq!((batch.len(), batch.bytes), (3, 270));
        // Also after the batch has moved.
        let batch = std::convert::identity(batch);
        for packet in 0..3u8 {
            let mut bytes = [9; 90];
            batch.source(&batch.records[usize::from(packet)]).read(0, &mut bytes);
            assert_eq!(bytes, [packet; 90]);
        }
    }

    #[test]
    fn notes_stay_with_their_packets() {
        let bytes = [0u8; 128];
        let mut batch = RxBatch::new(BatchLimits::default());
        for round in 0..2 {
            batch.clear();
            for (len, note) in [(60, None), (13, Some(1)), (64, Some(2)), (70, None), (90, Some(3))] {
                // SAFETY: `bytes` is longer than each piece and outlives the batch's use of it.
                unsafe { batch.add_segment(NonNull::from(&bytes).cast(), len) }.unwrap();
                match note {
                    Some(note) => batch.end_packet_with_note(Offload::NONE, &[note + round; 3]),
                    None => batch.end_packet(Offload::NONE),
                }
            }
            // In several pieces, a packet cannot have one.
            for _ in 0..2 {
                // SAFETY: as above.
                unsafe { batch.add_segment(NonNull::from(&bytes).cast(), 60) }.unwrap();
            }
            batch.end_packet_with_note(Offload::NONE, &[9]);
            batch.load_headers();
            let notes = |batch: &RxBatch| {
                let of = |i: usize| (batch.records[i].len(), batch.note(i).map(<[u8]>::to_vec));
                (0..batch.packets).map(of).collect::<Vec<_>>()
            };
            let [two, three] = [2, 3].map(|note| Some(vec![note + round; 3]));
            assert_eq!(notes(&batch), [(60, None), (64, two.clone()), (70, None), (90, three.clone())]);
            // Limits remove some.
            batch.retain(false, |_, len| len != 60);
            assert_eq!(notes(&batch), [(64, two), (70, None), (90, three)]);
        }
    }

    #[test]
    fn plain_packets_end_at_the_first_invalid_one() {
        let bytes = [0u8; 128];
        let lens = [14, 60, 128, 13, 60];
        let mut batch = RxBatch::new(BatchLimits { packets: 4, bytes: 1 << 16 });
        // SAFETY: `bytes` is longer than each piece and outlives the batch's use of it.
        let added = unsafe { batch.add_plain(8, |i| Some((NonNull::from(&bytes).cast(), *lens.get(i)?))) };
        assert_eq!((added, batch.len(), batch.bytes, batch.longest), (3, 3, 202, 128));
        // SAFETY: as above.
        let more = unsafe { batch.add_plain(8, |_| Some((NonNull::from(&bytes).cast(), 20))) };
        assert_eq!((more, batch.len(), batch.has_room()), (1, 4, false));
        assert_eq!(batch.records[3].packet, 3);
    }

    #[test]
    fn the_packet_that_crosses_the_bound_of_bytes_is_the_last() {
        let bytes = [0u8; 128];
        let mut batch = RxBatch::new(BatchLimits { packets: 64, bytes: 150 });
        // SAFETY: as above.
        let added = unsafe { batch.add_plain(8, |_| Some((NonNull::from(&bytes).cast(), 100))) };
        assert_eq!(added, 2);
    }
}
