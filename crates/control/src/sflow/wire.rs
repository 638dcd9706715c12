//! sFlow version 5 on the wire (sflow.org, July 2004): XDR (RFC 4506), big-endian words of four bytes.
//!
//! A datagram is a head and samples, each behind its format and length, so that a collector can skip what it does not
//! know. Here are the two kinds that a switch sends: a packet (*flow sample*: its header and, where it is known, its
//! VLAN) and a port's counters (*counter sample*: the generic ones and the port's name).
//!
//! Invariant: a datagram is never longer than [`MAX_DATAGRAM`].

use std::net::IpAddr;

use fabric::DropReason;

/// The longest datagram: one that any path with the MTU of Ethernet carries, in a tunnel too.
pub(super) const MAX_DATAGRAM: usize = 1400;

/// The longest head, with an IPv6 agent.
const MAX_HEAD: usize = 40;

/// A counter that is not kept.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// How ports are numbered on the wire. An agent uses one form for everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Numbers of up to 24 bits, which every collector reads.
    Compact,
    /// Numbers of more.
    Expanded,
}

/// The first number that only [`Form::Expanded`] can say.
pub(super) const COMPACT_END: u32 = 1 << 24;

/// Formats of samples and of what is in them, all of the enterprise 0: sflow.org.
mod format {
    pub(super) const FLOW_SAMPLE: u32 = 1;
    pub(super) const COUNTER_SAMPLE: u32 = 2;
    pub(super) const EXPANDED_FLOW_SAMPLE: u32 = 3;
    pub(super) const EXPANDED_COUNTER_SAMPLE: u32 = 4;
    pub(super) const SAMPLED_HEADER: u32 = 1;
    pub(super) const EXTENDED_SWITCH: u32 = 1001;
    pub(super) const GENERIC_COUNTERS: u32 = 1;
    pub(super) const PORT_NAME: u32 = 1005;
    /// Header protocol: Ethernet, from the destination address on.
    pub(super) const ETHERNET: u32 = 1;
    /// Interface type of RFC 1573: ethernetCsmacd.
    pub(super) const ETHERNET_PORT: u32 = 6;
}

/// Where a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination {
    /// To one port.
    Port(u32),
    /// To so many.
    Several(u32),
    /// Nowhere, and why.
    Nowhere(Option<DropReason>),
}

impl Destination {
    /// How the specification says it: one port, discarded, or several; and the number that goes with it.
    fn code(self) -> (u32, u32) {
        match self {
            Destination::Port(index) => (0, index),
            Destination::Nowhere(reason) => (1, reason_code(reason)),
            Destination::Several(count) => (2, count),
        }
    }
}

/// The code of a discarded packet. Those from 263 on were published after the specification; a collector that does not
/// know one shows the number.
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
        Some(DropReason::Isolated | DropReason::SourceGuard) => ACL,
        Some(DropReason::RingFull | DropReason::BatchLimit) => NO_BUFFER,
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
    /// The port that it came in through.
    pub(super) port: u32,
    /// Samples of this port before this one.
    pub(super) sequence: u32,
    /// One packet in so many was sampled.
    pub(super) rate: u32,
    /// Packets of the port that could have been.
    pub(super) pool: u32,
    /// Samples of the port that were lost.
    pub(super) drops: u32,
    /// Where it went.
    pub(super) output: Destination,
    /// Its length in bytes.
    pub(super) length: u32,
    /// Its first bytes.
    pub(super) header: &'a [u8],
    /// Its VLAN (0: none that is known) and priority.
    pub(super) vlan: (u16, u8),
}

/// A port's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters<'a> {
    /// The port.
    pub(super) port: u32,
    /// Its name.
    pub(super) name: &'a str,
    /// Counter samples of this port before this one.
    pub(super) sequence: u32,
    /// Whether it is meant to be up.
    pub(super) admin_up: bool,
    /// Whether it is.
    pub(super) up: bool,
    /// From the client.
    pub(super) rx: Direction,
    /// To it.
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

/// What begins a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) agent: IpAddr,
    /// Datagrams before this one.
    pub(super) sequence: u32,
    /// Milliseconds since the agent began.
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

    /// Bytes behind their number, and what is missing to a whole word.
    fn opaque(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Something behind its format and length.
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

    /// A port as the source of samples.
    fn source(&mut self, form: Form, port: u32) {
        match form {
            // Of type 0, ifIndex.
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
                // Nothing was stripped: packets between memories have no frame check sequence.
                to.word(0);
                to.opaque(flow.header);
            });
            if vlan != 0 {
                to.framed(format::EXTENDED_SWITCH, |to| {
                    to.word(vlan);
                    to.word(priority);
                    // A bridge leaves a packet in its VLAN; one that went nowhere left in none.
                    let went = !matches!(flow.output, Destination::Nowhere(_));
                    to.word(if went { vlan } else { 0 });
                    to.word(if went { priority } else { 0 });
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
                // No speed: a memory has none.
                to.hyper(0);
                // Full duplex.
                to.word(1);
                to.word(u32::from(counters.admin_up) | u32::from(counters.up) << 1);
                to.direction(&counters.rx);
                // Of unknown protocols: a switch asks for none.
                to.word(UNKNOWN);
                to.direction(&counters.tx);
                // Promiscuous: a switch takes what is for others.
                to.word(1);
            });
            to.framed(format::PORT_NAME, |to| to.opaque(counters.name.as_bytes()));
        });
    }

    /// Unicast stands for all packets: groups are not counted apart. The words wrap, as a collector expects.
    fn direction(&mut self, direction: &Direction) {
        self.hyper(direction.bytes);
        self.word(direction.packets as u32);
        self.word(UNKNOWN);
        self.word(UNKNOWN);
        self.word(direction.discards as u32);
        self.word(direction.errors as u32);
    }
}

/// Samples on their way into a datagram.
#[derive(Debug, Default)]
pub(super) struct Samples {
    all: Xdr,
    count: u32,
    next: Xdr,
}

impl Samples {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a packet; false if it has no room, and must go with the next datagram.
    pub(super) fn add_flow(&mut self, form: Form, flow: &Flow<'_>) -> bool {
        self.next.flow(form, flow);
        self.add()
    }

    /// Adds a port's counters; false as for a packet.
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

    /// The datagram that they make; none are left.
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
        // The only sub-agent.
        datagram.word(0);
        datagram.word(head.sequence);
        datagram.word(head.uptime);
        datagram.word(std::mem::take(&mut self.count));
        datagram.0.append(&mut self.all.0);
        datagram.0
    }
}

#[cfg(test)]
mod tests;
