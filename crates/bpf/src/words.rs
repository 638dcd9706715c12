//! Memory of arrays that programs and this process share.

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The words of an array. They stay when the map's descriptors are gone.
#[derive(Debug)]
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomic, and the mapping belongs to no thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps the memory of an array of `count` words, whose values lie one behind the other.
    pub(crate) fn map(fd: BorrowedFd<'_>, count: usize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no other memory.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                count * size_of::<AtomicU64>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        let start = NonNull::new(start?.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, count })
    }
}

impl Words {
    /// The first word.
    pub fn first(&self) -> &AtomicU64 {
        // SAFETY: as in `deref`; there is one, for the kernel refuses to map nothing.
        unsafe { self.start.as_ref() }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, at a page's beginning, until it is dropped. Others change them, in the
        // kernel as here, by loads and stores of whole words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: `map` has mapped these bytes, and the words are borrowed from `self` alone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * size_of::<AtomicU64>()) };
    }
}
