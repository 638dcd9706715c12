//! Versions: further forms of a batch's packets, each with its own header, and packets that the switch originates.

use std::ptr::NonNull;

use packet::edit;
use packet::ether::{VLAN_TAG_LEN, VlanTag};
use packet::offload::Offload;

use super::{HEADROOM, MAX_BATCH, MAX_PACKET, MIN_PACKET, PULL_MAX, RxBatch, SOURCES, VERSIONS};
use crate::rx::record::{Record, state};

impl RxBatch {
    /// Copies a version, with its own header. `None` if the batch has too many.
    pub(crate) fn copy_version(&mut self, v: usize) -> Option<usize> {
        let fresh = self.new_version()?;
        let record = self.records[v];
        self.records[fresh] = record.version();
        if record.has(state::OFFLOAD) {
            self.work[fresh] = self.work[v];
            self.work[fresh].plain_count = 0;
        }
        let range = usize::from(record.start)..usize::from(record.start + record.header_len);
        let (old, new) = self.slots.split_at_mut(fresh);
        new[0].0[range.clone()].copy_from_slice(&old[v].0[range]);
        Some(fresh)
    }

    /// Adds a packet of these bytes: a version that holds all of it or, if it is long, the front of it. `None` if there
    /// is no room, or if it is too short or too long.
    #[cold]
    pub(crate) fn originate(&mut self, bytes: &[u8], offload: Offload) -> Option<usize> {
        let private = bytes.len().min(PULL_MAX);
        let len = u32::try_from(bytes.len()).ok().filter(|len| (MIN_PACKET..=MAX_PACKET).contains(len))?;
        let packet = MAX_BATCH + self.originated;
        if packet >= SOURCES {
            return None;
        }
        let mut at = std::ptr::null();
        if bytes.len() > private {
            let place = self.landing.get(self.landed, bytes.len())?;
            // SAFETY: memory of the slab behind all packets that lie there, of this length and without references to
            // it.
            unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
            at = place.as_ptr();
            self.landed = (self.landed + bytes.len()).next_multiple_of(64);
        }
        let v = self.new_version()?;
        self.originated += 1;
        let slot = self.slots[v].0.get_mut(HEADROOM..HEADROOM + private)?;
        slot.copy_from_slice(&bytes[..private]);
        self.records[v] = Record {
            at,
            from: private as u32,
            to: len,
            header_len: private as u16,
            packet: packet as u16,
            ..Record::EMPTY
        };
        self.replace_offload(v, offload);
        self.longest = self.longest.max(len);
        Some(v)
    }

