//! Packets with new headers: their bytes, and checksums that a receiver is to complete.

use fabric::{Batch, VersionId};
use packet::checksum::Sum;
use packet::headers::{IpVersion, Layers, protocol};

/// Largest number of bytes that a parser sees.
pub const WINDOW: usize = 512;

/// Bytes of an outgoing packet: new ones, then bytes `from..to` of the received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form<'a> {
    /// New bytes.
    pub head: &'a [u8],
    /// First byte that follows.
    pub from: u32,
    /// End of the bytes that follow.
    pub to: u32,
}

impl Form<'_> {
    /// Whether it is a packet of `len` bytes with this front as it was received.
    #[inline]
    pub fn is_received(&self, front: &[u8], len: u32) -> bool {
        self.to == len
            && self.head.len() == self.from as usize
            // Most packets have no new bytes. To compare none costs more than to compare many where there is nothing
            // behind the address: some CPUs take hundreds of cycles to suppress the fault.
            && (self.head.is_empty()
                || front.get(..self.head.len()).is_some_and(|front| front == self.head))
    }
}

/// Appends bytes `from..to` of a version, as far as they are there.
pub fn append(batch: &Batch<'_>, v: VersionId, from: u32, to: u32, bytes: &mut Vec<u8>) {
    let before = bytes.len();
    bytes.resize(before + to.saturating_sub(from) as usize, 0);
    let read = bytes.get_mut(before..).map_or(0, |rest| batch.read(v, from as usize, rest));
    bytes.truncate(before + read);
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
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
pub fn replace(batch: &mut Batch<'_>, v: VersionId, head: &[u8], from: u32, to: u32) -> bool {
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

    #[test]
    fn ones_complement_addition_carries_around() {
        assert_eq!(add(0xffff, 1), 1);
        assert_eq!(add(0x8000, 0x8000), 1);
        assert_eq!(add(1, 2), 3);
    }
}
