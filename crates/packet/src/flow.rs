//! Flow hash: equal for all packets of a flow; selects a queue or a path.
//!
//! Hashed fields:
//! - IP: addresses, transport protocol and, for the protocols that have them, ports.
//! - Fragments, and packets without a known transport protocol: addresses only, because only the first fragment has
//!   ports and all must stay together.
//! - Other frames: MAC addresses and EtherType.
//!
//! VLAN tags are excluded, so a flow keeps its hash when a tag is pushed or popped. The two directions of a connection
//! have different hashes.
//!
//! The function is of the wyhash family: it multiplies words to 128 bits and folds the halves together. It has no
//! secret, so a sender can aim its flows at one queue, a choice that it has anyway; a hash table that tenants can fill
//! must not use it.
//!
//! Invariant: equal fields give equal hashes on every machine, in every process.

use crate::bytes::{be16, chunk};
use crate::ether::ADDRESSES_LEN;
use crate::headers::{IpVersion, Layers, protocol};

// Digits of pi after the point: constants without a structure of their own.
pub(crate) const K0: u64 = 0x243f_6a88_85a3_08d3;
pub(crate) const K1: u64 = 0x1319_8a2e_0370_7344;
pub(crate) const K2: u64 = 0xa409_3822_299f_31d0;
pub(crate) const K3: u64 = 0x082e_fa98_ec4e_6c89;

/// Returns the hash of a frame's flow. The front of a longer packet is enough if it includes the transport ports.
#[inline(always)]
pub fn hash(frame: &[u8]) -> u32 {
    match plain(frame) {
        Some(hash) => finish(hash),
        None => hash_layers(frame, &Layers::parse(frame)),
    }
}

/// Returns the hash for TCP and UDP over IPv4 without options, fragments and VLAN tags: most packets, with fields at
/// fixed offsets.
#[inline]
fn plain(frame: &[u8]) -> Option<u64> {
    let front = frame.first_chunk::<{ PLAIN_LEN }>()?;
    // EtherType, version and header length; flags except "don't fragment", and fragment offset (RFC 791 §3.1).
    let is_plain = be16(front, 12)? == 0x0800 && front[14] == 0x45 && be16(front, 20)? & 0xbfff == 0;
    // The IPv4 total length includes the ports.
    let is_whole = usize::from(be16(front, 16)?) >= PLAIN_LEN - 14;
    let protocol = front[23];
    if !is_plain || !is_whole || !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let ports = u32::from_be_bytes(*chunk(front, 34)?);
    Some(mix(word(front, 26)? ^ K0, (u64::from(ports) << 8 | u64::from(protocol)) ^ K1))
}

/// Length of Ethernet and IPv4 headers and the first 8 bytes after them.
const PLAIN_LEN: usize = 42;

/// Mixes once more: the bits of the last words have been through only one multiplication.
#[inline]
pub(crate) fn finish(hash: u64) -> u32 {
    mix(hash ^ K2, K3) as u32
}

/// Returns [`hash`] for a parsed frame.
#[inline]
pub fn hash_layers(frame: &[u8], layers: &Layers) -> u32 {
    finish(ip(frame, layers).unwrap_or_else(|| ethernet(frame, layers)))
}

#[inline]
fn ip(frame: &[u8], layers: &Layers) -> Option<u64> {
    let l3 = usize::from(layers.l3?);
    let transport = transport(frame, layers);
    match layers.ip? {
        // RFC 791 §3.1: source and destination from byte 12.
        IpVersion::V4 => Some(mix(word(frame, l3 + 12)? ^ K0, transport ^ K1)),
        // RFC 8200 §3: source from byte 8, destination from byte 24.
        IpVersion::V6 => {
            let source = mix(word(frame, l3 + 8)? ^ K0, word(frame, l3 + 16)? ^ K1);
            let destination = mix(word(frame, l3 + 24)? ^ K2, word(frame, l3 + 32)? ^ K3);
            Some(mix(source ^ transport, destination ^ K1))
        }
    }
}

/// Hashed word of protocol and ports; 0 for a fragment or an unknown protocol, where only addresses count.
#[inline]
fn transport(frame: &[u8], layers: &Layers) -> u64 {
    let (false, Some(protocol)) = (layers.fragment, layers.protocol) else { return 0 };
    let ports = match (protocol, layers.l4) {
        // All of these start with source and destination port.
        (protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE, Some(l4)) => {
            chunk(frame, usize::from(l4)).map_or(0, |ports| u32::from_be_bytes(*ports))
        }
        _ => 0,
    };
    u64::from(ports) << 8 | u64::from(protocol)
}

