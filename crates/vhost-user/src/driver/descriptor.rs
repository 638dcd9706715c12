//! Writing descriptors: only drivers do this.

use std::sync::atomic::Ordering;

use crate::virtqueue::area::{Area, RawDescriptor};
use crate::virtqueue::layout::DESCRIPTOR;

impl RawDescriptor {
    /// Returns the descriptor's bytes in memory.
    pub(super) fn to_bytes(self) -> [u8; DESCRIPTOR] {
        ((u128::from(self.rest) << 64) | u128::from(self.address)).to_le_bytes()
    }
}

impl Area {
    /// Writes a descriptor: first the address, then, with `order`, the word with the flags.
    #[inline]
    pub(super) fn write_descriptor(&self, slot: u16, descriptor: RawDescriptor, order: Ordering) {
        let offset = usize::from(slot) * DESCRIPTOR;
        self.u64(offset).store(descriptor.address, Ordering::Relaxed);
        self.u64(offset + 8).store(descriptor.rest, order);
    }
}
