//! The virtio-net header in front of a packet from a client: unverified offload metadata.

use packet::offload::{Gso, Offload};
use packet::virtio_net::{self, HEADER_LEN};

/// Contradictory metadata (segments need checksums), for packets whose own cannot be expressed: where such a packet
/// would leave the switch it is dropped and counted as `bad-offload`.
const REFUSED: Offload = Offload { gso: Gso::Udp, ..Offload::NONE };

/// Returns the metadata of the packet after this header; [`Offload::validate`] checks it.
#[inline]
pub(crate) fn unverified(header: &[u8; HEADER_LEN]) -> Offload {
    virtio_net::decode(header).unwrap_or(REFUSED)
}

/// [`unverified`] for fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn of_header(header: &[u8; HEADER_LEN]) -> Offload {
    unverified(header)
}
