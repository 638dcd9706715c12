//! Compares segmentation and checksum completion with an independent implementation of the RFCs, and feeds them false
//! metadata.
//!
//! The checks share no code with the crate: they parse headers by hand and add sums byte by byte.
#![cfg(test)]

use packet::offload::MAX_SEGMENTS;
use packet::{Gso, Layers, Offload, OffloadError, Plan, SegmentError, Sum, flow, segment, virtio_net};
use proptest::prelude::*;

/// A packet to build, with every variation that segmentation must handle.
#[derive(Clone, Debug)]
struct Spec {
    vlan_tags: usize,
    v6: bool,
    /// 32-bit words of IPv4 options, or 8-byte IPv6 destination options.
    ip_options: usize,
    tcp: bool,
    /// 32-bit words.
    tcp_options: usize,
    flags: u8,
    sequence: u32,
    identification: u16,
    gso_size: u16,
    payload: Vec<u8>,
}

fn spec() -> impl Strategy<Value = Spec> {
    let shape = (0..=2usize, any::<bool>(), 0..=4usize, any::<bool>(), 0..=10usize);
    let fields = (any::<u8>(), any::<u32>(), any::<u16>(), 20..2000u16);
    (shape, fields, prop::collection::vec(any::<u8>(), 0..4000)).prop_map(
        |(
            (vlan_tags, v6, ip_options, tcp, tcp_options),
            (flags, sequence, identification, gso_size),
            payload,
        )| {
            let gso_size = gso_size.max((payload.len() / MAX_SEGMENTS as usize + 1) as u16);
            Spec {
                vlan_tags,
                v6,
                ip_options,
                tcp,
                tcp_options,
                flags,
                sequence,
                identification,
                gso_size,
                payload,
            }
        },
    )
}

/// A built packet with its offsets.
struct Built {
    bytes: Vec<u8>,
    l3: usize,
    l4: usize,
    hdr: usize,
    offload: Offload,
}

