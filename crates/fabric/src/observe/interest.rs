//! What somebody wants to see of a port's packets.

/// What an observer wants to see of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest {
    /// Packets that come from its client.
    pub received: bool,
    /// Packets that go to its client, those that it could not take included.
    pub sent: bool,
    /// What the logic has to say about those that come from its client.
    pub explained: bool,
}

impl Interest {
    /// What one or the other wants to see.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            received: self.received || other.received,
            sent: self.sent || other.sent,
            explained: self.explained || other.explained,
        }
    }
}
