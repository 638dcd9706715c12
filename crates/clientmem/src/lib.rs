//! Memory that a hostile client shares with us.
//!
//! A client of a ring port (memif, vhost-user) passes a file, which the switch maps. From then on the client may write
//! to the memory at any moment, and may shrink the file or punch holes into it. This crate makes that survivable and
//! does nothing more: it knows no protocol.
//!
//! Invariants:
//! - Only files whose page faults cannot block forever are mapped: tmpfs (including memfd) and hugetlbfs.
//! - No address outside a mapping is ever returned: [`Region::at`] checks offset and length.
//! - Touching a mapping never kills the process: when the file behind it is gone, the fault handler puts private zeros
//!   in place of the page and its surroundings, the access completes on them, and [`Region::faulted`] turns true for
//!   good. The cost of a fault does not depend on the size of the mapping.
//! - Missing pages of a client's file are allocated up to a limit ([`FirstTouch`]).
//! - Descriptors of clients are closed on threads that no other thread waits for ([`ClientFd`]).
//! - No `&` or `&mut` to shared memory exists: users get raw pointers, and read checked values once.
//!
//! A system call on a pointer into a region whose file has shrunk, or has no page there yet, fails with `EFAULT` and
//! raises no signal, so [`Region::faulted`] does not report it.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("clientmem needs 64-bit Linux: it maps regions of up to 1 TiB and handles Linux's SIGBUS");

mod cgroup;
mod closing;
mod fault;
mod first_touch;
mod kind;
mod region;
mod registry;

pub use closing::{ClientFd, Closer, Full, MOST_DESCRIPTORS, MOST_UNCLOSED};
pub use fault::install_fault_handler;
pub use first_touch::{Exhausted, FirstTouch};
pub use kind::is_eventfd;
pub use region::{MAX_REGION_SIZE, MapError, Region};
