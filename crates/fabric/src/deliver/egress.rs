//! The contract of a destination.

use crate::counters::QueueCounters;
use crate::deliver::tools::Tools;
use crate::fault::Fault;
use crate::lists::output::OutputList;

/// A transmit queue of a port. Called by any worker, also by several at once.
pub trait Egress: Send + Sync {
    /// Delivers as many outputs as possible now, in order, and counts them and the rest. Never waits for the receiver.
    /// Outputs that are not delivered are refused in the list ([`OutputList::retain`]), for observers of the bridge.
    /// After an error the queue is dead: the port goes down.
    fn deliver(
        &self,
        list: &mut OutputList<'_>,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<(), Fault>;

    /// Delivers outputs in order for a caller that keeps the others: all of them, as many from the front as there is room
    /// for, or, if that is fewer than `least`, none. Returns how many from the front are done with: delivered, or dropped
    /// and counted for another reason than a lack of room. The others are not counted.
    ///
    /// A destination that does not know its room, as by default, takes a list only if `least` is 0, and drops what it
    /// has no room for.
    fn deliver_front(
        &self,
        list: &mut OutputList<'_>,
        least: u32,
        counters: &QueueCounters,
        tools: &mut Tools,
    ) -> Result<u32, Fault> {
        if least > 0 {
            return Ok(0);
        }
        let all = list.len() as u32;
        self.deliver(list, counters, tools).map(|()| all)
    }

    /// Signals the receiver at the end of the batch if it asked for that. Called after a delivery that has set
    /// [`Tools::published`], and after a full fence that follows it: the receiver sets its flag and then reads its
    /// index, the delivery moves the index and this reads the flag, and without the fence both could miss the other.
    /// The fence costs as much as a short delivery, so all deliveries of a batch share one.
    fn notify(&self, _tools: &mut Tools) {}

    /// Packets that were delivered here and that the receiver has not taken yet, as far as can be told without waiting;
    /// 0 if it takes them within the delivery. A packet that takes several buffers may count as several. `counters` are
    /// those of its deliveries. Asked at most once a batch, and only for logics that look at it
    /// ([`crate::Batch::depth`]).
    fn depth(&self, _counters: &QueueCounters) -> u32 {
        0
    }

    /// A worker is stuck in the receiver's memory, perhaps with a lock of this queue: while on, no thread waits for
    /// that lock.
    fn quarantine(&self, _on: bool) {}

    /// The client is detached, and no bridge state refers to this queue any more: it delivers nothing from now on, not
    /// even for a thread that comes late, and records its position for the port.
    fn close(&self) {}
}
