//! Software segmentation and checksum completion, for receivers that support neither: performs the operations of an
//! [`Offload`].
//!
//! A packet's payload stays in its sender's memory, scattered and not addressable as a slice, so this module sees only
//! headers and lengths. For each segment, the caller moves the payload range given by [`Plan::payload`], sums it on the
//! way, and passes the [`Sum`] to [`Plan::write_header`]. A sender that changes the payload between summing and copying
//! only corrupts the checksum of its own packet.
//!
//! The transport checksums start from the sum in the packet's checksum field: that of the pseudo-header with the length
//! of the unsegmented packet (virtio 1.2 §5.1.6.2). It is not recomputed from the addresses, because an IPv6 routing
//! header puts an address into it that is not in the IP header (RFC 8200 §8.1). A logic that rewrites addresses must
//! update the field by the difference, whether or not the packet is segmented.
//!
//! Invariants: payload ranges are disjoint, in order, and cover the packet from the end of its headers to its end;
//! every mistake of a caller or of a packet's sender gives an error or a wrong checksum.

use core::ops::Range;

use crate::bytes::{be16, chunk, chunk_mut, set_be16};
use crate::checksum::Sum;
use crate::gso::{Layout, Transport};
use crate::headers::{IPV6_LEN, IpVersion};
use crate::offload::{Gso, Offload, OffloadError};

// TCP control bits (RFC 9293 §3.1; CWR: RFC 3168 §6.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Reasons for not segmenting or completing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SegmentError {
    /// The metadata contradicts the packet: it was not validated, or headers were edited after validation.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// Segmentation of a packet that does not ask for it, or completing the checksum of a packet to be segmented.
    #[error("the packet needs a different operation")]
    WrongOperation,
    /// The segment does not exist.
    #[error("segment {0} does not exist")]
    NoSuchSegment(u32),
    /// The headers given, or the output buffer, are shorter than the planned headers.
    #[error("buffer shorter than the headers")]
    TooShort,
}

/// Segmentation of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    layout: Layout,
    total_len: u32,
    gso_size: u32,
    count: u32,
    // Sums over the fields that all segments' headers share.
    common_ip: Sum,
    common_transport: Sum,
}

impl Plan {
    /// Plans the segmentation of a packet of `total_len` bytes that starts with `headers`, which may extend into its
    /// payload.
    ///
    /// Repeats all checks of [`Offload::validate`], because a logic may have edited the headers since. A packet that
    /// fits into one segment gives one.
    #[inline]
    pub fn new(headers: &[u8], total_len: u32, offload: &Offload) -> Result<Self, SegmentError> {
        if offload.gso == Gso::None {
            return Err(SegmentError::WrongOperation);
        }
        let layout = Layout::read(headers, total_len, offload)?;
        let gso_size = u32::from(offload.gso_size);
        let count = layout.payload_len(total_len).div_ceil(gso_size).max(1);
        let common_ip = common_ip(headers, &layout).ok_or(SegmentError::TooShort)?;
        let common_transport = common_transport(headers, total_len, &layout).ok_or(SegmentError::TooShort)?;
        Ok(Self { layout, total_len, gso_size, count, common_ip, common_transport })
    }

