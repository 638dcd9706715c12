//! What a client asks for.
//!
//! Invariant: plain wishes; the server may grant fewer and smaller rings, and [`Layout`](super::Layout) has the
//! numbers that came out.

use std::time::Duration;

use clientmem::Closer;

use crate::message::Secret;
use crate::socket::Address;

/// Which server and interface to connect to, and with what.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Where the server listens.
    pub socket: Address,
    /// The interface's number on that socket.
    pub id: u32,
    /// The interface's secret.
    pub secret: Option<Secret>,
    /// The program name that the server is told.
    pub name: String,
    /// The interface name that the server is told.
    pub if_name: String,
    /// How many rings to the server.
    pub tx_queues: u16,
    /// How many rings from the server.
    pub rx_queues: u16,
    /// The number of descriptors in each ring, as a power of two.
    pub log2_ring_size: u8,
    /// The size of each buffer in bytes.
    pub buffer_size: u32,
    /// How long [`Client::connect`](super::Client::connect) may take.
    pub timeout: Duration,
    /// What closes the connection and the descriptors that the server should not send.
    pub closer: Closer,
}

impl ClientConfig {
    /// One ring each way with 1024 buffers of 2048 bytes, no secret, 5 seconds.
    pub fn new(socket: Address, id: u32) -> ClientConfig {
        ClientConfig {
            socket,
            id,
            secret: None,
            name: "memif-client".to_string(),
            if_name: format!("memif{id}"),
            tx_queues: 1,
            rx_queues: 1,
            log2_ring_size: 10,
            buffer_size: 2048,
            timeout: Duration::from_secs(5),
            closer: Closer::default(),
        }
    }
}
