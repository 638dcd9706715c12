//! Limits the allocations caused by first touches of a client's memory.
//!
//! A file on tmpfs may have fewer pages than bytes. The process that first touches a missing page allocates it, charged
//! to that process's memory cgroup. So a client could have the switch pay for its memory, up to being killed for it.
//! Honest clients have missing pages too: those of a guest that has not used all of its memory. So first touches are
//! allowed up to a limit.
//!
//! The kernel reports missing pages through a userfaultfd: a thread that touches one gets SIGBUS, and the handler
//! (`fault.rs`) counts and allocates the page. A page that another process has allocated raises no signal. System calls
//! on the address of a missing page fail with `EFAULT`; touching it and repeating the call helps.
//!
//! Invariants:
//! - The count never exceeds its limit, whatever number of threads touch.
//! - [`Budget::allocate`], which runs in the handler, takes no lock and uses no heap; it changes `errno`.
//! - If the kernel refuses us a userfaultfd, nothing is counted, and [`FirstTouch::uncounted`] reports that.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::cgroup;

/// Default limit of one client: the process's allowed memory divided by this.
const DEFAULT_SHARE: u64 = 4;
/// Bytes allocated between two checks of the remaining memory.
const CHECKED_EVERY: u64 = 1 << 20;

/// Limit on allocations by first touches of one client's memory, and their count. Clones share both.
#[derive(Debug, Clone)]
pub struct FirstTouch(Arc<Budget>);

/// Reasons for allocating no more of a client's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The limit is used up.
    Limit,
    /// A memory cgroup of this process has less than an eighth of its limit left.
    Cgroup,
    /// The machine has less than a sixty-fourth of its memory left.
    Machine,
}

/// Limit and count of a [`FirstTouch`].
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    made: AtomicU64,
    /// 0, or 1 + index in [`REASONS`]; the first reason stays.
    exhausted: AtomicU8,
    uncounted: AtomicBool,
}

const REASONS: [Exhausted; 3] = [Exhausted::Limit, Exhausted::Cgroup, Exhausted::Machine];

/// Result of allocating a missing page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocated {
    /// The page exists now, or the access is worth another try.
    Yes,
    /// Refused by the budget, or impossible: beyond the file's end, or in a file system that is full.
    No,
}

impl FirstTouch {
    /// Allows `limit` bytes.
    pub fn new(limit: u64) -> FirstTouch {
        // Opened now, because the handler must not open them.
        cgroup::open();
        FirstTouch(Arc::new(Budget {
            limit,
            made: AtomicU64::new(0),
            exhausted: AtomicU8::new(0),
            uncounted: AtomicBool::new(false),
        }))
    }

    /// A quarter of the memory that this process may have, by its memory cgroup's limit or the machine's memory, in
    /// whole mebibytes.
    pub fn default_limit() -> u64 {
        let share = cgroup::allowed() / DEFAULT_SHARE;
        share - share % (1 << 20)
    }

    /// Largest number of bytes allocated.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// Number of bytes allocated. Bytes that the client has freed since count until the limit is reached.
    pub fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Reason for allocating no more, once that is the case. A region that then meets a missing page is
    /// [`faulted`](crate::Region::faulted).
    pub fn exhausted(&self) -> Option<Exhausted> {
        let place = self.0.exhausted.load(Ordering::Relaxed).checked_sub(1)?;
        REASONS.get(usize::from(place)).copied()
    }

    /// The error that prevents counting and enforcing the limit, if there is one.
    pub fn uncounted(&self) -> Option<std::io::Error> {
        let why = || watcher().err().unwrap_or(Errno::NOSYS).into();
        self.0.uncounted.load(Ordering::Relaxed).then(why)
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.0
    }

