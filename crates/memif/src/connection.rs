//! Result of a completed handshake, in either role.
//!
//! Invariant: every ring lies in `memory` and carries the cookie; every `eventfd` is an eventfd.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::memory::Memory;
use crate::ring::Ring;

/// An established connection: memory, rings and names.
///
/// A server's connection may lack rings in one direction, but has at least one in all.
#[derive(Debug)]
pub struct Connection {
    /// The interface's number on the socket.
    pub id: u32,
    /// The client's memory.
    pub memory: Arc<Memory>,
    /// The rings from client to server, by index.
    pub s2m: Vec<RingParts>,
    /// The rings from server to client, by index.
    pub m2s: Vec<RingParts>,
    /// The name of the peer's program.
    pub peer_name: String,
    /// The peer's name for its interface.
    pub peer_if_name: String,
}

/// A ring and the eventfd by which its producer wakes its consumer.
#[derive(Debug)]
pub struct RingParts {
    /// The ring.
    pub ring: Ring,
    /// The ring's eventfd. The client made it, and decides at any moment whether writing to it blocks.
    pub eventfd: OwnedFd,
}
