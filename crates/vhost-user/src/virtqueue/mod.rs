//! The device's side of one virtqueue (virtio 1.2 §2.7 split, §2.8 packed).
//!
//! A [`Virtqueue`] belongs to one thread at a time. What is done with it, in this order, again and again:
//!
//! 1. [`take`](Virtqueue::take) chains that the driver made available, as many as there are or as are wanted.
//! 2. Read or write what their segments name.
//! 3. [`give_back`](Virtqueue::give_back) each, then [`publish`](Virtqueue::publish) all of them at once.
//! 4. Signal the driver where [`wants_call`](Virtqueue::wants_call) says so.
//!
//! Before it sleeps the device asks to be signalled ([`set_kicks`](Virtqueue::set_kicks)) and looks once more.
//!
//! Invariants:
//! - Each method reads a field of the ring once. What it returns is a copy that the driver cannot change.
//! - No chain is walked further than [`MAX_CHAIN`] descriptors, so that no loop of the driver's making is endless.
//! - After an error the queue is still safe to use, but what it yields makes no sense: the driver should be disconnected.

pub(crate) mod area;
mod chain;
pub(crate) mod event;
pub(crate) mod layout;
mod packed;
mod resume;
mod split;
mod table;

use std::ptr::NonNull;

pub use chain::{Chain, MAX_CHAIN, Segment};
pub use event::need_event;
pub use layout::{Addresses, Areas, Format, MAX_SIZE};

use crate::memory::GuestMemory;
use packed::Packed;
pub(crate) use resume::found_position;
use split::Split;

/// What was negotiated and concerns the rings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `VIRTIO_RING_F_EVENT_IDX`: who wants a signal says from which entry on.
    pub event_idx: bool,
    /// `VIRTIO_RING_F_INDIRECT_DESC`: a descriptor may name a table of descriptors.
    pub indirect: bool,
    /// `VIRTIO_F_IN_ORDER`: chains are given back in the order in which they were taken. The caller sees to it; in
    /// return a packed ring reports runs of chains that nothing was written to by one entry.
    pub in_order: bool,
}

/// What a virtqueue is made of.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Split or packed.
    pub format: Format,
    /// The number of descriptors: up to [`MAX_SIZE`], in a split ring a power of two.
    pub size: u16,
    /// Where its three parts are in this process.
    pub areas: Areas,
    /// What was negotiated.
    pub features: Features,
    /// Where it goes on, as `SET_VRING_BASE` carries it; see [`Virtqueue::base`].
    pub base: u32,
}

/// Why a virtqueue cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The size is out of range.
    #[error("ring size {size} is not {rule}", rule = format.size_rule())]
    Size {
        /// The announced size.
        size: u16,
        /// The format that does not allow it.
        format: Format,
    },
    /// A part does not start where it can be accessed.
    #[error("the ring's {part} area does not start at a multiple of {alignment} bytes")]
    Misaligned {
        /// Which part.
        part: &'static str,
        /// What its address must be a multiple of.
        alignment: usize,
    },
    /// A part is not in the memory that the front-end shares.
    #[error("the ring's {part} area of {len} bytes at user address {address:#x} is outside the memory table")]
    OutsideMemory {
        /// Which part.
        part: &'static str,
        /// The user address.
        address: u64,
        /// Its size in bytes.
        len: u64,
    },
    /// The position to go on from is not in the ring.
    #[error("ring base {base:#x} is no position in a ring of {size}")]
    Base {
        /// The announced base.
        base: u32,
        /// The size of the ring.
        size: u16,
    },
}

/// A rule that the driver broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// More chains are offered than the ring can hold.
    #[error("ring index jumped: {offered} chains offered in a ring of {size}")]
    IndexJumped {
        /// How many.
        offered: u16,
        /// The size of the ring.
        size: u16,
    },
    /// A chain starts at a descriptor that does not exist.
    #[error("chain starts at descriptor {head} of a ring of {size}")]
    HeadOutOfRange {
        /// The descriptor that was named.
        head: u16,
        /// The size of the ring.
        size: u16,
    },
    /// A chain goes on at a descriptor that does not exist.
    #[error("chain goes on at descriptor {next} of a table of {size}")]
    NextOutOfRange {
        /// The descriptor that was named.
        next: u16,
        /// The number of descriptors of the table.
        size: u32,
    },
    /// A chain has more than [`MAX_CHAIN`] descriptors or segments.
    #[error("chain has more than {MAX_CHAIN} descriptors or no end")]
    ChainTooLong,
    /// The lengths of a chain do not add up to 32 bits.
    #[error("chain has 4 GiB or more")]
    ChainTooLarge,
    /// A chain takes slots of a packed ring that the device still has.
    #[error("chain takes {slots} slots more than the {in_flight} in flight, in a ring of {size}")]
    Overrun {
        /// How many it takes.
        slots: u16,
        /// How many the device has not given back.
        in_flight: u16,
        /// The size of the ring.
        size: u16,
    },
    /// A descriptor, or an indirect table, is outside the shared memory.
    #[error("descriptor names {len} bytes at guest address {address:#x}, outside the memory table")]
    OutsideMemory {
        /// The guest address.
        address: u64,
        /// The length in bytes.
        len: u64,
    },
    /// A chain is not sorted.
    #[error("chain has a readable descriptor behind a writable one")]
    ReadableAfterWritable,
    /// An indirect descriptor without the feature.
    #[error("descriptor is indirect, which was not negotiated")]
    IndirectNotNegotiated,
    /// An indirect descriptor within an indirect table.
    #[error("descriptor of an indirect table is itself indirect")]
    IndirectNested,
    /// An indirect descriptor where only direct ones may be.
    #[error("indirect descriptor is part of a chain that goes on")]
    IndirectInChain,
    /// An indirect table that is no table.
    #[error("indirect table has {len} bytes, not a multiple of 16 above 0")]
    IndirectLength {
        /// Its length in bytes.
        len: u32,
    },
}

