//! Frames one by one: a memif client that sends what a test makes, and sees what arrives.

use std::time::Duration;

use bench::port::{Client, Rings};

use crate::{Daemon, Error, Result, until};

/// A memif client that sends a packet and waits until the switch has given the buffer back: then it was delivered.
pub struct Sender {
    client: Box<dyn Client>,
}

impl Sender {
    /// The client of port `id` of the daemon's socket `memif`.
    pub fn connect(daemon: &Daemon, id: u32) -> Result<Sender> {
        let client = bench::port::connect(&daemon.memif("memif", id), Rings::default())?;
        Ok(Sender { client })
    }

    /// Sends a packet, and returns when it was delivered.
    pub fn send(&mut self, packet: &[u8]) -> Result<()> {
        self.post(packet)?;
        let done = || Ok((self.client.unsent() == 0).then_some(()));
        until("the switch to be done with a packet", Duration::from_secs(20), done)
    }

    /// Sends a packet, and returns at once.
    pub fn post(&mut self, packet: &[u8]) -> Result<()> {
        if !self.client.push(0, &[packet]) {
            return Err(Error::new("there is no room for a packet"));
        }
        self.client.flush(0);
        Ok(())
    }

    /// What has arrived since it was asked last.
    pub fn received(&mut self) -> Vec<Vec<u8>> {
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        while self.client.pop(0, &mut packet) {
            packets.push(packet.clone());
        }
        self.client.refill(0);
        packets
    }
}
