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
