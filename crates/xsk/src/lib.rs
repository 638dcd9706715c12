//! AF_XDP sockets (Linux, `Documentation/networking/af_xdp.rst`): packets between an interface's queue and memory of
//! this process, without the kernel's stack.
//!
//! - [`program`] is the XDP program that redirects packets to sockets, and its attachment to an interface;
//! - [`interfaces`] lists interfaces with sockets, for those who have other programs for them;
//! - [`socket`] opens a socket with its packet memory and rings;
//! - [`ring`] has the four kinds of ring;
//! - [`memory`] is the packet memory (UMEM), divided into frames;
//! - [`note`] is what other programs put in front of packets.
//!
//! The XDP program is a few instructions written here, so neither building nor running needs a compiler for BPF. It is
//! attached by a BPF link: program and link vanish with their descriptors, so nothing remains after a crash.
//!
//! Invariants: the kernel is trusted; rings are accessed by atomic operations only, and indices are masked. Who may use
//! a ring or a frame is the caller's business.

mod error;
pub mod interfaces;
pub mod memory;
pub mod note;
pub mod program;
pub mod ring;
pub mod socket;

pub use error::Error;
pub use interfaces::{Interface, Interfaces, Joined};
pub use memory::Memory;
pub use program::{Mode, Program};
pub use ring::{Completion, Descriptor, Fill, Rx, Tx};
pub use socket::{Config, Rings, Socket};
