//! Huge pages for large working sets, which clients' memory and the paper's have too: an experiment measures caches, not
//! page tables.

use fabric::Slab;
use rustix::mm::{Advice, madvise};

const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Backs the first `len` bytes of a slab, which nobody uses yet, with huge pages if the kernel has some.
pub(crate) fn back(slab: &Slab, len: usize) {
    let Some(start) = slab.get(0, len) else { return };
    let all = len;
    let skip = start.as_ptr().align_offset(HUGE);
    let len = len.saturating_sub(skip) / HUGE * HUGE;
    if len > 0 {
        // SAFETY: whole pages of the slab; the advice changes no contents.
        let _ = unsafe { madvise(start.as_ptr().wrapping_add(skip).cast(), len, Advice::LinuxHugepage) };
    }
    // The first access to a page takes microseconds, which no measurement should meet.
    for offset in (0..all).step_by(PAGE) {
        // SAFETY: a byte of the slab, to which nothing refers yet; it keeps its value.
        unsafe { start.as_ptr().add(offset).write_volatile(0) };
    }
}
