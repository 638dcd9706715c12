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
