//! One mapped file.
//!
//! Invariants:
//! - `base..base + mapped` is mapped readable and writable from construction to drop, whatever becomes of the file.
//! - `len <= mapped`, and only addresses below `base + len` are handed out.
//! - The mapping is registered with the fault handler for the whole time in which anybody can have an address of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::registry::{self, Mapping, Slot};
use crate::{install_fault_handler, kind};

/// The largest region that is mapped: what a large guest has, and far from exhausting the address space.
pub const MAX_REGION_SIZE: u64 = 64 << 30;

/// Why a client's file is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is not a regular file.
    #[error("memory file is {found}, not a regular file on tmpfs or hugetlbfs")]
    NotRegular {
        /// What it is.
        found: &'static str,
    },
    /// The file lies on a file system whose page faults may block.
    #[error("memory file is not on tmpfs (memfd) or hugetlbfs")]
    WrongFileSystem,
    /// The announced size is zero.
    #[error("region size is 0, must be 1 byte or more")]
    Empty,
    /// The announced size is above [`MAX_REGION_SIZE`].
    #[error("region size {size} is above the limit of {MAX_REGION_SIZE}")]
    TooLarge {
        /// The announced size.
        size: u64,
    },
    /// The file is smaller than announced.
    #[error("region size {size} is larger than its file of {file_size} bytes")]
    BeyondFile {
        /// The announced size.
        size: u64,
        /// The size of the file.
        file_size: u64,
    },
    /// The descriptor does not allow reading and writing.
    #[error("memory file is not open for reading and writing")]
    NotReadWrite,
    /// The kernel would not tell what the descriptor is.
    #[error("memory file cannot be inspected: {0}")]
    Inspect(#[source] io::Error),
    /// The kernel would not map the file.
    #[error("memory file cannot be mapped: {0}")]
    Map(#[source] io::Error),
    /// Too many regions are mapped already.
    #[error("{} regions are mapped already, no more are possible", registry::SLOTS)]
    TableFull,
}

/// A file of a client, mapped shared, readable and writable.
///
/// Users take raw pointers from [`at`](Region::at). The owner drops a `Region` only after every thread that may hold
/// such a pointer has stopped using it (a quiescent point): dropping unmaps, and the address range may be reused at
/// once, with nothing to catch a late access. The fault handler leans on the same rule.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    mapped: usize,
    slot: &'static Slot,
}

// SAFETY: a Region hands out raw pointers only and has no interior state besides the slot's atomics; mapping and
// unmapping are not bound to a thread.
unsafe impl Send for Region {}
// SAFETY: as above; all methods on &self are reads of constant fields or atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `size` bytes of the client's file `fd`.
    ///
    /// The descriptor is not needed afterwards. `size` is rounded up to whole pages of the file for mapping, but
    /// [`at`](Region::at) keeps to `size`.
    pub fn map(fd: BorrowedFd<'_>, size: u64) -> Result<Region, MapError> {
        let file = kind::mappable(fd)?;
        if size == 0 {
            return Err(MapError::Empty);
        }
        if size > MAX_REGION_SIZE {
            return Err(MapError::TooLarge { size });
        }
        if size > file.file_size {
            return Err(MapError::BeyondFile { size, file_size: file.file_size });
        }
        let flags = fcntl_getfl(fd).map_err(|e| MapError::Inspect(e.into()))?;
        if flags & OFlags::ACCMODE != OFlags::RDWR {
            return Err(MapError::NotReadWrite);
        }
        install_fault_handler();
        // Cannot overflow: size is at most 2^36 and the page size a power of two of the same order.
        let mapped = (size as usize).next_multiple_of(file.page_size);
        // SAFETY: no address is asked for, so the kernel picks a free range and nothing existing is touched.
        let base = unsafe {
            mmap(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)
        }
        .map_err(|e| MapError::Map(e.into()))?;
        let mapping = Mapping { start: base as usize, len: mapped, page_size: file.page_size };
        let (Some(base), Some(slot)) = (NonNull::new(base.cast::<u8>()), registry::register(mapping)) else {
            // SAFETY: the range was mapped just now and nobody has an address of it.
            let _ = unsafe { munmap(base, mapped) };
            return Err(MapError::TableFull);
        };
        Ok(Region { base, len: size, mapped, slot })
    }

    /// Makes a memory file of our own, for the client role, and maps it.
    ///
    /// The file is sealed: its size is fixed, so that the peer can rely on it. `name` shows in `/proc/PID/maps`.
    pub fn create(name: &str, size: u64) -> io::Result<(Region, OwnedFd)> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, size)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let region = Region::map(fd.as_fd(), size).map_err(io::Error::other)?;
        Ok((region, fd))
    }

    /// The address of the `len` bytes at `offset`, or `None` if they are not all within the region.
    #[inline]
    pub fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset <= self.len <= self.mapped, so the result lies within the mapping or one past its end.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// The address of the first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes, as announced by the client; never zero.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether an access met a page that the client had taken away. From then on the content is void: the whole
    /// mapping is private memory that began as zeros, and the client should be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.slot.faulted()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // First: once unmapped, the address range may belong to the next mapping of any thread.
        self.slot.unregister();
        // SAFETY: the range is this Region's own, and per the rule above nobody uses an address of it any more.
        // Unmapping a range that is mapped does not fail in a way that could be dealt with.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
