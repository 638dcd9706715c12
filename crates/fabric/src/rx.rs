//! Taking packets: the batch a port fills, and the contract of a receive queue.
//!
//! A batch holds descriptors of where packets lie (up to [`MAX_SEGMENTS`] pieces each) and, once
//! `RxBatch::load_headers` ran, a private copy of the first [`HEADER_COPY`] bytes of each. It is bounded in
//! packets and in bytes. It belongs to one worker and is reused for every batch; nothing in it is allocated
//! while traffic flows.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use packet::edit;
use packet::ether::{VLAN_TAG_LEN, VlanTag};
use packet::offload::Offload;

use crate::arena::{Arena, Slots};
use crate::copy;
use crate::counters::{DropReason, Drops};
use crate::egress::Output;
use crate::fault::Fault;
use crate::tools::Tools;

/// Bytes of each packet that are copied before anything reads them.
pub const HEADER_COPY: usize = 128;
/// The same for packets with offload metadata: every header that segmentation may have to repeat (two VLAN
/// tags, IPv4 and TCP with all options are 142 bytes).
pub(crate) const OFFLOAD_COPY: usize = 192;
/// Bytes free in front of a private header, for tags and encapsulation.
pub const HEADROOM: usize = 64;
/// Most bytes of a packet that a logic can ask to have in its private header.
pub const PULL_MAX: usize = 512;
/// Most pieces a packet may come in.
pub const MAX_SEGMENTS: usize = 64;
/// Longest packet.
pub const MAX_PACKET: u32 = 65_535;
/// Shortest packet: an Ethernet header.
pub const MIN_PACKET: u32 = 14;
/// Most packets of a batch, whatever the limits say.
pub const MAX_BATCH: usize = 256;
/// Packets that a logic may originate in one batch.
pub const MAX_ORIGINATED: usize = 256;
/// Header versions beyond the received ones that one batch may make.
pub const EXTRA_VERSIONS: usize = 2048;

pub(crate) const VERSIONS: usize = MAX_BATCH + EXTRA_VERSIONS;
/// Packets of a batch: those that were received, and behind them those that the logic originates.
pub(crate) const SOURCES: usize = MAX_BATCH + MAX_ORIGINATED;
const SEGMENTS: usize = MAX_BATCH * 4 + MAX_SEGMENTS;

/// Bounds of a batch; the first one reached ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Packets, at most [`MAX_BATCH`].
    pub packets: usize,
    /// Bytes; the packet that crosses this bound still belongs to the batch.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { packets: 64, bytes: 128 << 10 }
    }
}

/// A piece of a packet where the sender put it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) at: *const u8,
    pub(crate) len: u32,
}

/// One received packet: its pieces in [`RxBatch::segments`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) len: u32,
}

/// One form of a packet: private header bytes, then bytes `from..to` of the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version {
    /// Where the header starts in its slot.
    pub(crate) start: u16,
    /// Header bytes.
    pub(crate) header_len: u16,
    /// Which packet it is a form of.
    pub(crate) packet: u16,
    /// Outputs that refer to it; while there are any it must not change.
    pub(crate) outputs: u16,
    /// Its form for receivers without offloads: versions `plain..plain + plain_count`, made when first needed.
    pub(crate) plain: u16,
    pub(crate) plain_count: u16,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) offload: Offload,
    /// It was made for a mirror.
    pub(crate) mirrored: bool,
}

impl Version {
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        u32::from(self.header_len) + (self.to - self.from)
    }

    const EMPTY: Version = Version {
        start: HEADROOM as u16,
        header_len: 0,
        packet: 0,
        outputs: 0,
        plain: 0,
        plain_count: 0,
        from: 0,
        to: 0,
        offload: Offload::NONE,
        mirrored: false,
    };
}

