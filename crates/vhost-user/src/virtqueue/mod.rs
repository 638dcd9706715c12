//! The device's side of one virtqueue (virtio 1.2 §2.7 split, §2.8 packed).
//!
//! A [`Virtqueue`] belongs to one thread at a time, which repeats these steps:
//!
//! 1. [`take`](Virtqueue::take) chains that the driver made available, up to as many as are wanted.
//! 2. Read or write their segments.
//! 3. [`give_back`](Virtqueue::give_back) each, then [`publish`](Virtqueue::publish) all of them at once.
//! 4. Signal the driver if [`wants_call`](Virtqueue::wants_call) returns true.
//!
//! Before it sleeps, the device requests signals ([`set_kicks`](Virtqueue::set_kicks)) and checks the ring once more.
//!
//! Invariants:
//! - Each method reads a field of the ring once and returns a copy that the driver cannot change.
//! - No chain is walked further than [`MAX_CHAIN`] descriptors, so the driver cannot make a loop endless.
//! - After an error the queue is still safe to use, but its results are meaningless: the driver should be disconnected.

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
pub(crate) use resume::resume_position;
use split::Split;

/// Negotiated features that concern the rings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `VIRTIO_RING_F_EVENT_IDX`: each side requests signals by entry index.
    pub event_idx: bool,
    /// `VIRTIO_RING_F_INDIRECT_DESC`: a descriptor may refer to a table of descriptors.
    pub indirect: bool,
    /// `VIRTIO_F_IN_ORDER`: chains are given back in the order in which they were taken, which the caller guarantees.
    /// In return a packed ring reports runs of unwritten chains with one entry.
    pub in_order: bool,
}

/// Configuration of a virtqueue.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Split or packed.
    pub format: Format,
    /// The number of descriptors: up to [`MAX_SIZE`]; a power of two in a split ring.
    pub size: u16,
    /// The addresses of its three parts in this process.
    pub areas: Areas,
    /// The negotiated features.
    pub features: Features,
    /// The position to resume at, as `SET_VRING_BASE` carries it; see [`Virtqueue::base`].
    pub base: u32,
}

/// Reasons for refusing a virtqueue.
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
    /// A part is misaligned.
    #[error("the ring's {part} area does not start at a multiple of {alignment} bytes")]
    Misaligned {
        /// The part.
        part: &'static str,
        /// The required alignment.
        alignment: usize,
    },
    /// A part lies outside the memory that the front-end shares.
    #[error("the ring's {part} area of {len} bytes at user address {address:#x} is outside the memory table")]
    OutsideMemory {
        /// The part.
        part: &'static str,
        /// The user address.
        address: u64,
        /// Its size in bytes.
        len: u64,
    },
    /// The position to resume at is not in the ring.
    #[error("ring base {base:#x} is not a position in a ring of {size}")]
    Base {
        /// The announced base.
        base: u32,
        /// The size of the ring.
        size: u16,
    },
}

/// Protocol violations of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The driver offers more chains than the ring can hold.
    #[error("ring index jumped: {offered} chains offered in a ring of {size}")]
    IndexJumped {
        /// The number offered.
        offered: u16,
        /// The size of the ring.
        size: u16,
    },
    /// A chain starts at a descriptor that does not exist.
    #[error("chain starts at descriptor {head} of a ring of {size}")]
    HeadOutOfRange {
        /// The descriptor's index.
        head: u16,
        /// The size of the ring.
        size: u16,
    },
    /// A chain continues at a descriptor that does not exist.
    #[error("chain continues at descriptor {next} of a table of {size}")]
    NextOutOfRange {
        /// The descriptor's index.
        next: u16,
        /// The number of descriptors of the table.
        size: u32,
    },
    /// A chain has more than [`MAX_CHAIN`] descriptors or segments.
    #[error("chain has more than {MAX_CHAIN} descriptors or does not end")]
    ChainTooLong,
    /// The lengths of a chain exceed 32 bits.
    #[error("chain has 4 GiB or more")]
    ChainTooLarge,
    /// A chain takes slots of a packed ring that are still in flight.
    #[error("chain takes {slots} slots more than the {in_flight} in flight, in a ring of {size}")]
    Overrun {
        /// The number of slots that it takes.
        slots: u16,
        /// The number of slots not given back.
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
    /// A chain's readable descriptors do not precede its writable ones.
    #[error("chain has a readable descriptor after a writable one")]
    ReadableAfterWritable,
    /// An indirect descriptor without the negotiated feature.
    #[error("indirect descriptor, but the feature was not negotiated")]
    IndirectNotNegotiated,
    /// An indirect descriptor within an indirect table.
    #[error("descriptor of an indirect table is itself indirect")]
    IndirectNested,
    /// An indirect descriptor in place of a direct one.
    #[error("misplaced indirect descriptor in a chain")]
    IndirectInChain,
    /// The length of an indirect table is invalid.
    #[error("indirect table has {len} bytes, expected a multiple of 16 above 0")]
    IndirectLength {
        /// Its length in bytes.
        len: u32,
    },
}

