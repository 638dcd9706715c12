//! Random packets: Ethernet with tags and labels, ARP, IPv4 and IPv6 with extension headers, transports; most are
//! well-formed with right checksums, some end within a header.

use fastrand::Rng;

use crate::values::{DSCPS, ICMP, ICMPV6, IPV4, IPV6, LABELS, MACS, PORTS, TCP_FLAGS, TTLS, VLANS, of};

/// What a packet, or a flow, is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing in particular.
    Other,
    /// ARP.
    Arp,
    /// Reverse ARP.
    Rarp,
    /// IPv4 or IPv6 (`true`) with a protocol number.
    Ip(bool, u8),
    /// MPLS, unicast or multicast.
    Mpls(u16),
}

impl Protocol {
    /// A random protocol.
    pub fn random(random: &mut Rng) -> Self {
        match random.u8(..16) {
            0 => Protocol::Other,
            1 => Protocol::Arp,
            2 if random.bool() => Protocol::Rarp,
            2..=4 => Protocol::Mpls(of(random, &[0x8847, 0x8847, 0x8848])),
            5..=10 => Protocol::Ip(false, of(random, &[6, 17, 17, 1, 132, 47])),
            _ => Protocol::Ip(true, of(random, &[6, 17, 58, 58, 132, 59])),
        }
    }
}

fn mac(random: &mut Rng) -> [u8; 6] {
    let [_, _, mac @ ..] = of(random, &MACS).to_be_bytes();
    mac
}

/// A packet of a protocol.
pub fn packet(random: &mut Rng, protocol: Protocol) -> Vec<u8> {
    let mut bytes = [mac(random), mac(random)].concat();
    for _ in 0..of(random, &[0, 0, 0, 0, 1, 1, 1, 2]) {
        bytes.extend(of(random, &[0x8100u16, 0x8100, 0x8100, 0x88a8]).to_be_bytes());
        bytes.extend((of(random, &[0u16, 3, 7]) << 13 | of(random, &VLANS)).to_be_bytes());
    }
    let front = bytes.len();
    // Packets end within a header only without padding, which ours takes for the rest (`explained`).
    let is_padded = random.u8(..3) > 0;
    match protocol {
        Protocol::Other => {
            bytes.extend(of(random, &[0x88b5u16, 0x88cc, 0x9000, 40]).to_be_bytes());
            bytes.extend((0..46).map(|_| random.u8(..)));
        }
        Protocol::Arp | Protocol::Rarp => {
            bytes.extend(if protocol == Protocol::Arp { [8, 6] } else { [0x80, 0x35] });
            bytes.extend([0, 1, 8, 0, 6, 4, 0, of(random, &[1, 1, 2])]);
            for _ in 0..2 {
                bytes.extend(mac(random));
                bytes.extend(of(random, &IPV4).to_be_bytes());
            }
        }
        Protocol::Ip(v6, number) => {
            bytes.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            bytes.extend(ip(random, v6, number, !is_padded));
        }
        Protocol::Mpls(ethertype) => {
            bytes.extend(ethertype.to_be_bytes());
            let labels = of(random, &[1, 1, 1, 1, 2, 3]);
            for n in 1..=labels {
                let bottom = u32::from(n == labels);
                let entry = of(random, &LABELS) << 12 | of(random, &[0u32, 3, 7]) << 9 | bottom << 8;
                bytes.extend((entry | u32::from(of(random, &TTLS))).to_be_bytes());
            }
            let number = of(random, &[6, 17]);
            let v6 = random.u8(..4) == 0;
            bytes.extend(ip(random, v6, number, !is_padded));
        }
    }
    // A checksum of SCTP is set over the padding, too, by Open vSwitch.
    if is_padded && !matches!(protocol, Protocol::Ip(_, 132)) {
        bytes.resize(bytes.len().max(60), 0);
    }
    // Lengths that IP states are right (`explained`).
    let is_ip = matches!(protocol, Protocol::Ip(..) | Protocol::Mpls(_));
    if !is_ip && random.u8(..16) == 0 {
        let kept = (front + 2).max(14) + random.usize(..bytes.len() - front);
        bytes.truncate(kept);
    }
    bytes
}

