//! A memif client.

use std::os::fd::BorrowedFd;

use memif::Secret;
use memif::client::{Client, ClientConfig};
use memif::socket::Address;

use super::{Error, PortSpec, Rings};

/// Connects to a memif server.
pub(super) fn connect(spec: &PortSpec, rings: Rings) -> Result<Client, Error> {
    let mut config = ClientConfig::new(Address::new(&spec.socket), spec.id);
    config.name = "memif-check".to_string();
    config.secret = match &spec.secret {
        Some(secret) => Some(Secret::new(secret).ok_or(Error::Secret)?),
        None => None,
    };
    config.tx_queues = rings.queues;
    config.rx_queues = rings.queues;
    config.log2_ring_size = rings.log2_size;
    config.buffer_size = rings.buffer_size;
    Client::connect(&config)
        .map_err(|source| Error::Connect { port: spec.to_string(), source: Box::new(source) })
}

impl super::Client for Client {
    fn queues(&self) -> (usize, usize) {
        (self.tx.len(), self.rx.len())
    }

    fn push(&mut self, queue: usize, pieces: &[&[u8]]) -> bool {
        self.tx.get_mut(queue).is_some_and(|queue| queue.push(pieces))
    }

    fn flush(&mut self, queue: usize) {
        if let Some(queue) = self.tx.get_mut(queue) {
            queue.flush();
        }
    }

    fn piece(&self) -> usize {
        self.control.layout().buffer_size() as usize
    }

    fn unsent(&mut self) -> u64 {
        let left = |ring: &memif::Ring| u64::from(ring.head().wrapping_sub(ring.tail()));
        self.tx.iter().map(|queue| left(queue.ring())).sum()
    }

    fn pop(&mut self, queue: usize, packet: &mut Vec<u8>) -> bool {
        self.rx.get_mut(queue).is_some_and(|queue| queue.pop(packet))
    }

    fn refill(&mut self, queue: usize) {
        if let Some(queue) = self.rx.get_mut(queue) {
            queue.refill();
        }
    }

    fn is_empty(&self, queue: usize) -> bool {
        self.rx.get(queue).is_none_or(|queue| {
            let ring = queue.ring();
            ring.tail() == ring.head().wrapping_sub(ring.size())
        })
    }

    fn room(&self) -> usize {
        self.control.layout().ring_size().into()
    }

    fn buffers(&self, length: usize) -> usize {
        length.div_ceil(self.piece())
    }

    fn set_interrupts(&mut self, queue: usize, on: bool) {
        if let Some(queue) = self.rx.get_mut(queue) {
            queue.set_interrupts(on);
        }
    }

    fn eventfd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.rx.get(queue).map(|queue| queue.eventfd())
    }

    fn malformed(&self) -> u64 {
        self.rx.iter().map(|queue| queue.malformed()).sum()
    }

    fn disconnected(&mut self) -> Option<String> {
        self.poll_disconnect()
    }
}
