//! VLAN tags that the kernel took out of received frames.

use packet::ether::VLAN_TAG_LEN;

/// Bytes of addresses in front of a frame's VLAN tag.
pub(super) const ADDRESSES: usize = 12;

/// A VLAN tag as it stands in a frame.
pub(super) struct Tag([u8; VLAN_TAG_LEN]);

impl Tag {
    /// Returns the tag beside a frame with this status (`TP_STATUS_*`), if there is one.
    #[inline]
    pub(super) fn of(status: u32, tpid: u16, tci: u16) -> Option<Self> {
        if status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let ([p0, p1], [t0, t1]) = (tpid.to_be_bytes(), tci.to_be_bytes());
        Some(Self([p0, p1, t0, t1]))
    }

    /// Puts the tag behind the addresses of a frame, which move to the front. Returns the frame's new start.
    ///
    /// # Safety
    /// The [`ADDRESSES`] bytes at `frame`, and as many in front of it as a tag has, are valid for writes, and nothing
    /// refers to them.
    #[inline]
    pub(super) unsafe fn put_back(self, frame: *mut u8) -> *mut u8 {
        let start = frame.wrapping_sub(VLAN_TAG_LEN);
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy(frame, start, ADDRESSES);
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), start.add(ADDRESSES), VLAN_TAG_LEN);
        }
        start
    }
}
