//! Hashes that spread packets over the members of a bond: by source address and VLAN, or by flow.
//!
//! The hash by source is that of Open vSwitch, so that `bond/hash` names the same bucket: MurmurHash3 (32 bits) of the
//! address and the VLAN. Two directions of a flow need not have the same hash.

use packet::MacAddr;

use crate::BUCKETS;

/// Returns the bucket of a station that sends in a VLAN, 0 for none.
#[inline]
pub fn source(mac: MacAddr, vid: u16, basis: u32) -> usize {
    let key = u64::from(vid) << 48 | mac.to_u64();
    let hash = add(add(basis, key as u32), (key >> 32) as u32);
    bucket(finish(hash ^ 8))
}

/// Returns the bucket of a frame's flow; see [`packet::flow`] for the fields.
#[inline]
pub fn flow(frame: &[u8], basis: u32) -> usize {
    bucket(finish(packet::flow::hash(frame) ^ basis))
}

#[inline]
fn bucket(hash: u32) -> usize {
    hash as usize % BUCKETS
}

/// Adds a word to a hash: the body of MurmurHash3.
#[inline]
fn add(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// Makes every bit depend on every other: the end of MurmurHash3.
#[inline]
fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_mixed_as_murmur_hash_does() {
        // Known answers of MurmurHash3_x86_32: the empty string with seed 1, and the words `abcd` and `abcdefgh`.
        assert_eq!(finish(1), 0x514e_28b7);
        let words = |words: &[&[u8; 4]]| {
            let hash = words.iter().fold(0, |hash, word| add(hash, u32::from_le_bytes(**word)));
            finish(hash ^ (4 * words.len() as u32))
        };
        assert_eq!(words(&[b"abcd"]), 0x43ed_676a);
        assert_eq!(words(&[b"abcd", b"efgh"]), 0x49dd_ccc4);
    }

    #[test]
    fn buckets_of_sources_are_those_of_open_vswitch() {
        // `ovs-appctl bond/hash` of Open vSwitch 3.1.0 (Debian 12, amd64).
        for (mac, vid, basis, bucket) in [
            ("50:54:00:00:00:01", 0, 0, 144),
            ("50:54:00:00:00:01", 7, 0, 195),
            ("50:54:00:00:00:0a", 0, 1, 229),
            ("02:11:22:33:44:55", 4094, 77, 117),
        ] {
            assert_eq!(source(mac.parse().unwrap(), vid, basis), bucket, "{mac} {vid} {basis}");
        }
    }

    #[test]
    fn sources_and_flows_spread_over_the_buckets() {
        let mac = |n: u8| MacAddr([0x50, 0x54, 0, 0, 0, n]);
        let by_source: std::collections::BTreeSet<_> = (0..=255).map(|n| source(mac(n), 0, 0) % 3).collect();
        assert_eq!(by_source.len(), 3);
        assert_ne!(
            (source(mac(1), 1, 0), source(mac(1), 0, 7)),
            (source(mac(1), 0, 0), source(mac(1), 0, 0))
        );
        let mut frame = [0; 60];
        let buckets: std::collections::BTreeSet<_> = (0..=255)
            .map(|n| {
                frame[5] = n;
                flow(&frame, 0)
            })
            .collect();
        assert!(buckets.len() > 128, "{}", buckets.len());
    }
}