/// The slots of the used ring that one [`publish`](Virtqueue::publish) wrote; see
/// [`written`](Virtqueue::written).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    first: u16,
    slots: u16,
}

impl Published {
    /// Whether there was nothing to publish.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// The slots as runs that do not wrap: first slot and number.
    fn runs(self, size: u16) -> [(u16, u16); 2] {
        // In bounds also for what another queue published.
        let (first, slots) = (self.first % size, self.slots.min(size));
        let straight = slots.min(size - first);
        [(first, straight), (0, slots - straight)]
    }
}

/// The device's side of one virtqueue.
#[derive(Debug)]
pub struct Virtqueue {
    ring: Ring,
}

#[derive(Debug)]
enum Ring {
    Split(Split),
    Packed(Packed),
}

/// Calls the same method of whichever ring it is.
macro_rules! either {
    ($self:ident, $ring:ident => $call:expr) => {
        match &mut $self.ring {
            Ring::Split($ring) => $call,
            Ring::Packed($ring) => $call,
        }
    };
}

impl Virtqueue {
    /// The queue that a front-end described. Its contents are looked at only for where a split ring's used entries go on.
    ///
    /// # Safety
    ///
    /// Until the queue is dropped or used no more,
    /// - the three areas are mapped readable and writable, each with the length that [`Areas::lengths`] says, and an
    ///   access to them never ends the process, whatever becomes of the file behind them (see [`clientmem`]);
    /// - nobody in this process accesses them but by atomics or raw copies.
    ///
    /// [`Areas::locate`] yields areas for which this holds for as long as the table exists.
    pub unsafe fn new(config: &Config) -> Result<Virtqueue, ConfigError> {
        config.areas.check(config.format, config.size)?;
        let ring = match config.format {
            // SAFETY: the caller's promise; sizes and alignment were checked.
            Format::Split => Ring::Split(unsafe { Split::new(config) }?),
            // SAFETY: as above.
            Format::Packed => Ring::Packed(unsafe { Packed::new(config) }?),
        };
        Ok(Virtqueue { ring })
    }

    /// Goes on where the three parts are now: for a new table of the same memory. Chains that were taken can be given back
    /// as ever, but their addresses are those of the old table. After an error nothing is different.
    ///
    /// # Safety
    ///
    /// As [`new`](Virtqueue::new), for these areas from now on.
    pub unsafe fn relocate(&mut self, areas: &Areas) -> Result<(), ConfigError> {
        match &mut self.ring {
            Ring::Split(ring) => {
                areas.check(Format::Split, ring.size())?;
                // SAFETY: the caller's promise; alignment was checked.
                unsafe { ring.relocate(areas) };
            }
            Ring::Packed(ring) => {
                areas.check(Format::Packed, ring.size())?;
                // SAFETY: as above.
                unsafe { ring.relocate(areas) };
            }
        }
        Ok(())
    }

    /// How many chains can be taken. A split ring says exactly, a packed ring counts those of the next 64 descriptors.
    ///
    /// What the driver wrote before it made them available is visible after this.
    #[inline]
    pub fn available(&mut self) -> Result<u16, QueueError> {
        match &mut self.ring {
            Ring::Split(ring) => ring.available(),
            Ring::Packed(ring) => Ok(ring.available()),
        }
    }

