//! Delivering: the contract of a destination.

use crate::counters::QueueCounters;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::OutputList;

/// A transmit queue of a port. Any worker may call it, several at once.
pub trait Egress: Send + Sync {
    /// Delivers what can be delivered now, in order, and counts both that and the rest. Never waits for the
    /// receiver. What it does not deliver it refuses in the list ([`OutputList::retain`]), for whoever observes the
    /// bridge. On an error the queue is dead: the port goes down.
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault>;

    /// A worker is stuck in the receiver's memory, perhaps with a lock of this queue: from now on nobody waits for that lock; or
    /// they may again.
    fn shun(&self, _on: bool) {}

    /// The client is unplugged, and no picture names this queue any more: it delivers nothing from now on, also for a thread that
    /// comes late, and says where it stands to who wants to know.
    fn close(&self) {}
}