/// Packets taken from one queue in one go. See the module.
pub struct RxBatch {
    pub(crate) limits: BatchLimits,
    pub(crate) sources: Box<[Source]>,
    pub(crate) segments: Box<[Segment]>,
    pub(crate) slots: Slots,
    pub(crate) versions: Box<[Version]>,
    /// Which packets the logic has said something about.
    pub(crate) handled: [bool; MAX_BATCH],
    pub(crate) packets: usize,
    /// Packets that the logic has originated.
    originated: usize,
    pub(crate) used_versions: usize,
    used_segments: usize,
    open_first: usize,
    open_len: u64,
    pub(crate) bytes: u64,
    /// The receive queue that they came through, by its number in its port.
    pub(crate) queue: u16,
    pub(crate) drops: Drops,
    landing: Box<[u8]>,
    landed: usize,
}

// SAFETY: the raw pointers in `segments` are only dereferenced between `receive` and `complete` of the queue
// that supplied them, on the thread that owns both.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// An empty batch with room for the largest one.
    pub fn new(limits: BatchLimits) -> Self {
        let limits = BatchLimits { packets: limits.packets.clamp(1, MAX_BATCH), bytes: limits.bytes };
        let no_segment = Segment { at: std::ptr::null(), len: 0 };
        Self {
            limits,
            sources: vec![Source { first: 0, count: 0, len: 0 }; SOURCES].into(),
            segments: vec![no_segment; SEGMENTS].into(),
            slots: Slots::default(),
            versions: vec![Version::EMPTY; VERSIONS].into(),
            handled: [false; MAX_BATCH],
            packets: 0,
            originated: 0,
            used_versions: 0,
            used_segments: 0,
            open_first: 0,
            open_len: 0,
            bytes: 0,
            queue: 0,
            drops: Drops::default(),
            landing: vec![0; limits.bytes + 2 * (MAX_PACKET as usize + 64)].into(),
            landed: 0,
        }
    }

    /// Empties the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.packets = 0;
        self.originated = 0;
        self.used_versions = 0;
        self.used_segments = 0;
        self.open_first = 0;
        self.open_len = 0;
        self.bytes = 0;
        self.landed = 0;
        self.slots.take_back();
    }

    /// Keeps private headers in this memory until the batch is emptied. To be called before they are loaded.
    ///
    /// # Safety
    /// See [`Arena::new`]: until then nobody else uses the memory, but for the logic while it is called with this batch.
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

    /// Adds a piece to the packet being described.
    ///
    /// # Safety
    /// `len` bytes at `at` stay readable (a fault that the process catches counts as readable) until the
    /// queue's [`RxQueue::complete`].
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

    /// Ends the packet being described. Packets that are too short or too long are counted and left out.
    #[inline]
    pub fn end_packet(&mut self, offload: Offload) {
        let first = self.open_first;
        let len = self.open_len;
        self.open_len = 0;
        if len < u64::from(MIN_PACKET) || len > u64::from(MAX_PACKET) || self.packets >= MAX_BATCH {
            self.used_segments = first;
            self.drops
                .add(if len < u64::from(MIN_PACKET) { DropReason::Runt } else { DropReason::Oversize }, 1);
            return;
        }
        if let Some(piece) = self.segments.get(first) {
            copy::prefetch_read(piece.at);
            if piece.len > 64 {
                copy::prefetch_read(piece.at.wrapping_add(64));
            }
        }
        let (i, len) = (self.packets, len as u32);
        self.sources[i] = Source { first: first as u32, count: (self.used_segments - first) as u32, len };
        self.set_offload(i, offload);
        self.open_first = self.used_segments;
        self.bytes += u64::from(len);
        self.packets = i + 1;
    }

    /// Says what is known of packet `i`, where that was not known when it was ended. Before the batch is given to the
    /// fabric, that is in [`RxQueue::receive`].
    #[inline]
    pub fn set_offload(&mut self, i: usize, offload: Offload) {
        if let Some(version) = self.versions.get_mut(i) {
            // Of metadata that asks for nothing, only what means something is passed on.
            let nothing = Offload { csum_valid: offload.csum_valid, ..Offload::NONE };
            version.offload = if offload.is_none() { nothing } else { offload };
        }
    }

    /// Forgets the pieces of a packet that was not ended.
    pub fn abandon_packet(&mut self) {
        self.used_segments = self.open_first;
        self.open_len = 0;
    }

    /// Where a port that must read into memory of ours (a TAP) may put up to [`MAX_PACKET`] bytes and 64
    /// more; `None` when the batch is full.
    #[inline]
    pub fn landing(&mut self) -> Option<&mut [u8]> {
        let start = self.landed;
        self.landing.get_mut(start..start + MAX_PACKET as usize + 64)
    }

    /// Makes `skip..len` of what was written to [`RxBatch::landing`] a packet.
    #[inline]
    pub fn landed(&mut self, skip: usize, len: usize, offload: Offload) -> Result<(), Fault> {
        let start = self.landed;
        let Some(piece) = self.landing.get_mut(start..start + len).and_then(|all| all.get_mut(skip..)) else {
            return Ok(());
        };
        let (at, piece_len) = (NonNull::from(&mut *piece).cast::<u8>(), piece.len() as u32);
        // The next packet begins on a line of its own.
        self.landed = (start + len).next_multiple_of(64);
        // SAFETY: `landing` is never reallocated and not handed out again at this place before `clear`.
        unsafe { self.add_segment(at, piece_len)? };
        self.end_packet(offload);
        Ok(())
    }

    /// Copies the front of every packet into its private header slot.
    #[inline]
    pub(crate) fn load_headers(&mut self) {
        let n = self.packets;
        let packets = self.sources[..n].iter().zip(self.slots.iter_mut()).zip(&mut self.versions);
        for (i, ((source, slot), version)) in (0u16..).zip(packets) {
            let offload = version.offload;
            let want = (source.len as usize).min(if offload.is_none() { HEADER_COPY } else { OFFLOAD_COPY });
            let slot = &mut slot.0;
            let to = slot[HEADROOM..HEADROOM + OFFLOAD_COPY].as_mut_ptr();
            let piece = self.segments[source.first as usize];
            if piece.len as usize >= want {
                // SAFETY: `want` <= the piece's length (readable by `add_segment`'s contract) and the slot's.
                unsafe { copy::bytes(piece.at, to, want) };
            } else {
                let pieces = &self.segments[source.first as usize..(source.first + source.count) as usize];
                read_range(pieces, 0, &mut slot[HEADROOM..HEADROOM + want]);
            }
            *version = Version {
                start: HEADROOM as u16,
                header_len: want as u16,
                packet: i,
                outputs: 0,
                plain: 0,
                plain_count: 0,
                from: want as u32,
                to: source.len,
                offload,
                mirrored: false,
            };
        }
        self.handled[..n].fill(false);
        self.used_versions = n;
    }

    /// Whether another packet of a batch above this one fits.
    #[inline]
    pub(crate) fn may_carry(&self) -> bool {
        // A private header, and as many pieces as a packet may come in.
        self.packets < self.limits.packets && self.used_segments + 1 + MAX_SEGMENTS <= self.segments.len()
    }

    /// Adds a packet of another batch in the form in which it leaves that one: its private header is the first piece.
    ///
    /// # Safety
    /// The other batch stays as it is until this one is emptied.
    #[inline]
    pub(crate) unsafe fn carry(&mut self, output: &Output<'_>) {
        let mut put = |at: *const u8, len: usize| {
            if let Some(segment) = self.segments.get_mut(self.used_segments) {
                *segment = Segment { at, len: len as u32 };
                self.used_segments += 1;
                self.open_len += len as u64;
            }
        };
        put(output.header().as_ptr(), output.header().len());
        output.for_each_payload(put);
        self.end_packet(*output.offload());
    }

    /// [`RxBatch::load_headers`] for packets of another batch: what was private there is so here, however long it is.
    #[inline]
    pub(crate) fn load_carried(&mut self) {
        self.load_headers();
        for i in 0..self.packets {
            let piece = self.segments[self.sources[i].first as usize];
            if piece.len > u32::from(self.versions[i].header_len) {
                self.load_long(i, piece);
            }
        }
    }

    /// Makes all of a private piece the header of version `i`.
    #[cold]
    fn load_long(&mut self, i: usize, piece: Segment) {
        let len = (piece.len as usize).min(HEADROOM + PULL_MAX);
        let start = (HEADROOM + PULL_MAX - len).min(HEADROOM);
        if let Some(to) = self.slots[i].0.get_mut(start..start + len) {
            // SAFETY: the piece has `len` bytes, by `carry`'s contract, and so has `to`.
            unsafe { copy::bytes(piece.at, to.as_mut_ptr(), len) };
        }
        let version = &mut self.versions[i];
        (version.start, version.header_len, version.from) = (start as u16, len as u16, len as u32);
    }

    /// Takes out of a batch just loaded the packets for which `keep`, given header and length, is false; returns how
    /// many. The sender gets their descriptors back like all others. If they are `shown`, they follow those that stay,
    /// in some order, and no version takes their place.
    pub(crate) fn retain(&mut self, shown: bool, mut keep: impl FnMut(&[u8], u32) -> bool) -> u32 {
        let mut kept = 0;
        for i in 0..self.packets {
            if !keep(self.header(i), self.versions[i].len()) {
                continue;
            }
            if kept < i {
                let version = self.versions[i];
                let range = usize::from(version.start)..usize::from(version.start + version.header_len);
                let (to, from) = self.slots.split_at_mut(i);
                if shown {
                    self.sources.swap(kept, i);
                    self.versions[i] = Version { packet: i as u16, ..self.versions[kept] };
                    std::mem::swap(&mut to[kept], &mut from[0]);
                } else {
                    self.sources[kept] = self.sources[i];
                    to[kept].0[range.clone()].copy_from_slice(&from[0].0[range]);
                }
                self.versions[kept] = Version { packet: kept as u16, ..version };
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
    #[inline]
    pub(crate) fn header(&self, v: usize) -> &[u8] {
        let version = &self.versions[v];
        &self.slots[v].0[usize::from(version.start)..][..usize::from(version.header_len)]
    }

    /// The pieces of a received packet.
    #[inline]
    pub(crate) fn pieces(&self, packet: u16) -> &[Segment] {
        let source = self.sources[usize::from(packet)];
        &self.segments[source.first as usize..][..source.count as usize]
    }

    /// A version of the same packet with a header of its own, or none when the batch made too many.
    pub(crate) fn copy_version(&mut self, v: usize) -> Option<usize> {
        let fresh = self.new_version()?;
        let version = self.versions[v];
        self.versions[fresh] = Version { outputs: 0, plain_count: 0, ..version };
        let range = usize::from(version.start)..usize::from(version.start + version.header_len);
        let (old, new) = self.slots.split_at_mut(fresh);
        new[0].0[range.clone()].copy_from_slice(&old[v].0[range]);
        Some(fresh)
    }

    /// Adds a packet of these bytes, which nobody has sent: a version with all of it, or with the front of it where it is long. `None`
    /// if there is no room for it, or if it is too short or too long.
    #[cold]
    pub(crate) fn originate(&mut self, bytes: &[u8], offload: Offload) -> Option<usize> {
        let (first, private) = (self.used_segments, bytes.len().min(PULL_MAX));
        let len = u32::try_from(bytes.len()).ok().filter(|len| (MIN_PACKET..=MAX_PACKET).contains(len))?;
        let packet = MAX_BATCH + self.originated;
        if packet >= SOURCES {
            return None;
        }
        let count = if bytes.len() > private {
            let end = self.landed + bytes.len();
            let place = self.landing.get_mut(self.landed..end)?;
            place.copy_from_slice(bytes);
            *self.segments.get_mut(first)? = Segment { at: place.as_ptr(), len };
            (self.landed, self.used_segments) = (end.next_multiple_of(64), first + 1);
            1
        } else {
            0
        };
        let v = self.new_version()?;
        self.originated += 1;
        *self.sources.get_mut(packet)? = Source { first: first as u32, count, len };
        let slot = self.slots[v].0.get_mut(HEADROOM..HEADROOM + private)?;
        slot.copy_from_slice(&bytes[..private]);
        *self.versions.get_mut(v)? = Version {
            header_len: private as u16,
            packet: packet as u16,
            from: private as u32,
            to: len,
            offload,
            ..Version::EMPTY
        };
        Some(v)
    }

    /// Puts a tag in front of those that a version has; false when there is no room. Only for one that no output refers to.
    pub(crate) fn push_vlan(&mut self, v: usize, tag: VlanTag) -> bool {
        let version = self.versions[v];
        let Some(start) = usize::from(version.start).checked_sub(VLAN_TAG_LEN) else { return false };
        let end = start + VLAN_TAG_LEN + usize::from(version.header_len);
        if edit::push_vlan(&mut self.slots[v].0[start..end], tag) {
            let version = &mut self.versions[v];
            version.start -= VLAN_TAG_LEN as u16;
            version.header_len += VLAN_TAG_LEN as u16;
            version.offload.shift(VLAN_TAG_LEN as i16);
        }
        true
    }

    /// Lets a version start elsewhere in its slot: earlier with whatever bytes are there, or later. False where it cannot: the
    /// header would have less than [`MIN_PACKET`] bytes or start outside of the slot. Only for one that no output refers to.
    pub(crate) fn set_start(&mut self, v: usize, start: u16) -> bool {
        let version = &mut self.versions[v];
        let end = version.start + version.header_len;
        if version.outputs > 0 || u32::from(start) + MIN_PACKET > u32::from(end) {
            return false;
        }
        version.offload.shift(version.start as i16 - start as i16);
        (version.start, version.header_len) = (start, end - start);
        version.len() <= MAX_PACKET
    }

    /// Takes a fresh version, or none when the batch made too many.
    #[inline]
    pub(crate) fn new_version(&mut self) -> Option<usize> {
        let v = self.used_versions;
        if v >= VERSIONS {
            return None;
        }
        self.used_versions = v + 1;
        Some(v)
    }
}

/// Reads bytes `from..from + out.len()` of a packet that lies in `pieces`; what is beyond its end stays as it is.
pub(crate) fn read_range(pieces: &[Segment], from: u32, out: &mut [u8]) {
    let mut done = 0;
    for_each_piece(pieces, from, from + out.len() as u32, |at, n| {
        if let Some(to) = out.get_mut(done..done + n) {
            // SAFETY: `at` is readable for n bytes by `add_segment`'s contract, `to` is n bytes of ours.
            unsafe { copy::bytes(at, to.as_mut_ptr(), n) };
        }
        done += n;
    });
}

/// Calls `f` with each stretch of memory that bytes `from..to` of a packet lie in.
#[inline]
pub(crate) fn for_each_piece(pieces: &[Segment], from: u32, to: u32, mut f: impl FnMut(*const u8, usize)) {
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

/// A receive queue, owned by one worker at a time.
pub trait RxQueue: Send {
    /// Takes packets into `batch` while it [has room](RxBatch::has_room). Does not wait. After an error the
    /// queue is not used again; what is already in the batch still goes out.
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault>;

    /// The batch has been delivered: give its descriptors back to the sender. A sender that waits for them is told through
    /// `tools`. Fails when the memory that the batch lay in was taken away meanwhile.
    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault>;

    /// Asks the sender to signal [`RxQueue::signal`] for packets from now on, or not to bother.
    fn set_signalled(&mut self, on: bool);

    /// What becomes readable (edge-triggered) when packets come.
    fn signal(&self) -> BorrowedFd<'_>;

    /// Whether looking for packets is only a memory access. If it costs a system call, the queue is left
    /// to its signal as soon as it runs dry.
    fn cheap_to_poll(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_without_a_job_arrives_in_its_normal_form() {
        // Found by fuzzing: fields that mean nothing went from client to client unchecked.
        let claim = Offload { ecn: true, csum_valid: true, gso_size: 9, csum_start: 7, ..Offload::NONE };
        let mut batch = RxBatch::new(BatchLimits::default());
        assert_eq!(batch.landed(0, 60, claim), Ok(()));
        batch.load_headers();
        assert_eq!(batch.versions[0].offload, claim.validate(&[0; 60], 60).unwrap());
    }
}
