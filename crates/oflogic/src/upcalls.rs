//! Packets on their way from a worker to the logic's thread, which takes them to the switch.

use fabric::PortIndex;
use match_action::Slots;
use pipeline::ir::{Constant, DigestId};

/// The slots of a worker. Some are kept for frames of link protocols.
pub(crate) type Upcalls = Slots<Upcall>;

/// Reason for an upcall.
#[derive(Debug, Clone, Default)]
pub(crate) enum Purpose {
    /// Send it to controllers.
    Controllers { reason: u8, limit: Option<u16> },
    /// Process a digest of it.
    Digest(DigestId, Vec<Constant>),
    /// Give it to the control plane, as received at a port.
    Intercepted(PortIndex),
    /// It is for the control side: a frame of Slow Protocols.
    Pdu,
    /// It is for the control side: a frame of the spanning tree.
    Bpdu,
    /// Log how it exceeds a limit.
    Failed,
    /// Run the program on it.
    #[default]
    Run,
}

/// A packet with its purpose.
#[derive(Debug, Default)]
pub(crate) struct Upcall {
    pub(crate) purpose: Purpose,
    /// OpenFlow number of the port that it came from.
    pub(crate) port: u32,
    pub(crate) packet: Vec<u8>,
    /// The program's data for controllers.
    pub(crate) data: Vec<u8>,
    /// The packet as it was received, if it pauses.
    pub(crate) received: Vec<u8>,
}

impl Upcall {
    /// Forgets the last packet; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.packet.clear();
        self.data.clear();
        self.received.clear();
    }
}
