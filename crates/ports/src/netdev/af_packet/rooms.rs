//! Memory for received frames: *rooms*, each with a front for frames of usual length and a rest for large segments.
//!
//! The fronts lie side by side, so a batch of usual frames touches little memory. Invariant: pages that no frame has
//! touched take no memory, also if ports come and go: a heap would hand out, and clear, what an earlier port has
//! touched.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Rooms of a queue: the usual number of packets in a batch.
pub(super) const ROOMS: usize = 64;
/// Bytes of a front: an odd number of cache lines, so that the headers of a batch do not share a few cache sets.
pub(super) const FRONT: usize = 33 * 64;
/// Bytes of a rest: with the front, more than the longest packet and a tag.
pub(super) const REST: usize = 64 << 10;
const LEN: usize = ROOMS * (FRONT + REST);

/// The rooms of a queue.
pub(super) struct Rooms(NonNull<u8>);

// SAFETY: it is plain memory; its owner arranges which thread accesses which part of it.
unsafe impl Send for Rooms {}

impl Rooms {
    pub(super) fn new() -> Result<Self, Errno> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, where the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), LEN, access, kind) }?;
        // SAFETY: the mapping above. A huge page would make 2 MiB resident for one frame; without the advice it only
        // takes more memory.
        let _ = unsafe { madvise(start, LEN, Advice::LinuxNoHugepage) };
        NonNull::new(start.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// Returns the front of room `n`: [`FRONT`] bytes.
    #[inline(always)]
    pub(super) fn front(&self, n: usize) -> Option<NonNull<u8>> {
        // SAFETY: the address is within the mapping.
        (n < ROOMS).then(|| unsafe { self.0.add(n * FRONT) })
    }

    /// Returns the rest of room `n`: [`REST`] bytes.
    #[inline(always)]
    pub(super) fn rest(&self, n: usize) -> Option<NonNull<u8>> {
        // SAFETY: the address is within the mapping.
        (n < ROOMS).then(|| unsafe { self.0.add(ROOMS * FRONT + n * REST) })
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and no pointer into it is left: batches end before their queue.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_do_not_overlap() {
        let rooms = Rooms::new().unwrap();
        let mut all: Vec<(usize, usize)> = (0..ROOMS)
            .flat_map(|n| {
                [(rooms.front(n).unwrap().addr().get(), FRONT), (rooms.rest(n).unwrap().addr().get(), REST)]
            })
            .collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert!(all[0].0 == rooms.0.addr().get() && all[2 * ROOMS - 1].0 + REST == all[0].0 + LEN);
        assert_eq!((rooms.front(ROOMS), rooms.rest(ROOMS)), (None, None));
    }
}
