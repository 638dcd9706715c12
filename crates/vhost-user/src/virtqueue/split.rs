//! The device's side of a split virtqueue: a table of descriptors, a ring of available heads, a ring of used heads.
//! Indices are free-running 16-bit counters.
//!
//! Invariants:
//! - The entries `next_available..seen_available` were available at the last check; they are at most as many as the
//!   ring has.
//! - Used entries up to `next_used` are written; those up to `published` are visible to the driver.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use super::area::{Area, RawDescriptor};
use super::layout::{
    AVAILABLE_ENTRY, DESCRIPTOR, INDIRECT, NEXT, SPLIT_ENTRIES, SPLIT_INDEX, SPLIT_NO_SIGNAL, USED_ENTRY,
    WRITE,
};
use super::table::Table;
use super::{
    Areas, Chain, Config, ConfigError, Features, MAX_CHAIN, Published, QueueError, Segment, need_event,
};
use crate::memory::GuestMemory;

/// Used entries per cache line.
const USED_PER_LINE: usize = 64 / USED_ENTRY;
/// Distance, in chains, at which the first descriptor is prefetched.
const AHEAD: u16 = 16;

#[derive(Debug)]
pub(super) struct Split {
    descriptors: Area,
    driver: Area,
    device: Area,
    /// The size less one; the size is a power of two.
    mask: u16,
    features: Features,
    next_available: u16,
    seen_available: u16,
    next_used: u16,
    published: u16,
    /// The most chains that the device was seen to have, by `unprocessed`.
    most: u16,
    /// Number of entries published since the last `wants_call`.
    unsignalled: u32,
    /// Whether `wants_call` has been called before.
    signalled: bool,
    /// The region of the memory table to try first.
    hint: usize,
}

