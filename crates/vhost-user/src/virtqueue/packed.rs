//! The device's side of a packed virtqueue: one ring of descriptors. The driver marks a descriptor available by two
//! flags that distinguish this lap of the ring from the previous one; the device overwrites the first slot of a chain
//! with the used entry and marks it used.
//!
//! Invariants:
//! - Positions are within the ring.
//! - `in_flight` slots up to `next` belong to the device: taken, and not published as used. The first `staged` of them
//!   are given back. `staged <= in_flight <= size`.
//! - The first entry since the last `publish` is held back. The driver reads slots in order, so it sees none of the
//!   later ones before it.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::area::{Area, RawDescriptor};
use super::event::{Position, Suppression};
use super::layout::{DESCRIPTOR, INDIRECT, NEXT, PACKED_AVAILABLE, PACKED_USED, WRITE};
use super::table::Table;
use super::{Areas, Chain, Config, ConfigError, Features, MAX_CHAIN, Published, QueueError, Segment};
use crate::memory::GuestMemory;

/// Number of descriptors examined to count available chains.
const AHEAD: u16 = 64;

/// The entry that is published last.
#[derive(Debug, Clone, Copy)]
struct Held {
    position: Position,
    id: u16,
    len: u32,
}

#[derive(Debug)]
pub(super) struct Packed {
    descriptors: Area,
    driver: Area,
    device: Area,
    size: u16,
    features: Features,
    /// The next descriptor to take.
    next: Position,
    /// The position of the next used entry.
    used: Position,
    in_flight: u16,
    held: Option<Held>,
    staged: u16,
    /// Whether `held` stands for all staged chains.
    merged: bool,
    /// The most slots that the device was seen to have, by `unprocessed`.
    most: u16,
    /// Number of slots published since the last `wants_call`.
    unsignalled: u32,
    /// Whether `wants_call` has been called before.
    signalled: bool,
    /// The region of the memory table to try first.
    hint: usize,
}

impl Packed {
    /// # Safety
    ///
    /// As for [`super::Virtqueue::new`]; size and alignment were checked.
    pub(super) unsafe fn new(config: &Config) -> Result<Packed, ConfigError> {
        let Config { areas, size, base, features, .. } = *config;
        let (next, used, in_flight) = positions(base, size).ok_or(ConfigError::Base { base, size })?;
        // SAFETY: the caller's guarantee, for the lengths of Areas::lengths; every offset below is within them, because
        // positions are within the ring, and aligned.
        let (descriptors, driver, device) =
            unsafe { (Area::new(areas.descriptors), Area::new(areas.driver), Area::new(areas.device)) };
        Ok(Packed {
            descriptors,
            driver,
            device,
            size,
            features,
            next,
            used,
            in_flight,
            held: None,
            staged: 0,
            merged: false,
            most: 0,
            unsignalled: 0,
            signalled: false,
            hint: 0,
        })
    }

