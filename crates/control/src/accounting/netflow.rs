//! Wire format of NetFlow version 5 (Cisco, "NetFlow Export Datagram Format", tables B-3 and B-4): big-endian, a header
//! of 24 bytes and up to 30 records of 48.
//!
//! As Open vSwitch does it: interfaces are OpenFlow port numbers, octets are the bytes of whole frames, and a flow
//! larger than 32-bit counters takes several records.

use metering::Entry;
use packet::headers::protocol;

/// Records of a datagram at most.
const RECORDS: u16 = 30;
/// Length of a header.
const HEADER: usize = 24;
/// Length of a record.
#[cfg(test)]
const RECORD: usize = 48;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Output interface of packets that went to several ports.
pub(super) const SEVERAL: u16 = 0xffff;
/// Output interface of packets that went nowhere.
pub(super) const NOWHERE: u16 = 0xfffd;

/// What tells engines of a switch apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Engine {
    /// Type of the engine.
    pub kind: u8,
    /// Number of the engine.
    pub id: u8,
    /// Whether the 7 upper bits of interfaces are those of `id`.
    pub in_interfaces: bool,
}

impl Engine {
    fn interface(self, number: u16) -> u16 {
        match self.in_interfaces {
            true => u16::from(self.id & 0x7f) << 9 | number & 0x1ff,
            false => number,
        }
    }
}

/// Makes datagrams. Times are nanoseconds since 1970-01-01 00:00:00 UTC.
pub(super) struct Encoder {
    pub(super) engine: Engine,
    /// When the engine started.
    boot: u64,
    /// Records of earlier datagrams.
    sequence: u32,
    records: Vec<u8>,
    count: u16,
}

impl Encoder {
    pub(super) fn new(engine: Engine, boot: u64) -> Self {
        Self { engine, boot, sequence: 0, records: Vec::new(), count: 0 }
    }

    /// Milliseconds from the start of the engine to a time; they wrap after 49 days.
    fn uptime(&self, at: u64) -> u32 {
        (at.saturating_sub(self.boot) / MILLISECOND) as u32
    }

    /// Adds a flow with its interfaces; `send` takes datagrams that are full.
    pub(super) fn add(
        &mut self,
        flow: &Entry,
        input: u16,
        output: u16,
        now: u64,
        mut send: impl FnMut(&[u8]),
    ) {
        let (mut packets, mut bytes) = (flow.counts.packets, flow.counts.bytes);
        // Bytes per packet stay what they are.
        let mut left = bytes.max(packets).div_ceil(u32::MAX.into());
        while left > 0 {
            let (some_packets, some_bytes) = (packets / left, bytes / left);
            self.record(flow, [input, output], some_packets as u32, some_bytes as u32);
            if self.count >= RECORDS {
                self.flush(now, &mut send);
            }
            packets -= some_packets;
            bytes -= some_bytes;
            left -= 1;
        }
    }

    fn record(&mut self, flow: &Entry, [input, output]: [u16; 2], packets: u32, bytes: u32) {
        let (key, counts) = (&flow.key, &flow.counts);
        let (first, last) = (self.uptime(counts.first), self.uptime(counts.last));
        let engine = self.engine;
        let to = &mut self.records;
        to.extend(&key.source[..4]);
        to.extend(&key.destination[..4]);
        // The next hop: a bridge has none.
        to.extend([0; 4]);
        to.extend(engine.interface(input).to_be_bytes());
        to.extend(engine.interface(output).to_be_bytes());
        for word in [packets, bytes, first, last] {
            to.extend(word.to_be_bytes());
        }
        // ICMP's type and code are in the place of the destination port.
        key.ports.iter().for_each(|port| to.extend(port.to_be_bytes()));
        let tcp_flags = if key.protocol == protocol::TCP { counts.tcp_flags } else { 0 };
        to.extend([0, tcp_flags, key.protocol, key.tos]);
        // Autonomous systems, prefix lengths and padding.
        to.extend([0; 8]);
        self.count += 1;
    }

