//! The driver's side of virtqueues, for tests and tools.
//!
//! A [`DriverMemory`] is memory of our own that plays the guest's; it yields what a back-end needs to share it. A
//! [`DriverQueue`] is one virtqueue in it: [`add`](DriverQueue::add) chains of buffers, [`publish`](DriverQueue::publish)
//! them, [`pop`](DriverQueue::pop) what the device is done with. Where rings and buffers lie is up to the caller, who may
//! also write over the rings by hand ([`DriverMemory::write`]).
//!
//! Invariants:
//! - Addresses are the guest's. What lies outside the memory is refused by methods that say so, wherever it is named.
//! - The device is not trusted more than a driver is: what it writes to the rings leads to errors, not to a panic.

mod descriptor;
mod memory;
mod packed;
mod split;

use std::sync::Arc;

pub use memory::DriverMemory;

use crate::virtqueue::{Addresses, Areas, ConfigError, Features, Format};
use packed::Packed;
use split::Split;

/// Contiguous bytes for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Their guest address.
    pub address: u64,
    /// How many they are.
    pub len: u32,
}

/// What a virtqueue is made of.
#[derive(Debug, Clone, Copy)]
pub struct DriverConfig {
    /// Split or packed.
    pub format: Format,
    /// The number of descriptors.
    pub size: u16,
    /// Where the guest has the three parts.
    pub addresses: Addresses,
    /// What was negotiated.
    pub features: Features,
    /// Where it starts, as `SET_VRING_BASE` carries it: [`DriverConfig::start`], unless a test wants it otherwise.
    pub base: u32,
}

impl DriverConfig {
    /// A virtqueue with its parts one behind the other from a guest address on, which is a multiple of 64.
    pub fn at(address: u64, format: Format, size: u16, features: Features) -> DriverConfig {
        let [descriptors, driver, _] =
            Areas::lengths(format, size).map(|len| (len as u64).next_multiple_of(64));
        let addresses = Addresses {
            descriptors: address,
            driver: address + descriptors,
            device: address + descriptors + driver,
        };
        DriverConfig { format, size, addresses, features, base: DriverConfig::start(format) }
    }

    /// Where a virtqueue starts that was never used.
    pub fn start(format: Format) -> u32 {
        match format {
            Format::Split => 0,
            // Both wrap counters begin with 1.
            Format::Packed => 1 << 31 | 1 << 15,
        }
    }

    /// The bytes that [`at`](DriverConfig::at) needs.
    pub fn bytes(format: Format, size: u16) -> u64 {
        Areas::lengths(format, size).iter().map(|&len| (len as u64).next_multiple_of(64)).sum()
    }
}

/// What the device made of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The chain, as [`DriverQueue::add`] called it.
    pub id: u16,
    /// How many bytes it wrote; 0 for those that it reported together with a later one.
    pub len: u32,
}

/// A rule that the device broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// More used entries than chains.
    #[error("device reports {reported} chains used, {outstanding} were available")]
    IndexJumped {
        /// How many it reports.
        reported: u16,
        /// How many it had.
        outstanding: u16,
    },
    /// A used entry that names no chain of the device's.
    #[error("device reports chain {id} used, which it did not have")]
    UnknownId {
        /// What it names.
        id: u32,
    },
}

/// The driver's side of one virtqueue.
#[derive(Debug)]
pub struct DriverQueue {
    memory: Arc<DriverMemory>,
    config: DriverConfig,
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

impl DriverQueue {
    /// Makes a virtqueue and initialises its memory.
    pub fn new(memory: Arc<DriverMemory>, config: &DriverConfig) -> Result<DriverQueue, ConfigError> {
        let areas = memory.locate(config.format, config.size, &config.addresses)?;
        areas.check(config.format, config.size)?;
        let ring = match config.format {
            // SAFETY: the areas are in memory that the queue keeps mapped, and were found with the lengths of this format
            // and size, aligned. DriverMemory accesses it by raw copies only.
            Format::Split => Ring::Split(unsafe { Split::new(&areas, config) }?),
            // SAFETY: as above.
            Format::Packed => Ring::Packed(unsafe { Packed::new(&areas, config) }?),
        };
        Ok(DriverQueue { memory, config: *config, ring })
    }

    /// The memory that the queue lies in.
    pub fn memory(&self) -> &Arc<DriverMemory> {
        &self.memory
    }

    /// What it was made of.
    pub fn config(&self) -> &DriverConfig {
        &self.config
    }

    /// Stages a chain of buffers that the device may read and buffers that it may write. Returns what the chain is
    /// called, or `None` where there is no room for it or it has no buffer.
    ///
    /// With `table` the chain takes one slot and its descriptors are written to that guest address, which must hold
    /// 16 bytes for each and stay untouched until the chain is used; `None` too where it does not.
    pub fn add(&mut self, readable: &[Buffer], writable: &[Buffer], table: Option<u64>) -> Option<u16> {
        either!(self, ring => ring.add(&self.memory, readable, writable, table))
    }

    /// Makes all that is staged available to the device.
    pub fn publish(&mut self) {
        either!(self, ring => ring.publish());
    }

    /// Whether the device wants a signal for what was published since this was last asked.
    pub fn wants_kick(&mut self) -> bool {
        either!(self, ring => ring.wants_kick())
    }

    /// Takes the next chain that the device is done with.
    pub fn pop(&mut self) -> Result<Option<Used>, DriverError> {
        either!(self, ring => ring.pop())
    }

    /// Whether [`pop`](DriverQueue::pop) has something to say.
    pub fn is_ready(&self) -> bool {
        match &self.ring {
            Ring::Split(ring) => ring.is_ready(),
            Ring::Packed(ring) => ring.is_ready(),
        }
    }

    /// Asks the device to signal when it is done with chains, or not to. After turning it on, [`pop`](DriverQueue::pop) once
    /// more before sleeping.
    pub fn set_calls(&mut self, on: bool) {
        either!(self, ring => ring.set_calls(on));
    }

    /// How many direct descriptors can be added.
    pub fn free(&self) -> u16 {
        match &self.ring {
            Ring::Split(ring) => ring.free(),
            Ring::Packed(ring) => ring.free(),
        }
    }
}

/// The descriptors of a chain: buffer, whether it is writable, whether it is the last.
fn descriptors<'b>(
    readable: &'b [Buffer],
    writable: &'b [Buffer],
) -> impl Iterator<Item = (Buffer, bool, bool)> + 'b {
    let last = (readable.len() + writable.len()).wrapping_sub(1);
    let readable = readable.iter().map(|&b| (b, false));
    readable.chain(writable.iter().map(|&b| (b, true))).enumerate().map(move |(i, (b, w))| (b, w, i == last))
}
