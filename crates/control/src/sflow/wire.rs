//! Wire format of sFlow version 5 (sflow.org, July 2004): XDR (RFC 4506), big-endian words of four bytes.
//!
//! A datagram has a header and samples. The format and the length precede each sample, so a collector can skip unknown
//! ones. A switch sends two kinds: a packet (*flow sample*: its first bytes and, if known, its VLAN) and the counters
//! of a port (*counter sample*: the generic counters and the port's name).
//!
//! Invariant: a datagram is never longer than [`MAX_DATAGRAM`].

use std::net::IpAddr;

use fabric::DropReason;

/// Maximum length of a datagram: fits the MTU of Ethernet even in a tunnel.
pub(super) const MAX_DATAGRAM: usize = 1400;

/// Maximum length of a datagram's header, with an IPv6 agent.
const MAX_HEAD: usize = 40;

/// Value of a counter that is not supported.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// Encoding of port numbers. An agent uses one form for all samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Numbers of up to 24 bits, which every collector supports.
    Compact,
    /// Numbers of up to 32 bits.
    Expanded,
}

/// The first number that requires [`Form::Expanded`].
pub(super) const COMPACT_END: u32 = 1 << 24;

/// Formats of samples and their records, all of enterprise 0 (sflow.org).
mod format {
    pub(super) const FLOW_SAMPLE: u32 = 1;
    pub(super) const COUNTER_SAMPLE: u32 = 2;
    pub(super) const EXPANDED_FLOW_SAMPLE: u32 = 3;
    pub(super) const EXPANDED_COUNTER_SAMPLE: u32 = 4;
    pub(super) const SAMPLED_HEADER: u32 = 1;
    pub(super) const EXTENDED_SWITCH: u32 = 1001;
    pub(super) const GENERIC_COUNTERS: u32 = 1;
    pub(super) const PORT_NAME: u32 = 1005;
    /// Header protocol: Ethernet, from the destination address.
    pub(super) const ETHERNET: u32 = 1;
    /// Interface type ethernetCsmacd of RFC 1573.
    pub(super) const ETHERNET_PORT: u32 = 6;
}

/// The destination of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// One port.
    Port(u32),
    /// This number of ports.
    Several(u32),
    /// None: the packet was dropped, for this reason if known.
    Nowhere(Option<DropReason>),
}

impl Destination {
    /// Returns the code of the specification (0: one port, 1: discarded, 2: several ports) and its value.
    fn code(self) -> (u32, u32) {
        match self {
            Destination::Port(index) => (0, index),
            Destination::Nowhere(reason) => (1, reason_code(reason)),
            Destination::Several(count) => (2, count),
        }
    }
}

/// Returns the code of a reason for a drop. Codes above 262 were published after the specification; a collector shows
/// unknown ones as numbers.
fn reason_code(reason: Option<DropReason>) -> u32 {
    const UNKNOWN_REASON: u32 = 256;
    const ACL: u32 = 258;
    const NO_BUFFER: u32 = 259;
    const SHAPED: u32 = 261;
    const TOO_BIG: u32 = 262;
    const VLAN: u32 = 265;
    const NO_PORT: u32 = 267;
    const LOOPBACK: u32 = 268;
    const RESERVED_ADDRESS: u32 = 294;
    const LOCKED_PORT: u32 = 304;
    match reason {
        Some(DropReason::Isolated | DropReason::SourceGuard | DropReason::UnreservedSource) => ACL,
        Some(
            DropReason::RingFull | DropReason::BatchLimit | DropReason::QueueFull | DropReason::EarlyDrop,
        ) => NO_BUFFER,
        Some(DropReason::Policed | DropReason::StormControl) => SHAPED,
        Some(DropReason::ExceedsMtu | DropReason::Oversize) => TOO_BIG,
        Some(DropReason::Vlan) => VLAN,
        Some(DropReason::NoDestination | DropReason::NoPort) => NO_PORT,
        Some(DropReason::SamePort) => LOOPBACK,
        Some(DropReason::ReservedGroup) => RESERVED_ADDRESS,
        Some(DropReason::StationLimit) => LOCKED_PORT,
        _ => UNKNOWN_REASON,
    }
}

/// A sampled packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow<'a> {
    /// The port that received it.
    pub(super) port: u32,
    /// Sequence number of the sample at its port.
    pub(super) sequence: u32,
    /// Sampling rate: one packet in this many.
    pub(super) rate: u32,
    /// Packets of the port that could have been sampled.
    pub(super) pool: u32,
    /// Lost samples of the port.
    pub(super) drops: u32,
    /// Its destination.
    pub(super) output: Destination,
    /// Its length in bytes.
    pub(super) length: u32,
    /// Its first bytes.
    pub(super) header: &'a [u8],
    /// Its VLAN (0 if unknown) and priority.
    pub(super) vlan: (u16, u8),
}

/// A port's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters<'a> {
    /// The port.
    pub(super) port: u32,
    /// Its name.
    pub(super) name: &'a str,
    /// Sequence number of the counter sample at its port.
    pub(super) sequence: u32,
    /// Whether it is administratively up.
    pub(super) admin_up: bool,
    /// Whether it is operationally up.
    pub(super) up: bool,
    /// Packets from the client.
    pub(super) rx: Direction,
    /// Packets to the client.
    pub(super) tx: Direction,
}

/// Counters of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Direction {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) discards: u64,
    pub(super) errors: u64,
}

/// Header of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) agent: IpAddr,
    /// The part of the agent that counts these datagrams.
    pub(super) sub_agent: u32,
    /// Sequence number of the datagram.
    pub(super) sequence: u32,
    /// Milliseconds since the agent started.
    pub(super) uptime: u32,
}

