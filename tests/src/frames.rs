//! Single frames: a memif client that sends frames of a test and returns the frames that arrive.

use std::time::Duration;

use bench::port::{Client, Rings};

use crate::{Daemon, Error, Result, until};

/// A memif client that sends a packet and waits until the switch has returned its buffer, after delivery.
pub struct Sender {
    client: Box<dyn Client>,
}

impl Sender {
    /// Connects to port `id` of the daemon's socket `memif`.
    pub fn connect(daemon: &Daemon, id: u32) -> Result<Sender> {
        let client = bench::port::connect(&daemon.memif("memif", id), Rings::default())?;
        Ok(Sender { client })
    }

    /// Sends a packet and returns after its delivery.
    pub fn send(&mut self, packet: &[u8]) -> Result<()> {
        self.post(packet)?;
        let done = || Ok((self.client.unsent() == 0).then_some(()));
        until("the switch to return a packet's buffer", Duration::from_secs(20), done)
    }

    /// Sends a packet and returns at once.
    pub fn post(&mut self, packet: &[u8]) -> Result<()> {
        if !self.client.push(0, &[packet]) {
            return Err(Error::new("no room for a packet"));
        }
        self.client.flush(0);
        Ok(())
    }

    /// Packets received since the last call.
    pub fn received(&mut self) -> Vec<Vec<u8>> {
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        while self.client.pop(0, &mut packet) {
            packets.push(packet.clone());
        }
        self.client.refill(0);
        packets
    }
}
