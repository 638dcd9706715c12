//! The rings without a socket or a switch around them: what fuzz targets drive (feature `fuzzing`).

use fabric::{RingBacking, RxQueue};
use memif::RingParts;
use memif::client::Layout;

use super::rings::{Client, Rx, Server, Tx};

/// Whose the memory is.
#[derive(Clone, Copy)]
pub enum Role {
    /// The peer's: we serve.
    Server,
    /// Ours, laid out so: we are the client, and this is our queue of that number.
    Client(Layout, u16),
}

/// The queue of packets from the peer.
pub fn rx(parts: RingParts, role: Role) -> Box<dyn RxQueue> {
    match role {
        Role::Server => Box::new(Rx::served(parts)),
        Role::Client(layout, queue) => Box::new(Rx::own(parts, Client(layout, queue))),
    }
}

/// What a [`fabric::TxRing`] of packets to a client is made of.
pub fn served_tx(parts: RingParts) -> (impl RingBacking<Own = (), Entry = ()>, u32) {
    Tx::new(parts, Server)
}

/// The same of packets to a server, in a queue of our own.
pub fn own_tx(parts: RingParts, layout: Layout, queue: u16) -> (impl RingBacking<Own = (), Entry = ()>, u32) {
    Tx::new(parts, Client(layout, queue))
}
