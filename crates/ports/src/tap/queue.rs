//! From the host's stack into the switch: one queue of the TAP device as a receive queue.
//!
//! A read takes one frame, into the batch's own memory, so nothing needs to be given back. Invariant: a queue is read
//! until it is dry or the batch is full, because its signal announces only later frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::virtio_net::HEADER_LEN;
use rustix::io::Errno;

use crate::offload_header;

/// Reading end of one queue of a TAP device.
pub(super) struct TapQueue(pub(super) Arc<OwnedFd>);

impl RxQueue for TapQueue {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        while batch.has_room() {
            let Some(room) = batch.landing() else { return Ok(()) };
            let len = match rustix::io::read(&*self.0, &mut *room) {
                Ok(len) => len,
                Err(Errno::INTR) => continue,
                // Dry, or administratively down: no fault.
                Err(Errno::AGAIN | Errno::IO | Errno::NETDOWN) => return Ok(()),
                Err(error) => return Err(Fault::Device(error)),
            };
            let Some(header) = room.first_chunk::<HEADER_LEN>().filter(|_| len >= HEADER_LEN) else {
                return Ok(());
            };
            let offload = offload_header::unverified(header);
            batch.landed(HEADER_LEN, len, offload)?;
        }
        Ok(())
    }

    fn complete(&mut self, _tools: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _on: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn cheap_to_poll(&self) -> bool {
        false
    }
}
