//! Checks at the receiver: of each sender's packets, none is missing, doubled or out of order.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Position of the sender's number in a packet: behind the Ethernet header.
const SENDER: usize = 14;
/// Position of the packet's number.
pub(crate) const NUMBER: usize = 16;
/// Bytes that a stamp needs.
pub(crate) const STAMPED: usize = NUMBER + 8;

/// Writes a sender's number into a packet.
pub fn sign(packet: &mut [u8], sender: u16) {
    if let Some(at) = packet.get_mut(SENDER..NUMBER) {
        at.copy_from_slice(&sender.to_be_bytes());
    }
}

/// What a receiver has seen of its senders.
pub struct Audit {
    /// Number expected next from each sender.
    expected: Box<[AtomicU64]>,
    seen: AtomicU64,
    missing: AtomicU64,
    disorder: AtomicU64,
}

/// Counts of an [`Audit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Packets.
    pub packets: u64,
    /// Numbers left out.
    pub missing: u64,
    /// Packets out of order, doubled, or without a stamp.
    pub disorder: u64,
}

impl Audit {
    /// An audit of so many senders.
    pub fn new(senders: usize) -> Self {
        Self {
            expected: (0..senders).map(|_| AtomicU64::new(0)).collect(),
            seen: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            disorder: AtomicU64::new(0),
        }
    }

    /// Checks a packet. One thread at a time.
    pub fn check(&self, packet: &[u8]) {
        self.seen.fetch_add(1, Relaxed);
        let sender = packet.get(SENDER..NUMBER).and_then(|at| Some(u16::from_be_bytes(at.try_into().ok()?)));
        let number = packet.get(NUMBER..STAMPED).and_then(|at| Some(u64::from_be_bytes(at.try_into().ok()?)));
        let expected = sender.and_then(|sender| self.expected.get(usize::from(sender)));
        let ahead = expected.zip(number).and_then(|(expected, number)| {
            let ahead = number.checked_sub(expected.load(Relaxed))?;
            expected.store(number + 1, Relaxed);
            Some(ahead)
        });
        match ahead {
            Some(ahead) => self.missing.fetch_add(ahead, Relaxed),
            None => self.disorder.fetch_add(1, Relaxed),
        };
    }

    /// The counts so far.
    pub fn seen(&self) -> Seen {
        Seen {
            packets: self.seen.load(Relaxed),
            missing: self.missing.load(Relaxed),
            disorder: self.disorder.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(sender: u16, number: u64) -> [u8; 60] {
        let mut packet = [0; 60];
        sign(&mut packet, sender);
        packet[NUMBER..STAMPED].copy_from_slice(&number.to_be_bytes());
        packet
    }

    #[test]
    fn gaps_repetitions_and_strangers_are_told_apart() {
        let audit = Audit::new(2);
        for (sender, number) in [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)] {
            audit.check(&packet(sender, number));
        }
        assert_eq!(audit.seen(), Seen { packets: 5, missing: 0, disorder: 0 });
        audit.check(&packet(0, 5));
        assert_eq!(audit.seen().missing, 2, "3 and 4");
        audit.check(&packet(0, 5));
        audit.check(&packet(0, 4));
        assert_eq!(audit.seen().disorder, 2);
        audit.check(&packet(7, 0));
        audit.check(&[0; 15]);
        assert_eq!(audit.seen(), Seen { packets: 10, missing: 2, disorder: 4 });
    }
}