/// The slots of the used ring that one [`publish`](Virtqueue::publish) wrote; see [`written`](Virtqueue::written).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    first: u16,
    slots: u16,
}

impl Published {
    /// Whether no slot was published.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Returns the slots as runs that do not wrap: first slot and number.
    fn runs(self, size: u16) -> [(u16, u16); 2] {
        // In bounds even for a value from another queue.
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

/// Calls the method of the ring's format.
macro_rules! either {
    ($self:ident, $ring:ident => $call:expr) => {
        match &mut $self.ring {
            Ring::Split($ring) => $call,
            Ring::Packed($ring) => $call,
        }
    };
}

impl Virtqueue {
    /// Makes the queue that a front-end described. Reads from the ring only the used index of a split ring.
    ///
    /// # Safety
    ///
    /// Until the queue is dropped or no longer used,
    /// - the three areas are mapped readable and writable, each with the length given by [`Areas::lengths`], and an
    ///   access to them never ends the process, whatever happens to the file behind them (see [`clientmem`]);
    /// - this process accesses them only by atomics or raw copies.
    ///
    /// [`Areas::locate`] returns areas that meet this for as long as the table exists.
    pub unsafe fn new(config: &Config) -> Result<Virtqueue, ConfigError> {
        config.areas.check(config.format, config.size)?;
        let ring = match config.format {
            // SAFETY: the caller's guarantee; size and alignment were checked.
            Format::Split => Ring::Split(unsafe { Split::new(config) }?),
            // SAFETY: as above.
            Format::Packed => Ring::Packed(unsafe { Packed::new(config) }?),
        };
        Ok(Virtqueue { ring })
    }

    /// Switches to new addresses of the three parts, for a new table of the same memory. Taken chains can still be
    /// given back, but their addresses are those of the old table. An error leaves the queue unchanged.
    ///
    /// # Safety
    ///
    /// As for [`new`](Virtqueue::new), for these areas from now on.
    pub unsafe fn relocate(&mut self, areas: &Areas) -> Result<(), ConfigError> {
        match &mut self.ring {
            Ring::Split(ring) => {
                areas.check(Format::Split, ring.size())?;
                // SAFETY: the caller's guarantee; alignment was checked.
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

    /// Returns the number of chains that can be taken: exact for a split ring; a packed ring counts those within the
    /// next 64 descriptors.
    ///
    /// Acquires the driver's writes from before it made them available.
    #[inline]
    pub fn available(&mut self) -> Result<u16, QueueError> {
        match &mut self.ring {
            Ring::Split(ring) => ring.available(),
            Ring::Packed(ring) => Ok(ring.available()),
        }
    }

    /// Takes the next chain; `false` when none is available. `chain` is valid only after `true`.
    ///
    /// Its addresses stay valid as long as `memory` guarantees.
    #[inline]
    pub fn take(&mut self, memory: &GuestMemory, chain: &mut Chain) -> Result<bool, QueueError> {
        either!(self, ring => ring.take(memory, chain))
    }

    /// Whether a chain is available.
    #[inline(always)]
    pub fn has_next(&mut self) -> Result<bool, QueueError> {
        match &mut self.ring {
            Ring::Split(ring) => ring.has_next(),
            Ring::Packed(ring) => Ok(ring.has_next()),
        }
    }

    /// Returns chain `i` after the next one, with its [`id`](Chain::id), if it is *plain*: one direct descriptor,
    /// readable or `writable` as requested, whose bytes lie in one region. Such a chain has one slot. Nothing is taken:
    /// once `plain` has returned the chains 0 to n - 1, [`take_plain`](Virtqueue::take_plain) takes them.
    ///
    /// A split ring finds only chains that [`available`](Virtqueue::available) or [`has_next`](Virtqueue::has_next) has
    /// already found.
    #[inline(always)]
    pub fn plain(&mut self, memory: &GuestMemory, i: u16, writable: bool) -> Option<(Segment, u16)> {
        either!(self, ring => ring.plain(memory, i, writable))
    }

    /// Takes the next `n` chains, all of which [`plain`](Virtqueue::plain) has just returned.
    #[inline(always)]
    pub fn take_plain(&mut self, n: u16) {
        either!(self, ring => ring.take_plain(n));
    }

    /// Undoes the last [`take`](Virtqueue::take) not yet undone; `slots` are those of its chain. For chains taken ahead
    /// when the queue stops.
    #[inline]
    pub fn untake(&mut self, slots: u16) {
        match &mut self.ring {
            Ring::Split(ring) => ring.untake(),
            Ring::Packed(ring) => ring.untake(slots),
        }
    }

    /// Prefetches the cache lines for giving back and publishing the next `n` chains: the driver used them last, and
    /// without this, [`wants_call`](Virtqueue::wants_call) waits for all of them.
    #[inline(always)]
    pub fn expect_publish(&self, n: u16) {
        match &self.ring {
            Ring::Split(ring) => ring.expect_publish(n),
            // Chains are given back into the slots that they were taken from, so the lines are near.
            Ring::Packed(_) => {}
        }
    }

    /// Stages a chain, by its [`id`](Chain::id) and [`slots`](Chain::slots), to be given back to the driver with its
    /// first `len` bytes written. The driver sees it after [`publish`](Virtqueue::publish).
    #[inline]
    pub fn give_back(&mut self, id: u16, slots: u16, len: u32) {
        match &mut self.ring {
            Ring::Split(ring) => ring.give_back(id, len),
            Ring::Packed(ring) => ring.give_back(id, slots, len),
        }
    }

    /// Stages unwritten chains, by their ids and slots; as [`give_back`](Virtqueue::give_back) of each.
    #[inline]
    pub fn give_back_unwritten(&mut self, chains: &[(u16, u16)]) {
        match &mut self.ring {
            Ring::Split(ring) => chains.iter().for_each(|(id, _)| ring.give_back(*id, 0)),
            Ring::Packed(ring) => chains.iter().for_each(|(id, slots)| ring.give_back(*id, *slots, 0)),
        }
    }

    /// Makes all staged chains visible to the driver, together with earlier writes to their segments.
    #[inline]
    pub fn publish(&mut self) -> Published {
        either!(self, ring => ring.publish())
    }

    /// Returns the ranges of guest memory that a [`publish`](Virtqueue::publish) wrote, as addresses of this process,
    /// for the dirty log. Ignore ranges of length 0.
    pub fn written(&self, published: Published) -> [(NonNull<u8>, usize); 3] {
        match &self.ring {
            Ring::Split(ring) => ring.written(published),
            Ring::Packed(ring) => ring.written(published),
        }
    }

    /// Returns the number of entries.
    pub fn size(&self) -> u16 {
        match &self.ring {
            Ring::Split(ring) => ring.size(),
            Ring::Packed(ring) => ring.size(),
        }
    }

    /// Returns the device area, as an address of this process and a length, for the dirty log.
    pub fn device_area(&self) -> (NonNull<u8>, usize) {
        match &self.ring {
            Ring::Split(ring) => (ring.device(), ring.device_len()),
            Ring::Packed(ring) => (ring.device(), ring.device_len()),
        }
    }

    /// Returns the part of the device area that [`set_kicks`](Virtqueue::set_kicks) writes, for the dirty log.
    pub fn kicks_area(&self) -> (NonNull<u8>, usize) {
        match &self.ring {
            Ring::Split(ring) => ring.kicks_area(),
            Ring::Packed(ring) => (ring.device(), ring.device_len()),
        }
    }

    /// Asks the driver to signal when it makes chains available, or to stop signalling.
    ///
    /// After turning signals on, check [`available`](Virtqueue::available) once more before sleeping: earlier chains
    /// cause no signal. A driver may signal even when asked not to.
    #[inline]
    pub fn set_kicks(&mut self, on: bool) {
        either!(self, ring => ring.set_kicks(on));
    }

    /// Whether the driver wants a signal for the chains published since the last call. Call it once after each
    /// [`publish`](Virtqueue::publish).
    #[inline]
    pub fn wants_call(&mut self) -> bool {
        either!(self, ring => ring.wants_call())
    }

    /// Returns the number of published slots that the driver has not processed yet, as far as it shows, and at most
    /// the size of the ring.
    ///
    /// A driver shows it in two ways, of which the one that says less counts. It makes processed buffers available
    /// again: so the slots that it holds now, beyond the fewest that it was seen to hold, may be unprocessed; some
    /// drivers collect processed buffers for a while. And with [`Features::event_idx`], when it asks for a signal, it
    /// names the first slot that it has not processed.
    pub fn unprocessed(&mut self) -> u16 {
        either!(self, ring => ring.unprocessed())
    }

    /// Returns the position of the queue, as `GET_VRING_BASE` carries it.
    ///
    /// Split: the index of the next available entry. Packed: bits 0 to 14 the slot of the next available descriptor,
    /// bit 15 its wrap counter, bits 16 to 31 the same for the next used descriptor.
    ///
    /// Taken chains count as taken. Give them back, or undo the take, before the queue stops: a successor at this
    /// position does not know of them.
    pub fn base(&self) -> u32 {
        match &self.ring {
            Ring::Split(ring) => ring.base(),
            Ring::Packed(ring) => ring.base(),
        }
    }
}
