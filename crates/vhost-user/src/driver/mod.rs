//! The driver's side of virtqueues, for tests and tools.
//!
//! A [`DriverMemory`] is memory of this process that stands in for the guest's; its region descriptions let a back-end
//! share it. A [`DriverQueue`] is one virtqueue in it: [`add`](DriverQueue::add) chains of buffers,
//! [`publish`](DriverQueue::publish) them, [`pop`](DriverQueue::pop) the chains that the device has used. The caller
//! places rings and buffers, and may overwrite the rings by hand ([`DriverMemory::write`]).
//!
//! Invariants:
//! - Addresses are the guest's. Methods refuse addresses outside the memory and report them.
//! - The device is trusted no more than a driver is: its writes to the rings lead to errors, not to a panic.

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
    /// Guest address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub len: u32,
}

/// Configuration of a virtqueue.
#[derive(Debug, Clone, Copy)]
pub struct DriverConfig {
    /// Split or packed.
    pub format: Format,
    /// The number of descriptors.
    pub size: u16,
    /// Guest addresses of the three parts.
    pub addresses: Addresses,
    /// The negotiated features.
    pub features: Features,
    /// Start position, as `SET_VRING_BASE` carries it: [`DriverConfig::start`], unless a test needs another.
    pub base: u32,
}

impl DriverConfig {
    /// Configures a virtqueue with its parts one after another from a guest address on, which is a multiple of 64.
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

    /// Returns the start position of an unused virtqueue.
    pub fn start(format: Format) -> u32 {
        match format {
            Format::Split => 0,
            // Both wrap counters start at 1.
            Format::Packed => 1 << 31 | 1 << 15,
        }
    }

    /// Returns the size in bytes that [`at`](DriverConfig::at) needs.
    pub fn bytes(format: Format, size: u16) -> u64 {
        Areas::lengths(format, size).iter().map(|&len| (len as u64).next_multiple_of(64)).sum()
    }
}

/// A chain that the device has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The chain, by its id from [`DriverQueue::add`].
    pub id: u16,
    /// Number of bytes written; 0 for a chain that the device reported together with a later one.
    pub len: u32,
}

/// Protocol violations of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// More used entries than outstanding chains.
    #[error("device reports {reported} used chains, only {outstanding} were available")]
    IndexJumped {
        /// The number of chains reported.
        reported: u16,
        /// The number of chains available to the device.
        outstanding: u16,
    },
    /// A used entry that names no chain of the device.
    #[error("device reports chain {id} as used, which is not available to it")]
    UnknownId {
        /// The reported id.
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

/// Calls the method of the ring's format.
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
            // SAFETY: the areas are in memory that the queue keeps mapped, have the lengths of this format and size,
            // and are aligned. DriverMemory accesses it by raw copies only.
            Format::Split => Ring::Split(unsafe { Split::new(&areas, config) }?),
            // SAFETY: as above.
            Format::Packed => Ring::Packed(unsafe { Packed::new(&areas, config) }?),
        };
        Ok(DriverQueue { memory, config: *config, ring })
    }

    /// Returns the queue's memory.
    pub fn memory(&self) -> &Arc<DriverMemory> {
        &self.memory
    }

    /// Returns the queue's configuration.
    pub fn config(&self) -> &DriverConfig {
        &self.config
    }

    /// Stages a chain of readable and writable buffers. Returns the chain's id, or `None` if it has no buffer or the
    /// ring has no room for it.
    ///
    /// With `table` the chain takes one slot and its descriptors are written to that guest address, which must hold 16
    /// bytes for each and stay unchanged until the chain is used; otherwise the result is `None` too.
    pub fn add(&mut self, readable: &[Buffer], writable: &[Buffer], table: Option<u64>) -> Option<u16> {
        either!(self, ring => ring.add(&self.memory, readable, writable, table))
    }

    /// Makes all staged chains available to the device.
    pub fn publish(&mut self) {
        either!(self, ring => ring.publish());
    }

    /// Whether the device wants a signal for the chains published since the last call.
    pub fn wants_kick(&mut self) -> bool {
        either!(self, ring => ring.wants_kick())
    }

    /// Takes the next chain that the device has used.
    pub fn pop(&mut self) -> Result<Option<Used>, DriverError> {
        either!(self, ring => ring.pop())
    }

    /// Whether [`pop`](DriverQueue::pop) returns a chain or an error.
    pub fn is_ready(&self) -> bool {
        match &self.ring {
            Ring::Split(ring) => ring.is_ready(),
            Ring::Packed(ring) => ring.is_ready(),
        }
    }

    /// Asks the device to signal used chains, or to stop signalling. After turning signals on,
    /// [`pop`](DriverQueue::pop) once more before sleeping.
    pub fn set_calls(&mut self, on: bool) {
        either!(self, ring => ring.set_calls(on));
    }

    /// Returns the number of direct descriptors that can be added.
    pub fn free(&self) -> u16 {
        match &self.ring {
            Ring::Split(ring) => ring.free(),
            Ring::Packed(ring) => ring.free(),
        }
    }
}

/// Iterates over the descriptors of a chain: the buffer, whether it is writable, whether it is the last.
fn descriptors<'b>(
    readable: &'b [Buffer],
    writable: &'b [Buffer],
) -> impl Iterator<Item = (Buffer, bool, bool)> + 'b {
    let last = (readable.len() + writable.len()).wrapping_sub(1);
    let readable = readable.iter().map(|&b| (b, false));
    readable.chain(writable.iter().map(|&b| (b, true))).enumerate().map(move |(i, (b, w))| (b, w, i == last))
}
