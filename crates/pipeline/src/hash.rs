//! Hashes of bit strings.
//!
//! A string whose length is no multiple of 8 bits is extended by zeros; [`HashKind::Csum16`] and [`HashKind::Xor16`]
//! extend an odd number of bytes by a zero byte.

use packet::checksum::Sum;

use crate::bits::Bits;
use crate::ir::HashKind;

/// A string of bits, most significant first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BitString {
    bytes: Vec<u8>,
    bits: usize,
}

impl BitString {
    /// Appends a value.
    pub fn push(&mut self, value: &Bits) {
        let at = self.bits;
        self.bits += usize::from(value.width());
        self.bytes.resize(self.bits.div_ceil(8), 0);
        crate::bits::write(&mut self.bytes, at, value);
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.bits.is_multiple_of(8) {
            self.bytes.extend_from_slice(bytes);
            self.bits += bytes.len() * 8;
            return;
        }
        bytes.iter().for_each(|byte| self.push(&Bits::from_u64(8, (*byte).into())));
    }

    /// The bytes; the last one is filled with zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length, bits.
    pub fn len(&self) -> usize {
        self.bits
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }
}

/// Returns the hash of a string.
pub fn hash(kind: HashKind, input: &BitString) -> u64 {
    let bytes = input.bytes();
    match kind {
        HashKind::Csum16 => Sum::of(bytes).finish().into(),
        HashKind::Crc16 => reflected(bytes, &CRC16, 0, 0),
        HashKind::Crc32 => reflected(bytes, &CRC32, 0xffff_ffff, 0xffff_ffff),
        HashKind::Crc32c => reflected(bytes, &CRC32C, 0xffff_ffff, 0xffff_ffff),
        HashKind::Identity => {
            let at = input.len().saturating_sub(64);
            let width = u16::try_from(input.len() - at).unwrap_or(0);
            crate::bits::read(bytes, at, width).map_or(0, |bits| bits.low_u64())
        }
        HashKind::Xor16 => bytes.chunks(2).fold(0, |sum, pair| {
            let byte = |i| u64::from(pair.get(i).copied().unwrap_or(0));
            sum ^ (byte(0) << 8 | byte(1))
        }),
        HashKind::Toeplitz => toeplitz(bytes).into(),
    }
}

/// The remainders of all bytes, for hashes that are cyclic redundancy checks: the table by which others compute them.
pub fn table(kind: HashKind) -> Option<&'static [u64; 256]> {
    match kind {
        HashKind::Crc16 => Some(&CRC16),
        HashKind::Crc32 => Some(&CRC32),
        HashKind::Crc32c => Some(&CRC32C),
        _ => None,
    }
}

/// Remainders of all bytes in a cyclic redundancy check with this reflected polynomial.
const fn remainders(polynomial: u64) -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

static CRC16: [u64; 256] = remainders(0xa001);
static CRC32: [u64; 256] = remainders(0xedb8_8320);
static CRC32C: [u64; 256] = remainders(0x82f6_3b78);

/// A cyclic redundancy check with reflected polynomial, one byte at a time.
fn reflected(bytes: &[u8], remainders: &[u64; 256], start: u64, end: u64) -> u64 {
    let remainder = |index: u64| remainders.get((index & 0xff) as usize).copied().unwrap_or_default();
    bytes.iter().fold(start, |crc, byte| remainder(crc ^ u64::from(*byte)) ^ crc >> 8) ^ end
}

/// Microsoft's key for receive side scaling.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The Toeplitz hash; beyond 36 bytes the key repeats.
fn toeplitz(bytes: &[u8]) -> u32 {
    let key_bit = |i: usize| KEY.get(i / 8 % KEY.len()).is_some_and(|byte| byte << (i % 8) & 0x80 != 0);
    let mut window = u32::from_be_bytes([KEY[0], KEY[1], KEY[2], KEY[3]]);
    let mut result = 0;
    for i in 0..bytes.len() * 8 {
        if bytes.get(i / 8).is_some_and(|byte| byte << (i % 8) & 0x80 != 0) {
            result ^= window;
        }
        window = window << 1 | u32::from(key_bit(i + 32));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: HashKind, bytes: &[u8]) -> u64 {
        let mut input = BitString::default();
        input.extend(bytes);
        hash(kind, &input)
    }

    #[test]
    fn check_values_of_the_catalogues() {
        let check = b"123456789";
        assert_eq!(of(HashKind::Crc16, check), 0xbb3d);
        assert_eq!(of(HashKind::Crc32, check), 0xcbf4_3926);
        assert_eq!(of(HashKind::Crc32c, check), 0xe306_9283);
        // RFC 1071 §3.
        assert_eq!(of(HashKind::Csum16, &[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        assert_eq!(of(HashKind::Xor16, &[0x12, 0x34, 0xff]), 0xed34);
        assert_eq!(of(HashKind::Identity, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), 0x0203_0405_0607_0809);
    }

    #[test]
    fn toeplitz_agrees_with_the_verification_suite() {
        // 66.9.149.187:2794 to 161.142.100.80:1766, from the specification of receive side scaling.
        let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(of(HashKind::Toeplitz, &input), 0x51cc_c178);
    }

    #[test]
    fn values_of_any_width_follow_one_another() {
        let mut input = BitString::default();
        input.push(&Bits::from_u64(4, 0xa));
        input.extend(&[0xbc]);
        input.push(&Bits::from_u64(3, 0b101));
        assert_eq!((input.bytes(), input.len()), (&[0xab, 0xca][..], 15));
    }
}
