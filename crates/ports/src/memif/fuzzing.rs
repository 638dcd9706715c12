//! The rings without a socket or a switch, for fuzz targets (feature `fuzzing`).

use fabric::{RingBacking, RxQueue};
use memif::RingParts;
use memif::client::Layout;

use super::rings::{Client, Rx, Server, Tx};

/// Owner of the memory.
#[derive(Clone, Copy)]
pub enum Role {
    /// The peer: the switch serves.
    Server,
    /// The switch, in this layout: it is the client, and this is the number of its queue.
    Client(Layout, u16),
}

/// Makes the queue of packets from the peer.
pub fn rx(parts: RingParts, role: Role) -> Box<dyn RxQueue> {
    match role {
        Role::Server => Box::new(Rx::served(parts)),
        Role::Client(layout, queue) => Box::new(Rx::own(parts, Client(layout, queue))),
    }
}

/// Makes the parts of a [`fabric::TxRing`] of packets to a client.
pub fn served_tx(parts: RingParts) -> (impl RingBacking<Own = (), Entry = ()>, u32) {
    Tx::new(parts, Server)
}

/// Makes the parts of a [`fabric::TxRing`] of packets to a server, in a queue of the switch's own.
pub fn own_tx(parts: RingParts, layout: Layout, queue: u16) -> (impl RingBacking<Own = (), Entry = ()>, u32) {
    Tx::new(parts, Client(layout, queue))
}
