//! The driver's side of a packed virtqueue.
//!
//! Invariants:
//! - `free` slots from `next` on belong to the driver, the others up to `used` to the device or to staged chains.
//! - The flags of the first descriptor since the last `publish` are held back: the device reads slots in order.
//! - `slots` is private: the device cannot corrupt it by overwriting the ring.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use super::{Buffer, DriverConfig, DriverError, DriverMemory, Used, descriptors};
use crate::virtqueue::area::{Area, RawDescriptor};
use crate::virtqueue::event::{Position, Suppression};
use crate::virtqueue::layout::{DESCRIPTOR, INDIRECT, NEXT, PACKED_AVAILABLE, PACKED_USED, WRITE};
use crate::virtqueue::{Areas, ConfigError, Features};

#[derive(Debug)]
pub(super) struct Packed {
    descriptors: Area,
    driver: Area,
    device: Area,
    size: u16,
    features: Features,
    next: Position,
    used: Position,
    free: u16,
    ids: VecDeque<u16>,
    /// By chain id: the number of slots of an outstanding chain, otherwise 0.
    slots: Vec<u16>,
    /// The outstanding chains in order; used only when the device reports in order.
    order: VecDeque<u16>,
    /// Chains that the device reported together with a later one.
    reported: VecDeque<Used>,
    held: Option<(u16, RawDescriptor)>,
    staged: u16,
    unsignalled: u32,
}

impl Packed {
    /// # Safety
    ///
    /// The areas have the lengths of this format and size, are aligned, and stay mapped while this is used.
    pub(super) unsafe fn new(areas: &Areas, config: &DriverConfig) -> Result<Packed, ConfigError> {
        let DriverConfig { size, features, base, .. } = *config;
        let start = Position::decode(base as u16, size).ok_or(ConfigError::Base { base, size })?;
        // SAFETY: the caller's guarantee; positions are within the ring.
        let (table, driver, device) =
            unsafe { (Area::new(areas.descriptors), Area::new(areas.driver), Area::new(areas.device)) };
        driver.u32(0).store(0, Ordering::Relaxed);
        device.u32(0).store(0, Ordering::Relaxed);
        for slot in 0..size {
            // Flags as if used: in this lap before the start, in the previous lap from there on.
            let used = (slot < start.slot) == start.wrap;
            let flags = if used { PACKED_AVAILABLE | PACKED_USED } else { 0 };
            table.write_descriptor(slot, RawDescriptor::new(0, 0, 0, flags), Ordering::Release);
        }
        Ok(Packed {
            descriptors: table,
            driver,
            device,
            size,
            features,
            next: start,
            used: start,
            free: size,
            ids: (0..size).collect(),
            slots: vec![0; size.into()],
            order: VecDeque::new(),
            reported: VecDeque::new(),
            held: None,
            staged: 0,
            unsignalled: 0,
        })
    }

    pub(super) fn add(
        &mut self,
        memory: &DriverMemory,
        readable: &[Buffer],
        writable: &[Buffer],
        table: Option<u64>,
    ) -> Option<u16> {
        let count = readable.len() + writable.len();
        let slots = if table.is_some() { 1 } else { count };
        if count == 0 || slots > usize::from(self.free) {
            return None;
        }
        let id = *self.ids.front()?;
        if let Some(address) = table {
            for (i, (buffer, write, _)) in descriptors(readable, writable).enumerate() {
                let flags = if write { WRITE } else { 0 };
                let descriptor = RawDescriptor::new(buffer.address, buffer.len, 0, flags);
                let at = address.checked_add((i * DESCRIPTOR) as u64)?;
                if !memory.write(at, &descriptor.to_bytes()) {
                    return None;
                }
            }
            let len = u32::try_from(count * DESCRIPTOR).ok()?;
            self.put(Buffer { address, len }, id, INDIRECT);
        } else {
            for (buffer, write, last) in descriptors(readable, writable) {
                let flags = (if write { WRITE } else { 0 }) | if last { 0 } else { NEXT };
                self.put(buffer, id, flags);
            }
        }
        self.ids.pop_front();
        // At most the ring's number of slots, which fits in 16 bits.
        let slots = slots as u16;
        *self.slots.get_mut(usize::from(id))? = slots;
        if self.features.in_order {
            self.order.push_back(id);
        }
        self.free -= slots;
        self.staged += slots;
        Some(id)
    }

