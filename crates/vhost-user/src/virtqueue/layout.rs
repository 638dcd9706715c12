//! Memory layout of the parts of a virtqueue: sizes, offsets and flags that both sides share.

use std::ptr::NonNull;

use super::ConfigError;
use crate::memory::GuestMemory;

/// Maximum number of descriptors of a virtqueue.
pub const MAX_SIZE: u16 = 1 << 15;

/// The size of a descriptor.
pub(crate) const DESCRIPTOR: usize = 16;

/// The chain continues in the next descriptor.
pub(crate) const NEXT: u16 = 1;
/// The buffer is writable for the device.
pub(crate) const WRITE: u16 = 2;
/// The descriptor refers to an indirect table.
pub(crate) const INDIRECT: u16 = 4;

/// Split: offset of the index in both rings.
pub(crate) const SPLIT_INDEX: usize = 2;
/// Split: offset of the entries in both rings.
pub(crate) const SPLIT_ENTRIES: usize = 4;
/// Split: the size of an available entry.
pub(crate) const AVAILABLE_ENTRY: usize = 2;
/// Split: the size of a used entry.
pub(crate) const USED_ENTRY: usize = 8;
/// Split: in either ring's flags, disables signals.
pub(crate) const SPLIT_NO_SIGNAL: u16 = 1;

/// Packed: set by the driver to its wrap counter.
pub(crate) const PACKED_AVAILABLE: u16 = 1 << 7;
/// Packed: set by the device to its wrap counter, by the driver to the opposite of its own.
pub(crate) const PACKED_USED: u16 = 1 << 15;
/// Packed: in the flags of event suppression, disables signals.
pub(crate) const EVENT_DISABLE: u16 = 1;
/// Packed: in the flags of event suppression, asks for a signal at a descriptor.
pub(crate) const EVENT_DESCRIPTOR: u16 = 2;
/// Packed: the wrap counter next to a slot.
pub(crate) const WRAP: u16 = 1 << 15;

/// Memory format of a virtqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A table of descriptors, a ring of available and a ring of used entries (virtio 1.2 §2.7).
    Split,
    /// One ring of descriptors that both sides write (virtio 1.2 §2.8).
    Packed,
}

impl Format {
    pub(super) fn size_rule(self) -> &'static str {
        match self {
            Format::Split => "a power of two up to 32768",
            Format::Packed => "within 1 and 32768",
        }
    }

    fn allows(self, size: u16) -> bool {
        match self {
            Format::Split => size.is_power_of_two(),
            Format::Packed => (1..=MAX_SIZE).contains(&size),
        }
    }
}

/// Names of the three parts in messages.
const PARTS: [&str; 3] = ["descriptor", "driver", "device"];

/// User addresses of the three parts of a virtqueue, as `SET_VRING_ADDR` carries them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The descriptors.
    pub descriptors: u64,
    /// The available ring of a split, the driver event suppression of a packed virtqueue.
    pub driver: u64,
    /// The used ring of a split, the device event suppression of a packed virtqueue.
    pub device: u64,
}

/// Addresses of the three parts of a virtqueue in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// As [`Addresses::descriptors`].
    pub descriptors: NonNull<u8>,
    /// As [`Addresses::driver`].
    pub driver: NonNull<u8>,
    /// As [`Addresses::device`].
    pub device: NonNull<u8>,
}

impl Areas {
    /// Returns the lengths in bytes of the parts of a virtqueue: descriptors, driver, device.
    pub const fn lengths(format: Format, size: u16) -> [usize; 3] {
        let n = size as usize;
        match format {
            // The last two bytes of each ring are for event indices, whether negotiated or not.
            Format::Split => {
                [n * DESCRIPTOR, SPLIT_ENTRIES + n * AVAILABLE_ENTRY + 2, SPLIT_ENTRIES + n * USED_ENTRY + 2]
            }
            Format::Packed => [n * DESCRIPTOR, 4, 4],
        }
    }

    /// Returns the required alignments of the parts' addresses.
    pub const fn alignments(format: Format) -> [usize; 3] {
        match format {
            Format::Split => [16, 2, 4],
            Format::Packed => [16, 4, 4],
        }
    }

    /// Locates the parts in the memory that the front-end shares.
    pub fn locate(
        memory: &GuestMemory,
        format: Format,
        size: u16,
        addresses: &Addresses,
    ) -> Result<Areas, ConfigError> {
        if !format.allows(size) {
            return Err(ConfigError::Size { size, format });
        }
        let lengths = Areas::lengths(format, size).map(|len| len as u64);
        let find = |part: usize, address: u64| {
            let (part, len) = (PARTS[part], lengths[part]);
            memory.user(address, len).ok_or(ConfigError::OutsideMemory { part, address, len })
        };
        let areas = Areas {
            descriptors: find(0, addresses.descriptors)?,
            driver: find(1, addresses.driver)?,
            device: find(2, addresses.device)?,
        };
        areas.check(format, size)?;
        Ok(areas)
    }

    /// Checks size and alignment, without accessing the memory.
    pub(crate) fn check(&self, format: Format, size: u16) -> Result<(), ConfigError> {
        if !format.allows(size) {
            return Err(ConfigError::Size { size, format });
        }
        let starts = [self.descriptors, self.driver, self.device];
        for ((start, part), alignment) in starts.into_iter().zip(PARTS).zip(Areas::alignments(format)) {
            if !start.addr().get().is_multiple_of(alignment) {
                return Err(ConfigError::Misaligned { part, alignment });
            }
        }
        Ok(())
    }
}