    /// Returns the number of segments: 1 to [`MAX_SEGMENTS`](crate::offload::MAX_SEGMENTS).
    #[inline]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the length of the Ethernet, IP and transport headers that every segment starts with.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.layout.hdr_len as usize
    }

    /// Returns the byte range of the packet that segment `i` carries; empty if the segment does not exist.
    #[inline]
    pub fn payload(&self, i: u32) -> Range<u32> {
        let start = self.gso_size.saturating_mul(i).saturating_add(u32::from(self.layout.hdr_len));
        let end = start.saturating_add(self.gso_size);
        start.min(self.total_len)..end.min(self.total_len)
    }

    /// Returns the length of segment `i` with its headers.
    #[inline]
    pub fn segment_len(&self, i: u32) -> usize {
        self.header_len() + self.payload(i).len()
    }

    /// Writes the first [`header_len`](Self::header_len) bytes of segment `i` to the front of `out`.
    ///
    /// `original` is the front of the packet, unchanged since planning; `payload` is the sum of the bytes of
    /// [`payload(i)`](Self::payload).
    ///
    /// - IPv4 (RFC 791 §3.1): total length, incremented identification, header checksum. IPv6 (RFC 8200 §3): payload
    ///   length.
    /// - TCP (RFC 9293 §3.1): sequence number; FIN and PSH only in the last segment, CWR only in the first (RFC 3168
    ///   §6.1.2); checksum.
    /// - UDP (RFC 768): length and checksum.
    #[inline]
    pub fn write_header(
        &self,
        i: u32,
        original: &[u8],
        out: &mut [u8],
        payload: Sum,
    ) -> Result<(), SegmentError> {
        if i >= self.count {
            return Err(SegmentError::NoSuchSegment(i));
        }
        let original = original.get(..self.header_len()).ok_or(SegmentError::TooShort)?;
        let out = out.get_mut(..self.header_len()).ok_or(SegmentError::TooShort)?;
        out.copy_from_slice(original);
        self.write_ip(i, out)
            .and_then(|()| self.write_transport(i, out, payload))
            .ok_or(SegmentError::TooShort)
    }

    #[inline]
    fn write_ip(&self, i: u32, out: &mut [u8]) -> Option<()> {
        let (l3, l4) = (usize::from(self.layout.l3), usize::from(self.layout.l4));
        match self.layout.ip {
            IpVersion::V4 => {
                let header = out.get_mut(l3..l4)?;
                let total_length = u16::try_from(self.segment_len(i).checked_sub(l3)?).ok()?;
                let identification = be16(header, 4)?.wrapping_add(u16::try_from(i).ok()?);
                let mut sum = self.common_ip;
                sum.add_u16(total_length);
                sum.add_u16(identification);
                set_be16(header, 2, total_length)?;
                set_be16(header, 4, identification)?;
                set_be16(header, 10, sum.finish())
            }
            IpVersion::V6 => {
                let payload_length = self.segment_len(i).checked_sub(l3 + IPV6_LEN)?;
                set_be16(out, l3 + 4, u16::try_from(payload_length).ok()?)
            }
        }
    }

    #[inline]
    fn write_transport(&self, i: u32, out: &mut [u8], payload: Sum) -> Option<()> {
        let l4 = usize::from(self.layout.l4);
        let len = u16::try_from(self.segment_len(i).checked_sub(l4)?).ok()?;
        let header = out.get_mut(l4..)?;
        let mut sum = self.common_transport;
        sum.add_u16(len);
        match self.layout.transport {
            Transport::Tcp => {
                let sequence = chunk_mut(header, 4)?;
                let moved = self.gso_size.wrapping_mul(i);
                *sequence = u32::from_be_bytes(*sequence).wrapping_add(moved).to_be_bytes();
                sum.add(sequence);
                let offset_and_flags = chunk_mut::<2>(header, 12)?;
                if i > 0 {
                    offset_and_flags[1] &= !CWR;
                }
                if i + 1 < self.count {
                    offset_and_flags[1] &= !(FIN | PSH);
                }
                sum.add_u16(u16::from_be_bytes(*offset_and_flags));
            }
            Transport::Udp => {
                set_be16(header, 4, len)?;
                sum.add_u16(len);
            }
        }
        sum.combine(payload);
        set_be16(header, usize::from(self.layout.transport.checksum()), non_zero(sum.finish()))
    }
}

/// Returns the sum of the fields that all IPv4 headers share: all but total length, identification and checksum.
fn common_ip(headers: &[u8], layout: &Layout) -> Option<Sum> {
    if layout.ip == IpVersion::V6 {
        return Some(Sum::default());
    }
    let header = headers.get(usize::from(layout.l3)..usize::from(layout.l4))?;
    without(header, &[2, 4, 10])
}

/// Returns the sum of the fields that all transport headers and pseudo-headers share: all but the lengths, and TCP's
/// sequence number and flags. The checksum field holds the pseudo-header's sum, which includes the length of the
/// unsegmented packet.
fn common_transport(headers: &[u8], total_len: u32, layout: &Layout) -> Option<Sum> {
    let header = headers.get(usize::from(layout.l4)..usize::from(layout.hdr_len))?;
    let mut sum = match layout.transport {
        Transport::Tcp => without(header, &[4, 6, 12])?,
        Transport::Udp => without(header, &[4])?,
    };
    let packet_len = u16::try_from(total_len.checked_sub(u32::from(layout.l4))?).ok()?;
    sum.add_u16(!packet_len);
    Some(sum)
}

