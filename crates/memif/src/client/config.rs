//! Configuration of a client.
//!
//! Invariant: these are requests; the server may grant fewer and smaller rings. [`Layout`](super::Layout) has the
//! granted numbers.

use std::time::Duration;

use clientmem::Closer;

use crate::message::Secret;
use crate::socket::Address;

/// Server and interface to connect to, and the resources to request.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The server's address.
    pub socket: Address,
    /// The interface's number on that socket.
    pub id: u32,
    /// The interface's secret.
    pub secret: Option<Secret>,
    /// The program name sent to the server.
    pub name: String,
    /// The interface name sent to the server.
    pub if_name: String,
    /// Number of rings to the server.
    pub tx_queues: u16,
    /// Number of rings from the server.
    pub rx_queues: u16,
    /// The number of descriptors in each ring, as a power of two.
    pub log2_ring_size: u8,
    /// The size of each buffer in bytes.
    pub buffer_size: u32,
    /// Time allowed for [`Client::connect`](super::Client::connect).
    pub timeout: Duration,
    /// Closes the connection and any descriptors that the server sends by mistake.
    pub closer: Closer,
}

impl ClientConfig {
    /// Returns a configuration with one ring each way, 1024 buffers of 2048 bytes, no secret and a timeout of 5
    /// seconds.
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
