//! One mapped file.
//!
//! Invariants:
//! - `start..start + mapped` is mapped readable and writable from construction to drop, whatever happens to the file.
//! - `base..base + len` lies within it, and only addresses there are returned.
//! - The mapping is registered with the fault handler for as long as an address of it may be in use.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, ftruncate, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::registry::{self, Mapping, Slot};
use crate::{FirstTouch, fault, install_fault_handler, kind};

/// Largest region: more than guests have, and a small part of the address space of 128 TiB.
pub const MAX_REGION_SIZE: u64 = 1 << 40;

/// Bytes to unmap in one go, if the file's pages are not larger. The kernel locks the address space meanwhile, 0.1 µs
/// or more for each page, and a worker whose access faults waits for that lock.
const UNMAP_STEP: usize = 16 << 20;
/// Pause between steps: without it the kernel gives the lock back to us, for up to 4 ms, while the worker wakes.
const PAUSE: Duration = Duration::from_micros(50);
/// Longest time without a pause. A step with pages takes longer; 1 TiB without any has 65,536 steps of a few
/// microseconds.
const MOST_WITHOUT_PAUSE: Duration = Duration::from_micros(100);

/// Reasons for refusing a client's file.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is not a regular file.
    #[error("memory file is {found}, not a regular file on tmpfs or hugetlbfs")]
    NotRegular {
        /// Kind of file found.
        found: &'static str,
    },
    /// The file is on a file system whose page faults may block.
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
    #[error("region size {size}{} is larger than its file of {file_size} bytes", at(*offset))]
    BeyondFile {
        /// The announced size.
        size: u64,
        /// Offset of the region in the file.
        offset: u64,
        /// The size of the file.
        file_size: u64,
    },
    /// The descriptor does not allow reading and writing.
    #[error("memory file is not open for reading and writing")]
    NotReadWrite,
    /// The kernel refused information on the descriptor.
    #[error("memory file cannot be inspected: {0}")]
    Inspect(#[source] io::Error),
    /// The kernel refused to map the file.
    #[error("memory file cannot be mapped: {0}")]
    Map(#[source] io::Error),
    /// Too many regions are mapped.
    #[error("{} regions are already mapped, which is the limit", registry::SLOTS)]
    TableFull,
}

/// Text on a region's offset in its file, if not 0.
fn at(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
}

/// A file of a client, or a part of one, mapped shared, readable and writable.
///
/// Users take raw pointers from [`at`](Region::at). The owner drops a `Region` only after every thread that may hold
/// such a pointer has stopped using it (a quiescent point): dropping unmaps, and the address range may be reused at
/// once, with nothing to catch a late access. The fault handler relies on the same rule.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    /// The mapped range: whole pages around `base` and `len`.
    start: NonNull<u8>,
    mapped: usize,
    page_size: usize,
    slot: &'static Slot,
    /// The file, unless the process had no descriptor left for it.
    file: Option<OwnedFd>,
    /// Keeps the budget that the slot refers to.
    _first_touch: Option<FirstTouch>,
}

