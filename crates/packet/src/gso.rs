//! The headers of a packet to be segmented, compared with the claims of its metadata.
//!
//! Invariant: a [`Layout`] exists only for a packet whose headers lie wholly within the bytes given, whose IP, TCP and
//! UDP lengths agree with its own, and which gives at most [`MAX_SEGMENTS`] segments. So `l3 < l4 < hdr_len <=
//! total_len`, and everything from `l3` on is below 65536 + 40 bytes long.

use crate::bytes::{be16, chunk};
use crate::headers::{IPV6_LEN, IpVersion, Layers, protocol};
use crate::offload::{Gso, MAX_SEGMENTS, Offload, OffloadError, TCP_CHECKSUM, UDP_CHECKSUM, UDP_LEN};

/// Offsets of the headers that every segment repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) ip: IpVersion,
    pub(crate) transport: Transport,
    pub(crate) l3: u16,
    pub(crate) l4: u16,
    pub(crate) hdr_len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Returns the offset of the checksum in the transport header.
    pub(crate) const fn checksum(self) -> u16 {
        match self {
            Self::Tcp => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        }
    }

    /// Returns the length of the transport header without options (RFC 9293 §3.1, RFC 768).
    const fn min_len(self) -> u16 {
        match self {
            Self::Tcp => 20,
            Self::Udp => UDP_LEN,
        }
    }
}

impl Layout {
    pub(crate) fn read(headers: &[u8], total_len: u32, offload: &Offload) -> Result<Self, OffloadError> {
        if headers.len() as u64 > u64::from(total_len) {
            return Err(OffloadError::BeyondPacket);
        }
        if !offload.needs_csum {
            return Err(OffloadError::GsoWithoutChecksum);
        }
        if offload.gso_size == 0 {
            return Err(OffloadError::GsoSizeZero);
        }
        let layers = Layers::parse(headers);
        if layers.fragment {
            return Err(OffloadError::Fragment);
        }
        // If the walk reached the end of the private bytes, more bytes may help.
        let more = |otherwise| {
            if (headers.len() as u64) < u64::from(total_len) { OffloadError::Truncated } else { otherwise }
        };
        let (Some(ip), Some(l3), Some(l4)) = (layers.ip, layers.l3, layers.l4) else {
            return Err(more(OffloadError::GsoMismatch));
        };
        let transport = match (offload.gso, ip, layers.protocol) {
            (Gso::Tcp4, IpVersion::V4, Some(protocol::TCP)) => Transport::Tcp,
            (Gso::Tcp6, IpVersion::V6, Some(protocol::TCP)) => Transport::Tcp,
            (Gso::Udp, _, Some(protocol::UDP)) => Transport::Udp,
            _ => return Err(OffloadError::GsoMismatch),
        };
        if offload.csum_start != l4 || offload.csum_offset != transport.checksum() {
            let (start, offset) = (offload.csum_start, offload.csum_offset);
            return Err(OffloadError::ChecksumPlacement { start, offset });
        }
        let l4_len = match transport {
            Transport::Tcp => tcp_len(headers, l4).ok_or(more(OffloadError::LengthMismatch))?,
            Transport::Udp => UDP_LEN,
        };
        let hdr_len = l4 + l4_len;
        if usize::from(hdr_len) > headers.len() {
            return Err(more(OffloadError::LengthMismatch));
        }
        let layout = Self { ip, transport, l3, l4, hdr_len };
        if l4_len < transport.min_len() || !layout.lengths_agree(headers, total_len) {
            return Err(OffloadError::LengthMismatch);
        }
        let count = layout.payload_len(total_len).div_ceil(u32::from(offload.gso_size));
        if count > MAX_SEGMENTS {
            return Err(OffloadError::TooManySegments(count));
        }
        Ok(layout)
    }

    /// Returns the number of bytes after the headers.
    pub(crate) fn payload_len(&self, total_len: u32) -> u32 {
        total_len.saturating_sub(u32::from(self.hdr_len))
    }

    /// Whether the lengths of IP (RFC 791 §3.1, RFC 8200 §3) and UDP (RFC 768) end where the packet does. Those of an
    /// IPv6 jumbogram (RFC 2675), of payload length 0, do not.
    fn lengths_agree(&self, headers: &[u8], total_len: u32) -> bool {
        let (l3, l4) = (usize::from(self.l3), usize::from(self.l4));
        let states = |at: usize, from: usize| {
            be16(headers, at).is_some_and(|length| from as u64 + u64::from(length) == u64::from(total_len))
        };
        let ip = match self.ip {
            IpVersion::V4 => states(l3 + 2, l3),
            IpVersion::V6 => states(l3 + 4, l3 + IPV6_LEN),
        };
        ip && (self.transport == Transport::Tcp || states(l4 + 4, l4))
    }
}

/// Returns the length of a TCP header by its data offset (RFC 9293 §3.1).
fn tcp_len(headers: &[u8], l4: u16) -> Option<u16> {
    let [offset] = *chunk(headers, usize::from(l4) + 12)?;
    Some(u16::from(offset >> 4) * 4)
}
