//! Packets as bytes: new bytes, then a range of the received packet. The counterpart of [`pipeline::interp::Form`].

use pipeline::interp::Received;

/// A packet made from the received one: `head`, then its bytes `from..to`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form {
    pub(crate) head: Vec<u8>,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Form {
    /// Length of the received packet: at least what is visible of it.
    pub(crate) fn received_len(received: &Received<'_>) -> u32 {
        received.len.max(u32::try_from(received.visible.len()).unwrap_or(u32::MAX))
    }

    /// Becomes another form, in the memory it has.
    pub(crate) fn set(&mut self, head: &[u8], from: u32, to: u32) {
        self.head.clear();
        self.head.extend_from_slice(head);
        (self.from, self.to) = (from, to);
    }

    /// Becomes the received packet, of this length.
    pub(crate) fn set_received(&mut self, len: u32) {
        self.head.clear();
        (self.from, self.to) = (0, len);
    }

    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.set(&other.head, other.from, other.to);
    }

    /// Length, bytes.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.head.len()).unwrap_or(u32::MAX).saturating_add(self.to.saturating_sub(self.from))
    }

    /// The received bytes behind the head, as far as they are visible.
    pub(crate) fn tail<'a>(&self, received: &Received<'a>) -> &'a [u8] {
        let end = received.visible.len().min(self.to as usize);
        received.visible.get((self.from as usize).min(end)..end).unwrap_or_default()
    }

    /// Removes bytes from the front.
    pub(crate) fn skip(&mut self, n: u32) {
        let of_head = self.head.len().min(n as usize);
        if of_head > 0 {
            self.head.drain(..of_head);
        }
        self.from = self.from.saturating_add(n - of_head as u32).min(self.to);
    }

    /// Inserts bytes in front.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) {
        self.head.splice(0..0, bytes.iter().copied());
    }

    /// Cuts to a length.
    pub(crate) fn cut(&mut self, len: u32) {
        self.head.truncate(len as usize);
        let rest = len - self.head.len() as u32;
        self.to = self.to.min(self.from.saturating_add(rest)).max(self.from);
    }
}
