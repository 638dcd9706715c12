//! Changes to packets.

use fabric::{Batch, VersionId};
use packet::Sum;
use packet::dscp;
use packet::ether::{self, MacAddr, VlanTag};
use packet::headers::{IpVersion, Layers};

/// A change to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The VLAN of its outermost tag, which keeps its priority; 0 removes the tag.
    Vlan(u16),
    /// Its source address.
    Source(MacAddr),
    /// Its destination address.
    Destination(MacAddr),
    /// Time to live of IPv4, hop limit of IPv6. Other packets stay unchanged.
    Ttl(u8),
    /// Differentiated services code point of IPv4 and IPv6. Other packets stay unchanged.
    Dscp(u8),
}

/// Changes a packet. Returns its version; `None` if the packet was dropped, and counted, because there is no room.
pub(crate) fn apply(edit: Edit, batch: &mut Batch<'_>, v: VersionId) -> Option<VersionId> {
    if let Edit::Vlan(vid) = edit {
        return retag(vid, batch, v);
    }
    let v = batch.edit(v)?;
    if let Some(header) = batch.header_mut(v) {
        match edit {
            Edit::Vlan(_) => {}
            Edit::Destination(mac) => put(header, 0, mac),
            Edit::Source(mac) => put(header, 6, mac),
            Edit::Ttl(ttl) => set_ttl(header, ttl),
            Edit::Dscp(code_point) => dscp::set(header, code_point),
        }
    }
    Some(v)
}

fn retag(vid: u16, batch: &mut Batch<'_>, v: VersionId) -> Option<VersionId> {
    let tag = ether::vlan_tag(batch.header(v));
    let v = if tag.is_some() { batch.pop_vlan(v)? } else { v };
    match vid {
        0 => Some(v),
        vid => batch.push_vlan(v, VlanTag { vid, ..tag.unwrap_or_default() }),
    }
}

fn put(header: &mut [u8], at: usize, mac: MacAddr) {
    if let Some(place) = header.get_mut(at..at + mac.0.len()) {
        place.copy_from_slice(&mac.0);
    }
}

/// Sets the time to live; the checksum of IPv4 follows (RFC 1624, equation 3).
fn set_ttl(frame: &mut [u8], ttl: u8) {
    let Layers { l3: Some(at), ip: Some(version), .. } = Layers::parse(frame) else { return };
    let Some(header) = frame.get_mut(usize::from(at)..) else { return };
    match (version, header) {
        (IpVersion::V6, [_, _, _, _, _, _, _, hop_limit, ..]) => *hop_limit = ttl,
        (IpVersion::V4, [_, _, _, _, _, _, _, _, old, protocol, high, low, ..]) => {
            let mut sum = Sum::default();
            sum.add_u16(!u16::from_be_bytes([*high, *low]));
            sum.add_u16(!u16::from_be_bytes([*old, *protocol]));
            sum.add_u16(u16::from_be_bytes([ttl, *protocol]));
            *old = ttl;
            [*high, *low] = sum.finish().to_be_bytes();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_and_checksum_agree() {
        for (before, ttl, protocol) in [(64, 1, 6), (1, 255, 17), (64, 64, 1), (255, 254, 255)] {
            let mut ip = [0x45, 0, 0, 20, 0, 1, 0, 0, before, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let sum = Sum::of(&ip).finish().to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
            let mut frame = [&[2; 12][..], &[0x81, 0, 0, 7, 8, 0], &ip].concat();
            set_ttl(&mut frame, ttl);
            assert_eq!(frame[18 + 8], ttl);
            assert_eq!(Sum::of(&frame[18..]).finish(), 0, "the checksum is right");
        }
        let mut v6 = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 59, 64], &[0; 32]].concat();
        set_ttl(&mut v6, 9);
        assert_eq!(v6[14 + 7], 9);
        let mut short = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
        let unchanged = short.clone();
        set_ttl(&mut short, 9);
        assert_eq!(short, unchanged);
    }
}
