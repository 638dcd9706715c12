//! Test packets: sender, flow and sequence number determine every byte, so that a receiver can verify a packet without
//! having seen the one sent.
//!
//! ```text
//! Ethernet | IPv4, UDP (optional) | stamp (16 bytes) | time (6 bytes, probes only) | filling
//! ```
//!
//! The stamp is `check:u32 run:u16 flow:u16 flags:u2 sequence:u46 length:u16`, big-endian; `check` protects the rest of
//! it. The filling is a piece of a fixed pseudo-random text; flow and sequence number select its start.
//!
//! The generator (`bench/generator`) writes the same format in C and sets flags: `FIXED`, a filling that depends only
//! on its position in the packet, so that the buffers of packets are filled once; `PROBE`, a packet with the time at
//! which it was sent, in ticks of the sender's time stamp counter modulo 2^48.
//!
//! Invariants:
//! - [`Writer::write`] makes a packet of exactly the requested length, and only its arguments determine the bytes.
//! - [`Writer::read`] accepts any bytes; it calls a packet good only if it equals the output of `write`, or of the
//!   generator: then all bytes but the time are determined likewise.

use packet::MacAddr;
use packet::checksum::Sum;

/// The largest packet.
pub const MAX_LEN: usize = 65535;
/// The smallest packet: Ethernet's minimum without its frame check sequence.
pub const MIN_LEN: usize = 60;

/// An EtherType for local experiments (IEEE 802.3 clause 3.2.6): test packets without IP.
const TYPE_TEST: [u8; 2] = [0x88, 0xb5];
/// The other EtherType for local experiments: announcements.
const TYPE_ANNOUNCE: [u8; 2] = [0x88, 0xb6];
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// The UDP destination port of test packets: "discard".
const UDP_PORT: u16 = 9;
const ETHERNET_LEN: usize = 14;
const IP_UDP_LEN: usize = 28;
const STAMP_LEN: usize = 16;
/// Length of a probe's time.
const TIME_LEN: usize = 6;
/// Number of possible starts of a filling; a power of two.
const STARTS: usize = 1 << 18;
/// Flag of a stamp: the byte at position p of the packet is byte p of the text.
const FIXED: u64 = 1 << 47;
/// Flag of a stamp: a time follows.
const PROBE: u64 = 1 << 46;
/// Seed of the text.
const TEXT: u64 = 0x6d73_7769_7463_6821;

/// Headers between the Ethernet header and the stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// None: an EtherType for experiments.
    Ethernet,
    /// IPv4 and UDP with addresses and ports of the flow, so that flow hashes distinguish flows.
    Udp,
}

/// Sender and receiver of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The sender's address.
    pub source: MacAddr,
    /// The receiver's address.
    pub destination: MacAddr,
    /// The receiver returns packets with the two addresses swapped, and the sender verifies them.
    pub reflected: bool,
}

/// The metadata inside a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The packet's run, which separates several runs on one switch.
    pub run: u16,
    /// The flow's index.
    pub flow: u16,
    /// The number within the flow, from 0; 46 bits.
    pub sequence: u64,
    /// The length of the whole packet.
    pub length: u16,
    /// Whether the filling depends only on its position in the packet.
    pub fixed: bool,
    /// Whether the time of sending follows.
    pub probe: bool,
}

impl Stamp {
    fn encode(&self) -> [u8; STAMP_LEN] {
        let mut bytes = [0; STAMP_LEN];
        bytes[0..4].copy_from_slice(&self.check().to_be_bytes());
        bytes[4..6].copy_from_slice(&self.run.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.flow.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.numbered().to_be_bytes()[2..]);
        bytes[14..16].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// `None` if the check is wrong.
    fn decode(bytes: &[u8; STAMP_LEN]) -> Option<Stamp> {
        let [c0, c1, c2, c3, r0, r1, f0, f1, s @ .., l0, l1] = *bytes;
        let [s0, s1, s2, s3, s4, s5] = s;
        let numbered = u64::from_be_bytes([0, 0, s0, s1, s2, s3, s4, s5]);
        let stamp = Stamp {
            run: u16::from_be_bytes([r0, r1]),
            flow: u16::from_be_bytes([f0, f1]),
            sequence: numbered & !(FIXED | PROBE),
            length: u16::from_be_bytes([l0, l1]),
            fixed: numbered & FIXED != 0,
            probe: numbered & PROBE != 0,
        };
        (stamp.check() == u32::from_be_bytes([c0, c1, c2, c3])).then_some(stamp)
    }

    /// The sequence number and the flags.
    fn numbered(&self) -> u64 {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        self.sequence | flag(self.fixed, FIXED) | flag(self.probe, PROBE)
    }

    fn check(&self) -> u32 {
        let identity = u64::from(self.run) << 32 | u64::from(self.flow) << 16 | u64::from(self.length);
        mix(self.numbered(), identity) as u32
    }
}

/// Mixes two words into one whose every bit depends on all of theirs.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product >> 64) as u64 ^ product as u64
}

