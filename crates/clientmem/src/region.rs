//! One mapped file.
//!
//! Invariants:
//! - `start..start + mapped` is mapped readable and writable from construction to drop, whatever becomes of the file.
//! - `base..base + len` lies within it, and only addresses there are handed out.
//! - The mapping is registered with the fault handler for the whole time in which anybody can have an address of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, ftruncate, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::registry::{self, Mapping, Slot};
use crate::{FirstTouch, fault, install_fault_handler, kind};

/// The largest region that is mapped: more than guests have, and of the address space of 128 TiB a small part.
pub const MAX_REGION_SIZE: u64 = 1 << 40;

/// What is unmapped in one go, if the file's pages are not larger. The kernel locks the address space meanwhile, 0.1 µs or
/// more for each page, and a worker whose access faults waits for that lock.
const UNMAPPED_AT_ONCE: usize = 16 << 20;
/// Pause between pieces: without it the kernel gives the lock back to us, for up to 4 ms, while the worker wakes.
const LET_WORKERS: Duration = Duration::from_micros(50);
/// Time without a pause. A piece with pages takes longer; 1 TiB without any has 65,536 pieces of a few microseconds.
const AT_A_STRETCH: Duration = Duration::from_micros(100);

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
    #[error("region size {size}{} is larger than its file of {file_size} bytes", at(*offset))]
    BeyondFile {
        /// The announced size.
        size: u64,
        /// Where in the file it starts.
        offset: u64,
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

/// Where in its file a region starts, if that is worth saying.
fn at(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
}

/// A file of a client, or a part of one, mapped shared, readable and writable.
///
/// Users take raw pointers from [`at`](Region::at). The owner drops a `Region` only after every thread that may hold
/// such a pointer has stopped using it (a quiescent point): dropping unmaps, and the address range may be reused at
/// once, with nothing to catch a late access. The fault handler leans on the same rule.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: u64,
    /// What was mapped: whole pages around `base` and `len`.
    start: NonNull<u8>,
    mapped: usize,
    page_size: usize,
    slot: &'static Slot,
    /// The file, unless the process had no descriptor left for it.
    file: Option<OwnedFd>,
    /// What the slot refers to.
    _first_touch: Option<FirstTouch>,
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
        Region::map_part(fd, 0, size)
    }

    /// The same for the `size` bytes from `offset` on, which need not be a page's start: no more is mapped than the pages
    /// that they lie in.
    pub fn map_part(fd: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Region, MapError> {
        Region::map_counted(fd, offset, size, None)
    }

    /// The same, with what touching it first allocates counted. Files on hugetlbfs have their pages reserved when they are
    /// mapped, and nothing is counted.
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
        let kept = fcntl_dupfd_cloexec(fd, 0).ok();
        install_fault_handler();
        // A power of two, in which the file is mapped.
        let page_size = file.page_size as u64;
        let first = offset & !(page_size - 1);
        let inside = (offset - first) as usize;
        // Cannot overflow: the size is at most 2^40, a page much smaller, and files end below 2^63.
        let mapped = (end - first).next_multiple_of(page_size) as usize;
        // SAFETY: no address is asked for, so the kernel picks a free range and nothing existing is touched.
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
            // SAFETY: the range was mapped just now and nobody has an address of it.
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
            file: kept,
            _first_touch: first_touch,
        })
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
        // SAFETY: offset <= self.len, and that many bytes are mapped from `base` on: the result lies within the mapping or
        // one past its end.
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

    /// Whether an access met a page that the client had taken away, or that must not be made ([`FirstTouch`]). From then
    /// on the content is void: some of it, around that page, is private memory that began as zeros, and the client should
    /// be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.slot.faulted()
    }
}

impl Region {
    /// Takes the client's memory away from whoever uses it: private memory that begins as zeros is in its place, and the
    /// region counts as faulted. For a client in whose memory a thread is stuck, which comes out by this. Waits for the
    /// kernel, which may wait for that client.
    pub fn void(&self) {
        self.slot.set_faulted();
        for (start, len) in self.steps() {
            fault::take_away(start.as_ptr() as usize, len);
        }
    }

    /// Returns at once, unless somebody punches holes into the file, or truncates it: then when that is over, as whoever
    /// touches such a page. Touches nothing.
    pub fn wait_for_holes(&self) {
        // Adds no seal. The kernel takes the file's lock to find that out, which it holds for as long as holes are made
        // (memfd_add_seals and shmem_fallocate; hugetlbfs alike).
        let _ = self.file.as_ref().map(|file| fcntl_add_seals(file, SealFlags::empty()));
    }

    /// The mapping, in pieces between which others get the kernel's lock.
    fn steps(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        let step = UNMAPPED_AT_ONCE.max(self.page_size);
        let mut since = Instant::now();
        (0..self.mapped).step_by(step).map(move |offset| {
            if since.elapsed() > AT_A_STRETCH {
                std::thread::sleep(LET_WORKERS);
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
            // SAFETY: the range lies within this Region's own, and per the rule above nobody uses an address of it any
            // more. Unmapping the beginning of what is left does not fail in a way that could be dealt with.
            let _ = unsafe { munmap(start.as_ptr().cast(), len) };
        }
    }
}
