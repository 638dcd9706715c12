//! What touching a client's memory first may allocate.
//!
//! A file on tmpfs may have fewer pages than bytes, and whoever touches a missing page first allocates it, charged to the
//! memory cgroup of that process. So a client could have the switch pay for its memory, up to being killed for it. Honest
//! clients have missing pages too: those of a guest that has not used all of its memory. So touching is allowed up to a
//! limit.
//!
//! The kernel tells of missing pages through a userfaultfd: a thread that touches one gets SIGBUS, and the handler
//! (`fault.rs`) counts and makes the page. A page that somebody else has made comes without a signal. System calls
//! that are given an address of a missing page fail with `EFAULT`; touching it and repeating the call helps.
//!
//! Invariants:
//! - What is counted for a limit never exceeds it, whatever number of threads touch.
//! - [`Budget::make`], which runs in the handler, takes no lock and allocates nothing; it changes `errno`.
//! - Where the kernel has no userfaultfd for us, nothing is counted, and [`FirstTouch::uncounted`] says so.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use crate::cgroup;

/// The share of what the switch may have that the memory of one client may be by default.
const DEFAULT_SHARE: u64 = 4;
/// How many bytes are made between two looks at what memory is left.
const CHECKED_EVERY: u64 = 1 << 20;

/// A limit on what is allocated by touching one client's memory first, and what was. Clones share both.
#[derive(Debug, Clone)]
pub struct FirstTouch(Arc<Budget>);

/// Why no more of a client's memory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// As much as the limit was allocated.
    Limit,
    /// A memory cgroup of this process has less than an eighth of its limit left.
    Cgroup,
    /// The machine has less than a sixty-fourth of its memory left.
    Machine,
}

/// See [`FirstTouch`].
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    made: AtomicU64,
    /// 0, or 1 more than the place in [`REASONS`]; the first reason stays.
    exhausted: AtomicU8,
    uncounted: AtomicBool,
}

const REASONS: [Exhausted; 3] = [Exhausted::Limit, Exhausted::Cgroup, Exhausted::Machine];

/// What became of a missing page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// It is there now, or worth another try.
    Yes,
    /// It cannot be had: none is beyond the file's end, or in a file system that is full; or it must not be made.
    No,
}

impl FirstTouch {
    /// Allows `limit` bytes.
    pub fn new(limit: u64) -> FirstTouch {
        // The handler must not be the first to ask.
        cgroup::open();
        FirstTouch(Arc::new(Budget {
            limit,
            made: AtomicU64::new(0),
            exhausted: AtomicU8::new(0),
            uncounted: AtomicBool::new(false),
        }))
    }

    /// A quarter of the memory that this process may have, of its memory cgroup's limit or of what the machine has, in
    /// whole mebibytes.
    pub fn default_limit() -> u64 {
        let share = cgroup::allowed() / DEFAULT_SHARE;
        share - share % (1 << 20)
    }

