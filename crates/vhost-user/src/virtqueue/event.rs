//! Event indices: from which entry on a signal is wanted.

/// Whether a side that moved its index from `old` to `new` passed the entry `event`, at which the other side wants a signal
/// (virtio 1.2 §2.7.10). Indices are free-running.
///
/// ```
/// use vhost_user::virtqueue::need_event;
/// assert!(need_event(7, 8, 7)); // entry 7 was just made
/// assert!(!need_event(8, 8, 7)); // entry 8 was not
/// ```
#[inline]
pub fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
