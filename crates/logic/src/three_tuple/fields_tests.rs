//! Both readers, on packets built here.

use proptest::prelude::*;

use super::*;

const SOURCE: [u8; 4] = [192, 0, 2, 7];
const DESTINATION: [u8; 4] = [192, 0, 2, 1];

fn end(address: [u8; 4], port: u16) -> End {
    End { address: number(IpAddr::from(address)), port }
}

fn ethernet(kind: u16, body: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), body].concat()
}

/// An IPv4 packet with a right header.
fn ipv4(protocol: u8, fragmentation: u16, options: &[u8], body: &[u8]) -> Vec<u8> {
    let own = 20 + options.len();
    let mut header = vec![0x40 | (own / 4) as u8, 0];
    header.extend(((own + body.len()) as u16).to_be_bytes());
    header.extend([0x12, 0x34]);
    header.extend(fragmentation.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend(SOURCE);
    header.extend(DESTINATION);
    header.extend(options);
    let sum = Sum::of(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [header, body.to_vec()].concat()
}

fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([[0x20; 15], [0x21; 15]].concat().iter().take(16));
    packet.extend([0x30; 16]);
    packet.extend(body);
    packet
}

const PORTS: [u8; 8] = [0x10, 0, 0, 80, 0, 8, 0, 0];

fn seen(frame: &[u8]) -> Seen {
    Seen::of(frame, frame.len() as u32, false)
}

#[test]
fn flows_are_read_with_options_and_extension_headers() {
    let flow = |fragment| Seen::Flow {
        protocol: 17,
        source: end(SOURCE, 4096),
        destination: end(DESTINATION, 80),
        fragment,
    };
    assert_eq!(seen(&ethernet(0x0800, &ipv4(17, 0x4000, &[], &PORTS))), flow(None));
    assert_eq!(seen(&ethernet(0x0800, &ipv4(17, 0, &[1, 1, 1, 0], &PORTS))), flow(None));
    let chain = [&[60, 0, 0, 0, 0, 0, 0, 0][..], &[132, 0, 0, 0, 0, 0, 0, 0], &PORTS].concat();
    let Seen::Flow { protocol: 132, source, destination, fragment: None } =
        seen(&ethernet(0x86dd, &ipv6(0, &chain)))
    else {
        panic!()
    };
    assert_eq!((source.port, destination.port), (4096, 80));
    assert_eq!(destination.ip(), IpAddr::from([0x30; 16]));
    // Longer than the part of it that is here.
    let long = [&[17, 15][..], &[0; 126], &PORTS].concat();
    let frame = ethernet(0x86dd, &ipv6(60, &long));
    assert!(Seen::is_cut(&frame[..128], frame.len() as u32) && !Seen::is_cut(&frame, frame.len() as u32));
    assert_eq!(Seen::of(&frame[..128], frame.len() as u32, false), Seen::Other);
    assert!(matches!(seen(&frame), Seen::Flow { protocol: 17, .. }));
}

#[test]
fn tagged_packets_count_only_where_tags_may_be() {
    let plain = ethernet(0x0800, &ipv4(6, 0, &[], &PORTS));
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    assert_eq!(seen(&tagged), Seen::Other);
    assert_eq!(Seen::of(&tagged, tagged.len() as u32, true), seen(&plain));
}

#[test]
fn fragments_share_their_identity() {
    let first = seen(&ethernet(0x0800, &ipv4(17, 0x2000, &[], &PORTS)));
    let Seen::Flow { fragment: Some(id), .. } = first else { panic!("{first:?}") };
    assert_eq!(seen(&ethernet(0x0800, &ipv4(17, 0x0001, &[], &[9; 8]))), Seen::Later(id));
    let fragment = |offset: u8, body: &[u8]| {
        ethernet(0x86dd, &ipv6(44, &[&[17, 0, 0, offset, 0, 0, 0, 9][..], body].concat()))
    };
    let first = seen(&fragment(1, &PORTS));
    let Seen::Flow { fragment: Some(id), .. } = first else { panic!("{first:?}") };
    assert_eq!(seen(&fragment(8, &[9; 8])), Seen::Later(id));
}

#[test]
fn errors_are_about_the_inner_source() {
    let inner = ipv4(6, 0x4000, &[], &PORTS);
    let source = end(SOURCE, 4096);
    let error =
        |kind: u8| ethernet(0x0800, &ipv4(1, 0, &[], &[&[kind, 4, 0, 0, 0, 0, 5, 0], &inner[..]].concat()));
    assert_eq!(seen(&error(3)), Seen::Error { protocol: 6, source });
    assert_eq!(seen(&error(8)), Seen::Other);
    let inner = ipv6(17, &PORTS);
    let error = ethernet(0x86dd, &ipv6(58, &[&[2, 0, 0, 0, 0, 0, 5, 0], &inner[..]].concat()));
    assert!(matches!(seen(&error), Seen::Error { protocol: 17, source } if source.port == 4096));
}

#[test]
fn neighbour_discovery_is_recognised() {
    let arp = |operation: u8| {
        let head = [0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 2];
        ethernet(0x0806, &[&head[..], &SOURCE, &[0; 6], &DESTINATION].concat())
    };
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 2]));
    assert_eq!(seen(&arp(1)), Seen::Question { source: end(SOURCE, 0).address, mac });
    assert_eq!(seen(&arp(2)), Seen::Answer);
    assert_eq!(seen(&arp(3)), Seen::Other);
    let icmp = |kind: u8, option: &[u8]| {
        ethernet(0x86dd, &ipv6(58, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0x31; 16], option].concat()))
    };
    assert!(
        matches!(seen(&icmp(135, &[1, 1, 2, 0, 0, 0, 0, 2])), Seen::Question { mac: found, .. } if found == mac)
    );
    assert!(matches!(seen(&icmp(135, &[])), Seen::Question { mac: None, .. }));
    assert_eq!(seen(&icmp(136, &[])), Seen::Answer);
    assert_eq!(seen(&icmp(128, &[])), Seen::Other);
}

