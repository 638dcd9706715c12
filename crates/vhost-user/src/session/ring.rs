//! The state of one ring as the front-end has configured it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{GuestQueue, Refusal, Running};
use crate::dirty_log::{DirtyLog, RingLog};
use crate::features::device;
use crate::memory::GuestMemory;
use crate::message::RingAddresses;
use crate::virtqueue::{Addresses, Areas, Config, Features, Format, resume_position};

/// Flag in a ring's addresses: writes to the ring are logged.
const LOG: u32 = 1;

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// 0 until known.
    pub(super) size: u16,
    pub(super) addresses: Option<RingAddresses>,
    /// The position to resume at; `None` for the start.
    base: Option<u32>,
    /// Whether the position is the front-end's claim, not our own record.
    announced: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) enabled: bool,
    /// The eventfd that the driver signals, if the ring is started and the driver signals.
    started: Option<Option<Arc<OwnedFd>>>,
}

impl Ring {
    pub(super) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    pub(super) fn start(&mut self, kick: Option<Arc<OwnedFd>>) {
        self.started = Some(kick);
    }

    pub(super) fn stop(&mut self) {
        self.started = None;
    }

    /// Sets the position claimed by the front-end.
    pub(super) fn announce_base(&mut self, base: u32) {
        (self.base, self.announced) = (Some(base), true);
    }

    /// Records the position at which the ring stopped.
    pub(super) fn record_base(&mut self, base: u32) {
        (self.base, self.announced) = (Some(base), false);
    }

    /// Whether packets pass once the ring is started.
    pub(super) fn is_enabled(&self, features: u64) -> bool {
        self.enabled || features & device::PROTOCOL_FEATURES == 0
    }

    /// Whether the ring has these addresses, apart from logging.
    pub(super) fn has_addresses(&self, other: &RingAddresses) -> bool {
        let place = |a: &RingAddresses| (a.descriptors, a.used, a.available);
        self.addresses.as_ref().map(place) == Some(place(other))
    }

    /// Returns the position to report to the front-end.
    pub(super) fn position(&self, features: u64) -> u32 {
        self.base.unwrap_or(match format(features) {
            Format::Split => 0,
            // Both wrap counters start at 1.
            Format::Packed => 0x8000_8000,
        })
    }

    /// Returns the ring ready to run, if it is started.
    pub(super) fn running(
        &self,
        ring: usize,
        memory: &Arc<GuestMemory>,
        features: u64,
        log: Option<&Arc<DirtyLog>>,
    ) -> Result<Option<Running>, Refusal> {
        let (Some(kick), Some(at)) = (&self.started, &self.addresses) else { return Ok(None) };
        let format = format(features);
        let position = self.position(features);
        let has = |bit| features & bit != 0;
        let (event_idx, indirect) = (has(device::EVENT_IDX), has(device::INDIRECT_DESC));
        let in_order = has(device::IN_ORDER);
        // DPDK omits the upper half. A stopped ring has nothing in flight, so both halves are equal.
        let both = position & 0xffff | position << 16;
        let base = |areas: &Areas| match format {
            // After the death of the previous back-end, virtio-user as a server claims 0 for rings that were in use.
            // The used index is the true position: network devices leave no chain taken and unused.
            Format::Split if self.announced => {
                // SAFETY: the used ring lies at an even address, with its index two bytes after its start; only
                // virtqueues access it, by atomics.
                let used = unsafe { AtomicU16::from_ptr(areas.device.as_ptr().add(2).cast()) };
                used.load(Ordering::Acquire).into()
            }
            Format::Split => position,
            // After the death of the previous back-end, QEMU only knows where the ring once started.
            Format::Packed if self.announced && indirect && !in_order => {
                // SAFETY: the descriptors lie in `memory` and have the length of this size; only virtqueues access
                // them, by atomics.
                unsafe { resume_position(areas, self.size) }.unwrap_or(both)
            }
            Format::Packed => both,
        };
        let addresses = Addresses { descriptors: at.descriptors, driver: at.available, device: at.used };
        let areas = Areas::locate(memory, format, self.size, &addresses);
        let log = match (log, &areas) {
            (Some(log), Ok(areas)) => Some(self.log(ring, log, areas, format, at)?),
            _ => None,
        };
        let queue = areas.and_then(|areas| {
            let features = Features { event_idx, indirect, in_order };
            let config = Config { format, size: self.size, areas, features, base: base(&areas) };
            // SAFETY: the areas lie in `memory`, which the queue keeps.
            unsafe { GuestQueue::new(&config, memory.clone(), log) }
        });
        let queue = queue.map_err(|error| Refusal::Queue { ring, error })?;
        let (kick, call) = (kick.clone(), self.call.clone());
        Ok(Some(Running { ring, size: self.size, queue, kick, call, enabled: self.is_enabled(features) }))
    }
}

impl Ring {
    /// Returns the log of the ring's writes.
    fn log(
        &self,
        ring: usize,
        log: &Arc<DirtyLog>,
        areas: &Areas,
        format: Format,
        at: &RingAddresses,
    ) -> Result<RingLog, Refusal> {
        if at.flags & LOG == 0 {
            return Ok(RingLog::new(log.clone()));
        }
        let [_, _, len] = Areas::lengths(format, self.size);
        let (address, end) = (at.log, log.end());
        if address.checked_add(len as u64).is_none_or(|last| last > end) {
            return Err(Refusal::LogAddress { ring, address, end });
        }
        Ok(RingLog::with_ring(log.clone(), (areas.device, len), address))
    }
}

fn format(features: u64) -> Format {
    if features & device::RING_PACKED != 0 { Format::Packed } else { Format::Split }
}
