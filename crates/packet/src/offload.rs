//! Work still pending on a packet before it is valid on a wire (virtio 1.2 §5.1.6).
//!
//! A sender may leave two operations to the receivers after it: segmenting a large TCP or UDP packet, and filling in
//! the transport checksum. An [`Offload`] records which. It travels with the packet, to a receiver that accepts such
//! packets unchanged or to [`segment`](crate::segment), which performs the operations.
//!
//! Metadata comes from hostile clients. It is used only after [`Offload::validate`] has compared it with the switch's
//! private copy of the packet's headers. Validated metadata guarantees:
//! - The two bytes that completing a checksum will overwrite lie within the header bytes given, and they are the
//!   checksum field of the packet's transport or ICMP header, or lie within a tunnel's payload. The sender controls the
//!   value of a checksum, so elsewhere it could rewrite addresses after they were checked.
//! - A packet to be segmented is TCP or UDP over the stated IP version, its lengths agree with one another and with the
//!   packet's, and it gives 2 to [`MAX_SEGMENTS`] segments. [`Plan::new`](crate::Plan::new) accepts it.

use crate::gso;
use crate::headers::{Layers, protocol};

/// Maximum number of segments of one packet. 64 KiB at the smallest MSS that IPv4 hosts must accept, 536 (RFC 9293
/// §3.7.1), are 123; the bound keeps one packet from becoming thousands.
pub const MAX_SEGMENTS: u32 = 256;

/// Offset of the checksum in a TCP header (RFC 9293 §3.1).
pub(crate) const TCP_CHECKSUM: u16 = 16;
/// Offset of the checksum in a UDP header (RFC 768).
pub(crate) const UDP_CHECKSUM: u16 = 6;
/// Offset of the checksum in an SCTP header (RFC 9260 §3.1), a CRC-32C. Linux passes it on as other checksums.
const SCTP_CHECKSUM: u16 = 8;
/// Offset of the checksum in an ICMP, ICMPv6 or IGMP message (RFC 792, RFC 4443 §2.1, RFC 2236 §2).
const ICMP_CHECKSUM: u16 = 2;
/// Length of a UDP header (RFC 768).
pub(crate) const UDP_LEN: u16 = 8;

/// Segmentation of a packet (virtio 1.2 §5.1.6, `gso_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gso {
    /// None.
    #[default]
    None,
    /// Into TCP segments over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    Tcp4,
    /// Into TCP segments over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    Tcp6,
    /// Into UDP datagrams over IPv4 or IPv6 (`VIRTIO_NET_HDR_GSO_UDP_L4`); not IP fragmentation.
    Udp,
}

/// Work still pending on a packet; none by default. Offsets count from the frame's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offload {
    /// Kind of segmentation.
    pub gso: Gso,
    /// CWR is set in the TCP packet, and belongs to its first segment only (`VIRTIO_NET_HDR_GSO_ECN`).
    pub ecn: bool,
    /// The checksum field holds the pseudo-header's sum only (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub needs_csum: bool,
    /// The checksums were verified (`VIRTIO_NET_HDR_F_DATA_VALID`). A virtio driver must not claim this (virtio 1.2
    /// §5.1.6.2.1): the port that serves the driver clears it.
    pub csum_valid: bool,
    /// Payload bytes of each segment but the last, which may have fewer.
    pub gso_size: u16,
    /// Start of the checksummed bytes; they end with the packet.
    pub csum_start: u16,
    /// Offset of the checksum field, counted from `csum_start`.
    pub csum_offset: u16,
    /// Length of the headers that each segment repeats. After validation: the real one for a packet to be segmented,
    /// else 0.
    pub hdr_len: u16,
}

