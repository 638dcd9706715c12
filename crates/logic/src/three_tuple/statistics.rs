//! Packets that stacks may not send, counted by port and reason.
//!
//! Invariant: counters are written for refused packets only, so bridges without any pay nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fabric::port::MAX_PORTS;
use fabric::{DropReason, PortIndex};

/// Reasons for refusing a packet of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It has not reserved the source.
    Source,
    /// The source MAC address is not the host's.
    Mac,
    /// A fragment without ports whose first one was not seen.
    Fragment,
    /// Neither TCP, UDP or SCTP, nor a question to neighbours.
    Kind,
    /// Lengths or the checksum of the IP header are wrong.
    Header,
}

impl Refused {
    /// All reasons, in the order of their counters.
    pub(super) const ALL: [Self; 5] = [Self::Source, Self::Mac, Self::Fragment, Self::Kind, Self::Header];

    /// Returns the name of the counter.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Source => "unreserved_source",
            Self::Mac => "foreign_mac",
            Self::Fragment => "unknown_fragment",
            Self::Kind => "other_protocol",
            Self::Header => "bad_ip_header",
        }
    }

    /// Returns the meaning of the counter.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::Source => "packets of stacks from endpoints that they have not reserved",
            Self::Mac => "packets of stacks with a MAC address other than the host's",
            Self::Fragment => "fragments of stacks whose first one was not seen",
            Self::Kind => "packets of stacks that are neither TCP, UDP, SCTP nor questions to neighbours",
            Self::Header => "packets of stacks with wrong lengths, or a wrong checksum of the IPv4 header",
        }
    }

    /// Returns the explanation for a trace.
    pub(super) fn remark(self) -> &'static str {
        match self {
            Self::Source => "it asks in the name of an address at which {} has no reservation",
            Self::Mac => "its MAC address is not the host's, which {} has to use",
            Self::Fragment => "a fragment of {} whose first one was not seen",
            Self::Kind => "neither TCP, UDP, SCTP nor a question to neighbours: {} may not send it",
            Self::Header => "the lengths or the checksum of its IP header are wrong",
        }
    }

    pub(super) fn reason(self) -> DropReason {
        match self {
            Self::Source | Self::Mac | Self::Fragment | Self::Kind => DropReason::UnreservedSource,
            Self::Header => DropReason::Logic,
        }
    }
}

/// Counters of all ports.
pub(super) struct Statistics {
    ports: Box<[[AtomicU64; Refused::ALL.len()]]>,
}

impl Statistics {
    pub(super) fn new() -> Self {
        Self { ports: (0..MAX_PORTS).map(|_| Default::default()).collect() }
    }

    /// Counts a refused packet.
    pub(super) fn count(&self, port: PortIndex, why: Refused) {
        if let Some(counter) = self.ports.get(usize::from(port.0)).and_then(|port| port.get(why as usize)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Returns the counts of a port, in the order of [`Refused::ALL`].
    pub(super) fn of(&self, port: PortIndex) -> Vec<u64> {
        let counters = self.ports.get(usize::from(port.0)).into_iter().flatten();
        counters.map(|counter| counter.load(Relaxed)).collect()
    }

    /// Returns the sum of all ports.
    pub(super) fn total(&self, why: Refused) -> u64 {
        self.ports.iter().filter_map(|port| port.get(why as usize)).map(|counter| counter.load(Relaxed)).sum()
    }

    /// Starts a port at zero.
    pub(super) fn forget(&self, port: PortIndex) {
        for counter in self.ports.get(usize::from(port.0)).into_iter().flatten() {
            counter.store(0, Relaxed);
        }
    }
}
