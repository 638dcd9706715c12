//! The log of a live migration: a bitmap in memory that the front-end shares, with a bit for each 4 KiB of guest memory, in which
//! the back-end marks what it has written. The front-end copies pages while the guest runs, takes their marks away, and copies
//! what is marked again.
//!
//! Invariants:
//! - A page is marked after it was written, and each time: whoever takes a mark away and then reads the page finds what
//!   was written, or finds another mark later.
//! - Nothing is marked beyond the bitmap, whatever the address.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clientmem::{FirstTouch, MapError, Region};

use crate::memory::GuestMemory;
use crate::virtqueue::Segment;

/// The bytes of guest memory that a bit stands for.
pub const PAGE: u64 = 4096;
/// The largest log: enough for 32 TiB of guest addresses.
pub const MAX_LOG: u64 = 1 << 30;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It is larger than any guest needs.
    #[error("dirty log of {size} bytes, at most {MAX_LOG} are possible")]
    TooLarge {
        /// Its size.
        size: u64,
    },
    /// It ends beyond the highest offset of a file.
    #[error("dirty log of {size} bytes at offset {offset:#x} of its file wraps around")]
    Wraps {
        /// Its size.
        size: u64,
        /// Where in the file it starts.
        offset: u64,
    },
    /// Its file cannot be mapped.
    #[error("dirty log: {0}")]
    Map(#[from] MapError),
}

/// A log that is mapped.
#[derive(Debug)]
pub struct DirtyLog {
    /// `size` bytes from it are mapped for as long as `mapping` lives.
    start: NonNull<u8>,
    size: u64,
    mapping: Region,
}

// SAFETY: what keeps it from being Send and Sync is its pointer, the address of a mapping that it owns and that no thread
// owns; all access is atomic.
unsafe impl Send for DirtyLog {}
// SAFETY: as above.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// Takes it away from whoever uses it; see [`Region::void`].
    pub fn void(&self) {
        self.mapping.void();
    }

    /// Waits while somebody punches holes into it; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.mapping.wait_for_holes();
    }

    /// Maps `size` bytes at `offset` of a front-end's file. What touching it first allocates is counted.
    pub fn map(
        file: BorrowedFd<'_>,
        size: u64,
        offset: u64,
        first_touch: Option<&FirstTouch>,
    ) -> Result<DirtyLog, LogError> {
        if size > MAX_LOG {
            return Err(LogError::TooLarge { size });
        }
        let end = offset.checked_add(size).ok_or(LogError::Wraps { size, offset })?;
        // From the file's start: an offset need not be one that the kernel maps at.
        let mapping = Region::map_counted(file, 0, if size == 0 { 0 } else { end }, first_touch)?;
        // What was mapped has these bytes.
        let start = mapping.at(offset, size).ok_or(MapError::Empty)?;
        Ok(DirtyLog { start, size, mapping })
    }

    /// Its size in bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a log is never empty")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// The first guest address that no bit stands for.
    pub fn end(&self) -> u64 {
        // No more than `MAX_LOG` bytes: no overflow.
        self.size * 8 * PAGE
    }

    /// Marks the pages of `len` bytes that were written at a guest address.
    pub fn mark(&self, address: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|more| address.checked_add(more)) else { return };
        for page in address / PAGE..=(last / PAGE).min(self.size * 8 - 1) {
            // SAFETY: page / 8 < size, so the byte is within the mapping, which `self` keeps. All access is atomic.
            let byte = unsafe { AtomicU8::from_ptr(self.start.as_ptr().add((page / 8) as usize)) };
            // Never left out because the bit is there: the front-end may be taking it away.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    /// Whether the front-end took the log's memory away; it should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.mapping.faulted()
    }
}

/// The log as a ring uses it.
#[derive(Debug)]
pub struct RingLog {
    log: Arc<DirtyLog>,
    /// Where the ring's device area is logged, if what is written to the ring is.
    ring: Option<LoggedArea>,
}

/// The device area of a ring (a split ring's used ring), which is logged at an address that the front-end names.
#[derive(Debug)]
struct LoggedArea {
    start: NonNull<u8>,
    len: u64,
    guest_address: u64,
}

// SAFETY: as for DirtyLog; the address in LoggedArea is compared and never accessed.
unsafe impl Send for RingLog {}

impl RingLog {
    /// For a ring that writes to packets only, as far as the log goes.
    pub(crate) fn new(log: Arc<DirtyLog>) -> RingLog {
        RingLog { log, ring: None }
    }