// SAFETY: a Region only returns raw pointers and has no interior state besides the slot's atomics; mapping and
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
        Region::map_part(fd, 0, size)
    }

    /// The same for the `size` bytes from `offset` on, which need not start a page: maps only the pages that hold them.
    pub fn map_part(fd: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Region, MapError> {
        Region::map_counted(fd, offset, size, None)
    }

    /// The same, counting the allocations of first touches. Files on hugetlbfs have their pages reserved on mapping, so
    /// nothing is counted.
    pub fn map_counted(
        fd: BorrowedFd<'_>,
        offset: u64,
        size: u64,
        first_touch: Option<&FirstTouch>,
    ) -> Result<Region, MapError> {
        let file = kind::mappable(fd)?;
        if size == 0 {
            return Err(MapError::Empty);
        }
        if size > MAX_REGION_SIZE {
            return Err(MapError::TooLarge { size });
        }
        let beyond = MapError::BeyondFile { size, offset, file_size: file.file_size };
        let Some(end) = offset.checked_add(size).filter(|end| *end <= file.file_size) else {
            return Err(beyond);
        };
        let flags = fcntl_getfl(fd).map_err(|e| MapError::Inspect(e.into()))?;
        if flags & OFlags::ACCMODE != OFlags::RDWR {
            return Err(MapError::NotReadWrite);
        }
        let duplicate = fcntl_dupfd_cloexec(fd, 0).ok();
        install_fault_handler();
        // A power of two, in which the file is mapped.
        let page_size = file.page_size as u64;
        let first = offset & !(page_size - 1);
        let inside = (offset - first) as usize;
        // Cannot overflow: the size is at most 2^40, a page much smaller, and files end below 2^63.
        let mapped = (end - first).next_multiple_of(page_size) as usize;
        // SAFETY: no address is requested, so the kernel picks a free range and nothing existing is touched.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                first,
            )
        }
        .map_err(|e| MapError::Map(e.into()))?;
        let first_touch = first_touch.filter(|_| file.may_be_sparse).cloned();
        let budget = first_touch.as_ref().map_or(std::ptr::null(), |first_touch| first_touch.budget());
        let mapping = Mapping { start: start as usize, len: mapped, page_size: file.page_size, budget };
        let (Some(start), Some(slot)) = (NonNull::new(start.cast::<u8>()), registry::register(mapping))
        else {
            // SAFETY: the range was mapped just now and no address of it is in use.
            let _ = unsafe { munmap(start, mapped) };
            return Err(MapError::TableFull);
        };
        if let Some(first_touch) = &first_touch {
            first_touch.watch(mapping.start, mapping.len);
        }
        // SAFETY: `inside` is less than a page, and the mapping has at least one.
        let base = unsafe { start.add(inside) };
        Ok(Region {
            base,
            len: size,
            start,
            mapped,
            page_size: file.page_size,
            slot,
            file: duplicate,
            _first_touch: first_touch,
        })
    }

    /// Creates a memory file of our own, for the client role, and maps it.
    ///
    /// The file is sealed: its size is fixed, so that the peer can rely on it. `name` appears in `/proc/PID/maps`.
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
        // SAFETY: offset <= self.len, and that many bytes are mapped from `base` on: the result lies within the mapping
        // or one past its end.
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

    /// Whether an access met a page that the client had taken away, or that must not be allocated ([`FirstTouch`]).
    /// From then on the content is void: around that page it is private memory that began as zeros, and the client
    /// should be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.slot.faulted()
    }
}

impl Region {
    /// Replaces the client's memory by private memory that begins as zeros; the region counts as faulted. For a client
    /// in whose memory a thread is stuck: the thread comes out. Waits for the kernel, which may wait for that client.
    pub fn void(&self) {
        self.slot.set_faulted();
        for (start, len) in self.steps() {
            fault::replace_with_zeros(start.as_ptr() as usize, len);
        }
    }

    /// Waits while a process punches holes into the file or truncates it, as a thread does that touches an affected
    /// page; otherwise returns at once. Touches nothing.
    pub fn wait_for_holes(&self) {
        // Adds no seal. To check, the kernel takes the file's lock, which it holds while holes are punched
        // (memfd_add_seals and shmem_fallocate; hugetlbfs likewise).
        let _ = self.file.as_ref().map(|file| fcntl_add_seals(file, SealFlags::empty()));
    }

    /// The mapping in steps, with pauses in which other threads get the kernel's lock.
    fn steps(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        let step = UNMAP_STEP.max(self.page_size);
        let mut since = Instant::now();
        (0..self.mapped).step_by(step).map(move |offset| {
            if since.elapsed() > MOST_WITHOUT_PAUSE {
                std::thread::sleep(PAUSE);
                since = Instant::now();
            }
            // SAFETY: `offset` is less than the mapping's length.
            (unsafe { self.start.add(offset) }, step.min(self.mapped - offset))
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // First: once unmapped, the address range may belong to the next mapping of any thread.
        self.slot.unregister();
        for (start, len) in self.steps() {
            // SAFETY: the range lies within this Region's own, and by the rule above no address of it is in use any
            // more. Unmapping the start of the remaining range does not fail in a way that could be handled.
            let _ = unsafe { munmap(start.as_ptr().cast(), len) };
        }
    }
}
