//! Conversations: the two directions of a TCP or UDP flow as one.
//!
//! The layout is that of RFC 9293 §3.1 and RFC 768: both protocols begin with the source and the destination port.
//! VLAN tags do not count. A fragment has no ports that all fragments of its packet share, so
//! its ports count as 0, and only the addresses tell it apart.
//!
//! Invariant: packets of both directions have equal hashes, on every machine and in every process.

use crate::bytes::{be16, chunk};
use crate::flow::{K0, K1, K2, K3, finish, mix, word};
use crate::headers::{IpVersion, Layers, protocol};

/// The fields of a packet that name its conversation and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// [`protocol::TCP`] or [`protocol::UDP`].
    pub protocol: u8,
    /// Whether the packet is a fragment; then the ports are 0.
    pub fragment: bool,
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// Addresses of sender and receiver; of IPv6, their hashes.
    addresses: (u64, u64),
}

impl Conversation {
    /// Returns the conversation of a frame; `None` if it is neither TCP nor UDP, or too short for the ports.
    #[inline(always)]
    pub fn of(frame: &[u8]) -> Option<Self> {
        match Front::of(frame).and_then(Front::conversation) {
            Some(plain) => Some(plain),
            None => of_layers(frame, &Layers::parse(frame)),
        }
    }

    /// Returns the hash of the conversation, equal for both directions.
    #[inline]
    pub fn hash(&self) -> u32 {
        let end = |address: u64, port: u16| address.rotate_left(16) ^ u64::from(port);
        let (one, other) = (end(self.addresses.0, self.source), end(self.addresses.1, self.destination));
        let (low, high) = (one.min(other), one.max(other));
        finish(mix(low ^ K0, high ^ u64::from(self.protocol) << 56 ^ K1))
    }
}

/// Fields at fixed offsets, for comparing neighbouring packets: most packets have IPv4 without options, fragments and
/// VLAN tags (RFC 791 §3.1). They are kept as they lie in the frame: a comparison needs no numbers.
#[derive(Clone, Copy, Debug)]
pub struct Front([u8; Front::LEN]);

/// Length of Ethernet and IPv4 headers and the ports.
const FRONT_LEN: usize = 38;
/// Bytes before the front: without them, its length is a power of two.
const SKIPPED: usize = FRONT_LEN - Front::LEN;

impl Front {
    /// Length of a front, bytes.
    pub const LEN: usize = 32;

    /// The bits of a front that tell conversations and directions apart.
    pub const CONVERSATION: [u8; Self::LEN] = Self::bits(0);

    /// These bits, and the total length.
    pub const CONVERSATION_AND_LENGTH: [u8; Self::LEN] = Self::bits(0xff);

    /// EtherType, version and header length; flags except "don't fragment", and fragment offset; protocol; addresses and
    /// ports; and these bits of both bytes of the total length.
    const fn bits(length: u8) -> [u8; Self::LEN] {
        let mut bits = [0; Self::LEN];
        let mut at = SKIPPED;
        while at < FRONT_LEN {
            bits[at - SKIPPED] = match at {
                12..=14 | 21 | 23 | 26.. => 0xff,
                16 | 17 => length,
                20 => 0xbf,
                _ => 0,
            };
            at += 1;
        }
        bits
    }

    /// Returns the front of a frame that is long enough.
    #[inline(always)]
    pub fn of(frame: &[u8]) -> Option<Self> {
        frame.first_chunk::<FRONT_LEN>()?.last_chunk().copied().map(Self)
    }

    /// Returns its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Returns its conversation; `None` if the fields may be at other offsets.
    #[inline(always)]
    pub fn conversation(self) -> Option<Conversation> {
        let [[high], [low], [protocol]] = [20, 21, 23].map(|at| self.field::<1>(at));
        let is_fragment = high & 0xbf != 0 || low != 0;
        let is_plain = self.field(12) == [0x08, 0x00, 0x45] && !is_fragment && self.has_ports();
        if !is_plain || !matches!(protocol, protocol::TCP | protocol::UDP) {
            return None;
        }
        let [from, to] = [26, 30].map(|at| u32::from_be_bytes(self.field(at)).into());
        let [source, destination] = [34, 36].map(|at| u16::from_be_bytes(self.field(at)));
        Some(Conversation { protocol, fragment: false, source, destination, addresses: (from, to) })
    }

