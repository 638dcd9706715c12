//! Memory that a hostile client shares with us.
//!
//! A client of a ring port (memif, vhost-user) hands over a file and the switch maps it. From then on the client
//! may write to the memory at any moment, and may shrink the file or punch holes into it. This crate makes that
//! survivable and nothing more: it knows no protocol.
//!
//! Invariants:
//! - Only files whose page faults cannot block for ever are mapped: tmpfs (which memfd is) and hugetlbfs.
//! - No address outside a mapping is ever handed out: [`Region::at`] checks offset and length.
//! - Touching a mapping never kills the process: when the file behind it is gone, the fault handler puts private zeros
//!   in the place of the page and of what is around it, the access completes on them and [`Region::faulted`] turns true
//!   for good. What a fault costs does not depend on the size of the mapping.
//! - Pages that a client's file does not have yet are allocated up to a limit ([`FirstTouch`]).
//! - Descriptors of clients are closed where nobody waits ([`ClientFd`]).
//! - No `&` or `&mut` to shared memory exists: users get raw pointers, and read what they check once.
//!
//! A system call that is given a pointer into a region whose file has shrunk, or has no page there yet, fails with
//! `EFAULT` and raises no signal, so [`Region::faulted`] does not report it.

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
