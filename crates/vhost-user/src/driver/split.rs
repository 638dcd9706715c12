//! The driver's side of a split virtqueue.
//!
//! Invariants:
//! - Descriptors are taken from and returned to a FIFO queue, so that in-order use follows the order of the table.
//! - `next` and `lengths` are private: the device cannot corrupt them by overwriting the table.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use super::{Buffer, DriverConfig, DriverError, DriverMemory, Used, descriptors};
use crate::virtqueue::area::{Area, RawDescriptor};
use crate::virtqueue::layout::{
    AVAILABLE_ENTRY, DESCRIPTOR, INDIRECT, NEXT, SPLIT_ENTRIES, SPLIT_INDEX, SPLIT_NO_SIGNAL, USED_ENTRY,
    WRITE,
};
use crate::virtqueue::{Areas, ConfigError, Features, need_event};

#[derive(Debug)]
pub(super) struct Split {
    descriptors: Area,
    driver: Area,
    device: Area,
    mask: u16,
    features: Features,
    free: VecDeque<u16>,
    /// The descriptor after each.
    next: Vec<u16>,
    /// For the first descriptor of an outstanding chain, the number of its descriptors; otherwise 0.
    lengths: Vec<u16>,
    /// Number of chains outstanding or staged.
    outstanding: u16,
    staged: u16,
    index: u16,
    published: u16,
    next_used: u16,
    unsignalled: u32,
}

impl Split {
    /// # Safety
    ///
    /// The areas have the lengths of this format and size, are aligned, and stay mapped while this is used.
    pub(super) unsafe fn new(areas: &Areas, config: &DriverConfig) -> Result<Split, ConfigError> {
        let DriverConfig { size, features, base, .. } = *config;
        let start = u16::try_from(base).map_err(|_| ConfigError::Base { base, size })?;
        // SAFETY: the caller's guarantee; slots are masked below.
        let (table, driver, device) =
            unsafe { (Area::new(areas.descriptors), Area::new(areas.driver), Area::new(areas.device)) };
        let [_, driver_len, device_len] = Areas::lengths(config.format, size);
        (0..driver_len).step_by(2).for_each(|at| driver.u16(at).store(0, Ordering::Relaxed));
        (0..device_len).step_by(2).for_each(|at| device.u16(at).store(0, Ordering::Relaxed));
        driver.u16(SPLIT_INDEX).store(start, Ordering::Relaxed);
        device.u16(SPLIT_INDEX).store(start, Ordering::Release);
        Ok(Split {
            descriptors: table,
            driver,
            device,
            mask: size - 1,
            features,
            free: (0..size).collect(),
            next: vec![0; size.into()],
            lengths: vec![0; size.into()],
            outstanding: 0,
            staged: 0,
            index: start,
            published: start,
            next_used: start,
            unsignalled: 0,
        })
    }

    fn size(&self) -> usize {
        usize::from(self.mask) + 1
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
        if count == 0 || slots > self.free.len() {
            return None;
        }
        let head = *self.free.front()?;
        if let Some(address) = table {
            for (i, (buffer, write, last)) in descriptors(readable, writable).enumerate() {
                let next = if last { 0 } else { u16::try_from(i + 1).ok()? };
                let descriptor = RawDescriptor::new(buffer.address, buffer.len, flags(write, last), next);
                let at = address.checked_add((i * DESCRIPTOR) as u64)?;
                if !memory.write(at, &descriptor.to_bytes()) {
                    return None;
                }
            }
            let len = u32::try_from(count * DESCRIPTOR).ok()?;
            let descriptor = RawDescriptor::new(address, len, INDIRECT, 0);
            self.descriptors.write_descriptor(head, descriptor, Ordering::Relaxed);
            self.free.pop_front();
        } else {
            for (buffer, write, last) in descriptors(readable, writable) {
                let slot = self.free.pop_front()?;
                let next = self.free.front().copied().unwrap_or(0);
                *self.next.get_mut(usize::from(slot))? = next;
                let next = if last { 0 } else { next };
                let descriptor = RawDescriptor::new(buffer.address, buffer.len, flags(write, last), next);
                self.descriptors.write_descriptor(slot, descriptor, Ordering::Relaxed);
            }
        }
        *self.lengths.get_mut(usize::from(head))? = slots as u16;
        let entry = SPLIT_ENTRIES + usize::from(self.index & self.mask) * AVAILABLE_ENTRY;
        self.driver.u16(entry).store(head, Ordering::Relaxed);
        self.index = self.index.wrapping_add(1);
        self.outstanding += 1;
        self.staged += 1;
        Some(head)
    }

    pub(super) fn publish(&mut self) {
        self.driver.u16(SPLIT_INDEX).store(self.index, Ordering::Release);
        let moved = self.index.wrapping_sub(self.published);
        self.unsignalled = self.unsignalled.saturating_add(moved.into());
        self.published = self.index;
        self.staged = 0;
    }

    pub(super) fn wants_kick(&mut self) -> bool {
        let count = std::mem::take(&mut self.unsignalled);
        if count == 0 {
            return false;
        }
        fence(Ordering::SeqCst);
        if !self.features.event_idx {
            return self.device.u16(0).load(Ordering::Relaxed) & SPLIT_NO_SIGNAL == 0;
        }
        let event = self.device.u16(SPLIT_ENTRIES + self.size() * USED_ENTRY).load(Ordering::Relaxed);
        match u16::try_from(count) {
            Ok(count) => need_event(event, self.published, self.published.wrapping_sub(count)),
            Err(_) => true,
        }
    }

    pub(super) fn pop(&mut self) -> Result<Option<Used>, DriverError> {
        let reported = self.device.u16(SPLIT_INDEX).load(Ordering::Acquire).wrapping_sub(self.next_used);
        if reported == 0 {
            return Ok(None);
        }
        let outstanding = self.outstanding - self.staged;
        if reported > outstanding {
            return Err(DriverError::IndexJumped { reported, outstanding });
        }
        let entry = SPLIT_ENTRIES + usize::from(self.next_used & self.mask) * USED_ENTRY;
        let id = self.device.u32(entry).load(Ordering::Relaxed);
        let len = self.device.u32(entry + 4).load(Ordering::Relaxed);
        let unknown = DriverError::UnknownId { id };
        let length = usize::try_from(id).ok().and_then(|id| self.lengths.get_mut(id)).ok_or(unknown)?;
        let slots = std::mem::take(length);
        if slots == 0 {
            return Err(unknown);
        }
        // Below the size of the table, which fits in 16 bits.
        let id = id as u16;
        let mut slot = id;
        for _ in 0..slots {
            self.free.push_back(slot);
            slot = self.next.get(usize::from(slot)).copied().unwrap_or(0);
        }
        self.outstanding -= 1;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(Some(Used { id, len }))
    }

    pub(super) fn is_ready(&self) -> bool {
        self.device.u16(SPLIT_INDEX).load(Ordering::Acquire) != self.next_used
    }

    pub(super) fn set_calls(&mut self, on: bool) {
        if self.features.event_idx {
            let event = if on { self.next_used } else { self.next_used.wrapping_sub(1) };
            self.driver.u16(SPLIT_ENTRIES + self.size() * AVAILABLE_ENTRY).store(event, Ordering::Relaxed);
        } else {
            self.driver.u16(0).store(if on { 0 } else { SPLIT_NO_SIGNAL }, Ordering::Relaxed);
        }
        if on {
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn free(&self) -> u16 {
        self.free.len() as u16
    }
}

fn flags(write: bool, last: bool) -> u16 {
    (if write { WRITE } else { 0 }) | if last { 0 } else { NEXT }
}