/// Returns the sum of `header` without its words at `fields`: subtracting is adding the complement (RFC 1624 §3).
fn without(header: &[u8], fields: &[usize]) -> Option<Sum> {
    let mut sum = Sum::of(header);
    for field in fields {
        sum.add_u16(!be16(header, *field)?);
    }
    Some(sum)
}

/// Completes the checksum of a packet that is not segmented (virtio 1.2 §5.1.6.2, `VIRTIO_NET_HDR_F_NEEDS_CSUM`).
///
/// `header` is the front of the packet and includes the checksum field, which holds the pseudo-header's sum; `rest` is
/// the sum of the bytes after `header`, and `total_len` the length of the whole packet. A packet that needs no checksum
/// is left unchanged.
#[inline]
pub fn complete_checksum(
    header: &mut [u8],
    offload: &Offload,
    total_len: u32,
    rest: Sum,
) -> Result<(), SegmentError> {
    if offload.gso != Gso::None {
        return Err(SegmentError::WrongOperation);
    }
    if header.len() as u64 > u64::from(total_len) {
        return Err(OffloadError::BeyondPacket.into());
    }
    if !offload.needs_csum {
        return Ok(());
    }
    let checksummed = header.get_mut(usize::from(offload.csum_start)..).ok_or(SegmentError::TooShort)?;
    let field = usize::from(offload.csum_offset);
    chunk::<2>(checksummed, field).ok_or(SegmentError::TooShort)?;
    let mut sum = Sum::of(checksummed);
    sum.combine(rest);
    set_be16(checksummed, field, non_zero(sum.finish())).ok_or(SegmentError::TooShort)
}

/// Replaces zero by one's complement's other zero: the checksum stays correct, and UDP reserves zero for "none" (RFC
/// 768).
#[inline]
const fn non_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_checksum_is_written_as_ones() {
        // A UDP frame whose words, without the checksum field, add up to ffff.
        let mut header = vec![0u8; 42];
        header[34..36].copy_from_slice(&[0xff, 0xfe]);
        header[41] = 1;
        let offload = Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::NONE };
        complete_checksum(&mut header, &offload, 42, Sum::default()).unwrap();
        assert_eq!(header[40..42], [0xff, 0xff]);
    }

    #[test]
    fn the_rest_is_joined_at_an_odd_offset() {
        let whole: Vec<u8> = (0..100).collect();
        let offload = Offload { needs_csum: true, csum_start: 10, csum_offset: 4, ..Offload::NONE };
        let expected = Sum::of(&whole[10..]).finish();
        for split in 16..100 {
            let mut header = whole[..split].to_vec();
            complete_checksum(&mut header, &offload, 100, Sum::of(&whole[split..])).unwrap();
            assert_eq!(header[14..16], expected.to_be_bytes());
            assert_eq!((&header[..14], &header[16..]), (&whole[..14], &whole[16..split]));
        }
    }

    #[test]
    fn misuse_is_refused() {
        let mut header = [0u8; 40];
        let offload = Offload { needs_csum: true, csum_start: 34, csum_offset: 6, ..Offload::NONE };
        let mut complete =
            |offload: &Offload, total_len| complete_checksum(&mut header, offload, total_len, Sum::default());
        assert_eq!(complete(&offload, 50), Err(SegmentError::TooShort));
        assert_eq!(complete(&Offload { csum_start: 41, ..offload }, 50), Err(SegmentError::TooShort));
        assert_eq!(complete(&offload, 39), Err(OffloadError::BeyondPacket.into()));
        assert_eq!(complete(&Offload { gso: Gso::Udp, ..offload }, 50), Err(SegmentError::WrongOperation));
        assert_eq!(complete(&Offload::NONE, 50), Ok(()));
        assert_eq!(header, [0; 40]);
        assert_eq!(Plan::new(&header, 40, &offload).err(), Some(SegmentError::WrongOperation));
    }
}
