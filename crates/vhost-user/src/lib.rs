//! vhost-user: the memory of a virtual machine, and the virtqueues in it, in a process of their own.
//!
//! One side, the *front-end*, owns the memory: QEMU and other virtual machine monitors, or a program that has none and
//! plays the driver itself (DPDK's virtio-user). It passes files of that memory to the other side, the *back-end*, over
//! a Unix socket. The *driver* in the guest and the *device* in the back-end then exchange buffers through *virtqueues*
//! (virtio 1.2 §2.6 to §2.8), and each may poll, or sleep on an eventfd.
//!
//! Layers, each usable without the ones below it in this list:
//! - [`memory`]: the table of memory regions, and the way from an address of the guest to one of this process.
//! - [`dirty_log`]: where a live migration is told what was written.
//! - [`virtqueue`]: the device's side of one virtqueue, split or packed.
//! - `driver`: the driver's side, for tests and tools (feature `frontend`).
//! - [`message`], [`features`]: what front-end and back-end say to each other.
//! - [`socket`]: listening, connecting, and whole messages out of a stream of bytes.
//! - [`session`]: the back-end's side of a connection, without I/O. It trusts nothing that the front-end says.
//! - `frontend`: the front-end's side, for tests and tools (feature `frontend`).
//!
//! Invariants:
//! - Nothing that a peer sends or writes to shared memory leads to a panic, to a loop without end, or to an access
//!   outside the regions.
//! - Shared memory is accessed by atomics, volatile loads and raw copies only; no reference to its content exists. What is
//!   checked is read once.
#![deny(missing_docs)]

#[cfg(target_endian = "big")]
compile_error!("virtqueues are little-endian and this crate accesses them natively");

pub mod dirty_log;
#[cfg(feature = "frontend")]
pub mod driver;
pub mod features;
#[cfg(feature = "frontend")]
pub mod frontend;
pub mod memory;
pub mod message;
pub mod session;
pub mod socket;
pub mod virtqueue;

pub use memory::{GuestMemory, MemoryError, RegionSpec};
pub use virtqueue::{Chain, QueueError, Segment, Virtqueue};
