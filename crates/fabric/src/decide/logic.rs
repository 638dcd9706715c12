//! The seam to what decides: a bridge has one logic, and calls it once per batch.

use std::sync::Arc;
use std::time::Duration;

use crate::bridge::port::{PortIndex, PortSettings};
use crate::decide::batch::Batch;
use crate::rx::arena::Arena;

/// Decides where packets go.
///
/// Called by several workers at once, so state that changes is atomic or per worker. A logic reads private
/// header copies ([`Batch::header`]), may edit them ([`Batch::edit`]) and names destinations
/// ([`Batch::send`], [`Batch::broadcast`], [`Batch::discard`]); it never touches a queue. A packet it says nothing about
/// is dropped and counted as `no-destination`.
///
/// It must not block, allocate per packet, or panic.
pub trait SwitchLogic: Send + Sync {
    /// Decides for every packet of `batch`.
    fn forward(&self, batch: &mut Batch<'_>);

    /// The same as [`SwitchLogic::forward`], with [`Batch::remark`] saying what is found and decided on the way. If the
    /// batch is a [rehearsal](Batch::is_rehearsal), nothing may change that outlives it, so that a packet can be followed
    /// that is never sent. A logic that cannot do that leaves such a batch alone and returns false.
    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        if batch.is_rehearsal() {
            return false;
        }
        self.forward(batch);
        true
    }

    /// How often it wants [`SwitchLogic::wake`]; `None`: never. Asked once, after [`SwitchLogic::prepare`].
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Its time has come: each worker calls it about every [`SwitchLogic::period`], with a batch of no packets that come from
    /// [`PortIndex::NONE`], in which it can [originate](Batch::originate) some. The same rules hold as for [`SwitchLogic::forward`].
    fn wake(&self, _batch: &mut Batch<'_>) {}

    /// A bridge is about to have it, in a switch of so many workers. Called from the control plane before everything else; if it
    /// fails, with what people are told, the bridge stays as it is.
    fn prepare(&self, _workers: usize) -> Result<(), String> {
        Ok(())
    }

    /// Where worker `worker` is to keep the private headers of batches for it; `None`: anywhere. Asked once for each worker
    /// whenever the bridge changes. They are there only where nobody else has to do with them, neither mirrors nor observers.
    fn arena(&self, _worker: usize) -> Option<Arena> {
        None
    }

    /// The bridge's ports are about to be these. Called from the control plane before the first batch that can
    /// meet a new port, and once when the logic is set.
    fn ports_changed(&self, _ports: &[(PortIndex, Arc<PortSettings>)]) {}

    /// A port's way for traffic closed: its client left, or it was set administratively down. What was learned of who is there
    /// may not be so any more. Called from the control plane after the last batch that could have come from the port.
    fn port_down(&self, _port: PortIndex) {}

    /// A port left its bridge: forget what points to it. Called from the control plane after the last batch
    /// that could have met the port.
    fn port_removed(&self, _port: PortIndex) {}
}