/// Reasons for refusing offload metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OffloadError {
    /// The type is unknown or not supported: IP fragmentation, ECN without TCP.
    #[error("segmentation type {0:#04x} is not supported")]
    UnknownGsoType(u8),
    /// The headers given end too early; more bytes of the packet may help.
    #[error("the headers are longer than the bytes given")]
    Truncated,
    /// The header bytes given are longer than the packet.
    #[error("the packet is shorter than its headers")]
    BeyondPacket,
    /// The checksum would overwrite bytes that are not a checksum field.
    #[error("no checksum field at {start} + {offset}")]
    ChecksumPlacement {
        /// `csum_start`.
        start: u16,
        /// `csum_offset`.
        offset: u16,
    },
    /// A fragment's checksum covers bytes of other fragments.
    #[error("a fragment cannot be segmented or checksummed")]
    Fragment,
    /// Segments need checksums (virtio 1.2 §5.1.6.2.1).
    #[error("segmentation without a checksum to complete")]
    GsoWithoutChecksum,
    /// Segments would be empty.
    #[error("segment size is 0")]
    GsoSizeZero,
    /// There would be more than [`MAX_SEGMENTS`].
    #[error("segmentation into {0} segments (at most {MAX_SEGMENTS})")]
    TooManySegments(u32),
    /// The headers do not match the segmentation type.
    #[error("the segmentation type does not match the headers")]
    GsoMismatch,
    /// A length in the IP, TCP or UDP header contradicts another, or the packet's.
    #[error("lengths in the headers disagree")]
    LengthMismatch,
}

impl Offload {
    /// No pending work, checksums unverified.
    pub const NONE: Self = Self {
        gso: Gso::None,
        ecn: false,
        needs_csum: false,
        csum_valid: false,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
        hdr_len: 0,
    };

    /// Whether the packet needs no more work, for any receiver.
    #[inline]
    pub const fn is_none(&self) -> bool {
        matches!(self.gso, Gso::None) && !self.needs_csum
    }

    /// Checks the metadata against the packet and returns its normal form, the only form to pass on.
    ///
    /// `headers` are the first bytes of the packet, in memory that its sender cannot write; `total_len` is the length
    /// of the whole packet. In the normal form, fields without meaning are zero, `hdr_len` comes from the headers (the
    /// driver's is only a hint: virtio 1.2 §5.1.6.2.2), and a packet that fits into one segment is not segmented.
    #[inline]
    pub fn validate(&self, headers: &[u8], total_len: u32) -> Result<Self, OffloadError> {
        if headers.len() as u64 > u64::from(total_len) {
            return Err(OffloadError::BeyondPacket);
        }
        if self.is_none() {
            return Ok(Self { csum_valid: self.csum_valid, ..Self::NONE });
        }
        let checksum = Self {
            needs_csum: true,
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
            ..Self::NONE
        };
        if self.gso == Gso::None {
            self.validate_checksum(headers, total_len)?;
            return Ok(checksum);
        }
        let layout = gso::Layout::read(headers, total_len, self)?;
        if layout.payload_len(total_len) <= u32::from(self.gso_size) {
            return Ok(checksum);
        }
        let ecn = self.ecn && self.gso != Gso::Udp;
        Ok(Self { gso: self.gso, ecn, gso_size: self.gso_size, hdr_len: layout.hdr_len, ..checksum })
    }

    /// Moves the offsets with the IP header after `delta` bytes of VLAN tags were pushed (positive) or popped
    /// (negative).
    #[inline]
    pub fn shift(&mut self, delta: i16) {
        if self.needs_csum {
            self.csum_start = self.csum_start.saturating_add_signed(delta);
        }
        if self.gso != Gso::None {
            self.hdr_len = self.hdr_len.saturating_add_signed(delta);
        }
    }