impl Spec {
    fn build(&self) -> Built {
        let mut bytes = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
        for tag in 0..self.vlan_tags {
            let tpid: u16 = if tag + 1 < self.vlan_tags { 0x88a8 } else { 0x8100 };
            bytes.extend(tpid.to_be_bytes());
            bytes.extend([0x20, 0x64]);
        }
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let l3 = bytes.len();
        let protocol = if self.tcp { 6 } else { 17 };
        let l4_len = if self.tcp { 20 + 4 * self.tcp_options } else { 8 } + self.payload.len();
        if self.v6 {
            bytes.extend([0x60, 0x0a, 0xbc, 0xde]);
            bytes.extend(((8 * self.ip_options + l4_len) as u16).to_be_bytes());
            bytes.extend([if self.ip_options > 0 { 60 } else { protocol }, 64]);
            bytes.extend((0..32u8).map(|i| i.wrapping_mul(37)));
            for i in 0..self.ip_options {
                bytes.extend([if i + 1 < self.ip_options { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            bytes.extend([0x45 + self.ip_options as u8, 0x02]);
            bytes.extend(((20 + 4 * self.ip_options + l4_len) as u16).to_be_bytes());
            bytes.extend(self.identification.to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0xde, 0xad, 192, 168, 0, 1, 10, 1, 2, 3]);
            bytes.extend(vec![1; 4 * self.ip_options]);
        }
        let l4 = bytes.len();
        bytes.extend([0x30, 0x39, 0x01, 0xbb]);
        if self.tcp {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend([1, 2, 3, 4, (5 + self.tcp_options as u8) << 4, self.flags, 0xff, 0, 0, 0, 0, 0]);
            bytes.extend(vec![1; 4 * self.tcp_options]);
        } else {
            bytes.extend((l4_len as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
        let hdr = bytes.len();
        bytes.extend(&self.payload);
        let csum_offset = if self.tcp { 16 } else { 6 };
        let partial = add_words(&pseudo_header(&bytes, l3, l4, protocol));
        bytes[l4 + csum_offset..][..2].copy_from_slice(&partial.to_be_bytes());
        let gso = match (self.tcp, self.v6) {
            (true, false) => Gso::Tcp4,
            (true, true) => Gso::Tcp6,
            (false, _) => Gso::Udp,
        };
        let offload = Offload {
            gso,
            gso_size: self.gso_size,
            needs_csum: true,
            csum_start: l4 as u16,
            csum_offset: csum_offset as u16,
            ..Offload::NONE
        };
        Built { bytes, l3, l4, hdr, offload }
    }
}

/// The sum of RFC 1071, two bytes at a time.
fn add_words(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) * 256 + u32::from(pair.get(1).copied().unwrap_or(0));
        sum = sum % 65536 + sum / 65536;
    }
    sum as u16
}

fn pseudo_header(packet: &[u8], l3: usize, l4: usize, protocol: u8) -> Vec<u8> {
    let len = (packet.len() - l4) as u16;
    let addresses = if packet[l3] >> 4 == 6 { &packet[l3 + 8..l3 + 40] } else { &packet[l3 + 12..l3 + 20] };
    [addresses, &[0, protocol], &len.to_be_bytes()].concat()
}

fn transport_checksum_holds(packet: &[u8], l3: usize, l4: usize, protocol: u8) -> bool {
    add_words(&[pseudo_header(packet, l3, l4, protocol), packet[l4..].to_vec()].concat()) == 0xffff
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Segments a packet as a caller does that has a private copy of its first `private` bytes.
fn cut(packet: &[u8], private: usize, offload: &Offload) -> Result<Vec<Vec<u8>>, SegmentError> {
    let headers = &packet[..private.min(packet.len())];
    let plan = Plan::new(headers, packet.len() as u32, offload)?;
    (0..plan.count())
        .map(|i| {
            let range = plan.payload(i);
            let payload = &packet[range.start as usize..range.end as usize];
            let mut segment = vec![0xee; plan.header_len()];
            plan.write_header(i, headers, &mut segment, Sum::of(payload))?;
            segment.extend(payload);
            assert_eq!(segment.len(), plan.segment_len(i));
            Ok(segment)
        })
        .collect()
}

fn check_segments(spec: &Spec, built: &Built, segments: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let Built { l3, l4, hdr, .. } = *built;
    let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[hdr..].to_vec()).collect();
    prop_assert_eq!(&payload, &spec.payload);
    let (protocol, checksum) = if spec.tcp { (6, l4 + 16) } else { (17, l4 + 6) };
    let mut sequence = spec.sequence;
    for (i, segment) in segments.iter().enumerate() {
        let (first, last) = (i == 0, i + 1 == segments.len());
        let carried = segment.len() - hdr;
        prop_assert!(last && carried <= usize::from(spec.gso_size) || carried == usize::from(spec.gso_size));
        prop_assert!(transport_checksum_holds(segment, l3, l4, protocol));
        prop_assert_ne!(number(&segment[checksum..checksum + 2]), 0);

        // Fields that may differ are checked and then restored: all others must be unchanged.
        let mut restored = segment[..hdr].to_vec();
        let mut put_back = |at: usize, len: usize| {
            restored[at..at + len].copy_from_slice(&built.bytes[at..at + len]);
        };
        put_back(checksum, 2);
        if spec.v6 {
            prop_assert_eq!(number(&segment[l3 + 4..l3 + 6]), segment.len() - l3 - 40);
            put_back(l3 + 4, 2);
        } else {
            prop_assert_eq!(number(&segment[l3 + 2..l3 + 4]), segment.len() - l3);
            let identification = spec.identification.wrapping_add(i as u16);
            prop_assert_eq!(number(&segment[l3 + 4..l3 + 6]), usize::from(identification));
            prop_assert_eq!(add_words(&segment[l3..l4]), 0xffff);
            put_back(l3 + 2, 4);
            put_back(l3 + 10, 2);
        }
        if spec.tcp {
            prop_assert_eq!(number(&segment[l4 + 4..l4 + 8]), sequence as usize);
            sequence = sequence.wrapping_add(carried as u32);
            let kept = 0x76 | if first { 0x80 } else { 0 } | if last { 0x09 } else { 0 };
            prop_assert_eq!(segment[l4 + 13], spec.flags & kept);
            put_back(l4 + 4, 4);
            put_back(l4 + 13, 1);
        } else {
            prop_assert_eq!(number(&segment[l4 + 4..l4 + 6]), segment.len() - l4);
            put_back(l4 + 4, 2);
        }
        prop_assert_eq!(&restored, &built.bytes[..hdr]);
    }
    Ok(())
}

/// Runs a packet through every function; panics if one breaks a promise of validation. Returns whether the packet was
/// accepted.
fn everything(packet: &[u8], private: usize, claim: &Offload) -> bool {
    let headers = &packet[..private.min(packet.len())];
    let total_len = packet.len() as u32;
    let layers = Layers::parse(headers);
    assert_eq!(flow::hash(headers), flow::hash_layers(headers, &layers));
    // Unvalidated metadata may be refused but must not panic.
    let _ = cut(packet, private, claim);
    let _ = segment::complete_checksum(&mut headers.to_vec(), claim, total_len, Sum::default());
    let Ok(offload) = claim.validate(headers, total_len) else { return false };
    assert_eq!(offload.validate(headers, total_len), Ok(offload), "validation is idempotent");
    let encoded = virtio_net::encode(&offload, 1);
    assert_eq!(virtio_net::decode(&encoded), Ok(offload));
    if offload.gso == Gso::None {
        let mut completed = headers.to_vec();
        segment::complete_checksum(&mut completed, &offload, total_len, Sum::of(&packet[headers.len()..]))
            .unwrap();
        let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
        let changed: Vec<usize> = (0..completed.len()).filter(|&at| completed[at] != headers[at]).collect();
        assert!(changed.iter().all(|&at| offload.needs_csum && (field..field + 2).contains(&at)));
        assert!(changed.iter().all(|&at| at >= usize::from(layers.l4.unwrap())));
    } else {
        let segments = cut(packet, private, &offload).unwrap();
        assert!((2..=MAX_SEGMENTS as usize).contains(&segments.len()));
        let hdr = usize::from(offload.hdr_len);
        let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[hdr..].to_vec()).collect();
        assert_eq!(payload, &packet[hdr..]);
        for segment in segments {
            let layers_of_segment = Layers::parse(&segment);
            assert_eq!((layers_of_segment.l3, layers_of_segment.l2_len), (layers.l3, layers.l2_len));
        }
    }
    true
}

#[test]
fn a_tcp_packet_by_hand() {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    packet.extend([0x45, 0, 0, 45, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 80, 0, 81, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0x50, 0x99, 0, 1, 0x14, 0x22, 0, 0]);
    packet.extend([1, 2, 3, 4, 5]);
    // The pseudo-header: 0a00 + 0001 + 0a00 + 0002 + 0006 + 0019 (25 bytes of TCP) = 1422.
    let offload = Offload {
        gso: Gso::Tcp4,
        ecn: true,
        needs_csum: true,
        gso_size: 3,
        csum_start: 34,
        csum_offset: 16,
        ..Offload::NONE
    };
    let segments = cut(&packet, packet.len(), &offload).unwrap();
    assert_eq!(segments.len(), 2);

    // RFC 791 §3.1: the complement of the folded sum of the header's words.
    let ip_sum = |total: u32, id: u32| {
        let sum: u32 = 0x4500 + total + id + 0x4000 + 0x4006 + 0x0a00 + 0x0001 + 0x0a00 + 0x0002;
        let sum = (sum & 0xffff) + (sum >> 16);
        (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
    };
    assert_eq!(segments[0][16..20], [0, 43, 0xff, 0xff]);
    assert_eq!(segments[0][24..26], ip_sum(43, 0xffff));
    assert_eq!(segments[1][16..20], [0, 42, 0, 0], "the identification wraps");
    assert_eq!(segments[1][24..26], ip_sum(42, 0));
    assert_eq!(segments[0][38..42], [0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(segments[1][38..42], [0, 0, 0, 1], "the sequence number wraps");
    assert_eq!(segments[0][47], 0x90, "the first keeps CWR and loses FIN and PSH");
    assert_eq!(segments[1][47], 0x19, "the last keeps FIN and PSH and loses CWR");
    // Pseudo-header 1420, header 0050 0051 ffff fffe 0000 0000 5090 0001 0000, payload 0102 0300.
    // 1420 + 50 + 51 + ffff + fffe + 5090 + 1 + 102 + 300 = 2_6951 -> 6953 -> complement 96ac.
    assert_eq!(segments[0][50..52], [0x96, 0xac]);
    // 141f + 50 + 51 + 0 + 1 + 5019 + 1 + 405 = 68e0 -> complement 971f.
    assert_eq!(segments[1][50..52], [0x97, 0x1f]);
    assert_eq!(segments[0][54..], [1, 2, 3]);
    assert_eq!(segments[1][54..], [4, 5]);
}

#[test]
fn the_largest_packet_passes() {
    for v6 in [false, true] {
        let ip_len = if v6 { 0 } else { 20 };
        let spec = Spec {
            vlan_tags: 1,
            v6,
            ip_options: 0,
            tcp: true,
            tcp_options: 3,
            flags: 0x18,
            sequence: 0xffff_f000,
            identification: 0xfff0,
            gso_size: 1448,
            payload: (0..65535 - 32 - ip_len).map(|i| i as u8).collect(),
        };
        let built = spec.build();
        let offload = built.offload.validate(&built.bytes[..128], built.bytes.len() as u32).unwrap();
        let segments = cut(&built.bytes, 128, &offload).unwrap();
        assert_eq!(segments.len(), spec.payload.len().div_ceil(1448));
        check_segments(&spec, &built, &segments).unwrap();
    }
}

#[test]
fn misuse_is_refused() {
    let spec = Spec {
        vlan_tags: 0,
        v6: false,
        ip_options: 0,
        tcp: false,
        tcp_options: 0,
        flags: 0,
        sequence: 0,
        identification: 0,
        gso_size: 100,
        payload: vec![7; 300],
    };
    let Built { bytes, offload, .. } = spec.build();
    let plan = Plan::new(&bytes[..64], bytes.len() as u32, &offload).unwrap();
    assert_eq!((plan.count(), plan.header_len()), (3, 42));
    assert_eq!(plan.payload(2), 242..342);
    assert!(plan.payload(3).is_empty() && plan.payload(u32::MAX).is_empty());
    let write =
        |i, original: &[u8], room: usize| plan.write_header(i, original, &mut vec![0; room], Sum::default());
    assert_eq!(write(3, &bytes, 42), Err(SegmentError::NoSuchSegment(3)));
    assert_eq!(write(0, &bytes[..41], 42), Err(SegmentError::TooShort));
    assert_eq!(write(0, &bytes, 41), Err(SegmentError::TooShort));
    assert_eq!(write(0, &bytes, 42), Ok(()));
    let refused = Plan::new(&bytes[..41], bytes.len() as u32, &offload).err();
    assert_eq!(refused, Some(SegmentError::Offload(OffloadError::Truncated)));
    let tiny = Offload { gso_size: 1, ..offload };
    let refused = Plan::new(&bytes, bytes.len() as u32, &tiny).err();
    assert_eq!(refused, Some(SegmentError::Offload(OffloadError::TooManySegments(300))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn segments_are_right(spec in spec(), private in 128..512usize) {
        let built = spec.build();
        // Two tags, IPv6 with options and TCP with all its options exceed the usual private copy.
        let private = private.max(built.hdr);
        let segments = cut(&built.bytes, private, &built.offload).unwrap();
        prop_assert_eq!(segments.len(), spec.payload.len().div_ceil(usize::from(spec.gso_size)).max(1));
        check_segments(&spec, &built, &segments)?;
        prop_assert!(everything(&built.bytes, private, &built.offload));
    }

    #[test]
    fn completed_checksums_are_right(spec in spec(), private in 128..512usize) {
        let built = spec.build();
        let claim = Offload { gso: Gso::None, ..built.offload };
        let private = private.max(built.hdr).min(built.bytes.len());
        let offload = claim.validate(&built.bytes[..private], built.bytes.len() as u32).unwrap();
        let mut packet = built.bytes.clone();
        let (header, rest) = packet.split_at_mut(private);
        segment::complete_checksum(header, &offload, built.bytes.len() as u32, Sum::of(rest)).unwrap();
        let protocol = if spec.tcp { 6 } else { 17 };
        prop_assert!(transport_checksum_holds(&packet, built.l3, built.l4, protocol));
    }

    #[test]
    fn a_pushed_tag_shifts_the_offload(spec in spec()) {
        let spec = Spec { vlan_tags: spec.vlan_tags.min(1), ..spec };
        let built = spec.build();
        let total_len = built.bytes.len() as u32;
        let mut offload = built.offload.validate(&built.bytes, total_len).unwrap();
        let before = offload;
        let mut tagged = [vec![0; 4], built.bytes.clone()].concat();
        prop_assert!(packet::edit::push_vlan(&mut tagged, packet::VlanTag::from_tci(5)));
        offload.shift(4);
        prop_assert_eq!(offload.validate(&tagged, total_len + 4), Ok(offload));
        prop_assert!(packet::edit::pop_vlan(&mut tagged));
        offload.shift(-4);
        prop_assert_eq!(offload, before);
        prop_assert_eq!(&tagged[4..], &built.bytes[..]);
    }

    #[test]
    fn nearly_right_packets_do_no_harm(
        spec in spec(),
        private in 0..512usize,
        flips in prop::collection::vec((0..150usize, any::<u8>()), 0..4),
        size: u16,
        start in -3i16..3,
        longer in 0..3usize,
    ) {
        let mut built = spec.build();
        for (at, mask) in flips {
            if let Some(byte) = built.bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        built.bytes.resize(built.bytes.len() + longer, 0);
        let csum_start = built.offload.csum_start.wrapping_add_signed(start / 2);
        let gso_size = if size % 2 == 0 { size } else { built.offload.gso_size };
        everything(&built.bytes, private, &Offload { csum_start, gso_size, ..built.offload });
        everything(&built.bytes, private, &Offload { csum_start, gso: Gso::None, ..built.offload });
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        packet in prop::collection::vec(any::<u8>(), 0..600),
        ethertype in prop::sample::select(vec![[8u8, 0], [0x86, 0xdd], [0x81, 0], [0, 0]]),
        private in 0..512usize,
        header: [u8; 12],
        small: bool,
    ) {
        let mut packet = packet;
        if let Some(field) = packet.get_mut(12..14) {
            field.copy_from_slice(&ethertype);
        }
        let mut header = header;
        if small {
            // Values that are not refused at once.
            (header[0], header[1], header[7], header[9]) = (1, header[1] % 6, 0, 0);
            (header[6], header[8]) = (header[6] % 100, header[8] % 32);
        }
        if let Ok(claim) = virtio_net::decode(&header) {
            everything(&packet, private, &claim);
        }
    }
}
