//! What a front-end has said of one ring.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{GuestQueue, Refusal, Running};
use crate::dirty_log::{DirtyLog, RingLog};
use crate::features::device;
use crate::memory::GuestMemory;
use crate::message::RingAddresses;
use crate::virtqueue::{Addresses, Areas, Config, Features, Format, found_position};

/// In a ring's addresses: what is written to it is logged.
const LOG: u32 = 1;

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// 0 until it is known.
    pub(super) size: u16,
    pub(super) addresses: Option<RingAddresses>,
    /// Where it goes on; at its start if nobody said otherwise.
    base: Option<u32>,
    /// Whether that is what the front-end says, not what we know.
    announced: bool,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) enabled: bool,
    /// Whether it is started, and what the driver signals.
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

    /// The front-end says where it goes on.
    pub(super) fn announce_base(&mut self, base: u32) {
        (self.base, self.announced) = (Some(base), true);
    }

    /// It has run, and stands here now.
    pub(super) fn keep_base(&mut self, base: u32) {
        (self.base, self.announced) = (Some(base), false);
    }

    /// Whether packets pass when it is started.
    pub(super) fn is_enabled(&self, features: u64) -> bool {
        self.enabled || features & device::PROTOCOL_FEATURES == 0
    }

    /// Whether the addresses are those it has, whatever is said of logging.
    pub(super) fn lies_at(&self, other: &RingAddresses) -> bool {
        let place = |a: &RingAddresses| (a.descriptors, a.used, a.available);
        self.addresses.as_ref().map(place) == Some(place(other))
    }

    /// Where it goes on, as the front-end is told.
    pub(super) fn position(&self, features: u64) -> u32 {
        self.base.unwrap_or(match format(features) {
            Format::Split => 0,
            // Both wrap counters begin as 1.
            Format::Packed => 0x8000_8000,
        })
    }

    /// The ring as it is to run, if it is started.
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
        // DPDK leaves the upper half out. Between two runs nothing is under way: both halves are the same.
        let both = position & 0xffff | position << 16;
        let base = |areas: &Areas| match format {
            // virtio-user as a server says 0 of rings that were in use when the back-end before us died. What was used is
            // told by the ring: network devices leave nothing behind that was taken and is not used.
            Format::Split if self.announced => {
                // SAFETY: the used ring was found at an even address, its index two bytes behind its start; only virtqueues
                // access it, by atomics.
                let used = unsafe { AtomicU16::from_ptr(areas.device.as_ptr().add(2).cast()) };
                used.load(Ordering::Acquire).into()
            }
            Format::Split => position,
            // QEMU knows nothing better than where a ring once started when the back-end before us has died.
            Format::Packed if self.announced && indirect && !in_order => {
                // SAFETY: the descriptors were found in `memory`, with the length of this size; only virtqueues access them, by
                // atomics.
                unsafe { found_position(areas, self.size) }.unwrap_or(both)
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
            // SAFETY: the areas were found in `memory`, which the queue keeps.
            unsafe { GuestQueue::new(&config, memory.clone(), log) }
        });
        let queue = queue.map_err(|error| Refusal::Queue { ring, error })?;
        let (kick, call) = (kick.clone(), self.call.clone());
        Ok(Some(Running { ring, size: self.size, queue, kick, call, enabled: self.is_enabled(features) }))
    }
}

impl Ring {
    /// How it logs what it writes.
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
