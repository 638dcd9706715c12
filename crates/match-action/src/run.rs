//! Consecutive packets to one port.

use fabric::{Batch, PortIndex, VersionId};

/// Consecutive packets for one port, which are sent together.
#[derive(Debug)]
pub struct Run {
    first: u16,
    end: u16,
    port: PortIndex,
}

impl Run {
    /// No packet.
    pub const NONE: Run = Run { first: u16::MAX, end: u16::MAX, port: PortIndex::NONE };

    /// Adds a received packet; those so far are sent if it is for another port or does not follow them.
    #[inline]
    pub fn add(&mut self, batch: &mut Batch<'_>, v: VersionId, port: PortIndex) {
        let number = v.number() as u16;
        if number == self.end && port == self.port {
            self.end += 1;
            return;
        }
        self.send(batch);
        *self = Run { first: number, end: number + 1, port };
    }

    /// Sends the packets.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch<'_>) {
        let Run { first, end, port } = std::mem::replace(self, Run::NONE);
        batch.send_range(first, end, port);
    }
}