    /// Writes the next descriptor, or holds it back.
    fn put(&mut self, buffer: Buffer, id: u16, flags: u16) {
        let lap = if self.next.wrap { PACKED_AVAILABLE } else { PACKED_USED };
        let descriptor = RawDescriptor::new(buffer.address, buffer.len, id, flags | lap);
        if self.held.is_none() {
            self.held = Some((self.next.slot, descriptor));
        } else {
            self.descriptors.write_descriptor(self.next.slot, descriptor, Ordering::Relaxed);
        }
        self.next = self.next.advanced(1, self.size);
    }

    pub(super) fn publish(&mut self) {
        if let Some((slot, descriptor)) = self.held.take() {
            self.descriptors.write_descriptor(slot, descriptor, Ordering::Release);
        }
        self.unsignalled = self.unsignalled.saturating_add(self.staged.into());
        self.staged = 0;
    }

    pub(super) fn wants_kick(&mut self) -> bool {
        let moved = std::mem::take(&mut self.unsignalled);
        if moved == 0 {
            return false;
        }
        fence(Ordering::SeqCst);
        let wanted = Suppression(self.device.u32(0).load(Ordering::Relaxed));
        let published = self.next.retreated(self.staged, self.size);
        wanted.wants(self.features.event_idx, published, moved, self.size)
    }

    pub(super) fn pop(&mut self) -> Result<Option<Used>, DriverError> {
        if let Some(used) = self.reported.pop_front() {
            return Ok(Some(used));
        }
        let Some(entry) = self.entry() else { return Ok(None) };
        let (id, len) = (entry.third(), if entry.fourth() & WRITE != 0 { entry.len() } else { 0 });
        if self.slots.get(usize::from(id)).is_none_or(|&slots| slots == 0) {
            return Err(DriverError::UnknownId { id: id.into() });
        }
        // With in-order use, an entry also stands for all chains before it.
        while self.features.in_order {
            match self.order.pop_front() {
                Some(earlier) if earlier != id => {
                    self.release(earlier);
                    self.reported.push_back(Used { id: earlier, len: 0 });
                }
                _ => break,
            }
        }
        self.release(id);
        self.reported.push_back(Used { id, len });
        Ok(self.reported.pop_front())
    }

    /// Returns the next used entry.
    fn entry(&self) -> Option<RawDescriptor> {
        let entry = self.descriptors.descriptor(self.used.slot, Ordering::Acquire);
        let lap = if self.used.wrap { PACKED_AVAILABLE | PACKED_USED } else { 0 };
        // With all slots free, flags that look used are from the lap before the start, or a false report that shows
        // later.
        let used = self.free != self.size && entry.fourth() & (PACKED_AVAILABLE | PACKED_USED) == lap;
        used.then_some(entry)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.reported.is_empty() || self.entry().is_some()
    }

    /// Frees a chain's slots and id.
    fn release(&mut self, id: u16) {
        let slots = self.slots.get_mut(usize::from(id)).map_or(0, std::mem::take);
        self.ids.push_back(id);
        self.free += slots;
        self.used = self.used.advanced(slots, self.size);
    }

    pub(super) fn set_calls(&mut self, on: bool) {
        let wanted = match (on, self.features.event_idx) {
            (false, _) => Suppression::DISABLE,
            (true, false) => Suppression::ENABLE,
            (true, true) => Suppression::at(self.used),
        };
        self.driver.u32(0).store(wanted.0, Ordering::Relaxed);
        if on {
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn free(&self) -> u16 {
        self.free
    }
}
