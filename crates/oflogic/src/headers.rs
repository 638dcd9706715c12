//! Headers of packets: the number of bytes that the parser needs, and replacement of headers in front of a partial
//! checksum.

use fabric::{Batch, VersionId};
use packet::checksum::Sum;
use packet::headers::{IpVersion, Layers, protocol};

/// Largest number of bytes that the parser sees.
pub(crate) const WINDOW: usize = 512;

/// Where the type is in a frame without tags.
const TYPE: usize = 12;
/// Largest offset of the type with which everything that follows fits into the bytes that the fabric copies.
const LAST_TYPE: usize = 40;

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Whether the parser may need more than these first bytes of a longer packet: behind extension headers, stacks of
/// labels and long stacks of tags.
pub(crate) fn needs_more(front: &[u8]) -> bool {
    let mut at = TYPE;
    loop {
        match be16(front, at) {
            Some(0x8100 | 0x88a8) if at < LAST_TYPE => at += 4,
            // IPv6: hop by hop, routing, fragment, authentication, destination.
            Some(0x86dd) => return matches!(front.get(at + 8), None | Some(0 | 43 | 44 | 51 | 60)),
            None | Some(0x8100 | 0x88a8 | 0x8847 | 0x8848 | 0..0x600) => return true,
            // With all its options an IPv4 header and that behind it fit.
            Some(_) => return false,
        }
    }
}

/// A checksum that a receiver is to complete: its field holds the pseudo-header's sum.
#[derive(Debug, Clone, Copy)]
struct Partial {
    field: u16,
    addresses: u16,
}

/// The checksum over a packet's IP addresses, if its transport protocol has a pseudo-header.
fn addresses(front: &[u8], layers: &Layers) -> Option<u16> {
    let l3 = usize::from(layers.l3?);
    let range = match (layers.ip?, layers.protocol?) {
        (IpVersion::V4, protocol::ICMP | protocol::IGMP) => return Some(0),
        (IpVersion::V4, _) => l3 + 12..l3 + 20,
        (IpVersion::V6, _) => l3 + 8..l3 + 40,
    };
    Some(Sum::of(front.get(range)?).partial())
}

impl Partial {
    /// The checksum of a version, if it is still to be completed and is not in a tunnel's payload.
    fn of(batch: &Batch<'_>, v: VersionId) -> Option<Self> {
        let offload = batch.offload(v);
        if !offload.needs_csum {
            return None;
        }
        let front = batch.header(v);
        let layers = Layers::parse(front);
        let field = be16(front, usize::from(offload.csum_start) + usize::from(offload.csum_offset))?;
        let addresses = addresses(front, &layers).filter(|_| layers.l4 == Some(offload.csum_start))?;
        Some(Self { field, addresses })
    }

    /// Recomputes the partial checksum for the new headers. The program took it for a complete one.
    fn restore(self, batch: &mut Batch<'_>, v: VersionId) {
        let offload = batch.offload(v);
        let front = batch.header(v);
        let Some(addresses) = addresses(front, &Layers::parse(front)) else { return };
        let field = add(add(self.field, !self.addresses), addresses);
        let at = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
        if let Some(place) = batch.header_mut(v).and_then(|front| front.get_mut(at..at + 2)) {
            place.copy_from_slice(&field.to_be_bytes());
        }
    }
}

/// One's complement addition.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

/// Makes of a version `head`, then its bytes `from..to`; false if the packet was dropped.
pub(crate) fn replace(batch: &mut Batch<'_>, v: VersionId, head: &[u8], from: u32, to: u32) -> bool {
    let partial = Partial::of(batch, v);
    if !batch.replace_front(v, head, from, to) {
        return false;
    }
    if let Some(partial) = partial {
        partial.restore(batch, v);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(tags: usize, kind: u16, rest: &[u8]) -> Vec<u8> {
        let mut front = vec![0; 12];
        (0..tags).for_each(|_| front.extend([0x81, 0, 0, 1]));
        front.extend(kind.to_be_bytes());
        front.extend(rest);
        front.resize(128, 0);
        front
    }

    #[test]
    fn plain_headers_need_no_more() {
        let ipv6 = |next: u8| [[0x60, 0, 0, 0, 0, 0, next]; 1].concat();
        for (tags, kind, rest, more) in [
            (0, 0x0800, vec![], false),
            (2, 0x0800, vec![], false),
            (0, 0x0806, vec![], false),
            (1, 0x86dd, ipv6(6), false),
            (1, 0x86dd, ipv6(58), false),
            (0, 0x86dd, ipv6(44), true),
            (3, 0x86dd, ipv6(0), true),
            (0, 0x8847, vec![], true),
            (9, 0x0800, vec![], true),
            (0, 100, vec![], true),
            (0, 0x88b5, vec![], false),
        ] {
            assert_eq!(needs_more(&front(tags, kind, &rest)), more, "{tags} tags, {kind:#x}");
        }
        assert!(needs_more(&[0; 13]));
    }

    #[test]
    fn ones_complement_addition_carries_around() {
        assert_eq!(add(0xffff, 1), 1);
        assert_eq!(add(0x8000, 0x8000), 1);
        assert_eq!(add(1, 2), 3);
    }
}
