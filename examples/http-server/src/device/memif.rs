//! A memif port.

use std::io;
use std::time::Duration;

use memif::client::{Client, ClientConfig, RxQueue, TxQueue};
use memif::socket::Address;

use super::Rings;

/// The port, connected to the switch.
pub(super) struct Memif(Client);

impl Memif {
    pub(super) fn connect(socket: &str, id: u32) -> io::Result<Self> {
        let mut config = ClientConfig::new(Address::new(socket), id);
        config.name = "mswitch-http-server".into();
        let mut port = Self(Client::connect(&config).map_err(io::Error::other)?);
        port.interrupts(false);
        Ok(port)
    }

    fn queues(&mut self) -> (Option<&mut TxQueue>, Option<&mut RxQueue>) {
        (self.0.tx.first_mut(), self.0.rx.first_mut())
    }

    fn interrupts(&mut self, on: bool) {
        if let (_, Some(rx)) = self.queues() {
            rx.set_interrupts(on);
        }
    }
}

impl Rings for Memif {
    fn pop(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        Ok(self.0.rx.first_mut().is_some_and(|rx| rx.pop(frame)))
    }

    fn has_room(&mut self) -> io::Result<bool> {
        let Some(tx) = self.0.tx.first_mut() else { return Ok(false) };
        if tx.free_slots() == 0 {
            tx.flush();
        }
        Ok(tx.free_slots() > 0)
    }

    fn push(&mut self, frame: &[u8]) -> io::Result<()> {
        if let Some(tx) = self.0.tx.first_mut() {
            tx.push(&[frame]);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let (tx, rx) = self.queues();
        tx.map(|tx| tx.flush());
        rx.into_iter().for_each(RxQueue::refill);
        Ok(())
    }

    fn sleep(&mut self, limit: Duration) -> io::Result<()> {
        if let Some(reason) = self.0.poll_disconnect() {
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
}