    /// The same, with what is written to the ring: its device area lies at `start` and is logged at `guest_address`.
    pub(crate) fn with_ring(
        log: Arc<DirtyLog>,
        (start, len): (NonNull<u8>, usize),
        guest_address: u64,
    ) -> RingLog {
        RingLog { log, ring: Some(LoggedArea { start, len: len as u64, guest_address }) }
    }

    /// Marks what was written to the ring.
    #[cold]
    pub(crate) fn mark_ring(&self, memory: &GuestMemory, at: NonNull<u8>, len: usize) {
        let Some(LoggedArea { start, len: area, guest_address }) = self.ring else { return };
        let offset = (at.addr().get() as u64).wrapping_sub(start.addr().get() as u64);
        let address = if offset < area {
            guest_address.checked_add(offset)
        } else {
            // The descriptors of a packed ring, which the device overwrites.
            memory.guest_address(at)
        };
        if let Some(address) = address {
            self.log.mark(address, len as u64);
        }
    }

    /// Marks the first `len` bytes of segments.
    #[cold]
    pub(crate) fn mark_segments(&self, memory: &GuestMemory, segments: &[Segment], len: u32) {
        let mut left = len;
        for segment in segments {
            if left == 0 {
                return;
            }
            let written = left.min(segment.len);
            left -= written;
            if let Some(address) = memory.guest_address(segment.at) {
                self.log.mark(address, written.into());
            }
        }
    }

    /// The log of the whole guest.
    pub(crate) fn whole(&self) -> &Arc<DirtyLog> {
        &self.log
    }

    #[inline]
    pub(crate) fn faulted(&self) -> bool {
        self.log.faulted()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn file(size: u64) -> OwnedFd {
        let fd = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        fd
    }

    fn bytes(file: &OwnedFd, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        assert_eq!(rustix::io::pread(file, &mut bytes, 0).unwrap(), size);
        bytes
    }

    #[test]
    fn a_bit_for_each_page_from_the_offset_on() {
        let fd = file(8);
        let log = DirtyLog::map(fd.as_fd(), 4, 3, None).unwrap();
        assert_eq!((log.len(), log.end()), (4, 32 * PAGE));
        log.mark(0, 1);
        log.mark(9 * PAGE + 4095, 2);
        log.mark(31 * PAGE, 0);
        assert_eq!(bytes(&fd, 8), [0, 0, 0, 1, 0b110, 0, 0, 0]);
        log.mark(23 * PAGE, PAGE);
        log.mark(0, 1);
        assert_eq!(bytes(&fd, 8), [0, 0, 0, 1, 0b110, 0x80, 0, 0]);
    }

    #[test]
    fn nothing_beyond_it_is_marked() {
        let fd = file(3);
        let log = DirtyLog::map(fd.as_fd(), 1, 1, None).unwrap();
        log.mark(8 * PAGE, 100);
        log.mark(u64::MAX - 5, 6);
        log.mark(u64::MAX - 5, 100);
        assert_eq!(bytes(&fd, 3), [0, 0, 0]);
        log.mark(7 * PAGE, 1 << 40);
        assert_eq!(bytes(&fd, 3), [0, 0x80, 0]);
    }

    #[test]
    fn says_what_is_wrong() {
        let wrong = |file: &OwnedFd, size, offset| {
            DirtyLog::map(file.as_fd(), size, offset, None).unwrap_err().to_string()
        };
        let fd = file(4096);
        assert_eq!(wrong(&fd, 0, 0), "dirty log: region size is 0, must be 1 byte or more");
        assert_eq!(
            wrong(&fd, MAX_LOG + 1, 0),
            "dirty log of 1073741825 bytes, at most 1073741824 are possible"
        );
        assert_eq!(
            wrong(&fd, 2, u64::MAX),
            "dirty log of 2 bytes at offset 0xffffffffffffffff of its file wraps around"
        );
        assert_eq!(wrong(&fd, 8, 4090), "dirty log: region size 4098 is larger than its file of 4096 bytes");
    }

    #[test]
    fn memory_that_is_taken_away_is_noticed() {
        let fd = file(4096);
        let log = DirtyLog::map(fd.as_fd(), 4096, 0, None).unwrap();
        ftruncate(&fd, 0).unwrap();
        assert!(!log.faulted());
        log.mark(0, 1);
        assert!(log.faulted());
    }
}