    /// # Safety
    ///
    /// As for [`super::Virtqueue::relocate`]; alignment was checked.
    pub(super) unsafe fn relocate(&mut self, areas: &Areas) {
        // SAFETY: the caller's guarantee, as in `new`.
        unsafe {
            self.descriptors = Area::new(areas.descriptors);
            self.driver = Area::new(areas.driver);
            self.device = Area::new(areas.device);
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    pub(super) fn available(&mut self) -> u16 {
        let (mut position, mut heads, mut is_head) = (self.next, 0, true);
        for _ in 0..AHEAD.min(self.size - self.in_flight) {
            let rest =
                self.descriptors.u64(usize::from(position.slot) * DESCRIPTOR + 8).load(Ordering::Acquire);
            let flags = RawDescriptor { address: 0, rest }.fourth();
            if !is_available(flags, position.wrap) {
                break;
            }
            heads += u16::from(is_head);
            is_head = flags & NEXT == 0;
            position = position.advanced(1, self.size);
        }
        heads
    }

    #[inline]
    pub(super) fn take(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, QueueError> {
        // Reads the word with the flags first, which acquires the driver's earlier writes.
        let descriptor = self.descriptors.descriptor(self.next.slot, Ordering::Acquire);
        let flags = descriptor.fourth();
        if !is_available(flags, self.next.wrap) {
            return Ok(false);
        }
        chain.begin(descriptor.third(), 1);
        if flags & (NEXT | INDIRECT) == 0 {
            let (address, len) = (descriptor.address, descriptor.len());
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
        } else {
            self.walk(memory, chain, descriptor)?;
        }
        let slots = chain.slots();
        if slots > self.size - self.in_flight {
            return Err(QueueError::Overrun { slots, in_flight: self.in_flight, size: self.size });
        }
        self.in_flight += slots;
        self.next = self.next.advanced(slots, self.size);
        Ok(true)
    }

    #[inline(always)]
    pub(super) fn has_next(&mut self) -> bool {
        let descriptor = self.descriptors.descriptor(self.next.slot, Ordering::Acquire);
        is_available(descriptor.fourth(), self.next.wrap)
    }

    /// See [`super::Virtqueue::plain`].
    #[inline(always)]
    pub(super) fn plain(&mut self, memory: &GuestMemory, i: u16, writable: bool) -> Option<(Segment, u16)> {
        if i >= self.size - self.in_flight {
            return None;
        }
        let position = self.next.advanced(i, self.size);
        let descriptor = self.descriptors.descriptor(position.slot, Ordering::Acquire);
        let (len, flags) = (descriptor.len(), descriptor.fourth());
        let form = if writable { WRITE } else { 0 };
        if !is_available(flags, position.wrap) || flags & (NEXT | INDIRECT | WRITE) != form || len == 0 {
            return None;
        }
        let at = memory.guest_near(&mut self.hint, descriptor.address, len.into())?;
        Some((Segment { at, len }, descriptor.third()))
    }

    /// See [`super::Virtqueue::take_plain`].
    #[inline(always)]
    pub(super) fn take_plain(&mut self, n: u16) {
        // Bounds `n` by the number of chains that `plain` can have returned.
        let n = n.min(self.size - self.in_flight);
        self.in_flight += n;
        self.next = self.next.advanced(n, self.size);
    }

    /// Collects a chain of more than one descriptor. The id is that of the last one.
    fn walk(
        &mut self,
        memory: &GuestMemory,
        chain: &mut Chain,
        first: RawDescriptor,
    ) -> Result<(), QueueError> {
        let (mut descriptor, mut position) = (first, self.next);
        // A chain can span the whole of a short ring.
        for slots in 1..=self.size.min(MAX_CHAIN as u16) {
            let (address, len, flags) = (descriptor.address, descriptor.len(), descriptor.fourth());
            if flags & INDIRECT != 0 {
                if !self.features.indirect {
                    return Err(QueueError::IndirectNotNegotiated);
                }
                if flags & NEXT != 0 || slots > 1 {
                    return Err(QueueError::IndirectInChain);
                }
                chain.finish(descriptor.third(), slots);
                return self.walk_table(memory, chain, address, len);
            }
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
            if flags & NEXT == 0 {
                chain.finish(descriptor.third(), slots);
                return Ok(());
            }
            position = position.advanced(1, self.size);
            // The driver wrote the later descriptors before the flags of the first.
            descriptor = self.descriptors.descriptor(position.slot, Ordering::Relaxed);
        }
        Err(QueueError::ChainTooLong)
    }

    /// Collects an indirect table: all of it, in order. Drivers leave ring flags in it, which are ignored.
    fn walk_table(
        &mut self,
        memory: &GuestMemory,
        chain: &mut Chain,
        address: u64,
        len: u32,
    ) -> Result<(), QueueError> {
        let table = Table::new(memory, &mut self.hint, address, len)?;
        if table.entries() > MAX_CHAIN as u32 {
            return Err(QueueError::ChainTooLong);
        }
        for index in 0..table.entries() {
            let descriptor = table.read(index)?;
            let flags = descriptor.fourth();
            if flags & INDIRECT != 0 {
                return Err(QueueError::IndirectNested);
            }
            let (address, len) = (descriptor.address, descriptor.len());
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
        }
        Ok(())
    }

    pub(super) fn untake(&mut self, slots: u16) {
        let slots = slots.min(self.in_flight - self.staged);
        self.in_flight -= slots;
        self.next = self.next.retreated(slots, self.size);
    }

    #[inline]
    pub(super) fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        let slots = slots.min(self.in_flight - self.staged);
        match &mut self.held {
            None => {
                self.held = Some(Held { position: self.used, id, len });
                self.merged = true;
            }
            // With in-order use, an entry stands for the last of all chains up to it (virtio 1.2 §2.8.22).
            Some(held) if self.features.in_order && self.merged && held.len == 0 && len == 0 => held.id = id,
            Some(_) => {
                self.merged = false;
                self.write_used(self.used, id, len, Ordering::Relaxed);
            }
        }
        self.staged += slots;
        self.used = self.used.advanced(slots, self.size);
    }

    /// Overwrites a descriptor with a used entry, in one store, so that the driver sees all of it or nothing.
    #[inline]
    fn write_used(&self, position: Position, id: u16, len: u32, order: Ordering) {
        let mut flags = if position.wrap { PACKED_AVAILABLE | PACKED_USED } else { 0 };
        if len != 0 {
            flags |= WRITE;
        }
        let entry = RawDescriptor::new(0, len, id, flags);
        self.descriptors.u64(usize::from(position.slot) * DESCRIPTOR + 8).store(entry.rest, order);
    }

    #[inline]
    pub(super) fn publish(&mut self) -> Published {
        let Some(Held { position, id, len }) = self.held.take() else {
            return Published { first: self.used.slot, slots: 0 };
        };
        self.write_used(position, id, len, Ordering::Release);
        let slots = std::mem::take(&mut self.staged);
        self.in_flight -= slots;
        self.unsignalled = self.unsignalled.saturating_add(slots.into());
        Published { first: position.slot, slots }
    }

    pub(super) fn written(&self, published: Published) -> [(NonNull<u8>, usize); 3] {
        let [one, two] = published.runs(self.size).map(|(first, slots)| {
            (self.descriptors.at(usize::from(first) * DESCRIPTOR), usize::from(slots) * DESCRIPTOR)
        });
        [one, two, (self.descriptors.at(0), 0)]
    }

    pub(super) fn set_kicks(&mut self, on: bool) {
        let wanted = match (on, self.features.event_idx) {
            (false, _) => Suppression::DISABLE,
            (true, false) => Suppression::ENABLE,
            (true, true) => Suppression::at(self.next),
        };
        self.device.u32(0).store(wanted.0, Ordering::Relaxed);
        if on {
            // The caller checks the ring after this fence. The driver publishes, then reads this: at least one of the
            // two sees the other's write.
            fence(Ordering::SeqCst);
        }
    }

    #[inline]
    pub(super) fn wants_call(&mut self) -> bool {
        let moved = std::mem::take(&mut self.unsignalled);
        if moved == 0 {
            return false;
        }
        // Orders the published entries before this read; `set_kicks` has the counterpart.
        fence(Ordering::SeqCst);
        let wanted = Suppression(self.driver.u32(0).load(Ordering::Relaxed));
        // The queue's previous owner may not have signalled its last entries.
        let first = !std::mem::replace(&mut self.signalled, true);
        let moved = if first { 2 * u32::from(self.size) } else { moved };
        wanted.wants(self.features.event_idx, self.published(), moved, self.size)
    }

    /// See [`super::Virtqueue::unprocessed`].
    pub(super) fn unprocessed(&mut self) -> u16 {
        // Slots are made available in the order of the ring: the first that is not ends them.
        let (mut from, mut to) = (0, self.size - self.in_flight);
        while from < to {
            let middle = from + (to - from) / 2;
            let slot = self.next.advanced(middle, self.size);
            let rest = self.descriptors.u64(usize::from(slot.slot) * DESCRIPTOR + 8).load(Ordering::Relaxed);
            match is_available(RawDescriptor { address: 0, rest }.fourth(), slot.wrap) {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let held = self.in_flight + from;
        self.most = self.most.max(held);
        let away = self.most - held;
        let event = Suppression(self.driver.u32(0).load(Ordering::Relaxed)).position(self.size);
        let unprocessed = event
            .filter(|_| self.features.event_idx)
            .and_then(|event| self.published().distance_from(event, self.size));
        unprocessed.map_or(away, |unprocessed| away.min(unprocessed))
    }

    /// Returns the end of the used entries that the driver can see.
    fn published(&self) -> Position {
        self.held.map_or(self.used, |held| held.position)
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.next.encode()) | u32::from(self.published().encode()) << 16
    }

    pub(super) fn device_len(&self) -> usize {
        4
    }

    pub(super) fn device(&self) -> NonNull<u8> {
        self.device.at(0)
    }
}

/// Whether a descriptor's flags say available in the lap with this counter.
#[inline]
fn is_available(flags: u16, wrap: bool) -> bool {
    flags & (PACKED_AVAILABLE | PACKED_USED) == if wrap { PACKED_AVAILABLE } else { PACKED_USED }
}

/// Returns the positions of available and used descriptors in a base, and the number of slots in between.
///
/// Some front-ends (DPDK's virtio-user) leave the upper half 0. With an available counter of 1 that would mean a whole
/// lap or more in flight; so here it means that nothing is in flight.
fn positions(base: u32, size: u16) -> Option<(Position, Position, u16)> {
    let next = Position::decode(base as u16, size)?;
    let used = match (base >> 16) as u16 {
        0 if next.wrap => next,
        bits => Position::decode(bits, size)?,
    };
    Some((next, used, next.distance_from(used, size)?))
}
