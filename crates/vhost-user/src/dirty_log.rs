//! The dirty log of a live migration: a bitmap in memory that the front-end shares, with one bit for each 4 KiB of
//! guest memory. The back-end marks the pages that it writes. The front-end copies pages while the guest runs, clears
//! their marks, and copies marked pages again.
//!
//! Invariants:
//! - A page is marked after every write: a front-end that clears a mark and then reads the page finds the written
//!   bytes, or finds another mark later.
//! - No mark lies beyond the bitmap, whatever the address.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clientmem::{FirstTouch, MapError, Region};

use crate::memory::GuestMemory;
use crate::virtqueue::Segment;

/// Bytes of guest memory per bit.
pub const PAGE: u64 = 4096;
/// The largest log: enough for 32 TiB of guest addresses.
pub const MAX_LOG: u64 = 1 << 30;

/// Reasons for refusing a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log is larger than any guest needs.
    #[error("dirty log of {size} bytes (at most {MAX_LOG})")]
    TooLarge {
        /// The log's size in bytes.
        size: u64,
    },
    /// The log ends beyond the highest offset of a file.
    #[error("dirty log of {size} bytes at offset {offset:#x} of its file wraps around")]
    Wraps {
        /// The log's size in bytes.
        size: u64,
        /// The log's offset in the file.
        offset: u64,
    },
    /// Mapping the file failed.
    #[error("dirty log: {0}")]
    Map(#[from] MapError),
}

/// A mapped log.
#[derive(Debug)]
pub struct DirtyLog {
    /// The first of `size` bytes that are mapped for as long as `mapping` lives.
    start: NonNull<u8>,
    size: u64,
    mapping: Region,
}

// SAFETY: only its pointer keeps it from being Send and Sync: the address of a mapping that it owns and that belongs to
// no thread; all access is atomic.
unsafe impl Send for DirtyLog {}
// SAFETY: as above.
unsafe impl Sync for DirtyLog {}

impl DirtyLog {
    /// Takes the memory away from all users; see [`Region::void`].
    pub fn void(&self) {
        self.mapping.void();
    }

    /// Waits while another process punches holes into the memory; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.mapping.wait_for_holes();
    }

    /// Maps `size` bytes at `offset` of a front-end's file. Allocation on first touch is counted.
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
        // Mapped from the file's start, because the offset need not be page-aligned.
        let mapping = Region::map_counted(file, 0, if size == 0 { 0 } else { end }, first_touch)?;
        // The mapping includes these bytes.
        let start = mapping.at(offset, size).ok_or(MapError::Empty)?;
        Ok(DirtyLog { start, size, mapping })
    }

    /// Returns the size in bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a log is never empty")]
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Returns the first guest address beyond the log.
    pub fn end(&self) -> u64 {
        // At most `MAX_LOG` bytes: no overflow.
        self.size * 8 * PAGE
    }

    /// Marks the pages of `len` bytes written at a guest address.
    pub fn mark(&self, address: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|more| address.checked_add(more)) else { return };
        for page in address / PAGE..=(last / PAGE).min(self.size * 8 - 1) {
            // SAFETY: page / 8 < size, so the byte is within the mapping, which `self` keeps. All access is atomic.
            let byte = unsafe { AtomicU8::from_ptr(self.start.as_ptr().add((page / 8) as usize)) };
            // Stored even if the bit is already set: the front-end may be clearing it.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    /// Whether the front-end has taken the log's memory away; it should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.mapping.faulted()
    }
}

/// The log of one ring.
#[derive(Debug)]
pub struct RingLog {
    log: Arc<DirtyLog>,
    /// Log address of the ring's device area, if writes to the ring are logged.
    ring: Option<LoggedArea>,
}

/// The device area of a ring (a split ring's used ring), which is logged at an address chosen by the front-end.
#[derive(Debug)]
struct LoggedArea {
    start: NonNull<u8>,
    len: u64,
    guest_address: u64,
}

// SAFETY: as for DirtyLog; the address in LoggedArea is compared and never accessed.
unsafe impl Send for RingLog {}

impl RingLog {
    /// Makes the log of a ring that logs only its writes to packets.
    pub(crate) fn new(log: Arc<DirtyLog>) -> RingLog {
        RingLog { log, ring: None }
    }

    /// Makes the log of a ring that also logs its own writes: its device area lies at `start` and is logged at
    /// `guest_address`.
    pub(crate) fn with_ring(
        log: Arc<DirtyLog>,
        (start, len): (NonNull<u8>, usize),
        guest_address: u64,
    ) -> RingLog {
        RingLog { log, ring: Some(LoggedArea { start, len: len as u64, guest_address }) }
    }

    /// Marks bytes written to the ring.
    #[cold]
    pub(crate) fn mark_ring(&self, memory: &GuestMemory, at: NonNull<u8>, len: usize) {
        let Some(LoggedArea { start, len: area, guest_address }) = self.ring else { return };
        let offset = (at.addr().get() as u64).wrapping_sub(start.addr().get() as u64);
        let address = if offset < area {
            guest_address.checked_add(offset)
        } else {
            // A packed ring's descriptors, which the device overwrites.
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

    /// Returns the log of the whole guest.
    pub(crate) fn guest_log(&self) -> &Arc<DirtyLog> {
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
    fn no_mark_beyond_the_log() {
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
    fn errors_state_the_problem() {
        let wrong = |file: &OwnedFd, size, offset| {
            DirtyLog::map(file.as_fd(), size, offset, None).unwrap_err().to_string()
        };
        let fd = file(4096);
        assert_eq!(wrong(&fd, 0, 0), "dirty log: region size is 0, must be 1 byte or more");
        assert_eq!(wrong(&fd, MAX_LOG + 1, 0), "dirty log of 1073741825 bytes (at most 1073741824)");
        assert_eq!(
            wrong(&fd, 2, u64::MAX),
            "dirty log of 2 bytes at offset 0xffffffffffffffff of its file wraps around"
        );
        assert_eq!(wrong(&fd, 8, 4090), "dirty log: region size 4098 is larger than its file of 4096 bytes");
    }

    #[test]
    fn removed_memory_is_noticed() {
        let fd = file(4096);
        let log = DirtyLog::map(fd.as_fd(), 4096, 0, None).unwrap();
        ftruncate(&fd, 0).unwrap();
        assert!(!log.faulted());
        log.mark(0, 1);
        assert!(log.faulted());
    }
}
