//! Executable memory, for compilers.
//!
//! Invariants:
//! - a mapping is either writable or executable, never both: it is filled while private to [`Executable::new`], then
//!   made readable and executable for the rest of its life;
//! - nothing outside this crate learns the address before the mapping is executable;
//! - the mapping is freed when its owner is dropped: code must not run longer than that.

use std::ffi::c_void;
use std::io;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Machine code in memory of its own.
#[derive(Debug)]
pub struct Executable {
    start: *mut c_void,
    len: usize,
}

// SAFETY: after `new`, the mapping is only read and executed, which any number of threads may do at once.
unsafe impl Send for Executable {}
// SAFETY: as above.
unsafe impl Sync for Executable {}

impl Executable {
    /// Copies code into executable memory.
    ///
    /// # Errors
    /// The system's reason for refusing the mapping or its protection.
    pub fn new(code: &[u8]) -> io::Result<Self> {
        let len = code.len().max(1).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        // From here on, dropping it unmaps.
        let memory = Self { start, len };
        // SAFETY: the mapping has at least `code.len()` bytes, is writable and known to nobody else.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), start.cast(), code.len()) };
        // SAFETY: the range is this mapping; no Rust reference into it exists.
        unsafe { mprotect(start, len, MprotectFlags::READ | MprotectFlags::EXEC) }?;
        Ok(memory)
    }

    /// Address of an offset.
    pub fn at(&self, offset: usize) -> *const u8 {
        debug_assert!(offset < self.len, "offset beyond the code");
        self.start.cast::<u8>().cast_const().wrapping_add(offset)
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped; never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once; whoever calls into it keeps its owner alive.
        let unmapped = unsafe { munmap(self.start, self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own is unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_never_writable_and_executable() {
        let memory = Executable::new(&[0xc3]).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", memory.at(0) as usize);
        let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
        assert_eq!(line.split(' ').nth(1), Some("r-xp"), "{line}");
        assert!(maps.lines().all(|line| !line.contains("rwx")));
    }
}
