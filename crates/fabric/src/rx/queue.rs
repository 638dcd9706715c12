//! The contract of a receive queue.

use std::os::fd::BorrowedFd;

use super::RxBatch;
use crate::deliver::tools::Tools;
use crate::fault::Fault;

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
