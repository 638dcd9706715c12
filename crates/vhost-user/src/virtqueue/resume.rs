//! Recovers the position of a packed ring after its back-end died.
//!
//! In each lap of the ring the driver sets the used flag of a slot to the opposite of the lap's counter, and the device
//! sets it to the counter itself once it has used the slot. So the flag distinguishes the slots that the device has
//! passed in this lap from all others, whatever the driver does meanwhile: it changes once on the way round, and there
//! the device resumes.
//!
//! Of a chain of several slots the device writes only the first; the others look unused. Drivers that negotiated
//! indirect descriptors put each chain into one slot; Linux falls back to several when it has no memory for a table. If
//! the last used chain was such a one, of two slots, the recovered position is one slot early. Trusting a front-end
//! that claims one slot more would be worse: far more often, the ring's start happens to be one slot later. The method
//! also fails where one used entry stands for several chains, as in-order use allows: the device then leaves slots
//! unwritten.

use std::sync::atomic::Ordering;

use super::Areas;
use super::area::Area;
use super::event::Position;
use super::layout::{INDIRECT, NEXT, PACKED_USED};

/// Returns the position as a base; `None` if the ring shows chains of several slots, which hide it.
///
/// # Safety
///
/// The descriptors of `areas` are those of a packed ring of `size`, mapped, aligned, and accessed by atomics only.
pub(crate) unsafe fn resume_position(areas: &Areas, size: u16) -> Option<u32> {
    // SAFETY: the caller's guarantee; slots are below the size.
    let descriptors = unsafe { Area::new(areas.descriptors) };
    let flags = |slot| descriptors.descriptor(slot, Ordering::Relaxed).fourth();
    let passed = flags(0) & PACKED_USED != 0;
    let mut change = None;
    for slot in 0..size {
        let flags = flags(slot);
        if flags & NEXT != 0 && flags & INDIRECT == 0 {
            return None;
        }
        match ((flags & PACKED_USED != 0) == passed, change) {
            (false, None) => change = Some(slot),
            (true, Some(_)) => return None,
            _ => {}
        }
    }
    let position = match change {
        Some(slot) => Position { slot, wrap: passed },
        // The device has completed a lap, or has used no slot yet.
        None => Position { slot: 0, wrap: !passed },
    };
    let bits = u32::from(position.encode());
    Some(bits | bits << 16)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
    use crate::memory::GuestMemory;
    use crate::virtqueue::{Chain, Config, Features, Format, Virtqueue};

    const SIZE: u16 = 8;
    const START: u64 = 0x10000;

    /// Returns the recovered and the true position at each step, while a device takes and gives back one chain of
    /// `slots` slots after another. The driver keeps the ring full, or has one chain in flight at a time.
    fn check(slots: u32, steps: usize, full: bool) -> Vec<(Option<u32>, u32)> {
        let memory = Arc::new(DriverMemory::create("resume", &[(START, 0x10000)]).unwrap());
        let features = Features { indirect: true, ..Features::default() };
        let config = DriverConfig::at(START, Format::Packed, SIZE, features);
        let mut driver = DriverQueue::new(memory.clone(), &config).unwrap();
        let guest = GuestMemory::from_regions(memory.specs().unwrap()).unwrap();
        let addresses = DriverMemory::user_addresses(&config.addresses);
        let areas = Areas::locate(&guest, Format::Packed, SIZE, &addresses).unwrap();
        let config = Config { format: Format::Packed, size: SIZE, areas, features, base: config.base };
        // SAFETY: the areas are in `guest`, which outlives the queue.
        let mut device = unsafe { Virtqueue::new(&config) }.unwrap();
        let mut chain = Chain::new();
        let mut seen = Vec::new();
        for _ in 0..steps {
            let buffers: Vec<_> =
                (0..slots).map(|i| Buffer { address: START + 0x8000 + u64::from(i) * 64, len: 64 }).collect();
            while driver.add(&[], &buffers, None).is_some() && full {}
            driver.publish();
            // SAFETY: as above, with the descriptors from `locate`.
            seen.push((unsafe { resume_position(&areas, SIZE) }, device.base()));
            assert!(device.take(&guest, &mut chain).unwrap());
            device.give_back(chain.id(), chain.slots(), 64);
            device.publish();
            while driver.pop().unwrap().is_some() {}
        }
        seen
    }

    #[test]
    fn every_position_of_four_laps_is_recovered() {
        for full in [true, false] {
            for (found, base) in check(1, 4 * usize::from(SIZE), full) {
                assert_eq!(found, Some(base));
            }
        }
    }

    #[test]
    fn chains_of_several_slots_hide_the_position() {
        assert!(check(3, 20, true).iter().all(|(found, base)| found.is_none_or(|found| found == *base)));
    }
}
