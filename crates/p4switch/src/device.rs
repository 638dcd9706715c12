//! What a server of P4Runtime needs of a device.

use std::sync::Arc;

use p4runtime_proto::P4Info;
use p4runtime_proto::v1::{
    DigestListAck, Entity, ForwardingPipelineConfig, PacketOut, StreamMessageResponse, Update,
    write_request::Atomicity,
};

use crate::{Access, Failure, WriteFailure};

/// Receives what a device has for controllers: packets, digests, idle timeouts, errors, with the P4Info of its program.
/// Returns whether all controllers that it is for get it, and one does. It must not wait.
pub type Listener = Box<dyn Fn(StreamMessageResponse, &P4Info) -> bool + Send + Sync>;

/// What is done with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallAction {
    /// It is checked.
    Verify,
    /// It is checked and kept for [`InstallAction::Commit`].
    VerifyAndSave,
    /// It runs from now on, without entries.
    VerifyAndCommit,
    /// The program that was kept runs from now on, without entries.
    Commit,
    /// It runs from now on; tables whose shape agrees keep their entries.
    ReconcileAndCommit,
}

/// A device. Calls come from threads that may block; a call returns once packets see its effect.
pub trait Device: Send + Sync {
    /// Writes entities, within the access of a role if there is one.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` without a program; else the failures of the updates.
    fn write(
        &self,
        updates: &[Update],
        atomicity: Atomicity,
        access: Option<&Access>,
    ) -> Result<(), WriteFailure>;

    /// Reads entities, in parts that fit into messages: `emit` returns false if nobody wants more.
    ///
    /// `emit` waits for a slow reader, though only once many parts wait for it, and for seconds at most.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` without a program; else what is wrong with the entities.
    fn read(&self, entities: &[Entity], emit: &mut dyn FnMut(Vec<Entity>) -> bool) -> Result<(), Failure>;

    /// Checks or installs a program.
    ///
    /// # Errors
    /// Why it cannot run; the program before goes on.
    fn install(
        &self,
        action: InstallAction,
        config: Option<&ForwardingPipelineConfig>,
    ) -> Result<(), Failure>;

    /// The program, if there is one.
    fn config(&self) -> Option<Arc<ForwardingPipelineConfig>>;

    /// Sends a packet.
    ///
    /// # Errors
    /// What is wrong with its metadata.
    fn packet_out(&self, packet: &PacketOut) -> Result<(), Failure>;

    /// A list of digests has been received.
    ///
    /// # Errors
    /// There is no such digest.
    fn acknowledge(&self, ack: &DigestListAck) -> Result<(), Failure>;

    /// Sets who receives what the device has for controllers.
    fn listen(&self, listener: Listener);
}