    /// Has `send` take the last datagram.
    pub(super) fn flush(&mut self, now: u64, mut send: impl FnMut(&[u8])) {
        if self.count == 0 {
            return;
        }
        let mut datagram = Vec::with_capacity(HEADER + self.records.len());
        datagram.extend(5u16.to_be_bytes());
        datagram.extend(self.count.to_be_bytes());
        datagram.extend(self.uptime(now).to_be_bytes());
        datagram.extend(((now / SECOND) as u32).to_be_bytes());
        datagram.extend(((now % SECOND) as u32).to_be_bytes());
        datagram.extend(self.sequence.to_be_bytes());
        // The last two: no sampling.
        datagram.extend([self.engine.kind, self.engine.id, 0, 0]);
        datagram.append(&mut self.records);
        send(&datagram);
        self.sequence = self.sequence.wrapping_add(self.count.into());
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use fabric::PortIndex;

    use super::*;
    use metering::{Counts, FlowKey, Way};

    const BOOT: u64 = 1_000 * SECOND;

    fn flow(protocol: u8, ports: [u16; 2]) -> Entry {
        let mut key = FlowKey {
            ingress: PortIndex(0),
            egress: PortIndex(1),
            way: Way::In,
            tci: None,
            mac_source: [0; 6],
            mac_destination: [0; 6],
            ethertype: 0,
            ip_version: 4,
            protocol,
            tos: 0xb8,
            source: [0; 16],
            destination: [0; 16],
            ports,
            observation: [0; 2],
        };
        key.source[..4].copy_from_slice(&[10, 0, 0, 1]);
        key.destination[..4].copy_from_slice(&[10, 0, 0, 2]);
        let mut counts = Counts::of_packet(BOOT + 2 * SECOND, 106, 92, 0x12, false);
        counts.add(&Counts::of_packet(BOOT + 5 * SECOND, 60, 40, 0x01, false));
        Entry { key, counts }
    }

    fn encode(encoder: &mut Encoder, flows: &[Entry], [input, output]: [u16; 2]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        let now = BOOT + 7 * SECOND + 89;
        flows.iter().for_each(|flow| encoder.add(flow, input, output, now, |it| sent.push(it.to_vec())));
        encoder.flush(now, |it| sent.push(it.to_vec()));
        sent
    }

    fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
        bytes[at..at + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    #[test]
    fn fields_are_where_cisco_has_them() {
        let mut encoder = Encoder::new(Engine { kind: 2, id: 1, in_interfaces: false }, BOOT);
        let sent = encode(&mut encoder, &[flow(6, [1234, 80])], [1, SEVERAL]);
        let [datagram] = &sent[..] else { panic!("{} datagrams", sent.len()) };
        assert_eq!(datagram.len(), HEADER + RECORD);
        let header = [
            (0, 2, 5),
            (2, 2, 1),
            (4, 4, 7000),
            (8, 4, 1007),
            (12, 4, 89),
            (16, 4, 0),
            (20, 1, 2),
            (21, 1, 1),
        ];
        for (at, length, value) in header.into_iter().chain([(22, 2, 0)]) {
            assert_eq!(number(datagram, at, length), value, "header, byte {at}");
        }
        let record = &datagram[HEADER..];
        assert_eq!(record[..12], [10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0]);
        for (at, length, value) in [
            (12, 2, 1),
            (14, 2, 0xffff),
            (16, 4, 2),
            (20, 4, 166),
            (24, 4, 2000),
            (28, 4, 5000),
            (32, 2, 1234),
            (34, 2, 80),
            (36, 1, 0),
            (37, 1, 0x13),
            (38, 1, 6),
            (39, 1, 0xb8),
            (40, 8, 0),
        ] {
            assert_eq!(number(record, at, length), value, "record, byte {at}");
        }
        let ping = encode(&mut encoder, &[flow(1, [0, 0x0800])], [1, 2]);
        assert_eq!(number(&ping[0], 16, 4), 1, "one flow was sent before");
        assert_eq!((number(&ping[0], HEADER + 32, 4), ping[0][HEADER + 37]), (0x0800, 0));
    }

    #[test]
    fn an_engine_may_be_in_interfaces() {
        let mut encoder = Encoder::new(Engine { kind: 0, id: 0x83, in_interfaces: true }, BOOT);
        let sent = encode(&mut encoder, &[flow(6, [1, 2])], [5, SEVERAL]);
        assert_eq!((number(&sent[0], HEADER + 12, 2), number(&sent[0], HEADER + 14, 2)), (0x605, 0x7ff));
    }

    #[test]
    fn datagrams_have_thirty_records_and_count_them() {
        let mut encoder = Encoder::new(Engine::default(), BOOT);
        let sent = encode(&mut encoder, &vec![flow(17, [1, 2]); 61], [1, 2]);
        let heads: Vec<_> = sent.iter().map(|it| (number(it, 2, 2), number(it, 16, 4), it.len())).collect();
        assert_eq!(heads, [(30, 0, 1464), (30, 30, 1464), (1, 60, 72)]);
        assert!(encode(&mut encoder, &[], [1, 2]).is_empty());
    }

    #[test]
    fn large_flows_take_several_records() {
        for (packets, bytes) in
            [(10_000_000_001, 15_000_000_000_007), (3, u64::from(u32::MAX) + 1), (0, 0), (1, u32::MAX.into())]
        {
            let mut large = flow(17, [1, 2]);
            (large.counts.packets, large.counts.bytes) = (packets, bytes);
            let mut encoder = Encoder::new(Engine::default(), BOOT);
            let mut sums = (0, 0);
            for datagram in encode(&mut encoder, &[large], [1, 2]) {
                for record in datagram[HEADER..].chunks(RECORD) {
                    sums = (sums.0 + number(record, 16, 4), sums.1 + number(record, 20, 4));
                }
            }
            assert_eq!(sums, (packets, bytes));
        }
    }

    #[test]
    fn times_before_the_start_are_zero() {
        let mut early = flow(17, [1, 2]);
        early.counts.first = BOOT - SECOND;
        let sent = encode(&mut Encoder::new(Engine::default(), BOOT), &[early], [1, 2]);
        assert_eq!(number(&sent[0], HEADER + 24, 4), 0);
    }
}
