//! Interest: the packets of a port that an observer or a mirror asks for.

/// Packets of a port that an observer asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest {
    /// Packets that come from its client.
    pub received: bool,
    /// Packets that go to its client, including those that it could not take.
    pub sent: bool,
    /// The logic's remarks on packets from its client.
    pub explained: bool,
}

impl Interest {
    /// Combines two interests.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            received: self.received || other.received,
            sent: self.sent || other.sent,
            explained: self.explained || other.explained,
        }
    }
}