#[test]
fn wrong_lengths_and_checksums_are_noticed() {
    let right = ethernet(0x0800, &ipv4(6, 0, &[], &PORTS));
    for (at, value) in [(16, 1), (17, 200), (17, 10), (25, right[25] ^ 1)] {
        let mut wrong = right.clone();
        wrong[at] = value;
        assert_eq!(seen(&wrong), Seen::Wrong, "byte {at}");
        assert_eq!(Flow::of::<true>(&wrong, wrong.len() as u32), None);
    }
    // The checksum is right, the length is not.
    let mut packet = ipv4(6, 0, &[], &PORTS);
    packet.pop();
    assert_eq!(seen(&ethernet(0x0800, &packet)), Seen::Wrong);
    let mut packet = ipv6(6, &PORTS);
    packet[5] = 9;
    assert_eq!(seen(&ethernet(0x86dd, &packet)), Seen::Wrong);
    let mut mapped = ipv6(6, &PORTS);
    mapped[24..40].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    assert_eq!(seen(&ethernet(0x86dd, &mapped)), Seen::Other);
}

proptest! {
    #[test]
    fn the_fast_reader_agrees(
        protocol in prop::sample::select(vec![1u8, 6, 17, 132]),
        fragmentation in prop::sample::select(vec![0u16, 0x4000, 0x2000, 0x8000, 3]),
        options in prop::sample::select(vec![0usize, 4]),
        body in prop::collection::vec(any::<u8>(), 0..40),
        changed in prop::option::of((0usize..60, any::<u8>())),
        padding in 0usize..4,
    ) {
        let options = vec![1; options];
        let mut frame = ethernet(0x0800, &[ipv4(protocol, fragmentation, &options, &body), vec![0; padding]].concat());
        if let Some((at, value)) = changed
            && let Some(byte) = frame.get_mut(at)
        {
            *byte = value;
        }
        let len = frame.len() as u32;
        let seen = Seen::of(&frame, len, false);
        if let Some(flow) = Flow::of::<true>(&frame, len) {
            prop_assert_eq!(seen, Seen::from(flow));
        }
    }

    #[test]
    fn any_bytes_can_be_read(
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8100]),
        first in prop::sample::select(vec![0x45u8, 0x46, 0x60]),
        next in prop::sample::select(vec![0u8, 1, 6, 17, 43, 44, 58, 60]),
        mut body in prop::collection::vec(any::<u8>(), 0..200),
        len in 0u32..300,
    ) {
        for (at, value) in [(0, first), (6, next), (9, next)] {
            if let Some(byte) = body.get_mut(at) {
                *byte = value;
            }
        }
        let frame = ethernet(kind, &body);
        Seen::of(&frame, len, true);
        Seen::is_cut(&frame, len);
        Flow::of::<true>(&frame, len);
    }
}
