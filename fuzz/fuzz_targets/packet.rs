//! Hostile frames and metadata, through all functions that read or edit them.
//!
//! Invariants:
//! - No panic and no access out of bounds (the crate has no `unsafe`), with validated metadata and without.
//! - Each parsed offset lies within the frame, and both hash functions agree.
//! - Pushing and popping a tag restores the frame; the metadata moves along.
//! - Validation returns a normal form, which survives the virtio header and a second validation.
//! - Validated metadata can be applied: segments carry the payload exactly, in order, with correct checksums and
//!   lengths in their headers; completing a checksum changes only its two bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::offload::MAX_SEGMENTS;
use packet::{
    Gso, IpVersion, Layers, Offload, Plan, SegmentError, Sum, VlanTag, edit, flow, segment, virtio_net,
};
use support::Bytes;
use support::frame::{self, sum_of_words};

fuzz_target!(|data: &[u8]| {
    let mut from = Bytes::new(data);
    // Mostly the number of bytes that workers copy at first.
    let private = match usize::from(from.u16()) % 1024 {
        n @ 0..=512 => n,
        n => [128, 192][n % 2],
    };
    let tag = VlanTag::from_tci(from.u16());
    let header: [u8; virtio_net::HEADER_LEN] = from.array();
    if let Ok(claim) = virtio_net::decode(&header) {
        assert_eq!(virtio_net::decode(&virtio_net::encode(&claim, 0)), Ok(meaningful(claim)));
    }
    let frame = frame::read(&mut from);
    everything(&frame.bytes, private, &frame.claim);
    vlan(&frame.bytes, &frame.claim, tag);
});

/// Values that a virtio header can express: ECN is valid with TCP only.
fn meaningful(claim: Offload) -> Offload {
    Offload { ecn: claim.ecn && !matches!(claim.gso, Gso::None | Gso::Udp), ..claim }
}