    /// Whether the ports lie in the packet, by its total length. Then a packet with the same
    /// [bits](Front::CONVERSATION) as one that has a conversation at these offsets is of that conversation.
    #[inline(always)]
    pub fn has_ports(&self) -> bool {
        u16::from_be_bytes(self.field(16)) >= (FRONT_LEN - 14) as u16
    }

    /// The bytes of the frame from `at` on.
    #[inline(always)]
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        chunk(&self.0, at - SKIPPED).copied().unwrap_or([0; N])
    }
}

#[inline(always)]
fn address(frame: &[u8], at: usize) -> Option<u64> {
    chunk(frame, at).map(|bytes| u64::from(u32::from_be_bytes(*bytes)))
}

#[inline(never)]
fn of_layers(frame: &[u8], layers: &Layers) -> Option<Conversation> {
    let protocol = layers.protocol.filter(|protocol| matches!(*protocol, protocol::TCP | protocol::UDP))?;
    let l3 = usize::from(layers.l3?);
    let addresses = match layers.ip? {
        // RFC 791 §3.1: source and destination from byte 12.
        IpVersion::V4 => (address(frame, l3 + 12)?, address(frame, l3 + 16)?),
        // RFC 8200 §3: source from byte 8, destination from byte 24.
        IpVersion::V6 => {
            let folded = |at: usize| Some(mix(word(frame, at)? ^ K2, word(frame, at + 8)? ^ K3));
            (folded(l3 + 8)?, folded(l3 + 24)?)
        }
    };
    let fragment = layers.fragment;
    let (source, destination) = match fragment {
        true => (0, 0),
        false => {
            let l4 = usize::from(layers.l4?);
            let lies_in_packet = match layers.ip? {
                IpVersion::V4 => l4 + 4 <= l3 + usize::from(be16(frame, l3 + 2)?),
                IpVersion::V6 => true,
            };
            (be16(frame, l4).filter(|_| lies_in_packet)?, be16(frame, l4 + 2)?)
        }
    };
    Some(Conversation { protocol, fragment, source, destination, addresses })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::edit::push_vlan;
    use crate::ether::VlanTag;

    type End<A> = (A, u16);

    fn v4(protocol: u8, from: End<[u8; 4]>, to: End<[u8; 4]>, fragmentation: u16) -> Vec<u8> {
        let mut frame = [[2; 12].as_slice(), &[8, 0, 0x45, 0, 0, 28, 0, 0]].concat();
        frame.extend(fragmentation.to_be_bytes());
        frame.extend([64, protocol, 0, 0]);
        frame.extend([from.0, to.0].concat());
        frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes(), [0, 8], [0, 0]].concat());
        frame
    }

    fn v6(protocol: u8, from: End<[u8; 16]>, to: End<[u8; 16]>) -> Vec<u8> {
        let mut frame = [[2; 12].as_slice(), &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, protocol, 64]].concat();
        frame.extend([from.0, to.0].concat());
        frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes(), [0, 8], [0, 0]].concat());
        frame
    }

    fn hash(frame: &[u8]) -> u32 {
        Conversation::of(frame).unwrap().hash()
    }

    proptest! {
        #[test]
        fn both_directions_have_one_hash(
            a in any::<End<[u8; 4]>>(), b in any::<End<[u8; 4]>>(),
            c in any::<End<[u8; 16]>>(), d in any::<End<[u8; 16]>>(), tcp in any::<bool>(),
        ) {
            let protocol = if tcp { 6 } else { 17 };
            prop_assert_eq!(hash(&v4(protocol, a, b, 0)), hash(&v4(protocol, b, a, 0)));
            prop_assert_eq!(hash(&v6(protocol, c, d)), hash(&v6(protocol, d, c)));
            prop_assert_eq!(hash(&v4(protocol, a, b, 0x2000)), hash(&v4(protocol, b, a, 0x0001)));
            let conversation = Conversation::of(&v4(protocol, a, b, 0)).unwrap();
            prop_assert_eq!((conversation.source, conversation.destination), (a.1, b.1));
            prop_assert_eq!((conversation.protocol, conversation.fragment), (protocol, false));
        }

        #[test]
        fn fixed_offsets_and_layers_agree(
            a in any::<End<[u8; 4]>>(), b in any::<End<[u8; 4]>>(), protocol in prop::sample::select(vec![1u8, 6, 17]),
            fragmentation in prop::sample::select(vec![0u16, 0x4000, 0x2000, 0x0003]), length in 0usize..44,
            total in prop::sample::select(vec![0u16, 20, 23, 24, 28]), version in prop::sample::select(vec![0x45u8, 0x46]),
        ) {
            let mut frame = v4(protocol, a, b, fragmentation);
            frame[14] = version;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame.truncate(length);
            prop_assert_eq!(Conversation::of(&frame), of_layers(&frame, &Layers::parse(&frame)));
        }

        /// Of packets that differ in a bit, exactly those of one conversation and direction have the same bits that
        /// count, and their ports.
        #[test]
        fn equal_bits_are_the_same_conversation(
            a in any::<End<[u8; 4]>>(), b in any::<End<[u8; 4]>>(), tcp in any::<bool>(),
        ) {
            let first = v4(if tcp { 6 } else { 17 }, a, b, 0);
            let one = Front::of(&first).unwrap();
            prop_assert!(one.conversation().is_some());
            for (at, bit) in (SKIPPED..FRONT_LEN).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut second = first.clone();
                second[at] ^= 1u8 << bit;
                let other = Front::of(&second).unwrap();
                let same = |bits: &[u8; Front::LEN]| {
                    one.bytes().iter().zip(other.bytes()).zip(bits).all(|((a, b), bits)| (a ^ b) & bits == 0)
                };
                let is_same = other.conversation() == one.conversation();
                prop_assert_eq!(same(&Front::CONVERSATION) && other.has_ports(), is_same, "bit {} of {}", bit, at);
                prop_assert!(!same(&Front::CONVERSATION_AND_LENGTH) || is_same, "bit {} of {}", bit, at);
            }
        }

        #[test]
        fn any_bytes_are_read(frame in prop::collection::vec(any::<u8>(), 0..100)) {
            Conversation::of(&frame);
        }
    }

    #[test]
    fn every_field_matters_and_tags_do_not() {
        let (a, b) = (([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2));
        let base = v4(6, a, b, 0);
        for other in [
            v4(17, a, b, 0),
            v4(6, (a.0, 2), (b.0, 1), 0),
            v4(6, (b.0, 1), (a.0, 2), 0),
            v4(6, ([10, 0, 0, 3], 1), b, 0),
            v4(6, (a.0, 3), b, 0),
        ] {
            assert_ne!(hash(&base), hash(&other));
        }
        let mut tagged = [vec![0; 4], base.clone()].concat();
        assert!(push_vlan(&mut tagged, VlanTag::from_tci(77)));
        assert_eq!(Conversation::of(&tagged), Conversation::of(&base));
    }

    #[test]
    fn fragments_have_no_ports_and_other_protocols_no_conversation() {
        let (a, b) = (([10, 0, 0, 1], 1), ([10, 0, 0, 2], 2));
        let first = Conversation::of(&v4(17, a, b, 0x2000)).unwrap();
        assert_eq!((first.fragment, first.source, first.destination), (true, 0, 0));
        assert_eq!(Some(first), Conversation::of(&v4(17, (a.0, 500), (b.0, 600), 0x0001)));
        assert_eq!(Conversation::of(&v4(1, a, b, 0)), None);
        assert_eq!(Conversation::of(&[[2; 12].as_slice(), &[8, 6], &[0; 28]].concat()), None);
        assert_eq!(Conversation::of(&v4(6, a, b, 0)[..37]), None, "the ports are cut off");
    }

    #[test]
    fn neighbouring_conversations_spread() {
        let mut load = [0u32; 3];
        for port in 0..9000 {
            let frame = v4(6, ([10, 0, 0, 1], 1024 + port), ([10, 0, 0, 2], 80), 0);
            load[((u64::from(hash(&frame)) * 3) >> 32) as usize] += 1;
        }
        assert!(load.iter().all(|n| n.abs_diff(3000) < 200), "{load:?}");
    }
}
