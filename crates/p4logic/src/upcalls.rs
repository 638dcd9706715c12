//! Packets and digests on their way from a worker to the logic's thread.

use match_action::Slots;
use pipeline::ir::{Constant, DigestId};

/// The slots of a worker.
pub(crate) type Upcalls = Slots<Upcall>;

/// Reason for an upcall.
#[derive(Debug, Clone, Default)]
pub(crate) enum Purpose {
    /// The packet left through the CPU port: it is for controllers.
    Controllers,
    /// A digest, without a packet.
    Digest(DigestId, Vec<Constant>),
    /// Run the program on the packet, which came from the port of this number.
    Run(u32),
    /// None yet.
    #[default]
    Nothing,
}

/// A packet or digest with its purpose.
#[derive(Debug, Default)]
pub(crate) struct Upcall {
    pub(crate) purpose: Purpose,
    /// Number of the program that made it.
    pub(crate) program: u64,
    pub(crate) packet: Vec<u8>,
}