#[derive(Debug, Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    fn hyper(&mut self, word: u64) {
        self.0.extend(word.to_be_bytes());
    }

    /// Appends the number of bytes, the bytes, and padding to a whole word.
    fn opaque(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends a format, a length and a body.
    fn framed(&mut self, format: u32, body: impl FnOnce(&mut Self)) {
        self.word(format);
        let at = self.0.len();
        self.word(0);
        body(self);
        let length = (self.0.len() - at - 4) as u32;
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Appends a port as the source of samples.
    fn source(&mut self, form: Form, port: u32) {
        match form {
            // Source type 0: ifIndex.
            Form::Compact => self.word(port & (COMPACT_END - 1)),
            Form::Expanded => {
                self.word(0);
                self.word(port);
            }
        }
    }

    fn interface(&mut self, form: Form, (kind, value): (u32, u32)) {
        match form {
            Form::Compact => self.word(kind << 30 | value & ((1 << 30) - 1)),
            Form::Expanded => {
                self.word(kind);
                self.word(value);
            }
        }
    }

    fn flow(&mut self, form: Form, flow: &Flow<'_>) {
        let format = match form {
            Form::Compact => format::FLOW_SAMPLE,
            Form::Expanded => format::EXPANDED_FLOW_SAMPLE,
        };
        self.framed(format, |to| {
            to.word(flow.sequence);
            to.source(form, flow.port);
            to.word(flow.rate);
            to.word(flow.pool);
            to.word(flow.drops);
            to.interface(form, (0, flow.port));
            to.interface(form, flow.output.code());
            let (vlan, priority) = (u32::from(flow.vlan.0), u32::from(flow.vlan.1));
            to.word(if vlan == 0 { 1 } else { 2 });
            to.framed(format::SAMPLED_HEADER, |to| {
                to.word(format::ETHERNET);
                to.word(flow.length);
                // Bytes stripped: none, because packets in memory have no frame check sequence.
                to.word(0);
                to.opaque(flow.header);
            });
            if vlan != 0 {
                to.framed(format::EXTENDED_SWITCH, |to| {
                    to.word(vlan);
                    to.word(priority);
                    // A bridge forwards a packet in its VLAN; a dropped packet has no egress VLAN.
                    let forwarded = !matches!(flow.output, Destination::Nowhere(_));
                    to.word(if forwarded { vlan } else { 0 });
                    to.word(if forwarded { priority } else { 0 });
                });
            }
        });
    }

    fn counters(&mut self, form: Form, counters: &Counters<'_>) {
        let format = match form {
            Form::Compact => format::COUNTER_SAMPLE,
            Form::Expanded => format::EXPANDED_COUNTER_SAMPLE,
        };
        self.framed(format, |to| {
            to.word(counters.sequence);
            to.source(form, counters.port);
            to.word(2);
            to.framed(format::GENERIC_COUNTERS, |to| {
                to.word(counters.port);
                to.word(format::ETHERNET_PORT);
                // Speed: 0, because a virtual port has none.
                to.hyper(0);
                // Direction: full duplex.
                to.word(1);
                to.word(u32::from(counters.admin_up) | u32::from(counters.up) << 1);
                to.direction(&counters.rx);
                // Packets of unknown protocols: not applicable to a switch.
                to.word(UNKNOWN);
                to.direction(&counters.tx);
                // Promiscuous: a switch receives frames addressed to other stations.
                to.word(1);
            });
            to.framed(format::PORT_NAME, |to| to.opaque(counters.name.as_bytes()));
        });
    }

    /// Appends the counters of a direction. The unicast counter holds all packets, because multicasts are not counted
    /// separately. Counters wrap at 32 bits, as collectors expect.
    fn direction(&mut self, direction: &Direction) {
        self.hyper(direction.bytes);
        self.word(direction.packets as u32);
        self.word(UNKNOWN);
        self.word(UNKNOWN);
        self.word(direction.discards as u32);
        self.word(direction.errors as u32);
    }
}

/// Encoded samples for the next datagram.
#[derive(Debug, Default)]
pub(super) struct Samples {
    all: Xdr,
    count: u32,
    next: Xdr,
}

impl Samples {
    /// Returns whether there are no samples.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a flow sample. Returns false if it does not fit and must go into the next datagram.
    pub(super) fn add_flow(&mut self, form: Form, flow: &Flow<'_>) -> bool {
        self.next.flow(form, flow);
        self.add()
    }

    /// Adds a counter sample. Returns false if it does not fit.
    pub(super) fn add_counters(&mut self, form: Form, counters: &Counters<'_>) -> bool {
        self.next.counters(form, counters);
        self.add()
    }

    fn add(&mut self) -> bool {
        let fits = MAX_HEAD + self.all.0.len() + self.next.0.len() <= MAX_DATAGRAM;
        if fits {
            self.all.0.append(&mut self.next.0);
            self.count += 1;
        }
        self.next.0.clear();
        fits
    }

    /// Returns the datagram of the samples, and removes them.
    pub(super) fn finish(&mut self, head: &Head) -> Vec<u8> {
        let mut datagram = Xdr(Vec::with_capacity(MAX_DATAGRAM));
        datagram.word(5);
        match head.agent {
            IpAddr::V4(address) => {
                datagram.word(1);
                datagram.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                datagram.word(2);
                datagram.0.extend(address.octets());
            }
        }
        datagram.word(head.sub_agent);
        datagram.word(head.sequence);
        datagram.word(head.uptime);
        datagram.word(std::mem::take(&mut self.count));
        datagram.0.append(&mut self.all.0);
        datagram.0
    }
}

#[cfg(test)]
mod tests;
