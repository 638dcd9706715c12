//! Layout of a station and its port in one 64-bit word, and the placement of words in buckets.
//!
//! A key has 60 bits (VLAN and MAC address) and a port 12; with four flags that is 76. So a keyed permutation mixes the
//! key, its upper bits choose the bucket, and only the lower 48, the *remainder*, are stored: the bucket of a word
//! implies the bits that the word leaves out. Nothing is lost: the key can be restored exactly.
//!
//! Keys are stored in the upper 60 bits of a number: multiplying those modulo 2^64 multiplies keys modulo 2^60.
//!
//! Invariants: two keys never have the same (bucket, tag); a word of zero is an empty slot; a tag has the bits of
//! port, static and sticky clear; a sticky word is static too.

use std::hash::{BuildHasher, Hasher, RandomState};

use fabric::PortIndex;
use fabric::port::MAX_PORTS;
use packet::MacAddr;

const PORT_BITS: u32 = 12;
/// First bit of a key in its number.
const KEY_AT: u32 = 4;
const KEY_MASK: u64 = u64::MAX << KEY_AT;
/// First bit of the remainder in a word; it ends where the flags begin.
const REMAINDER_AT: u32 = PORT_BITS + 2;
const REMAINDER: u64 = (SECOND - 1) & u64::MAX << REMAINDER_AT;
/// Fewest bits that the bucket must imply: those that the remainder leaves out.
pub(super) const MIN_BUCKET_BITS: u32 = 64 - KEY_AT - REMAINDER.count_ones();

/// The entry is static: neither aged, moved nor evicted.
pub(super) const STATIC: u64 = 1 << PORT_BITS;
/// The entry was learned, and has been static since.
pub(super) const STICKY: u64 = 1 << (PORT_BITS + 1);
/// The word lies in the second of its key's buckets.
const SECOND: u64 = 1 << 62;
const OCCUPIED: u64 = 1 << 63;

const _: () = assert!(MAX_PORTS <= 1 << PORT_BITS);

/// Identity of a station: its VLAN and its MAC address (IEEE 802.1Q §8.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u64);

impl Key {
    /// Makes the key of station `mac` in VLAN `vid`, 0 for none.
    #[inline(always)]
    pub fn new(vid: u16, mac: MacAddr) -> Self {
        Self((u64::from(vid) << 48 | mac.to_u64()) << KEY_AT)
    }

    /// Returns the VLAN.
    pub fn vid(self) -> u16 {
        (self.0 >> (48 + KEY_AT)) as u16
    }

    /// Whether the address is the null address.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0 & (((1 << 48) - 1) << KEY_AT) == 0
    }

    /// Returns the address.
    pub fn mac(self) -> MacAddr {
        MacAddr::from_u64(self.0 >> KEY_AT)
    }
}

/// A place for a key's word: a bucket, and the word without port and flags.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) bucket: usize,
    pub(super) tag: u64,
}

impl Place {
    /// Returns whether a word has this key.
    #[inline(always)]
    pub(super) fn is_of(self, word: u64) -> bool {
        word ^ self.tag < 1 << REMAINDER_AT
    }
}

/// Returns the bits of a port in a word; `None` for a port that no bridge can have.
pub(super) fn pack_port(port: PortIndex) -> Option<u64> {
    (usize::from(port.0) < MAX_PORTS).then_some(u64::from(port.0))
}

/// Returns the port in a word.
#[inline(always)]
pub(super) fn port(word: u64) -> PortIndex {
    PortIndex((word & (STATIC - 1)) as u16)
}

/// Returns a word with the port and the flags of `low`.
pub(super) fn with_low(word: u64, low: u64) -> u64 {
    word & u64::MAX << REMAINDER_AT | low
}

/// Mixes keys and finds their places. Its factors are secret and differ by table, so that clients cannot aim at a
/// bucket.
pub(super) struct Placer {
    bucket_bits: u32,
    mul: [u64; 2],
    inverse: [u64; 2],
}

