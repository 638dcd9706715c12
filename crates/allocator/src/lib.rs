//! The memory allocator of the daemons: jemalloc, for a program that names this crate. Libraries in C keep their own.
//!
//! One thread of a control plane decodes requests that another one carries out, so most memory is freed by a different
//! thread than the one that allocated it, thousands of times for each request. Packets allocate nothing.
//!
//! # Invariant
//! Memory that clients made a daemon use does not stay in it: it goes back to the kernel as the daemon allocates and frees
//! further on.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// jemalloc's settings, a string of C. Two arenas: a process has few threads that allocate much, and each arena keeps
/// some memory. What has been free for a second goes back.
// SAFETY: jemalloc has a weak symbol of this name, a pointer to a string that ends with a zero; this one does.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static SETTINGS: &[u8; 47] = b"narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one of jemalloc's settings, of the type that its manual gives it.
    fn setting<T: Default>(name: &std::ffi::CStr) -> T {
        let (mut value, mut len) = (T::default(), size_of::<T>());
        let to = std::ptr::from_mut(&mut value).cast();
        // SAFETY: the name ends with a zero, and `to` has room for `len` bytes; nothing is set.
        let failed =
            unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), to, &raw mut len, std::ptr::null_mut(), 0) };
        assert_eq!((failed, len), (0, size_of::<T>()), "{name:?}");
        value
    }

    #[test]
    fn jemalloc_has_the_settings() {
        assert_eq!(SETTINGS.last(), Some(&0));
        assert_eq!(setting::<u32>(c"opt.narenas"), 2);
        assert_eq!(setting::<isize>(c"opt.dirty_decay_ms"), 1000);
        assert_eq!(setting::<isize>(c"opt.muzzy_decay_ms"), 0);
    }

    #[test]
    fn memory_comes_from_jemalloc() {
        let used = || setting::<u64>(c"thread.allocated");
        let before = used();
        let block = std::hint::black_box(vec![1u8; 1 << 20]);
        assert!(used() - before >= block.len() as u64);
    }
}
