//! Differentiated services code points of IP packets, read and edited in place (RFC 2474 §3).
//!
//! Invariant: the bits for explicit congestion notification keep their values (RFC 3168 §5).

use crate::traffic_class;

/// The largest code point.
pub const MAX: u8 = 0x3f;

/// Returns a packet's code point; `None` if `frame` does not begin with an IP packet's headers.
pub fn of(frame: &[u8]) -> Option<u8> {
    Some(traffic_class::of(frame)? >> 2)
}

/// Gives a packet a code point, of which the lower six bits count. What does not begin with an IP packet's headers is
/// left unchanged.
pub fn set(frame: &mut [u8], dscp: u8) {
    traffic_class::replace(frame, |class| dscp << 2 | class & 3);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;

    /// Addresses, a tag if wanted, and what follows the type.
    fn frame(tags: usize, ethertype: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 9]));
        frame.extend(ethertype.to_be_bytes());
        frame.extend(rest);
        frame
    }

    #[test]
    fn ipv4_keeps_congestion_bits_and_a_right_checksum() {
        for tags in 0..3 {
            for (before, dscp) in [(0x03, 46), (0xb8, 0), (0xff, 63), (0x01, 0)] {
                let mut ip = vec![0x45, before, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
                let sum = Sum::of(&ip).finish().to_be_bytes();
                ip[10..12].copy_from_slice(&sum);
                let mut frame = frame(tags, 0x0800, &ip);
                let at = 14 + 4 * tags;
                assert_eq!(of(&frame), Some(before >> 2));
                set(&mut frame, dscp);
                assert_eq!(of(&frame), Some(dscp));
                assert_eq!(frame[at + 1], dscp << 2 | before & 3);
                assert_eq!(Sum::of(&frame[at..]).finish(), 0, "the checksum is right");
            }
        }
    }

    #[test]
    fn ipv6_keeps_version_congestion_bits_and_flow_label() {
        let mut ip = vec![0x6a, 0xbc, 0xde, 0xf0];
        ip.extend([0, 0, 59, 64]);
        ip.extend([1; 32]);
        let mut frame = frame(0, 0x86dd, &ip);
        assert_eq!(of(&frame), Some(0xab >> 2));
        set(&mut frame, 0x2e);
        // 0x6_ab_cdef0: class 0xab becomes 0x2e << 2 | 3.
        assert_eq!(frame[14..18], [0x6b, 0xbc, 0xde, 0xf0]);
    }

    #[test]
    fn what_is_no_ip_packet_is_left_unchanged() {
        for before in [vec![], vec![0; 14], frame(0, 0x0806, &[0; 28]), frame(0, 0x0800, &[0x45, 0, 0])] {
            let mut frame = before.clone();
            assert_eq!(of(&frame), None);
            set(&mut frame, 1);
            assert_eq!(frame, before);
        }
    }
}