    /// How many bytes may be allocated.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// How many bytes were allocated. Those that the client has freed since count until the limit is reached.
    pub fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }

    /// Why no more is allocated, once that is so. Regions in which a page was missing after that are
    /// [`faulted`](crate::Region::faulted).
    pub fn exhausted(&self) -> Option<Exhausted> {
        let place = self.0.exhausted.load(Ordering::Relaxed).checked_sub(1)?;
        REASONS.get(usize::from(place)).copied()
    }

    /// Why nothing is counted and the limit does not hold, if that is so.
    pub fn uncounted(&self) -> Option<std::io::Error> {
        let why = || watcher().err().unwrap_or(Errno::NOSYS).into();
        self.0.uncounted.load(Ordering::Relaxed).then(why)
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.0
    }

    /// Has the kernel tell of missing pages in a mapping of a file on tmpfs.
    pub(crate) fn watch(&self, start: usize, len: usize) {
        if !watcher().is_ok_and(|watcher| register(watcher, start, len)) {
            self.0.uncounted.store(true, Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// Makes the page at the address `page`, which is missing.
    pub(crate) fn make(&self, page: usize, size: usize) -> Made {
        let Ok(watcher) = watcher() else { return Made::No };
        let bytes = size as u64;
        if self.exhausted.load(Ordering::Relaxed) != 0 {
            return Made::No;
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
            Ok(()) => return Made::Yes,
            // Somebody else has made it; the address space was being changed.
            Err(libc::EEXIST | libc::EAGAIN) => {
                self.uncount(bytes);
                return Made::Yes;
            }
            Err(_) => self.uncount(bytes),
        }
        // Beyond the end of the file, or in a huge page that somebody else has made just now, which the kernel does not tell
        // apart.
        if populate(page, size) { Made::Yes } else { Made::No }
    }

    fn count(&self, bytes: u64) -> bool {
        let more = |made: u64| made.checked_add(bytes).filter(|made| *made <= self.limit);
        self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn uncount(&self, bytes: u64) {
        // A recount may have left it out already.
        let less = |made: u64| Some(made.saturating_sub(bytes));
        let _ = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        TOTAL.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Leaves out of the count what the client must have freed: no more can be there than all shared memory that is charged
    /// to this process. Returns whether that gave room for `bytes` and an eighth of the limit, so that it is rare.
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
    fn exhaust(&self, why: Exhausted) -> Made {
        let place = REASONS.iter().position(|reason| *reason == why).unwrap_or_default() as u8;
        // Fails where it has been exhausted before.
        let _ = self.exhausted.compare_exchange(0, place + 1, Ordering::Relaxed, Ordering::Relaxed);
        Made::No
    }
}

/// Bytes made for all clients.
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Counts `bytes` for all clients. What memory is short of, which is looked at now and then, if it is.
fn shortage_of(bytes: u64) -> Option<Exhausted> {
    let before = TOTAL.fetch_add(bytes, Ordering::Relaxed);
    // Whoever finds a shortage takes the count back, so that the next one looks again.
    let look = before / CHECKED_EVERY != before.wrapping_add(bytes) / CHECKED_EVERY;
    look.then(cgroup::shortage).flatten()
}

// linux/userfaultfd.h: the numbers of the requests are the same on all 64-bit architectures with the generic encoding.
const UFFD_USER_MODE_ONLY: u32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFD_FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFDIO_ZEROPAGE_MODE_DONTWAKE: u64 = 1;
/// In the answer to [`UFFDIO_REGISTER`]: [`UFFDIO_ZEROPAGE`] is possible there.
const CAN_ZEROPAGE: u64 = 1 << 4;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` and `struct uffdio_zeropage` alike.
#[repr(C)]
struct OnRange {
    start: u64,
    len: u64,
    mode: u64,
    /// What is possible, or how many bytes were made.
    answer: u64,
}

/// What missing pages are told through: of the process, for all mappings.
fn watcher() -> Result<&'static OwnedFd, Errno> {
    static WATCHER: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    // Called before any mapping is watched, so in the handler it only reads.
    WATCHER.get_or_init(open_watcher).as_ref().map_err(|errno| *errno)
}

fn open_watcher() -> Result<OwnedFd, Errno> {
    // User mode only: that needs no privilege. The kernel itself cannot wait for us either way.
    let flags = UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY) | UserfaultfdFlags::CLOEXEC;
    // SAFETY: nothing is watched before `register`.
    let watcher = unsafe { userfaultfd(flags) }?;
    let features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_SIGBUS;
    let mut api = Api { api: UFFD_API, features, ioctls: 0 };
    // SAFETY: UFFDIO_API reads and writes an `uffdio_api`.
    unsafe { request(&watcher, UFFDIO_API, &raw mut api) }.map_err(Errno::from_raw_os_error).map(|()| watcher)
}

/// Whether missing pages in the range are told of from now on.
fn register(watcher: &OwnedFd, start: usize, len: usize) -> bool {
    let mut range =
        OnRange { start: start as u64, len: len as u64, mode: UFFDIO_REGISTER_MODE_MISSING, answer: 0 };
    // SAFETY: UFFDIO_REGISTER reads and writes an `uffdio_register`. The range is a mapping of ours.
    let registered = unsafe { request(watcher, UFFDIO_REGISTER, &raw mut range) };
    registered.is_ok() && range.answer & CAN_ZEROPAGE != 0
}

/// Makes a page of zeros where there is none. Says why not by number.
fn zero_page(watcher: &OwnedFd, page: usize, size: usize) -> Result<(), c_int> {
    let (start, len) = (page as u64, size as u64);
    let mut range = OnRange { start, len, mode: UFFDIO_ZEROPAGE_MODE_DONTWAKE, answer: 0 };
    // SAFETY: UFFDIO_ZEROPAGE reads and writes an `uffdio_zeropage`. It changes no page that is there.
    unsafe { request(watcher, UFFDIO_ZEROPAGE, &raw mut range) }
}

/// Maps a page that is in the file. False if none is.
fn populate(page: usize, size: usize) -> bool {
    // SAFETY: it changes no content, whatever is there.
    unsafe { libc::madvise(page as *mut c_void, size, libc::MADV_POPULATE_READ) == 0 }
}

/// # Safety
/// `argument` is what `operation` takes.
unsafe fn request<T>(watcher: &OwnedFd, operation: u64, argument: *mut T) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    if unsafe { libc::ioctl(watcher.as_raw_fd(), operation as libc::Ioctl, argument) } == 0 {
        return Ok(());
    }
    // SAFETY: errno is a valid thread-local.
    Err(unsafe { *libc::__errno_location() })
}
