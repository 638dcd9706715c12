//! The regions of one connection, and the way from a descriptor's (region, offset, length) to an address.
//!
//! Invariants:
//! - [`Memory::translate`] yields an address only when all of the asked bytes lie within one region.
//! - The set of regions does not change during a connection.

use std::ptr::NonNull;

use clientmem::Region;

/// The memory that a client shares, fixed from the moment it connects.
///
/// Addresses taken from it are valid until it is dropped; see [`Region`] for what that asks of the owner. Rings hold
/// it by `Arc`.
#[derive(Debug)]
pub struct Memory {
    regions: Box<[Region]>,
}

impl Memory {
    /// The memory made of these regions, in the order of their index.
    pub fn new(regions: Vec<Region>) -> Memory {
        Memory { regions: regions.into_boxed_slice() }
    }

    /// The address of `length` bytes at `offset` of a region, or `None` where there is no such place.
    #[inline]
    pub fn translate(&self, region: u16, offset: u32, length: u32) -> Option<NonNull<u8>> {
        self.regions.get(usize::from(region))?.at(u64::from(offset), u64::from(length))
    }

    /// Whether the client took away memory that was accessed; it should then be disconnected.
    #[inline]
    pub fn faulted(&self) -> bool {
        self.regions.iter().any(Region::faulted)
    }

    /// Takes it away from whoever uses it; see [`Region::void`].
    pub fn void(&self) {
        self.regions.iter().for_each(Region::void);
    }

    /// Waits while somebody punches holes into it; see [`Region::wait_for_holes`].
    pub fn wait_for_holes(&self) {
        self.regions.iter().for_each(Region::wait_for_holes);
    }

    /// All regions.
    #[inline]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}
