//! Packets as bytes.
//!
//! The end of a long packet stays where its sender put it: the interpreter sees a packet's front, as a logic does. What
//! it makes of a packet is a [`Form`]: new bytes, then a range of the received packet.

/// A received packet.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The front of the packet, or all of it. Whatever lies behind it can be neither parsed nor hashed.
    pub visible: &'a [u8],
    /// Length of the whole packet, bytes; at least that of `visible`.
    pub len: u32,
    /// Port that it came from.
    pub port: u32,
    /// Time of reception, nanoseconds.
    pub time: u64,
    /// Traffic class.
    pub class: u8,
    /// The fabric's flow hash.
    pub flow_hash: u32,
    /// The receive path's flags, for [`crate::ir::Slot::Flags`].
    pub flags: u64,
}

impl<'a> Received<'a> {
    /// A packet that is visible as a whole.
    pub fn whole(bytes: &'a [u8], port: u32) -> Self {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self { visible: bytes, len, port, time: 0, class: 0, flow_hash: 0, flags: 0 }
    }

    /// Bytes `from..to`, as far as they are visible.
    fn range(&self, from: u32, to: u32) -> &'a [u8] {
        let end = self.visible.len().min(to as usize);
        self.visible.get((from as usize).min(end)..end).unwrap_or_default()
    }
}

/// A packet made from the received one: `head`, then its bytes `from..to`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Form {
    /// New bytes.
    pub head: Vec<u8>,
    /// First byte that follows.
    pub from: u32,
    /// End of the bytes that follow.
    pub to: u32,
}

impl Form {
    /// The packet as received.
    pub(super) fn received(received: &Received<'_>) -> Self {
        let to = received.len.max(u32::try_from(received.visible.len()).unwrap_or(u32::MAX));
        Self { head: vec![], from: 0, to }
    }

    /// The same packet in the form that all forms of it share: all its bytes, if they are visible; otherwise as few new
    /// ones as possible: those that are equal to the received bytes in front of the rest are part of the rest.
    pub fn canonical(mut self, received: &Received<'_>) -> Self {
        if self.from >= self.to || self.to as usize <= received.visible.len() {
            return Self { head: self.bytes(received), from: 0, to: 0 };
        }
        while let Some(last) = self.head.last()
            && let Some(before) = self.from.checked_sub(1)
            && received.visible.get(before as usize) == Some(last)
        {
            self.head.pop();
            self.from = before;
        }
        self
    }

    /// Length, bytes.
    pub fn len(&self) -> u32 {
        u32::try_from(self.head.len()).unwrap_or(u32::MAX).saturating_add(self.to.saturating_sub(self.from))
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes; of a packet that is not wholly visible, those that are.
    pub fn bytes(&self, received: &Received<'_>) -> Vec<u8> {
        [&self.head, received.range(self.from, self.to)].concat()
    }

    /// Removes bytes from the front.
    pub(super) fn skip(&mut self, n: u32) {
        let of_head = self.head.len().min(n as usize);
        self.head.drain(..of_head);
        self.from = self.from.saturating_add(n - of_head as u32).min(self.to);
    }

    /// Inserts bytes in front.
    pub(super) fn prepend(&mut self, bytes: &[u8]) {
        self.head.splice(0..0, bytes.iter().copied());
    }

    /// Cuts to a length.
    pub(super) fn cut(&mut self, len: u32) {
        self.head.truncate(len as usize);
        let rest = len - self.head.len() as u32;
        self.to = self.to.min(self.from.saturating_add(rest)).max(self.from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_equal_packets_have_one_canonical_form() {
        let canonical = |received: &Received<'_>, head: &[u8], from, to| {
            let form = Form { head: head.to_vec(), from, to };
            let canonical = form.clone().canonical(received);
            assert_eq!(canonical.bytes(received), form.bytes(received));
            (canonical.head, canonical.from, canonical.to)
        };
        let whole = Received::whole(&[1, 2, 3, 4, 5], 1);
        let all = [9, 2, 3, 4, 5];
        for (head, from, to) in [(&all[..], 5, 5), (&all[..2], 2, 5), (&all[..1], 1, 5), (&all, 0, 0)] {
            assert_eq!(canonical(&whole, head, from, to), (all.to_vec(), 0, 0));
        }
        // Of a longer packet, these are the first bytes.
        let part = Received { len: 9, ..whole };
        assert_eq!(canonical(&part, &[1, 2], 2, 9), (vec![], 0, 9));
        assert_eq!(canonical(&part, &[9, 2], 2, 9), (vec![9], 1, 9));
        assert_eq!(canonical(&part, &[1, 9], 2, 9), (vec![1, 9], 2, 9));
        // Truncated: wherever its empty rest is said to be.
        for place in [0, 2, 4, 5] {
            assert_eq!(canonical(&part, &[1, 2], place, place), canonical(&part, &[], 0, 2));
        }
    }
}
