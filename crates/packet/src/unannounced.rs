//! Checksums that a sender left to be completed without saying so.
//!
//! A Linux host that sends through a virtual interface leaves TCP and UDP checksums to the receiver and says so beside
//! the packet. AF_XDP sockets do not pass that on: the packet arrives with the sum of its pseudo-header in place of the
//! checksum. That value is as telling as a flag: completing the checksum of a packet in which it happens to be the
//! correct one gives the same value again.

use crate::checksum::{pseudo_header_v4, pseudo_header_v6};
use crate::headers::{IPV4_MIN_LEN, IPV6_LEN, IpVersion, Layers, protocol};
use crate::offload::{Offload, TCP_CHECKSUM, UDP_CHECKSUM};

/// Returns the work that the sender of a TCP or UDP packet left, if the field of its checksum holds the sum of its
/// pseudo-header (RFC 9293 §3.1, RFC 768, RFC 8200 §8.1). `frame` is the front of the packet.
#[inline]
pub fn unannounced(frame: &[u8]) -> Offload {
    left(frame).unwrap_or(Offload::NONE)
}

#[inline]
fn left(frame: &[u8]) -> Option<Offload> {
    let layers = Layers::parse(frame);
    let (l3, l4) = (layers.l3?, layers.l4?);
    let csum_offset = match layers.protocol? {
        protocol::TCP => TCP_CHECKSUM,
        protocol::UDP => UDP_CHECKSUM,
        _ => return None,
    };
    if layers.fragment {
        return None;
    }
    let protocol = layers.protocol?;
    let before = l4 - l3;
    let sum = match layers.ip? {
        IpVersion::V4 => {
            let header = chunk::<IPV4_MIN_LEN>(frame, l3)?;
            let [.., a, b, c, d, e, f, g, h] = *header;
            let length = u16::from_be_bytes([header[2], header[3]]).checked_sub(before)?;
            pseudo_header_v4([a, b, c, d], [e, f, g, h], protocol, length)
        }
        IpVersion::V6 => {
            let header = chunk::<IPV6_LEN>(frame, l3)?;
            let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
            let length = payload.checked_sub(u32::from(before).checked_sub(IPV6_LEN as u32)?)?;
            let (source, destination) = (header[8..].first_chunk()?, header[24..].first_chunk()?);
            pseudo_header_v6(*source, *destination, protocol, length)
        }
    };
    let field = u16::from_be_bytes(*chunk::<2>(frame, l4 + csum_offset)?);
    (field == sum.partial()).then_some(Offload {
        needs_csum: true,
        csum_start: l4,
        csum_offset,
        ..Offload::NONE
    })
}

#[inline]
fn chunk<const N: usize>(frame: &[u8], at: u16) -> Option<&[u8; N]> {
    frame.get(usize::from(at)..)?.first_chunk()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use proptest::prelude::*;

    use super::*;
    use crate::checksum::Sum;

    /// A UDP packet over IPv4 with this payload, whose checksum is still to be completed.
    fn over_ipv4(payload: &[u8]) -> Vec<u8> {
        let udp = 8 + payload.len() as u16;
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend((20 + udp).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol::UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x12, 0x34, 0, 53]);
        frame.extend(udp.to_be_bytes());
        frame.extend(
            pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], protocol::UDP, udp).partial().to_be_bytes(),
        );
        frame.extend(payload);
        frame
    }

    /// A TCP segment over IPv6, behind an extension header with options.
    fn over_ipv6(payload: &[u8]) -> Vec<u8> {
        let (source, destination) = ([1; 16], [2; 16]);
        let tcp = 20 + payload.len() as u16;
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((8 + tcp).to_be_bytes());
        frame.extend([60, 64]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend([protocol::TCP, 0, 1, 4, 0, 0, 0, 0]);
        let mut segment = vec![0; 20];
        segment[12] = 5 << 4;
        let sum = pseudo_header_v6(source, destination, protocol::TCP, tcp.into());
        segment[16..18].copy_from_slice(&sum.partial().to_be_bytes());
        frame.extend(segment);
        frame.extend(payload);
        frame
    }

    /// Completes the checksum that `unannounced` finds.
    fn complete(mut frame: Vec<u8>) -> Vec<u8> {
        let found = unannounced(&frame);
        assert!(found.needs_csum, "{frame:02x?}");
        let (start, field) =
            (usize::from(found.csum_start), usize::from(found.csum_start + found.csum_offset));
        let checksum = Sum::of(&frame[start..]).finish();
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    proptest! {
        #[test]
        fn the_work_is_found_and_done_once(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            for frame in [over_ipv4(&payload), over_ipv6(&payload)] {
                prop_assert_eq!(unannounced(&frame).validate(&frame, frame.len() as u32), Ok(unannounced(&frame)));
                let done = complete(frame);
                // A correct checksum stays as it is, be it found or not.
                let again = if unannounced(&done).needs_csum { complete(done.clone()) } else { done.clone() };
                prop_assert_eq!(again, done);
            }
        }

        #[test]
        fn any_bytes_are_fine(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            unannounced(&frame);
        }

        #[test]
        fn a_cut_frame_is_fine(payload in proptest::collection::vec(any::<u8>(), 0..40), cut in 0usize..100) {
            for frame in [over_ipv4(&payload), over_ipv6(&payload)] {
                unannounced(&frame[..cut.min(frame.len())]);
            }
        }
    }

    #[test]
    fn fragments_and_other_protocols_have_no_work_left() {
        let mut frame = over_ipv4(b"data");
        frame[14 + 6] = 0x20;
        assert_eq!(unannounced(&frame), Offload::NONE);
        let mut frame = over_ipv4(b"data");
        frame[14 + 9] = protocol::ICMP;
        assert_eq!(unannounced(&frame), Offload::NONE);
    }
}