/// Segments a packet for a caller with a private copy of `headers`.
fn cut(packet: &[u8], headers: &[u8], offload: &Offload) -> Result<Vec<Vec<u8>>, SegmentError> {
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

fn everything(packet: &[u8], private: usize, claim: &Offload) {
    let headers = &packet[..private.min(packet.len())];
    let total_len = packet.len() as u32;
    let layers = Layers::parse(headers);
    let within = |at: Option<u16>| at.is_none_or(|at| usize::from(at) < headers.len());
    assert!(usize::from(layers.l2_len) <= headers.len() && within(layers.l3) && within(layers.l4));
    assert_eq!(layers.ip.is_some(), layers.l3.is_some());
    assert_eq!(flow::hash(headers), flow::hash_layers(headers, &layers));

    // Without validation: may be refused, must not panic.
    let _ = cut(packet, headers, claim);
    let _ = segment::complete_checksum(&mut headers.to_vec(), claim, total_len, Sum::default());

    let Ok(offload) = claim.validate(headers, total_len) else { return };
    assert_eq!(offload.validate(headers, total_len), Ok(offload), "validation is not idempotent");
    assert_eq!(virtio_net::decode(&virtio_net::encode(&offload, 1)), Ok(offload));
    if offload.gso == Gso::None {
        completed(packet, headers, &layers, &offload);
    } else {
        segmented(packet, headers, &layers, &offload);
    }
}

fn completed(packet: &[u8], headers: &[u8], layers: &Layers, offload: &Offload) {
    let mut whole = packet.to_vec();
    let (front, rest) = whole.split_at_mut(headers.len());
    let done = segment::complete_checksum(front, offload, packet.len() as u32, Sum::of(rest));
    assert_eq!(done, Ok(()));
    let start = usize::from(offload.csum_start);
    let field = start + usize::from(offload.csum_offset);
    for (at, (new, old)) in whole.iter().zip(packet).enumerate() {
        assert!(new == old || offload.needs_csum && (field..field + 2).contains(&at), "byte {at} changed");
    }
    if offload.needs_csum {
        assert!(
            start >= usize::from(layers.l4.unwrap_or(u16::MAX)),
            "a checksum before the transport header"
        );
        // The field's previous value counts as the pseudo-header's sum.
        let mut checked = whole[start..].to_vec();
        let left = &packet[field..field + 2];
        if offload.csum_offset.is_multiple_of(2) {
            checked.resize(checked.len().next_multiple_of(2), 0);
            checked.extend(left);
            assert_eq!(sum_of_words(&checked), 0xffff, "the completed checksum is wrong");
        }
    }
}

fn segmented(packet: &[u8], headers: &[u8], layers: &Layers, offload: &Offload) {
    let segments = match cut(packet, headers, offload) {
        Ok(segments) => segments,
        Err(error) => panic!("validated metadata was refused: {error}"),
    };
    assert!((2..=MAX_SEGMENTS as usize).contains(&segments.len()));
    let hdr = usize::from(offload.hdr_len);
    let payload: Vec<u8> = segments.iter().flat_map(|segment| segment[hdr..].to_vec()).collect();
    assert_eq!(payload, &packet[hdr..]);
    let (l3, l4) = (usize::from(layers.l3.unwrap_or_default()), usize::from(layers.l4.unwrap_or_default()));
    for (i, segment) in segments.iter().enumerate() {
        let last = i + 1 == segments.len();
        let carried = segment.len() - hdr;
        assert!(carried == usize::from(offload.gso_size) || last && carried <= usize::from(offload.gso_size));
        let found = Layers::parse(segment);
        assert_eq!((found.l2_len, found.l3, found.l4), (layers.l2_len, layers.l3, layers.l4));
        let number = |at: usize| usize::from(u16::from_be_bytes([segment[at], segment[at + 1]]));
        match layers.ip {
            Some(IpVersion::V4) => {
                assert_eq!(number(l3 + 2), segment.len() - l3);
                assert_eq!(sum_of_words(&segment[l3..l4]), 0xffff, "the IPv4 header checksum is wrong");
            }
            _ => assert_eq!(number(l3 + 4), segment.len() - l3 - 40),
        }
        let udp = offload.gso == Gso::Udp;
        assert!(!udp || number(l4 + 4) == segment.len() - l4);
        // The sender's pseudo-header sum, without the packet's length, with this segment's length.
        let field = l4 + if udp { 6 } else { 16 };
        let given = &packet[field..field + 2];
        let uncut = !((packet.len() - l4) as u16);
        let own = (segment.len() - l4) as u16;
        let mut checked = segment[l4..].to_vec();
        checked.resize(checked.len().next_multiple_of(2), 0);
        checked.extend(given.iter().chain(&uncut.to_be_bytes()).chain(&own.to_be_bytes()));
        assert_eq!(sum_of_words(&checked), 0xffff, "segment {i}: the transport checksum is wrong");
    }
}

fn vlan(packet: &[u8], claim: &Offload, tag: VlanTag) {
    let mut buffer = [vec![0xdd; 4], packet.to_vec()].concat();
    let total_len = packet.len() as u32;
    let before = claim.validate(packet, total_len);
    if !edit::push_vlan(&mut buffer, tag) {
        assert!(packet.len() < 14 && buffer[4..] == *packet);
        return;
    }
    assert_eq!(packet::ether::vlan_tag(&buffer), Some(tag));
    assert!(edit::set_vlan(&mut buffer, tag));
    let layers = Layers::parse(packet);
    if let Ok(mut offload) = before
        // A tag beyond the parsed number hides the following headers.
        && layers.vlan_tags < 2
        && let Some(start) = claim.csum_start.checked_add(4)
        && start < u16::MAX
    {
        offload.shift(4);
        let after = offload.validate(&buffer, total_len + 4);
        assert_eq!(after, Ok(offload), "valid metadata became invalid with a tag");
    }
    assert!(edit::pop_vlan(&mut buffer));
    assert_eq!(&buffer[4..], packet);
    let mut popped = packet.to_vec();
    if edit::pop_vlan(&mut popped) {
        assert_eq!(popped[4..16], packet[..12]);
        assert_eq!(popped[16..], packet[16..]);
    } else {
        assert_eq!(popped, packet);
    }
}
