//! Settings that limit a port, all of them off by default.
//!
//! The fabric enforces rates ([`crate::protect::bucket`], `policing`) and isolation (in the state of a bridge); a logic
//! that knows stations enforces [`Security`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use packet::MacAddr;

use crate::bridge::port::PortIndex;

/// Unit of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Bits a second; bursts are bytes. Counted from destination address to the end of the payload.
    Bits,
    /// Packets a second; bursts are packets. A large segment that passes uncut is one packet.
    Packets,
}

/// A rate limit for packets, and the burst allowed after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Unit of rate and burst.
    pub unit: Unit,
    /// Bits or packets a second.
    pub rate: u64,
    /// Bytes or packets; `None`: [`Limit::default_burst`].
    pub burst: Option<u64>,
}

impl Limit {
    /// The amount that passes in 250 ms, but at least a longest packet of 64 KiB or ten packets.
    ///
    /// A TCP sender that loses a whole window pauses for its retransmission timeout, at least 200 ms on Linux. A
    /// smaller bucket overflows meanwhile, and TCP gets as much less than the rate.
    pub fn default_burst(&self) -> u64 {
        match self.unit {
            Unit::Bits => (self.rate / 8 / 4).max(64 << 10),
            Unit::Packets => (self.rate / 4).max(10),
        }
    }

    /// The same rate with the burst that a shaper allows: if none is given, the amount that passes in 10 ms, so that a
    /// worker that is late loses nothing of the rate, and at least two frames. Senders are paced by packets that wait.
    pub fn of_shaper(&self) -> Limit {
        let default = || match self.unit {
            Unit::Bits => (self.rate / 8 / 100).max(2 * 1514),
            Unit::Packets => (self.rate / 100).max(2),
        };
        Limit { burst: Some(self.burst.unwrap_or_else(default).max(1)), ..*self }
    }

    /// The burst in effect: bytes or packets, at least 1.
    pub fn burst(&self) -> u64 {
        self.burst.unwrap_or_else(|| self.default_burst()).max(1)
    }
}

/// Rate limits for packets that go to many ports (storm control), by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Storm {
    /// Packets to the broadcast address.
    pub broadcast: Option<Limit>,
    /// Packets to multicast addresses.
    pub multicast: Option<Limit>,
    /// Packets to one station that the logic floods because the station's port is unknown.
    pub unknown: Option<Limit>,
}

/// Limits of the packets that leave through a port, and of each of its queues.
///
/// The number of a packet's queue is its class ([`crate::Batch::set_class`]). Queue 0 is the default queue: packets of
/// a queue that is not listed are in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EgressLimits {
    /// How limits of queues and of the port go together.
    pub scheme: Scheme,
    /// The limits by queue.
    pub queues: BTreeMap<u16, QueueLimits>,
    /// With [`Scheme::Shares`]: packets beyond a limit, or beyond the room of the port's client, wait in their queue,
    /// and leave in the order of a scheduler. `None`: they are dropped. A port has at most [`MAX_WAITING_QUEUES`] such
    /// queues.
    pub waiting: Option<Waiting>,
}

/// Most queues of a port in which packets wait.
pub const MAX_WAITING_QUEUES: usize = 64;

/// How packets wait at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Room of each queue of each transmit queue, in buffers of 2 KiB; a packet takes as many as it needs. Rounded up to
    /// a power of two.
    pub buffers: u32,
}

impl Waiting {
    /// Most buffers of a queue.
    pub const MOST: u32 = 1 << 16;
}

impl Default for Waiting {
    fn default() -> Self {
        Self { buffers: 512 }
    }
}

/// Early detection of congestion in a queue where packets wait (RED; Floyd and Jacobson 1993): with the average number
/// of waiting packets, the probability of a drop grows from 0 at `least` to `probability` at `most`, where it becomes 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyDrop {
    /// Packets up to which none is dropped.
    pub least: u32,
    /// Packets from which all are.
    pub most: u32,
    /// Probability just below `most`, percent.
    pub probability: u8,
    /// Packets whose transport understands it are marked instead of being dropped (ECN, RFC 3168).
    pub marks: bool,
}

/// How the limits of queues and of their port go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scheme {
    /// As in a hierarchical token bucket (tc-htb(8)): a queue passes what it is guaranteed; beyond that, up to its own
    /// maximum, what the others leave of the port's rate. All rates are of bits.
    Shares {
        /// Rate of all queues together; `None`: unlimited, so that guarantees have no effect.
        total: Option<Limit>,
    },
    /// As a policer of two rates in two levels (RFC 4115): packets are marked by their queue, then by the port, and
    /// those marked red are dropped. [`Rates`] of a queue without any are those of the port. Bytes of the link header
    /// do not count.
    Marked(Rates),
}

impl Default for Scheme {
    fn default() -> Self {
        Scheme::Shares { total: None }
    }
}

/// Two rates of a marker (RFC 4115).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Up to this rate, packets are green; `None`: none is.
    pub committed: Option<Limit>,
    /// Beyond that, up to this rate, they are yellow; `None`: none is.
    pub excess: Option<Limit>,
}

