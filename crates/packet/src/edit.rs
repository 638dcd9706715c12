//! VLAN tags, edited in place (IEEE 802.1Q §6.9, §9.5).
//!
//! Only the twelve address bytes move, whatever the length of the frame: a push uses four spare bytes in front of the
//! frame, and a pop leaves four.
//!
//! Invariants: a function that returns `false` has changed nothing; bytes after the tag are never touched. Checksum
//! offsets count from the frame's first byte: after a push or pop, [`Offload::shift`](crate::Offload::shift) them by
//! `VLAN_TAG_LEN` or its negative.

use crate::ether::{ADDRESSES_LEN, EtherType, HEADER_LEN, VLAN_TAG_LEN, VlanTag, vlan_tag};

/// Length of a frame's header with one tag.
const TAGGED_LEN: usize = HEADER_LEN + VLAN_TAG_LEN;

/// Makes `tag` the outermost tag, TPID 0x8100 (IEEE 802.1Q §9.3).
///
/// `buf` begins [`VLAN_TAG_LEN`] spare bytes before the frame; the tagged frame begins at `buf[0]`. Returns `false` if
/// the spare bytes are not followed by a whole Ethernet header.
#[inline]
pub fn push_vlan(buf: &mut [u8], tag: VlanTag) -> bool {
    let Some(front) = buf.first_chunk_mut::<TAGGED_LEN>() else { return false };
    front.copy_within(VLAN_TAG_LEN..VLAN_TAG_LEN + ADDRESSES_LEN, 0);
    [front[12], front[13]] = EtherType::VLAN.0.to_be_bytes();
    [front[14], front[15]] = tag.to_tci().to_be_bytes();
    true
}

/// Removes the outermost tag if its TPID is 0x8100 (IEEE 802.1Q §9.3).
///
/// The frame begins at `buf[0]` before and at `buf[VLAN_TAG_LEN]` after. Returns `false` if the frame has no such tag.
#[inline]
pub fn pop_vlan(buf: &mut [u8]) -> bool {
    if vlan_tag(buf).is_none() {
        return false;
    }
    let Some(front) = buf.first_chunk_mut::<TAGGED_LEN>() else { return false };
    front.copy_within(0..ADDRESSES_LEN, VLAN_TAG_LEN);
    true
}

/// Rewrites the outermost tag if its TPID is 0x8100 (IEEE 802.1Q §9.6). Returns `false` if the frame has no such tag.
#[inline]
pub fn set_vlan(frame: &mut [u8], tag: VlanTag) -> bool {
    if vlan_tag(frame).is_none() {
        return false;
    }
    let Some(front) = frame.first_chunk_mut::<TAGGED_LEN>() else { return false };
    [front[14], front[15]] = tag.to_tci().to_be_bytes();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: VlanTag = VlanTag { pcp: 3, dei: false, vid: 7 };

    #[test]
    fn push_set_pop() {
        let frame: Vec<u8> = (1..=12).chain([8, 0, 0xaa, 0xbb]).collect();
        let mut buf = [vec![0; 4], frame.clone()].concat();
        assert!(!set_vlan(&mut buf[4..], TAG));
        assert!(push_vlan(&mut buf, TAG));
        let expected: Vec<u8> = (1..=12).chain([0x81, 0, 0x60, 7, 8, 0, 0xaa, 0xbb]).collect();
        assert_eq!(buf, expected);
        assert!(set_vlan(&mut buf, VlanTag { pcp: 0, dei: true, vid: 0xabc }));
        assert_eq!(buf[12..18], [0x81, 0, 0x1a, 0xbc, 8, 0]);
        assert!(pop_vlan(&mut buf));
        assert_eq!(buf[4..], frame);
        assert!(!pop_vlan(&mut buf[4..]));
    }

    #[test]
    fn short_frames_are_left_unchanged() {
        let mut short = [0u8; 17];
        short[12] = 0x81;
        let before = short;
        assert!(!push_vlan(&mut short, TAG) && !pop_vlan(&mut short) && !set_vlan(&mut short, TAG));
        assert_eq!(short, before);
    }
}
