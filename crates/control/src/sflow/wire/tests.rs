//! Compares datagrams with bytes derived by hand from the specification.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const HEAD: Head =
    Head { agent: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), sub_agent: 0, sequence: 7, uptime: 0x0102_0304 };

fn flow(header: &[u8]) -> Flow<'_> {
    Flow {
        port: 4099,
        sequence: 9,
        rate: 1000,
        pool: 12_345,
        drops: 3,
        output: Destination::Port(4098),
        length: 1514,
        header,
        vlan: (0, 0),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "whole words");
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

/// Returns the words of a datagram with one sample, without its header.
fn sample(add: impl FnOnce(&mut Samples) -> bool) -> Vec<u32> {
    let mut samples = Samples::default();
    assert!(samples.is_empty() && add(&mut samples) && !samples.is_empty());
    words(&samples.finish(&HEAD)).split_off(7)
}

#[test]
fn flow_sample() {
    let mut samples = Samples::default();
    assert!(samples.add_flow(Form::Compact, &flow(&[0xaa; 14])));
    let datagram = samples.finish(&HEAD);
    assert!(samples.is_empty());
    let expected: &[u32] = &[
        // Version, agent: IPv4 10.0.0.1, sub-agent, sequence, uptime, samples.
        5,
        1,
        0x0a00_0001,
        0,
        7,
        0x0102_0304,
        1,
        // Flow sample, 72 bytes: sequence, source, rate, pool, drops, input, output, records.
        1,
        72,
        9,
        4099,
        1000,
        12_345,
        3,
        4099,
        4098,
        1,
        // Sampled header, 32 bytes: Ethernet, frame length, stripped, header with two bytes of padding.
        1,
        32,
        1,
        1514,
        0,
        14,
        0xaaaa_aaaa,
        0xaaaa_aaaa,
        0xaaaa_aaaa,
        0xaaaa_0000,
    ];
    assert_eq!(words(&datagram), expected);
}

#[test]
fn expanded_flow_sample() {
    let flow = Flow { port: COMPACT_END + 1, output: Destination::Port(COMPACT_END), ..flow(&[0; 16]) };
    let words = sample(|samples| samples.add_flow(Form::Expanded, &flow));
    let (from, to) = (COMPACT_END + 1, COMPACT_END);
    assert_eq!(words[..13], [3, 84, 9, 0, from, 1000, 12_345, 3, 0, from, 0, to, 1]);
    assert_eq!(words[13..19], [1, 32, 1, 1514, 0, 16]);
}

#[test]
fn destinations() {
    for (output, compact, expanded) in [
        (Destination::Port(5), 5, (0, 5)),
        (Destination::Several(3), 0x8000_0003, (2, 3)),
        (Destination::Nowhere(None), 0x4000_0100, (1, 256)),
        (Destination::Nowhere(Some(DropReason::RingFull)), 0x4000_0103, (1, 259)),
        (Destination::Nowhere(Some(DropReason::ExceedsMtu)), 0x4000_0106, (1, 262)),
        (Destination::Nowhere(Some(DropReason::SourceGuard)), 0x4000_0102, (1, 258)),
        (Destination::Nowhere(Some(DropReason::Vlan)), 0x4000_0109, (1, 265)),
        (Destination::Nowhere(Some(DropReason::PortDown)), 0x4000_0100, (1, 256)),
    ] {
        let flow = Flow { output, ..flow(&[0; 14]) };
        assert_eq!(sample(|samples| samples.add_flow(Form::Compact, &flow))[8], compact, "{output:?}");
        let words = sample(|samples| samples.add_flow(Form::Expanded, &flow));
        assert_eq!((words[10], words[11]), expanded, "{output:?}");
    }
}

#[test]
fn vlan_of_a_flow_sample() {
    let forwarded = Flow { vlan: (7, 5), ..flow(&[0; 16]) };
    let words = sample(|samples| samples.add_flow(Form::Compact, &forwarded));
    assert_eq!((words[9], &words[20..]), (2, &[1001, 16, 7, 5, 7, 5][..]));
    let dropped = Flow { output: Destination::Nowhere(None), ..forwarded };
    let words = sample(|samples| samples.add_flow(Form::Compact, &dropped));
    assert_eq!(words[20..], [1001, 16, 7, 5, 0, 0]);
}

#[test]
fn counter_sample() {
    let counters = Counters {
        port: 2,
        name: "br0/a",
        sequence: 4,
        admin_up: true,
        up: false,
        rx: Direction { bytes: 1 << 33, packets: (1 << 32) + 5, discards: 6, errors: 7 },
        tx: Direction { bytes: 8, packets: 9, discards: 10, errors: 11 },
    };
    let none = u32::MAX;
    let expected: &[u32] = &[
        // Counter sample, 128 bytes: sequence, source, records.
        2,
        128,
        4,
        2,
        2,
        // Generic counters, 88 bytes: index, type, speed (64 bits), direction, status.
        1,
        88,
        2,
        6,
        0,
        0,
        1,
        1,
        // In: octets (64 bits), packets, multicast, broadcast, discards, errors, unknown protocols.
        2,
        0,
        5,
        none,
        none,
        6,
        7,
        none,
        // Out; and promiscuous.
        0,
        8,
        9,
        none,
        none,
        10,
        11,
        1,
        // Port name, 12 bytes: five of text, three of padding.
        1005,
        12,
        5,
        0x6272_302f,
        0x6100_0000,
    ];
    assert_eq!(sample(|samples| samples.add_counters(Form::Compact, &counters)), expected);
    let expanded = sample(|samples| samples.add_counters(Form::Expanded, &counters));
    assert_eq!(expanded[..7], [4, 132, 4, 0, 2, 2, 1]);
    assert_eq!(expanded[7..], expected[6..]);
}

#[test]
fn ipv6_agent() {
    let mut samples = Samples::default();
    assert!(samples.add_flow(Form::Compact, &flow(&[0; 14])));
    let head = Head { agent: IpAddr::V6(Ipv6Addr::LOCALHOST), ..HEAD };
    assert_eq!(words(&samples.finish(&head))[..10], [5, 2, 0, 0, 0, 1, 0, 7, 0x0102_0304, 1]);
}

#[test]
fn datagram_length_is_limited() {
    let header = [0; 512];
    for length in [14, 64, 128, 511, 512] {
        let mut samples = Samples::default();
        let mut added = 0;
        let flow = Flow { vlan: (1, 1), ..flow(&header[..length]) };
        while samples.add_flow(Form::Expanded, &flow) {
            added += 1;
            assert!(added < 100);
        }
        assert!(added >= 2, "{length} bytes");
        let head = Head { agent: IpAddr::V6(Ipv6Addr::LOCALHOST), ..HEAD };
        let datagram = samples.finish(&head);
        assert!(datagram.len() <= MAX_DATAGRAM, "{} bytes", datagram.len());
        assert_eq!(words(&datagram)[9], added, "a sample that does not fit is not counted");
        assert!(samples.add_flow(Form::Expanded, &flow), "the next datagram has space");
    }
}
