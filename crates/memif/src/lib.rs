//! The memif protocol, version 2.0: packets through shared memory between two processes.
//!
//! The *client* ("slave" in older texts) owns the memory: it makes the files that hold rings and buffers and passes
//! them over a Unix socket to the *server* ("master"). A ring in direction *S2M* carries packets from client to server,
//! a ring in direction *M2S* from server to client. Either side may poll its rings, or sleep on the eventfd of each.
//!
//! Layers, each usable without the ones below it in this list:
//! - [`message`]: the control messages and their 128-byte encoding.
//! - [`socket`]: addresses, listening, and sending and receiving one message with a descriptor.
//! - [`memory`], [`ring`]: the shared memory: regions, rings, descriptors.
//! - [`server`]: the server's side of the handshake, without I/O. It trusts nothing that the client sends.
//! - [`client`]: the client's side: the handshake without I/O, a connection driven by an event loop, and queues for
//!   tools that send and receive packets.
//!
//! Invariants:
//! - Nothing that a peer sends or writes to shared memory leads to a panic or to an access outside the regions.
//! - Shared memory is accessed by atomics and raw copies only; no reference to it exists.

#[cfg(target_endian = "big")]
compile_error!("memif's shared structures are little-endian and this crate accesses them natively");

pub mod client;
mod connection;
pub mod memory;
pub mod message;
pub mod ring;
pub mod server;
pub mod socket;

pub use connection::{Connection, RingParts};
pub use memory::Memory;
pub use message::{Message, Secret};
pub use ring::{Descriptor, Ring};