/// Sum of 16-bit words.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0))).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IP packet, its payload included. `ends`: it may end within the transport's header.
fn ip(random: &mut Rng, v6: bool, number: u8, ends: bool) -> Vec<u8> {
    let (source, destination): (Vec<u8>, Vec<u8>) = match v6 {
        true => (of(random, &IPV6).to_be_bytes().into(), of(random, &IPV6).to_be_bytes().into()),
        false => (of(random, &IPV4).to_be_bytes().into(), of(random, &IPV4).to_be_bytes().into()),
    };
    let mut payload = transport(random, number);
    let checksum = match number {
        6 => Some(16),
        17 => Some(6),
        58 => Some(2),
        _ => None,
    };
    if let Some(at) = checksum.filter(|_| v6 || number != 58) {
        let pseudo = sum(&source) + sum(&destination) + u32::from(number) + payload.len() as u32;
        let wanted = match folded(pseudo + sum(&payload)) {
            0 if number == 17 => 0xffff,
            wanted => wanted,
        };
        // Some senders of UDP do without.
        let wanted = if number == 17 && !v6 && random.u8(..4) == 0 { 0 } else { wanted };
        payload[at..at + 2].copy_from_slice(&wanted.to_be_bytes());
    }
    if ends && number != 132 && random.u8(..8) == 0 {
        let kept = random.usize(..payload.len() + 1);
        payload.truncate(if matches!(number, 1 | 58) && kept < 8 { 3 } else { kept });
    }
    let tos = of(random, &DSCPS) << 2 | random.u8(..4);
    let ttl = of(random, &TTLS);
    if v6 {
        let mut extensions = vec![];
        let mut next = number;
        if random.u8(..8) == 0 {
            // A fragment, first or later.
            let offset = of(random, &[1u16, 0x0008, 0x0009, 0]);
            extensions.extend([&[next, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 7]].concat());
            next = 44;
        }
        for kind in [60, 43, 0] {
            if random.u8(..12) == 0 {
                // Options that fill the header; a route without segments left.
                let options = if kind == 43 { [0; 6] } else { [1, 4, 0, 0, 0, 0] };
                extensions = [&[next, 0], &options[..], &extensions].concat();
                next = kind;
            }
        }
        let first = 6 << 28 | u32::from(tos) << 20 | of(random, &[0u32, 1, 0xabcde]);
        let length = (extensions.len() + payload.len()) as u16;
        return [
            &first.to_be_bytes()[..],
            &length.to_be_bytes(),
            &[next, ttl],
            &source,
            &destination,
            &extensions,
            &payload,
        ]
        .concat();
    }
    let options = if random.u8(..8) == 0 { 8 } else { 0 };
    let fragment = if random.u8(..8) == 0 { of(random, &[0x2000u16, 0x2001, 0x0001]) } else { 0x4000 };
    let length = (20 + options + payload.len()) as u16;
    let mut header = vec![0x45 + options as u8 / 4, tos];
    header.extend(length.to_be_bytes());
    header.extend([0, 7]);
    header.extend(fragment.to_be_bytes());
    header.extend([ttl, number, 0, 0]);
    header.extend(source);
    header.extend(destination);
    header.extend(vec![1; options]);
    let checksum = folded(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header.extend(payload);
    header
}

/// SCTP's checksum.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn transport(random: &mut Rng, number: u8) -> Vec<u8> {
    let ports = [of(random, &PORTS).to_be_bytes(), of(random, &PORTS).to_be_bytes()].concat();
    let data: Vec<u8> = (0..random.usize(..24)).map(|_| random.u8(..)).collect();
    let length = (8 + data.len()) as u16;
    match number {
        6 => {
            let flags = (0x5000 | of(random, &TCP_FLAGS)).to_be_bytes();
            [&ports[..], &[0; 8], &flags, &[1, 0, 0, 0, 0, 0], &data].concat()
        }
        17 => [&ports[..], &length.to_be_bytes(), &[0, 0], &data].concat(),
        132 => {
            let mut message = [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4]].concat();
            let checksum = crc32c(&message).to_le_bytes();
            message[8..12].copy_from_slice(&checksum);
            message
        }
        1 => {
            let mut message = [&[of(random, &ICMP), random.u8(..2), 0, 0, 0, 1, 0, 1][..], &data].concat();
            let checksum = folded(sum(&message));
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            message
        }
        58 => {
            let kind = of(random, &ICMPV6);
            let code = u8::from(random.u8(..8) == 0);
            let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
            if kind != 128 {
                message.extend(of(random, &IPV6).to_be_bytes());
                if random.u8(..4) > 0 {
                    message.extend([if kind == 135 { 1 } else { 2 }, 1]);
                    message.extend(mac(random));
                }
            }
            message
        }
        _ => data,
    }
}
