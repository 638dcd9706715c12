//! vhost-user: access to the memory of a virtual machine, and to the virtqueues in it, from another process.
//!
//! The *front-end* owns the memory: QEMU and other virtual machine monitors, or a program without a guest that contains
//! the driver itself (DPDK's virtio-user). It passes files of that memory over a Unix socket to the *back-end*. The
//! *driver* in the guest and the *device* in the back-end then exchange buffers through *virtqueues* (virtio 1.2 §2.6
//! to §2.8). Each side may poll, or sleep on an eventfd.
//!
//! Layers, each usable without the ones below it in this list:
//! - [`memory`]: the table of memory regions, and translation of guest addresses to addresses of this process.
//! - [`dirty_log`]: the log of written pages for live migration.
//! - [`virtqueue`]: the device's side of one virtqueue, split or packed.
//! - `driver`: the driver's side, for tests and tools (feature `frontend`).
//! - [`message`], [`features`]: the messages between front-end and back-end, and the feature bits that they negotiate.
//! - [`socket`]: listening, connecting, and reassembling messages from a byte stream.
//! - [`session`]: the back-end's side of a connection, without I/O. It trusts nothing that the front-end sends.
//! - `frontend`: the front-end's side, for tests and tools (feature `frontend`).
//!
//! Invariants:
//! - Nothing that a peer sends or writes to shared memory leads to a panic, to an endless loop, or to an access outside
//!   the regions.
//! - Shared memory is accessed by atomics, volatile loads and raw copies only; no reference to its content exists.
//!   Every checked value is read once.
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