    /// Checks that the offsets point to a checksum field, for a packet that is not segmented.
    fn validate_checksum(&self, headers: &[u8], total_len: u32) -> Result<(), OffloadError> {
        let misplaced = OffloadError::ChecksumPlacement { start: self.csum_start, offset: self.csum_offset };
        let end = u32::from(self.csum_start) + u32::from(self.csum_offset) + 2;
        if end > total_len {
            return Err(misplaced);
        }
        // If the walk through the headers, or the field, reached the end of the private bytes, more bytes may help.
        let more =
            if (headers.len() as u64) < u64::from(total_len) { OffloadError::Truncated } else { misplaced };
        if u64::from(end) > headers.len() as u64 {
            return Err(more);
        }
        let layers = Layers::parse(headers);
        if layers.fragment {
            return Err(OffloadError::Fragment);
        }
        // Only protocols over IP offload this checksum.
        let (Some(protocol), Some(l4)) = (layers.protocol, layers.l4) else { return Err(more) };
        let field_at = |offset| self.csum_start == l4 && self.csum_offset == offset;
        let placed = match protocol {
            protocol::TCP => field_at(TCP_CHECKSUM),
            // A UDP tunnel such as VXLAN (RFC 7348) offloads the checksum of the inner packet.
            protocol::UDP => field_at(UDP_CHECKSUM) || self.csum_start >= l4 + UDP_LEN,
            protocol::ICMP | protocol::ICMPV6 | protocol::IGMP => field_at(ICMP_CHECKSUM),
            protocol::SCTP => field_at(SCTP_CHECKSUM),
            // At the offset of UDP (RFC 4340 §5.1, RFC 3828 §3.1).
            protocol::DCCP | protocol::UDP_LITE => field_at(UDP_CHECKSUM),
            // Other tunnels.
            _ => self.csum_start >= l4,
        };
        if placed { Ok(()) } else { Err(misplaced) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds Ethernet, IPv4 and TCP or UDP headers, with lengths for `payload` bytes, and that payload.
    fn packet(protocol: u8, payload: usize) -> Vec<u8> {
        let l4_len = if protocol == protocol::TCP { 20 } else { 8 };
        let mut packet = vec![2; 12];
        packet.extend([8, 0, 0x45, 0]);
        packet.extend((20 + l4_len as u16 + payload as u16).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let mut l4 = vec![0; l4_len];
        match protocol {
            protocol::TCP => l4[12] = 0x50,
            _ => l4[4..6].copy_from_slice(&(8 + payload as u16).to_be_bytes()),
        }
        packet.extend(l4);
        packet.resize(packet.len() + payload, 0xab);
        packet
    }

    fn checksum(start: u16, offset: u16) -> Offload {
        Offload { needs_csum: true, csum_start: start, csum_offset: offset, ..Offload::NONE }
    }

    fn tso(size: u16) -> Offload {
        Offload { gso: Gso::Tcp4, gso_size: size, hdr_len: 9999, ..checksum(34, 16) }
    }

    fn check(offload: Offload, packet: &[u8]) -> Result<Offload, OffloadError> {
        offload.validate(&packet[..packet.len().min(128)], packet.len() as u32)
    }

    #[test]
    fn offloads_have_twelve_bytes() {
        assert_eq!(size_of::<Offload>(), 12);
        assert_eq!(Offload::default(), Offload::NONE);
        assert!(Offload::NONE.is_none() && !tso(1).is_none() && !checksum(0, 0).is_none());
    }

    #[test]
    fn nothing_to_do_is_normalised() {
        let junk = Offload {
            csum_valid: true,
            gso_size: 5,
            csum_start: 6,
            csum_offset: 7,
            hdr_len: 8,
            ..Offload::NONE
        };
        assert_eq!(check(junk, &[]), Ok(Offload { csum_valid: true, ..Offload::NONE }));
        assert_eq!(junk.validate(&[0; 3], 2), Err(OffloadError::BeyondPacket));
    }

    #[test]
    fn checksums_only_in_checksum_fields() {
        let tcp = packet(protocol::TCP, 10);
        assert_eq!(check(checksum(34, 16), &tcp), Ok(checksum(34, 16)));
        // The source MAC, the source IP address, the ports, a field across the end, a field after the end.
        for (start, offset) in [(0, 6), (14, 12), (34, 0), (34, 29), (65535, 65535), (18, 32), (54, 6)] {
            let misplaced = OffloadError::ChecksumPlacement { start, offset };
            assert_eq!(check(checksum(start, offset), &tcp), Err(misplaced));
        }
        let udp = packet(protocol::UDP, 100);
        assert_eq!(check(checksum(34, 6), &udp), Ok(checksum(34, 6)));
        assert_eq!(check(checksum(42 + 8 + 34, 16), &udp), Ok(checksum(84, 16)), "VXLAN");
        assert!(check(checksum(34, 4), &udp).is_err());
        assert_eq!(check(checksum(130, 6), &packet(protocol::UDP, 400)), Err(OffloadError::Truncated));
        let icmp = packet(protocol::ICMP, 100);
        assert_eq!(check(checksum(34, 2), &icmp), Ok(checksum(34, 2)));
        assert!(check(checksum(50, 2), &icmp).is_err());
        let gre = packet(47, 100);
        assert_eq!(check(checksum(38, 0), &gre), Ok(checksum(38, 0)));
        assert!(check(checksum(14, 12), &gre).is_err(), "the source IP address of a tunnel");
        for (protocol, offset) in [(protocol::SCTP, 8), (protocol::DCCP, 6), (protocol::UDP_LITE, 6)] {
            let ports = packet(protocol, 100);
            for wrong in [0, 2, 60] {
                assert!(
                    check(checksum(34, wrong), &ports).is_err(),
                    "{protocol}: bytes {wrong} and {wrong} + 1"
                );
            }
            assert_eq!(check(checksum(34, offset), &ports), Ok(checksum(34, offset)));
        }
        assert!(check(checksum(0, 6), &gre).is_err(), "the source MAC of a tunnel");
        let mut arp = tcp.clone();
        arp[13] = 6;
        assert!(check(checksum(34, 16), &arp).is_err());
        let mut fragment = tcp;
        fragment[20] = 0x20;
        assert_eq!(check(checksum(34, 16), &fragment), Err(OffloadError::Fragment));
    }

    #[test]
    fn segmentation_agrees_with_the_headers() {
        let tcp = packet(protocol::TCP, 3000);
        assert_eq!(check(tso(1448), &tcp), Ok(Offload { hdr_len: 54, ..tso(1448) }));
        assert_eq!(check(tso(3000), &tcp), Ok(checksum(34, 16)), "fits into one segment");
        assert_eq!(check(tso(0), &tcp), Err(OffloadError::GsoSizeZero));
        assert_eq!(check(tso(11), &tcp), Err(OffloadError::TooManySegments(273)));
        assert_eq!(
            check(Offload { needs_csum: false, ..tso(9) }, &tcp),
            Err(OffloadError::GsoWithoutChecksum)
        );
        for gso in [Gso::Tcp6, Gso::Udp] {
            assert_eq!(check(Offload { gso, ..tso(1448) }, &tcp), Err(OffloadError::GsoMismatch));
        }
        let misplaced = OffloadError::ChecksumPlacement { start: 34, offset: 6 };
        assert_eq!(check(Offload { csum_offset: 6, ..tso(1448) }, &tcp), Err(misplaced));
        assert_eq!(tso(1448).validate(&tcp[..53], 3054), Err(OffloadError::Truncated));
        assert_eq!(tso(1448).validate(&tcp[..128], 3055), Err(OffloadError::LengthMismatch));
        let mut fragment = tcp.clone();
        fragment[20] = 0x20;
        assert_eq!(check(tso(1448), &fragment), Err(OffloadError::Fragment));
        let mut short = tcp;
        short[46] = 0x40;
        assert_eq!(check(tso(1448), &short), Err(OffloadError::LengthMismatch));

        let udp = packet(protocol::UDP, 3000);
        let uso = Offload { gso: Gso::Udp, gso_size: 1000, ecn: true, ..checksum(34, 6) };
        assert_eq!(check(uso, &udp), Ok(Offload { ecn: false, hdr_len: 42, ..uso }));
        let mut wrong = udp;
        wrong[39] ^= 1;
        assert_eq!(check(uso, &wrong), Err(OffloadError::LengthMismatch));
    }

    #[test]
    fn shifting_moves_only_used_offsets() {
        let mut offload = Offload { hdr_len: 54, ..tso(1448) };
        offload.shift(4);
        assert_eq!((offload.csum_start, offload.hdr_len), (38, 58));
        offload.shift(-4);
        assert_eq!((offload.csum_start, offload.hdr_len), (34, 54));
        let mut none = Offload::NONE;
        none.shift(4);
        assert_eq!(none, Offload::NONE);
    }
}
