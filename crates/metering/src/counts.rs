//! What is counted of a flow.

/// Sums over the packets of a flow. Times are nanoseconds since 1970-01-01 00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Time of the first packet.
    pub first: u64,
    /// Time of the last packet.
    pub last: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were sampled; `packets` are those that they stand for.
    pub samples: u64,
    /// Bytes of the frames, without the frame check sequence.
    pub bytes: u64,
    /// Bytes of the IP packets; see [`Facts::octets`](crate::Facts::octets).
    pub octets: u64,
    /// Packets that went nowhere.
    pub dropped_packets: u64,
    /// Octets of the packets that went nowhere.
    pub dropped_octets: u64,
    /// Octets of the shortest packet.
    pub shortest: u32,
    /// Octets of the longest packet.
    pub longest: u32,
    /// Union of TCP's flags (RFC 9293, section 3.1).
    pub tcp_flags: u8,
}

impl Counts {
    /// Counts one packet of `bytes`, at the time `at`.
    #[inline]
    pub fn of_packet(at: u64, bytes: u32, octets: u32, tcp_flags: u8, dropped: bool) -> Self {
        Self {
            first: at,
            last: at,
            packets: 1,
            samples: 1,
            bytes: bytes.into(),
            octets: octets.into(),
            dropped_packets: dropped.into(),
            dropped_octets: if dropped { octets.into() } else { 0 },
            shortest: octets,
            longest: octets,
            tcp_flags,
        }
    }

    /// Adds other packets of the flow.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.packets = self.packets.wrapping_add(other.packets);
        self.samples = self.samples.wrapping_add(other.samples);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.octets = self.octets.wrapping_add(other.octets);
        self.dropped_packets = self.dropped_packets.wrapping_add(other.dropped_packets);
        self.dropped_octets = self.dropped_octets.wrapping_add(other.dropped_octets);
        self.shortest = self.shortest.min(other.shortest);
        self.longest = self.longest.max(other.longest);
        self.tcp_flags |= other.tcp_flags;
    }

    /// Multiplies the numbers: one packet was sampled of so many.
    pub fn scaled(self, by: u64) -> Self {
        Self {
            packets: self.packets.wrapping_mul(by),
            bytes: self.bytes.wrapping_mul(by),
            octets: self.octets.wrapping_mul(by),
            dropped_packets: self.dropped_packets.wrapping_mul(by),
            dropped_octets: self.dropped_octets.wrapping_mul(by),
            ..self
        }
    }
}
