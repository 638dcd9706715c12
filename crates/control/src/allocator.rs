//! The allocator's settings: memory that clients made the daemon use goes back to the kernel when they leave.

/// Blocks of at least this size, in bytes, have a mapping of their own, which is unmapped when they are freed. The rings
/// of clients are larger.
#[cfg(target_env = "gnu")]
const MAPPED: i32 = 128 << 10;

/// Makes freed memory go back to the kernel. To be called before other threads start.
///
/// By default glibc raises the threshold to the largest block freed so far, up to 32 MiB. Blocks below it lie in arenas,
/// and an arena keeps all that lies below its last block in use: 20 MiB after a client with many long rings.
pub(crate) fn configure() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call only sets a parameter of the allocator; no other thread runs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
    }
}
