//! A virtqueue with its memory and the dirty log of its writes.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::dirty_log::{DirtyLog, RingLog};
use crate::memory::GuestMemory;
use crate::virtqueue::{Chain, Config, ConfigError, QueueError, Segment, Virtqueue};

/// The device's side of a virtqueue of a session. See [`Virtqueue`] for the methods.
///
/// Invariants:
/// - The queue keeps the ring's memory, and thereby the buffers of its chains, mapped.
/// - During a migration, all writes of its methods to the ring are in the log when they return. The caller logs writes
///   to segments ([`log_written`](GuestQueue::log_written)).
#[derive(Debug)]
pub struct GuestQueue {
    queue: Virtqueue,
    memory: Arc<GuestMemory>,
    log: Option<Box<RingLog>>,
}

impl GuestQueue {
    /// # Safety
    ///
    /// The areas of `config` lie in `memory`.
    pub(super) unsafe fn new(
        config: &Config,
        memory: Arc<GuestMemory>,
        log: Option<RingLog>,
    ) -> Result<Self, ConfigError> {
        // SAFETY: the areas are mapped as long as `memory` is held, and only virtqueues access them.
        let queue = unsafe { Virtqueue::new(config) }?;
        Ok(GuestQueue { queue, memory, log: log.map(Box::new) })
    }

    /// See [`Virtqueue::available`].
    #[inline]
    pub fn available(&mut self) -> Result<u16, QueueError> {
        self.queue.available()
    }

    /// See [`Virtqueue::take`]. Segments stay mapped as long as this queue exists.
    #[inline]
    pub fn take(&mut self, chain: &mut Chain) -> Result<bool, QueueError> {
        self.queue.take(&self.memory, chain)
    }

    /// Number of entries.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// See [`Virtqueue::device_area`].
    pub fn device_area(&self) -> (NonNull<u8>, usize) {
        self.queue.device_area()
    }

    /// See [`Virtqueue::has_next`].
    #[inline(always)]
    pub fn has_next(&mut self) -> Result<bool, QueueError> {
        self.queue.has_next()
    }

    /// See [`Virtqueue::plain`]. Segments stay mapped as long as this queue exists.
    #[inline(always)]
    pub fn plain(&mut self, i: u16, writable: bool) -> Option<(Segment, u16)> {
        self.queue.plain(&self.memory, i, writable)
    }

    /// See [`Virtqueue::take_plain`].
    #[inline(always)]
    pub fn take_plain(&mut self, n: u16) {
        self.queue.take_plain(n);
    }

    /// See [`Virtqueue::untake`].
    #[inline]
    pub fn untake(&mut self, slots: u16) {
        self.queue.untake(slots);
    }

    /// See [`Virtqueue::expect_publish`].
    #[inline(always)]
    pub fn expect_publish(&self, n: u16) {
        self.queue.expect_publish(n);
    }

    /// See [`Virtqueue::give_back`].
    #[inline]
    pub fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        self.queue.give_back(id, slots, len);
    }

    /// See [`Virtqueue::give_back_unwritten`].
    #[inline]
    pub fn give_back_unwritten(&mut self, chains: &[(u16, u16)]) {
        self.queue.give_back_unwritten(chains);
    }

    /// Logs a write to the first `len` bytes of segments of this queue, if a migration is in progress. Call it after
    /// the write, and before dropping the queue.
    #[inline]
    pub fn log_written(&self, segments: &[Segment], len: u32) {
        if let Some(log) = &self.log {
            log.mark_segments(&self.memory, segments, len);
        }
    }

    /// See [`Virtqueue::publish`].
    #[inline]
    pub fn publish(&mut self) {
        let published = self.queue.publish();
        if let Some(log) = &self.log {
            for (at, len) in self.queue.written(published) {
                log.mark_ring(&self.memory, at, len);
            }
        }
    }

    /// See [`Virtqueue::unprocessed`].
    pub fn unprocessed(&mut self) -> u16 {
        self.queue.unprocessed()
    }

    /// See [`Virtqueue::set_kicks`].
    #[inline]
    pub fn set_kicks(&mut self, on: bool) {
        self.queue.set_kicks(on);
        if let Some(log) = &self.log {
            let (at, len) = self.queue.kicks_area();
            log.mark_ring(&self.memory, at, len);
        }
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

    /// Returns the memory of the ring and of its chains' buffers.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Returns the log, if a migration is in progress.
    pub fn log(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref().map(|log| log.guest_log())
    }

    /// Whether the front-end has taken away the memory, or that of the log.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.memory.faulted() || self.log.as_ref().is_some_and(|log| log.faulted())
    }
}