/// Classification of a received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A packet of this run, unchanged.
    Good {
        /// Its flow.
        flow: u16,
        /// Its number.
        sequence: u64,
    },
    /// A packet of this run that was changed in transit. The flow is known if the stamp is intact.
    Corrupted {
        /// Its flow.
        flow: Option<u16>,
    },
    /// An announcement of the port that has this address.
    Announcement(MacAddr),
    /// A packet of another protocol or run.
    Foreign,
}

/// Templates of one flow.
#[derive(Debug)]
struct Template {
    sent: Vec<u8>,
    /// The packet as it arrives: the same, or with swapped addresses.
    arrives: Vec<u8>,
}

/// Writes and verifies the packets of one run.
#[derive(Debug)]
pub struct Writer {
    run: u16,
    headers: Headers,
    text: Vec<u8>,
    templates: Vec<Template>,
    expected: Vec<u8>,
}

impl Writer {
    /// Makes a writer for these flows; a flow's index is its position in `routes`.
    pub fn new(run: u16, headers: Headers, routes: &[Route]) -> Writer {
        let words = (STARTS + MAX_LEN + 1) as u64 / 8;
        let text = (0..words).flat_map(|word| mix(word, TEXT).to_le_bytes()).collect();
        let templates = routes
            .iter()
            .zip(0..)
            .map(|(route, flow)| {
                let sent = template(headers, route.source, route.destination, flow);
                let arrives = match route.reflected {
                    true => {
                        let swapped = [&sent[6..12], &sent[0..6], &sent[12..]];
                        swapped.concat()
                    }
                    false => sent.clone(),
                };
                Template { sent, arrives }
            })
            .collect();
        Writer { run, headers, text, templates, expected: Vec::with_capacity(MAX_LEN) }
    }

    /// Returns the run that packets belong to.
    pub fn run(&self) -> u16 {
        self.run
    }

    /// Begins another run: packets still in flight become [`Verdict::Foreign`].
    pub fn next_run(&mut self) {
        self.run = self.run.wrapping_add(1);
    }

    /// Writes a packet of `length` bytes, within [`MIN_LEN`] and [`MAX_LEN`], into `out`, which is cleared first.
    pub fn write(&self, flow: u16, sequence: u64, length: usize, out: &mut Vec<u8>) {
        out.clear();
        if let Some(template) = self.templates.get(usize::from(flow)) {
            let length = length as u16;
            let stamp = Stamp { run: self.run, flow, sequence, length, fixed: false, probe: false };
            self.fill(&template.sent, &stamp, out);
        }
    }

    /// Writes the packet of this stamp; filling stands in for the time.
    fn fill(&self, template: &[u8], stamp: &Stamp, out: &mut Vec<u8>) {
        let length = usize::from(stamp.length);
        out.extend_from_slice(template);
        if self.headers == Headers::Udp {
            finish_ip(&mut out[ETHERNET_LEN..], length - ETHERNET_LEN, stamp.sequence);
        }
        out.extend_from_slice(&stamp.encode());
        let start = match stamp.fixed {
            true => out.len(),
            false => mix(stamp.sequence, u64::from(stamp.flow)) as usize % STARTS,
        };
        let rest = length - out.len();
        out.extend_from_slice(&self.text[start..start + rest]);
    }