    /// Asks the kernel to report missing pages in a mapping of a file on tmpfs.
    pub(crate) fn watch(&self, start: usize, len: usize) {
        if !watcher().is_ok_and(|watcher| register(watcher, start, len)) {
            self.0.uncounted.store(true, Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// Allocates the missing page at address `page`.
    pub(crate) fn allocate(&self, page: usize, size: usize) -> Allocated {
        let Ok(watcher) = watcher() else { return Allocated::No };
        let bytes = size as u64;
        if self.exhausted.load(Ordering::Relaxed) != 0 {
            return Allocated::No;
        }
        let counted = self.count(bytes) || self.recount(bytes) && self.count(bytes);
        if !counted {
            return self.exhaust(Exhausted::Limit);
        }
        if let Some(shortage) = shortage_of(bytes) {
            self.uncount(bytes);
            return self.exhaust(shortage);
        }
        match zero_page(watcher, page, size) {
            Ok(()) => return Allocated::Yes,
            // Another thread has allocated it; or the address space was being changed.
            Err(libc::EEXIST | libc::EAGAIN) => {
                self.uncount(bytes);
                return Allocated::Yes;
            }
            Err(_) => self.uncount(bytes),
        }
        // Beyond the end of the file, or in a huge page that another process has just allocated; the kernel's answer
        // does not tell them apart.
        if populate(page, size) { Allocated::Yes } else { Allocated::No }
    }

    fn count(&self, bytes: u64) -> bool {
        let more = |made: u64| made.checked_add(bytes).filter(|made| *made <= self.limit);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn uncount(&self, bytes: u64) {
        // A recount may have removed it already.
        let less = |made: u64| Some(made.saturating_sub(bytes));
        let _ = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        TOTAL.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes from the count pages that the client must have freed: at most all shared memory charged to this process
    /// can exist. Returns whether that gave room for `bytes` and an eighth of the limit, so that it is rare.
    #[cold]
    fn recount(&self, bytes: u64) -> bool {
        let Some(charged) = cgroup::shared_memory() else { return false };
        if charged.saturating_add(self.limit / 8).saturating_add(bytes) > self.limit {
            return false;
        }
        self.made.fetch_min(charged, Ordering::Relaxed);
        true
    }

    #[cold]
    fn exhaust(&self, why: Exhausted) -> Allocated {
        let place = REASONS.iter().position(|reason| *reason == why).unwrap_or_default() as u8;
        // Fails if a reason is set already.
        let _ = self.exhausted.compare_exchange(0, place + 1, Ordering::Relaxed, Ordering::Relaxed);
        Allocated::No
    }
}

/// Bytes allocated for all clients.
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Counts `bytes` for all clients. At intervals, checks for a shortage of memory and returns it.
fn shortage_of(bytes: u64) -> Option<Exhausted> {
    let before = TOTAL.fetch_add(bytes, Ordering::Relaxed);
    // A caller that finds a shortage takes its count back, so that the next one checks again.
    let look = before / CHECKED_EVERY != before.wrapping_add(bytes) / CHECKED_EVERY;
    look.then(cgroup::shortage).flatten()
}

// linux/userfaultfd.h: request numbers are the same on all 64-bit architectures with the generic encoding.
const UFFD_USER_MODE_ONLY: u32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFD_FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFDIO_ZEROPAGE_MODE_DONTWAKE: u64 = 1;
/// Flag in the answer to [`UFFDIO_REGISTER`]: the range supports [`UFFDIO_ZEROPAGE`].
const CAN_ZEROPAGE: u64 = 1 << 4;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` and `struct uffdio_zeropage`.
#[repr(C)]
struct OnRange {
    start: u64,
    len: u64,
    mode: u64,
    /// Supported operations, or number of bytes allocated.
    answer: u64,
}

/// The userfaultfd that reports missing pages, one per process, for all mappings.
fn watcher() -> Result<&'static OwnedFd, Errno> {
    static WATCHER: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    // Called before any mapping is registered, so the handler only reads it.
    WATCHER.get_or_init(open_watcher).as_ref().map_err(|errno| *errno)
}

fn open_watcher() -> Result<OwnedFd, Errno> {
    // User mode only: that needs no privilege. The kernel itself cannot wait for us either way.
    let flags = UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY) | UserfaultfdFlags::CLOEXEC;
    // SAFETY: nothing is registered before `register`.
    let watcher = unsafe { userfaultfd(flags) }?;
    let features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_SIGBUS;
    let mut api = Api { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: UFFDIO_API reads and writes an `uffdio_api`.
    unsafe { request(&watcher, UFFDIO_API, &raw mut api) }.map_err(Errno::from_raw_os_error).map(|()| watcher)
}

/// Registers the range; returns whether its missing pages are reported from now on.
fn register(watcher: &OwnedFd, start: usize, len: usize) -> bool {
    let mut range =
        OnRange { start: start as u64, len: len as u64, mode: UFFDIO_REGISTER_MODE_MISSING, answer: 0 };
    // SAFETY: UFFDIO_REGISTER reads and writes an `uffdio_register`. The range is a mapping of ours.
    let registered = unsafe { request(watcher, UFFDIO_REGISTER, &raw mut range) };
    registered.is_ok() && range.answer & CAN_ZEROPAGE != 0
}

/// Allocates a page of zeros if it is missing. Fails with the error number.
fn zero_page(watcher: &OwnedFd, page: usize, size: usize) -> Result<(), c_int> {
    let (start, len) = (page as u64, size as u64);
    let mut range = OnRange { start, len, mode: UFFDIO_ZEROPAGE_MODE_DONTWAKE, answer: 0 };
    // SAFETY: UFFDIO_ZEROPAGE reads and writes an `uffdio_zeropage`. It changes no existing page.
    unsafe { request(watcher, UFFDIO_ZEROPAGE, &raw mut range) }
}

/// Maps a page that exists in the file. Returns false if it does not.
fn populate(page: usize, size: usize) -> bool {
    // SAFETY: it changes no content.
    unsafe { libc::madvise(page as *mut c_void, size, libc::MADV_POPULATE_READ) == 0 }
}

/// # Safety
/// `argument` has the type that `operation` takes.
unsafe fn request<T>(watcher: &OwnedFd, operation: u64, argument: *mut T) -> Result<(), c_int> {
    // SAFETY: by the caller's promise.
    if unsafe { libc::ioctl(watcher.as_raw_fd(), operation as libc::Ioctl, argument) } == 0 {
        return Ok(());
    }
    // SAFETY: errno is a valid thread-local.
    Err(unsafe { *libc::__errno_location() })
}
