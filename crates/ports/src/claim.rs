//! What a sender says in front of a packet, of which nobody knows yet whether it is true.

use packet::offload::{Gso, Offload};
use packet::virtio_net::{self, HEADER_LEN};

/// Metadata that contradicts itself (segments need checksums), for packets whose own cannot be expressed: where such a
/// packet would leave the switch it is dropped and counted as `bad-offload`.
const REFUSED: Offload = Offload { gso: Gso::Udp, ..Offload::NONE };

/// The metadata of a packet that came behind this header.
#[inline]
pub(crate) fn claim(header: &[u8; HEADER_LEN]) -> Offload {
    virtio_net::decode(header).unwrap_or(REFUSED)
}

/// [`claim`] for fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn of_header(header: &[u8; HEADER_LEN]) -> Offload {
    claim(header)
}
