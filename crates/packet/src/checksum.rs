//! The Internet checksum (RFC 1071), computed over pieces.
//!
//! A [`Sum`] is the sum of a run of bytes. Runs are extended piece by piece and can be joined, whatever their lengths:
//! a packet's checksum combines a private header and a payload scattered over its sender's memory.
//!
//! The implementation rests on two properties of one's complement addition. It does not depend on byte order (RFC 1071
//! §2(B)), so words are added as they lie in memory and the result is swapped once at the end. For the same reason a
//! piece at an odd offset contributes the byte-swapped sum that it has at an even one.
//!
//! Invariant: `words` is congruent, modulo 0xffff, to the sum of the run's 16-bit words in memory order, a last odd
//! byte padded with a zero. Each call adds at most 0xffff, so 64 bits do not overflow.

/// The sum of a run of bytes as RFC 1071 §1 defines it, before complementing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    words: u64,
    /// Whether the run has an odd length; the next byte is then the lower half of a word.
    odd: bool,
}

impl Sum {
    /// Returns the sum of a run.
    #[inline]
    pub fn of(data: &[u8]) -> Self {
        let mut sum = Self::default();
        sum.add(data);
        sum
    }

    /// Extends the run by `data`.
    #[inline]
    pub fn add(&mut self, data: &[u8]) {
        self.append(fold(sum_words(data)));
        self.odd ^= data.len() % 2 == 1;
    }

    /// Extends the run by the two bytes of `value` in network byte order.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        self.append(value.to_be());
    }

    /// Extends the run by another run, summed separately as from an even offset.
    #[inline]
    pub fn combine(&mut self, next: Sum) {
        self.append(fold(next.words));
        self.odd ^= next.odd;
    }

    /// Returns the sum folded to 16 bits, not complemented. A sender that offloads the checksum writes this value, for
    /// the pseudo-header, into the checksum field (virtio 1.2 §5.1.6.2).
    #[inline]
    pub fn partial(&self) -> u16 {
        u16::from_be(fold(self.words))
    }

    /// Returns the checksum: the complement of the folded sum (RFC 1071 §1). Over a run that contains its correct
    /// checksum it is zero.
    #[inline]
    pub fn finish(&self) -> u16 {
        !self.partial()
    }

    #[inline]
    fn append(&mut self, words: u16) {
        self.words += u64::from(if self.odd { words.swap_bytes() } else { words });
    }
}

/// Returns the sum of the IPv4 pseudo-header (RFC 9293 §3.1, RFC 768); `len` covers the transport header and its data.
#[inline]
pub fn pseudo_header_v4(src: [u8; 4], dst: [u8; 4], protocol: u8, len: u16) -> Sum {
    let mut sum = Sum::default();
    sum.add(&src);
    sum.add(&dst);
    sum.add_u16(u16::from(protocol));
    sum.add_u16(len);
    sum
}

/// Returns the sum of the IPv6 pseudo-header (RFC 8200 §8.1); `len` covers the transport header and its data.
#[inline]
pub fn pseudo_header_v6(src: [u8; 16], dst: [u8; 16], protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::default();
    sum.add(&src);
    sum.add(&dst);
    sum.add(&len.to_be_bytes());
    sum.add_u16(u16::from(protocol));
    sum
}

/// Adds the words of `data` as they lie in memory.
#[inline]
fn sum_words(data: &[u8]) -> u64 {
    let (blocks, rest) = data.as_chunks::<32>();
    let mut sum = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let tail = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    sum + u64::from(u32::from_ne_bytes(tail))
}

/// Adds 32 bits at a time in 64-bit lanes, which the compiler turns into vector additions.
///
/// Lanes and their total stay below 2^64 for 2^29 blocks, 16 GiB; no packet is that long.
fn sum_blocks(blocks: &[[u8; 32]]) -> u64 {
    let mut lanes = [0u64; 8];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    lanes.into_iter().sum()
}

/// Folds `sum` into one 16-bit word, carries added back in (RFC 1071 §4.1).
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    // The sums above are below 2^33, 2^17 + 2^16, 2^16 + 2 and 2^16: no bits are lost.
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn example_of_rfc_1071() {
        // RFC 1071 §3: the words 0001 f203 f4f5 f6f7 add up to ddf2.
        let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), 0xddf2);
        assert_eq!(sum.finish(), 0x220d);
    }

    #[test]
    fn a_known_ipv4_header() {
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(Sum::of(&header).finish(), 0xb861);
    }

    #[test]
    fn empty_and_extremes() {
        assert_eq!(Sum::default().finish(), 0xffff);
        assert_eq!(Sum::of(&[0; 64]).finish(), 0xffff);
        assert_eq!(Sum::of(&vec![0xff; 1 << 20]).finish(), 0);
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0xffff_ffff_0000_0001), 1);
    }

    #[test]
    fn pseudo_headers_are_their_bytes() {
        let bytes = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 0x12, 0x34];
        assert_eq!(pseudo_header_v4([10, 0, 0, 1], [10, 0, 0, 2], 6, 0x1234).finish(), naive(&bytes));
        let bytes = [&[0x20; 16][..], &[0x31; 16], &[0, 1, 2, 3, 0, 0, 0, 17]].concat();
        assert_eq!(pseudo_header_v6([0x20; 16], [0x31; 16], 17, 0x0001_0203).finish(), naive(&bytes));
    }

    proptest! {
        #[test]
        fn pieces_sum_as_the_whole(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..6)) {
            let expected = naive(&pieces.concat());
            let (mut added, mut combined) = (Sum::default(), Sum::default());
            for piece in &pieces {
                added.add(piece);
                combined.combine(Sum::of(piece));
            }
            prop_assert_eq!(added.finish(), expected);
            prop_assert_eq!(combined.finish(), expected);
        }

        #[test]
        fn words_sum_as_bytes(front in prop::collection::vec(any::<u8>(), 0..4), word: u16, back: [u8; 3]) {
            let mut sum = Sum::of(&front);
            sum.add_u16(word);
            sum.add(&back);
            prop_assert_eq!(sum.finish(), naive(&[&front[..], &word.to_be_bytes(), &back].concat()));
        }
    }
}