    /// Classifies a received packet.
    pub fn read(&mut self, packet: &[u8]) -> Verdict {
        let Some((header, body)) = packet.split_at_checked(ETHERNET_LEN) else { return Verdict::Foreign };
        let stamp_at = match [header[12], header[13]] {
            TYPE_ANNOUNCE => {
                let source = [header[6], header[7], header[8], header[9], header[10], header[11]];
                return Verdict::Announcement(MacAddr(source));
            }
            TYPE_TEST if self.headers == Headers::Ethernet => 0,
            TYPE_IPV4 if self.headers == Headers::Udp && is_test_udp(body) => IP_UDP_LEN,
            _ => return Verdict::Foreign,
        };
        let Some(Some(stamp)) = body.get(stamp_at..).and_then(|b| b.first_chunk()).map(Stamp::decode) else {
            return Verdict::Corrupted { flow: None };
        };
        if stamp.run != self.run {
            return Verdict::Foreign;
        }
        let Some(template) = self.templates.get(usize::from(stamp.flow)) else {
            return Verdict::Corrupted { flow: None };
        };
        let mut expected = std::mem::take(&mut self.expected);
        expected.clear();
        if usize::from(stamp.length) >= MIN_LEN {
            self.fill(&template.arrives, &stamp, &mut expected);
        }
        let time = ETHERNET_LEN + stamp_at + STAMP_LEN..ETHERNET_LEN + stamp_at + STAMP_LEN + TIME_LEN;
        if let (true, Some(expected), Some(received)) =
            (stamp.probe, expected.get_mut(time.clone()), packet.get(time))
        {
            expected.copy_from_slice(received);
        }
        self.expected = expected;
        match self.expected == packet {
            true => Verdict::Good { flow: stamp.flow, sequence: stamp.sequence },
            false => Verdict::Corrupted { flow: Some(stamp.flow) },
        }
    }
}

/// Makes a broadcast from which switches learn the location of `source`.
pub fn announcement(source: MacAddr) -> [u8; MIN_LEN] {
    let mut packet = [0; MIN_LEN];
    packet[0..6].copy_from_slice(&MacAddr::BROADCAST.0);
    packet[6..12].copy_from_slice(&source.0);
    packet[12..14].copy_from_slice(&TYPE_ANNOUNCE);
    packet
}

fn template(headers: Headers, source: MacAddr, destination: MacAddr, flow: u16) -> Vec<u8> {
    let mut bytes = [destination.0, source.0].concat();
    if headers == Headers::Ethernet {
        bytes.extend_from_slice(&TYPE_TEST);
        return bytes;
    }
    bytes.extend_from_slice(&TYPE_IPV4);
    let [f0, f1] = flow.to_be_bytes();
    // Version and header length, TOS, total length, id, "don't fragment", TTL 64, UDP, checksum.
    bytes.extend_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    // Addresses for benchmarks (RFC 2544).
    bytes.extend_from_slice(&[198, 18, f0, f1, 198, 19, f0, f1]);
    bytes.extend_from_slice(&(20000 + flow % 20000).to_be_bytes());
    bytes.extend_from_slice(&UDP_PORT.to_be_bytes());
    // Length, and no checksum, which IPv4 allows.
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// Completes the IPv4 and UDP headers that start at `ip`.
fn finish_ip(ip: &mut [u8], length: usize, sequence: u64) {
    // At most MAX_LEN less the Ethernet header.
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&(sequence as u16).to_be_bytes());
    let checksum = Sum::of(&ip[..20]).finish();
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip[24..26].copy_from_slice(&((length - 20) as u16).to_be_bytes());
}

