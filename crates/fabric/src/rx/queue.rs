//! The contract of a receive queue.

use std::os::fd::BorrowedFd;

use super::RxBatch;
use crate::deliver::tools::Tools;
use crate::fault::Fault;

/// A receive queue, owned by one worker at a time.
pub trait RxQueue: Send {
    /// Takes packets into `batch` while it [has room](RxBatch::has_room). Does not wait. Called again soon unless it
    /// neither takes nor drops a packet. After an error the queue is not used again; packets already in the batch are
    /// still delivered.
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault>;

    /// Returns a delivered batch's descriptors to the sender. A sender that waits for them is notified through `tools`.
    /// Fails if the memory of the batch was taken away meanwhile.
    fn complete(&mut self, tools: &mut Tools) -> Result<(), Fault>;

    /// Asks the sender to signal [`RxQueue::signal`] for packets from now on, or not to.
    fn set_signalled(&mut self, on: bool);

    /// Descriptor that becomes readable (edge-triggered) when packets arrive.
    fn signal(&self) -> BorrowedFd<'_>;

    /// Whether polling is only a memory access. If it costs a system call, the queue is left to its signal as soon as
    /// it runs dry.
    fn cheap_to_poll(&self) -> bool;

    /// Whether the sender uses the queue: one that it has disabled only loses what comes in.
    fn is_enabled(&self) -> bool {
        true
    }

    /// Entries for packets that wait: a worker that rests lets about half as many packets gather, at most. By default
    /// those of a small ring.
    fn entries(&self) -> u32 {
        256
    }
}