    /// Copies the bytes of a version that are in its sender's memory to the batch's own memory, where no client can
    /// change them. False if an output refers to the version or there is no room.
    pub(crate) fn keep(&mut self, v: usize) -> bool {
        let record = self.records[v];
        if record.payload_len() == 0 || self.is_kept(&record) {
            return true;
        }
        let len = record.to as usize;
        if record.has(state::SENT) {
            return false;
        }
        let Some(place) = self.landing.get(self.landed, len) else { return false };
        // SAFETY: initialized memory of the slab behind all packets that lie there, of this length and without
        // references to it; the source is a client's memory, or lies in front of it.
        let own = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), len) };
        self.source(&record).read(0, own);
        self.landed = (self.landed + len).next_multiple_of(64);
        // Offsets stay as they are: all bytes of the source were copied, also those that the header replaces.
        let record = &mut self.records[v];
        (record.at, record.first_piece, record.pieces) = (place.as_ptr(), 0, 0);
        record.state &= !state::PIECES;
        true
    }

    /// Returns the bytes of a version behind its header, if they are in the batch's own memory.
    #[inline]
    pub(crate) fn kept(&self, v: usize) -> Option<&[u8]> {
        let record = self.records.get(v)?;
        if record.payload_len() == 0 {
            return Some(&[]);
        }
        if !self.is_kept(record) {
            return None;
        }
        let at = record.at.wrapping_add(record.from as usize);
        // SAFETY: bytes `from..to` of a packet that lies in the slab. Nobody writes there until `clear`, which needs the
        // batch for itself.
        Some(unsafe { std::slice::from_raw_parts(at, record.payload_len() as usize) })
    }

    /// Returns whether a packet lies in the batch's own memory.
    #[inline]
    fn is_kept(&self, record: &Record) -> bool {
        let start = self.landing.get(0, 0).map_or(0, |start| start.as_ptr().addr());
        !record.has(state::PIECES)
            && record.at.addr().wrapping_sub(start) < self.landed
            && record.at.addr().wrapping_sub(start) + record.to as usize <= self.landed
    }

    /// Puts a tag in front of those of a version; false if there is no room. Only if no output refers to it.
    pub(crate) fn push_vlan(&mut self, v: usize, tag: VlanTag) -> bool {
        let record = self.records[v];
        let Some(start) = usize::from(record.start).checked_sub(VLAN_TAG_LEN) else { return false };
        let end = start + VLAN_TAG_LEN + usize::from(record.header_len);
        if edit::push_vlan(&mut self.slots[v].0[start..end], tag) {
            self.move_start(v, -(VLAN_TAG_LEN as i16));
        }
        true
    }

    /// Removes the outermost tag, if there is one. Only for a version that no output refers to.
    pub(crate) fn pop_vlan(&mut self, v: usize) {
        let Record { start, header_len, .. } = self.records[v];
        if edit::pop_vlan(&mut self.slots[v].0[usize::from(start)..usize::from(start + header_len)]) {
            self.move_start(v, VLAN_TAG_LEN as i16);
        }
    }

    /// Moves the start of a header by so many bytes, within its slot; offsets of offload metadata follow.
    fn move_start(&mut self, v: usize, by: i16) {
        let record = &mut self.records[v];
        record.start = record.start.wrapping_add_signed(by);
        record.header_len = record.header_len.wrapping_add_signed(-by);
        self.longest = self.longest.max(record.len());
        if record.has(state::OFFLOAD) {
            self.work[v].offload.shift(-by);
        }
    }

    /// Moves a version's start within its slot: back, over the bytes already there, or forward. False if the header
    /// would have fewer than [`MIN_PACKET`] bytes or start outside of the slot. Only if no output refers to it.
    pub(crate) fn set_start(&mut self, v: usize, start: u16) -> bool {
        let record = &self.records[v];
        let end = record.start + record.header_len;
        if record.has(state::SENT) || u32::from(start) + MIN_PACKET > u32::from(end) {
            return false;
        }
        self.move_start(v, start as i16 - record.start as i16);
        self.records[v].len() <= MAX_PACKET
    }

    /// Makes of a version `head`, then bytes `from..to` of the version as it was. False if an output refers to it, if
    /// `from` is not in its header, or if the new header does not fit into its slot or has fewer than [`MIN_PACKET`]
    /// bytes.
    pub(crate) fn replace_front(&mut self, v: usize, head: &[u8], from: u32, to: u32) -> bool {
        let Record { start, header_len, .. } = self.records[v];
        let len = self.records[v].len();
        let private = u32::from(header_len);
        if self.records[v].has(state::SENT) || from > private || from > to || to > len {
            return false;
        }
        let Some(fresh) = (usize::from(start) + from as usize).checked_sub(head.len()) else { return false };
        let kept = private.min(to) - from;
        let fresh_len = head.len() as u32 + kept;
        if fresh_len < MIN_PACKET || head.len() as u32 + (to - from) > MAX_PACKET {
            return false;
        }
        // Below the slot's length: `start + header_len` is, and `from` is at most `header_len`.
        self.slots[v].0[fresh..fresh + head.len()].copy_from_slice(head);
        let record = &mut self.records[v];
        (record.start, record.header_len) = (fresh as u16, fresh_len as u16);
        record.to = record.from + to.saturating_sub(private);
        self.longest = self.longest.max(record.len());
        if record.has(state::OFFLOAD) {
            self.work[v].offload.shift(head.len() as i16 - from as i16);
        }
        true
    }

    /// Takes an unused version. `None` if the batch has too many.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::BatchLimits;

    /// A batch with one packet of these bytes.
    fn batch(bytes: &[u8], offload: Offload) -> RxBatch {
        let mut batch = RxBatch::new(BatchLimits::default());
        batch.landing().unwrap()[..bytes.len()].copy_from_slice(bytes);
        batch.landed(0, bytes.len(), offload).unwrap();
        batch.load_headers();
        batch
    }

    /// All bytes of a version.
    fn whole(batch: &RxBatch, v: usize) -> Vec<u8> {
        let record = batch.records[v];
        let mut payload = vec![0; record.payload_len() as usize];
        batch.source(&record).read(record.from, &mut payload);
        [batch.header(v), &payload].concat()
    }

    #[test]
    fn kept_packets_do_not_change() {
        let mut bytes: Vec<u8> = (0..2000).map(|i| i as u8).collect();
        let expected = bytes.clone();
        let (front, back) = bytes.split_at_mut(900);
        let mut batch = RxBatch::new(BatchLimits::default());
        for cut in [1100, 600] {
            // SAFETY: both pieces outlive the batch's use of them.
            unsafe {
                batch.add_segment(NonNull::from(&mut *front).cast(), 900).unwrap();
                batch.add_segment(NonNull::from(&mut *back).cast(), cut).unwrap();
            }
            batch.end_packet(Offload::NONE);
        }
        batch.load_headers();
        let edited = batch.copy_version(0).unwrap();
        assert!(batch.replace_front(edited, &[7; 20], 14, 2000));
        assert_eq!(batch.kept(0), None);
        assert!(batch.keep(0) && batch.keep(edited) && batch.keep(1) && batch.keep(0));
        front.fill(0xee);
        back.fill(0xee);
        let header = batch.header(0).len();
        assert_eq!(batch.kept(0), Some(&expected[header..]));
        assert_eq!(whole(&batch, 0), expected);
        assert_eq!(whole(&batch, edited), [&[7; 20], &expected[14..]].concat());
        assert_eq!(whole(&batch, 1), expected[..1500]);
        // A packet without a payload, one that has been sent, and no room.
        assert_eq!(super::tests::batch(&[1; 60], Offload::NONE).kept(0), Some(&[][..]));
        let mut batch = RxBatch::new(BatchLimits::default());
        // SAFETY: as above.
        unsafe { batch.add_segment(NonNull::from(&mut *front).cast(), 900).unwrap() };
        batch.end_packet(Offload::NONE);
        batch.load_headers();
        batch.records[0].state |= state::SENT;
        assert!(!batch.keep(0));
        batch.records[0].state &= !state::SENT;
        batch.landed = 1 << 20;
        assert!(!batch.keep(0));
        assert_eq!(batch.kept(0), None);
    }

    #[test]
    fn the_largest_batch_can_be_kept() {
        let bytes = vec![3u8; usize::from(u16::MAX)];
        for len in [129u32, 1514, 65_535] {
            for packets in [64, MAX_BATCH] {
                let mut batch = RxBatch::new(BatchLimits { packets, ..BatchLimits::default() });
                while batch.has_room() {
                    // SAFETY: `bytes` outlives the batch's use of it.
                    unsafe { batch.add_segment(NonNull::from(&bytes[..]).cast(), len).unwrap() };
                    batch.end_packet(Offload::NONE);
                }
                batch.load_headers();
                assert!((0..batch.len()).all(|v| batch.keep(v)), "{len} {packets}");
            }
        }
    }

    #[test]
    fn fronts_are_replaced() {
        let bytes: Vec<u8> = (0..500).map(|i| i as u8).collect();
        let head = [0xee; 100];
        for (len, from, to) in
            [(0, 0, 500), (20, 14, 500), (78, 14, 500), (14, 60, 500), (14, 14, 60), (30, 128, 300)]
        {
            let mut batch = batch(&bytes, Offload::NONE);
            let copy = batch.copy_version(0).unwrap();
            assert!(batch.replace_front(copy, &head[..len], from as u32, to as u32), "{len} {from} {to}");
            assert_eq!(whole(&batch, copy), [&head[..len], &bytes[from..to]].concat(), "{len} {from} {to}");
            assert_eq!(whole(&batch, 0), bytes);
        }
        // No room in front, a header behind the private one, too short, beyond the end.
        for (len, from, to) in [(79, 14, 500), (14, 129, 500), (3, 14, 20), (14, 14, 501), (14, 20, 14)] {
            let mut batch = batch(&bytes, Offload::NONE);
            assert!(!batch.replace_front(0, &head[..len], from, to), "{len} {from} {to}");
            assert_eq!(whole(&batch, 0), bytes);
        }
        let mut batch = batch(&bytes, Offload::NONE);
        batch.records[0].state |= state::SENT;
        assert!(!batch.replace_front(0, &head[..14], 14, 500));
    }
}