/// Hashes MAC addresses and the type after the tags; fields that a short frame lacks count as 0.
#[inline]
fn ethernet(frame: &[u8], layers: &Layers) -> u64 {
    let ethertype = layers.ethertype.map_or(0, |ethertype| u64::from(ethertype.0));
    let addresses = word(frame, 0).unwrap_or(0);
    let rest = be16(frame, ADDRESSES_LEN - 4).zip(be16(frame, ADDRESSES_LEN - 2));
    let rest = rest.map_or(0, |(high, low)| u64::from(high) << 48 | u64::from(low) << 32);
    mix(addresses ^ K0, rest ^ ethertype ^ K1)
}

#[inline]
pub(crate) fn word(frame: &[u8], at: usize) -> Option<u64> {
    chunk(frame, at).map(|bytes| u64::from_be_bytes(*bytes))
}

/// Folds the 128-bit product.
#[inline]
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::edit::push_vlan;
    use crate::ether::VlanTag;

    fn udp4(src: u32, sport: u16, dport: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(src.to_be_bytes());
        frame.extend([10, 0, 0, 9]);
        frame.extend(sport.to_be_bytes());
        frame.extend(dport.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    proptest! {
        #[test]
        fn the_fast_path_gives_the_same_hash(
            mut frame in prop::collection::vec(any::<u8>(), 0..80),
            len in 0u16..60,
            protocol in prop::sample::select(vec![1u8, 6, 17, 132]),
            fragment in prop::sample::select(vec![0u16, 0x4000, 0x2000, 0x8000, 7]),
            first in prop::sample::select(vec![0x45u8, 0x46, 0x65]),
        ) {
            let fields = [(12, &[8, 0][..]), (14, &[first]), (16, &len.to_be_bytes()), (20, &fragment.to_be_bytes()), (23, &[protocol])];
            for (at, bytes) in fields {
                if let Some(to) = frame.get_mut(at..at + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
            prop_assert_eq!(hash(&frame), hash_layers(&frame, &Layers::parse(&frame)));
        }
    }

    fn tcp6(src: u8, sport: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        frame.extend([src; 16]);
        frame.extend([9; 16]);
        frame.extend(sport.to_be_bytes());
        frame.extend([0; 18]);
        frame
    }

    #[test]
    fn tags_ttl_and_payload_do_not_matter() {
        for frame in [udp4(1, 2, 3), tcp6(1, 2), [vec![4; 12], vec![8, 6], vec![1; 28]].concat()] {
            let mut tagged = [vec![0; 4], frame.clone()].concat();
            assert!(push_vlan(&mut tagged, VlanTag::from_tci(77)));
            assert_eq!(hash(&frame), hash(&tagged));
            let longer = [frame.clone(), vec![1, 2, 3]].concat();
            assert_eq!(hash(&frame), hash(&longer));
        }
        let mut later = udp4(1, 2, 3);
        later[22] = 3;
        assert_eq!(hash(&later), hash(&udp4(1, 2, 3)));
    }

    #[test]
    fn every_field_matters() {
        let base = hash(&udp4(1, 2, 3));
        assert_ne!(base, hash(&udp4(2, 2, 3)));
        assert_ne!(base, hash(&udp4(1, 3, 3)));
        assert_ne!(base, hash(&udp4(1, 3, 2)));
        let mut tcp = udp4(1, 2, 3);
        tcp[23] = 6;
        assert_ne!(base, hash(&tcp));
        assert_ne!(hash(&tcp6(1, 1)), hash(&tcp6(1, 2)));
        assert_ne!(hash(&tcp6(1, 1)), hash(&tcp6(2, 1)));
    }

    #[test]
    fn fragments_stay_together() {
        let (mut first, mut later) = (udp4(1, 2, 3), udp4(1, 500, 600));
        first[20] = 0x20;
        later[21] = 1;
        assert_eq!(hash(&first), hash(&later));
    }

    #[test]
    fn short_frames_have_a_hash() {
        let frame = udp4(1, 2, 3);
        for length in 0..frame.len() {
            hash(&frame[..length]);
        }
    }

    #[test]
    fn neighbouring_flows_spread() {
        for queues in [2, 3, 8, 16] {
            let mut load = vec![0u32; queues];
            for port in 0..8000 {
                load[hash(&udp4(0x0a00_0001, port, 80)) as usize % queues] += 1;
                load[hash(&udp4(u32::from(port), 1000, 80)) as usize % queues] += 1;
            }
            let mean = 16000 / queues as u32;
            assert!(load.iter().all(|n| n.abs_diff(mean) < mean / 5), "{queues} queues: {load:?}");
        }
    }
}
