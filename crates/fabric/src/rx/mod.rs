//! Receiving: a port's packets become a batch, and the batch gets private headers.
//!
//! An [`RxBatch`] holds a flat record of each packet and, after `RxBatch::load_headers`, a private copy of the first
//! [`HEADER_COPY`] bytes of each. It is bounded in packets and in bytes. It belongs to one worker and is reused for
//! every batch; nothing in it is allocated while traffic flows.
//!
//! - `queue.rs`: the contract of a receive queue, [`RxQueue`];
//! - `rx_batch.rs`: the batch while a receive queue fills it; the logic's view of it is `decide/batch.rs`;
//! - `record.rs`: the record of a packet;
//! - `headers.rs`: private headers: copying them in, reading them, removing packets;
//! - `arena.rs`: the memory of private headers, the fabric's own or a logic's;
//! - `versions.rs`: further versions of packets, and packets that the switch itself originates.

pub mod arena;
mod headers;
mod queue;
pub(crate) mod record;
mod rx_batch;
mod versions;

pub use queue::RxQueue;
pub use rx_batch::{MAX_NOTE, RxBatch};

/// Bytes of each packet that are copied before they are read.
pub const HEADER_COPY: usize = 128;
/// The same for packets with offload metadata: all headers that segmentation may have to repeat (two VLAN tags, IPv4
/// and TCP with all options are 142 bytes).
pub(crate) const OFFLOAD_COPY: usize = 192;
/// Bytes free in front of a private header, for tags and encapsulation.
pub const HEADROOM: usize = 64;
/// Most bytes of a packet that a logic can request in its private header.
pub const PULL_MAX: usize = 512;
/// Most pieces that a packet may come in.
pub const MAX_SEGMENTS: usize = 64;
/// Longest packet.
pub const MAX_PACKET: u32 = 65_535;
/// Shortest packet: an Ethernet header.
pub const MIN_PACKET: u32 = 14;
/// Most packets of a batch, whatever the limits.
pub const MAX_BATCH: usize = 1024;
/// Packets that a logic may originate in one batch.
pub const MAX_ORIGINATED: usize = 256;
/// Header versions beyond the received ones that one batch may make.
pub const EXTRA_VERSIONS: usize = 2048;

pub(crate) const VERSIONS: usize = MAX_BATCH + EXTRA_VERSIONS;
/// Packets of a batch: the received ones, then those that the logic originates.
pub(crate) const SOURCES: usize = MAX_BATCH + MAX_ORIGINATED;
pub(crate) const SEGMENTS: usize = MAX_BATCH * 4 + MAX_SEGMENTS;

/// Bounds of a batch; the first one reached ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Packets, at most [`MAX_BATCH`].
    pub packets: usize,
    /// Bytes; the packet that crosses this bound still belongs to the batch.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { packets: 64, bytes: 128 << 10 }
    }
}