impl Split {
    /// # Safety
    ///
    /// As for [`super::Virtqueue::new`]; size and alignment were checked.
    pub(super) unsafe fn new(config: &Config) -> Result<Split, ConfigError> {
        let Config { areas, size, base, features, .. } = *config;
        let next_available = u16::try_from(base).map_err(|_| ConfigError::Base { base, size })?;
        // SAFETY: the caller's guarantee, for the lengths of Areas::lengths; every offset below is within them, because
        // slots are masked, and aligned.
        let (descriptors, driver, device) =
            unsafe { (Area::new(areas.descriptors), Area::new(areas.driver), Area::new(areas.device)) };
        // The driver counts by this index, and the front-end's messages do not carry it.
        let used = device.u16(SPLIT_INDEX).load(Ordering::Relaxed);
        Ok(Split {
            descriptors,
            driver,
            device,
            mask: size - 1,
            features,
            next_available,
            seen_available: next_available,
            next_used: used,
            published: used,
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
        self.mask + 1
    }

    #[inline]
    pub(super) fn available(&mut self) -> Result<u16, QueueError> {
        let index = self.driver.u16(SPLIT_INDEX).load(Ordering::Acquire);
        let offered = index.wrapping_sub(self.next_available);
        if offered > self.size() {
            return Err(QueueError::IndexJumped { offered, size: self.size() });
        }
        self.seen_available = index;
        Ok(offered)
    }

    #[inline]
    pub(super) fn take(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, QueueError> {
        if !self.has_next()? {
            return Ok(false);
        }
        let head = self.head(self.next_available);
        if head > self.mask {
            return Err(QueueError::HeadOutOfRange { head, size: self.size() });
        }
        self.fetch_ahead(self.next_available);
        let descriptor = self.descriptors.descriptor(head, Ordering::Relaxed);
        let flags = descriptor.third();
        chain.begin(head, 1);
        if flags & (NEXT | INDIRECT) == 0 {
            let (address, len) = (descriptor.address, descriptor.len());
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
        } else {
            self.walk(memory, chain, descriptor)?;
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(true)
    }

    #[inline(always)]
    pub(super) fn has_next(&mut self) -> Result<bool, QueueError> {
        Ok(self.next_available != self.seen_available || self.available()? > 0)
    }

    /// See [`super::Virtqueue::plain`].
    #[inline(always)]
    pub(super) fn plain(&mut self, memory: &GuestMemory, i: u16, writable: bool) -> Option<(Segment, u16)> {
        if i >= self.seen_available.wrapping_sub(self.next_available) {
            return None;
        }
        let index = self.next_available.wrapping_add(i);
        let head = self.head(index);
        if head > self.mask {
            return None;
        }
        self.fetch_ahead(index);
        let descriptor = self.descriptors.descriptor(head, Ordering::Relaxed);
        let (len, flags) = (descriptor.len(), if writable { WRITE } else { 0 });
        if descriptor.third() != flags || len == 0 {
            return None;
        }
        let at = memory.guest_near(&mut self.hint, descriptor.address, len.into())?;
        Some((Segment { at, len }, head))
    }

    /// See [`super::Virtqueue::take_plain`].
    #[inline(always)]
    pub(super) fn take_plain(&mut self, n: u16) {
        self.next_available = self.next_available.wrapping_add(n);
    }

    /// Returns the available entry of an index, which is masked.
    #[inline]
    fn head(&self, index: u16) -> u16 {
        let offset = SPLIT_ENTRIES + usize::from(index & self.mask) * AVAILABLE_ENTRY;
        self.driver.u16(offset).load(Ordering::Relaxed)
    }

    /// Prefetches the descriptor of a chain some entries after `index`. The entry is only a guess; `take` reads it
    /// again.
    #[inline(always)]
    fn fetch_ahead(&self, index: u16) {
        if self.seen_available.wrapping_sub(index) > AHEAD {
            let head = self.head(index.wrapping_add(AHEAD));
            self.descriptors.fetch_to_read(usize::from(head & self.mask) * DESCRIPTOR);
        }
    }

    /// Collects a chain of more than one descriptor.
    fn walk(
        &mut self,
        memory: &GuestMemory,
        chain: &mut Chain,
        first: RawDescriptor,
    ) -> Result<(), QueueError> {
        let mut descriptor = first;
        for walked in 0..MAX_CHAIN {
            let (address, len, flags) = (descriptor.address, descriptor.len(), descriptor.third());
            if flags & INDIRECT != 0 {
                if !self.features.indirect {
                    return Err(QueueError::IndirectNotNegotiated);
                }
                // It may follow direct descriptors, but only as the last one.
                if flags & NEXT != 0 {
                    return Err(QueueError::IndirectInChain);
                }
                let table = Table::new(memory, &mut self.hint, address, len)?;
                return self.walk_table(memory, chain, &table, MAX_CHAIN - walked);
            }
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            let next = descriptor.fourth();
            if next > self.mask {
                return Err(QueueError::NextOutOfRange { next, size: self.size().into() });
            }
            descriptor = self.descriptors.descriptor(next, Ordering::Relaxed);
        }
        Err(QueueError::ChainTooLong)
    }

    /// Collects the chain of an indirect table, of at most `limit` descriptors.
    fn walk_table(
        &mut self,
        memory: &GuestMemory,
        chain: &mut Chain,
        table: &Table<'_>,
        limit: usize,
    ) -> Result<(), QueueError> {
        let mut next = 0;
        for _ in 0..limit {
            let descriptor = table.read(next)?;
            let flags = descriptor.third();
            if flags & INDIRECT != 0 {
                return Err(QueueError::IndirectNested);
            }
            let (address, len) = (descriptor.address, descriptor.len());
            chain.push(memory, &mut self.hint, address, len, flags & WRITE != 0)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            next = descriptor.fourth().into();
            if next >= table.entries() {
                return Err(QueueError::NextOutOfRange { next: descriptor.fourth(), size: table.entries() });
            }
        }
        Err(QueueError::ChainTooLong)
    }

    pub(super) fn untake(&mut self) {
        // The driver has at most as many chains in flight as the ring has entries: nothing to undo beyond that.
        if self.seen_available.wrapping_sub(self.next_available) <= self.mask {
            self.next_available = self.next_available.wrapping_sub(1);
        }
    }

    /// See [`super::Virtqueue::expect_publish`].
    #[inline(always)]
    pub(super) fn expect_publish(&self, n: u16) {
        self.device.fetch_to_write(SPLIT_INDEX);
        for i in (0..n).step_by(USED_PER_LINE) {
            let slot = self.next_used.wrapping_add(i) & self.mask;
            self.device.fetch_to_write(SPLIT_ENTRIES + usize::from(slot) * USED_ENTRY);
        }
        // The driver's flags: whether it wants a signal.
        self.driver.fetch_to_read(0);
    }

    #[inline]
    pub(super) fn give_back(&mut self, id: u16, len: u32) {
        let offset = SPLIT_ENTRIES + usize::from(self.next_used & self.mask) * USED_ENTRY;
        self.device.u32(offset).store(id.into(), Ordering::Relaxed);
        self.device.u32(offset + 4).store(len, Ordering::Relaxed);
        self.next_used = self.next_used.wrapping_add(1);
    }

    #[inline]
    pub(super) fn publish(&mut self) -> Published {
        let slots = self.next_used.wrapping_sub(self.published);
        let first = self.published & self.mask;
        if slots != 0 {
            self.device.u16(SPLIT_INDEX).store(self.next_used, Ordering::Release);
            self.published = self.next_used;
            self.unsignalled = self.unsignalled.saturating_add(slots.into());
        }
        Published { first, slots }
    }

    pub(super) fn written(&self, published: Published) -> [(NonNull<u8>, usize); 3] {
        let index = (self.device.at(SPLIT_INDEX), if published.is_empty() { 0 } else { 2 });
        let [one, two] = published.runs(self.size()).map(|(first, slots)| {
            let offset = SPLIT_ENTRIES + usize::from(first) * USED_ENTRY;
            (self.device.at(offset), usize::from(slots) * USED_ENTRY)
        });
        [one, two, index]
    }

    pub(super) fn set_kicks(&mut self, on: bool) {
        if self.features.event_idx {
            // The entry before the next one is the last that the driver will reach.
            let event = if on { self.next_available } else { self.next_available.wrapping_sub(1) };
            let offset = SPLIT_ENTRIES + usize::from(self.size()) * USED_ENTRY;
            self.device.u16(offset).store(event, Ordering::Relaxed);
        } else {
            let flags = if on { 0 } else { SPLIT_NO_SIGNAL };
            self.device.u16(0).store(flags, Ordering::Relaxed);
        }
        if on {
            // The caller checks the ring after this fence. The driver publishes, then reads this: at least one of the
            // two sees the other's write.
            fence(Ordering::SeqCst);
        }
    }

    #[inline]
    pub(super) fn wants_call(&mut self) -> bool {
        let count = std::mem::take(&mut self.unsignalled);
        if count == 0 {
            return false;
        }
        // Orders the published entries before this read; `set_kicks` has the counterpart.
        fence(Ordering::SeqCst);
        if !self.features.event_idx {
            return self.driver.u16(0).load(Ordering::Relaxed) & SPLIT_NO_SIGNAL == 0;
        }
        let offset = SPLIT_ENTRIES + usize::from(self.size()) * AVAILABLE_ENTRY;
        let event = self.driver.u16(offset).load(Ordering::Relaxed);
        // The queue's previous owner may not have signalled its last entries.
        let first = !std::mem::replace(&mut self.signalled, true);
        match u16::try_from(count) {
            Ok(count) => first || need_event(event, self.published, self.published.wrapping_sub(count)),
            Err(_) => true,
        }
    }

    /// See [`super::Virtqueue::unprocessed`].
    pub(super) fn unprocessed(&mut self) -> u16 {
        let index = self.driver.u16(SPLIT_INDEX).load(Ordering::Relaxed);
        let held = index.wrapping_sub(self.published).min(self.size());
        self.most = self.most.max(held);
        let away = self.most - held;
        if !self.features.event_idx {
            return away;
        }
        let offset = SPLIT_ENTRIES + usize::from(self.size()) * AVAILABLE_ENTRY;
        let event = self.driver.u16(offset).load(Ordering::Relaxed);
        match self.published.wrapping_sub(event) {
            // It asked for this signal long ago, or asks for one later on.
            unknown if unknown > self.size() => away,
            unprocessed => away.min(unprocessed),
        }
    }

    pub(super) fn base(&self) -> u32 {
        self.next_available.into()
    }

    pub(super) fn device_len(&self) -> usize {
        SPLIT_ENTRIES + usize::from(self.size()) * USED_ENTRY + 2
    }

    /// Returns the event index, or the flags.
    pub(super) fn kicks_area(&self) -> (NonNull<u8>, usize) {
        (self.device.at(if self.features.event_idx { self.device_len() - 2 } else { 0 }), 2)
    }

    pub(super) fn device(&self) -> NonNull<u8> {
        self.device.at(0)
    }
}
