//! The rings without a socket or a switch around them: what fuzz targets drive (feature `fuzzing`).

use fabric::{RingBacking, RxQueue};
use memif::RingParts;
use memif::client::Layout;

use super::rings::{Rx, Side, Tx};

/// Whose the memory is.
#[derive(Clone, Copy)]
pub enum Role {
    /// The peer's: we serve.
    Server,
    /// Ours, laid out so: we are the client, and this is our queue of that number.
    Client(Layout, u16),
}

impl Role {
    fn side(self) -> Side {
        match self {
            Role::Server => Side::Server,
            Role::Client(layout, queue) => Side::Client(layout, queue),
        }
    }
}

/// The queue of packets from the peer.
pub fn rx(parts: RingParts, role: Role) -> impl RxQueue {
    Rx::new(parts, role.side())
}

/// What a [`fabric::TxRing`] of packets to the peer is made of.
pub fn tx(parts: RingParts, role: Role) -> (impl RingBacking<Own = (), Entry = ()>, u32) {
    Tx::new(parts, role.side())
}
