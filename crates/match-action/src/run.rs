//! Consecutive packets to one port.

use fabric::{Batch, PortIndex, VersionId};

use crate::Form;

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

    /// Adds a received packet that no output refers to, in this form, or drops it if it becomes too long. Returns false,
    /// and does nothing, if the form is new and the packet has pending offloads, whose metadata would have to be adjusted.
    #[inline]
    pub fn add_as(&mut self, batch: &mut Batch<'_>, v: VersionId, form: &Form<'_>, port: PortIndex) -> bool {
        // Without offloads, bytes that are the old ones are written again: that costs less than to compare them.
        let is_plain = batch.offload(v).is_none();
        let is_received =
            (form.head.is_empty() || !is_plain) && form.is_received(batch.header(v), batch.len(v));
        if !is_received && !is_plain {
            return false;
        }
        if is_received || batch.replace_front(v, form.head, form.from, form.to) {
            self.add(batch, v, port);
        }
        true
    }

    /// Sends the packets.
    #[inline]
    pub fn send(&mut self, batch: &mut Batch<'_>) {
        let Run { first, end, port } = std::mem::replace(self, Run::NONE);
        batch.send_range(first, end, port);
    }
}