    /// Takes the next chain; `false` when there is none. `chain` makes sense only after `true`.
    ///
    /// Its addresses are valid as `memory` says.
    #[inline]
    pub fn take(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, QueueError> {
        either!(self, ring => ring.take(memory, chain))
    }

    /// Whether there is a chain to take.
    #[inline(always)]
    pub fn has_next(&mut self) -> Result<bool, QueueError> {
        match &mut self.ring {
            Ring::Split(ring) => ring.has_next(),
            Ring::Packed(ring) => Ok(ring.has_next()),
        }
    }

    /// The chain `i` behind the next one, if it is *plain*: one direct descriptor, readable or `writable` as asked, whose bytes
    /// lie in one region. With it comes the [`id`](Chain::id) that it has; it takes one slot. Nothing is taken: after
    /// `plain` has shown the chains 0 to n - 1, [`take_plain`](Virtqueue::take_plain) takes them.
    ///
    /// Of a split ring only chains are seen that [`available`](Virtqueue::available) or [`has_next`](Virtqueue::has_next) has
    /// found.
    #[inline(always)]
    pub fn plain(&mut self, memory: &GuestMemory, i: u16, writable: bool) -> Option<(Segment, u16)> {
        either!(self, ring => ring.plain(memory, i, writable))
    }

    /// Takes the next `n` chains, all of which [`plain`](Virtqueue::plain) has just shown.
    #[inline(always)]
    pub fn take_plain(&mut self, n: u16) {
        either!(self, ring => ring.take_plain(n));
    }

    /// Undoes the last [`take`](Virtqueue::take) that is not undone yet; `slots` are those of its chain. For chains that
    /// were taken ahead when the queue stops.
    #[inline]
    pub fn untake(&mut self, slots: u16) {
        match &mut self.ring {
            Ring::Split(ring) => ring.untake(),
            Ring::Packed(ring) => ring.untake(slots),
        }
    }

    /// Asks for the lines of the caches that the next `n` chains will be given back and published in: the driver was the last
    /// to look at them, and without this [`wants_call`](Virtqueue::wants_call) waits for all of them.
    #[inline(always)]
    pub fn expect_publish(&self, n: u16) {
        match &self.ring {
            Ring::Split(ring) => ring.expect_publish(n),
            // Chains are given back where they were taken from, so the lines are near.
            Ring::Packed(_) => {}
        }
    }

    /// Stages a chain, by its [`id`](Chain::id) and [`slots`](Chain::slots), to be given back to the driver with `len` bytes
    /// written to its start. The driver sees it after [`publish`](Virtqueue::publish).
    #[inline]
    pub fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        match &mut self.ring {
            Ring::Split(ring) => ring.give_back(id, len),
            Ring::Packed(ring) => ring.give_back(id, slots, len),
        }
    }

    /// Stages chains, by their ids and slots, that nothing was written to; as [`give_back`](Virtqueue::give_back) of each.
    #[inline]
    pub fn give_back_unwritten(&mut self, chains: &[(u16, u16)]) {
        match &mut self.ring {
            Ring::Split(ring) => chains.iter().for_each(|(id, _)| ring.give_back(*id, 0)),
            Ring::Packed(ring) => chains.iter().for_each(|(id, slots)| ring.give_back(*id, *slots, 0)),
        }
    }

    /// Makes all that is staged visible to the driver, and what was written to segments before with it.
    #[inline]
    pub fn publish(&mut self) -> Published {
        either!(self, ring => ring.publish())
    }

    /// What a [`publish`](Virtqueue::publish) wrote to guest memory, as addresses of this process: for the log of live
    /// migration. Ranges of no bytes are for nothing.
    pub fn written(&self, published: Published) -> [(NonNull<u8>, usize); 3] {
        match &self.ring {
            Ring::Split(ring) => ring.written(published),
            Ring::Packed(ring) => ring.written(published),
        }
    }

    /// The device area, as an address of this process and a length: for the log of live migration.
    pub fn device_area(&self) -> (NonNull<u8>, usize) {
        match &self.ring {
            Ring::Split(ring) => (ring.device(), ring.device_len()),
            Ring::Packed(ring) => (ring.device(), ring.device_len()),
        }
    }

    /// What [`set_kicks`](Virtqueue::set_kicks) writes, which is in the device area: for the log of live migration.
    pub fn kicks_area(&self) -> (NonNull<u8>, usize) {
        match &self.ring {
            Ring::Split(ring) => ring.kicks_area(),
            Ring::Packed(ring) => (ring.device(), ring.device_len()),
        }
    }

    /// Asks the driver to signal when it makes chains available, or not to.
    ///
    /// After turning it on, look at [`available`](Virtqueue::available) once more before sleeping: what came before gets no
    /// signal. A driver may signal although it was asked not to.
    #[inline]
    pub fn set_kicks(&mut self, on: bool) {
        either!(self, ring => ring.set_kicks(on));
    }

    /// Whether the driver wants a signal for what was published since this was last asked. Call it once after each
    /// [`publish`](Virtqueue::publish).
    #[inline]
    pub fn wants_call(&mut self) -> bool {
        either!(self, ring => ring.wants_call())
    }

    /// Where the queue goes on, as `GET_VRING_BASE` carries it.
    ///
    /// Split: the index of the next available entry. Packed: bits 0 to 14 the slot of the next available descriptor, bit 15
    /// its wrap counter, bits 16 to 31 the same for the next used descriptor.
    ///
    /// What was taken counts as taken. So before a queue stops, it should have been given back, or undone: whoever goes on
    /// there knows nothing of it.
    pub fn base(&self) -> u32 {
        match &self.ring {
            Ring::Split(ring) => ring.base(),
            Ring::Packed(ring) => ring.base(),
        }
    }
}
