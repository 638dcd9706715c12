//! Offload metadata as a `virtio_net_hdr` (virtio 1.2 §5.1.6), the form used by virtio rings and TAP devices.
//!
//! The header is the little-endian one of 12 bytes, selected by `VIRTIO_F_VERSION_1` or `VIRTIO_NET_F_MRG_RXBUF`. A TAP
//! device uses the same with `TUNSETVNETHDRSZ` 12 and `TUNSETVNETLE` 1.
//!
//! Invariant: decoding only translates. The result is an unverified claim of the client until [`Offload::validate`] has
//! compared it with the packet.

use crate::offload::{Gso, Offload, OffloadError};

/// Length of the header.
pub const HEADER_LEN: usize = 12;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Decodes the header of a received packet.
///
/// Unknown flags are ignored (virtio 1.2 §5.1.6.2.2), and so is `num_buffers`. Unknown segmentation types, ECN without
/// TCP, and `VIRTIO_NET_HDR_GSO_UDP` (3), which asks for IP fragmentation, are refused.
#[inline]
pub fn decode(header: &[u8; HEADER_LEN]) -> Result<Offload, OffloadError> {
    let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1, _, _] = *header;
    let gso = match gso_type {
        GSO_NONE => Gso::None,
        GSO_UDP_L4 => Gso::Udp,
        _ => match gso_type & !GSO_ECN {
            GSO_TCPV4 => Gso::Tcp4,
            GSO_TCPV6 => Gso::Tcp6,
            _ => return Err(OffloadError::UnknownGsoType(gso_type)),
        },
    };
    Ok(Offload {
        gso,
        ecn: gso_type & GSO_ECN != 0,
        needs_csum: flags & F_NEEDS_CSUM != 0,
        csum_valid: flags & F_DATA_VALID != 0,
        gso_size: u16::from_le_bytes([g0, g1]),
        csum_start: u16::from_le_bytes([s0, s1]),
        csum_offset: u16::from_le_bytes([o0, o1]),
        hdr_len: u16::from_le_bytes([h0, h1]),
    })
}

/// Encodes the header for a packet sent to a driver or a TAP device.
///
/// `num_buffers` is the number of descriptor chains that the packet takes: 1 where receive buffers are not merged
/// (virtio 1.2 §5.1.6.4.1), 0 towards a device.
#[inline]
pub fn encode(offload: &Offload, num_buffers: u16) -> [u8; HEADER_LEN] {
    let ecn = if offload.ecn { GSO_ECN } else { 0 };
    let gso_type = match offload.gso {
        Gso::None => GSO_NONE,
        Gso::Tcp4 => GSO_TCPV4 | ecn,
        Gso::Tcp6 => GSO_TCPV6 | ecn,
        Gso::Udp => GSO_UDP_L4,
    };
    let needs_csum = if offload.needs_csum { F_NEEDS_CSUM } else { 0 };
    let csum_valid = if offload.csum_valid { F_DATA_VALID } else { 0 };
    // Assembled in registers and stored as two words, because this runs once per packet.
    let first = u64::from(needs_csum | csum_valid)
        | u64::from(gso_type) << 8
        | u64::from(offload.hdr_len) << 16
        | u64::from(offload.gso_size) << 32
        | u64::from(offload.csum_start) << 48;
    let second = u32::from(offload.csum_offset) | u32::from(num_buffers) << 16;
    let mut header = [0; HEADER_LEN];
    let (front, rest) = header.split_at_mut(8);
    front.copy_from_slice(&first.to_le_bytes());
    rest.copy_from_slice(&second.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tso_header() {
        let bytes = [1, 0x81, 66, 0, 0xa8, 0x05, 34, 0, 16, 0, 1, 0];
        let offload = Offload {
            gso: Gso::Tcp4,
            ecn: true,
            needs_csum: true,
            csum_valid: false,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
            hdr_len: 66,
        };
        assert_eq!(decode(&bytes), Ok(offload));
        assert_eq!(encode(&offload, 1), bytes);
    }

    #[test]
    fn nothing_to_do() {
        assert_eq!(decode(&[0; 12]), Ok(Offload::NONE));
        assert_eq!(encode(&Offload::NONE, 0x0201), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        let received = Offload { csum_valid: true, ..Offload::NONE };
        assert_eq!(encode(&received, 1)[0], F_DATA_VALID);
    }

    #[test]
    fn types() {
        let with = |gso_type| decode(&[1, gso_type, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).map(|offload| offload.gso);
        assert_eq!(with(4), Ok(Gso::Tcp6));
        assert_eq!(with(0x84), Ok(Gso::Tcp6));
        assert_eq!(with(5), Ok(Gso::Udp));
        for unknown in [2, 3, 6, 0x20, 0x80, 0x83, 0x85, 0xff] {
            assert_eq!(with(unknown), Err(OffloadError::UnknownGsoType(unknown)));
        }
    }

    proptest! {
        #[test]
        fn decoding_then_encoding_round_trips(header: [u8; 12], gso in prop::sample::select(vec![0u8, 1, 4, 5, 0x81])) {
            let mut header = header;
            header[0] &= F_NEEDS_CSUM | F_DATA_VALID;
            header[1] = gso;
            let num_buffers = u16::from_le_bytes([header[10], header[11]]);
            prop_assert_eq!(encode(&decode(&header).unwrap(), num_buffers), header);
        }
    }
}