fn is_test_udp(ip: &[u8]) -> bool {
    ip.len() >= IP_UDP_LEN && ip[0] == 0x45 && ip[9] == 17 && ip[22..24] == UDP_PORT.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn writer(headers: Headers) -> Writer {
        let there = Route { source: A, destination: B, reflected: false };
        let back = Route { source: B, destination: A, reflected: false };
        Writer::new(7, headers, &[there, back])
    }

    #[test]
    fn every_length_is_good_and_every_changed_byte_is_not() {
        for headers in [Headers::Ethernet, Headers::Udp] {
            let mut writer = writer(headers);
            let mut packet = Vec::new();
            for length in [MIN_LEN, 61, 64, 1500, 9000, MAX_LEN] {
                writer.write(1, 0x1234_5678_9abc, length, &mut packet);
                assert_eq!(packet.len(), length);
                let good = Verdict::Good { flow: 1, sequence: 0x1234_5678_9abc };
                assert_eq!(writer.read(&packet), good);
                for at in (0..length.min(200)).chain([length - 1]) {
                    packet[at] ^= 0x10;
                    assert!(!matches!(writer.read(&packet), Verdict::Good { .. }), "{headers:?} byte {at}");
                    packet[at] ^= 0x10;
                }
                packet.push(0);
                assert_eq!(writer.read(&packet), Verdict::Corrupted { flow: Some(1) });
                packet.truncate(length - 1);
                assert_eq!(writer.read(&packet), Verdict::Corrupted { flow: Some(1) });
            }
        }
    }

    /// The same packets as in the test of this name in bench/generator/check.c.
    #[test]
    fn the_format_is_that_of_the_other_program() {
        let writer = writer(Headers::Udp);
        let expected = [
            "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000\
             5eb10812000700010000000000050042820ac351437a668d",
            "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000\
             e19410dc000700018000000000050042703a7987965d2628",
            // Probes, whose time is zero.
            "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000\
             e943b38d000700014000000000050042000000000000668d",
            "020000000001020000000002080045000034000540004011ae8cc6120001c61300014e21000900200000\
             8c269c7700070001c0000000000500420000000000002628",
        ];
        let kinds = [(false, false), (true, false), (false, true), (true, true)];
        for ((fixed, probe), expected) in kinds.into_iter().zip(expected) {
            let stamp = Stamp { run: 7, flow: 1, sequence: 5, length: 66, fixed, probe };
            let mut packet = Vec::new();
            writer.fill(&writer.templates[1].sent, &stamp, &mut packet);
            if probe {
                packet[58..64].fill(0);
            }
            let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }

    #[test]
    fn probes_are_good_whatever_their_time() {
        let mut writer = writer(Headers::Udp);
        for fixed in [false, true] {
            let stamp = Stamp { run: 7, flow: 1, sequence: 3, length: 100, fixed, probe: true };
            let mut packet = Vec::new();
            writer.fill(&writer.templates[1].sent, &stamp, &mut packet);
            packet[58..64].fill(0x5a);
            assert_eq!(writer.read(&packet), Verdict::Good { flow: 1, sequence: 3 });
            packet[64] ^= 1;
            assert_eq!(writer.read(&packet), Verdict::Corrupted { flow: Some(1) });
            packet[64] ^= 1;
            packet.truncate(63);
            assert_eq!(writer.read(&packet), Verdict::Corrupted { flow: Some(1) });
        }
    }

    #[test]
    fn ip_headers_are_valid() {
        let writer = writer(Headers::Udp);
        let mut packet = Vec::new();
        writer.write(0, 99, 300, &mut packet);
        assert_eq!(Sum::of(&packet[14..34]).finish(), 0);
        assert_eq!(packet[16..18], 286u16.to_be_bytes());
        assert_eq!(packet[38..40], 266u16.to_be_bytes());
        let layers = packet::Layers::parse(&packet);
        assert_eq!((layers.l3, layers.l4), (Some(14), Some(34)));
    }

    #[test]
    fn reflected_packets_have_their_addresses_swapped() {
        let mut writer =
            Writer::new(1, Headers::Udp, &[Route { source: A, destination: B, reflected: true }]);
        let mut packet = Vec::new();
        writer.write(0, 5, 100, &mut packet);
        assert_eq!(writer.read(&packet), Verdict::Corrupted { flow: Some(0) });
        packet[..12].rotate_left(6);
        assert_eq!(writer.read(&packet), Verdict::Good { flow: 0, sequence: 5 });
    }

    #[test]
    fn other_runs_and_protocols_are_foreign() {
        let mut writer = writer(Headers::Ethernet);
        let mut packet = Vec::new();
        writer.write(0, 1, 60, &mut packet);
        writer.next_run();
        assert_eq!(writer.read(&packet), Verdict::Foreign);
        assert_eq!(writer.read(&[]), Verdict::Foreign);
        assert_eq!(writer.read(&[0; 60]), Verdict::Foreign);
        assert_eq!(writer.read(&announcement(B)), Verdict::Announcement(B));
    }
}
