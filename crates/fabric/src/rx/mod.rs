//! Taking packets: the batch a port fills, and the contract of a receive queue.
//!
//! A [`RxBatch`] holds a flat record of each packet (`record.rs`) and, once `RxBatch::load_headers` ran, a private copy of
//! the first [`HEADER_COPY`] bytes of each. It is bounded in packets and in bytes. It belongs to one worker and is
//! reused for every batch; nothing in it is allocated while traffic flows.
//!
//! - `batch.rs`: the batch while a receive queue fills it;
//! - `headers.rs`: private headers: copied in, looked at, taken out of the batch;
//! - `versions.rs`: further versions of packets, and packets that the switch itself originates.

use std::os::fd::BorrowedFd;

use crate::fault::Fault;
use crate::tools::Tools;

mod batch;
mod headers;
mod versions;

pub use batch::RxBatch;

/// Bytes of each packet that are copied before anything reads them.
pub const HEADER_COPY: usize = 128;
/// The same for packets with offload metadata: every header that segmentation may have to repeat (two VLAN
/// tags, IPv4 and TCP with all options are 142 bytes).
pub(crate) const OFFLOAD_COPY: usize = 192;
/// Bytes free in front of a private header, for tags and encapsulation.
pub const HEADROOM: usize = 64;
/// Most bytes of a packet that a logic can ask to have in its private header.
pub const PULL_MAX: usize = 512;
/// Most pieces a packet may come in.
pub const MAX_SEGMENTS: usize = 64;
/// Longest packet.
pub const MAX_PACKET: u32 = 65_535;
/// Shortest packet: an Ethernet header.
pub const MIN_PACKET: u32 = 14;
/// Most packets of a batch, whatever the limits say.
pub const MAX_BATCH: usize = 256;
/// Packets that a logic may originate in one batch.
pub const MAX_ORIGINATED: usize = 256;
/// Header versions beyond the received ones that one batch may make.
pub const EXTRA_VERSIONS: usize = 2048;

pub(crate) const VERSIONS: usize = MAX_BATCH + EXTRA_VERSIONS;
/// Packets of a batch: those that were received, and behind them those that the logic originates.
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

/// A receive queue, owned by one worker at a time.
pub trait RxQueue: Send {
    /// Takes packets into `batch` while it [has room](RxBatch::has_room). Does not wait. After an error the
    /// queue is not used again; what is already in the batch still goes out.
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault>;

    /// The batch has been delivered: give its descriptors back to the sender. A sender that waits for them is told through
    /// `tools`. Fails when the memory that the batch lay in was taken away meanwhile.
    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault>;

    /// Asks the sender to signal [`RxQueue::signal`] for packets from now on, or not to bother.
    fn set_signalled(&mut self, on: bool);

    /// What becomes readable (edge-triggered) when packets come.
    fn signal(&self) -> BorrowedFd<'_>;

    /// Whether looking for packets is only a memory access. If it costs a system call, the queue is left
    /// to its signal as soon as it runs dry.
    fn cheap_to_poll(&self) -> bool;
}