/// Limits of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueLimits {
    /// With [`Scheme::Shares`]: passes whatever the other queues send. If all guarantees exceed the port's rate, they
    /// are scaled down to it.
    pub guarantee: Option<Limit>,
    /// With [`Scheme::Shares`]: the queue never passes more.
    pub maximum: Option<Limit>,
    /// With [`Scheme::Shares`]: queues with lower numbers get what others leave first.
    pub priority: u32,
    /// Where packets wait: the queue's share of what queues of one priority get beyond guarantees, in proportion to
    /// theirs. 0 counts as 1.
    pub weight: u32,
    /// Where packets wait: early detection of congestion.
    pub early: Option<EarlyDrop>,
    /// With [`Scheme::Marked`]: the queue's own rates.
    pub rates: Option<Rates>,
    /// Differentiated services code point that IP packets get (RFC 2474); for other queues than the default one.
    pub dscp: Option<u8>,
}

/// The headers that a port believes about the class of a packet that comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// None.
    #[default]
    Nothing,
    /// The priority code point of a VLAN tag (IEEE 802.1Q).
    Pcp,
    /// The differentiated services code point of an IP packet (RFC 2474).
    Dscp,
    /// The latter, and of other packets the former.
    DscpThenPcp,
}

/// Classes of the packets that come in at a port, 0 to 7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// Headers that decide.
    pub trust: Trust,
    /// The class of packets without a header that decides.
    pub default: u8,
    /// Classes by priority code point.
    pub pcp: [u8; 8],
    /// Classes by differentiated services code point.
    pub dscp: [u8; 64],
}

impl Default for Classification {
    /// Trusts nothing; maps as in IEEE 802.1Q table 8-5 for eight classes, and by the class selector of a code point
    /// (its upper three bits), but that lower effort (CS1, and LE of RFC 8622) is below best effort, all other code
    /// points at or above it.
    fn default() -> Self {
        let dscp =
            std::array::from_fn(|code| if matches!(code, 1 | 8) { 0 } else { (code as u8 >> 3).max(1) });
        Self { trust: Trust::Nothing, default: 0, pcp: [1, 0, 2, 3, 4, 5, 6, 7], dscp }
    }
}

/// Restricts the stations that may send at a port, and their source addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Security {
    /// Most stations behind the port at once; `None`: unlimited.
    pub max_stations: Option<u32>,
    /// The only stations that may send, in ascending order; empty: any.
    pub stations: Vec<MacAddr>,
    /// Learned stations stay: they neither age nor move.
    pub sticky: bool,
    /// Source addresses allowed for IPv4 and IPv6 packets, ARP and neighbour discovery; empty: any (source guard).
    pub sources: Vec<Source>,
}

impl Security {
    /// Whether any restriction is set.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }

    /// Whether stations are restricted, source addresses aside.
    pub fn guards_stations(&self) -> bool {
        self.max_stations.is_some() || !self.stations.is_empty() || self.sticky
    }

    /// Whether the list lets the station send.
    pub fn names(&self, station: MacAddr) -> bool {
        self.stations.is_empty() || self.stations.binary_search(&station).is_ok()
    }
}

/// The port that a station belongs to, by the lists of stations of all ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No port lists it.
    Nobody,
    /// The ingress port lists it.
    Ingress,
    /// Another port, which carries the packet's VLAN, lists it.
    Other(PortIndex),
}

/// An address or network that packets may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The address; bits beyond the prefix are zero.
    pub address: IpAddr,
    /// Significant bits of the address.
    pub prefix: u8,
    /// The station that has the address; `None`: any.
    pub mac: Option<MacAddr>,
}

impl Source {
    /// Whether packets from `address` may come from station `mac`.
    pub fn allows(&self, address: IpAddr, mac: MacAddr) -> bool {
        let same = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                agree(own.to_bits().into(), other.to_bits().into(), 32, self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => agree(own.to_bits(), other.to_bits(), 128, self.prefix),
            _ => false,
        };
        same && self.mac.is_none_or(|own| own == mac)
    }
}

/// Whether two numbers of `width` bits agree in their first `prefix` bits.
fn agree(a: u128, b: u128, width: u32, prefix: u8) -> bool {
    let rest = width.saturating_sub(prefix.into());
    (a ^ b).checked_shr(rest).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_allow_their_network_and_station() {
        let source = |text: &str, prefix, mac| Source { address: text.parse().unwrap(), prefix, mac };
        let (mac, other) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let allows = |source: &Source, text: &str, mac| source.allows(text.parse().unwrap(), mac);
        let one = source("10.0.0.5", 32, Some(mac));
        assert!(allows(&one, "10.0.0.5", mac));
        assert!(!allows(&one, "10.0.0.5", other) && !allows(&one, "10.0.0.4", mac));
        assert!(!allows(&one, "::10.0.0.5", mac) && !allows(&one, "::ffff:10.0.0.5", mac));
        let net = source("10.0.0.0", 9, None);
        assert!(allows(&net, "10.127.255.255", mac) && !allows(&net, "10.128.0.0", mac));
        assert!(allows(&source("0.0.0.0", 0, None), "255.0.0.1", mac));
        let link = source("fe80::", 64, None);
        assert!(allows(&link, "fe80::1:2:3:4", mac) && !allows(&link, "fe80:0:0:1::1", mac));
        assert!(allows(&source("::", 0, None), "fd00::1", mac));
        assert!(!allows(&source("fd00::1", 128, None), "fd00::3", mac));
    }
}
