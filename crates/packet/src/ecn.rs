//! Explicit congestion notification in IP packets (RFC 3168 §5).

use crate::traffic_class;

/// Whether the packet's transport reacts to marks: ECT(0) or ECT(1), or marked already.
pub fn is_capable(frame: &[u8]) -> bool {
    traffic_class::of(frame).is_some_and(|class| class & 3 != 0)
}

/// Marks a capable packet: congestion experienced (CE). Returns whether it is marked now; packets that are not capable
/// stay as they are.
pub fn mark(frame: &mut [u8]) -> bool {
    let is_capable = is_capable(frame);
    if is_capable {
        traffic_class::replace(frame, |class| class | 3);
    }
    is_capable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sum;

    #[test]
    fn capable_packets_are_marked_and_others_are_not() {
        for (class, marked) in
            [(0b1011_1000, None), (0b1011_1001, Some(0b1011_1011)), (0b10, Some(0b11)), (3, Some(3))]
        {
            let mut ip = vec![0x45, class, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let sum = Sum::of(&ip).finish().to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
            let mut v4 = [&[2u8; 12][..], &[8, 0], &ip].concat();
            assert_eq!((is_capable(&v4), mark(&mut v4)), (marked.is_some(), marked.is_some()));
            assert_eq!(v4[15], marked.unwrap_or(class));
            assert_eq!(Sum::of(&v4[14..]).finish(), 0, "the checksum is right");

            let word = (6 << 12 | u16::from(class) << 4 | 0xd).to_be_bytes();
            let mut v6 =
                [&[2u8; 12][..], &[0x86, 0xdd], &word, &[0xef; 2], &[0, 0, 59, 64], &[1; 32]].concat();
            assert_eq!(mark(&mut v6), marked.is_some());
            let expected = (6 << 12 | u16::from(marked.unwrap_or(class)) << 4 | 0xd).to_be_bytes();
            assert_eq!(v6[14..16], expected);
        }
        let mut arp = [&[2u8; 12][..], &[8, 6], &[0; 28]].concat();
        assert!(!mark(&mut arp));
        assert!(!is_capable(&[0x45; 13]));
    }
}
