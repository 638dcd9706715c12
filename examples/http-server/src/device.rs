//! A memif port as a device of smoltcp.
//!
//! Invariants: packets go out with [`Port::flush`] at the latest; while the stack works, the switch sends no
//! interrupts.

use std::io;
use std::time::Duration;

use memif::client::{Client, RxQueue, TxQueue};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Largest IP packet. The port has no offloads, so the switch cuts longer segments for it.
const MTU: usize = 1500;
const ETHERNET_HEADER: usize = 14;
/// Shortest Ethernet frame without its checksum (IEEE 802.3 §3.2.8).
const SHORTEST: usize = 60;

/// The port, connected to the switch.
pub(crate) struct Port {
    client: Client,
    /// Buffers of frames, used again and again.
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Port {
    pub(crate) fn new(client: Client) -> Self {
        let mut port = Self { client, received: Vec::new(), sent: Vec::new() };
        port.interrupts(false);
        port
    }

    fn queues(&mut self) -> (Option<&mut TxQueue>, Option<&mut RxQueue>) {
        (self.client.tx.first_mut(), self.client.rx.first_mut())
    }

    /// Passes written packets to the switch, and gives read buffers back to it.
    pub(crate) fn flush(&mut self) {
        let (tx, rx) = self.queues();
        tx.map(|tx| tx.flush());
        rx.into_iter().for_each(RxQueue::refill);
    }

    /// Waits for packets, for at most `limit`; fails if the switch has closed the connection.
    pub(crate) fn sleep(&mut self, limit: Duration) -> io::Result<()> {
        if let Some(reason) = self.client.poll_disconnect() {
            return Err(io::Error::other(format!("the switch closed the port: {reason}")));
        }
        // Interrupts come on before the last look at the ring, so that none is missed.
        self.interrupts(true);
        if let (_, Some(rx)) = self.queues() {
            let is_empty = rx.ring().tail() == rx.ring().head().wrapping_sub(rx.ring().size());
            if is_empty {
                rx.wait(limit)?;
            }
            rx.clear_event()?;
        }
        self.interrupts(false);
        Ok(())
    }

    /// Returns whether the ring takes a packet; the switch may have to be told of those in it first.
    fn has_room(&mut self) -> bool {
        let Some(tx) = self.client.tx.first_mut() else { return false };
        if tx.free_slots() == 0 {
            tx.flush();
        }
        tx.free_slots() > 0
    }

    fn interrupts(&mut self, on: bool) {
        if let (_, Some(rx)) = self.queues() {
            rx.set_interrupts(on);
        }
    }
}

impl Device for Port {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sender<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sender<'_>)> {
        if !self.has_room() {
            return None;
        }
        let Self { client, received, sent } = self;
        let has_packet = client.rx.first_mut().is_some_and(|rx| rx.pop(received));
        has_packet.then_some((Received(received), Sender { queue: client.tx.first_mut(), frame: sent }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sender<'_>> {
        let has_room = self.has_room();
        has_room.then_some(Sender { queue: self.client.tx.first_mut(), frame: &mut self.sent })
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
    queue: Option<&'a mut TxQueue>,
    frame: &'a mut Vec<u8>,
}

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        self.frame.clear();
        self.frame.resize(length.max(SHORTEST), 0);
        let result = write(self.frame.get_mut(..length).unwrap_or_default());
        if let Some(queue) = self.queue {
            // There is room: without any, the stack is not asked.
            queue.push(&[self.frame]);
        }
        result
    }
}
