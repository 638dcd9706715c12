//! The decision about a packet: from whom it comes, what it says, what is reserved.
//!
//! Invariant: the decision about a plain packet depends on its [`Flow`] only, so that it holds for a run of them.

use fabric::PortIndex;
use packet::{MacAddr, ether};

use super::fields::{End, Flow, FragmentId, Seen};
use super::ledger::Ledger;
use super::lookup::Lookup;
use super::statistics::Refused;
use crate::fragments::Fragments;

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    To(PortIndex),
    /// To the host and every stack.
    Everyone,
    Refused(Refused),
}

/// The one who sent a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Uplink,
    Host,
    Stack,
}

/// What decides about the packets of a batch.
pub(super) struct Situation<'a> {
    pub(super) lookup: &'a Lookup,
    pub(super) ledger: &'a Ledger,
    pub(super) sender: Sender,
    pub(super) ingress: PortIndex,
    pub(super) host: PortIndex,
    pub(super) uplink: PortIndex,
    pub(super) mac: Option<MacAddr>,
    /// Whether packets may have a VLAN tag.
    pub(super) tags: bool,
    pub(super) now: u32,
    pub(super) is_rehearsal: bool,
}

impl Situation<'_> {
    /// Port of packets to no reservation.
    fn otherwise(&self) -> PortIndex {
        if self.sender == Sender::Uplink { self.host } else { self.uplink }
    }

    fn towards(&self, protocol: u8, end: End) -> PortIndex {
        match self.lookup.owner(end.address, protocol, end.port) {
            PortIndex::NONE => self.otherwise(),
            port => port,
        }
    }

    fn is_mine(&self, protocol: u8, source: End) -> bool {
        self.lookup.owner(source.address, protocol, source.port) == self.ingress
    }

    /// Whether a stack may have this MAC address.
    fn is_host(&self, mac: MacAddr) -> bool {
        self.mac.is_none_or(|host| host == mac)
    }

    /// Reads a plain packet as far as that suffices; of a stack, one whose IPv4 header is right.
    #[inline(always)]
    pub(super) fn plain(&self, header: &[u8], len: u32) -> Option<Flow> {
        match self.sender {
            Sender::Stack => Flow::of::<true>(header, len),
            _ => Flow::of::<false>(header, len),
        }
    }

    pub(super) fn fate_of_flow(&self, flow: Flow) -> Fate {
        if self.sender == Sender::Stack {
            if !self.is_host(flow.mac()) {
                return Fate::Refused(Refused::Mac);
            }
            if !self.is_mine(flow.protocol(), flow.source()) {
                return Fate::Refused(Refused::Source);
            }
        }
        Fate::To(self.towards(flow.protocol(), flow.destination()))
    }

    /// Decides about a packet that is not plain.
    pub(super) fn fate(&self, header: &[u8], len: u32) -> Fate {
        let seen = Seen::of(header, len, self.tags);
        match self.sender {
            Sender::Stack => match ether::addresses(header) {
                Some((_, mac)) if self.is_host(mac) => self.fate_from_stack(seen, mac),
                _ => Fate::Refused(Refused::Mac),
            },
            _ => self.fate_to_stacks(seen),
        }
    }

    /// Notes where a first fragment goes; [`PortIndex::NONE`]: where others go, or nowhere.
    fn note(&self, fragments: &Fragments, id: FragmentId, port: PortIndex) {
        if !self.is_rehearsal {
            let decision = (port != PortIndex::NONE).then_some(port.0);
            fragments.note((self.ingress.0, id), decision, self.now);
        }
    }

    fn fate_to_stacks(&self, seen: Seen) -> Fate {
        match seen {
            Seen::Flow { protocol, destination, fragment, .. } => {
                let port = self.towards(protocol, destination);
                let known = if port == self.otherwise() { PortIndex::NONE } else { port };
                fragment.iter().for_each(|id| self.note(&self.ledger.inbound, *id, known));
                Fate::To(port)
            }
            Seen::First(id) => {
                self.note(&self.ledger.inbound, id, PortIndex::NONE);
                Fate::To(self.otherwise())
            }
            Seen::Later(id) => {
                let first = self.ledger.inbound.find((self.ingress.0, id), self.now).map(PortIndex);
                Fate::To(first.unwrap_or(self.otherwise()))
            }
            Seen::Error { protocol, source } => Fate::To(self.towards(protocol, source)),
            Seen::Answer if self.sender == Sender::Uplink => Fate::Everyone,
            _ => Fate::To(self.otherwise()),
        }
    }

    /// Decides about a packet of a stack from this MAC address.
    fn fate_from_stack(&self, seen: Seen, from: MacAddr) -> Fate {
        match seen {
            Seen::Flow { protocol, source, destination, fragment } => {
                let is_mine = self.is_mine(protocol, source);
                let port = if is_mine { self.towards(protocol, destination) } else { PortIndex::NONE };
                fragment.iter().for_each(|id| self.note(&self.ledger.outbound, *id, port));
                if is_mine { Fate::To(port) } else { Fate::Refused(Refused::Source) }
            }
            Seen::Later(id) => match self.ledger.outbound.find((self.ingress.0, id), self.now).map(PortIndex)
            {
                Some(port) if self.lookup.holds(id.source, self.ingress) => Fate::To(port),
                _ => Fate::Refused(Refused::Fragment),
            },
            Seen::Question { source, mac } => match self.lookup.holds(source, self.ingress) {
                true if mac.is_none_or(|mac| mac == from) => Fate::To(self.uplink),
                true => Fate::Refused(Refused::Mac),
                false => Fate::Refused(Refused::Source),
            },
            Seen::Wrong => Fate::Refused(Refused::Header),
            Seen::First(id) => {
                self.note(&self.ledger.outbound, id, PortIndex::NONE);
                Fate::Refused(Refused::Kind)
            }
            Seen::Error { .. } | Seen::Answer | Seen::Other => Fate::Refused(Refused::Kind),
        }
    }
}
