//! The interface to forwarding logic: a bridge has one logic, and calls it once per batch.

use std::sync::Arc;
use std::time::Duration;

use crate::bridge::port::{PortIndex, PortSettings};
use crate::decide::batch::Batch;
use crate::rx::arena::Arena;
use crate::worker::per_thread::Threads;

/// Decides where packets go.
///
/// Called by several workers at once, so state that changes is atomic or per worker. A logic reads private header
/// copies ([`Batch::header`]), may edit them ([`Batch::edit`]) and names destinations ([`Batch::send`],
/// [`Batch::broadcast`], [`Batch::discard`]); it never touches a queue. A packet that it leaves undecided is dropped
/// and counted as `no-destination`.
///
/// It must not block, allocate per packet, or panic.
pub trait SwitchLogic: Send + Sync {
    /// Decides for every packet of `batch`.
    fn forward(&self, batch: &mut Batch<'_>);

    /// As [`SwitchLogic::forward`], and records findings and decisions with [`Batch::remark`]. In a
    /// [rehearsal](Batch::is_rehearsal) nothing that outlives the batch may change, so that packets can be traced
    /// without being sent. A logic that cannot do that leaves such a batch alone and returns false.
    fn explain(&self, batch: &mut Batch<'_>) -> bool {
        if batch.is_rehearsal() {
            return false;
        }
        self.forward(batch);
        true
    }

    /// Interval between calls of [`SwitchLogic::wake`]; `None`: never. Asked once, after [`SwitchLogic::prepare`].
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Called by each worker about every [`SwitchLogic::period`], with an empty batch from [`PortIndex::NONE`], in
    /// which the logic can [originate](Batch::originate) packets. The rules of [`SwitchLogic::forward`] apply.
    fn wake(&self, _batch: &mut Batch<'_>) {}

    /// Prepares the logic for a bridge, in a switch with these threads. Called by the control plane before everything
    /// else, and again before a worker is added, for more threads; then batches may be under way. On failure, the
    /// bridge stays unchanged, or the worker is not added, and the message is shown to the user.
    fn prepare(&self, _threads: Threads) -> Result<(), String> {
        Ok(())
    }

    /// Announces that worker `worker` was removed. Its thread makes no more calls. Another worker gets the number after
    /// the logic was [prepared](SwitchLogic::prepare) for it again, and finds nothing of this one's.
    fn worker_removed(&self, _worker: usize) {}

    /// The arena where worker `worker` keeps private headers of batches for this logic; `None`: anywhere. Asked once
    /// for each worker whenever the bridge changes. Unused on bridges with mirrors or observers, which access headers
    /// too.
    fn arena(&self, _worker: usize) -> Option<Arena> {
        None
    }

    /// Announces the bridge's ports. Called by the control plane before the first batch that can meet a new port, and
    /// once when the logic is set.
    fn ports_changed(&self, _ports: &[(PortIndex, Arc<PortSettings>)]) {}

    /// Announces that a port's link went down: its client left, or it was set administratively down. Stations learned
    /// there may no longer be there. Called by the control plane after the last batch that could have come from the
    /// port.
    fn port_down(&self, _port: PortIndex) {}

    /// Announces that a port left its bridge: forget all references to it. Called by the control plane after the last
    /// batch that could have met the port.
    fn port_removed(&self, _port: PortIndex) {}
}
