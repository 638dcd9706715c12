//! A port of the switch as a device of smoltcp.
//!
//! | module       | port                                         |
//! |--------------|----------------------------------------------|
//! | `memif`      | memif, as the side that connects             |
//! | `vhost_user` | vhost-user, as the driver in a virtual machine |
//!
//! Invariants: packets go out with [`Port::flush`] at the latest; while the stack works, the switch sends no
//! interrupts.

mod memif;
mod vhost_user;

use std::io;
use std::path::Path;
use std::time::Duration;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Largest IP packet. The port has no offloads, so the switch cuts longer segments for it.
const MTU: usize = 1500;
const ETHERNET_HEADER: usize = 14;
/// Shortest Ethernet frame without its checksum (IEEE 802.3 §3.2.8).
const SHORTEST: usize = 60;

/// The rings of a port. After an error the port is of no use.
trait Rings {
    /// Takes the next received packet into `frame`; returns false without one.
    fn pop(&mut self, frame: &mut Vec<u8>) -> io::Result<bool>;

    /// Whether [`Rings::push`] takes a packet; the switch may have to be told of earlier ones first.
    fn has_room(&mut self) -> io::Result<bool>;

    /// Writes a packet, for which there is room.
    fn push(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Passes written packets to the switch, and gives read buffers back to it.
    fn flush(&mut self) -> io::Result<()>;

    /// Waits for packets, for at most `limit`; fails if the switch has closed the connection.
    fn sleep(&mut self, limit: Duration) -> io::Result<()>;
}

/// The port, connected to the switch.
pub(crate) struct Port {
    rings: Box<dyn Rings>,
    /// Buffers of frames, used again and again.
    received: Vec<u8>,
    sent: Vec<u8>,
    /// Why the port is of no use any more: smoltcp does not ask.
    failure: Option<io::Error>,
}

impl Port {
    /// Connects to the memif port with this socket and number.
    pub(crate) fn memif(socket: &str, id: u32) -> io::Result<Self> {
        Ok(Self::new(memif::Memif::connect(socket, id)?))
    }

    /// Connects to the vhost-user port with this socket.
    pub(crate) fn vhost_user(socket: &Path) -> io::Result<Self> {
        Ok(Self::new(vhost_user::VhostUser::connect(socket)?))
    }

    fn new(rings: impl Rings + 'static) -> Self {
        Self { rings: Box::new(rings), received: Vec::new(), sent: Vec::new(), failure: None }
    }

    /// Passes written packets to the switch, and gives read buffers back to it; reports earlier errors.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.failure.take().map_or_else(|| self.rings.flush(), Err)
    }

    /// Waits for packets, for at most `limit`; fails if the switch has closed the connection.
    pub(crate) fn sleep(&mut self, limit: Duration) -> io::Result<()> {
        self.rings.sleep(limit)
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.rings.has_room();
        note(has_room, &mut self.failure)
    }
}

/// The result of an operation; false, and the error kept, if it has failed.
fn note(result: io::Result<bool>, failure: &mut Option<io::Error>) -> bool {
    result.unwrap_or_else(|error| {
        *failure = Some(error);
        false
    })
}

impl Device for Port {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sender<'_>)> {
        if !self.has_room() {
            return None;
        }
        let Self { rings, received, sent, failure } = self;
        let has_packet = note(rings.pop(received), failure);
        has_packet.then_some((Received(received), Sender { rings: rings.as_mut(), frame: sent, failure }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        let has_room = self.has_room();
        let Self { rings, sent, failure, .. } = self;
        has_room.then_some(Sender { rings: rings.as_mut(), frame: sent, failure })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU + ETHERNET_HEADER;
        capabilities
    }
}

/// A received frame.
pub(crate) struct Received<'a>(&'a mut Vec<u8>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Permission to send one frame.
pub(crate) struct Sender<'a> {
    rings: &'a mut dyn Rings,
    frame: &'a mut Vec<u8>,
    failure: &'a mut Option<io::Error>,
}

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        self.frame.clear();
        self.frame.resize(length.max(SHORTEST), 0);
        let result = write(self.frame.get_mut(..length).unwrap_or_default());
        if let Err(error) = self.rings.push(self.frame) {
            *self.failure = Some(error);
        }
        result
    }
}