impl Placer {
    /// Makes a placer for `2^bucket_bits` buckets, at least [`MIN_BUCKET_BITS`].
    pub(super) fn new(bucket_bits: u32) -> Self {
        let mul = [(); 2].map(|()| RandomState::new().build_hasher().finish() | 1);
        Self { bucket_bits, mul, inverse: mul.map(inverse) }
    }

    /// Returns the place where a key is looked up first.
    #[inline(always)]
    pub(super) fn first(&self, key: Key) -> Place {
        let [a, b] = self.mul;
        let x = fold(key.0.wrapping_mul(a)).wrapping_mul(b);
        let remainder = x << (REMAINDER_AT - KEY_AT) & REMAINDER;
        Place { bucket: (x >> (64 - self.bucket_bits)) as usize, tag: OCCUPIED | remainder }
    }

    /// Returns the other place of the key whose first place is `first`.
    #[inline]
    pub(super) fn second(&self, first: Place) -> Place {
        Place { bucket: first.bucket ^ self.stride(first.tag), tag: first.tag | SECOND }
    }

    /// Returns the distance between a key's buckets: a function of the remainder, never zero.
    #[inline]
    fn stride(&self, word: u64) -> usize {
        let mixed = (word & REMAINDER).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - self.bucket_bits)) as usize | 1
    }

    /// Restores the key of a word in this bucket.
    pub(super) fn key(&self, bucket: usize, word: u64) -> Option<Key> {
        if word == 0 {
            return None;
        }
        let first = if word & SECOND == 0 { bucket } else { bucket ^ self.stride(word) };
        let [a, b] = self.inverse;
        // Where bucket and remainder overlap they agree.
        let x = (first as u64) << (64 - self.bucket_bits) | (word & REMAINDER) >> (REMAINDER_AT - KEY_AT);
        Some(Key(fold(x.wrapping_mul(b)).wrapping_mul(a)))
    }
}

/// Folds the upper half of a key, which a multiplication mixes well, into the lower. Its own inverse.
#[inline(always)]
fn fold(x: u64) -> u64 {
    x ^ x >> 32 & KEY_MASK
}

/// Returns the inverse of an odd number modulo 2^64: each step of Newton's method doubles the number of correct bits,
/// three at first.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_come_back(vid in 0u16..4096, mac: u64, bits in MIN_BUCKET_BITS..=20, low in 0u64..1 << 13) {
            let placer = Placer::new(bits);
            let key = Key::new(vid, MacAddr::from_u64(mac));
            let first = placer.first(key);
            let second = placer.second(first);
            prop_assert_ne!(first.bucket, second.bucket);
            for place in [first, second] {
                prop_assert!(place.bucket < 1 << bits);
                prop_assert!(place.is_of(place.tag | low));
                prop_assert_eq!(placer.key(place.bucket, place.tag | low), Some(key));
            }
            prop_assert!(!first.is_of(second.tag) && !first.is_of(0));
            prop_assert_eq!((key.vid(), key.mac()), (vid, MacAddr::from_u64(mac)));
        }
    }

    #[test]
    fn sequential_addresses_spread() {
        // Addresses as a cloud's allocator assigns them. Random placement puts 5 or more of 4,096 into one of 4,096
        // buckets about 15 times.
        for _ in 0..20 {
            let placer = Placer::new(12);
            let mut load = vec![0; 4096];
            for i in 0..4096 {
                load[placer.first(Key::new(1, MacAddr::from_u64(0x5254_0000_0000 + i))).bucket] += 1;
            }
            assert!(load.iter().filter(|n| **n >= 5).count() < 90);
        }
    }

    #[test]
    fn ports_pack() {
        let word = Placer::new(12).first(Key::new(0, MacAddr::ZERO)).tag;
        for i in [0, 1, 4095] {
            let packed = with_low(word | STICKY | STATIC | 0x7ff, STATIC | pack_port(PortIndex(i)).unwrap());
            assert_eq!(port(packed), PortIndex(i));
            assert_eq!(packed & !(STATIC - 1), word | STATIC);
        }
        assert_eq!(pack_port(PortIndex(4096)), None);
    }
}
