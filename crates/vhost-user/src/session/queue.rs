//! A virtqueue together with the memory that it lies in.

use std::sync::Arc;

use crate::memory::GuestMemory;
use crate::virtqueue::{Chain, Config, ConfigError, QueueError, Virtqueue};

/// The device's side of a virtqueue of a session. What its methods do is told at [`Virtqueue`].
///
/// Invariant: it keeps the memory that the ring lies in. What chains name stays mapped for as long.
#[derive(Debug)]
pub struct GuestQueue {
    queue: Virtqueue,
    memory: Arc<GuestMemory>,
}

impl GuestQueue {
    /// # Safety
    ///
    /// The areas of `config` were located in `memory`.
    pub(super) unsafe fn new(config: &Config, memory: Arc<GuestMemory>) -> Result<Self, ConfigError> {
        // SAFETY: the areas are mapped as long as `memory` is held, and only virtqueues access them.
        let queue = unsafe { Virtqueue::new(config) }?;
        Ok(GuestQueue { queue, memory })
    }

    /// See [`Virtqueue::available`].
    #[inline]
    pub fn available(&mut self) -> Result<u16, QueueError> {
        self.queue.available()
    }

    /// See [`Virtqueue::take`]. Segments stay mapped for as long as this queue is there.
    #[inline]
    pub fn take(&mut self, chain: &mut Chain) -> Result<bool, QueueError> {
        self.queue.take(&self.memory, chain)
    }

    /// See [`Virtqueue::untake`].
    #[inline]
    pub fn untake(&mut self, slots: u16) {
        self.queue.untake(slots);
    }

    /// See [`Virtqueue::give_back`].
    #[inline]
    pub fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        self.queue.give_back(id, slots, len);
    }

    /// See [`Virtqueue::publish`].
    #[inline]
    pub fn publish(&mut self) {
        self.queue.publish();
    }

    /// See [`Virtqueue::set_kicks`].
    #[inline]
    pub fn set_kicks(&mut self, on: bool) {
        self.queue.set_kicks(on);
    }

    /// See [`Virtqueue::wants_call`].
    #[inline]
    pub fn wants_call(&mut self) -> bool {
        self.queue.wants_call()
    }

    /// See [`Virtqueue::base`].
    pub fn base(&self) -> u32 {
        self.queue.base()
    }

    /// The memory that the ring, and what its chains name, lie in.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Whether the memory was taken away.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.memory.faulted()
    }
}
