//! Where a packed ring goes on that a back-end has left without a word.
//!
//! In each lap of the ring the driver sets the used flag of a slot to the opposite of the lap's counter, and the device to
//! the counter itself when it is done with the slot. So the flag tells slots that the device has passed in this lap from
//! all others, whatever the driver does meanwhile: it changes once on the way round, and there the device goes on.
//!
//! Of a chain of several slots the device writes the first only, and the others look as if they had not been passed. Drivers
//! that have agreed on indirect descriptors put each chain into one slot; Linux falls back to several when it has no memory for a
//! table. If the chain passed last was such a one, of two slots, what is found is one slot early. To believe a front-end that
//! says one slot more would be worse: where a ring started is one slot more by chance far more often. Nor does the device write where one used entry stands for several
//! chains, as it may in order.

use std::sync::atomic::Ordering;

use super::Areas;
use super::area::Area;
use super::event::Position;
use super::layout::{INDIRECT, NEXT, PACKED_USED};

/// Where the ring goes on, as a base; `None` where it shows chains of several slots, which hide that.
///
/// # Safety
///
/// The descriptors of `areas` are those of a packed ring of `size`, mapped, aligned, and accessed by atomics only.
pub(crate) unsafe fn found_position(areas: &Areas, size: u16) -> Option<u32> {
    // SAFETY: the caller's promise; slots are below the size.
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
        // A lap is complete, or nothing was ever used.
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

    /// What is found, and what is so, while a device takes and gives back one chain of `slots` slots after the other. The driver
    /// keeps the ring full, or has one chain under way at a time.
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
            // SAFETY: as above, with the descriptors that `locate` found.
            seen.push((unsafe { found_position(&areas, SIZE) }, device.base()));
            assert!(device.take(&guest, &mut chain).unwrap());
            device.give_back(chain.id(), chain.slots(), 64);
            device.publish();
            while driver.pop().unwrap().is_some() {}
        }
        seen
    }

    #[test]
    fn in_every_place_of_four_laps() {
        for full in [true, false] {
            for (found, base) in check(1, 4 * usize::from(SIZE), full) {
                assert_eq!(found, Some(base));
            }
        }
    }

    #[test]
    fn chains_of_several_slots_hide_it() {
        assert!(check(3, 20, true).iter().all(|(found, base)| found.is_none_or(|found| found == *base)));
    }
}
