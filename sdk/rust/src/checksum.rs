//! Internet checksums (RFC 1071), and incremental updates when bytes are replaced (RFC 1624).

/// Adds the big-endian 16-bit words of `bytes` to `sum` and folds the result.
pub fn sum(sum: u16, bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from));
    words.fold(sum, |sum, word| fold(u32::from(sum) + word))
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Computes the checksum of bytes whose checksum field is zero. For bytes with a correct checksum the result is 0.
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(0, bytes)
}

/// Updates a checksum after a 16-bit word changed (RFC 1624, equation 3).
pub fn update(checksum: u16, from: u16, to: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!from) + u32::from(to))
}

/// Returns the folded sum of `to` minus that of `from`; both have the same even length.
fn difference(from: &[u8], to: &[u8]) -> u16 {
    assert!(from.len() == to.len() && from.len() % 2 == 0, "replaced bytes have the same even length");
    from.chunks_exact(2).zip(to.chunks_exact(2)).fold(0, |sum, (from, to)| {
        let (from, to) = (u16::from_be_bytes([from[0], from[1]]), u16::from_be_bytes([to[0], to[1]]));
        fold(u32::from(sum) + u32::from(!from) + u32::from(to))
    })
}

/// Replaces bytes of an IPv4 header and updates its checksum. Offset and length are even.
pub fn replace_in_ipv4(header: &mut [u8], offset: usize, bytes: &[u8]) {
    assert!(offset % 2 == 0, "replaced bytes begin at an even offset");
    let place = &mut header[offset..offset + bytes.len()];
    let difference = difference(place, bytes);
    place.copy_from_slice(bytes);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let updated = !fold(u32::from(!checksum) + u32::from(difference));
    header[10..12].copy_from_slice(&updated.to_be_bytes());
}

/// Kind of a change to a TCP or UDP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer4 {
    /// [`Batch::has_open_checksum`](crate::Batch::has_open_checksum) of the packet: the checksum field holds the sum of
    /// the pseudo-header until the packet leaves.
    pub open: bool,
    /// The bytes are addresses, which are part of the pseudo-header.
    pub pseudo: bool,
    /// The checksum is UDP's, where 0 means no checksum.
    pub udp: bool,
}

impl Layer4 {
    /// Returns the checksum after `to` has replaced `from`: equally many bytes, an even number, at an even offset.
    pub fn update(self, checksum: u16, from: &[u8], to: &[u8]) -> u16 {
        let difference = u32::from(difference(from, to));
        match self {
            Layer4 { open: true, pseudo: true, .. } => fold(u32::from(checksum) + difference),
            Layer4 { open: true, .. } => checksum,
            Layer4 { udp: true, .. } if checksum == 0 => 0,
            Layer4 { udp, .. } => match !fold(u32::from(!checksum) + difference) {
                0 if udp => 0xffff,
                updated => updated,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with its checksum.
    const HEADER: [u8; 20] =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];

    #[test]
    fn the_sum_of_a_header_with_its_checksum_is_zero() {
        assert_eq!(checksum(&HEADER), 0);
        let mut without = HEADER;
        without[10..12].fill(0);
        assert_eq!(checksum(&without), 0xb861);
        assert_eq!(checksum(&[1]), !0x100, "an odd byte is the high one");
    }

    #[test]
    fn updates_agree_with_recomputed_checksums() {
        // RFC 1624, section 4: the case that equation 2 gets wrong.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0);
        let mut random = 7u32;
        for _ in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut header = HEADER;
            let offset = [0, 2, 4, 6, 8, 12, 14, 16][random as usize >> 20 & 7];
            replace_in_ipv4(&mut header, offset, &random.to_be_bytes()[..2]);
            replace_in_ipv4(&mut header, 12, &random.to_le_bytes());
            assert_eq!(checksum(&header), 0);
        }
    }

    #[test]
    fn open_and_missing_checksums_stay_so() {
        let of = |open, pseudo, udp| Layer4 { open, pseudo, udp };
        let (from, to) = ([10, 0, 0, 1], [192, 0, 2, 7]);
        // Closed: as an update of each half.
        let both = update(update(0x1234, 0x0a00, 0xc000), 1, 0x0207);
        assert_eq!(of(false, true, false).update(0x1234, &from, &to), both);
        assert_eq!(of(false, true, true).update(0, &from, &to), 0, "UDP without a checksum");
        assert_eq!(of(false, false, true).update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0xffff);
        // Open: the sum of the pseudo-header, which contains no ports.
        assert_eq!(of(true, false, false).update(0x1234, &from, &to), 0x1234);
        assert_eq!(of(true, true, false).update(sum(0, &from), &from, &to), sum(0, &to));
    }
}
